"""Files and folders are there whole or not at all, and what a killed process leaves is cleared away or finished."""

from __future__ import annotations

import errno
import importlib.util
import multiprocessing
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from metricgrad import files
from metricgrad.files import (
    LEFTOVER_SECONDS,
    exclusive,
    is_being_replaced,
    recover,
    remove_leftovers,
    replacing,
    replacing_folder,
    staged,
)
from metricgrad.files import write_whole as write_whole_file

WRITER = """
import os, signal, sys
from pathlib import Path
from metricgrad import files
target, moment = Path(sys.argv[1]), sys.argv[2]
renamed = Path.rename
def rename(self, other):
    done = renamed(self, other)
    if moment == ("between" if self == target else "after"):
        os.kill(os.getpid(), signal.SIGKILL)
    return done
Path.rename = rename
with files.replacing_folder(target) as new:
    (new / "content").write_text("new")
    if moment == "before":
        os.kill(os.getpid(), signal.SIGKILL)
"""
FILE_WRITER = """
import os, signal, sys
from metricgrad.files import replacing
with replacing(sys.argv[1]) as new:
    new.write_text("half of it")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(code: str, *arguments: object) -> None:
    done = subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=False)
    assert done.returncode == -signal.SIGKILL


def folder_with(path: Path, content: str) -> Path:
    path.mkdir(exist_ok=True)
    (path / "content").write_text(content)
    return path


# ---- whole or not there --------------------------------------------------------------------------------------------


def test_a_file_is_replaced_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    assert write_whole_file(tmp_path / "page.html", "é") == tmp_path / "page.html"
    write_whole_file(str(tmp_path / "page.html"), b"\x00\xff")
    assert (tmp_path / "page.html").read_bytes() == b"\x00\xff"
    assert os.listdir(tmp_path) == ["page.html"]


def test_when_writing_fails_the_old_file_is_untouched(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text("old")

    def fail_half_way() -> None:
        with replacing(file) as new:
            new.write_text("half")
            assert file.read_text() == "old"
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        fail_half_way()
    assert file.read_text() == "old"
    assert os.listdir(tmp_path) == ["page.html"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_the_mode_is_what_the_umask_leaves(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_whole_file(tmp_path / "file", "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o666 & ~mask


def test_a_link_stays_a_link_and_the_file_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_whole_file(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_a_pipe_is_written_and_stays_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append((tmp_path / "pipe").read_text()), daemon=True)
    reader.start()
    write_whole_file(tmp_path / "pipe", "text")
    reader.join(10)
    assert read == ["text"]
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_names_as_long_as_there_can_be_are_written(tmp_path: Path) -> None:
    write_whole_file(tmp_path / ("é" * 127), "text")
    assert (tmp_path / ("é" * 127)).read_text() == "text"


def test_two_writers_of_a_folder_leave_one_of_two_whole_folders(tmp_path: Path) -> None:
    target = tmp_path / "model"

    def write(content: str) -> None:
        for _ in range(60):
            with replacing_folder(target) as new:
                folder_with(new, content)

    writers = [threading.Thread(target=write, args=(content,)) for content in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert (target / "content").read_text() in "ab"
    assert os.listdir(tmp_path) == ["model"]


def test_a_folder_that_comes_and_goes_during_the_replacement_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer puts its folder there before our rename, and has taken it away again when we look."""
    target = folder_with(tmp_path / "model", "old")
    rename, calls = Path.rename, []

    def contended(self: Path, to: Path) -> Path:
        calls.append(self.suffix)
        if calls.count(".new") == 1 and self.suffix == ".new":
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", contended)
    with replacing_folder(target) as new:
        folder_with(new, "new")
    assert (target / "content").read_text() == "new"
    assert os.listdir(tmp_path) == ["model"]


# ---- killed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("moment", "content"), [("before", "old"), ("between", "new"), ("after", "new")])
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_folder(tmp_path: Path, moment: str, content: str) -> None:
    target = folder_with(tmp_path / "model", "old")
    killed(WRITER, target, moment)
    assert len(os.listdir(tmp_path)) == 2
    assert target.exists() == (moment != "between")
    recover(target)
    assert (target / "content").read_text() == content
    with replacing_folder(target) as new:
        folder_with(new, "newer")
    assert (target / "content").read_text() == "newer"
    assert os.listdir(tmp_path) == ["model"]


def test_a_folder_without_its_successor_is_recovered_too(tmp_path: Path) -> None:
    target = folder_with(tmp_path / "model", "old")
    killed(WRITER, target, "between")
    for path in tmp_path.iterdir():
        if path.suffix == ".new":
            (path / "content").unlink()
            path.rmdir()
    recover(target)
    assert (target / "content").read_text() == "old"


def test_what_a_killed_writer_of_a_file_left_is_removed_by_the_next(tmp_path: Path) -> None:
    file = tmp_path / "scores.csv"
    file.write_text("old")
    killed(FILE_WRITER, file)
    assert len(os.listdir(tmp_path)) == 2
    write_whole_file(tmp_path / "another.csv", "text")
    assert len(os.listdir(tmp_path)) == 3  # not its own
    assert write_whole_file(file, "new").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["another.csv", "scores.csv"]


def test_what_is_in_use_or_of_others_stays(tmp_path: Path) -> None:
    target = tmp_path / "model"
    mine = folder_with(staged(target), "being written")
    name = mine.name
    others = [
        tmp_path / ".model.abcdefgh",
        tmp_path / f"{name}.txt",
        tmp_path / name.replace(f"-{os.getpid()}-", "-99999999999999999999-").replace(name[22:30], "00000000"),
    ]
    for path in others:
        path.write_text("of others")
    dead = tmp_path / name.replace(f"-{os.getpid()}-", "-99999999999999999999-")
    dead.write_text("of a process that is gone")
    remove_leftovers(target)
    assert sorted(tmp_path.iterdir()) == sorted([mine, *others])
    old = time.time() - 2 * LEFTOVER_SECONDS
    os.utime(others[2], (old, old))
    remove_leftovers(target)
    assert others[2].exists()  # written long ago, but put there just now


def test_a_folder_is_not_recovered_while_a_living_process_replaces_it(tmp_path: Path) -> None:
    target = tmp_path / "model"
    folder_with(staged(target).with_suffix(".old"), "old")
    assert is_being_replaced(target)
    recover(target)
    assert not target.exists()


def test_a_folder_that_cannot_be_listed_has_no_leftovers(tmp_path: Path) -> None:
    remove_leftovers(tmp_path / "nowhere" / "model")
    recover(tmp_path / "nowhere" / "model")
    assert not is_being_replaced(tmp_path / "nowhere" / "model")


def test_threads_that_write_one_file_leave_it_complete_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "file"
    contents = [bytes([number]) * 300_000 for number in range(8)]
    errors: list[BaseException] = []

    def write(content: bytes) -> None:
        try:
            for _ in range(10):
                write_whole_file(path, content)
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


# ---- locks ---------------------------------------------------------------------------------------------------------


def _add_one(path: Path, times: int) -> None:
    for _ in range(times):
        with path.open("r+") as file, exclusive(file):
            count = int(file.read())
            file.seek(0)
            file.write(str(count + 1))


def test_processes_that_take_turns_lose_no_update(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")
    start = multiprocessing.get_context("spawn")
    others = [start.Process(target=_add_one, args=(path, 100)) for _ in range(3)]
    for process in others:
        process.start()
    for process in others:
        process.join()
    assert path.read_text() == "300"


def test_threads_that_open_the_file_themselves_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "count"
    path.write_text("0")
    threads = [threading.Thread(target=_add_one, args=(path, 100)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert path.read_text() == "400"


def test_an_error_inside_the_block_releases_the_lock_and_keeps_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with path.open("ab") as first, path.open("ab") as second:
        with pytest.raises(KeyError), exclusive(first):
            raise KeyError(first.write(b"written"))
        with exclusive(second):
            assert path.read_bytes() == b"written"


# ---- the Windows branch, on a stand-in for its one system call -------------------------------------------------------


def _files_on_windows(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, set[tuple[int, int]]]:
    """Return the module as Windows imports it, and the bytes its stand-in holds locked, by inode and offset."""
    held: dict[tuple[int, int], int] = {}
    guard = threading.Lock()

    def lock_byte(descriptor: int, mode: int, size: int) -> None:
        byte = (os.fstat(descriptor).st_ino, os.lseek(descriptor, 0, os.SEEK_CUR))
        assert size == 1
        with guard:
            if mode == 0:
                assert held.pop(byte) == descriptor
            elif byte in held:
                raise OSError(errno.EACCES, "the byte is locked")
            else:
                held[byte] = descriptor

    monkeypatch.setitem(sys.modules, "msvcrt", SimpleNamespace(LK_UNLCK=0, LK_NBLCK=2, locking=lock_byte))
    monkeypatch.setattr(sys, "platform", "win32")
    spec = importlib.util.spec_from_file_location("files_on_windows", files.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.undo()
    monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    return module, held


def test_on_windows_a_byte_beyond_the_content_is_locked_and_the_position_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, held = _files_on_windows(monkeypatch)
    path = tmp_path / "log"
    path.write_bytes(b"0123456789")
    with path.open("r+b") as file:
        file.seek(4)
        with module.exclusive(file):
            assert [offset for _, offset in held] == [2**31 - 2]
            assert file.tell() == 4
            file.write(b"x")
        assert not held
        assert file.tell() == 5
    assert path.read_bytes() == b"0123x56789"


def test_on_windows_a_second_holder_waits_for_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module, _ = _files_on_windows(monkeypatch)
    events: list[str] = []

    def hold() -> None:
        with (tmp_path / "log").open("ab") as file, module.exclusive(file):
            events.append("in")
            time.sleep(0.02)
            events.append("out")

    threads = [threading.Thread(target=hold) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert events == ["in", "out"] * 3
