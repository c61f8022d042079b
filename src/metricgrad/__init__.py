"""Gradients for metrics that have none: models trained directly for F1, average precision, AUC or any black box.

Public names are loaded when first used, so that `import metricgrad` costs nothing and the command answers at once.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricgrad._version import __version__ as __version__

if TYPE_CHECKING:
    from metricgrad import metrics as metrics
    from metricgrad.estimators.classifier import MetricClassifier as MetricClassifier
    from metricgrad.estimators.explain import Explanation as Explanation
    from metricgrad.estimators.ranker import MetricRanker as MetricRanker
    from metricgrad.estimators.regressor import MetricRegressor as MetricRegressor
    from metricgrad.estimators.scorecard import Scorecard as Scorecard
    from metricgrad.evaluation.comparison import compare as compare
    from metricgrad.evaluation.comparison_result import ComparisonResult as ComparisonResult
    from metricgrad.metrics.callable import black_box as black_box
    from metricgrad.metrics.registry import Metric as Metric
    from metricgrad.metrics.registry import get_metric as get_metric
    from metricgrad.metrics.thresholds import best_threshold as best_threshold
    from metricgrad.surrogate.loss import SurrogateLoss as SurrogateLoss
    from metricgrad.surrogate.pretrained import load_universal as load_universal
    from metricgrad.surrogate.pretraining import fit_universal as fit_universal
    from metricgrad.tabular.persistence import load as load
    from metricgrad.tabular.persistence import save as save
    from metricgrad.tabular.table_classifier import TableClassifier as TableClassifier
    from metricgrad.tabular.table_ranker import TableRanker as TableRanker
    from metricgrad.tabular.table_regressor import TableRegressor as TableRegressor
    from metricgrad.training.additive import additive as additive
    from metricgrad.training.recipe import Recipe as Recipe

__all__ = [
    "ComparisonResult",
    "Explanation",
    "Metric",
    "MetricClassifier",
    "MetricRanker",
    "MetricRegressor",
    "Recipe",
    "Scorecard",
    "SurrogateLoss",
    "TableClassifier",
    "TableRanker",
    "TableRegressor",
    "__version__",
    "additive",
    "best_threshold",
    "black_box",
    "compare",
    "fit_universal",
    "get_metric",
    "load",
    "load_universal",
    "metrics",
    "save",
]

_HOMES = {
    "ComparisonResult": "evaluation.comparison_result",
    "Explanation": "estimators.explain",
    "Metric": "metrics.registry",
    "MetricClassifier": "estimators.classifier",
    "MetricRanker": "estimators.ranker",
    "MetricRegressor": "estimators.regressor",
    "Recipe": "training.recipe",
    "Scorecard": "estimators.scorecard",
    "SurrogateLoss": "surrogate.loss",
    "TableClassifier": "tabular.table_classifier",
    "TableRanker": "tabular.table_ranker",
    "TableRegressor": "tabular.table_regressor",
    "additive": "training.additive",
    "best_threshold": "metrics.thresholds",
    "black_box": "metrics.callable",
    "compare": "evaluation.comparison",
    "fit_universal": "surrogate.pretraining",
    "get_metric": "metrics.registry",
    "load": "tabular.persistence",
    "load_universal": "surrogate.pretrained",
    "save": "tabular.persistence",
}
"""The module each public name lives in."""
_DEPRECATED = {
    "Contest": ("evaluation.comparison_result", "ComparisonResult", "metricgrad.ComparisonResult"),
    "Surrogate": ("surrogate.network", "Surrogate", "metricgrad.surrogate.network.Surrogate"),
    "as_metric": ("metrics.registry", "get_metric", "metricgrad.get_metric, which takes the same"),
    "best_offsets": ("metrics.thresholds", "best_offsets", "metricgrad.metrics.thresholds.best_offsets"),
    "datasets": ("paper", "datasets", "metricgrad.paper.datasets"),
    "scalars": ("reporting.progress", "scalars", "Round.scalars()"),
    "write_contest": ("evaluation.report", "write_comparison", "ComparisonResult.write_page"),
}
"""Names of 0.1.0 that work for one release with a warning: where they are, their names there, and what to use."""


def __getattr__(name: str) -> Any:
    if name == "metrics":
        return import_module("metricgrad.metrics")
    if name in _HOMES:
        globals()[name] = found = getattr(import_module(f"metricgrad.{_HOMES[name]}"), name)
        return found
    if name in _DEPRECATED:
        home, new, use = _DEPRECATED[name]
        warnings.warn(f"metricgrad.{name} is deprecated: use {use}", DeprecationWarning, stacklevel=2)
        if name == "datasets":
            return import_module("metricgrad.paper.datasets")
        return getattr(import_module(f"metricgrad.{home}"), new)
    raise AttributeError(f"module 'metricgrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
