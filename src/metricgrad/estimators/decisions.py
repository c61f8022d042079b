"""From scores to labels: where a classifier trained for a metric is cut, what it predicts, and how that is judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from metricgrad.estimators.labels import checked_columns, known_labels
from metricgrad.estimators.metric_estimator import Array, MetricEstimator
from metricgrad.metrics.registry import get_metric, metric_for_task
from metricgrad.metrics.tasks import BINARY, TASKS


class LabelEstimator(ClassifierMixin, MetricEstimator):  # type: ignore[misc]
    """An estimator that predicts labels: its scores, less the threshold, decide."""

    classes_: Array
    positive_label_: Any
    threshold_: float | Array
    task_: str

    def decision_function(self, X: Any) -> Array:
        """Return scores, shifted so that the threshold is zero: `(rows,)`, or `(rows, classes)` of more than two.

        Of two classes they are high for the second, as in scikit-learn, whichever is the positive one.
        """
        decision = self._decision(X)
        two = decision.ndim > 1 and len(self.classes_) == 2 and TASKS[self.task_].classes
        if two:
            return np.asarray(decision[:, 1] - decision[:, 0])
        return -decision if self._positive_first else decision

    @property
    def _positive_first(self) -> bool:
        positive = getattr(self, "positive_label_", None)
        return positive is not None and bool(positive == self.classes_[0])

    def _decision(self, X: Any) -> Array:
        """Return scores as the metric takes them, shifted so that the threshold is zero."""
        check_is_fitted(self, "threshold_")
        return np.asarray(self._raw_scores(X).numpy() - self.threshold_)

    def predict(self, X: Any) -> Array:
        """Return the positive class, or 1 for a label, from the threshold on; the highest of more classes."""
        decision = self.decision_function(X)
        if decision.ndim > 1 and self.task_ == "multiclass":
            return np.asarray(self.classes_[decision.argmax(-1)])
        # A score on the threshold belongs to the positive class, whichever side that is.
        found = (decision > 0 if self._positive_first else decision >= 0).astype(int)
        return found if decision.ndim > 1 else np.asarray(self.classes_[found])

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        columns: Mapping[str, ArrayLike] | None = None,
    ) -> float:
        """Return the chosen metric as people know it (F1 0.69), or negated if they want it low, as scorers do."""
        scores = self._decision(X)
        metric = metric_for_task(get_metric(self.metric), self.task_)
        targets = known_labels(y, self.classes_, metric.task, getattr(self, "positive_label_", None))
        known = checked_columns(columns, metric, len(scores))
        targets = targets if known is None else np.column_stack((targets, known))
        weights = None if sample_weight is None else np.asarray(sample_weight, float)
        value = float(metric.value(metric(scores, targets, weights)))
        return value if metric.higher_is_better else -value

    def _facts(self) -> dict[str, str]:
        cuts = ", ".join(f"{cut:.4g}" for cut in np.ravel(self.threshold_)[:8])
        return {"method": self.method, "threshold": cuts}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            task = get_metric(self.metric).task
        except (TypeError, ValueError):  # fit says what is wrong with the metric
            task = BINARY
        tags.classifier_tags.multi_class = task.name == "multiclass"
        tags.classifier_tags.multi_label = task.name == "multilabel"
        tags.target_tags.multi_output = task.name == "multilabel"
        tags.input_tags.sparse = True
        return tags
