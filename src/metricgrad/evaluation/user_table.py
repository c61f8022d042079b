"""A user's own table to compare methods on: its rows that have a target, and how they are split."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
from numpy.typing import NDArray
from sklearn.utils import check_array

from metricgrad.estimators.metric_estimator import FLOAT_DTYPES
from metricgrad.metrics.registry import Metric, metric_for_labels, metric_for_task
from metricgrad.tabular.cells import words
from metricgrad.tabular.fit_rows import cells_of, groups_of, moments_of, target_cells, weights_of
from metricgrad.tabular.leaks import leak_warnings
from metricgrad.tabular.metric_cells import metric_cells, metric_columns
from metricgrad.tabular.schema import Schema, infer_columns
from metricgrad.tabular.target import AnyTarget, Target
from metricgrad.tabular.target_inference import infer_classes, infer_labels, infer_numbers, infer_target
from metricgrad.training.splits import Split, latest_part, split

Array = NDArray[Any]
MIN_COMPARED_ROWS_PER_CLASS = 10


class UserTable(NamedTuple):
    """The rows that have a target: features, targets, groups, times, weights, columns, and remarks on them.

    Targets are 0 or 1, numbers of classes, labels, `(rows, labels)`, or numbers. `labelled` are the numbers of the rows
    among all, `columns` what the metric needs of them, `(rows, columns)`.
    """

    X: Any
    target: AnyTarget
    targets: Array
    groups: Array | None
    times: Array | None
    weights: Array | None
    schema: Schema | None
    remarks: tuple[str, ...]
    labelled: Array
    columns: Array | None = None

    @property
    def strata(self) -> Array:
        """What a split is stratified by: the class, if there is one."""
        classes = self.target.kind in ("two classes", "classes")
        return self.targets if classes else np.zeros(len(self.targets), np.int8)

    def split(self, seed: int, number: int, splits: int, test: float, validation: float) -> Split:
        """Return one of some splits: at random, by whole groups, or by time."""
        if self.times is not None:
            return time_split(self.times, number, splits, validation)
        return split(self.strata, seed, test, validation, self.groups)


def time_split(times: Array, number: int, splits: int, validation: float) -> Split:
    """Return one of some splits by time: later rows judge models that were trained on earlier ones.

    The later half of the rows is cut into as many blocks of consecutive times, the test rows of one split each; all
    earlier rows are trained on, but for the latest of them, which validate.

    >>> part = time_split(np.arange(12.0), number=1, splits=2, validation=0.25)
    >>> part.train.tolist(), part.validation.tolist(), part.test.tolist()
    ([0, 1, 2, 3, 4, 5, 6], [7, 8], [9, 10, 11])
    """
    edges = np.quantile(times, 0.5 + 0.5 * np.arange(splits) / splits, method="higher")
    start, end = edges[number], edges[number + 1] if number + 1 < splits else np.inf
    earlier, tested = np.flatnonzero(times < start), np.flatnonzero((times >= start) & (times < end))
    if not len(tested) or len(np.unique(times[earlier])) < 2:
        raise ValueError(f"times: expected enough different times for {splits} splits, got {len(np.unique(times)):,}")
    held_out = earlier[latest_part(times[earlier], validation)]
    return Split(np.setdiff1d(earlier, held_out), held_out, tested)


# ---- reading -------------------------------------------------------------------------------------------------------


class Given(NamedTuple):
    """What a user says of rows: columns of a data frame by name, or values."""

    y: Any
    groups: Any = None
    times: Any = None
    weights: Any = None


def read_user_table(X: Any, given: Given, metric: Metric, ignore: Collection[str], positive: Any) -> UserTable:
    """Check a table, and infer the columns of a data frame and what the target is to the metric."""
    if given.groups is not None and given.times is not None:
        raise ValueError("times: expected none with groups, since rows are split either by group or by time")
    plain = is_plain(X)
    features = check_array(X, accept_sparse="csr", dtype=FLOAT_DTYPES, input_name="X") if plain else X
    frame = pd.DataFrame(index=range(features.shape[0])) if plain else features
    names, cells = target_cells(given.y, frame)
    target, lines = _target(cells, names, metric, positive)
    targets = target.read(cells)
    labelled = np.flatnonzero(np.isfinite(targets).reshape(len(targets), -1).all(-1))
    taken = [given.y] if isinstance(given.y, str) else names if isinstance(given.y, (list, tuple)) else []
    taken += [each for each in given[1:] if isinstance(each, str)]
    schema = None if plain else infer_columns(features.drop(columns=[n for n in taken if n in features]), ignore)
    known = {
        name: None if each is None else read(cells_of(each, frame, name).iloc[labelled])
        for name, each, read in (
            ("group", given.groups, groups_of),
            ("time", given.times, moments_of),
            ("weights", given.weights, weights_of),
        )
    }
    table = UserTable(
        features[labelled] if plain else features.iloc[labelled],
        target,
        targets[labelled] if target.kind == "numbers" else targets[labelled].astype(np.int64),
        known["group"],
        known["time"],
        known["weights"],
        schema,
        tuple(lines),
        labelled,
    )
    _check_classes(table)
    if metric.task.name == "ranking":
        _check_queries(table, metric)
    return table._replace(remarks=(*lines, *_remarks(table, len(targets) - len(labelled))))


def is_plain(X: Any) -> bool:
    """Whether features are an array or a sparse matrix, and not a data frame."""
    return isinstance(X, (np.ndarray, list, tuple)) or scipy.sparse.issparse(X)


def metric_of_target(metric: Metric, y: Any, frame: Any, positive: Any) -> Metric:
    """Return a metric as it is for a target: the namesake for several classes, or labels."""
    cells = target_cells(y, pd.DataFrame(index=range(frame.shape[0])) if is_plain(frame) else frame)[1]
    if len(cells) > 1:
        return metric_for_task(metric, "multilabel")
    if positive is not None or metric.task.name not in ("binary", "multiclass"):
        return metric
    found = words(cells[0])
    return metric_for_labels(metric, found[pd.notna(found)].astype(str))


def _target(
    cells: list[pd.Series[Any]], names: list[str], metric: Metric, positive: Any
) -> tuple[AnyTarget, list[str]]:
    task = metric.task.name
    if (len(cells) > 1) != (task == "multilabel"):
        raise ValueError(f"target: expected columns as the metric {metric.name!r} of {task} has, got {len(cells)}")
    if task == "multilabel":
        return infer_labels(cells, names)
    if task == "multiclass":
        classes, line = infer_classes(cells[0], names[0])
        return classes, [line]
    if task in ("regression", "censored", "ranking"):
        numbers, line = infer_numbers(cells[0], names[0])
        return numbers, [line]
    target, line = infer_target(cells[0], names[0], positive)
    return target, [line]


def _check_classes(table: UserTable) -> None:
    if table.target.kind not in ("two classes", "classes"):
        return
    fewest = int(np.bincount(table.targets).min())
    if fewest < MIN_COMPARED_ROWS_PER_CLASS:
        raise ValueError(
            f"y: expected at least {MIN_COMPARED_ROWS_PER_CLASS} rows of each class to compare methods, got {fewest}"
        )


def _check_queries(table: UserTable, metric: Metric) -> None:
    """Raise an error unless every row has a query, which is its group, a grade, and no weight."""
    if table.groups is None:
        raise ValueError(f"groups: expected the query of each row for {metric.name!r}, a metric of rankings, got none")
    if table.weights is not None:
        raise ValueError(f"sample_weight: expected none for {metric.name!r}, a metric of rankings, got some")
    if (table.targets < 0).any() or (table.targets % 1 != 0).any():
        wrong = table.targets[(table.targets < 0) | (table.targets % 1 != 0)][0]
        raise ValueError(f"y: expected grades 0, 1, 2 ... for {metric.name!r}, a metric of rankings, got {wrong:g}")


def _remarks(table: UserTable, dropped: int) -> list[str]:
    remarks = []
    if table.schema:
        remarks += table.schema.describe()
        remarks += leak_warnings(table.X, table.schema.used, table.target, table.targets.astype(float))
    return [*remarks, *([f"left out because they have no target: {dropped:,} rows"] if dropped else [])]


def without_metric_columns(
    X: Any, metric: Metric, columns: Mapping[str, Any] | None, column_features: bool
) -> tuple[Any, dict[str, Any]]:
    """Return the features, and the cells that the metric needs of all rows; these are no features unless asked for."""
    if not metric.columns and not columns:
        return X, {}
    if is_plain(X):
        return X, dict(columns or {})
    known = metric_columns(metric.columns, columns, X)
    own = [each for each in known.values() if isinstance(each, str)]
    cells = metric_cells(known, metric.groups, X, slice(None))
    return X if column_features else X.drop(columns=list(dict.fromkeys(own))), cells


def positives_of(table: UserTable) -> int:
    """Return how many rows are positive, if there are two classes."""
    return int(table.targets.sum()) if isinstance(table.target, Target) else 0
