"""Reading tables: CSV, TSV, Parquet, Feather, gzip or zip of them, or standard input, whole or in chunks.

What a file is, is told by its first bytes, not by its name. Text comes as columns of strings, missing where a cell is
empty or says so; `columns.py` tells what the strings mean, so that a chunk is read as the whole file would be.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
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

ROWS = 50_000
SEPARATORS = (",", "\t", ";", "|")
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "<NA>", "?")
"""What a cell of a text file says where it says nothing."""
BLOCK, HEAD, FIRST = 1 << 24, 1 << 22, 20
"""Bytes read at a time; bytes, and rows in them, by which a text file is judged."""
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class TableError(ValueError):
    """A table that cannot be used as it is; the message says where and why."""


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a whole table.

    Parameters
    ----------
    path : path
        A file, or `-` for standard input.

    Returns
    -------
    DataFrame
        With at least one row; of a text file, every column is of strings.
    """
    return pd.concat(list(read_chunks(path)), ignore_index=True)


def read_chunks(path: str | Path, rows: int = ROWS) -> Iterator[pd.DataFrame]:
    """Read a table a few rows at a time, so that it need not fit into memory; see `read_table`."""
    with _opened(path) as file:
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
                yield from (batch[start : start + rows] for start in range(0, len(batch), rows))
        except (pa.ArrowException, UnicodeError, csv.Error) as error:
            raise TableError(f"{path}: expected a table, got {str(error).splitlines()[0]}") from error
        except TableError as error:
            raise TableError(f"{path}: {error}") from error.__cause__
        if not seen:
            raise TableError(f"{path}: expected at least one row, got a header only")


# ---- files ---------------------------------------------------------------------------------------------------------


@contextmanager
def _opened(path: str | Path) -> Iterator[IO[bytes]]:
    """Open a file, without what it is packed in; what cannot be sought in is copied to a temporary file first."""
    with ExitStack() as stack:
        if str(path) == "-":
            file: IO[bytes] = _copied(sys.stdin.buffer, stack)
        else:
            file = stack.enter_context(Path(path).open("rb"))
        head = file.read(4)
        file.seek(0)
        try:
            if head[:2] == b"\x1f\x8b":
                file = _copied(gzip.GzipFile(fileobj=file), stack)
            elif head == b"PK\x03\x04":
                file = _copied(_only_member(zipfile.ZipFile(file), path), stack)
        except (OSError, EOFError, zipfile.BadZipFile, RuntimeError) as error:
            raise TableError(f"{path}: expected a whole gzip or zip file, got {error}") from error
        yield file


def _copied(packed: Any, stack: ExitStack) -> IO[bytes]:
    file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
    shutil.copyfileobj(packed, file, BLOCK)
    file.seek(0)
    return file


def _only_member(archive: zipfile.ZipFile, path: str | Path) -> IO[bytes]:
    names = [name for name in archive.namelist() if not name.endswith("/") and not name.startswith("__MACOSX/")]
    if len(names) != 1:
        raise TableError(f"{path}: expected one file in the archive, got {len(names)}")
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
                column_types=dict.fromkeys(keys, pa.string()), strings_can_be_null=True, null_values=list(MISSING)
            ),
        )
        for batch in reader:
            yield batch.rename_columns(names).to_pandas()
    except pa.ArrowInvalid as error:
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
    text = io.TextIOWrapper(io.BytesIO(file.read(HEAD)), encoding, errors="ignore", newline="").read()
    found = []
    for separator in SEPARATORS:
        with suppress(csv.Error):  # cells that only another separator quotes right
            rows = list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), FIRST))
            top = next((number for number, row in enumerate(rows) if row), None)
            if top is not None:
                width = len(rows[top])
                alike = all(len(row) == width for row in rows if row)
                found.append((width > 1, alike, width, separator, rows[top], top))
    if not found:
        raise TableError("expected a header, got none")
    *_, separator, names, top = max(found, key=lambda each: each[:3])
    # pandas writes its row labels under no name.
    return separator, [name.strip() or f"unnamed_{number}" for number, name in enumerate(names, 1)], top


def check_names(names: list[str]) -> None:
    """Refuse a name that two columns have."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise TableError(f"expected every column name once, got {', '.join(map(repr, twice[:5]))} more than once")
