"""Reading tables: CSV, TSV, Parquet, Feather, gzip or zip of them, or standard input, whole or in chunks.

The first bytes of a file say what it is, not its name. Text comes as columns of strings, missing where a cell is empty
or says so; `schema.py` infers what the strings mean, so that a chunk is read as the whole file would be.
"""

from __future__ import annotations

import codecs
import csv
import errno
import gzip
import io
import os
import shutil
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet
from numpy.typing import NDArray

from metricgrad.tabular.cells import numbers
from metricgrad.tabular.manifest import one_line
from metricgrad.tabular.unpacking import DAMAGED, TooLargeError, Unpacked, unpacked_limit

ROWS = 50_000
SEPARATORS = (",", "\t", ";", "|")
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "<NA>", "?")
"""What a cell of a text file says where it says nothing."""
FIRST = 20
"""Rows by which a text file is judged."""
HEADS, BLOCKS = (1 << 20, 1 << 23), (1 << 21, 1 << 25)
"""Bytes that hold those rows, and bytes parsed at a time: the larger where a row does not fit into the smaller, since
what is read at a time costs many times its size in memory."""
MAX_COLUMNS = 100_000
"""A column costs about half a millisecond to read, infer and encode, however few rows there are."""
PARQUET, FEATHER = b"PAR1", b"ARROW1"
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class TableError(ValueError):
    """A table that cannot be used as it is; the message says where and why."""


def read_table(
    path: str | Path, max_unpacked_gb: float | None = None, text_columns: Collection[str] | None = None
) -> pd.DataFrame:
    """Read a whole table.

    Parameters
    ----------
    path : path
        A file, or `-` for standard input.
    max_unpacked_gb : float, optional
        How large a gzip or zip file may become once unpacked. By default `METRICGRAD_MAX_UNPACKED_GB`, or else 32 GB
        and, above 268 MB, 100 times the size of the file.
    text_columns : collection of str, optional
        Columns of a text file that stay text; all of them by default. Any other column in which every cell is a plain
        number, or missing, comes as numbers, which take less memory.

    Returns
    -------
    DataFrame
        With at least one row; of a text file, every column is of strings, unless `text_columns` says otherwise.
    """
    with _opened(path, max_unpacked_gb) as file:
        if text_columns is not None and _is_text(file):
            return _parsed(file, path, text_columns)
        parts = list(_chunks(file, path, ROWS))
        return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def read_chunks(path: str | Path, rows: int = ROWS, max_unpacked_gb: float | None = None) -> Iterator[pd.DataFrame]:
    """Read a table a few rows at a time, so that it need not fit into memory; see `read_table`."""
    with _opened(path, max_unpacked_gb) as file:
        yield from _chunks(file, path, rows)


def _chunks(file: IO[bytes], path: str | Path, rows: int) -> Iterator[pd.DataFrame]:
    if not _head(file):
        raise TableError(f"{path}: expected a table, got an empty file")
    try:
        batches = _text(file) if _is_text(file) else _parquet(file, rows) if _head(file) == PARQUET else _feather(file)
        seen = 0
        for batch in batches:
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


def _parsed(file: IO[bytes], path: str | Path, text_columns: Collection[str]) -> pd.DataFrame:
    """Read a text file with plain numbers parsed chunk by chunk, so that no column of them is ever held as text.

    Each is parsed into an array with room for all rows: joining many small arrays would need the memory twice. A column
    that turns out to hold other cells too is read a second time, as text.
    """
    room, rows = _count_lines(file), 0
    parsed: dict[Any, NDArray[np.float64]] = {}
    text: dict[Any, list[pd.Series[Any]]] = {name: [] for name in text_columns}
    names: list[Any] = []
    mixed: set[Any] = set()
    for chunk in _chunks(file, path, ROWS):
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
        for chunk in _chunks(file, path, ROWS):
            for name in mixed:
                text[name].append(chunk[name])
    joined = {name: parsed[name][:rows] if name in parsed else _joined(text.pop(name)) for name in names}
    frame: pd.DataFrame = pd.DataFrame(joined, copy=False)
    return frame


def _joined(parts: list[pd.Series[Any]]) -> pd.Series[Any]:
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def _plain_numbers(cells: pd.Series[Any]) -> NDArray[np.float64] | None:
    """Return cells of text as numbers, NaN where missing; None if any of them is not a plain number."""
    found = numbers(cells)
    return found if np.array_equal(np.isnan(found), cells.isna()) else None


# ---- files ---------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: str | Path, max_unpacked_gb: float | None) -> Iterator[IO[bytes]]:
    """Open a file, unpacked; what cannot be sought in is copied to a temporary file first."""
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


def _unpacked(
    file: IO[bytes], head: bytes, path: str | Path, max_unpacked_gb: float | None, stack: ExitStack
) -> IO[bytes]:
    limit = unpacked_limit(os.fstat(file.fileno()).st_size, max_unpacked_gb)
    try:
        packed: Any = _only_member(zipfile.ZipFile(file)) if head[:2] == b"PK" else gzip.GzipFile(fileobj=file)
        return _copied(Unpacked(packed, limit), stack)
    except (TableError, TooLargeError) as error:
        raise TableError(f"{path}: {error}") from None
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        said = str(error) or type(error).__name__
        raise TableError(f"{path}: expected a complete gzip or zip file, got {one_line(said)}") from error


def _head(file: IO[bytes]) -> bytes:
    """Return the mark of a binary format that a file begins with, or else its first bytes; go back to its beginning."""
    file.seek(0)
    head = file.read(len(FEATHER))
    file.seek(0)
    return PARQUET if head.startswith(PARQUET) else head


def _is_text(file: IO[bytes]) -> bool:
    return _head(file) not in (PARQUET, FEATHER)


def _copied(packed: Any, stack: ExitStack) -> IO[bytes]:
    file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(packed, file, BLOCKS[0])
    file.seek(0)
    return file


def _only_member(archive: zipfile.ZipFile) -> IO[bytes]:
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if len(names) != 1:
        raise TableError(f"expected one file in the archive, got {len(names)}")
    return archive.open(names[0])


# ---- Parquet and Feather -------------------------------------------------------------------------------------------


def _parquet(file: IO[bytes], rows: int) -> Iterator[pd.DataFrame]:
    source = pyarrow.parquet.ParquetFile(file)
    check_names(source.schema_arrow.names)
    yield from (batch.to_pandas() for batch in source.iter_batches(rows))


def _feather(file: IO[bytes]) -> Iterator[pd.DataFrame]:
    source = pyarrow.ipc.open_file(file)
    check_names(source.schema.names)
    yield from (source.get_batch(number).to_pandas() for number in range(source.num_record_batches))


# ---- text ----------------------------------------------------------------------------------------------------------


def _text(file: IO[bytes]) -> Iterator[pd.DataFrame]:
    """Yield the rows of a text file as strings; a row with a cell too few or too many is refused by its number."""
    encoding = _encoding(file)
    separator, names, top = _header(file, encoding)
    check_names(names)
    rows = 0
    for block in BLOCKS:
        try:
            for batch in _batches(file, encoding, separator, names, top + 1 + rows, block):
                rows += batch.num_rows
                yield batch.to_pandas()
            return
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):  # a row longer than the block
                raise
    raise TableError(f"expected rows of at most {BLOCKS[-1]:,} bytes, got a longer one after row {rows + top + 1:,}")


def _batches(
    file: IO[bytes], encoding: str, separator: str, names: list[str], skipped: int, block: int
) -> Iterator[pa.RecordBatch]:
    keys = [str(number) for number in range(len(names))]
    ragged: list[Any] = []

    def note(row: Any) -> str:
        ragged.append(row)
        return "error"

    file.seek(0)
    try:
        reader = pyarrow.csv.open_csv(
            file,
            pyarrow.csv.ReadOptions(
                use_threads=False, block_size=block, column_names=keys, skip_rows_after_names=skipped, encoding=encoding
            ),
            pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=note),
            # Large strings are what pandas holds: it would convert any other into them.
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(keys, pa.large_string()), strings_can_be_null=True, null_values=list(MISSING)
            ),
        )
        yield from (batch.rename_columns(names) for batch in reader)
    except pa.ArrowInvalid as error:
        if not ragged:
            raise
        row = ragged[0]
        raise TableError(
            f"row {row.number}: expected {row.expected_columns} cells, as the header has, got {row.actual_columns}: "
            f"{row.text[:60]!r}"
        ) from error


def _encoding(file: IO[bytes]) -> str:
    """Find the encoding of a text file: by its byte order mark, UTF-8, or else Latin-1, which any bytes are."""
    file.seek(0)
    head = file.read(4)
    marked = [encoding for mark, encoding in BYTE_ORDER_MARKS.items() if head.startswith(mark)]
    if marked:
        return marked[0]
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for block in _byte_blocks(file):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def _count_lines(file: IO[bytes]) -> int:
    """Return how many lines a file has, or a few more; whatever ends them, and in whatever encoding."""
    count = 1
    for block in _byte_blocks(file):
        count += block.count(b"\n") + block.count(b"\r") - block.count(b"\r\n")
    return count


def _byte_blocks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while block := file.read(BLOCKS[0]):
        yield block


def _header(file: IO[bytes], encoding: str) -> tuple[str, list[str], int]:
    """Find the separator, the names and the row they are in: what gives the first rows most cells, and as many each."""
    cut = True
    for size in HEADS:
        file.seek(0)
        head = file.read(size)
        cut = len(head) == size
        text = io.TextIOWrapper(io.BytesIO(head), encoding, errors="ignore", newline="").read()
        found = [layout for separator in SEPARATORS if (layout := _layout(text, separator, cut))]
        if found:
            *_, separator, names, top = max(found, key=lambda each: each[:3])
            # pandas writes its row labels under no name.
            return separator, [name.strip() or f"unnamed_{number}" for number, name in enumerate(names, 1)], top
    wanted = f"a header of at most {HEADS[-1]:,} bytes, got a longer one" if cut else "a header, got none"
    raise TableError(f"expected {wanted}")


def _layout(text: str, separator: str, cut: bool) -> tuple[bool, bool, int, str, list[str], int] | None:
    """Return how well a separator divides the first rows of a text, and the header and its row; None if not at all."""
    with suppress(csv.Error):  # cells that only another separator quotes right
        rows = _first_rows(text, separator, cut)
        top = next((number for number, row in enumerate(rows) if row), None)
        if top is not None:
            width = len(rows[top])
            alike = all(len(row) == width for row in rows if row)
            return width > 1, alike, width, separator, rows[top], top
    return None


def _first_rows(text: str, separator: str, cut: bool) -> list[list[str]]:
    """Return the first rows of a text, split into cells; where the text is cut off, the last row is left out."""
    limit = csv.field_size_limit(HEADS[-1])  # 128 KB by default, which cells of text may exceed
    try:
        rows = list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), FIRST + 1))
    finally:
        csv.field_size_limit(limit)
    return rows[: len(rows) - cut][:FIRST] if len(rows) <= FIRST else rows[:FIRST]


def check_names(names: list[str]) -> None:
    """Refuse a name that two columns have, and more columns than can be handled in reasonable time."""
    if len(names) > MAX_COLUMNS:
        raise TableError(f"expected at most {MAX_COLUMNS:,} columns, got {len(names):,}")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"expected every column name once, got {', '.join(map(repr, twice[:5]))} more than once")
