"""Using a saved model: score a file of any size chunk by chunk, evaluate on one, or export the network."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metricgrad.files import replacing, write_whole
from metricgrad.reporting.terminal import visible
from metricgrad.tabular.cells import TableError, listed
from metricgrad.tabular.io import read_chunks
from metricgrad.tabular.schema import as_frame
from metricgrad.tabular.table_model import TableModel
from metricgrad.tabular.target import check_column

if TYPE_CHECKING:
    from metricgrad.metrics.registry import Metric

BLANK = r"[\s\x00-\x20\x7f-\xa0\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff]*"
"""What a spreadsheet may skip at the beginning of a cell: white space, control and zero-width characters."""
FORMULA = re.compile(BLANK + r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20\ufe66\ufe62\ufe63\ufe6b]")
"""Beginning of a cell that a spreadsheet would take for a formula: = + - @, also as full-width or small forms."""
NUMBER = re.compile(r" *[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)? *")
ROW = "row"
"""Column of row numbers, which count from 1."""
LINE_END = "\r\n"
FEATURE_NAMES = "features.json"
"""The file inside an exported program that names its features, in order."""
Report = Callable[[str], object]


# ---- predictions ---------------------------------------------------------------------------------------------------


def write_predictions(
    model: TableModel,
    data: str | Path,
    out: str | Path,
    ids: Sequence[str] = (),
    report: Report = lambda line: None,
    proba: bool = False,
) -> int:
    """Score a file into a CSV file with the columns `row`, ids and what is predicted; return the number of rows.

    That is `score` and `label` of two classes, `label` and a score for each of several, the labels and their scores,
    `prediction` of numbers, or the `score` of rows of queries; with `proba`, probabilities of classes or labels too.

    The file appears only when it is complete; `-` is standard output. No cell is a formula to a spreadsheet, and every
    cell that holds a line break is quoted. An id with the name of another column is written as `NAME (id)`.
    By default `ids` are those of the model's schema; `report` is called with a line about columns that are not used.
    """
    rows = 0
    with _opened_output(out) as file:
        for frame in checked_chunks(model, data, report):
            for name in ids:
                check_column(name, list(frame.columns), "id")
            named = ids or [name for name in model.pipeline_[0].schema_.ids if name in frame.columns]
            part = predicted(model, frame, named, rows, proba)
            # With this line end, csv quotes cells with either of its characters in every version of Python.
            part.to_csv(file, index=False, header=not rows, lineterminator=LINE_END)
            rows += len(part)
    return rows


def predicted(
    model: TableModel, frame: pd.DataFrame, ids: Sequence[str] = (), before: int = 0, proba: bool = False
) -> pd.DataFrame:
    """Return row numbers from 1 on, ids and what is predicted, no cell of which is a formula to a spreadsheet."""
    own = model.prediction_columns(frame)
    own |= model.probability_columns(frame) if proba else {}
    columns = [
        np.arange(before + 1, before + len(frame) + 1),
        *(frame[name].map(harmless, na_action="ignore").to_numpy() for name in ids),
        *(_harmless_labels(values) for values in own.values()),
    ]
    part: pd.DataFrame = pd.DataFrame(dict(enumerate(columns)))
    names = [harmless(name) for name in own]
    part.columns = pd.Index([ROW, *_unique_names(ids, {ROW, *names}), *names])
    return part


def _harmless_labels(values: NDArray[Any]) -> NDArray[Any]:
    """Return labels of which none is a formula; numbers are unchanged."""
    if values.dtype.kind in "fiub":
        return values
    codes, distinct = pd.factorize(values)
    return np.array([harmless(label) for label in distinct], dtype=object)[codes]


def _unique_names(ids: Sequence[str], others: set[str]) -> list[str]:
    taken, names = set(others), []
    for name in ids:
        safe = harmless(name)
        while safe in taken:
            safe = f"{safe} (id)"
        taken.add(safe)
        names.append(safe)
    return names


def harmless(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would run; numbers are unchanged.

    The character NUL, at which some readers of CSV end a cell or fail, becomes U+FFFD.

    >>> harmless("=1+1"), harmless(" @sum"), harmless("-3.5"), harmless("a-b")
    ("'=1+1", "' @sum", '-3.5', 'a-b')
    """
    text = str(value)
    if FORMULA.match(text) and not NUMBER.fullmatch(text):
        value = f"'{text}"
    return value.replace("\0", "\ufffd") if isinstance(value, str) else value


class ScoredRows(NamedTuple):
    """Scores, targets and weights of rows, the targets with the columns of a metric, and the query of each row, if any.

    Scores and targets are `(rows,)`, or `(rows, classes)` and codes, or `(rows, labels)`.
    """

    scores: NDArray[Any]
    targets: NDArray[Any]
    weights: NDArray[Any] | None
    with_columns: NDArray[Any]
    groups: NDArray[Any] | None = None


def scored(
    model: TableModel,
    data: str | Path,
    weights: str | None = None,
    report: Report = lambda line: None,
    columns: Mapping[str, str] | None = None,
    metric: Metric | None = None,
    group: str | None = None,
) -> ScoredRows:
    """Return scores, targets and weights of a file with a target column; rows without a target are left out.

    With a metric that needs columns, they are found by the names given, or those that the model was trained with.
    """
    found: list[tuple[Any, ...]] = []
    for frame in checked_chunks(model, data, report, [*(columns or {}).values(), weights, group]):
        there, targets, own = model.labelled(frame, None, weights)
        if len(there):
            some = frame.iloc[there]
            if group is not None:
                check_column(group, list(frame.columns), "group")
            needed = metric is not None and metric.columns
            known = model.metric_frame(metric, frame, there, columns) if needed and metric else None
            queries = None if group is None else some[group]
            found.append((model.judged_scores(some, columns), targets, own, known, queries))
    if not found:
        raise TableError(f"target: expected values in {model.target_.name!r}, got none in {data}")
    scores, codes, row_weights, cells, grouped = zip(*found, strict=True)
    labels = np.concatenate(codes)
    judged = model.with_columns(metric, labels, pd.concat(cells)) if metric is not None and metric.columns else labels
    return ScoredRows(
        np.concatenate(scores),
        labels,
        np.concatenate(row_weights) if weights else None,
        judged,
        None if group is None else pd.factorize(pd.concat(grouped))[0],
    )


def checked_chunks(
    model: TableModel, data: str | Path, report: Report, used: Iterable[str | None] = ()
) -> Iterator[pd.DataFrame]:
    """Yield chunks of a file that has the columns a model needs; report those that neither it nor its metric uses."""
    schema = model.pipeline_[0].schema_
    for number, part in enumerate(read_chunks(data)):
        frame = as_frame(part)
        if not number:
            absent = [name for name in schema.names if name not in frame.columns]
            known = {column.name for column in schema.columns} | set(model.target_.names)
            known.update(model.metric_columns_.values(), model.columns_aside_, {getattr(model, "group_", None)}, used)
            extra = [name for name in frame.columns if name not in known]
            if absent:
                more = f"; not known: {listed(extra)}" if extra else ""
                raise TableError(
                    f"{data}: expected the columns the model was fitted on, missing: {listed(absent)}{more}"
                )
            if extra:
                report(f"columns not seen in training are not used: {listed(extra)}")
        yield frame


class _OutputLines(io.TextIOBase):
    """A text file to which csv writes a row at a time: line ends become those of Unix, terminal codes are escaped."""

    def __init__(self, file: IO[str]) -> None:
        self.file, self.shown = file, visible if file.isatty() else str

    def write(self, row: str) -> int:
        """Write one row."""
        return self.file.write(self.shown(row.removesuffix(LINE_END)) + "\n")


@contextmanager
def _opened_output(out: str | Path) -> Iterator[_OutputLines]:
    """Open a file that appears under its name only when it is complete."""
    if str(out) == "-":
        yield _OutputLines(sys.stdout)
        return
    if Path(out).is_dir():
        raise TableError(f"out: expected a file, got the folder {str(out)!r}")
    with replacing(out) as staging, staging.open("w", encoding="utf-8", newline="") as file:
        yield _OutputLines(file)


# ---- export --------------------------------------------------------------------------------------------------------


class Shifted(nn.Module):
    """A network after the scaling of its features, minus its threshold.

    `(rows, features)` -> `(rows,)`, or `(rows, classes)` of several thresholds.
    """

    centre: Tensor
    scale: Tensor
    threshold: Tensor

    def __init__(self, body: nn.Module, centre: Tensor, scale: Tensor, threshold: Tensor) -> None:
        super().__init__()
        self.body = body
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        self.register_buffer("threshold", threshold)

    def forward(self, features: Tensor) -> Tensor:
        """Score prepared features; at least 0 is positive, or the highest of several classes is predicted."""
        scaled = ((features.double() - self.centre) / self.scale).float().double()
        scores: Tensor = self.body(scaled)
        return (scores if self.threshold.ndim else scores[:, 0]) - self.threshold


def export(model: TableModel, path: str | Path) -> Path:
    """Write the network as a `torch.export` program that takes the features of `model.pipeline_[0].transform(frame)`.

    `torch.export.load` reads the file and needs no metricgrad; `features.json` in it names the features.
    """
    from metricgrad.training.networks import TREES  # predicting needs none

    inner, target = model.model_, Path(path)
    if hasattr(inner, "correction_"):
        raise ValueError(f"model: expected one of classes or rankings, got one of numbers, {model.target_.name!r}")
    if getattr(inner, "rule_", None) is not None:
        raise ValueError(f"model: expected one that its scores decide, got the rule {inner.rule_}")
    network = inner.network_
    if TREES in {network.name, *(part.name for part in network.parts)}:
        raise ValueError("model: expected one without boosted trees, which are no tensor program, got one with them")
    names = [str(name) for name in model.pipeline_[0].get_feature_names_out()]
    centre, scale = torch.from_numpy(inner.centre_), torch.from_numpy(inner.scale_)
    threshold = torch.as_tensor(getattr(inner, "threshold_", 0.0), dtype=torch.float64)
    module = Shifted(inner.network_.body, centre, scale, threshold).eval()
    example = torch.zeros(2, len(names), dtype=torch.float32)
    program = torch.export.export(module, (example,), dynamic_shapes={"features": {0: torch.export.Dim("rows", min=1)}})
    written = io.BytesIO()
    torch.export.save(program, written, extra_files={FEATURE_NAMES: json.dumps(names)})
    write_whole(target, written.getvalue())
    return target
