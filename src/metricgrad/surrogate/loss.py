"""The learned loss for any training loop: `forward` trains the model (Eq. 4), `refine` the surrogate (Eq. 5)."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from metricgrad.metrics.registry import get_metric
from metricgrad.metrics.sets import broadcast_sets
from metricgrad.surrogate.config import SurrogateConfig, renamed_keyword
from metricgrad.surrogate.network import Progress, Surrogate
from metricgrad.surrogate.refining import RefinedSurrogate
from metricgrad.surrogate.start import starting_surrogate

if TYPE_CHECKING:
    from metricgrad.surrogate.small_sets import Seen, Sets

FORMS = ("best", "zero")


class SurrogateLoss(RefinedSurrogate):
    """A smooth, learned approximation of a metric, to call `backward` on.

    For a bundled metric the constructor reads one file and does nothing else. Any other metric gets a universal
    surrogate when first used: it is fitted with progress shown, and cached.

    The loss may be part of a user's module: its parameters require no gradient and never hold one, so that an optimizer
    of `module.parameters()`, weight decay and clipping leave the surrogate to its own Adam inside `refine`.

    Parameters
    ----------
    metric : str, Metric, torchmetrics object, scorer or function of scikit-learn
        The metric to train for, whatever `get_metric` takes; a function of your own as
        `black_box(fn, higher_is_better=...)`.
    start : {"universal", "scratch"}, path or Surrogate
        Where the surrogate starts: fitted to random sets (bundled, or fitted now and cached), from random weights,
        from a safetensors file, or as given.
    frozen : bool
        Never refine (the paper's SL-U).
    form : {"best", "zero"}
        Whether a metric with a threshold is trained at the best threshold of each set (to be chosen afterwards on
        validation rows), or at zero.
    config : SurrogateConfig or {"default", "paper", "attention"}, optional
        How a surrogate from scratch is built; by default `config_for(metric)`. With `"attention"`, for metrics of two
        classes at one threshold that a set chooses itself, its gradient is nearer to that of the metric smoothed
        little; training by it was not better (`docs/fidelity.md`).
    learning_rate : float
        Of the Adam inside `refine`.
    clip : float, optional
        Largest norm of the gradient in a refining step.
    relational : float
        How much the differences between sets count beside the paper's L1 while refining; 0 is the paper.
    progress : callable, optional
        `progress(what, done, total)` while a surrogate is fitted; by default a progress bar on the terminal.
    sync : bool
        With several processes of `torch.distributed`, `refine` on the sets of all ranks, so that the surrogate is the
        same on all of them. Then all must call `refine` together; its metric is called on the first rank.
    gather : bool
        With several processes, let sets span them: the rows of all ranks are one set, and the gradient of its loss
        flows to the rows of each. Then all must call `forward` together too. For `DistributedDataParallel` and others
        that average gradients.
    construction : SurrogateConfig or {"default", "paper"}, optional
        Deprecated name of `config`.

    Attributes
    ----------
    metric : Metric
        The metric in the form trained on. A black box is mostly emulated, so that refining hardly calls it.
    judge : Metric
        The metric to judge validation rows by: the one given, but a black box of labels is called only at thresholds
        that its emulator proposes.
    calls : int
        Calls of a user's function since this loss was made.
    out_of_calls : bool
        Whether refining ended because the other calls of the run are kept for looks at validation rows.
    gap : float
        Running mean of `|true - surrogate|` over refined sets; NaN before the first.
    skipped : int
        Sets left out of refining because a model cannot learn from them, such as those of one class.
    revived : int
        How often a saturated surrogate had to be rescaled.
    probing_calls : int
        Calls of a black box for the cosine between its gradient and that of the surrogate, `known_cosine`.

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
        config: SurrogateConfig | str | None = None,
        learning_rate: float = 1e-3,
        clip: float | None = None,
        relational: float = 0.0,
        progress: Progress | None = None,
        sync: bool = True,
        gather: bool = False,
        construction: SurrogateConfig | str | None = None,
    ) -> None:
        super().__init__(frozen=frozen, learning_rate=learning_rate, clip=clip, relational=relational)
        config = renamed_keyword(construction, config)
        if form not in FORMS:
            raise ValueError(f"form: expected 'best' or 'zero', got {form!r}")
        for name, number in (("learning_rate", learning_rate), ("clip", 1.0 if clip is None else clip)):
            if not isinstance(number, (int, float)) or not number > 0:
                raise ValueError(f"{name}: expected a positive number, got {number!r}")
        if not isinstance(start, (str, Path, Surrogate)):
            raise TypeError(f"start: expected 'universal', 'scratch', a path or a Surrogate, got {start!r}")
        if gather and not sync:
            raise ValueError("gather: expected False with sync=False, got True")
        metric = get_metric(metric)
        self._start_counting(metric)
        if form == "best" and metric.costly and (metric.thresholded or start == "universal"):
            metric = self._emulated(metric, progress)
        self.metric = metric.trained(form)
        self.surrogate = starting_surrogate(self.metric, start, config, progress, self._known)
        if self.surrogate.view.outputs != self.metric.task.outputs:
            raise ValueError(
                f"config: expected a view of {self.metric.task.name} sets, as {self.metric.name!r} needs, "
                f"got {self.surrogate.config.view!r}"
            )
        self.surrogate.eval().requires_grad_(False)
        self.sync, self.gather = sync, gather
        self.skipped = self.probing_calls = 0
        self.known_cosine = math.nan
        self._seen: Seen | None = None  # the sets of the last forward

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the surrogate loss, the mean over sets: `(..., n)` -> scalar (Eq. 4).

        Sets of one class do not count; where there are no others, the loss is 0 and so is its gradient.

        Parameters
        ----------
        scores : Tensor of shape (..., n) or (..., n, c)
            Raw outputs of the model, the rows of a set on the last axis.
        targets : Tensor
            0 and 1 in the shape of the scores, or as the task of the metric has them.
        weights : Tensor of shape (..., n), optional
            How much each row counts; 0 leaves it out.

        Returns
        -------
        Tensor
            A scalar with a gradient.
        """
        joins = self.gather and self._several_ranks
        if not joins and (sets := self._small_with_gradient(scores, targets, weights)) is not None:
            return self._known_loss(scores, targets, weights, sets)
        unweighted = weights is None
        targets, weights = broadcast_sets(scores, targets, weights, self.metric.task)
        if self.training and torch.is_grad_enabled() and not scores.requires_grad:
            raise RuntimeError(
                "scores: expected the output of a model that is being trained, got one without a gradient; was the "
                "model called under torch.no_grad() or detached? (to only evaluate the loss, call .eval() first)"
            )
        if joins:
            from metricgrad.surrogate.distributed import join_rows

            scores, targets, weights = join_rows((scores, targets, weights), self.metric.task.axes)
            unweighted = False  # on every rank
            if (sets := self._small_with_gradient(scores, targets, weights)) is not None:
                return self._known_loss(scores, targets, weights, sets)
        return self._plain_loss(scores, targets, None if unweighted else weights)

    def _small_with_gradient(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Sets | None:
        """Return valid small sets of two classes whose scores, and nothing else, need a gradient."""
        if not torch.is_grad_enabled() or not getattr(scores, "requires_grad", False):
            return None
        return self._small(scores, targets, weights)

    def _known_loss(self, scores: Tensor, targets: Tensor, weights: Tensor | None, sets: Sets) -> Tensor:
        """Return the loss of small sets, whose gradient is computed at once."""
        from metricgrad.surrogate.small_sets import Known, Seen, mean_loss

        refined = self._refined
        value, gradient, judged = mean_loss(self.surrogate, sets)
        if not self.frozen:
            self._seen = Seen.of(self.surrogate, sets, judged)
        gradient = gradient.view(scores.shape)

        def plain(moved: Tensor) -> Tensor:
            if self._refined != refined:
                raise RuntimeError("backward: expected no refine before a second derivative, got a refined surrogate")
            return self._plain_loss(moved, targets, weights)

        loss: Tensor = Known.apply(scores, value, gradient, plain)  # type: ignore[no-untyped-call]
        return loss

    def _plain_loss(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the loss by torch, which knows all derivatives."""
        with torch.autocast(scores.device.type, enabled=False):
            losses = self._judged((scores, targets) if weights is None else (scores, targets, weights))
            weights = torch.ones_like(self.metric.task.rows(scores)) if weights is None else weights
            informative = self.metric.task.informative(targets, weights).to(losses.dtype)
            return (losses * (informative / informative.sum().clamp(min=1))).sum()

    def _judged(self, sets: tuple[Tensor, ...]) -> Tensor:
        """Return the surrogate's losses of sets; `backward` leaves no gradient on its parameters.

        It uses the surrogate that `forward` used, a copy, even if it is refined in between; and detached tensors, even
        if a user set `requires_grad` on all parameters of a module that holds the loss. A frozen surrogate needs no
        copy.
        """
        if self.frozen and not any(parameter.requires_grad for parameter in self.surrogate.parameters()):
            direct: Tensor = self.surrogate(*sets)
            return direct
        state = self.surrogate.state_dict()  # without constants such as thresholds, which nothing changes
        if torch.is_grad_enabled() and not self.frozen:
            state = {name: tensor.clone() for name, tensor in state.items()}
        by_copy: Tensor = torch.func.functional_call(self.surrogate, state, sets, tie_weights=False)
        return by_copy

    def refine(
        self,
        scores: Tensor,
        targets: Tensor,
        weights: Tensor | None = None,
        steps: int = 1,
        judged: Tensor | None = None,
    ) -> float:
        """Fit the surrogate to the true losses of these sets (Eq. 5), `(..., n)`, divided over some steps of Adam.

        The true losses are those of the scores, or of `judged`, where the two differ on purpose: the authors' program
        takes the true loss in evaluation mode and the surrogate loss in training mode. `gap` then counts every step, as
        it does there.

        Parameters
        ----------
        scores, targets, weights : Tensor
            As for `forward`; no gradient of the scores is used.
        steps : int
            Steps of Adam, each on its share of the sets.
        judged : Tensor, optional
            Scores that the true losses are taken of, in the shape of `scores`.

        Returns
        -------
        float
            The mean `|true - surrogate|` of these sets before refining; NaN if every set held one class only.
        """
        if torch.compiler.is_compiling():  # inside a step of a user's that is compiled, this part is left as it is
            plain: float = torch.compiler.disable(self.refine)(scores, targets, weights, steps, judged)
            return plain
        apart = self.frozen or judged is not None or self._several_ranks
        small = None if apart else self._cheap(scores, targets, weights)
        if small is not None and torch.is_grad_enabled() and isinstance(steps, int) and steps > 0:
            return self._refine_small(scores, targets, weights, small, steps)
        targets, weights = broadcast_sets(scores, targets, weights, self.metric.task)
        if judged is not None and judged.shape != scores.shape:
            expected, got = tuple(scores.shape), tuple(judged.shape)
            raise ValueError(f"judged: expected the shape of scores, {expected}, got {got}")
        if not isinstance(steps, int) or steps < 1:
            raise ValueError(f"steps: expected an integer of at least 1, got {steps!r}")
        if self.frozen:
            raise RuntimeError("refine: expected a surrogate that is not frozen, got one made with frozen=True")
        if not torch.is_grad_enabled():
            raise RuntimeError("refine: expected gradients to be enabled, got a call under torch.no_grad()")
        if self._several_ranks:
            return self._refine_together(scores, targets, weights, steps, judged)
        return self._refine(scores, targets, weights, steps, judged)

    def fidelity(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> dict[str, float]:
        """Return gap and Spearman correlation of surrogate and metric on sets kept out of refining, `(..., n)`.

        Parameters
        ----------
        scores, targets, weights : Tensor
            As for `forward`.

        Returns
        -------
        dict of str to float
            `gap`, the mean `|true - surrogate|`; `spearman`, NaN if all sets have the same loss; `spread`, the standard
            deviation of the true losses; `ceiling`, the highest correlation possible where sets have equal losses.
        """
        from metricgrad.surrogate.fidelity import measure_fidelity  # needs scipy, which training does not

        targets, weights = broadcast_sets(scores, targets, weights, self.metric.task)
        kept = self.metric.task.informative(targets, weights)
        scores = scores.detach().to(torch.promote_types(scores.dtype, self.running_gap.dtype))
        with torch.autocast(scores.device.type, enabled=False):
            return measure_fidelity(self.surrogate, self.metric, (scores[kept], targets[kept], weights[kept]))

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the optimiser and of calls of a black box, so that a state dict resumes exactly."""
        state = None if self._optimizer is None else self._optimizer.state_dict()
        known = {"skipped": self.skipped, "revived": self.revived, "link": self.surrogate.config.link}
        known["saturated"], known["to_straighten"] = self._saturated, self._to_straighten
        found = {"optimizer": state, **known}
        return found if self.judge.budget is None else {**found, "black_box": self._black_box_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Restore the state of the optimiser and of calls of a black box."""
        self._optimizer = None
        if self.optimizer and state["optimizer"]:
            # A copy: Adam changes in place what it would share with the loss the state came from.
            self.optimizer.load_state_dict(deepcopy(state["optimizer"]))
        self.skipped, self.revived = state["skipped"], state.get("revived", 0)
        self._saturated, self._to_straighten = state.get("saturated", 0), state.get("to_straighten", False)
        self.surrogate.config = replace(self.surrogate.config, link=state.get("link", self.surrogate.config.link))
        if self.judge.budget is not None and "black_box" in state:
            self._load_black_box(deepcopy(state["black_box"]))
