"""TableClassifier: a user's own table, with columns of any kind, to a model trained for a metric."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from metricgrad.estimators.classifier import MetricClassifier
from metricgrad.estimators.metric_estimator import NestedRecipe, seed_of
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.tabular.cells import dates, form_of_dates, numbers
from metricgrad.tabular.encoding import Preparation, typed
from metricgrad.tabular.io import TableError, check_names
from metricgrad.tabular.leaks import leaking
from metricgrad.tabular.schema import CLEAR, infer_columns
from metricgrad.tabular.table_state import check_storable, table_state
from metricgrad.tabular.target import Target, check_column, infer_target
from metricgrad.training.data import MERGED_ROWS, MOST_EQUAL
from metricgrad.training.recipe import Recipe
from metricgrad.training.splits import group_part, latest_part, split

Array = NDArray[Any]
LOG = logging.getLogger(__name__)
CELLS = 1 << 24
"""Encoded cells that are in memory at a time where rows are scored."""
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
"""Sets the hashes of rows of different targets apart."""
FEW = 30
"""Positive rows below which the metric on validation rows is mostly noise."""


class TableClassifier(ClassifierMixin, NestedRecipe):  # type: ignore[misc]
    """Binary classifier for a table as it comes: numbers, categories, yes or no, dates, gaps, ids and all.

    What the columns are is inferred and said in `notes_`; gaps are filled, categories spread out and numbers scaled in
    a scikit-learn pipeline, at the end of which a `MetricClassifier` is trained for the metric.

    Parameters
    ----------
    metric : str, Metric, torchmetrics object, scorer or function of scikit-learn
        A name (`"f1"`), an expression over `tp fp fn tn`, `"sklearn.metrics.f1_score"`, or as of `MetricClassifier`.
    method, model, recipe, validation_fraction, time_limit, random_state, verbose
        As of `MetricClassifier`.
    positive : label, optional
        The positive class; inferred if not given. Where there are more than two, all others are negative.
    ignore : collection of str
        Columns to leave out.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels; the second is the positive one.
    pipeline_ : Pipeline
        A `Preparation` and a `MetricClassifier`, fitted.
    target_ : Target
        Name and labels of the target.
    data_ : dict
        How many `rows` there were, and how many `positives`.
    notes_ : list of str
        What was inferred, dropped and why.

    Examples
    --------
    >>> import pandas as pd
    >>> from metricgrad import Recipe, TableClassifier
    >>> frame = pd.DataFrame({"age": [30, 31, 32, 33, 34] * 20, "churn": ["no", "no", "yes", "no", "yes"] * 20})
    >>> model = TableClassifier("f1", model="linear", recipe=Recipe(warmup=60, rounds=0)).fit(frame, "churn")
    >>> model.notes_[0]
    "target churn: 'yes' is positive (it says yes), 40 of 100 rows, against 'no'"
    """

    classes_: Array
    pipeline_: Pipeline
    target_: Target

    def __init__(
        self,
        metric: Any = "f1",
        method: str = "sl-r",
        model: Any = "mlp",
        recipe: Recipe | str = "default",
        positive: Any = None,
        ignore: Collection[str] = (),
        validation_fraction: float = 0.2,
        time_limit: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.metric = metric
        self.method = method
        self.model = model
        self.recipe = recipe
        self.positive = positive
        self.ignore = ignore
        self.validation_fraction = validation_fraction
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    # ---- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, times: Any = None) -> TableClassifier:
        """Train on a table.

        Parameters
        ----------
        X : DataFrame
            Columns of any kind.
        y : str or array-like of shape (rows,)
            The target: the name of a column of `X`, or labels. Rows without one are left out.
        sample_weight : str or array-like, optional
            How much each row counts: a column, or numbers.
        groups : str or array-like, optional
            What each row belongs to: a column, or values. No group is on both sides of the split.
        times : str or array-like, optional
            When each row was: a column, or dates or numbers. Validation rows are then the latest.

        Returns
        -------
        self
        """
        metric, frame = get_metric(self.metric), as_frame(X)
        if metric.task.name not in ("binary", "columns"):
            raise ValueError(
                f"metric: expected one for two classes, such as 'f1', got {metric.name!r}, which is for "
                f"{metric.task.name} targets; MetricClassifier takes it"
            )
        beside = {"target": y, "weights": sample_weight, "group": groups, "time": times}
        if groups is not None and times is not None:
            raise TableError("time: expected none where rows are split by group, for a split has one way to go")
        for argument, given in beside.items():
            if isinstance(given, str):
                check_column(given, list(frame.columns), argument)
        cells = {argument: _cells(given, frame, argument) for argument, given in beside.items() if given is not None}
        features = frame.drop(columns=[given for given in beside.values() if isinstance(given, str)])
        name = y if isinstance(y, str) else str(getattr(y, "name", None) or "target")
        self.target_, said = infer_target(cells["target"], name, self.positive, features)
        targets = self.target_.classes(cells["target"])
        there = np.flatnonzero(np.isfinite(targets))
        if len(there) < len(frame):  # a copy of all rows only where some are left out
            features, targets = features.iloc[there], targets[there]
        self.notes_: list[str] = []
        self._note(said, *_left_out(len(frame) - len(there)), *_few(targets))
        self.data_ = {"rows": len(targets), "positives": int(targets.sum())}
        kept = {argument: given.iloc[there] for argument, given in cells.items()}
        weights = _weights(kept["weights"]) if "weights" in kept else None
        validation = self._validation(kept.get("group"), kept.get("time"), targets)
        self._train(metric, features, targets, weights, validation)
        self.classes_ = np.array([self.target_.negative, self.target_.positive])
        self.feature_names_in_ = np.array(self.pipeline_[0].schema_.names, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def _train(
        self, metric: Metric, features: pd.DataFrame, targets: Array, weights: Array | None, validation: Array | None
    ) -> None:
        schema = infer_columns(features, self.ignore)
        self._note(*schema.describe())
        features = typed(features, schema).reset_index(drop=True)
        validation = self._by_chance(features, targets) if validation is None else validation
        for name, auc in leaking(features, schema.used, targets):
            warnings.warn(
                f"{name!r} alone tells the target (AUC {auc:.4f}): was it filled in later? Then ignore it", stacklevel=3
            )
        model = MetricClassifier(
            metric,
            self.method,
            self.model,
            self.recipe,
            validation_fraction=self.validation_fraction,
            time_limit=self.time_limit,
            random_state=self.random_state,
            verbose=self.verbose,
        )
        # What fills gaps and scales numbers is learned from the rows trained on alone, as everything else is.
        trained_on = np.setdiff1d(np.arange(len(features)), validation)
        preparation = Preparation(schema).fit(features.iloc[trained_on])
        check_storable(table_state(stored_name(self.metric), self.target_, preparation))
        model.fit(preparation.transform(features), targets, sample_weight=weights, validation=validation)
        self.pipeline_ = Pipeline([("preparation", preparation), ("model", model)])

    def _note(self, *lines: str) -> None:
        """Keep what was inferred, and log it, so that it can be shown before training begins."""
        self.notes_ += lines
        for line in lines:
            LOG.info("%s", line)

    def _by_chance(self, features: pd.DataFrame, targets: Array) -> NDArray[np.int64]:
        """Return the validation rows of a split by chance; equal rows of a small table are on the same side."""
        seed, share = seed_of(self.random_state), self.validation_fraction
        if len(features) > MERGED_ROWS:
            return split(targets, seed, test=0.0, validation=share).validation
        cells = pd.util.hash_pandas_object(features, index=False).to_numpy()
        keys = cells + np.unique(targets, return_inverse=True)[1].astype(np.uint64) * GOLDEN
        _, first, number = np.unique(keys, return_index=True, return_inverse=True)
        if len(features) > MOST_EQUAL * len(first):
            return split(targets, seed, test=0.0, validation=share).validation
        order = np.argsort(first)  # distinct rows as they come, so that a table without equal rows is split as it is
        chosen = split(targets[first[order]], seed, test=0.0, validation=share).validation
        return np.flatnonzero(np.isin(number, order[chosen]))

    def _validation(
        self, groups: pd.Series[Any] | None, times: pd.Series[Any] | None, targets: Array
    ) -> NDArray[np.int64] | None:
        """Return the validation rows of a split by group or by time; None for a split by chance."""
        try:
            if groups is not None:
                if groups.isna().any():
                    raise TableError(f"group: expected one for every row, got {groups.isna().sum():,} missing")
                return group_part(
                    pd.factorize(groups)[0], targets, int(self.random_state or 0), self.validation_fraction
                )
            return None if times is None else latest_part(_moments(times), self.validation_fraction)
        except ValueError as error:
            raise TableError(str(error)) from error

    # ---- using -----------------------------------------------------------------------------------------------------

    @property
    def model_(self) -> MetricClassifier:
        """The trained model, on features."""
        model: MetricClassifier = self.pipeline_[-1]
        return model

    def decision_function(self, X: Any) -> Array:
        """Return scores, shifted so that the threshold is zero: `(rows,)`; columns are found by name."""
        check_is_fitted(self, "pipeline_")
        frame = as_frame(X)
        rows = max(1, CELLS // self.model_.n_features_in_)
        parts = (frame[start : start + rows] for start in range(0, max(1, len(frame)), rows))
        return np.concatenate([np.asarray(self.pipeline_.decision_function(part)) for part in parts])

    def predict(self, X: Any) -> Array:
        """Return labels: the positive one where the decision function is at least zero."""
        return np.asarray(self.classes_[(self.decision_function(X) >= 0).astype(int)])

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Return the metric as people know it, or negated if they want it low; `y` is by default the target column."""
        check_is_fitted(self, "pipeline_")
        frame = as_frame(X)
        name = self.target_.name if y is None else y
        if isinstance(name, str):
            check_column(name, list(frame.columns), "target")
        targets = self.target_.classes(_cells(name, frame, "target"))
        there = np.flatnonzero(np.isfinite(targets))
        weights = None if sample_weight is None else _weights(_cells(sample_weight, frame, "weights").iloc[there])
        metric = get_metric(self.metric)
        value = float(metric.value(metric(self.decision_function(frame.iloc[there]), targets[there], weights)))
        return value if metric.higher_is_better else -value


def stored_name(metric: Any) -> str:
    """Return what a metric is called in a model folder: as it was written, or by its name if it is code."""
    return metric if isinstance(metric, str) else get_metric(metric).name


def as_frame(X: Any) -> pd.DataFrame:
    """Return a table as pandas holds it, with names of text, each there once."""
    frame = X if isinstance(X, pd.DataFrame) else X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(X)
    names = [str(name) for name in frame.columns]
    check_names(names)
    named: pd.DataFrame = frame.set_axis(names, axis=1)
    return named


def _cells(given: Any, frame: pd.DataFrame, argument: str) -> pd.Series[Any]:
    """Return a column by name, or values of one's own, one a row."""
    if isinstance(given, str):
        return frame[given]
    cells: pd.Series[Any] = pd.Series(given).reset_index(drop=True)
    if len(cells) != len(frame):
        raise TableError(f"{argument}: expected one for each of {len(frame):,} rows, got {len(cells):,}")
    return cells


def _weights(cells: pd.Series[Any]) -> Array:
    found = numbers(cells)
    wrong = ~(found >= 0)
    if wrong.any():
        got = cells.iloc[int(np.argmax(wrong))]
        raise TableError(f"weights: expected a number of at least 0 in every row, got {str(got)!r}")
    return found


def _moments(cells: pd.Series[Any]) -> Array:
    """Return numbers or dates as numbers to go by."""
    found = numbers(cells)
    if np.isnan(found).any():
        form = "" if pd.api.types.is_datetime64_any_dtype(cells.dtype) else form_of_dates(cells.dropna(), CLEAR)
        found = found if form is None else dates(cells, form)
    if np.isnan(found).any():
        got = cells.iloc[int(np.argmax(np.isnan(found)))]
        raise TableError(f"time: expected a number or a date in every row, got {str(got)!r}")
    return found


def _left_out(rows: int) -> list[str]:
    return [f"left out: {rows:,} rows without a target"] if rows else []


def _few(targets: Array) -> list[str]:
    found = int(targets.sum())
    return [f"few positives ({found}): the metric on validation rows is mostly noise"] if found < FEW else []
