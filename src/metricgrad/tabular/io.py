"""Reading tables: CSV, TSV, Parquet, Feather, gzip or zip of them, or standard input, at once or in chunks.

The first bytes of a file determine its format, not its name. Text is returned as columns of strings; `schema.py` infers
what the strings mean, so that a chunk is read like the whole file. Compressed files are unpacked up to a limit, so that
a small file cannot fill memory or disk.
"""

from __future__ import annotations

import csv
import errno
import gzip
import io
import lzma
import math
import os
import shutil
import struct
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet

from metricgrad.tabular.cells import Floats, TableError, numbers, one_line
from metricgrad.tabular.schema import check_names
from metricgrad.tabular.text_files import BLOCK_SIZES, count_lines, read_text

CHUNK_ROWS = 50_000
READ_AT_ONCE = 1 << 20
"""Bytes of a column of a Parquet file."""
PARQUET, FEATHER = b"PAR1", b"ARROW1"
MAX_UNPACKED_VARIABLE = "METRICGRAD_MAX_UNPACKED_GB"
MAX_UNPACKED_GB = 32.0
MAX_RATIO, RATIO_FROM = 100, 1 << 28
"""Bytes unpacked per packed byte, and the size up to which any ratio is accepted: sparse tables compress well."""
DECODING_ERRORS = (
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


def read_table(
    path: str | Path, max_unpacked_gb: float | None = None, text_columns: Collection[str] | None = None
) -> pd.DataFrame:
    """Read a whole table.

    Parameters
    ----------
    path : path
        A file, or `-` for standard input.
    max_unpacked_gb : float, optional
        Largest size of a gzip or zip file once unpacked. By default `METRICGRAD_MAX_UNPACKED_GB`, or else 32 GB and,
        above 268 MB, 100 times the size of the file.
    text_columns : collection of str, optional
        Columns of a text file that stay text; all of them by default. Any other column in which every cell is a plain
        number, or missing, is returned as numbers, which take less memory.

    Returns
    -------
    DataFrame
        With at least one row. For a text file, every column is of strings, unless `text_columns` is given.
    """
    with _unpacked_file(path, max_unpacked_gb) as file:
        if text_columns is not None and _looks_like_text(file):
            return _typed_frame(file, path, text_columns)
        frame: pd.DataFrame = _concatenated(list(_frames(file, path, sys.maxsize)))
        return frame


def read_chunks(
    path: str | Path, rows: int = CHUNK_ROWS, max_unpacked_gb: float | None = None
) -> Iterator[pd.DataFrame]:
    """Read a table in chunks, so that it need not fit into memory; see `read_table`."""
    with _unpacked_file(path, max_unpacked_gb) as file:
        yield from _frames(file, path, rows)


def _frames(file: IO[bytes], path: str | Path, rows: int) -> Iterator[pd.DataFrame]:
    if not (head := _head(file)):
        raise TableError(f"{path}: expected a table, got an empty file")
    seen = 0
    try:
        for batch in {PARQUET: _parquet_frames, FEATHER: _feather}.get(head, _text)(file, rows):
            seen += len(batch)
            if len(batch) > rows:
                yield from (batch[start : start + rows] for start in range(0, len(batch), rows))
            elif len(batch):
                yield batch
    except (pa.ArrowException, UnicodeError, csv.Error) as error:
        raise TableError(f"{path}: expected a table, got {str(error).splitlines()[0]}") from error
    except TableError as error:
        raise TableError(f"{path}: {error}") from error.__cause__
    if not seen:
        raise TableError(f"{path}: expected at least one row, got a header only")


def _text(file: IO[bytes], rows: int) -> Iterator[pd.DataFrame]:
    return read_text(file)


def _parquet_frames(file: IO[bytes], rows: int) -> Iterator[pd.DataFrame]:
    # Read ahead, a file would lie in memory as a whole beside what is made of it.
    source = pyarrow.parquet.ParquetFile(file, buffer_size=READ_AT_ONCE, pre_buffer=False)
    check_names(source.schema_arrow.names)
    if rows < source.metadata.num_rows:
        yield from (batch.to_pandas() for batch in source.iter_batches(rows))
    else:  # columns stay where Arrow has read them
        yield source.read().to_pandas(split_blocks=True, self_destruct=True)
        pa.default_memory_pool().release_unused()


def _feather(file: IO[bytes], rows: int) -> Iterator[pd.DataFrame]:
    source = pyarrow.ipc.open_file(file)
    check_names(source.schema.names)
    yield from (source.get_batch(number).to_pandas() for number in range(source.num_record_batches))


def _typed_frame(file: IO[bytes], path: str | Path, text_columns: Collection[str]) -> pd.DataFrame:
    """Read a text file with plain numbers parsed chunk by chunk, so that no column of them is ever held as text.

    Each is parsed into an array with room for all rows: joining many small arrays would need the memory twice. A column
    that turns out to hold other cells too is read a second time, as text.
    """
    room, rows = count_lines(file), 0
    parsed: dict[Any, Floats] = {}
    text: dict[Any, list[pd.Series[Any]]] = {name: [] for name in text_columns}
    names: list[Any] = []
    mixed: set[Any] = set()
    for chunk in _frames(file, path, CHUNK_ROWS):
        names = names or list(chunk)
        for name, cells in chunk.items():
            found = None if name in text else _plain_numbers(cells)
            if found is None:
                mixed.update([name] if parsed.pop(name, None) is not None else [])
                text.setdefault(name, []).append(cells)
            else:
                if name not in parsed:
                    parsed[name] = np.empty(room)
                parsed[name][rows : rows + len(found)] = found
        rows += len(chunk)
    if mixed:
        text.update((name, []) for name in mixed)
        for chunk in _frames(file, path, CHUNK_ROWS):
            for name in mixed:
                text[name].append(chunk[name])
    joined = {name: parsed[name][:rows] if name in parsed else _concatenated(text.pop(name)) for name in names}
    frame: pd.DataFrame = pd.DataFrame(joined, copy=False)
    return frame


def _concatenated(parts: list[Any]) -> Any:
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def _plain_numbers(cells: pd.Series[Any]) -> Floats | None:
    """Return cells of text as numbers, NaN where missing; None if any of them is not a plain number."""
    found = numbers(cells)
    return found if np.array_equal(np.isnan(found), cells.isna()) else None


# ---- files ---------------------------------------------------------------------------------------------------------


@contextmanager
def _unpacked_file(path: str | Path, max_unpacked_gb: float | None) -> Iterator[IO[bytes]]:
    """Open a file, unpacked; a stream without random access is copied to a temporary file first."""
    with ExitStack() as stack:
        if str(path) == "-":
            file: IO[bytes] = _copied(sys.stdin.buffer, stack)
        else:
            file = stack.enter_context(Path(path).open("rb"))
        head = file.read(4)
        file.seek(0)
        if head[:2] == b"\x1f\x8b" or head == b"PK\x03\x04":
            file = _unpacked(file, head, path, max_unpacked_gb, stack)
        yield file


def _head(file: IO[bytes]) -> bytes:
    """Return the mark of a binary format that a file begins with, or else its first bytes; rewind the file."""
    file.seek(0)
    head = file.read(len(FEATHER))
    file.seek(0)
    return PARQUET if head.startswith(PARQUET) else head


def _looks_like_text(file: IO[bytes]) -> bool:
    return _head(file) not in (PARQUET, FEATHER)


def _copied(stream: Any, stack: ExitStack) -> IO[bytes]:
    file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(stream, file, BLOCK_SIZES[0])
    file.seek(0)
    return file


# ---- unpacking -----------------------------------------------------------------------------------------------------


class TooLargeError(ValueError):
    """A file, or its unpacked content, that is larger than the limit."""


class Limit(NamedTuple):
    """Most bytes a file may unpack to, and how messages write it."""

    size: int
    text: str


def unpacked_limit(packed: int, max_gb: float | None = None) -> Limit:
    """Return how much a file of `packed` bytes may unpack to; see `read_table`."""
    variable = MAX_UNPACKED_VARIABLE
    asked, origin = (os.environ.get(variable) or None, variable) if max_gb is None else (max_gb, "max_unpacked_gb")
    if asked is None:
        by_ratio = max(RATIO_FROM, MAX_RATIO * packed)
        if by_ratio < 1e9 * MAX_UNPACKED_GB:
            return Limit(by_ratio, f"{by_ratio:,} bytes from a file of {packed:,}")
    try:
        gigabytes = MAX_UNPACKED_GB if asked is None else float(asked)
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
        """Read some bytes into a buffer and return their number."""
        block = self._stream.read(len(buffer))
        self._count += len(block)
        if self._count > self._limit.size:
            raise TooLargeError(
                f"expected at most {self._limit.text} once unpacked, got more; to allow it, set "
                f"{MAX_UNPACKED_VARIABLE}, or metricgrad --max-unpacked, to a number of GB"
            )
        buffer[: len(block)] = block
        return len(block)


def _unpacked(
    file: IO[bytes], head: bytes, path: str | Path, max_unpacked_gb: float | None, stack: ExitStack
) -> IO[bytes]:
    limit = unpacked_limit(os.fstat(file.fileno()).st_size, max_unpacked_gb)
    try:
        packed: Any = _only_member(zipfile.ZipFile(file)) if head[:2] == b"PK" else gzip.GzipFile(fileobj=file)
        return _copied(Unpacked(packed, limit), stack)
    except (TableError, TooLargeError) as error:
        raise TableError(f"{path}: {error}") from None
    except DECODING_ERRORS as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        reason = str(error) or type(error).__name__
        raise TableError(f"{path}: expected a complete gzip or zip file, got {one_line(reason)}") from error


def _only_member(archive: zipfile.ZipFile) -> IO[bytes]:
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if len(names) != 1:
        raise TableError(f"expected one file in the archive, got {len(names)}")
    return archive.open(names[0])
