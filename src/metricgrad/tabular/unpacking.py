"""Unpacking: compressed files read as a stream, up to a limit, so that a small file cannot fill memory or disk."""

from __future__ import annotations

import io
import lzma
import math
import os
import struct
import zipfile
import zlib
from typing import IO, Any, NamedTuple

VARIABLE = "METRICGRAD_MAX_UNPACKED_GB"
MAX_GB = 32.0
MAX_RATIO, RATIO_FROM = 100, 1 << 28
"""Bytes unpacked for each packed byte, and the size up to which any ratio is fine: sparse tables compress well."""

DAMAGED = (
    EOFError,
    OSError,
    RuntimeError,  # an encrypted zip, or a compression method this Python lacks
    ValueError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
    zipfile.BadZipFile,
)
"""What Python's readers of gzip, zip, bzip2 and xz raise for a file that is cut short or damaged."""


class TooLargeError(ValueError):
    """A file that unpacks to more than the limit."""


class Limit(NamedTuple):
    """Most bytes a file may unpack to, and how to say it."""

    size: int
    text: str


def unpacked_limit(packed: int, max_gb: float | None = None) -> Limit:
    """Return how much a file may unpack to.

    Parameters
    ----------
    packed : int
        Size of the file.
    max_gb : float, optional
        Limit in GB. By default `METRICGRAD_MAX_UNPACKED_GB`, or else 32 GB and, above 268 MB, 100 times `packed`.
    """
    asked, origin = (os.environ.get(VARIABLE) or None, VARIABLE) if max_gb is None else (max_gb, "max_unpacked_gb")
    if asked is None:
        by_ratio = max(RATIO_FROM, MAX_RATIO * packed)
        if by_ratio < 1e9 * MAX_GB:
            return Limit(by_ratio, f"{by_ratio:,} bytes from a file of {packed:,}")
    try:
        gigabytes = MAX_GB if asked is None else float(asked)
    except ValueError:
        gigabytes = math.nan
    if not 0 < gigabytes < math.inf:
        raise ValueError(f"{origin}: expected a positive number of GB, got {asked!r}")
    return Limit(int(1e9 * gigabytes), f"{gigabytes:g} GB")


class Unpacked(io.RawIOBase):
    """The bytes of a stream that unpacks a file; more of them than the limit are refused with `TooLargeError`."""

    def __init__(self, stream: IO[bytes], limit: Limit) -> None:
        self._stream, self._limit, self._count = stream, limit, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes into a buffer and return how many."""
        block = self._stream.read(len(buffer))
        self._count += len(block)
        if self._count > self._limit.size:
            raise TooLargeError(
                f"expected at most {self._limit.text} once unpacked, got more; to allow it, set {VARIABLE}, "
                "or metricgrad --max-unpacked, to a number of GB"
            )
        buffer[: len(block)] = block
        return len(block)
