"""Prediction: a saved model on a file of any size, a chunk at a time; scores, labels and ids out, safe to open."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad.cells import numbers
from metricgrad.columns import listed
from metricgrad.reading import TableError, read_chunks
from metricgrad.table_classifier import TableClassifier, as_frame
from metricgrad.target import check_column

FORMULA = re.compile(r"^[=+\-@\t\r]")
"""How a cell begins that a spreadsheet would take for a formula."""
NUMBER = re.compile(r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$")
Tell = Callable[[str], object]


def write_predictions(
    model: TableClassifier, data: str | Path, out: str | Path, ids: Sequence[str] = (), tell: Tell = lambda said: None
) -> int:
    """Score a file row by row into a CSV file with the columns `row`, ids, `score` and `label`; return how many rows.

    Written beside and then renamed, so that a file is whole or not there; `-` is standard output.

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
    with _replacing(out) as file:
        for frame in checked_chunks(model, data, tell):
            for name in ids:
                check_column(name, list(frame.columns), "id")
            named = ids or [name for name in model.pipeline_[0].schema_.ids if name in frame.columns]
            part = predicted(model, frame, named, rows)
            part.to_csv(file, index=False, header=not rows, lineterminator="\n")
            rows += len(part)
    return rows


def predicted(model: TableClassifier, frame: pd.DataFrame, ids: Sequence[str] = (), before: int = 0) -> pd.DataFrame:
    """Return row numbers from 1 on, ids, scores and labels; nothing in it is a formula to a spreadsheet."""
    scores = model.decision_function(frame)
    part: pd.DataFrame = pd.DataFrame({"row": np.arange(before + 1, before + len(frame) + 1)})
    for name in ids:
        part[harmless(name)] = frame[name].map(harmless, na_action="ignore").to_numpy()
    part["score"] = scores
    part["label"] = np.array([harmless(label) for label in model.classes_], dtype=object)[(scores >= 0).astype(int)]
    return part


def harmless(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would run; numbers stay as they are.

    >>> harmless("=1+1"), harmless("-3.5"), harmless("a-b")
    ("'=1+1", '-3.5', 'a-b')
    """
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) and not NUMBER.match(value) else value


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


@contextmanager
def _replacing(out: str | Path) -> Iterator[IO[str]]:
    """Open a file that takes its name only when all is written."""
    if str(out) == "-":
        yield sys.stdout
        return
    target = Path(out)
    if target.is_dir():
        raise TableError(f"out: expected a file, got the folder {str(out)!r}")
    with tempfile.NamedTemporaryFile(
        "w", encoding="utf-8", newline="", dir=target.parent, prefix=f".{target.name}.", delete=False
    ) as file:
        beside = Path(file.name)
        try:
            yield file
            file.close()
            beside.chmod(0o644)
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)
