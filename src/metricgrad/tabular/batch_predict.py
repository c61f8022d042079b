"""Prediction: a saved model on a file of any size, a chunk at a time; scores, labels and ids out, safe to open."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad.reporting.atomic import replacing
from metricgrad.reporting.terminal import visible
from metricgrad.tabular.cells import numbers
from metricgrad.tabular.io import TableError, read_chunks
from metricgrad.tabular.schema import listed
from metricgrad.tabular.table_classifier import TableClassifier, as_frame
from metricgrad.tabular.target import check_column

BLANK = r"[\s\x00-\x20\x7f-\xa0\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]*"
"""What a spreadsheet may pass over where a cell begins: white space, control characters and what has no width."""
FORMULA = re.compile(BLANK + r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b]")
"""How a cell begins that a spreadsheet would take for a formula: = + - @, also as full-width or small forms."""
NUMBER = re.compile(r" *[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)? *")
OWN = ("row", "score", "label")
"""Columns of predictions beside the ids."""
LINE_END = "\r\n"
Tell = Callable[[str], object]


def write_predictions(
    model: TableClassifier, data: str | Path, out: str | Path, ids: Sequence[str] = (), tell: Tell = lambda said: None
) -> int:
    """Score a file row by row into a CSV file with the columns `row`, ids, `score` and `label`; return how many rows.

    Written beside and then renamed, so that a file is whole or not there; `-` is standard output. No cell is a formula
    to a spreadsheet, and every cell that holds a line break is quoted. An id named as one of the other columns is
    written as `NAME (id)`.

    Parameters
    ----------
    model : TableClassifier
        Fitted.
    data, out : path
        What to read, in any form `read_table` knows, and what to write.
    ids : sequence of str
        Columns to carry over; by default those the model knows to tell rows apart.
    tell : callable
        Told in a line of columns that are not used.
    """
    rows = 0
    with _opened(out) as file:
        for frame in checked_chunks(model, data, tell):
            for name in ids:
                check_column(name, list(frame.columns), "id")
            named = ids or [name for name in model.pipeline_[0].schema_.ids if name in frame.columns]
            part = predicted(model, frame, named, rows)
            # With this line end, csv quotes cells with either of its characters, whatever the version of Python.
            part.to_csv(file, index=False, header=not rows, lineterminator=LINE_END)
            rows += len(part)
    return rows


def predicted(model: TableClassifier, frame: pd.DataFrame, ids: Sequence[str] = (), before: int = 0) -> pd.DataFrame:
    """Return row numbers from 1 on, ids, scores and labels; nothing in it is a formula to a spreadsheet."""
    scores = model.decision_function(frame)
    labels = np.array([harmless(label) for label in model.classes_], dtype=object)
    columns = [
        np.arange(before + 1, before + len(frame) + 1),
        *(frame[name].map(harmless, na_action="ignore").to_numpy() for name in ids),
        scores,
        labels[(scores >= 0).astype(int)],
    ]
    part: pd.DataFrame = pd.DataFrame(dict(enumerate(columns)))
    part.columns = pd.Index([OWN[0], *_names(ids), *OWN[1:]])
    return part


def _names(ids: Sequence[str]) -> list[str]:
    """Return the names of ids as they are written, each once."""
    taken, names = set(OWN), []
    for name in ids:
        safe = harmless(name)
        while safe in taken:
            safe = f"{safe} (id)"
        taken.add(safe)
        names.append(safe)
    return names


def harmless(value: Any) -> Any:
    """Put an apostrophe before what a spreadsheet would run; numbers stay as they are.

    The character NUL, at which some readers of CSV end a cell or fail, becomes U+FFFD.

    >>> harmless("=1+1"), harmless(" @sum"), harmless("-3.5"), harmless("a-b")
    ("'=1+1", "' @sum", '-3.5', 'a-b')
    """
    text = str(value)
    if FORMULA.match(text) and not NUMBER.fullmatch(text):
        value = f"'{text}"
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


def judged(
    model: TableClassifier, data: str | Path, weights: str | None = None, tell: Tell = lambda said: None
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Return scores, targets and weights of a file with a target column; rows without a target are left out."""
    scores, targets, heavy = [], [], []
    for frame in checked_chunks(model, data, tell):
        for name, argument in ((model.target_.name, "target"), *([(weights, "weights")] if weights else [])):
            check_column(name, list(frame.columns), argument)
        there = np.isfinite(found := model.target_.classes(frame[model.target_.name]))
        if there.any():
            scores.append(model.decision_function(frame[there]))
            targets.append(found[there])
            heavy += [numbers(frame[weights])[there]] if weights else []
    if not scores:
        raise TableError(f"target: expected labels in {model.target_.name!r}, got none in {data}")
    return np.concatenate(scores), np.concatenate(targets), np.concatenate(heavy) if heavy else None


def checked_chunks(model: TableClassifier, data: str | Path, tell: Tell) -> Iterator[pd.DataFrame]:
    """Yield a file in parts that have the columns a model needs; tell of those it does not know."""
    schema = model.pipeline_[0].schema_
    for number, part in enumerate(read_chunks(data)):
        frame = as_frame(part)
        if not number:
            absent = [name for name in schema.names if name not in frame.columns]
            known = {column.name for column in schema.columns} | {model.target_.name}
            extra = [name for name in frame.columns if name not in known]
            if absent:
                more = f"; not known: {listed(extra)}" if extra else ""
                raise TableError(
                    f"{data}: expected the columns the model was fitted on, missing: {listed(absent)}{more}"
                )
            if extra:
                tell(f"not used, for the model was fitted without: {listed(extra)}")
        yield frame


class _Lines(io.TextIOBase):
    """A file of text that csv writes a row at a time to: line ends are those of Unix, and a terminal is not steered."""

    def __init__(self, file: IO[str]) -> None:
        self.file, self.shown = file, visible if file.isatty() else str

    def write(self, row: str) -> int:
        """Write one row."""
        return self.file.write(self.shown(row.removesuffix(LINE_END)) + "\n")


@contextmanager
def _opened(out: str | Path) -> Iterator[_Lines]:
    """Open a file that takes its name only when all is written."""
    if str(out) == "-":
        yield _Lines(sys.stdout)
        return
    if Path(out).is_dir():
        raise TableError(f"out: expected a file, got the folder {str(out)!r}")
    with replacing(out) as beside, beside.open("w", encoding="utf-8", newline="") as file:
        yield _Lines(file)
