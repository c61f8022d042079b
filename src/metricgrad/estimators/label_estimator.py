"""What estimators of labels share: decisions, predictions and scores from a threshold, and readable models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names_in, check_is_fitted

from metricgrad.estimators.labels import known_labels
from metricgrad.estimators.metric_estimator import Array, MetricEstimator, scored
from metricgrad.metrics.registry import get_metric, metric_for_task
from metricgrad.metrics.tasks import BINARY, TASKS
from metricgrad.training.data import Rows, Scaler

if TYPE_CHECKING:
    from metricgrad.estimators.explain import Explanation
    from metricgrad.estimators.probabilities import Probabilities
    from metricgrad.estimators.scorecard import Scorecard
    from metricgrad.estimators.terms import Terms


def _is_readable(estimator: LabelEstimator) -> bool:
    network = getattr(estimator, "network_", None)
    return network is not None and network.name in ("linear", "additive") and network.outputs is None


class LabelEstimator(ClassifierMixin, MetricEstimator):  # type: ignore[misc]
    """An estimator that predicts labels: its scores, less the threshold, decide."""

    classes_: Array
    positive_label_: Any
    threshold_: float | Array
    task_: str
    calibration_: Probabilities | None = None

    def decision_function(self, X: Any, columns: Mapping[str, ArrayLike] | None = None) -> Array:
        """Return scores, shifted so that the threshold is zero: `(rows,)`, or `(rows, classes)` of more than two.

        Of two classes they are high for the second, as in scikit-learn, whichever is the positive one.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features)
            Features.
        columns : mapping of str to array-like of shape (rows,), optional
            Those of the metric, if `rule_` decides by them.

        Returns
        -------
        ndarray of shape (rows,) or (rows, classes)
        """
        decision = self._decision(X, columns)
        two = decision.ndim > 1 and len(self.classes_) == 2 and TASKS[self.task_].classes
        if two:
            return np.asarray(decision[:, 1] - decision[:, 0])
        return -decision if self._positive_first else decision

    @property
    def _positive_first(self) -> bool:
        positive = getattr(self, "positive_label_", None)
        return positive is not None and bool(positive == self.classes_[0])

    def _decision(self, X: Any, columns: Mapping[str, ArrayLike] | None = None) -> Array:
        """Return scores as the metric takes them, shifted so that the threshold is zero."""
        check_is_fitted(self, "threshold_")
        scores, rule = self._raw_scores(X).numpy(), getattr(self, "rule_", None)
        if rule is not None:
            from metricgrad.estimators.metric_columns import checked_columns

            metric = get_metric(self.metric)
            known = checked_columns(columns, metric, len(scores), getattr(self, "column_codes_", None))
            assert known is not None
            scores = rule.apply(scores, dict(zip(metric.columns, known.T, strict=True)))
        return np.asarray(scores - self.threshold_)

    def predict(self, X: Any, columns: Mapping[str, ArrayLike] | None = None) -> Array:
        """Return the positive class, or 1 for a label, from the threshold on; the highest of more classes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features)
            Features.
        columns : mapping of str to array-like of shape (rows,), optional
            As for `decision_function`.

        Returns
        -------
        ndarray of shape (rows,) or (rows, labels)
        """
        decision = self.decision_function(X, columns)
        if decision.ndim > 1 and self.task_ == "multiclass":
            return np.asarray(self.classes_[decision.argmax(-1)])
        # A score on the threshold belongs to the positive class, whichever side that is.
        found = (decision > 0 if self._positive_first else decision >= 0).astype(int)
        return found if decision.ndim > 1 else np.asarray(self.classes_[found])

    def predict_proba(self, X: Any) -> Array:
        """Return the probability of every class, or of every label, calibrated on held-out rows (`calibration_`).

        Probabilities of two classes rank rows as the scores of the model do. `predict` does not cut them at 0.5, nor
        take the highest, but decides where the metric is best: of F1 that is often far below 0.5. Where a rule decides
        (`rule_`), they are those of the classes and know nothing of the columns.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features)
            Features.

        Returns
        -------
        ndarray of shape (rows, classes) or (rows, labels)
            In the order of `classes_`; those of classes sum to one in every row.
        """
        check_is_fitted(self, "threshold_")
        if self.calibration_ is None:
            raise ValueError("predict_proba: expected a model that was calibrated, got one of an older version")
        found = self.calibration_.of(self._raw_scores(X).numpy())
        return found[:, ::-1] if self._positive_first else found

    def predict_log_proba(self, X: Any) -> Array:
        """Return the logarithm of `predict_proba`.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features)
            Features.

        Returns
        -------
        ndarray of shape (rows, classes) or (rows, labels)
        """
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.predict_proba(X)))

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        columns: Mapping[str, ArrayLike] | None = None,
    ) -> float:
        """Return the metric in its usual form (F1 0.69), negated if lower is better, as scorers do.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features)
            Features.
        y : array-like of shape (rows,) or (rows, labels)
            Labels.
        sample_weight : array-like of shape (rows,), optional
            How much each row counts.
        columns : mapping of str to array-like of shape (rows,), optional
            As for `fit`.

        Returns
        -------
        float
        """
        from metricgrad.estimators.metric_columns import checked_columns  # predicting needs none

        scores = self._decision(X, columns)
        metric = metric_for_task(get_metric(self.metric), self.task_)
        targets = known_labels(y, self.classes_, metric.task, getattr(self, "positive_label_", None))
        known = checked_columns(columns, metric, len(scores), getattr(self, "column_codes_", None))
        return scored(metric, scores, targets, sample_weight, known)

    # ---- readable models -------------------------------------------------------------------------------------------

    def explain(self, X: Any = None, y: Any = None, sample_weight: ArrayLike | None = None) -> Explanation:
        """Return what every level of every feature adds to the score, of a linear or additive model of two classes.

        Parameters
        ----------
        X, y, sample_weight : array-like, optional
            Rows, best those of training: the frame then has a bootstrap band, and of a linear model the share of each
            level.

        Returns
        -------
        Explanation
            `frame` has a row for every level, `figure(feature)` draws one.
        """
        from metricgrad.estimators.explain import Explanation

        return Explanation(self._terms(X, y, sample_weight))

    def scorecard(
        self, X: Any = None, y: Any = None, sample_weight: ArrayLike | None = None, points: int = 20
    ) -> Scorecard:
        """Return integer points for every level of a linear or additive model of two classes.

        Parameters
        ----------
        X, y, sample_weight : array-like, optional
            Rows by which the rounding and the threshold are chosen, and the loss of rounding is measured, by the true
            metric. Without them points are rounded to the nearest.
        points : int
            Points of a level at most.

        Returns
        -------
        Scorecard
        """
        from metricgrad.estimators.scorecard import make_scorecard

        terms, metric = self._terms(X, y, sample_weight, band=False), get_metric(self.metric)
        if X is None or y is None:
            return make_scorecard(terms, metric, points)
        scores, checked = self._decision(X), self._checked(X, reset=False)
        dense = np.asarray(checked.toarray() if hasattr(checked, "toarray") else checked, float)
        cells = dict(zip(self._names(), dense.T, strict=True))
        targets = known_labels(y, self.classes_, metric.task, getattr(self, "positive_label_", None))
        weights = None if sample_weight is None else np.asarray(sample_weight, float)
        return make_scorecard(terms, metric, points, cells, np.asarray(targets, float), weights, scores)

    @available_if(_is_readable)  # type: ignore[untyped-decorator]
    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> Array:
        """Return the names of the terms that add up to the score of a linear or additive model of two classes.

        Parameters
        ----------
        input_features : array-like of str, optional
            Names of the features, by default those of training, or `x0`, `x1` ...

        Returns
        -------
        ndarray of shape (terms,)
            Features, and pairs of them if the model has interactions.
        """
        names = None if input_features is None else _check_feature_names_in(self, input_features)
        return np.array([term.feature for term in self._terms(names=names).each], dtype=object)

    def _names(self) -> list[str]:
        names = getattr(self, "feature_names_in_", None)
        return [f"x{number}" for number in range(self.n_features_in_)] if names is None else list(map(str, names))

    def _terms(
        self, X: Any = None, y: Any = None, sample_weight: Any = None, names: Any = None, band: bool = True
    ) -> Terms:
        """Return the terms of the model, with a band if rows are given."""
        from metricgrad.estimators.terms import terms_of

        check_is_fitted(self, "threshold_")
        rows = None
        if X is not None and y is not None:
            targets = known_labels(
                y, self.classes_, get_metric(self.metric).task, getattr(self, "positive_label_", None)
            )
            x = torch.from_numpy(Scaler(self.centre_, self.scale_).transform(self._checked(X, reset=False)))
            weights = None if sample_weight is None else torch.as_tensor(np.asarray(sample_weight, float))
            rows = Rows(x, torch.as_tensor(np.asarray(targets, float)), weights)
        return terms_of(self, self._names() if names is None else list(names), rows, band)

    def _facts(self) -> dict[str, str]:
        cuts = ", ".join(f"{cut:.4g}" for cut in np.ravel(self.threshold_)[:8])
        calls = getattr(self, "calls_", 0)
        counted = {"calls of the metric": f"{calls:,}"} if calls else {}
        results = getattr(self, "results_", [])
        chosen = {"model": f"{results[0]['model']}, the best of {len(results)}"} if len(results) > 1 else {}
        known = {} if self.calibration_ is None else {"probabilities": str(self.calibration_)}
        return {"method": self.method, **chosen, "threshold": cuts, **known, **counted}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            task = get_metric(self.metric).task
        except (TypeError, ValueError):  # fit says what is wrong with the metric
            task = BINARY
        tags.classifier_tags.multi_class = task.name == "multiclass"
        tags.classifier_tags.multi_label = task.name == "multilabel"
        tags.target_tags.multi_output = task.name == "multilabel"
        return tags
