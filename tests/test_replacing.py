import os
import threading
import time
from pathlib import Path

import pytest

from metricgrad.replacing import SUFFIX, write_whole


def test_threads_that_write_one_file_leave_it_complete_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "file"
    contents = [bytes([number]) * 300_000 for number in range(8)]
    errors: list[BaseException] = []

    def write(content: bytes) -> None:
        try:
            for _ in range(10):
                write_whole(path, content)
                assert path.read_bytes() in contents
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert [entry.name for entry in path.parent.iterdir()] == ["file"]


def test_a_write_that_fails_keeps_the_old_file_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    (path / "folder").mkdir(parents=True)  # a folder that is not empty cannot be replaced by a file
    with pytest.raises(OSError, match="file"):
        write_whole(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_what_a_dead_process_left_is_removed_but_not_what_another_is_writing(tmp_path: Path) -> None:
    old, new = tmp_path / f".file.1-1-ab{SUFFIX}", tmp_path / f".file.2-2-cd{SUFFIX}"
    other = tmp_path / f".file2.1-1-ab{SUFFIX}"
    for left in (old, new, other):
        left.write_bytes(b"part")
        os.utime(left, (time.time() - (0 if left == new else 7200),) * 2)
    write_whole(tmp_path / "file", b"whole")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted([new.name, other.name, "file"])
