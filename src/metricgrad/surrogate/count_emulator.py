"""A black box of labels as a function of its four counts, learned from some calls, so that it need not be asked again.

What a function says of labels depends on nothing but how many rows of each class are called positive, unless it minds
their order or throws dice. Learned as such, it judges a set at every threshold, and rows that weigh differently.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.metrics import binary_formulas as formulas
from metricgrad.metrics.binary_formulas import ratio
from metricgrad.metrics.confusion import Confusion, confusion_curve
from metricgrad.metrics.metric import Metric
from metricgrad.surrogate.synthetic import BroadSets

ASKED = 1_600
"""Calls to learn from."""
CHECKED = 400
"""Calls to see whether it was learned."""
EXPLAINED = 0.9
"""Share of the variance of those that has to be explained: dice leave some of it, an order that matters most."""
SIZE = 400
"""Rows in a set that is asked about; as in the sets of the default recipe."""
KIN = 8
WIDTH = 64
STEPS = 1_500
BATCH = 256
RATE = 5e-3


class LearnedCounts(nn.Module):
    """The loss of confusion counts, as a small network of the rates they make: `(...)` -> `(...)`.

    Parameters
    ----------
    bounded : bool
        Whether losses lie in [0, 1].

    Attributes
    ----------
    explained : Tensor
        Share of the variance of losses it was not fitted to that it explains.
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
        self.network = nn.Sequential(
            nn.Linear(features, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, 1)
        )
        for name, start in (("centre", torch.zeros(features)), ("scale", torch.ones(features))):
            self.register_buffer(name, start)
        for name, number in (("level", 0.0), ("spread", 1.0), ("explained", 0.0)):
            self.register_buffer(name, torch.tensor(number))

    @property
    def learned(self) -> bool:
        """Whether it can stand for the function."""
        return float(self.explained) >= EXPLAINED

    def forward(self, c: Confusion) -> Tensor:
        """Return the loss of counts."""
        losses: Tensor = self.level + self.spread * self.raw(rates(c))
        return losses.clamp(0, 1) if self.bounded else losses

    def raw(self, known: Tensor) -> Tensor:
        """Return standardised losses from rates, `(..., features)` -> `(...)`."""
        raw: Tensor = self.network((known.to(self.centre.dtype) - self.centre) * self.scale)[..., 0]
        return raw


def rates(c: Confusion) -> Tensor:
    """Return what counts say whatever the size of the set, plainly and as logarithms: `(...)` -> `(..., 18)`."""
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


def fit_counts(metric: Metric, seed: int = 0) -> LearnedCounts:
    """Ask a metric of labels about random sets cut somewhere, one call each, and learn what it says from the counts."""
    generator = torch.Generator().manual_seed(seed)
    scores, targets, counts = _cut_somewhere(ASKED + CHECKED, generator)
    losses = metric(scores, targets).float()
    level, spread = losses[:ASKED].mean(), losses[:ASKED].std()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        learned = LearnedCounts(metric.bounded)
    if not float(spread) > 1e-9 * max(float(level.abs()), 1e-9):
        return learned.requires_grad_(False)
    known = rates(counts).float()
    learned.centre.copy_(known[:ASKED].mean(0))
    learned.scale.copy_(1 / known[:ASKED].std(0).clamp(min=1e-3))
    learned.level.copy_(level)
    learned.spread.copy_(spread)
    wanted = (losses - level) / spread
    _follow(learned, known[:ASKED], wanted[:ASKED], generator)
    with torch.no_grad():
        missed = learned.raw(known[ASKED:]) - wanted[ASKED:]
    learned.explained.copy_(1 - missed.square().mean() / wanted[ASKED:].var())
    return learned.requires_grad_(False)


def _cut_somewhere(sets: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Confusion]:
    """Draw random sets, each cut where some number of its positives is found: scores, targets `(sets, n)`, counts."""
    drawn = BroadSets(weighted=False)(sets // KIN, KIN, SIZE, generator)
    scores = drawn.scores.double()
    curve = confusion_curve(scores, drawn.targets)
    wanted = (torch.rand(sets, 1, generator=generator) * (curve.fn[:, :1] + 2)).floor() - 1  # -1 calls nothing positive
    cut = torch.where(wanted < 0, 0, (curve.tp <= wanted).sum(-1, keepdim=True).clamp(max=SIZE))
    counts = Confusion(*(column.gather(-1, cut)[..., 0] for column in curve))
    ranked = scores.sort(-1, descending=True).values
    least = ranked.gather(-1, ((counts.tp + counts.fp).long().unsqueeze(-1) - 1).clamp(min=0))
    nothing = (counts.tp + counts.fp <= 0).unsqueeze(-1)
    return torch.where(nothing, -1.0, scores - least), drawn.targets, counts


def _follow(learned: LearnedCounts, known: Tensor, wanted: Tensor, generator: torch.Generator) -> None:
    optimizer = torch.optim.Adam(learned.network.parameters(), RATE, fused=True)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * (1 + math.cos(math.pi * step / STEPS)) / 2
        rows = torch.randint(len(wanted), (BATCH,), generator=generator)
        optimizer.zero_grad()
        F.l1_loss(learned.raw(known[rows]), wanted[rows]).backward()
        optimizer.step()


def in_counts(metric: Metric, learned: LearnedCounts) -> Metric:
    """Return a metric that says what was learned of another: at no cost, at every threshold, with weights."""
    return replace(
        metric,
        function=partial(formulas.at_zero, counts=learned),
        counts=learned,
        best_function=None,
        takes_weights=True,
        costly=False,
    )
