"""What the models of this study follow: hand-made losses that the package lacks, and the learned loss with refining.

Each is called as `objective(scores, batch)`, one step of training.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from metricgrad import SurrogateLoss
from metricgrad.losses.binary import AUCM, CrossEntropy, Focal
from metricgrad.losses.pairs import SmoothAveragePrecision
from metricgrad.surrogate.fidelity import spread_of


class Batch(NamedTuple):
    """What a step sees: inputs, targets and weights `(..., n)`, and the training rows that were drawn."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor | None = None
    index: Tensor | None = None


Objective = Callable[[Tensor, Batch], Tensor]


class LibAUCAP(nn.Module):
    """LibAUC's loss of average precision: squared hinge losses of pairs, with running means (Qi et al. 2021, SOAP).

    For a positive row i, `u_all[i]` and `u_pos[i]` are running means of `l(i, j) = max(margin - (s_i - s_j), 0)^2` over
    all rows and over positive rows of the sets it was drawn for. The gradient is that of `-u_pos / u_all`. With
    weights, means over rows are weighted ones: a stratified set then stands for data of another prevalence.

    Parameters
    ----------
    rows : int
        Training rows.
    margin, gamma : float
        Of the hinge; share of the newest value in the running means. The defaults are LibAUC's.
    """

    def __init__(self, rows: int, margin: float = 1.0, gamma: float = 0.9) -> None:
        super().__init__()
        self.margin, self.gamma = margin, gamma
        self.register_buffer("u_all", torch.zeros(rows, 1))
        self.register_buffer("u_pos", torch.zeros(rows, 1))

    u_all: Tensor
    u_pos: Tensor

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None, index: Tensor) -> Tensor:
        """Return a loss of one set, `(n,)`, whose gradient is that of average precision."""
        weights = torch.ones_like(scores) if weights is None else weights
        positive = (targets == 1).to(scores.dtype)
        own = positive.bool()
        loss = (self.margin - (scores[own].unsqueeze(-1) - scores)).relu().square()
        share, rows = weights / weights.sum(), index[own]
        for running, part in ((self.u_all, loss), (self.u_pos, loss * positive)):
            now = (part.detach() * share).sum(-1, keepdim=True)
            running[rows] = (1 - self.gamma) * running[rows] + self.gamma * now
        u_all, u_pos = self.u_all[rows].clamp(min=1e-12), self.u_pos[rows]
        slopes = (u_pos - u_all * positive) / u_all.square()
        return (slopes * loss * share).sum(-1).mean()


def plain(loss: nn.Module) -> Objective:
    """Follow a loss of scores, targets and weights."""
    return lambda scores, batch: loss(scores, batch.targets, batch.weights)


def indexed(loss: nn.Module) -> Objective:
    """Follow a loss that keeps running means of training rows."""
    return lambda scores, batch: loss(scores[0], batch.targets[0], batch.weights[0], batch.index)


class Learned:
    """Follow a surrogate and refine it in every step, on the scores as they are and with some noise added.

    Parameters
    ----------
    loss : SurrogateLoss
        The surrogate.
    copies : int
        Sets that are refined for each set of a step: itself, and the others with noise up to 0.3 of its spread, as the
        default recipe has it.
    anchor : float
        How much cross-entropy is mixed in.
    smear : float
        Noise on the scores that the model follows, in units of their spread.
    seed : int
        Of the noise.
    prefit : int
        Refinings before the first step, for a surrogate that was never fitted.
    """

    def __init__(
        self,
        loss: SurrogateLoss,
        copies: int = 1,
        anchor: float = 0.0,
        smear: float = 0.0,
        seed: int = 0,
        prefit: int = 0,
    ) -> None:
        self.loss, self.copies, self.anchor, self.smear, self.prefit = loss, copies, anchor, smear, prefit
        self.generator = torch.Generator().manual_seed(seed)
        self.cross_entropy = CrossEntropy()

    def __call__(self, scores: Tensor, batch: Batch) -> Tensor:
        """Refine, and return the loss of the model."""
        self.refine(scores.detach(), batch)
        return self.followed(scores, batch)

    def followed(self, scores: Tensor, batch: Batch) -> Tensor:
        """Return the loss of the model, and leave the surrogate as it is."""
        followed = scores
        if self.smear:
            noise = torch.randn(scores.shape, generator=self.generator)
            followed = scores + self.smear * spread_of(scores.detach(), self.loss.metric.task) * noise
        loss: Tensor = self.loss(followed, batch.targets, batch.weights)
        return loss + self.anchor * self.cross_entropy(scores, batch.targets, batch.weights) if self.anchor else loss

    def prepare(self, draw: Callable[[], tuple[Tensor, Batch]]) -> None:
        """Refine on sets as the first model scores them, each with a threshold of its own."""
        for _ in range(self.prefit):
            scores, batch = draw()
            shift = torch.rand(len(scores), 1, generator=self.generator) - 0.5
            self.refine(scores + shift * spread_of(scores, self.loss.metric.task), batch)

    def refine(self, scores: Tensor, batch: Batch) -> None:
        """Refine on a batch, and on noisy copies of it."""
        many = self.copies
        scores = scores.repeat(many, 1)
        share = torch.rand(len(scores), 1, generator=self.generator) * max(0.3, self.smear)
        share[: len(scores) // many] = self.smear
        noise = torch.randn(scores.shape, generator=self.generator)
        scores = scores + share * spread_of(scores, self.loss.metric.task) * noise
        weights = None if batch.weights is None else batch.weights.repeat(many, 1)
        self.loss.refine(scores, batch.targets.repeat(many, 1), weights)


def learned(metric: str, seed: int) -> Learned:
    """Follow the surrogate of a metric, refined as the default recipe does."""
    return Learned(SurrogateLoss(metric, learning_rate=3e-4, relational=0.3), copies=4, seed=seed)


RIVALS: Mapping[str, Callable[[Any, int], Objective]] = {
    "cross-entropy": lambda problem, seed: plain(CrossEntropy()),
    "focal": lambda problem, seed: plain(Focal()),
    "libauc-auc": lambda problem, seed: plain(AUCM()),
    "libauc-ap": lambda problem, seed: indexed(LibAUCAP(len(problem.y))),
    "smooth-ap": lambda problem, seed: plain(SmoothAveragePrecision()),
}
"""Hand-made losses where a set is some rows of one table."""
