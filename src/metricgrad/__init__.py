"""Gradients for metrics that have none: models trained directly for F1, average precision, AUC or any black box.

Public names are loaded when first used, so that `import metricgrad` costs nothing and the command answers at once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from metricgrad._version import __version__ as __version__

if TYPE_CHECKING:
    from metricgrad import datasets as datasets
    from metricgrad import metrics as metrics
    from metricgrad.black_box import as_metric as as_metric
    from metricgrad.black_box import black_box as black_box
    from metricgrad.bundle import load_universal as load_universal
    from metricgrad.compare import compare as compare
    from metricgrad.contest import Contest as Contest
    from metricgrad.contest_page import write_contest as write_contest
    from metricgrad.decision import best_offsets as best_offsets
    from metricgrad.estimator import MetricClassifier as MetricClassifier
    from metricgrad.folder import load as load
    from metricgrad.folder import save as save
    from metricgrad.loss import SurrogateLoss as SurrogateLoss
    from metricgrad.metrics import Metric as Metric
    from metricgrad.metrics import get_metric as get_metric
    from metricgrad.ranker import MetricRanker as MetricRanker
    from metricgrad.recipe import Recipe as Recipe
    from metricgrad.surrogate import Surrogate as Surrogate
    from metricgrad.table_classifier import TableClassifier as TableClassifier
    from metricgrad.threshold import best_threshold as best_threshold
    from metricgrad.tracking import scalars as scalars
    from metricgrad.universal import fit_universal as fit_universal

__all__ = [
    "Contest",
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
    "write_contest",
]

_HOMES = {
    "Contest": "contest",
    "Metric": "metrics",
    "MetricClassifier": "estimator",
    "MetricRanker": "ranker",
    "Recipe": "recipe",
    "Surrogate": "surrogate",
    "SurrogateLoss": "loss",
    "TableClassifier": "table_classifier",
    "as_metric": "black_box",
    "best_offsets": "decision",
    "best_threshold": "threshold",
    "black_box": "black_box",
    "compare": "compare",
    "fit_universal": "universal",
    "get_metric": "metrics",
    "load": "folder",
    "load_universal": "bundle",
    "save": "folder",
    "scalars": "tracking",
    "write_contest": "contest_page",
}
"""The module each public name lives in."""


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        globals()[name] = found = getattr(import_module(f"metricgrad.{_HOMES[name]}"), name)
        return found
    if name in __all__:
        return import_module(f"metricgrad.{name}")
    raise AttributeError(f"module 'metricgrad' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps a public name from being covered by the module of the same name: Python would set it when it imports it."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
