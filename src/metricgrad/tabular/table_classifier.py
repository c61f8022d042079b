"""TableClassifier: trains a model for a metric on a table with columns of any kind."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from metricgrad.estimators.classifier import MetricClassifier
from metricgrad.estimators.competing import competes
from metricgrad.estimators.metric_estimator import NestedRecipe, seed_of
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.tabular.cells import TableError, date_format, dates, listed, numbers
from metricgrad.tabular.encoding import Preparation, typed
from metricgrad.tabular.manifest import check_storable, table_state
from metricgrad.tabular.schema import MIN_PARSED, check_names, infer_columns
from metricgrad.tabular.target import Target, check_column, infer_target, leaking_columns
from metricgrad.training.data import MAX_DUPLICATES, MAX_MERGE_ROWS
from metricgrad.training.networks import numbered
from metricgrad.training.recipe import Recipe
from metricgrad.training.splits import group_part, latest_part, split

if TYPE_CHECKING:
    from metricgrad.estimators.explain import Explanation
    from metricgrad.estimators.scorecard import Scorecard
    from metricgrad.estimators.terms import Terms

Array = NDArray[Any]
LOG = logging.getLogger(__name__)
SCORED_CELLS = 1 << 24
"""Encoded cells in memory at a time while rows are scored."""
GOLDEN_RATIO = np.uint64(0x9E3779B97F4A7C15)
"""Separates the hashes of equal rows with different targets."""
FEW_POSITIVES = 30
"""Positive rows below which the metric on validation rows is mostly noise."""


class _HeldOut(NamedTuple):
    """The validation rows if they are given, and the group of each row if rows have one."""

    rows: NDArray[np.int64] | None = None
    groups: Array | None = None


class TableClassifier(ClassifierMixin, NestedRecipe):  # type: ignore[misc]
    """Binary classifier for a table as it is: numbers, categories, booleans, dates, missing cells and ids.

    The kinds of the columns are inferred and listed in `notes_`; gaps are filled, categories one-hot encoded and
    numbers scaled in a scikit-learn pipeline, whose last step is a `MetricClassifier` trained for the metric.

    Parameters
    ----------
    metric : str, Metric, torchmetrics object, scorer or function of scikit-learn
        A name (`"f1"`), an expression over `tp fp fn tn` and columns of the table, `"sklearn.metrics.f1_score"`, or as
        for `MetricClassifier`.
    method : str
        `"auto"`, `"sl-r"`, `"sl-s"`, `"sl-u"`, `"direct"` or a baseline, as for `MetricClassifier`.
    model : {"auto", "readable", "linear", "additive", "tabm", "mlp", "small", "lightgbm"}, torch module or factory
        As for `MetricClassifier`: several that compete, those of them that can be read, or one. A factory gets the
        number of encoded features.
    recipe : Recipe or {"default", "paper"}
        How to train.
    positive : label, optional
        The positive class; inferred by default. If there are more than two classes, all others are negative.
    ignore : collection of str
        Columns to leave out.
    validation_fraction : float
        Share of the rows kept for choosing checkpoint and threshold.
    time_limit : float, optional
        Seconds after which training is stopped, as Ctrl-C would stop it.
    random_state : int, RandomState or None
        Seed of the split, the weights and the drawn sets; None is 0: the same data gives the same model.
    verbose : bool
        Show a progress bar.
    folds : int, optional
        As for `MetricClassifier`; 1 if rows are split by time.
    column_features : bool
        Whether the columns that the metric needs, such as an amount, are features too.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels; the second is the positive one.
    pipeline_ : Pipeline
        A `Preparation` and a `MetricClassifier`, fitted.
    target_ : Target
        Name and labels of the target.
    data_ : dict
        Numbers of `rows` and `positives`.
    notes_ : list of str
        What was inferred, and which columns were dropped and why.
    metric_columns_ : dict of str to str
        The column of the table that each name in the metric stands for; empty if values were given.

    Examples
    --------
    >>> import pandas as pd
    >>> from metricgrad import Recipe, TableClassifier
    >>> frame = pd.DataFrame({"age": [30, 31, 32, 33, 34] * 20, "churn": ["no", "no", "yes", "no", "yes"] * 20})
    >>> model = TableClassifier("f1", model="linear", recipe=Recipe(warmup=60, rounds=0)).fit(frame, "churn")
    >>> model.notes_[0]
    "target churn: 'yes' is positive (it means yes), 40 of 100 rows, against 'no'"
    """

    classes_: Array
    pipeline_: Pipeline
    target_: Target

    def __init__(
        self,
        metric: Any = "f1",
        method: str = "auto",
        model: Any = "auto",
        recipe: Recipe | str = "default",
        positive: Any = None,
        ignore: Collection[str] = (),
        validation_fraction: float = 0.2,
        time_limit: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
        folds: int | None = None,
        column_features: bool = False,
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
        self.folds = folds
        self.column_features = column_features

    # ---- fitting ---------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        times: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> TableClassifier:
        """Train on a table.

        Parameters
        ----------
        X : DataFrame
            Columns of any kind.
        y : str or array-like of shape (rows,)
            The target: the name of a column of `X`, or labels. Rows without one are left out.
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
        from metricgrad.tabular.metric_cells import metric_cells, metric_columns  # predicting needs none

        metric, frame = get_metric(self.metric), as_frame(X)
        if metric.task.name not in ("binary", "columns"):
            raise ValueError(
                f"metric: expected one for two classes, such as 'f1', got {metric.name!r}, which is for "
                f"{metric.task.name} targets; MetricClassifier takes it"
            )
        arguments = {"target": y, "weights": sample_weight, "group": groups, "time": times}
        if groups is not None and times is not None:
            raise TableError("time: expected none with groups, since rows are split either by group or by time")
        for argument, given in arguments.items():
            if isinstance(given, str):
                check_column(given, list(frame.columns), argument)
        cells = {argument: _cells(given, frame, argument) for argument, given in arguments.items() if given is not None}
        known = metric_columns(metric.columns, columns, frame)
        labels = [given for given in arguments.values() if isinstance(given, str)]
        own = [] if self.column_features else [each for each in known.values() if isinstance(each, str)]
        features = frame.drop(columns=list(dict.fromkeys([*labels, *own])))
        self.metric_columns_ = {name: each if isinstance(each, str) else "" for name, each in known.items()}
        name = y if isinstance(y, str) else str(getattr(y, "name", None) or "target")
        self.target_, line = infer_target(cells["target"], name, self.positive, features)
        targets = self.target_.classes(cells["target"])
        there = np.flatnonzero(np.isfinite(targets))
        if len(there) < len(frame):  # a copy of all rows only where some are left out
            features, targets = features.iloc[there], targets[there]
        self.notes_: list[str] = []
        self._note(line, *_left_out(len(frame) - len(there)), *_few(targets))
        self.data_ = {"rows": len(targets), "positives": int(targets.sum())}
        kept = {argument: given.iloc[there] for argument, given in cells.items()}
        weights = _weights(kept["weights"]) if "weights" in kept else None
        held_out = self._held_out(kept.get("group"), kept.get("time"))
        if own:
            self._note(f"of the metric, not features: {listed(own)}")
        known_cells = metric_cells(known, metric.groups, frame, there) or None
        given = [features]
        del X, frame, features, cells, kept  # where nobody else holds the table, it is freed as it is encoded
        self._train(metric, given, targets, weights, held_out, known_cells)
        self.classes_ = np.array([self.target_.negative, self.target_.positive])
        self.feature_names_in_ = np.array(self.pipeline_[0].schema_.names, dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        return self

    def _train(
        self,
        metric: Metric,
        given: list[pd.DataFrame],
        targets: Array,
        weights: Array | None,
        held_out: _HeldOut,
        columns: Mapping[str, Any] | None,
    ) -> None:
        """Infer, encode and fit; the table is taken out of the list, so that its memory can be freed on the way."""
        features = given.pop()
        schema = infer_columns(features, self.ignore)
        self._note(*schema.describe())
        features = typed(features, schema).reset_index(drop=True)
        for name, auc in leaking_columns(features, schema.used, targets):
            warnings.warn(
                f"{name!r} alone predicts the target (AUC {auc:.4f}): ignore it if it is filled in later than the "
                "target",
                stacklevel=3,
            )
        count = self._fold_count(metric, targets, held_out)
        validation, groups = held_out.rows, held_out.groups
        if count == 1 and validation is None:
            validation, groups = self._one_split(features, targets, groups), None
        # Fill values and scales are learned from the rows that are trained on.
        trained_on = None if validation is None else np.setdiff1d(np.arange(len(features)), validation)
        preparation = Preparation(schema).fit(features, rows=trained_on)
        check_storable(table_state(stored_name(self.metric), self.target_, preparation, self.metric_columns_))
        model = MetricClassifier(
            metric,
            self.method,
            numbered(self.model, preparation.get_feature_names_out()),
            self.recipe,
            validation_fraction=self.validation_fraction,
            time_limit=self.time_limit,
            random_state=self.random_state,
            verbose=self.verbose,
            folds=count,
        )
        prepared = preparation.transform(features, consume=True)
        model.fit(prepared, targets, sample_weight=weights, validation=validation, groups=groups, columns=columns)
        self.pipeline_ = Pipeline([("preparation", preparation), ("model", model)])
        if competes(self.model):
            from metricgrad.estimators.competition import ranked

            self._note(*ranked(model.results_, metric))

    def _fold_count(self, metric: Metric, targets: Array, held_out: _HeldOut) -> int:
        if held_out.rows is not None:
            if (self.folds or 1) > 1:
                raise TableError(
                    f"folds: expected 1 with times, because the latest rows are held out, got {self.folds}"
                )
            return 1
        from metricgrad.estimators.held_out import fold_count  # loading and predicting need none
        from metricgrad.training.methods import AUTO

        several = competes(self.model) or self.method == AUTO
        return fold_count(self.folds, metric, targets, held_out.groups, several=several)

    def _one_split(self, features: pd.DataFrame, targets: Array, groups: Array | None) -> NDArray[np.int64]:
        """Return the validation rows of one split, by groups or at random."""
        if groups is None:
            return self._random_validation(features, targets)
        try:
            return group_part(groups, targets, seed_of(self.random_state), self.validation_fraction)
        except ValueError as error:
            raise TableError(str(error)) from error

    def _note(self, *lines: str) -> None:
        """Store notes and log them, so that they can be shown before training starts."""
        self.notes_ += lines
        for line in lines:
            LOG.info("%s", line)

    def _random_validation(self, features: pd.DataFrame, targets: Array) -> NDArray[np.int64]:
        """Return the validation rows of a random split; equal rows of a small table are on the same side."""
        seed, share = seed_of(self.random_state), self.validation_fraction
        if len(features) > MAX_MERGE_ROWS:
            return split(targets, seed, test=0.0, validation=share).validation
        cells = pd.util.hash_pandas_object(features, index=False).to_numpy()
        keys = cells + np.unique(targets, return_inverse=True)[1].astype(np.uint64) * GOLDEN_RATIO
        _, first, number = np.unique(keys, return_index=True, return_inverse=True)
        if len(features) > MAX_DUPLICATES * len(first):
            return split(targets, seed, test=0.0, validation=share).validation
        order = np.argsort(first)  # by first occurrence, so that a table without equal rows is split as usual
        chosen = split(targets[first[order]], seed, test=0.0, validation=share).validation
        return np.flatnonzero(np.isin(number, order[chosen]))

    def _held_out(self, groups: pd.Series[Any] | None, times: pd.Series[Any] | None) -> _HeldOut:
        """Return what decides which rows are held out: the latest, or whole groups."""
        if groups is not None:
            if groups.isna().any():
                raise TableError(f"group: expected one for every row, got {groups.isna().sum():,} missing")
            return _HeldOut(groups=pd.factorize(groups)[0])
        if times is None:
            return _HeldOut()
        try:
            return _HeldOut(rows=latest_part(_moments(times), self.validation_fraction))
        except ValueError as error:
            raise TableError(str(error)) from error

    # ---- using -----------------------------------------------------------------------------------------------------

    @property
    def model_(self) -> MetricClassifier:
        """The trained model, on features."""
        model: MetricClassifier = self.pipeline_[-1]
        return model

    def decision_function(self, X: Any, columns: Mapping[str, Any] | None = None) -> Array:
        """Return scores, shifted so that the threshold is zero: `(rows,)`; columns are found by name.

        Parameters
        ----------
        X : DataFrame
            The columns that the model was trained on; others are ignored.
        columns : mapping of str to str or array-like, optional
            As for `fit`, if a rule decides by the columns of the metric; by default those that it was fitted with.

        Returns
        -------
        ndarray of shape (rows,)
        """
        check_is_fitted(self, "pipeline_")
        frame = as_frame(X)
        cells = None
        if self.model_.rule_ is not None:
            cells = self.metric_frame(get_metric(self.metric), frame, np.arange(len(frame)), columns)
        rows = max(1, SCORED_CELLS // self.model_.n_features_in_)
        found = []
        for start in range(0, max(1, len(frame)), rows):
            part = slice(start, start + rows)
            known = None if cells is None else {str(name): cells[name].iloc[part].to_numpy() for name in cells}
            features = self.pipeline_[0].transform(frame[part])
            found.append(np.asarray(self.model_.decision_function(features, known)))
        return np.concatenate(found)

    def predict(self, X: Any, columns: Mapping[str, Any] | None = None) -> Array:
        """Return labels: the positive one where the decision function is at least zero.

        Parameters
        ----------
        X : DataFrame
            As for `decision_function`.
        columns : mapping of str to str or array-like, optional
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (rows,)
        """
        return np.asarray(self.classes_[(self.decision_function(X, columns) >= 0).astype(int)])

    def predict_proba(self, X: Any) -> Array:
        """Return the probabilities of the negative and the positive class, calibrated on held-out rows.

        `predict` does not cut them at 0.5 but where the metric is best.

        Parameters
        ----------
        X : DataFrame
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (rows, 2)
        """
        check_is_fitted(self, "pipeline_")
        frame, rows = as_frame(X), max(1, SCORED_CELLS // self.model_.n_features_in_)
        parts = (frame[start : start + rows] for start in range(0, max(1, len(frame)), rows))
        return np.concatenate([self.model_.predict_proba(self.pipeline_[0].transform(part)) for part in parts])

    def score(
        self, X: Any, y: Any = None, sample_weight: Any = None, columns: Mapping[str, Any] | None = None
    ) -> float:
        """Return the metric in its usual form, negated if lower is better.

        Parameters
        ----------
        X : DataFrame
            As for `decision_function`.
        y : str or array-like of shape (rows,), optional
            Labels; by default the target column of `X`. Rows without one are left out.
        sample_weight : str or array-like, optional
            Row weights: a column, or numbers.
        columns : mapping of str to str or array-like, optional
            As for `fit`; by default the columns that it was fitted with.

        Returns
        -------
        float
        """
        whole = as_frame(X)
        frame, targets, weights = self._labelled(whole, y, sample_weight)
        metric = get_metric(self.metric)
        if metric.columns:
            there = np.flatnonzero(np.isfinite(self._targets(whole, y)))
            targets = self.with_columns(metric, targets, self.metric_frame(metric, whole, there, columns))
        value = float(metric.value(metric(self.decision_function(frame, columns), targets, weights)))
        return value if metric.higher_is_better else -value

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

        known = checked_columns(
            {name: cells[name] for name in metric.columns}, metric, len(targets), self.model_.column_codes_
        )
        return targets if known is None else np.column_stack((targets, known))

    # ---- readable models -------------------------------------------------------------------------------------------

    def explain(self, X: Any = None, y: Any = None, sample_weight: Any = None) -> Explanation:
        """Return what every level of every column adds to the score, of a linear or additive model.

        Parameters
        ----------
        X : DataFrame, optional
            Rows, best those of training: the frame then has a bootstrap band.
        y : str or array-like of shape (rows,), optional
            Labels; by default the target column of `X`.
        sample_weight : str or array-like, optional
            Row weights: a column, or numbers.

        Returns
        -------
        Explanation
            `frame` has a row for every level, `figure(column)` draws one.
        """
        from metricgrad.estimators.explain import Explanation

        return Explanation(self._terms(*self._labelled(X, y, sample_weight)))

    def scorecard(self, X: Any = None, y: Any = None, sample_weight: Any = None, points: int = 20) -> Scorecard:
        """Return integer points for every level of a linear or additive model, in the units of the table.

        Parameters
        ----------
        X, y, sample_weight : optional
            As for `explain`: rows by which the rounding and the threshold are chosen, and the loss of rounding is
            measured, by the true metric. Without them points are rounded to the nearest.
        points : int
            Points of a level at most.

        Returns
        -------
        Scorecard
        """
        from metricgrad.estimators.scorecard import make_scorecard
        from metricgrad.tabular.readable import table_cells

        frame, targets, weights = self._labelled(X, y, sample_weight)
        terms, metric = self._terms(frame, targets, weights, band=False), get_metric(self.metric)
        if frame is None:
            return make_scorecard(terms, metric, points)
        cells, scores = table_cells(frame, self.pipeline_[0]), self.decision_function(frame)
        return make_scorecard(terms, metric, points, cells, targets, weights, scores)

    def _labelled(self, X: Any, y: Any, sample_weight: Any) -> tuple[pd.DataFrame | None, Any, Any]:
        """Return the rows that have a target, targets 0 or 1, and weights; None without rows."""
        check_is_fitted(self, "pipeline_")
        if X is None:
            return None, None, None
        frame = as_frame(X)
        targets = self._targets(frame, y)
        there = np.flatnonzero(np.isfinite(targets))
        weights = None if sample_weight is None else _weights(_cells(sample_weight, frame, "weights").iloc[there])
        return frame.iloc[there], targets[there], weights

    def _targets(self, frame: pd.DataFrame, y: Any) -> Array:
        """Return targets 0 or 1 of all rows, NaN where there is none."""
        name = self.target_.name if y is None else y
        if isinstance(name, str):
            check_column(name, list(frame.columns), "target")
        return self.target_.classes(_cells(name, frame, "target"))

    def _terms(self, frame: pd.DataFrame | None, targets: Any, weights: Any, band: bool = True) -> Terms:
        from metricgrad.tabular.readable import column_terms

        preparation = self.pipeline_[0]
        x = None if frame is None else preparation.transform(frame)
        terms = self.model_._terms(x, targets, weights, preparation.get_feature_names_out(), band)
        return column_terms(terms, preparation)


def stored_name(metric: Any) -> str:
    """Return the name of a metric in a model folder: as given if it is text, else its own name."""
    return metric if isinstance(metric, str) else get_metric(metric).name


def as_frame(X: Any) -> pd.DataFrame:
    """Return a table as a DataFrame with unique column names of type str."""
    frame = X if isinstance(X, pd.DataFrame) else X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(X)
    names = [str(name) for name in frame.columns]
    check_names(names)
    named: pd.DataFrame = frame.set_axis(names, axis=1)
    return named


def _cells(given: Any, frame: pd.DataFrame, argument: str) -> pd.Series[Any]:
    """Return a column by name, or given values, one per row."""
    if isinstance(given, str):
        return frame[given]
    cells: pd.Series[Any] = pd.Series(given).reset_index(drop=True)
    if len(cells) != len(frame):
        raise TableError(f"{argument}: expected one for each of {len(frame):,} rows, got {len(cells):,}")
    return cells


def _weights(cells: pd.Series[Any]) -> Array:
    found = numbers(cells)
    invalid = ~(found >= 0)
    if invalid.any():
        got = cells.iloc[int(np.argmax(invalid))]
        raise TableError(f"weights: expected a number of at least 0 in every row, got {str(got)!r}")
    return found


def _moments(cells: pd.Series[Any]) -> Array:
    """Return times, given as numbers or dates, as numbers."""
    found = numbers(cells)
    if np.isnan(found).any():
        form = "" if pd.api.types.is_datetime64_any_dtype(cells.dtype) else date_format(cells.dropna(), MIN_PARSED)
        found = found if form is None else dates(cells, form)
    if np.isnan(found).any():
        got = cells.iloc[int(np.argmax(np.isnan(found)))]
        raise TableError(f"time: expected a number or a date in every row, got {str(got)!r}")
    return found


def _left_out(rows: int) -> list[str]:
    return [f"left out: {rows:,} rows without a target"] if rows else []


def _few(targets: Array) -> list[str]:
    found = int(targets.sum())
    return [f"few positives ({found}): the metric on validation rows is mostly noise"] if found < FEW_POSITIVES else []
