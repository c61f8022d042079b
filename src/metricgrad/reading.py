"""Reading tables: CSV, TSV, Parquet, Feather, gzip or zip of them, or standard input, whole or in chunks.

The first bytes of a file say what it is, not its name. Text comes as columns of strings, missing where a cell is empty
or says so; `columns.py` infers what the strings mean, so that a chunk is read as the whole file would be.
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
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet

from metricgrad.unpacking import DAMAGED, TooLargeError, Unpacked, unpacked_limit

ROWS = 50_000
SEPARATORS = (",", "\t", ";", "|")
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "<NA>", "?")
"""What a cell of a text file says where it says nothing."""
BLOCK, FIRST = 1 << 23, 20
"""Bytes read at a time, which a row must fit into, and rows among the first of them by which a text file is judged."""
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class TableError(ValueError):
    """A table that cannot be used as it is; the message says where and why."""


def read_table(path: str | Path, max_unpacked_gb: float | None = None) -> pd.DataFrame:
    """Read a whole table.

    Parameters
    ----------
    path : path
        A file, or `-` for standard input.
    max_unpacked_gb : float, optional
        How large a gzip or zip file may become once unpacked. By default `METRICGRAD_MAX_UNPACKED_GB`, or else 32 GB
        and, above 268 MB, 100 times the size of the file.

    Returns
    -------
    DataFrame
        With at least one row; of a text file, every column is of strings.
    """
    parts = list(read_chunks(path, max_unpacked_gb=max_unpacked_gb))
    return parts[0] if len(parts) == 1 else pd.concat(parts, ignore_index=True)


def read_chunks(path: str | Path, rows: int = ROWS, max_unpacked_gb: float | None = None) -> Iterator[pd.DataFrame]:
    """Read a table a few rows at a time, so that it need not fit into memory; see `read_table`."""
    with _opened(path, max_unpacked_gb) as file:
        head = file.read(6)
        file.seek(0)
        if not head:
            raise TableError(f"{path}: expected a table, got an empty file")
        try:
            batches = (
                _parquet(file, rows) if head[:4] == b"PAR1" else _feather(file) if head == b"ARROW1" else _text(file)
            )
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
        raise TableError(f"{path}: expected a complete gzip or zip file, got {said}") from error


def _copied(packed: Any, stack: ExitStack) -> IO[bytes]:
    file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(packed, file, BLOCK)
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
                use_threads=False, block_size=BLOCK, column_names=keys, skip_rows_after_names=top + 1, encoding=encoding
            ),
            pyarrow.csv.ParseOptions(
                delimiter=separator,
                newlines_in_values=True,
                invalid_row_handler=note,
            ),
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(keys, pa.large_string()), strings_can_be_null=True, null_values=list(MISSING)
            ),
        )
        for batch in reader:
            yield batch.rename_columns(names).to_pandas()
    except pa.ArrowInvalid as error:
        if "straddling" in str(error):
            raise TableError(f"expected rows of at most {BLOCK:,} bytes, got a longer one") from error
        if not ragged:
            raise
        row = ragged[0]
        raise TableError(
            f"row {row.number}: expected {row.expected_columns} cells, as the header has, got {row.actual_columns}: "
            f"{row.text[:60]!r}"
        ) from error


def _encoding(file: IO[bytes]) -> str:
    """Tell how a text file is written: by its byte order mark, in UTF-8, or else in Latin-1, which any bytes are."""
    head = file.read(4)
    marked = [encoding for mark, encoding in BYTE_ORDER_MARKS.items() if head.startswith(mark)]
    if marked:
        return marked[0]
    decoder = codecs.getincrementaldecoder("utf-8")()
    file.seek(0)
    try:
        while block := file.read(BLOCK):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


def _header(file: IO[bytes], encoding: str) -> tuple[str, list[str], int]:
    """Find the separator, the names and the row they are in: what gives the first rows most cells, and as many each."""
    file.seek(0)
    head = file.read(BLOCK)
    text = io.TextIOWrapper(io.BytesIO(head), encoding, errors="ignore", newline="").read()
    cut = len(head) == BLOCK
    found = []
    for separator in SEPARATORS:
        with suppress(csv.Error):  # cells that only another separator quotes right
            rows = _first_rows(text, separator, cut)
            top = next((number for number, row in enumerate(rows) if row), None)
            if top is not None:
                width = len(rows[top])
                alike = all(len(row) == width for row in rows if row)
                found.append((width > 1, alike, width, separator, rows[top], top))
    if not found:
        wanted = f"a header of at most {BLOCK:,} bytes, got a longer one" if cut else "a header, got none"
        raise TableError(f"expected {wanted}")
    *_, separator, names, top = max(found, key=lambda each: each[:3])
    # pandas writes its row labels under no name.
    return separator, [name.strip() or f"unnamed_{number}" for number, name in enumerate(names, 1)], top


def _first_rows(text: str, separator: str, cut: bool) -> list[list[str]]:
    """Return the first rows of a text, split into cells; where the text is cut off, the last row is left out."""
    limit = csv.field_size_limit(BLOCK)  # 128 KB by default, which cells of text may exceed
    try:
        rows = list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), FIRST + 1))
    finally:
        csv.field_size_limit(limit)
    return rows[: len(rows) - cut][:FIRST] if len(rows) <= FIRST else rows[:FIRST]


def check_names(names: list[str]) -> None:
    """Refuse a name that two columns have."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"expected every column name once, got {', '.join(map(repr, twice[:5]))} more than once")
