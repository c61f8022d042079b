"""How a surrogate is built, as data, and which config belongs to a metric."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from metricgrad.metrics.metric import Metric
from metricgrad.surrogate.views import GRADE_LEVELS, TASK_VIEWS


@dataclass(frozen=True)
class SurrogateConfig:
    """How a surrogate is built, as data.

    Parameters
    ----------
    standardise : {"shift", "scale", "top", "none"}
        How the scores of a set are standardised before g: centred and scaled, only scaled (zero stays zero), measured
        from the highest score on a logarithmic scale, for metrics that depend on the first few rows, or not at all.
        Both classes count the same in centre and scale, so that rare positives do not vanish.
    g : tuple of int
        Widths of a learned g; empty for a fixed g, a soft ROC curve.
    thresholds : int
        Thresholds of the soft ROC curve, if g is fixed.
    h : tuple of int
        Hidden widths of h.
    activation : {"tanh", "gelu"}
        Of g and h.
    batch_norm : bool
        Batch norm after the first layer of g.
    link : {"sigmoid", "linear", "leaky_relu"}
        The output function of h.
    view : str
        How a set is seen, a name in `views.py`: as it is, as one set for each of several outputs, ...
    parts : int
        How many ordered sets the view makes of one.
    attention : bool
        Whether h judges every threshold of a set by itself, thresholds lying where its scores do (`soft_curve.py`), and
        the set is judged by attention over them: for metrics at one threshold, which a set chooses itself.
    """

    standardise: str = "shift"
    g: tuple[int, ...] = ()
    thresholds: int = 64
    h: tuple[int, ...] = (96, 96)
    activation: str = "gelu"
    batch_norm: bool = False
    link: str = "sigmoid"
    view: str = "rows"
    parts: int = 1
    attention: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> SurrogateConfig:
        """Build from the plain data of `as_dict`, of 0.1.0 too, which called thresholds teeth."""
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        if "teeth" in plain:
            plain["thresholds"] = plain.pop("teeth")
        return cls(**plain)


def config_for(metric: Metric) -> SurrogateConfig:
    """Return the config of a metric's surrogate: scores are not centred for a metric that depends on zero.

    For regression there is no ROC curve, so g is learned.
    """
    view, link = metric.view or TASK_VIEWS[metric.task.name], "sigmoid" if metric.bounded else "linear"
    if metric.task.numbers:
        parts = 2 if metric.task.several else 1
        return SurrogateConfig("none", (64, 64), 0, (64,), link=link, view=view, parts=parts)
    parts = {"columns": 1 + len(metric.columns), "ranking": GRADE_LEVELS}.get(metric.task.name, 1)
    thresholds = 32 if metric.task.outputs else 64  # with a set for every output, 32 are enough
    standardise = "scale" if metric.thresholded else "top" if metric.top_rows else "shift"
    return SurrogateConfig(standardise, thresholds=thresholds, link=link, view=view, parts=parts)


CONFIGS = {
    "default": SurrogateConfig(),
    "paper": SurrogateConfig("none", (30, 30), 0, (10, 10), "tanh", True, "leaky_relu"),
    "attention": SurrogateConfig(h=(32, 32), attention=True),
}


def renamed_keyword(
    construction: SurrogateConfig | str | None, config: SurrogateConfig | str | None
) -> SurrogateConfig | str | None:
    """Return the config, also if it was passed by its name in 0.1.0, `construction`."""
    if construction is None:
        return config
    warnings.warn("construction: renamed to config", DeprecationWarning, stacklevel=3)
    return construction
