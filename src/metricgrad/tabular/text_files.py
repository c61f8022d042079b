"""Text files: CSV, TSV and similar; encoding, separator and header are found, and the cells are returned as strings."""

from __future__ import annotations

import codecs
import csv
import io
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import IO, Any, NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.csv

from metricgrad.tabular.cells import TableError
from metricgrad.tabular.schema import check_names

SEPARATORS = (",", "\t", ";", "|")
MISSING = ("", "NA", "N/A", "n/a", "#N/A", "NaN", "nan", "NULL", "null", "None", "<NA>", "?")
"""Texts of a missing cell."""
SNIFFED_ROWS = 20
"""Rows from which the separator and the header are inferred."""
HEAD_SIZES, BLOCK_SIZES = (1 << 20, 1 << 23), (1 << 21, 1 << 25)
"""Bytes that hold those rows, and bytes parsed at a time: the larger where a row does not fit into the smaller, since
what is read at a time costs many times its size in memory."""
BYTE_ORDER_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


class Header(NamedTuple):
    """The first rows as one separator divides them: best if several cells, equally many each, as many as possible."""

    several: bool
    equal: bool
    width: int
    separator: str
    names: list[str]
    row: int


def read_text(file: IO[bytes]) -> Iterator[pd.DataFrame]:
    """Yield the rows of a text file as strings; a row with too few or too many cells is refused by its number."""
    encoding = _encoding(file)
    header = _header(file, encoding)
    check_names(header.names)
    rows = 0
    for block in BLOCK_SIZES:
        try:
            for batch in _batches(file, encoding, header, header.row + 1 + rows, block):
                rows += batch.num_rows
                yield batch.to_pandas()
            return
        except pa.ArrowInvalid as error:
            if "straddling" not in str(error):  # a row longer than the block
                raise
    longest, after = BLOCK_SIZES[-1], rows + header.row + 1
    raise TableError(f"expected rows of at most {longest:,} bytes, got a longer one after row {after:,}")


def count_lines(file: IO[bytes]) -> int:
    """Return the number of lines of a file, or slightly more, with any line ends and in any encoding."""
    count = 1
    for block in _byte_blocks(file):
        count += block.count(b"\n") + block.count(b"\r") - block.count(b"\r\n")
    return count


def _batches(file: IO[bytes], encoding: str, header: Header, skipped: int, block: int) -> Iterator[pa.RecordBatch]:
    keys = [str(number) for number in range(len(header.names))]
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
            pyarrow.csv.ParseOptions(delimiter=header.separator, newlines_in_values=True, invalid_row_handler=note),
            # pandas holds large strings, and would convert any other type to them.
            pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(keys, pa.large_string()), strings_can_be_null=True, null_values=list(MISSING)
            ),
        )
        yield from (batch.rename_columns(header.names) for batch in reader)
    except pa.ArrowInvalid as error:
        if not ragged:
            raise
        row = ragged[0]
        raise TableError(
            f"row {row.number}: expected {row.expected_columns} cells, as the header has, got {row.actual_columns}: "
            f"{row.text[:60]!r}"
        ) from error


def _encoding(file: IO[bytes]) -> str:
    """Return the encoding of a text file: by its byte order mark, UTF-8, or else Latin-1, which any bytes are."""
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


def _byte_blocks(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while block := file.read(BLOCK_SIZES[0]):
        yield block


def _header(file: IO[bytes], encoding: str) -> Header:
    """Return the separator, the names and the row they are in, by the separator that divides the first rows best."""
    cut = True
    for size in HEAD_SIZES:
        file.seek(0)
        head = file.read(size)
        cut = len(head) == size
        text = io.TextIOWrapper(io.BytesIO(head), encoding, errors="ignore", newline="").read()
        found = [header for separator in SEPARATORS if (header := _split_header(text, separator, cut))]
        if found:
            best = max(found, key=lambda header: header[:3])
            # pandas writes its index under an empty name.
            named = [name.strip() or f"unnamed_{number}" for number, name in enumerate(best.names, 1)]
            return best._replace(names=named)
    wanted = f"a header of at most {HEAD_SIZES[-1]:,} bytes, got a longer one" if cut else "a header, got none"
    raise TableError(f"expected {wanted}")


def _split_header(text: str, separator: str, cut: bool) -> Header | None:
    """Return the first rows as a separator divides them; None if they cannot be parsed or there are none."""
    with suppress(csv.Error):  # cells that are quoted correctly only with another separator
        rows = _first_rows(text, separator, cut)
        top = next((number for number, row in enumerate(rows) if row), None)
        if top is not None:
            width = len(rows[top])
            equal = all(len(row) == width for row in rows if row)
            return Header(width > 1, equal, width, separator, rows[top], top)
    return None


def _first_rows(text: str, separator: str, cut: bool) -> list[list[str]]:
    """Return the first rows of a text as lists of cells; where the text is cut off, the last row is left out."""
    limit = csv.field_size_limit(HEAD_SIZES[-1])  # 128 KB by default, which cells of text may exceed
    try:
        rows = list(islice(csv.reader(io.StringIO(text, newline=""), delimiter=separator), SNIFFED_ROWS + 1))
    finally:
        csv.field_size_limit(limit)
    return rows[: len(rows) - cut][:SNIFFED_ROWS] if len(rows) <= SNIFFED_ROWS else rows[:SNIFFED_ROWS]
