"""TableModel: what models of a table with columns of any kind share: reading, encoding, training, scoring in parts."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from metricgrad.estimators.metric_estimator import MetricEstimator, NestedRecipe, seed_of
from metricgrad.metrics.registry import Metric, error_rate, get_metric
from metricgrad.tabular.cells import TableError, listed
from metricgrad.tabular.encoding import Preparation, typed
from metricgrad.tabular.manifest import check_storable, table_state
from metricgrad.tabular.schema import as_frame, infer_columns
from metricgrad.tabular.target import AnyTarget
from metricgrad.training.splits import split_at

if TYPE_CHECKING:
    from metricgrad.tabular.fit_rows import FitRows

Array = NDArray[Any]
LOG = logging.getLogger(__name__)
SCORED_CELLS = 1 << 24
"""Encoded cells in memory at a time while rows are scored."""


class UnknownMetricError(AttributeError, ValueError):
    """A metric cannot be had: to `hasattr`, which lists what a notebook shows, the model has none."""


class TableModel(NestedRecipe):
    """A model of a table as it is; a subclass says what the target is, and which estimator learns it.

    Columns are inferred, encoded and given to the estimator, which is the last step of `pipeline_`.
    """

    metric: Any
    method: str
    ignore: Collection[str]
    validation_fraction: float
    time_limit: float | None
    random_state: Any
    verbose: bool
    column_features: bool
    folds: int | None = 1
    pipeline_: Pipeline
    target_: Any
    notes_: list[str]
    data_: dict[str, int]
    metric_columns_: dict[str, str]
    columns_aside_: tuple[str, ...] = ()
    feature_names_in_: Array
    n_features_in_: int

    # ---- what a subclass says --------------------------------------------------------------------------------------

    def _infer_target(
        self, metric: Metric, cells: list[pd.Series[Any]], names: list[str], others: pd.DataFrame
    ) -> tuple[AnyTarget, Metric, list[str]]:
        """Return the target, the metric as it is for such a target, and lines about it."""
        raise NotImplementedError

    def _fold_count(self, metric: Metric, rows: FitRows) -> int:
        """Return how many models are trained, each on all but one fold; 1: one split."""
        if rows.held_out.rows is not None:
            if (self.folds or 1) > 1:
                raise TableError(
                    f"folds: expected 1 with times, because the latest rows are held out, got {self.folds}"
                )
            return 1
        from metricgrad.estimators.competing import competes
        from metricgrad.estimators.held_out import fold_count  # loading and predicting need none
        from metricgrad.training.methods import AUTO

        several = competes(self.model) or self.method == AUTO
        return fold_count(self.folds, metric, self._strata(rows.targets), rows.held_out.groups, several=several)

    def _strata(self, targets: Array) -> Array:
        """Return what a split is stratified by: nothing."""
        return np.zeros(len(targets), np.int8)

    def _fitted(
        self, metric: Metric, x: Array, names: Array, rows: FitRows, validation: Array | None, folds: int
    ) -> MetricEstimator:
        """Return the estimator, trained on features and targets; `names` are those of the features."""
        raise NotImplementedError

    def judged_scores(self, frame: pd.DataFrame, columns: Mapping[str, Any] | None) -> Array:
        """Return what the metric judges of rows."""
        raise NotImplementedError

    def prediction_columns(self, frame: pd.DataFrame) -> dict[str, Array]:
        """Return what a file of predictions says of every row, by the names of its columns."""
        raise NotImplementedError

    def probability_columns(self, frame: pd.DataFrame) -> dict[str, Array]:
        """Return probabilities for such a file; only classes and labels have any."""
        raise TableError(f"proba: expected a model of classes or labels, got one of {self.target_.kind}")

    # ---- fitting ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        times: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> Any:
        """Train on a table.

        Parameters
        ----------
        X : DataFrame
            Columns of any kind.
        y : str, list of str or array-like of shape (rows,) or (rows, labels)
            The target: the name of a column of `X`, or values; several names are several labels. Rows without one are
            left out.
        sample_weight : str or array-like, optional
            Row weights: a column, or numbers.
        groups : str or array-like, optional
            The group of each row: a column, or values. No group is both trained on and held out.
        times : str or array-like, optional
            The time of each row: a column, or dates or numbers. The latest rows are then the validation rows.
        columns : mapping of str to str or array-like, optional
            What each name in the metric stands for: a column of `X`, by default that of its name, or values. Columns
            of `X` that the metric needs are no features unless `column_features` is set.

        Returns
        -------
        self
        """
        self.notes_ = []
        given = {"weights": sample_weight, "group": groups, "time": times}
        metric, rows = self._fit_rows(get_metric(self.metric), as_frame(X), y, given, columns)
        del X, y, given  # where nobody else holds the table, it is freed as it is encoded
        self._train(metric, rows)
        self.feature_names_in_ = np.array(self.pipeline_[0].schema_.names, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def _fit_rows(
        self, metric: Metric, frame: pd.DataFrame, y: Any, given: Mapping[str, Any], columns: Mapping[str, Any] | None
    ) -> tuple[Metric, FitRows]:
        """Return the metric for the target, and the rows that have one, with all that is known of them."""
        from metricgrad.tabular.fit_rows import FitRows, cells_of, held_out, target_cells, weights_of
        from metricgrad.tabular.metric_cells import metric_cells, metric_columns  # predicting needs none

        if given["group"] is not None and given["time"] is not None:
            raise TableError("time: expected none with groups, since rows are split either by group or by time")
        names, target = target_cells(y, frame)
        cells = {argument: cells_of(each, frame, argument) for argument, each in given.items() if each is not None}
        known = metric_columns(metric.columns, columns, frame)
        own = [] if self.column_features else [each for each in known.values() if isinstance(each, str)]
        labels = [y] if isinstance(y, str) else names if isinstance(y, (list, tuple)) and list(y) == names else []
        self.columns_aside_ = tuple(each for each in given.values() if isinstance(each, str))
        taken = [*labels, *self.columns_aside_, *own]
        features = frame.drop(columns=list(dict.fromkeys(taken)))
        self.metric_columns_ = {name: each if isinstance(each, str) else "" for name, each in known.items()}
        self.target_, metric, lines = self._infer_target(metric, target, names, features)
        targets = self.target_.read(target)
        there = np.flatnonzero(np.isfinite(targets).reshape(len(targets), -1).all(-1))
        if len(there) < len(frame):  # a copy of all rows only where some are left out
            features, targets = features.iloc[there], targets[there]
        left_out = len(frame) - len(there)
        self._note(*lines, *([f"left out: {left_out:,} rows without a target"] if left_out else []))
        self.data_ = {"rows": len(targets)}
        kept = {argument: each.iloc[there] for argument, each in cells.items()}
        if own:
            self._note(f"of the metric, not features: {listed(own)}")
        return metric, FitRows(
            [features],
            targets,
            weights_of(kept["weights"]) if "weights" in kept else None,
            held_out(kept.get("group"), kept.get("time"), self.validation_fraction),
            metric_cells(known, metric.groups, frame, there) or None,
        )

    def _train(self, metric: Metric, rows: FitRows) -> None:
        """Infer, encode and fit; the table is taken out of its list, so that its memory can be freed on the way."""
        from metricgrad.tabular.fit_rows import one_split
        from metricgrad.tabular.leaks import leak_warnings

        features, validation = rows.features.pop(), rows.held_out.rows
        schema = infer_columns(features, self.ignore)
        self._note(*schema.describe())
        features = typed(features, schema).reset_index(drop=True)
        for line in leak_warnings(features, schema.used, self.target_, rows.targets):
            warnings.warn(line, stacklevel=3)
        folds = self._fold_count(metric, rows)
        if folds == 1 and validation is None:
            seed, groups = seed_of(self.random_state), rows.held_out.groups
            validation = one_split(features, self._strata(rows.targets), groups, seed, self.validation_fraction)
        # Fill values and scales are learned from the rows that are trained on.
        trained_on = None if validation is None else split_at(validation, len(features)).train
        preparation = Preparation(schema).fit(features, rows=trained_on)
        check_storable(table_state(stored_name(self.metric), self.target_, preparation, self.metric_columns_))
        prepared = preparation.transform(features, consume=True)
        del features
        model = self._fitted(metric, prepared, preparation.get_feature_names_out(), rows, validation, folds)
        self.pipeline_ = Pipeline([("preparation", preparation), ("model", model)])

    def _note(self, *lines: str) -> None:
        """Store notes and log them, so that they can be shown before training starts."""
        self.notes_ += lines
        for line in lines:
            LOG.info("%s", line)

    def _card(self) -> str:
        """Return the card of the model, with shapes by the columns of the table; nothing before fitting."""
        if not hasattr(self, "pipeline_"):
            return ""
        try:
            metric = self.judge_
        except UnknownMetricError:  # of a metric that was code, a model folder has the name only
            metric = replace(error_rate, name=self.metric, label=f"loss by {self.metric}")
        return str(self.model_._card_by(metric, self._shapes(self.model_.network_)))

    # ---- using -----------------------------------------------------------------------------------------------------

    @property
    def model_(self) -> Any:
        """The trained model, on features."""
        return self.pipeline_[-1]

    @property
    def judge_(self) -> Metric:
        """The metric, as it is for the target."""
        try:
            return self.for_target(get_metric(self.metric))
        except ValueError as error:
            raise UnknownMetricError(str(error)) from error

    def for_target(self, metric: Metric) -> Metric:
        """Return a metric as it is for the target."""
        return metric

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, columns: Mapping[str, Any] | None = None
    ) -> float:
        """Return the metric in its usual form, negated if lower is better.

        Parameters
        ----------
        X : DataFrame
            The columns that the model was trained on; others are ignored.
        y : str, list of str or array-like, optional
            The target, as for `fit`; by default the target column of `X`. Rows without one are left out.
        sample_weight : str or array-like, optional
            Row weights: a column, or numbers.
        columns : mapping of str to str or array-like, optional
            As for `fit`; by default the columns that it was fitted with.

        Returns
        -------
        float
        """
        whole, metric = as_frame(X), self.judge_
        there, targets, weights = self.labelled(whole, y, sample_weight)
        if metric.columns:
            targets = self.with_columns(metric, targets, self.metric_frame(metric, whole, there, columns))
        value = float(metric.value(metric(self.judged_scores(whole.iloc[there], columns), targets, weights)))
        return value if metric.higher_is_better else -value

    def labelled(self, frame: pd.DataFrame, y: Any = None, sample_weight: Any = None) -> tuple[Array, Array, Any]:
        """Return the numbers of the rows that have a target, their targets as codes, and their weights, if any."""
        from metricgrad.tabular.fit_rows import cells_of, target_cells, weights_of

        check_is_fitted(self, "pipeline_")
        named = [cells_of(name, frame, "target") for name in self.target_.names] if y is None else None
        targets = self.target_.read(target_cells(y, frame)[1] if named is None else named)
        there = np.flatnonzero(np.isfinite(targets).reshape(len(targets), -1).all(-1))
        weights = None if sample_weight is None else weights_of(cells_of(sample_weight, frame, "weights").iloc[there])
        codes = targets[there]
        return there, codes.astype(np.int64) if self.target_.kind == "classes" else codes, weights

    def in_parts(self, frame: pd.DataFrame, score: Callable[[Array, slice], Array], least: int = 1) -> Array:
        """Return what a function says of encoded features and their places, some rows at a time."""
        check_is_fitted(self, "pipeline_")
        rows = max(least, SCORED_CELLS // self.model_.n_features_in_)
        parts = [slice(start, start + rows) for start in range(0, max(1, len(frame)), rows)]
        return np.concatenate([np.asarray(score(self.pipeline_[0].transform(frame[part]), part)) for part in parts])

    def metric_frame(
        self, metric: Metric, frame: pd.DataFrame, rows: Any, columns: Mapping[str, Any] | None = None
    ) -> pd.DataFrame:
        """Return the cells that a metric needs of some rows, by their numbers: as named, or else as in training."""
        from metricgrad.tabular.metric_cells import metric_cells, metric_columns  # predicting needs none

        trained = {name: each for name, each in self.metric_columns_.items() if each and name in metric.columns}
        known = metric_columns(metric.columns, trained | dict(columns or {}), frame)
        cells: pd.DataFrame = pd.DataFrame(metric_cells(known, metric.groups, frame, rows))
        return cells

    def with_columns(self, metric: Metric, targets: Array, cells: pd.DataFrame) -> Array:
        """Return targets as a metric with columns takes them, `(rows, 1 + columns)`."""
        from metricgrad.estimators.metric_columns import checked_columns

        codes = getattr(self.model_, "column_codes_", None)
        known = checked_columns({name: cells[name] for name in metric.columns}, metric, len(targets), codes)
        return targets if known is None else np.column_stack((targets, known))


def stored_name(metric: Any) -> str:
    """Return the name of a metric in a model folder: as given if it is text, else its own name."""
    return metric if isinstance(metric, str) else get_metric(metric).name
