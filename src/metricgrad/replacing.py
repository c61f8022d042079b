"""Replacing files: a file is written beside its place and then renamed, so that it is complete or not there."""

from __future__ import annotations

import os
import secrets
import threading
import time
from contextlib import suppress
from pathlib import Path

SUFFIX = ".unfinished"
ABANDONED_SECONDS = 3600.0
"""Age after which an unfinished file is taken for that of a process that died: one is written in far less."""


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that no reader sees a part of it, whoever else writes it: processes, threads, other machines.

    What a failure leaves is removed, and what processes that died have left beside it too.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    # Threads share the number of their process, and machines that share a folder repeat each other's numbers.
    unique = f"{os.getpid()}-{threading.get_ident()}-{secrets.token_hex(4)}"
    unfinished = path.with_name(f".{path.name}.{unique}{SUFFIX}")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _remove_abandoned(path: Path) -> None:
    """Remove unfinished files of a path that nobody writes to any more."""
    for unfinished in path.parent.glob(f".{path.name}.*{SUFFIX}"):
        with suppress(OSError):  # gone already, or not ours to remove
            if time.time() - unfinished.stat().st_mtime > ABANDONED_SECONDS:
                unfinished.unlink()
