"""TableClassifier: trains a model for a metric of classes on a table with columns of any kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from metricgrad.estimators.classifier import MetricClassifier
from metricgrad.estimators.competing import competes
from metricgrad.metrics.registry import Metric, get_metric, metric_for_labels, metric_for_task
from metricgrad.tabular.cells import TableError, words
from metricgrad.tabular.schema import as_frame
from metricgrad.tabular.table_model import TableModel
from metricgrad.tabular.target import AnyTarget, ClassTarget, LabelTarget, Target
from metricgrad.training.networks import numbered
from metricgrad.training.recipe import Recipe

if TYPE_CHECKING:
    from metricgrad.estimators.explain import Explanation
    from metricgrad.estimators.scorecard import Scorecard
    from metricgrad.estimators.terms import Terms
    from metricgrad.tabular.fit_rows import FitRows

Array = NDArray[Any]
FEW_POSITIVES = 30
"""Positive rows below which the metric on validation rows is mostly noise."""


class TableClassifier(ClassifierMixin, TableModel):  # type: ignore[misc]
    """Classifier for a table as it is: numbers, categories, booleans, dates, free text, missing cells and ids.

    The metric says what is predicted: two classes (`"f1"`), several (`"macro_f1"`), or several labels a row, one column
    each (`"sample_f1"`).

    The kinds of the columns are inferred and listed in `notes_`; gaps are filled, categories one-hot encoded, words of
    free text hashed and numbers scaled in a scikit-learn pipeline, whose last step is a `MetricClassifier` trained for
    the metric.

    Parameters
    ----------
    metric : str, Metric, torchmetrics object, scorer or function of scikit-learn
        A name (`"f1"`), an expression over `tp fp fn tn` and columns of the table, `"sklearn.metrics.f1_score"`, or as
        for `MetricClassifier`.
    method : str
        `"auto"`, `"sl-r"`, `"sl-s"`, `"sl-u"`, `"direct"`, another strategy or a baseline, as for `MetricClassifier`.
    model : {"auto", "readable", "linear", "additive", "tabm", "mlp", "plain", "small", "lightgbm"}, module or factory
        As for `MetricClassifier`: several that compete, those of them that can be read, or one. A factory gets the
        number of encoded features.
    recipe : Recipe or {"default", "paper"}
        How to train.
    positive : label, optional
        The positive class; inferred by default. If there are more than two classes, all others are negative. Metrics
        of several classes have none.
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
    classes_ : ndarray of shape (2,), (classes,) or (labels,)
        The labels; of two classes, the second is the positive one.
    pipeline_ : Pipeline
        A `Preparation` and a `MetricClassifier`, fitted.
    target_ : Target, ClassTarget or LabelTarget
        Name and labels of the target.
    data_ : dict
        Numbers of `rows` and, of two classes, `positives`.
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
    target_: Target | ClassTarget | LabelTarget
    score = TableModel.score  # not that of the mixin

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

    def _infer_target(
        self, metric: Metric, cells: list[pd.Series[Any]], names: list[str], others: pd.DataFrame
    ) -> tuple[AnyTarget, Metric, list[str]]:
        from metricgrad.tabular.target_inference import infer_classes, infer_labels, infer_target

        if metric.task.name not in ("binary", "columns", "multiclass", "multilabel"):
            what = "TableRegressor" if metric.task.numbers else "TableRanker"
            raise ValueError(
                f"metric: expected one of classes, such as 'f1' or 'macro_f1', got {metric.name!r}, which is for "
                f"{metric.task.name} targets; use {what}"
            )
        if len(cells) > 1:
            metric = metric_for_task(metric, "multilabel")
        elif self.positive is None:
            metric = metric_for_labels(metric, _distinct(cells[0]))
        several = {"multiclass": "several classes", "multilabel": "several labels"}.get(metric.task.name)
        if self.positive is not None and several:
            raise TableError(f"positive: expected none with a metric of {several}, got {self.positive!r}")
        if (len(cells) > 1) != (several == "several labels"):
            wanted = "columns of labels, two at least" if len(cells) == 1 else "one column"
            kind = several or "two classes"
            hint = "" if len(cells) == 1 else "; for several labels choose a metric of labels, such as sample_f1"
            raise TableError(
                f"target: expected {wanted} for {metric.name!r}, a metric of {kind}, got {len(cells)}{hint}"
            )
        if several == "several labels":
            labels, lines = infer_labels(cells, names)
            return labels, metric, lines
        if several:
            classes, line = infer_classes(cells[0], names[0])
            return classes, metric, [line]
        target, line = infer_target(cells[0], names[0], self.positive, others)
        return target, metric, [line, *_few(target.classes(cells[0]))]

    def _strata(self, targets: Array) -> Array:
        return targets if targets.ndim == 1 else super()._strata(targets)

    def _fitted(
        self, metric: Metric, x: Array, names: Array, rows: FitRows, validation: Array | None, folds: int
    ) -> MetricClassifier:
        self.classes_ = classes_of(self.target_)
        if isinstance(self.target_, Target):
            self.data_["positives"] = int(rows.targets.sum())
        model = MetricClassifier(
            metric,
            self.method,
            numbered(self.model, names),
            self.recipe,
            validation_fraction=self.validation_fraction,
            time_limit=self.time_limit,
            random_state=self.random_state,
            verbose=self.verbose,
            folds=folds,
        )
        targets = rows.targets if isinstance(self.target_, Target) else rows.targets.astype(np.int64)
        groups = rows.held_out.groups if validation is None else None
        model.fit(x, targets, sample_weight=rows.weights, validation=validation, groups=groups, columns=rows.columns)
        if competes(self.model):
            from metricgrad.estimators.leaderboard import ranked

            self._note(*ranked(model.results_, metric))
        self._note(*([str(model.bound_)] if model.bound_ else []))
        return model

    # ---- using -----------------------------------------------------------------------------------------------------

    def for_target(self, metric: Metric) -> Metric:
        """Return a metric as it is for the target: the namesake for several classes, or labels."""
        tasks = {"classes": "multiclass", "labels": "multilabel"}
        return metric_for_task(metric, tasks.get(self.target_.kind, ""))

    def decision_function(self, X: Any, columns: Mapping[str, Any] | None = None) -> Array:
        """Return scores, shifted so that the threshold is zero; columns are found by name.

        Parameters
        ----------
        X : DataFrame
            The columns that the model was trained on; others are ignored.
        columns : mapping of str to str or array-like, optional
            As for `fit`, if a rule decides by the columns of the metric; by default those that it was fitted with.

        Returns
        -------
        ndarray of shape (rows,), or (rows, classes) or (rows, labels)
            Of several classes, the highest is predicted.
        """
        return self.judged_scores(as_frame(X), columns)

    def judged_scores(self, frame: pd.DataFrame, columns: Mapping[str, Any] | None = None) -> Array:
        """Return scores as the metric takes them, at least 0 where positive, or highest of several classes."""
        cells = None
        if getattr(self.model_, "rule_", None) is not None:
            cells = self.metric_frame(get_metric(self.metric), frame, np.arange(len(frame)), columns)

        def score(features: Array, part: slice) -> Array:
            known = None if cells is None else {str(name): cells[name].iloc[part].to_numpy() for name in cells}
            return np.asarray(self.model_._decision(features, known))

        return self.in_parts(frame, score)

    def predict(self, X: Any, columns: Mapping[str, Any] | None = None) -> Array:
        """Return labels: the positive one where the decision function is at least zero, the highest of several classes.

        Parameters
        ----------
        X : DataFrame
            As for `decision_function`.
        columns : mapping of str to str or array-like, optional
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (rows,), or (rows, labels)
        """
        return self._labels(self.decision_function(X, columns))

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of every class, or of every label, calibrated on held-out rows.

        `predict` does not cut them at 0.5 but where the metric is best.

        Parameters
        ----------
        X : DataFrame
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (rows, classes) or (rows, labels)
        """
        return self.in_parts(as_frame(X), lambda features, _: self.model_.predict_proba(features))

    def probability_columns(self, frame: pd.DataFrame) -> dict[str, Array]:
        """Return the probability of the positive class, or of each of several classes or labels, by name."""
        p = self.predict_proba(frame)
        if isinstance(self.target_, Target):
            return {"probability": p[:, 1]}
        return {f"probability ({name})": p[:, place] for place, name in enumerate(self.target_.labels)}

    def _labels(self, decision: Array) -> Array:
        if isinstance(self.target_, LabelTarget):
            pairs = zip(self.target_.targets, (decision >= 0).astype(int).T, strict=True)
            return np.column_stack([np.array(target.labels, dtype=object)[found] for target, found in pairs])
        codes = decision.argmax(-1) if decision.ndim > 1 else (decision >= 0).astype(int)
        return np.asarray(self.classes_[codes])

    def prediction_columns(self, frame: pd.DataFrame) -> dict[str, Array]:
        """Return scores and labels; of several classes or labels, a score for each of them."""
        scores = self.judged_scores(frame)
        labels = self._labels(scores)
        if scores.ndim == 1:
            return {"score": scores, "label": labels}
        each = {f"score ({name})": scores[:, place] for place, name in enumerate(self.target_.labels)}
        if isinstance(self.target_, LabelTarget):
            return {f"label ({name})": own for name, own in zip(self.target_.names, labels.T, strict=True)} | each
        return {"label": labels} | each

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

        return Explanation(self._terms(*self._readable_rows(X, y, sample_weight)))

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

        frame, targets, weights = self._readable_rows(X, y, sample_weight)
        terms, metric = self._terms(frame, targets, weights, band=False), get_metric(self.metric)
        if frame is None:
            return make_scorecard(terms, metric, points)
        cells, scores = table_cells(frame, self.pipeline_[0]), self.decision_function(frame)
        return make_scorecard(terms, metric, points, cells, targets, weights, scores)

    def _readable_rows(self, X: Any, y: Any, sample_weight: Any) -> tuple[pd.DataFrame | None, Any, Any]:
        """Return the rows that have a target, targets 0 or 1, and weights; None without rows."""
        if not isinstance(self.target_, Target):
            raise ValueError(f"model: expected one of two classes, got one of {self.target_.kind}: {self.target_.name}")
        if X is None:
            return None, None, None
        frame = as_frame(X)
        there, targets, weights = self.labelled(frame, y, sample_weight)
        return frame.iloc[there], targets, weights

    def _terms(self, frame: pd.DataFrame | None, targets: Any, weights: Any, band: bool = True) -> Terms:
        from metricgrad.tabular.readable import column_terms

        preparation = self.pipeline_[0]
        x = None if frame is None else preparation.transform(frame)
        terms = self.model_._terms(x, targets, weights, preparation.get_feature_names_out(), band)
        return column_terms(terms, preparation)


def classes_of(target: Target | ClassTarget | LabelTarget) -> Array:
    """Return the labels of a target as an array; labels of several types stay as they are."""
    alike = len({type(label) for label in target.labels}) == 1
    return np.array(target.labels, dtype=None if alike else object)


def _distinct(cells: pd.Series[Any]) -> Array:
    found = words(cells)
    return np.unique(found[pd.notna(found)].astype(str))


def _few(targets: Array) -> list[str]:
    found = int(np.nansum(targets))
    return [f"few positives ({found}): the metric on validation rows is mostly noise"] if found < FEW_POSITIVES else []
