"""The learned loss for any loop: `forward` is what the model follows (Eq. 4), `refine` keeps it true (Eq. 5)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from metricgrad.metrics.callable import as_metric
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.tasks import BINARY, Task
from metricgrad.surrogate.network import Construction, Surrogate, meta_loss
from metricgrad.surrogate.pretrained import cheap_form, open_surrogate, universal_for
from metricgrad.surrogate.pretraining import Progress, check_losses, construction_for, fidelity
from metricgrad.surrogate.synthetic import Sets

FORMS = ("best", "zero")


class SurrogateLoss(nn.Module):
    """A smooth, learned stand-in for a metric, to call `backward` on.

    It may be part of a user's module: its parameters require no gradient and never hold one, so that an optimizer of
    `module.parameters()`, weight decay and clipping leave the surrogate to its own Adam inside `refine`.

    Parameters
    ----------
    metric : str, Metric, torchmetrics object, scorer or function of scikit-learn
        What the model is judged by; a function of your own as `black_box(fn, higher_is_better=...)`.
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
        The metric in the form trained on; a black box of labels at its best threshold as it was learned from its
        counts, so that refining asks it nothing.
    gap : float
        Running mean of |true - surrogate| over refined sets; NaN before the first.
    skipped : int
        Sets left out of refining because they held one class only, or told nothing else.

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
        for name, number in (("learning_rate", learning_rate), ("clip", 1.0 if clip is None else clip)):
            if not isinstance(number, (int, float)) or not number > 0:
                raise ValueError(f"{name}: expected a positive number, got {number!r}")
        if not isinstance(start, (str, Path, Surrogate)):
            raise TypeError(f"start: expected 'universal', 'scratch', a path or a Surrogate, got {start!r}")
        metric = as_metric(metric)
        self.metric: Metric = (cheap_form(metric) if form == "best" else metric).trained(form)
        self.surrogate = self._started(start, construction, progress)
        if self.surrogate.view.outputs != self.metric.task.outputs:
            raise ValueError(
                f"construction: expected a view of {self.metric.task.name} sets, for {self.metric.name!r} judges such, "
                f"got {self.surrogate.construction.view!r}"
            )
        self.surrogate.eval().requires_grad_(False)
        self.frozen, self.clip, self.relational = frozen, clip, relational
        self.skipped = 0
        self.register_buffer("running_gap", torch.tensor(float("nan")))
        self.optimizer = None if frozen else torch.optim.Adam(self.surrogate.parameters(), learning_rate, fused=True)

    running_gap: Tensor

    def _started(
        self, start: str | Path | Surrogate, construction: Construction | str | None, progress: Progress | None
    ) -> Surrogate:
        if isinstance(start, Surrogate):
            return start
        if start == "universal":
            return universal_for(self.metric, construction, progress)
        if start == "scratch":
            return Surrogate(construction_for(self.metric) if construction in (None, "default") else construction)
        if not Path(start).is_file():
            raise FileNotFoundError(f"start: expected 'universal', 'scratch' or a surrogate file, got {str(start)!r}")
        return open_surrogate(Path(start))

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the surrogate loss, the mean over sets: `(..., n)` -> scalar (Eq. 4).

        Sets of one class do not count; where there are no others, the loss is 0 and so is its gradient.
        """
        targets, weights = spread(scores, targets, weights, self.metric.task)
        if self.training and torch.is_grad_enabled() and not scores.requires_grad:
            raise RuntimeError(
                "scores: expected the output of a model that is being trained, got one without a gradient; was the "
                "model called under torch.no_grad() or detached? (to only look at the loss, call .eval() first)"
            )
        with torch.autocast(scores.device.type, enabled=False):
            losses: Tensor = torch.func.functional_call(self.surrogate, self._snapshot(), (scores, targets, weights))
            told = self.metric.task.informative(targets, weights).to(losses.dtype)
            return (losses * told).sum() / told.sum().clamp(min=1)

    def _snapshot(self) -> dict[str, Tensor]:
        """Return the surrogate's tensors, cut off from autograd; copied where `refine` may change them.

        `backward` then uses the surrogate that `forward` used, even if it was refined in between, and never leaves
        gradients on its parameters, even if a user set `requires_grad` on all parameters of a module that holds it.
        """
        named = (*self.surrogate.named_parameters(), *self.surrogate.named_buffers())
        copied = torch.is_grad_enabled() and not self.frozen
        return {name: tensor.detach().clone() if copied else tensor.detach() for name, tensor in named}

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
        program takes the true loss of evaluation mode and the surrogate loss of training mode. Steps then count one by
        one in `gap`, as they do there.

        Returns
        -------
        float
            The mean |true - surrogate| of these sets before refining; NaN if every set held one class only.
        """
        targets, weights = spread(scores, targets, weights, self.metric.task)
        if judged is not None and judged.shape != scores.shape:
            expected, got = tuple(scores.shape), tuple(judged.shape)
            raise ValueError(f"judged: expected the shape of scores, {expected}, got {got}")
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f"steps: expected a whole number of at least 1, got {steps!r}")
        if self.frozen:
            raise RuntimeError("refine: expected a surrogate that may learn, got one made with frozen=True")
        if not torch.is_grad_enabled():
            raise RuntimeError("refine: expected gradients to be enabled, got a call under torch.no_grad()")
        told = self.metric.task.informative(targets, weights)
        self._count_skipped(told)
        if not bool(told.any()):
            return float("nan")
        sets = Sets(scores.detach()[told], targets[told], weights[told])
        with torch.autocast(scores.device.type, enabled=False):
            true = self.true((scores if judged is None else judged).detach()[told], sets.targets, sets.weights)
            self._stretch(true)
            gaps = self._learn(sets, true, steps)
        whole = torch.cat(gaps).mean()
        for gap in [whole] if judged is None else [gap.mean() for gap in gaps]:
            self.running_gap.copy_(torch.where(self.running_gap.isnan(), gap, 0.9 * self.running_gap + 0.1 * gap))
        return float(whole)

    def _learn(self, sets: Sets, true: Tensor, steps: int) -> list[Tensor]:
        """Step Adam over the parts of some sets, `(k, n)`, and return the gaps of each part before its step."""
        surrogate, gaps = self.surrogate, []
        known = None
        if surrogate.fixed_pool:
            with torch.no_grad():
                known = surrogate.pool(*sets)
        span = surrogate.high - surrogate.low
        with learning(surrogate):
            for part in torch.arange(len(true), device=true.device).chunk(steps):
                smooth = surrogate(*(rows[part] for rows in sets)) if known is None else surrogate.judge(known[part])
                self._step(meta_loss(smooth / span, true[part] / span, self.relational))
                gaps.append((smooth.detach() - true[part]).abs())
        return gaps

    def _step(self, distance: Tensor) -> None:
        """Step Adam down a distance.

        Parameters have gradients only during the step: where the loss is part of a user's module, the user's own
        optimizer and clipping must not see any.
        """
        assert self.optimizer is not None
        learned = list(self.surrogate.parameters())
        try:
            for parameter, gradient in zip(learned, torch.autograd.grad(distance, learned), strict=True):
                parameter.grad = gradient
            if self.clip is not None:
                clip_gradients(self.surrogate, self.clip)
            self.optimizer.step()
        finally:
            for parameter in learned:
                parameter.grad = None

    def true(self, scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
        """Return the true losses, `(k, n)` -> `(k,)`, at least as precise as the surrogate, or say why not."""
        dtype = self.running_gap.dtype
        true = self.metric(scores.to(torch.promote_types(scores.dtype, dtype)), targets, weights)
        sets = scores.shape[: -self.metric.task.axes]
        if true.shape != sets:
            expected, got = tuple(sets), tuple(true.shape)
            raise ValueError(f"metric: expected one loss a set from {self.metric.name!r}, {expected}, got {got}")
        check_losses(self.metric, true)
        return true.to(dtype)

    def _count_skipped(self, told: Tensor) -> None:
        left_out = told.numel() - int(told.sum())
        if left_out and not self.skipped and self.metric.task.classes:
            warnings.warn(
                f"refine: left out {left_out} of {told.numel()} sets that held one class only; use larger or "
                "stratified sets (later ones are only counted, in .skipped)",
                stacklevel=3,
            )
        self.skipped += left_out

    def _stretch(self, true: Tensor) -> None:
        """Stretch the output of a surrogate from scratch over the losses seen, if the metric has no known range."""
        untouched = self.running_gap.isnan() & (self.surrogate.low == 0) & (self.surrogate.high == 1)
        if not self.metric.bounded and bool(untouched):
            low, high = true.min(), true.max()
            self.surrogate.low.copy_(low)
            self.surrogate.high.copy_(torch.where(high > low, high, low + 1))

    def fidelity(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> dict[str, float]:
        """Return gap and Spearman correlation of surrogate and metric on sets kept out of refining, `(..., n)`."""
        targets, weights = spread(scores, targets, weights, self.metric.task)
        told = self.metric.task.informative(targets, weights)
        scores = scores.detach().to(torch.promote_types(scores.dtype, self.running_gap.dtype))
        with torch.autocast(scores.device.type, enabled=False):
            return fidelity(self.surrogate, self.metric, Sets(scores[told], targets[told], weights[told]))

    def train(self, mode: bool = True) -> SurrogateLoss:
        """Set the mode of the loss; its surrogate only judges all the same, but inside `refine`."""
        super().train(mode)
        self.surrogate.eval()
        return self

    @property
    def gap(self) -> float:
        """Running mean of |true - surrogate|."""
        return float(self.running_gap)

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the optimiser, so that a state dict resumes exactly."""
        return {"optimizer": self.optimizer.state_dict() if self.optimizer else None, "skipped": self.skipped}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the state of the optimiser."""
        if self.optimizer and state["optimizer"]:
            # A copy, for Adam would go on changing in place what it shares with the loss the state came from.
            self.optimizer.load_state_dict(deepcopy(state["optimizer"]))
        self.skipped = state["skipped"]

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> SurrogateLoss:
        """Move the state of the optimiser along with the parameters."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self.optimizer:
            self.optimizer.load_state_dict(self.optimizer.state_dict())
        return self


@contextmanager
def learning(surrogate: Surrogate) -> Iterator[None]:
    """Let a surrogate learn; at other times it only judges, with no gradients and no batch statistics of its own."""
    surrogate.train().requires_grad_(True)
    try:
        yield
    finally:
        surrogate.eval().requires_grad_(False)


def clip_gradients(module: nn.Module, norm: float) -> None:
    """Scale gradients down to a norm, exactly: torch adds 1e-6 to it, a tenth of the clip of the paper."""
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    total = nn.utils.get_total_norm(gradients)
    share = norm / total.clamp(min=norm)
    for gradient in gradients:
        gradient.mul_(share)


def spread(scores: Tensor, targets: Tensor, weights: Tensor | None, task: Task = BINARY) -> tuple[Tensor, Tensor]:
    """Return targets and weights in the shape of the scores, or raise an error that names what does not fit."""
    if not isinstance(scores, Tensor) or not isinstance(targets, Tensor):
        raise TypeError(f"scores, targets: expected tensors, got {type(scores).__name__}, {type(targets).__name__}")
    if not scores.is_floating_point() or scores.ndim < task.axes:
        form = "(..., n, c)" if task.outputs else "(..., n)"
        raise ValueError(f"scores: expected real numbers, {form}, got {scores.dtype} of shape {tuple(scores.shape)}")
    if scores.shape[-1] == 1:
        raise ValueError(
            f"scores: expected the rows of a set on the last axis, (..., n), got the shape {tuple(scores.shape)}; "
            "the output of a model with one unit is model(x)[..., 0]"
        )
    targets, rows = task.coded(targets, scores), task.rows(scores)
    weights = torch.ones_like(rows) if weights is None else weights
    columns = targets.shape[-1:] if task.several and not task.outputs else ()
    whole = torch.Size((*scores.shape, *columns))
    for name, tensor, shape in (("targets", targets, whole), ("weights", weights, rows.shape)):
        if tensor.ndim == 0 or tensor.shape != shape[-tensor.ndim :]:
            raise ValueError(f"{name}: expected the shape of scores, {tuple(shape)}, got {tuple(tensor.shape)}")
    # On other devices a look at the values would have the model wait, so that there only `refine` has them checked.
    if targets.device.type == "cpu" and not torch.compiler.is_compiling():
        check_values(targets, weights, task)
    return targets.expand(whole), weights.expand_as(rows)


def check_values(targets: Tensor, weights: Tensor, task: Task = BINARY) -> None:
    """Raise an error if a target is none, or a weight negative or not a number."""
    wrong = task.invalid(targets)
    if bool(wrong.any()):
        raise ValueError(f"targets: expected {task.expected}, got {targets[wrong][0].item()}")
    wrong = ~(weights >= 0)
    if bool(wrong.any()):
        raise ValueError(f"weights: expected numbers of at least 0, got {weights[wrong][0].item()}")
