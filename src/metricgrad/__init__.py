"""Gradients for metrics that have none: models trained directly for F1, average precision, AUC or any black box.

Public names are loaded when first used, so that `import metricgrad` costs nothing and the command answers at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from metricgrad._version import __version__ as __version__

if TYPE_CHECKING:
    from metricgrad import metrics as metrics
    from metricgrad.estimators.classifier import MetricClassifier as MetricClassifier
    from metricgrad.estimators.ranker import MetricRanker as MetricRanker
    from metricgrad.evaluation.comparison import compare as compare
    from metricgrad.evaluation.comparison_result import ComparisonResult as ComparisonResult
    from metricgrad.evaluation.report import write_comparison as write_comparison
    from metricgrad.metrics.callable import black_box as black_box
    from metricgrad.metrics.registry import Metric as Metric
    from metricgrad.metrics.registry import as_metric as as_metric
    from metricgrad.metrics.registry import get_metric as get_metric
    from metricgrad.metrics.thresholds import best_offsets as best_offsets
    from metricgrad.metrics.thresholds import best_threshold as best_threshold
    from metricgrad.paper import datasets as datasets
    from metricgrad.reporting.progress import scalars as scalars
    from metricgrad.surrogate.loss import SurrogateLoss as SurrogateLoss
    from metricgrad.surrogate.network import Surrogate as Surrogate
    from metricgrad.surrogate.pretrained import load_universal as load_universal
    from metricgrad.surrogate.pretraining import fit_universal as fit_universal
    from metricgrad.tabular.persistence import load as load
    from metricgrad.tabular.persistence import save as save
    from metricgrad.tabular.table_classifier import TableClassifier as TableClassifier
    from metricgrad.training.recipe import Recipe as Recipe

__all__ = [
    "ComparisonResult",
    "Metric",
    "MetricClassifier",
    "MetricRanker",
    "Recipe",
    "Surrogate",
    "SurrogateLoss",
    "TableClassifier",
    "__version__",
    "as_metric",
    "best_offsets",
    "best_threshold",
    "black_box",
    "compare",
    "datasets",
    "fit_universal",
    "get_metric",
    "load",
    "load_universal",
    "metrics",
    "save",
    "scalars",
    "write_comparison",
]

_HOMES = {
    "ComparisonResult": "evaluation.comparison_result",
    "Metric": "metrics.registry",
    "MetricClassifier": "estimators.classifier",
    "MetricRanker": "estimators.ranker",
    "Recipe": "training.recipe",
    "Surrogate": "surrogate.network",
    "SurrogateLoss": "surrogate.loss",
    "TableClassifier": "tabular.table_classifier",
    "as_metric": "metrics.registry",
    "best_offsets": "metrics.thresholds",
    "best_threshold": "metrics.thresholds",
    "black_box": "metrics.callable",
    "compare": "evaluation.comparison",
    "fit_universal": "surrogate.pretraining",
    "get_metric": "metrics.registry",
    "load": "tabular.persistence",
    "load_universal": "surrogate.pretrained",
    "save": "tabular.persistence",
    "scalars": "reporting.progress",
    "write_comparison": "evaluation.report",
}
"""The module each public name lives in."""
_MODULES = {"datasets": "paper.datasets", "metrics": "metrics"}
"""Modules that are public under a name of their own."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        globals()[name] = found = getattr(import_module(f"metricgrad.{_HOMES[name]}"), name)
        return found
    if name in _MODULES:
        return import_module(f"metricgrad.{_MODULES[name]}")
    raise AttributeError(f"module 'metricgrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
