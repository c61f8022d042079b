"""Methods by name: the paper's three modes of a surrogate, direct search, and the hand-made losses."""

from __future__ import annotations

from torch import nn

from metricgrad.losses.binary import BASELINES
from metricgrad.losses.default import of_labels, proxy_for
from metricgrad.losses.ranking import QUERY_LOSSES
from metricgrad.metrics.registry import Metric
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import Progress
from metricgrad.training.direct import DirectSearch
from metricgrad.training.recipe import Recipe

METHODS = ("sl-r", "sl-s", "sl-u")
"""Universal surrogate that is refined, surrogate from scratch, universal surrogate that is frozen."""
DIRECT = "direct"
"""Search on the true metric, of models that are linear in fixed columns."""
AUTO = "auto"
"""The best of several methods on validation rows."""
BY_STRATEGY = ("weighted", "hand-made", "plug-in", "cost-weighted")
"""Strategies of `"auto"` that can also be asked for; each starts from the usual loss."""

OF_SOLVED = (DIRECT, "weighted")
"""Those that train linear and additive models only by a recipe that solves them on all rows (`Recipe.start`)."""


def make_loss(method: str, metric: Metric, recipe: Recipe, progress: Progress | None = None) -> nn.Module:
    """Build the loss of a method: a baseline, or a surrogate that starts and learns as the paper's modes do."""
    if method == DIRECT:
        return DirectSearch(metric, recipe.form)
    by_hand = {**BASELINES, **QUERY_LOSSES}
    if method == "cross-entropy":
        return proxy_for(metric.task)
    if method in by_hand:
        return of_labels(by_hand[method](), metric.task)
    return SurrogateLoss(
        metric,
        "scratch" if method == "sl-s" else "universal",
        frozen=method == "sl-u",
        form=recipe.form,
        config=None if recipe.surrogate_config == "default" else recipe.surrogate_config,
        learning_rate=recipe.surrogate_rate,
        clip=recipe.clip,
        relational=recipe.relational,
        progress=progress,
    )
