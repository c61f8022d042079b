import errno
import importlib.util
import multiprocessing
import os
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from metricgrad import locking
from metricgrad.locking import exclusive


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


def _windows_locking(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, set[tuple[int, int]]]:
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
    spec = importlib.util.spec_from_file_location("locking_on_windows", locking.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.undo()
    monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    return module, held


def test_on_windows_a_byte_beyond_the_content_is_locked_and_the_position_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, held = _windows_locking(monkeypatch)
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
    module, _ = _windows_locking(monkeypatch)
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
