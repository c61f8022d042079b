"""Formats: read published files block by block, and store them as Parquet.

Such a Parquet file has one column `target`, 0 or 1; every other column is a feature.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.datasets import load_svmlight_file

from metricgrad.tabular.cells import one_line, shortened
from metricgrad.tabular.io import DECODING_ERRORS, Unpacked, unpacked_limit

TARGET = "target"
ROWS = 1 << 16
"""Rows in a block: large enough to be fast, small beside the whole array."""

OPENERS: dict[str, Callable[..., Any]] = {".bz2": bz2.BZ2File, ".xz": lzma.LZMAFile, ".gz": gzip.GzipFile}

UNREADABLE = (*DECODING_ERRORS, OverflowError, pa.ArrowException)
"""What the readers raise for a file that is truncated, of another format, or has text instead of numbers."""
BUFFER = LONGEST_LINE = 1 << 20
"""Bytes read at a time, and of a line: parsers hold a line many times over."""
MOST_COLUMNS = 10_000
"""The time that pandas takes for equal names grows with the square of their number."""
MESSAGE = 500
"""Characters of a parser's message, which may repeat the file."""
END = re.compile(rb"[\r\n]")


class Outline(NamedTuple):
    """The shape of a dataset and its share of positive rows."""

    rows: int
    features: int
    positive_share: float


class Arrays(NamedTuple):
    """Rows of a dataset: features `X`, `(n, d)` float32; targets `y`, `(n,)` int8; the names of the features."""

    X: NDArray[np.float32]
    y: NDArray[np.int8]
    features: tuple[str, ...]

    @property
    def outline(self) -> Outline:
        """Shape and positive share."""
        return Outline(len(self.X), self.X.shape[1], float(self.y.mean()))


@dataclass(frozen=True)
class Layout:
    """How a published file is read; a suffix .bz2, .xz, .gz or .zip means that it is also compressed."""

    kind: Literal["libsvm", "csv", "arff"]
    positive: float  # the label that counts as positive; every other one is negative
    columns: tuple[str, ...] = ()  # names, where the file has none; for LIBSVM those of the features
    target: str = TARGET
    drop: tuple[str, ...] = ()  # columns that are neither label nor feature
    separator: str = ","


def read_blocks(path: Path, layout: Layout, rows: int = ROWS) -> Iterator[Arrays]:
    """Yield the rows of a published file in blocks; a file that cannot be read raises a `ValueError` that names it."""
    readers = {"libsvm": _libsvm_blocks, "csv": _csv_blocks, "arff": _arff_blocks}
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        with _opened_source(path, layout) as file:
            for block in readers[layout.kind](file, layout, rows):
                _check_finite(block.X, block.features)
                yield block
    except UNREADABLE as error:
        raise ValueError(f"{path} cannot be read as {layout.kind}: {one_line(error, MESSAGE)}") from error


def write_parquet(path: Path, blocks: Iterable[Arrays]) -> int:
    """Write blocks to a Parquet file, each as a row group, and return the number of rows."""
    rows = 0
    with ExitStack() as stack:
        writer: pq.ParquetWriter | None = None
        for block in blocks:
            columns = [pa.array(np.ascontiguousarray(column)) for column in block.X.T]
            table = pa.table([*columns, pa.array(block.y)], names=[*block.features, TARGET])
            if writer is None:
                writer = stack.enter_context(pq.ParquetWriter(path, table.schema, compression="zstd"))
            writer.write_table(table)
            rows += len(block.y)
    return rows


def read_parquet(path: Path) -> Arrays:
    """Read a Parquet file, a batch at a time, into one float32 array; its column `target` must hold 0 and 1."""
    with _opened_parquet(path) as file:
        features = _feature_names(file)
        rows = file.metadata.num_rows
        X, y = np.empty((rows, len(features)), dtype=np.float32), np.empty(rows, dtype=np.int8)
        start = 0
        for batch in file.iter_batches(batch_size=ROWS, columns=[*features, TARGET], use_threads=False):
            stop = start + batch.num_rows
            with np.errstate(over="ignore"):  # what is too large for float32 is found as infinite below
                for j, name in enumerate(features):
                    X[start:stop, j] = batch.column(name).to_numpy(zero_copy_only=False)
            y[start:stop] = _checked_targets(batch.column(TARGET).to_numpy(zero_copy_only=False))
            _check_finite(X[start:stop], features)
            start = stop
    return Arrays(X, y, features)


def outline_parquet(path: Path) -> Outline:
    """Return the shape and positive share of a Parquet file, reading its targets only."""
    with _opened_parquet(path) as file:
        features = _feature_names(file)
        y = _checked_targets(file.read(columns=[TARGET]).column(TARGET).to_numpy())
    return Outline(len(y), len(features), float(y.mean()))


@contextmanager
def _opened_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file; any error in it becomes a `ValueError` that names it."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    try:
        # A small buffer for pages: otherwise a whole row group is held, and many files have just one.
        with pq.ParquetFile(path, buffer_size=1 << 16, pre_buffer=False) as file:
            yield file
    except UNREADABLE as error:
        raise ValueError(f"{path} cannot be read as a Parquet dataset: {one_line(error, MESSAGE)}") from error


def _feature_names(file: pq.ParquetFile) -> tuple[str, ...]:
    """Return every column but the target, after checking that the file can be a dataset."""
    schema = file.schema_arrow
    if TARGET not in schema.names:
        raise ValueError(f"there must be a column {TARGET!r}, got {_listed(schema.names)}")
    for field in schema:
        if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_boolean(field.type)):
            raise ValueError(f"column {shortened(field.name)} must be numeric, got {field.type}")
    if len(schema.names) < 2 or len(set(schema.names)) < len(schema.names) or not file.metadata.num_rows:
        raise ValueError(
            "there must be at least one row and one feature, and no name twice, "
            f"got {file.metadata.num_rows} rows and columns {_listed(schema.names)}"
        )
    return tuple(name for name in schema.names if name != TARGET)


def _checked_targets(found: NDArray[np.generic]) -> NDArray[np.int8]:
    """Return targets as int8, after checking that they are 0 and 1."""
    binary = (found == 0) | (found == 1)
    if not binary.all():
        raise ValueError(f"column {TARGET!r} must hold 0 and 1 only, got {found[~binary][0]}")
    return found.astype(np.int8)


def _check_finite(X: NDArray[np.float32], features: tuple[str, ...]) -> None:
    """Refuse missing or infinite features."""
    finite = np.isfinite(X)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise ValueError(f"feature {shortened(features[column])} must be finite, got {X[row, column]}")


def _listed(names: Sequence[str]) -> str:
    """Return the first names of a file, for a message."""
    return f"[{', '.join(map(shortened, names[:5]))}{', ...' if len(names) > 5 else ''}]"


@contextmanager
def _opened_source(path: Path, layout: Layout) -> Iterator[IO[bytes]]:
    """Open a file, unpacked according to its suffix, with limits on its lines."""
    separator = layout.separator if layout.kind == "csv" and not layout.columns else None
    with ExitStack() as stack:
        if path.suffix == ".zip":
            archive = stack.enter_context(zipfile.ZipFile(path))
            members = [name for name in archive.namelist() if not name.endswith("/")]
            if len(members) != 1:
                raise ValueError(f"the archive must hold one file, got {_listed(members)}")
            unpacked = stack.enter_context(archive.open(members[0]))
        elif path.suffix in OPENERS:
            unpacked = stack.enter_context(OPENERS[path.suffix](path, "rb"))
        else:
            yield io.BufferedReader(_SourceLines(stack.enter_context(path.open("rb")), separator), BUFFER)
            return
        limited = Unpacked(unpacked, unpacked_limit(path.stat().st_size))
        yield io.BufferedReader(_SourceLines(limited, separator), BUFFER)


class _SourceLines(io.RawIOBase):
    """The bytes of a text; a line that is too long, or too many names, raise `ValueError` before a parser sees them.

    `separator` is that of the names in the first line that is not blank, if it has names.
    """

    def __init__(self, stream: IO[bytes] | io.RawIOBase, separator: str | None) -> None:
        self._stream, self._separator = stream, (separator or "").encode()
        self._line = 0
        self._first = b"" if separator else None

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read some bytes into a buffer and return their number."""
        block = self._stream.read(len(buffer)) or b""
        end = END.search(block)
        if self._line + (end.start() if end else len(block)) > LONGEST_LINE:
            raise ValueError(f"a line must have at most {LONGEST_LINE:,} bytes, got more")
        last = max(block.rfind(b"\n"), block.rfind(b"\r"))
        self._line = len(block) - last - 1 if end else self._line + len(block)
        if self._first is not None:
            self._check_first(self._first + block)
        buffer[: len(block)] = block
        return len(block)

    def _check_first(self, text: bytes) -> None:
        """Count the columns of the first line that is not blank, as far as it was read."""
        first, *more = END.split(text.lstrip(b"\r\n"), maxsplit=1)
        if (count := first.count(self._separator) + 1) > MOST_COLUMNS:
            raise ValueError(f"there must be at most {MOST_COLUMNS:,} columns, got {count:,} or more")
        if more and first.count(b'"') % 2:
            raise ValueError(f"names must end on the line they begin on, got {shortened(first.decode('latin-1'))}")
        self._first = None if more else first


def _libsvm_blocks(file: IO[bytes], layout: Layout, rows: int) -> Iterator[Arrays]:
    """Yield blocks of LIBSVM text, which is parsed at once: these files are small and sparse."""
    found, labels = load_svmlight_file(file, n_features=len(layout.columns), dtype=np.float32, zero_based=False)
    for start in range(0, len(labels), rows):
        block = slice(start, start + rows)
        yield Arrays(found[block].toarray(), (labels[block] == layout.positive).astype(np.int8), layout.columns)


def _csv_blocks(file: IO[bytes], layout: Layout, rows: int) -> Iterator[Arrays]:
    """Yield blocks of separated values."""
    with pd.read_csv(
        file,
        sep=layout.separator,
        header=None if layout.columns else "infer",
        names=list(layout.columns) or None,
        usecols=lambda name: name not in layout.drop,
        dtype=np.float32,
        quotechar="'" if layout.kind == "arff" else '"',
        index_col=False,
        chunksize=rows,
    ) as chunks:
        for chunk in _checked_chunks(chunks):
            if layout.target not in chunk:
                raise ValueError(f"there must be a column {layout.target!r}, got {_listed(list(map(str, chunk)))}")
            labels = chunk.pop(layout.target)
            if labels.isna().any():
                raise ValueError(
                    f"every line must have a label in {layout.target!r}, got {labels.isna().sum()} without"
                )
            y = (labels == layout.positive).to_numpy(dtype=np.int8)
            yield Arrays(chunk.to_numpy(), y, tuple(map(str, chunk.columns)))


def _checked_chunks(chunks: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Yield the chunks of pandas, which raises `IndexError` if the first line has more values than names."""
    try:
        yield from chunks
    except IndexError as error:
        raise ValueError("a line must not have more values than there are names, got more") from error


def _arff_blocks(file: IO[bytes], layout: Layout, rows: int) -> Iterator[Arrays]:
    """Yield blocks of dense ARFF: a header that names the columns, then separated values."""
    columns: list[str] = []
    while line := file.readline():
        words = line.decode("utf-8").split(maxsplit=2)
        if words and words[0].lower() == "@attribute":
            if len(words) < 2 or len(columns) >= MOST_COLUMNS:
                raise ValueError(
                    f"expected 1 to {MOST_COLUMNS:,} lines @attribute with a name, got {shortened(line.decode())}"
                )
            columns.append(words[1].strip("'\""))
        if words and words[0].lower() == "@data":
            break
    else:
        raise ValueError("there must be a line @data, got none")
    named = Layout("arff", layout.positive, tuple(columns), layout.target, layout.drop)
    yield from _csv_blocks(file, named, rows)
