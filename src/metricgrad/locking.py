"""Locking: one process or thread at a time holds an open file, on POSIX and on Windows."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

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
