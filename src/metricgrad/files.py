"""Files and folders that are complete or not there at all, and locks: one process or thread at a time holds a file.

What is written is renamed into place. A file in progress is named after the process that writes it, so leftovers of a
killed process can be distinguished from files in progress, and are removed by the next write.
"""

from __future__ import annotations

import errno
import os
import platform
import re
import secrets
import shutil
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

LEFTOVER_SECONDS = 86_400
"""Age after which a file in progress counts as left behind."""
SWAP_ATTEMPTS = 100
"""How often replacing a folder is tried if other processes replace it at the same time."""
STAGED = re.compile(r"\.metricgrad-(?P<target>[0-9a-f]{8})-(?P<host>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}\.(new|old)")


def write_whole(path: str | Path, content: str | bytes) -> Path:
    """Write a file and create its folder; a reader finds the old content or the new one, never a part."""
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as beside:
        beside.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return Path(path)


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a path to write to, which replaces the file in the end; a device or a pipe is written directly."""
    target = Path(path).resolve()
    if target.exists() and not target.is_file():
        yield target
        return
    remove_leftovers(target)
    new = staged(target)
    try:
        yield new
        _sync(new)
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """Yield a new folder to fill, which replaces the target in the end; after an error the target is unchanged."""
    recover(target)
    remove_leftovers(target)
    new = staged(target)
    new.mkdir()
    try:
        yield new
        for file in new.iterdir():
            _sync(file)
        _swap(new, target)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _swap(new: Path, target: Path) -> None:
    """Replace a folder by another; an error restores it, and `recover` does after a kill between the two renames."""
    old = new.with_suffix(".old")
    for attempt in range(SWAP_ATTEMPTS):
        with suppress(FileNotFoundError):
            target.rename(old)
        try:
            new.rename(target)
            break
        except OSError as error:
            taken = error.errno in (errno.ENOTEMPTY, errno.EEXIST) or target.exists()
            if not taken and old.exists():
                old.rename(target)
            if not taken or attempt == SWAP_ATTEMPTS - 1:
                raise
            shutil.rmtree(old, ignore_errors=True)  # another process has put a folder there, which is newer
    shutil.rmtree(old, ignore_errors=True)


def _sync(file: Path) -> None:
    """Flush a file to the disk before it gets its name."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


# ---- what a killed process leaves ----------------------------------------------------------------------------------


def staged(target: Path) -> Path:
    """Return a new path beside a target, named after the target, the machine and the process."""
    return target.with_name(
        f".metricgrad-{_crc(target.name)}-{_crc(platform.node())}-{os.getpid()}-{secrets.token_hex(4)}.new"
    )


def recover(target: Path) -> None:
    """Finish the replacement of a folder if the process was killed between its two renames."""
    if os.path.lexists(target):
        return
    for old in _leftovers(target):
        if old.suffix == ".old":
            new = old.with_suffix(".new")  # complete, or the old one would still be in its place
            (new if new.exists() else old).rename(target)
            return


def is_being_replaced(target: Path) -> bool:
    """Whether a living process is between the two renames that replace a folder."""
    return any(path.suffix == ".old" and _in_use(path) for path in _beside(target))


def remove_leftovers(target: Path) -> None:
    """Remove what processes that no longer run have left beside a target."""
    for path in _leftovers(target):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with suppress(OSError):
                path.unlink()


def _leftovers(target: Path) -> list[Path]:
    return [path for path in _beside(target) if not _in_use(path)]


def _beside(target: Path) -> list[Path]:
    """Return the files in progress beside a target."""
    with suppress(OSError):
        found = ((STAGED.fullmatch(name), name) for name in sorted(os.listdir(target.parent)))
        return [target.with_name(name) for match, name in found if match and match["target"] == _crc(target.name)]
    return []


def _in_use(path: Path) -> bool:
    """Whether the process that writes a path may still run; on another machine it always may."""
    found = STAGED.fullmatch(path.name)
    try:
        there = path.stat()
    except OSError:
        return True
    touched = max(there.st_mtime, there.st_ctime)  # a renamed folder keeps the first of them
    if found is None or time.time() - touched > LEFTOVER_SECONDS:
        return found is None
    return found["host"] != _crc(platform.node()) or _is_running(int(found["pid"]))


def _is_running(pid: int) -> bool:
    if os.name == "nt":  # there, os.kill ends the process instead of looking for it
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _crc(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', 'surrogateescape')):08x}"


# ---- locks ---------------------------------------------------------------------------------------------------------

if sys.platform == "win32":
    import msvcrt

    LOCKED_BYTE = 2**31 - 2
    """Windows locks bytes and refuses to read or write them: this one lies far beyond the content."""
    POLL_SECONDS = 0.05

    def _acquire(file: IO[Any]) -> None:
        while True:
            try:
                _at_locked_byte(file, msvcrt.LK_NBLCK)
                return
            except OSError:  # another handle holds it; LK_LOCK itself would give up after ten seconds
                time.sleep(POLL_SECONDS)

    def _release(file: IO[Any]) -> None:
        _at_locked_byte(file, msvcrt.LK_UNLCK)

    def _at_locked_byte(file: IO[Any], mode: int) -> None:
        """Lock or unlock the byte; the position in the file stays where it was."""
        descriptor = file.fileno()
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, mode, 1)
        finally:
            os.lseek(descriptor, position, os.SEEK_SET)

else:
    import fcntl

    def _acquire(file: IO[Any]) -> None:
        fcntl.flock(file, fcntl.LOCK_EX)

    def _release(file: IO[Any]) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)


@contextmanager
def exclusive(file: IO[Any]) -> Iterator[None]:
    """Hold an open file exclusively inside the block, waiting until every other holder has left it.

    The file must be open for writing, by this holder itself: a file object that two threads share is not locked between
    them. It is flushed before the lock is released. Only other uses of `exclusive` are excluded.

    >>> import tempfile
    >>> with tempfile.TemporaryFile() as file, exclusive(file):
    ...     _ = file.write(b"one holder at a time")
    """
    _acquire(file)
    try:
        yield
    finally:
        try:
            file.flush()
        finally:
            _release(file)
