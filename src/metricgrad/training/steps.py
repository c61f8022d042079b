"""The two kinds of steps of Algorithm 1, of the model (Eq. 4) and of the surrogate (Eq. 5), and trust in the second."""

from __future__ import annotations

import math
import warnings
from collections.abc import Generator, Sequence
from functools import partial

from torch import Tensor, nn

from metricgrad.losses.default import proxy_for
from metricgrad.surrogate.adam import Adam
from metricgrad.surrogate.fidelity import cosine_on, trust_on
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.ensemble import scores_in_both_modes
from metricgrad.training.loader import SetLoader
from metricgrad.training.optimizers import OwnOptimizer
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import scores_of

MIN_COSINE = 0.3
"""A cosine below this is a direction not worth following."""
STEPS_BETWEEN_LOOKS = 50
"""Refining steps between looks at trust before the first round."""


class UnfaithfulWarning(UserWarning):
    """A surrogate is followed that does not point where the metric falls."""


# ---- the two kinds of steps ----------------------------------------------------------------------------------------


def objectives(
    losses: Sequence[nn.Module],
    scores: Tensor,
    y: Tensor,
    w: Tensor,
    anchor: float = 0.0,
    several: bool = False,
    proxy: nn.Module | None = None,
) -> list[Tensor]:
    """Return what each member is to lower (Eq. 4): its loss, a surrogate's with some of the proxy mixed in.

    A member that is an ensemble itself has `several` scores a row, on the last axis. Each of them has a hand-made loss
    of its own, in sets of its own, of which the mean counts; a surrogate takes their mean, which the metric will judge.
    """
    values = []
    for loss, own in zip(losses, scores, strict=True):
        mean, each, labels = own, own, (y, w)
        if several:
            mean, each = own.mean(-1), own.movedim(-1, 0)
            labels = (y.expand(len(each), *y.shape), w.expand(len(each), *w.shape))
        learned = isinstance(loss, SurrogateLoss)
        value: Tensor = loss(mean, y, w) if learned else loss(each, *labels)
        if anchor and isinstance(loss, SurrogateLoss):
            value = value + anchor * (proxy or proxy_for(loss.metric.task))(each, *labels)
        values.append(value)
    return values


def set_rate(optimizer: Adam | OwnOptimizer, recipe: Recipe, phase: str, share: float) -> None:
    """Set the learning rate of a step after some share of its phase: constant, or along a cosine to zero."""
    if recipe.schedule == "cosine" or (recipe.schedule == "plateau" and phase == "rounds"):
        optimizer.learning_rate = recipe.learning_rate * (1 + math.cos(math.pi * share)) / 2


def refine(
    model: nn.Module,
    loss: nn.Module,
    loader: SetLoader,
    recipe: Recipe,
    steps: int | None = None,
    stream: str = "refine",
) -> None:
    """Let the surrogate follow the metric (Eq. 5) on the scores of a model that stands still; others are left alone."""
    steps = recipe.surrogate_steps if steps is None else steps
    if not isinstance(loss, SurrogateLoss) or loss.frozen or not steps:
        return
    if recipe.refine_mode == "eval":
        asked = steps * recipe.refine_sets
        loss.refine(*loader.scored(partial(scores_of, model), asked, recipe.noise, stream), steps)
        return
    x, y, w = loader.at_once(steps * recipe.refine_sets, stream)
    batches = x.unflatten(0, (steps, -1)).flatten(1, 2)
    both = recipe.refine_mode == "both"
    scored = scores_in_both_modes(model, batches, both)
    still, live = (scores.unflatten(1, (recipe.refine_sets, -1)).flatten(0, 1) for scores in scored)
    noisy = loader.noisy(live, recipe.noise, stream, w)
    loss.refine(noisy, y, w, steps, judged=still if both else noisy)


def learnable(members: nn.Module, losses: Sequence[nn.Module]) -> list[Tensor]:
    """Return what the optimizer of the members moves: a surrogate has an optimizer of its own."""
    by_hand = [loss for loss in losses if not isinstance(loss, SurrogateLoss)]
    return [*members.parameters(), *(p for loss in by_hand for p in loss.parameters())]


# ---- how far a surrogate can be trusted ----------------------------------------------------------------------------


def faith(model: nn.Module, loss: SurrogateLoss, loader: SetLoader, recipe: Recipe) -> tuple[float, float]:
    """Return the correlation of surrogate and metric on fresh sets of the current model, and the cosine of gradients.

    NaN if they cannot be known: where every set is the same or loses nearly the same.
    """
    scored = loader.fresh(partial(scores_of, model), recipe)
    return (trust_on(loss, *scored), cosine_on(loss, *scored)) if scored else (math.nan, math.nan)


def earn_trust(
    model: nn.Module, loss: SurrogateLoss, loader: SetLoader, recipe: Recipe
) -> Generator[tuple[int, float], None, None]:
    """Refine before the first round until the surrogate can be trusted, or the cap is reached.

    Yields the steps taken so far and the correlation on fresh sets, at first and after every block of steps.
    """

    def trust_now() -> float:
        scored = loader.fresh(partial(scores_of, model), recipe)
        return trust_on(loss, *scored) if scored else math.nan

    trust, taken = trust_now(), 0
    yield taken, trust
    if loss.frozen:
        return
    while trust < recipe.trust and taken < recipe.trust_cap:
        steps = min(STEPS_BETWEEN_LOOKS, recipe.trust_cap - taken)
        refine(model, loss, loader, recipe, steps, "trust")
        taken += steps
        trust = trust_now()
        yield taken, trust
    if trust < recipe.trust:
        warn_unfaithful(loss, f"correlation {trust:.2f} on fresh sets after {taken} steps, below {recipe.trust:.2f}")


def warn_unfaithful(loss: SurrogateLoss, why: str) -> None:
    """Warn that a surrogate does not follow its metric, and say why."""
    what = f"the surrogate of {loss.metric.label} is not faithful yet"
    warnings.warn(f"{what}: {why}; the best model on validation rows is kept", UnfaithfulWarning, stacklevel=4)
