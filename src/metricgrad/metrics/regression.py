"""Metrics of regression: targets are numbers, and so are scores; what is lost is said in `regression_formulas.py`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from metricgrad.metrics import regression_formulas
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.tasks import REGRESSION

spearman = Metric(
    "spearman",
    regression_formulas.spearman_loss,
    "Spearman",
    "Rank correlation of scores and targets; the loss is (1 - rho) / 2.",
    (1, -1),
    task=REGRESSION,
)
concordance = Metric(
    "concordance",
    regression_formulas.concordance_loss,
    "C-index",
    "How often, of two rows, the one of the higher target scores higher.",
    task=REGRESSION,
)


def within(share: float = 0.1) -> Metric:
    """Share of the rows that are missed by no more than a share of their target."""
    try:
        number = float(share)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(share, bool) or not 0 < number <= 10:
        raise ValueError(f"share: expected a number above 0 and at most 10, got {share!r}")
    return Metric(
        f"within({number!r})".replace(".0)", ")"),
        partial(regression_formulas.within_loss, share=number),
        f"within {100 * number:g} %",
        f"Share of the rows missed by no more than {100 * number:g} % of their target.",
        task=REGRESSION,
    )


REGRESSION_METRICS = (spearman, concordance)
REGRESSION_FAMILIES: tuple[Callable[..., Metric], ...] = (within,)
REGRESSION_ALIASES = {"c_index": "concordance", "concordance_index": "concordance"}
