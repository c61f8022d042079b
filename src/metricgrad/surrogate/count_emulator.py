"""An emulator of a black box of labels: a function of the four confusion counts, fitted to some calls.

The value of a function of labels depends only on how many rows of each class are called positive, unless it depends on
their order or on chance. As a function of counts it covers every threshold and weighted rows at no further calls.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.metrics.confusion import Confusion, at_zero, confusion_curve, ratio
from metricgrad.metrics.metric import Metric
from metricgrad.surrogate.network import Progress
from metricgrad.surrogate.synthetic import GROUP_SIZE, BroadSets

CALLS_TO_FIT = 1_600
CALLS_TO_CHECK = 400
MIN_EXPLAINED = 0.9
"""Share of the variance of the checked calls that has to be explained; chance leaves some of it, row order most."""
ROWS_PER_SET = 400
"""As in the sets of the default recipe."""
HIDDEN_WIDTH = 64
FITTING_STEPS = 1_500
BATCH_SIZE = 256
LEARNING_RATE = 5e-3


class CountEmulator(nn.Module):
    """The loss of confusion counts as a small network of their rates: `(...)` -> `(...)`.

    Parameters
    ----------
    bounded : bool
        Whether losses lie in [0, 1].

    Attributes
    ----------
    explained : Tensor
        Share of the variance that it explains of losses it was not fitted to.
    """

    explained: Tensor
    centre: Tensor
    scale: Tensor
    level: Tensor
    spread: Tensor

    def __init__(self, bounded: bool) -> None:
        super().__init__()
        self.bounded = bounded
        features = len(rates(Confusion(*torch.ones(4))))
        width = HIDDEN_WIDTH
        self.network = nn.Sequential(
            nn.Linear(features, width), nn.GELU(), nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)
        )
        for name, start in (("centre", torch.zeros(features)), ("scale", torch.ones(features))):
            self.register_buffer(name, start)
        for name, number in (("level", 0.0), ("spread", 1.0), ("explained", 0.0)):
            self.register_buffer(name, torch.tensor(number))

    @property
    def is_accurate(self) -> bool:
        """Whether it can replace the function."""
        return float(self.explained) >= MIN_EXPLAINED

    def forward(self, c: Confusion) -> Tensor:
        """Return the loss of counts."""
        losses: Tensor = self.level + self.spread * self.raw(rates(c))
        return losses.clamp(0, 1) if self.bounded else losses

    def raw(self, inputs: Tensor) -> Tensor:
        """Return standardised losses from rates, `(..., features)` -> `(...)`."""
        raw: Tensor = self.network((inputs.to(self.centre.dtype) - self.centre) * self.scale)[..., 0]
        return raw


def rates(c: Confusion) -> Tensor:
    """Return rates that do not depend on the size of the set, and logarithms of some: `(...)` -> `(..., 18)`."""
    positives, negatives = c.tp + c.fn, c.fp + c.tn
    rows, called = positives + negatives, c.tp + c.fp
    found, alarmed = ratio(c.tp, positives), ratio(c.fp, negatives)
    precision, share = ratio(c.tp, called), ratio(positives, rows)
    plain = (
        *(found, alarmed, share, ratio(called, rows), precision, ratio(c.tn, c.tn + c.fn)),
        *(ratio(2 * c.tp, 2 * c.tp + c.fp + c.fn), ratio(c.tp, rows), ratio(c.fp, rows)),
        (called <= 0).to(found),
    )
    logarithms = (share, 1 - share, found, 1 - found, alarmed, 1 - alarmed, precision, ratio(called, rows))
    return torch.stack((*plain, *((rate + 1e-3).log() / 3 for rate in logarithms)), -1)


def fit_counts(metric: Metric, seed: int = 0, progress: Progress | None = None) -> CountEmulator:
    """Call a metric of labels on random sets at random thresholds, one call each, and fit an emulator to the losses."""
    generator = torch.Generator().manual_seed(seed)
    scores, targets, counts = _random_cuts(CALLS_TO_FIT + CALLS_TO_CHECK, generator)
    losses = metric(scores, targets).float()
    level, spread = losses[:CALLS_TO_FIT].mean(), losses[:CALLS_TO_FIT].std()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        emulator = CountEmulator(metric.bounded)
    if not float(spread) > 1e-9 * max(float(level.abs()), 1e-9):
        return emulator.requires_grad_(False)
    inputs = rates(counts).float()
    emulator.centre.copy_(inputs[:CALLS_TO_FIT].mean(0))
    emulator.scale.copy_(1 / inputs[:CALLS_TO_FIT].std(0).clamp(min=1e-3))
    emulator.level.copy_(level)
    emulator.spread.copy_(spread)
    wanted = (losses - level) / spread
    _fit(emulator, inputs[:CALLS_TO_FIT], wanted[:CALLS_TO_FIT], generator, progress)
    with torch.no_grad():
        missed = emulator.raw(inputs[CALLS_TO_FIT:]) - wanted[CALLS_TO_FIT:]
    emulator.explained.copy_(1 - missed.square().mean() / wanted[CALLS_TO_FIT:].var())
    return emulator.requires_grad_(False)


def _random_cuts(sets: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Confusion]:
    """Draw random sets, cut at a random number of true positives: scores, targets `(sets, n)`, counts."""
    drawn = BroadSets(weighted=False)(sets // GROUP_SIZE, GROUP_SIZE, ROWS_PER_SET, generator)
    scores = drawn.scores.double()
    curve = confusion_curve(scores, drawn.targets)
    # -1: nothing is called positive
    wanted = (torch.rand(sets, 1, generator=generator) * (curve.fn[:, :1] + 2)).floor() - 1
    cut = torch.where(wanted < 0, 0, (curve.tp <= wanted).sum(-1, keepdim=True).clamp(max=ROWS_PER_SET))
    counts = Confusion(*(column.gather(-1, cut)[..., 0] for column in curve))
    ranked = scores.sort(-1, descending=True).values
    least = ranked.gather(-1, ((counts.tp + counts.fp).long().unsqueeze(-1) - 1).clamp(min=0))
    nothing = (counts.tp + counts.fp <= 0).unsqueeze(-1)
    return torch.where(nothing, -1.0, scores - least), drawn.targets, counts


def _fit(
    emulator: CountEmulator,
    inputs: Tensor,
    wanted: Tensor,
    generator: torch.Generator,
    progress: Progress | None,
) -> None:
    optimizer = torch.optim.Adam(emulator.network.parameters(), LEARNING_RATE, fused=True)
    for step in range(FITTING_STEPS):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 + math.cos(math.pi * step / FITTING_STEPS)) / 2
        rows = torch.randint(len(wanted), (BATCH_SIZE,), generator=generator)
        optimizer.zero_grad()
        F.l1_loss(emulator.raw(inputs[rows]), wanted[rows]).backward()
        optimizer.step()
        if progress and step % 50 == 49:
            progress("fitting the metric's counts", step + 1, FITTING_STEPS)


def emulated(metric: Metric, emulator: CountEmulator) -> Metric:
    """Return a metric with its function replaced by an emulator: no calls, every threshold, with weights."""
    return replace(
        metric,
        function=partial(at_zero, counts=emulator),
        counts=emulator,
        best_function=None,
        takes_weights=True,
        costly=False,
    )
