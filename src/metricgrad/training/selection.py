"""The guard: keeps the models that lose least on validation rows, and says whether a learned loss was worth following.

Two models compete: the best one that followed cross-entropy, which is safe, and the best one that followed the loss.
The second wins if it loses less by more than the noise of the validation rows explains.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from metricgrad.losses.default import proxy_name
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.thresholds import best_offsets
from metricgrad.training.data import Rows
from metricgrad.training.recipe import Recipe
from metricgrad.training.resampling import standard_error

CHUNK = 65_536
"""Rows scored at a time where there may be many."""
NAN = float("nan")


def loss_of(metric: Metric, rows: Rows, scores: Tensor) -> float:
    """Return the true loss of rows, the mean over their sets; sets that tell nothing do not count."""
    scores, targets, weights = rows.in_sets(scores)
    losses = metric(scores, targets, weights)
    if rows.members is None:
        return float(losses)
    assert weights is not None
    told = metric.task.informative(targets, weights)
    return float(losses[told].mean()) if bool(told.any()) else 0.0


@dataclass(frozen=True)
class Verdict:
    """Which model was kept, and why.

    Parameters
    ----------
    followed : bool
        Whether it is the one that followed the loss; else it followed the proxy of the task: cross-entropy.
    gain : float
        How much less the best model of the loss loses on the validation rows than the best of the proxy; NaN if one
        of them was never looked at.
    error : float
        Standard error of the gain, by drawing the validation rows anew; NaN if nothing depends on it.
    proxy : str
        What the proxy is called.

    Examples
    --------
    >>> print(Verdict(True, 0.031, 0.012))
    kept the model that followed the metric: +0.0310 on the validation rows, standard error 0.0120
    >>> print(Verdict(False, 0.004, 0.012))
    kept cross-entropy: the metric's model gained +0.0040 on the validation rows, noise (standard error 0.0120)
    """

    followed: bool
    gain: float
    error: float
    proxy: str = "cross-entropy"

    def __str__(self) -> str:
        if self.gain != self.gain:
            return "kept the model that followed the metric" if self.followed else f"kept {self.proxy}"
        if self.followed:
            error = "" if self.error != self.error else f", standard error {self.error:.4f}"
            return f"kept the model that followed the metric: {self.gain:+.4f} on the validation rows{error}"
        if self.gain <= 0:
            return f"kept {self.proxy}: the metric's model gained {self.gain:+.4f} on the validation rows"
        return (
            f"kept {self.proxy}: the metric's model gained {self.gain:+.4f} on the validation rows, noise "
            f"(standard error {self.error:.4f})"
        )


@dataclass
class Best:
    """The model of one course that loses least so far: its loss, its weights, its scores of the validation rows."""

    least: float = float("inf")
    state: dict[str, Tensor] = field(default_factory=dict)
    scores: Tensor | None = None


class Selection:
    """Keeps the best models by a metric on validation rows, and chooses between them.

    Parameters
    ----------
    validation : Rows
        Where models are judged.
    metric : Metric
        By what; at the best threshold of the rows, unless the recipe trains at zero.
    recipe : Recipe
        Says by how many standard errors a learned loss must win.

    Attributes
    ----------
    safe, bold : Best
        Of cross-entropy, and of the loss.
    verdict : Verdict or None
        Which of them was kept, once it is over.
    """

    def __init__(self, validation: Rows, metric: Metric, recipe: Recipe) -> None:
        self.validation = validation
        self.metric, self.decided = (metric if recipe.form == "zero" else metric.best), metric
        self.margin = recipe.margin
        self.safe, self.bold = Best(), Best()
        self.verdict: Verdict | None = None

    def check(self, model: nn.Module, bold: bool, scores: Tensor | None = None) -> tuple[float, bool]:
        """Return the true loss of a model on the validation rows, and whether it is the least of all so far."""
        if scores is None:
            scores = scores_of(model, self.validation.x)
        now = loss_of(self.metric, self.validation, scores)
        before = min(self.safe.least, self.bold.least)
        own = self.bold if bold else self.safe
        if now < own.least:
            own.least, own.state, own.scores = now, deepcopy(model.state_dict()), scores
        return now, now < before

    def choose(self, learned: bool) -> Verdict:
        """Say which model is to be kept: of two losses made by hand the better, a learned one only if it surely is."""
        gain, error = self.safe.least - self.bold.least, NAN
        proxy = proxy_name(self.metric.task)
        if self.bold.scores is None or self.safe.scores is None:
            return Verdict(self.bold.scores is not None, NAN, error, proxy)
        if learned and self.margin and gain > 0:
            error = self._error(self.safe.scores, self.bold.scores)
            return Verdict(gain > self.margin * error, gain, error, proxy)
        return Verdict(gain > 0, gain, error, proxy)

    def _error(self, safe: Tensor, bold: Tensor) -> float:
        """Return the standard error of the gain.

        Of several outputs, the offsets stay those that are best for the rows as they are: to search them anew for every
        resample takes long, and near the best they hardly matter.
        """
        first, y, w = self.validation.in_sets(safe)
        second, *_ = self.validation.in_sets(bold)
        if self.metric is self.decided or not self.metric.task.outputs:
            return standard_error(self.metric, first, second, y, w)
        first, second = (each.double() + best_offsets(self.decided, each, y, w) for each in (first, second))
        return standard_error(self.decided, first, second, y, w)

    def restore(self, model: nn.Module, learned: bool) -> None:
        """Give a model the weights to be kept, if any were looked at."""
        self.verdict = self.choose(learned)
        kept = self.bold if self.verdict.followed else self.safe
        if kept.state:
            model.load_state_dict(kept.state)

    def followed(self, model: nn.Module) -> None:
        """Give a model the best weights of those that followed the loss, if any were looked at, kept or not."""
        if self.bold.state:
            model.load_state_dict(self.bold.state)


@torch.no_grad()
def scores_of(model: nn.Module, x: Tensor) -> Tensor:
    """Score rows in evaluation mode, some at a time where they are many."""
    model.eval()
    return torch.cat([model(part) for part in x.split(CHUNK)]) if x.ndim == 2 else model(x)


@torch.no_grad()
def exact_scores(model: nn.Module, x: Tensor) -> Tensor:
    """Score rows in double, where a row scores the same whatever rows lie beside it: `(..., features)` -> `(...)`."""
    model = deepcopy(model).double().eval()
    rows = x.reshape(-1, x.shape[-1])
    scores = torch.cat([model(part.double()) for part in rows.split(CHUNK)])
    return scores.view(*x.shape[:-1], *scores.shape[1:])
