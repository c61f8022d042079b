"""The learned loss for any loop: `forward` is what the model follows (Eq. 4), `refine` keeps it true (Eq. 5)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metricgrad.black_box import as_metric
from metricgrad.bundle import open_surrogate, universal_for
from metricgrad.metrics import Metric
from metricgrad.sampling import Sets
from metricgrad.surrogate import Construction, Surrogate, meta_loss
from metricgrad.universal import Progress, construction_for, fidelity

FORMS = ("best", "zero")


class SurrogateLoss(nn.Module):
    """A smooth, learned stand-in for a metric, to call `backward` on.

    Parameters
    ----------
    metric : str, Metric, torchmetrics object or callable
        What the model is judged by.
    start : {"universal", "scratch"}, path or Surrogate
        Where the surrogate starts: fitted to random sets (bundled, or fitted now and cached for a black box), from
        random weights, from a safetensors file, or as given.
    frozen : bool
        Never refine (the paper's SL-U).
    form : {"best", "zero"}
        Whether a metric with a threshold is trained at the best threshold of each set (to be chosen afterwards on
        validation rows), or at zero.
    construction : Construction or {"default", "paper"}, optional
        How a surrogate from scratch is built; by default as suits the metric.
    learning_rate : float
        Of the Adam inside `refine`.
    clip : float, optional
        Largest norm of the gradient in a refining step.
    relational : float
        How much the differences between sets count beside the paper's L1 while refining; 0 is the paper.
    progress : callable, optional
        `progress(what, done, total)` while a black box gets its universal surrogate.

    Attributes
    ----------
    metric : Metric
        The metric in the form trained on.
    gap : float
        Running mean of |true - surrogate| over refined sets; NaN before the first.
    skipped : int
        Sets left out of refining because they held one class only.

    Examples
    --------
    >>> model = torch.nn.Linear(5, 1)
    >>> loss = SurrogateLoss("average_precision")
    >>> x, y = torch.randn(4, 200, 5), (torch.rand(4, 200) < 0.2).float()
    >>> gap = loss.refine(model(x)[..., 0], y)
    >>> loss(model(x)[..., 0], y).backward()
    """

    def __init__(
        self,
        metric: Any,
        start: str | Path | Surrogate = "universal",
        *,
        frozen: bool = False,
        form: str = "best",
        construction: Construction | str | None = None,
        learning_rate: float = 1e-3,
        clip: float | None = None,
        relational: float = 0.0,
        progress: Progress | None = None,
    ) -> None:
        super().__init__()
        if form not in FORMS:
            raise ValueError(f"form: expected 'best' or 'zero', got {form!r}")
        if not learning_rate > 0:
            raise ValueError(f"learning_rate: expected a positive number, got {learning_rate!r}")
        metric = as_metric(metric)
        self.metric: Metric = metric.best if form == "best" else metric
        self.surrogate = self._started(start, construction, progress)
        self.frozen, self.clip, self.relational = frozen, clip, relational
        self.skipped = 0
        self.register_buffer("running_gap", torch.tensor(float("nan")))
        for parameter in self.surrogate.parameters():
            parameter.requires_grad_(not frozen)
        self.optimizer = None if frozen else torch.optim.Adam(self.surrogate.parameters(), learning_rate)

    running_gap: Tensor

    def _started(
        self, start: str | Path | Surrogate, construction: Construction | str | None, progress: Progress | None
    ) -> Surrogate:
        if isinstance(start, Surrogate):
            return start
        if start == "universal":
            return universal_for(self.metric, construction, progress)
        if start == "scratch":
            return Surrogate(construction_for(self.metric) if construction is None else construction)
        return open_surrogate(Path(start))

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the surrogate loss, the mean over sets: `(..., n)` -> scalar (Eq. 4). One-class sets do not count."""
        check_shapes(scores, targets, weights)
        if self.training and torch.is_grad_enabled() and not scores.requires_grad:
            raise RuntimeError(
                "scores: expected the output of a model that is being trained, got one without a gradient; was the "
                "model called under torch.no_grad() or detached? (to only look at the loss, call .eval() first)"
            )
        with torch.autocast(scores.device.type, enabled=False), self._judging():
            losses: Tensor = self.surrogate(scores, targets, weights)
            told = two_classes(targets, weights).to(losses.dtype)
            return (losses * told).sum() / told.sum().clamp(min=1)

    def refine(
        self,
        scores: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        steps: int = 1,
        judged: Tensor | None = None,
    ) -> float:
        """Make the surrogate truer on these sets (Eq. 5): `(..., n)`, shared out over some steps of Adam.

        The metric judges the scores themselves, or those in `judged`, where the two differ on purpose: the authors'
        program takes the true loss of evaluation mode and the surrogate loss of training mode.

        Returns
        -------
        float
            The mean |true - surrogate| of these sets before refining; NaN if every set held one class only.
        """
        check_shapes(scores, targets, weights)
        if not torch.is_grad_enabled():
            raise RuntimeError("refine: expected gradients to be enabled, got a call under torch.no_grad()")
        if self.frozen:
            raise RuntimeError("refine: expected a surrogate that may learn, got one made with frozen=True")
        judged = scores if judged is None else judged
        judged, _, _ = self._told_sets(judged.detach(), targets, weights, count=False)
        scores, targets, weights = self._told_sets(scores.detach(), targets, weights)
        if not len(scores):
            return float("nan")
        with torch.autocast(scores.device.type, enabled=False):
            true = self.metric(judged, targets, weights).to(self.running_gap.dtype)
            self._measure(true)
            known = None
            if self.surrogate.fixed_pool:
                with torch.no_grad():
                    known = self.surrogate.pool(scores, targets, weights)
            gaps = [
                self._step(true[part], known, (scores, targets, weights), part)
                for part in torch.arange(len(true), device=true.device).chunk(steps)
            ]
        gap = torch.cat(gaps).mean()
        self.running_gap.copy_(torch.where(self.running_gap.isnan(), gap, 0.9 * self.running_gap + 0.1 * gap))
        return float(gap)

    def _step(self, true: Tensor, known: Tensor | None, sets: tuple[Tensor, ...], part: Tensor) -> Tensor:
        assert self.optimizer is not None
        if known is not None:
            smooth = self.surrogate.judge(known[part])
        else:
            smooth = self.surrogate(*(tensor[part] for tensor in sets))
        span = self.surrogate.high - self.surrogate.low
        self.optimizer.zero_grad()
        meta_loss(smooth / span, true / span, self.relational).backward()
        if self.clip is not None:
            nn.utils.clip_grad_norm_(self.surrogate.parameters(), self.clip)
        self.optimizer.step()
        return (smooth.detach() - true).abs()

    def _told_sets(
        self, scores: Tensor, targets: Tensor, weights: Tensor | None, count: bool = True
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Flatten the leading axes and leave out sets of one class, which tell a ranking nothing."""
        weights = torch.ones_like(scores) if weights is None else weights.expand_as(scores)
        flat = [tensor.expand_as(scores).reshape(-1, scores.shape[-1]) for tensor in (scores, targets, weights)]
        told = two_classes(flat[1], flat[2])
        left_out = len(told) - int(told.sum())
        if left_out:
            if count and not self.skipped:
                warnings.warn(
                    f"refine: left out {left_out} of {len(told)} sets that held one class only; use larger or "
                    "stratified sets (later ones are only counted, in .skipped)",
                    stacklevel=3,
                )
            self.skipped += left_out if count else 0
            flat = [tensor[told] for tensor in flat]
        return flat[0], flat[1], flat[2]

    def _measure(self, true: Tensor) -> None:
        """Stretch the output of a surrogate from scratch over the losses seen, if the metric has no known range."""
        untouched = self.running_gap.isnan() & (self.surrogate.low == 0) & (self.surrogate.high == 1)
        if not self.metric.bounded and bool(untouched):
            low, high = true.min(), true.max()
            self.surrogate.low.copy_(low)
            self.surrogate.high.copy_(torch.where(high > low, high, low + 1))

    def fidelity(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> dict[str, float]:
        """Return gap and Spearman correlation of surrogate and metric on sets kept out of refining, `(k, n)`."""
        with self._judging():
            return fidelity(
                self.surrogate, self.metric, Sets(*self._told_sets(scores.detach(), targets, weights, count=False))
            )

    @property
    def gap(self) -> float:
        """Running mean of |true - surrogate|."""
        return float(self.running_gap)

    def _judging(self) -> Judging:
        return Judging(self.surrogate)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the optimiser, so that a state dict resumes exactly."""
        return {"optimizer": self.optimizer.state_dict() if self.optimizer else None, "skipped": self.skipped}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the state of the optimiser."""
        if self.optimizer and state["optimizer"]:
            self.optimizer.load_state_dict(state["optimizer"])
        self.skipped = state["skipped"]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SurrogateLoss:
        """Move the state of the optimiser along with the parameters."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.optimizer:
            self.optimizer.load_state_dict(self.optimizer.state_dict())
        return self


class Judging:
    """While a surrogate judges, its batch norm uses running statistics; while it learns, those of the sets."""

    def __init__(self, surrogate: Surrogate) -> None:
        self.surrogate = surrogate

    def __enter__(self) -> None:
        self.before = self.surrogate.training
        if self.surrogate.construction.batch_norm:
            self.surrogate.train(False)

    def __exit__(self, *_: object) -> None:
        if self.surrogate.construction.batch_norm:
            self.surrogate.train(self.before)


def check_shapes(scores: Tensor, targets: Tensor, weights: Tensor | None) -> None:
    """Raise an error that names what does not fit, looking at shapes only."""
    if not scores.is_floating_point() or scores.ndim == 0:
        raise ValueError(f"scores: expected real numbers, (..., n), got {scores.dtype} of shape {tuple(scores.shape)}")
    for name, tensor in (("targets", targets), ("weights", weights)):
        if tensor is not None and tensor.shape != scores.shape[-tensor.ndim :]:
            expected, got = tuple(scores.shape), tuple(tensor.shape)
            raise ValueError(f"{name}: expected the shape of scores, {expected}, got {got}")


def two_classes(targets: Tensor, weights: Tensor | None) -> Tensor:
    """Say of every set whether both classes weigh anything in it: `(..., n)` -> `(...)`."""
    present = torch.ones_like(targets, dtype=torch.bool) if weights is None else weights > 0
    positive = targets == 1
    return (present & positive).any(-1) & (present & ~positive).any(-1)
