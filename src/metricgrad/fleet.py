"""A fleet: models of one make trained at once on the same sets, each by a loss of its own.

Their parameters lie side by side in memory, so that a step of all of them is a few large multiplications instead of
many small ones. The mathematics is that of `trainer.train`, run by run; what does not depend on the loss is done once:
the warm-up, the draws and the dropout.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.baselines import CrossEntropy
from metricgrad.loss import SurrogateLoss, two_classes
from metricgrad.metrics import Metric
from metricgrad.model import Scorer, folded
from metricgrad.recipe import Recipe
from metricgrad.surrogate import LearnedMean, meta_loss
from metricgrad.trainer import TRUST_SETS, Draws, Guard, Round, Rows, build_optimizer, due, earn_trust, trust_on

NAN = float("nan")
CELLS = 2**19
"""Numbers a layer may hold while many rows are scored: as many as stay near the processor."""


class Member(NamedTuple):
    """One loss to follow, and the metrics by which its best models are chosen; the model is the same for all."""

    loss: nn.Module
    metrics: tuple[Metric, ...]


class Trained(NamedTuple):
    """The best model by one metric, and what the rounds looked like at each check."""

    model: Scorer
    history: list[Round]


def can_sail(model: Scorer, losses: Sequence[nn.Module], recipe: Recipe) -> bool:
    """Say whether runs can be trained as a fleet.

    Models must be known by name, surrogates of one construction and of bounded metrics. If the model is refined upon
    in training mode, that uses up dropout, so that only those may sail together which all refine, or none.
    """
    surrogates = [loss for loss in losses if isinstance(loss, SurrogateLoss)]
    alike = len({loss.surrogate.construction for loss in surrogates}) <= 1
    bounded = all(loss.metric.bounded for loss in surrogates)
    together = recipe.refine_mode == "eval" or len({_rank(loss) == 0 for loss in losses}) == 1
    return bool(model.name) and alike and bounded and together


def train_fleet(
    model: Scorer, members: Sequence[Member], rows: Rows, recipe: Recipe, *, validation: Rows, seed: int = 0
) -> list[list[Trained]]:
    """Train copies of a model, each by one loss, and return for every member the best model by each of its metrics.

    Parameters
    ----------
    model : Scorer
        The start of every member; a model known by name.
    members : sequence of Member
        The losses, and by which metrics their best models are chosen.
    rows, validation : Rows
        What to train on, and where the best models are chosen.
    recipe : Recipe
        How, for all.
    seed : int
        Of the draws, which are the same for all.
    """
    if not can_sail(model, [member.loss for member in members], recipe):
        raise ValueError(
            "members: expected a model known by name, surrogates of one construction and of bounded metrics, and, "
            f"unless refine_mode is 'eval', all or none of them learning, got the recipe {recipe.name!r}"
        )
    weighted = all(metric.takes_weights for member in members for metric in member.metrics)
    sets = Draws(rows, recipe, seed, weighted)
    chosen = tuple(dict.fromkeys(metric for member in members for metric in member.metrics))
    begun = time.perf_counter()
    first = _Fleet([deepcopy(model)], [Member(CrossEntropy(), chosen)], sets, recipe, validation, begun)
    first.sail("warm-up", recipe.warmup)
    for member in members:
        if isinstance(member.loss, SurrogateLoss):
            earn_trust(first.models[0], member.loss, Draws(rows, recipe, seed, weighted), recipe)
    fleet = _Fleet([deepcopy(first.models[0]) for _ in members], members, sets, recipe, validation, begun)
    fleet.take_over(first)
    fleet.sail("rounds", recipe.rounds * recipe.model_steps)
    return [[keeper.trained() for keeper in keepers] for keepers in fleet.keepers]


# ---- side by side --------------------------------------------------------------------------------------------------


def side_by_side(modules: Sequence[nn.Module]) -> dict[str, Tensor]:
    """Move the tensors of modules of one make into common ones, `(members, ...)`; each keeps its own as a view."""
    common = {}
    for name, _ in (*modules[0].named_parameters(), *modules[0].named_buffers()):
        own = [dict((*module.named_parameters(), *module.named_buffers()))[name] for module in modules]
        common[name] = torch.stack([tensor.detach() for tensor in own])
        for tensor, view in zip(own, common[name], strict=True):
            tensor.data = view
    return common


class Models:
    """Models of one make as one: shared rows `(..., features)` -> scores `(members, ...)`."""

    def __init__(self, models: Sequence[Scorer]) -> None:
        self.size = len(models)
        common = side_by_side(models)
        body = models[0].body
        named = body.named_children() if isinstance(body, nn.Sequential) else [("", body)]
        self.layers = [(layer, _of_layer(common, f"body.{name}".rstrip("."))) for name, layer in named]
        self.learnable = [common[name].requires_grad_() for name, _ in models[0].named_parameters()]
        self.widest = max(own["weight"].shape[1] for layer, own in self.layers if isinstance(layer, nn.Linear))

    def follow(self, x: Tensor) -> Tensor:
        """Score rows in training mode: batch statistics, dropout alike for all members."""
        latent = x.reshape(-1, x.shape[-1]).mT
        for layer, own in self.layers:
            if isinstance(layer, nn.Linear):
                latent = _dense(own["weight"], own["bias"], latent)
            elif isinstance(layer, nn.BatchNorm1d):
                latent = _batch_norm(layer, own, latent)
            elif isinstance(layer, nn.Dropout):
                if layer.p:
                    ones = torch.ones(latent.shape[-1], latent.shape[-2], dtype=latent.dtype)
                    latent = latent * F.dropout(ones, layer.p).mT.contiguous()
            else:
                latent = layer(latent)
        return latent.view(self.size, *x.shape[:-1])

    @torch.no_grad()
    def probe(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Score sets `(sets, n, features)` in evaluation mode and, one after the other, in training mode.

        As if each set were scored in both modes before the next one came: training mode moves the statistics of batch
        norm, by which the next set is judged. Both `(members, sets, n)`.
        """
        sets, n = x.shape[:2]
        masks = self._masks(sets, n, x.dtype)
        still = live = x.reshape(-1, x.shape[-1]).mT
        for number, (layer, own) in enumerate(self.layers):
            if isinstance(layer, nn.Linear):
                still, live = (_dense(own["weight"], own["bias"], latent) for latent in (still, live))
            elif isinstance(layer, nn.BatchNorm1d):
                still, live = _batch_norm_of_sets(layer, own, still, live, sets)
            elif isinstance(layer, nn.Dropout):
                live = live * masks[number] if layer.p else live
            else:
                still, live = layer(still), layer(live)
        shape = (self.size, sets, n)
        return still.view(shape), live.view(shape)

    def _masks(self, sets: int, n: int, dtype: torch.dtype) -> dict[int, Tensor]:
        """Draw the dropout of sets that come one after the other: `(width, sets * n)` for each such layer."""
        places = [i for i, (layer, _) in enumerate(self.layers) if isinstance(layer, nn.Dropout) and layer.p]
        widths = {i: self.layers[i - 1][1]["weight"].shape[1] for i in places}
        drawn: dict[int, list[Tensor]] = {i: [] for i in places}
        for _ in range(sets):
            for i in places:
                ones = torch.ones(n, widths[i], dtype=dtype)
                drawn[i].append(F.dropout(ones, self.layers[i][0].p))  # type: ignore[arg-type]
        return {i: torch.cat(masks).mT.contiguous() for i, masks in drawn.items()}

    def clip(self, norm: float) -> None:
        """Scale the gradients of every member down to a norm."""
        clip_each(self.learnable, norm)

    @torch.no_grad()
    def judge(self, x: Tensor, first: int | None = None) -> Tensor:
        """Score rows by all or the first members in evaluation mode, where batch norm is part of the next layer."""
        layers, slope = folded(self.layers)
        dense = [(weight[:first], bias[:first]) for weight, bias in layers]
        members, parts = len(dense[0][0]), []
        for part in x.reshape(-1, x.shape[-1]).split(max(CELLS // (members * self.widest), 256)):
            latent = part.mT
            for weight, bias in dense[:-1]:
                latent = F.leaky_relu_(_dense(weight, bias, latent), slope)
            parts.append(_dense(*dense[-1], latent)[:, 0])
        return torch.cat(parts, -1).view(members, *x.shape[:-1])


def _of_layer(common: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): tensor for key, tensor in common.items() if key.startswith(f"{name}.")}


def _dense(weight: Tensor, bias: Tensor, latent: Tensor) -> Tensor:
    """Multiply `(members, out, in)` by columns of rows, shared `(in, rows)` or each member's own."""
    if latent.ndim == 2:
        flat = torch.addmm(bias.reshape(-1, 1), weight.flatten(0, 1), latent)
        return flat.view(*weight.shape[:2], -1)
    return torch.baddbmm(bias.unsqueeze(-1), weight, latent)


def _batch_norm(layer: nn.BatchNorm1d, own: Mapping[str, Tensor], latent: Tensor, training: bool = True) -> Tensor:
    """Normalise every channel of every member: `(members, channels, rows)`."""
    if training:
        own["num_batches_tracked"].add_(1)
    means, variances, weight, bias = (own[k].view(-1) for k in ("running_mean", "running_var", "weight", "bias"))
    channels, momentum = latent.reshape(1, -1, latent.shape[-1]), layer.momentum or 0.0
    return F.batch_norm(channels, means, variances, weight, bias, training, momentum, layer.eps).view_as(latent)


def _batch_norm_of_sets(
    layer: nn.BatchNorm1d, own: Mapping[str, Tensor], still: Tensor, live: Tensor, sets: int
) -> tuple[Tensor, Tensor]:
    """Normalise sets that come one after the other in both modes: `(members, channels, sets * n)`."""
    members, channels, rows = live.shape
    n, momentum = rows // sets, layer.momentum or 0.0
    own["num_batches_tracked"].add_(sets)
    weight, bias = own["weight"].unsqueeze(-1), own["bias"].unsqueeze(-1)
    repeated = [t.expand(-1, -1, sets).reshape(-1) for t in (weight, bias)]
    each: Any = torch.native_batch_norm
    out, mean, inverse = each(live.reshape(1, -1, n), *repeated, None, None, True, momentum, layer.eps)
    mean, inverse = (t.view(members, channels, sets) for t in (mean, inverse))
    variance = (inverse**-2 - layer.eps) * (n / (n - 1))
    means = _moved(own["running_mean"], mean, momentum)
    variances = _moved(own["running_var"], variance, momentum)
    scale = weight * (variances + layer.eps).rsqrt()
    shift = bias - means * scale
    judged = torch.addcmul(shift.unsqueeze(-1), still.view(members, channels, sets, n), scale.unsqueeze(-1))
    return judged.view_as(still), out.view_as(live)


def _moved(running: Tensor, seen: Tensor, momentum: float) -> Tensor:
    """Move running statistics by those of sets, `(..., sets)`, and return what they were before each."""
    before = []
    for now in seen.unbind(-1):
        before.append(running.clone())
        running.lerp_(now, momentum)
    return torch.stack(before, -1)


def clip_each(tensors: Sequence[Tensor], norm: float) -> None:
    """Scale the gradients of every member, `(members, ...)` each, down to a norm."""
    gradients = [tensor.grad.flatten(1) for tensor in tensors if tensor.grad is not None]
    total = torch.stack([torch.linalg.vector_norm(g, dim=1) for g in gradients]).norm(dim=0)
    share = norm / total.clamp(min=norm)
    for tensor in tensors:
        if tensor.grad is not None:
            tensor.grad.mul_(share.view(-1, *[1] * (tensor.grad.ndim - 1)))


class Surrogates:
    """Surrogate losses of one construction as one; of scores `(members, sets, n)`, all of the same rows."""

    def __init__(self, losses: Sequence[SurrogateLoss], rate: float) -> None:
        self.losses, self.shape = losses, losses[0].surrogate
        self.common = side_by_side(losses)
        self.moved = [f"surrogate.{name}" for name, _ in self.shape.named_parameters()]
        self.optimizer = None if losses[0].frozen else self._optimizer(rate)

    def _optimizer(self, rate: float) -> torch.optim.Optimizer:
        """Return one optimizer for all; members that have learned before go on, each with its own count of steps."""
        common = {name: self.common[f"surrogate.{name}"] for name, _ in self.shape.named_parameters()}
        for tensor in common.values():
            tensor.grad = torch.zeros_like(tensor)
        if not any(loss.optimizer and loss.optimizer.state for loss in self.losses):
            return torch.optim.Adam([t.requires_grad_() for t in common.values()], rate, fused=True)
        joint = torch.optim.Adam([p for loss in self.losses for p in loss.surrogate.parameters()], rate, fused=True)
        for i, loss in enumerate(self.losses):
            for name, parameter in loss.surrogate.named_parameters():
                gradients = common[name].grad
                assert gradients is not None
                parameter.requires_grad_(True).grad = gradients[i]
                if loss.optimizer:
                    joint.state[parameter] = loss.optimizer.state[parameter]
        return joint

    def __call__(self, scores: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """Return the surrogate losses: `(members, sets, n)` -> `(members, sets)`."""
        return self.judge(self.pool(scores, y, w))

    def pool(self, scores: Tensor, y: Tensor, w: Tensor, training: bool = False) -> Tensor:
        """Return what is known of every set, the mean of g: `(members, sets, n)` -> `(members, sets, q)`."""
        y, w = y.expand_as(scores), w.expand_as(scores)
        if self.shape.fixed_pool:
            return self.shape.pool(scores, y, w)
        scores, y, w = self.shape.made_ready(scores, y, w)
        latent = torch.stack((y, scores), 1).flatten(2)
        assert isinstance(self.shape.g, LearnedMean)
        for i, _ in enumerate(self.shape.g.layers):
            latent = self.shape.g.activation(_dense(*self._of(f"g.layers.{i}"), latent))
            if i == 0 and isinstance(self.shape.g.norm, nn.BatchNorm1d):
                latent = _batch_norm(self.shape.g.norm, _of_layer(self.common, "surrogate.g.norm"), latent, training)
        mean: Tensor = (latent.unflatten(-1, scores.shape[1:]) * w.unsqueeze(1)).sum(-1)
        return mean.mT

    def judge(self, pooled: Tensor) -> Tensor:
        """Return the loss of each set from what is known of it: `(members, sets, q)` -> `(members, sets)`."""
        latent = pooled.mT
        for name, layer in self.shape.h.named_children():
            latent = _dense(*self._of(f"h.{name}"), latent) if isinstance(layer, nn.Linear) else layer(latent)
        low, high = self.common["surrogate.low"].unsqueeze(-1), self.common["surrogate.high"].unsqueeze(-1)
        return low + (high - low) * self.shape.linked(_dense(*self._of("last"), latent)[:, 0])

    def _of(self, name: str) -> tuple[Tensor, Tensor]:
        return self.common[f"surrogate.{name}.weight"], self.common[f"surrogate.{name}.bias"]

    def refine(
        self, scores: Tensor, y: Tensor, w: Tensor | None, steps: int, judged: Tensor | None = None, apart: bool = False
    ) -> None:
        """Make every surrogate truer on these sets, shared out over some steps (Eq. 5).

        The metric judges the scores themselves or those in `judged`; `apart` if sets come one after the other.
        """
        w = torch.ones_like(y) if w is None else w
        told = two_classes(y, w)
        for loss in self.losses:
            loss.skipped += told.numel() - int(told.sum())
        if self.optimizer is None or not bool(told.any()):
            return
        judged = scores if judged is None else judged
        scores, judged, y, w = scores[:, told], judged[:, told], y[told], w[told]
        with torch.no_grad():
            true = self._true(judged, y, w)
            known = self.pool(scores, y, w) if self.shape.fixed_pool else None
        span = (self.common["surrogate.high"] - self.common["surrogate.low"]).unsqueeze(-1)
        moved, gaps = [self.common[name] for name in self.moved], []
        self._learning(True)
        for part in torch.arange(len(y)).chunk(steps):
            pooled = self.pool(scores[:, part], y[part], w[part], training=True) if known is None else known[:, part]
            smooth = self.judge(pooled)
            torch._foreach_zero_([tensor.grad for tensor in moved if tensor.grad is not None])
            relational = self.losses[0].relational
            (len(self.losses) * meta_loss(smooth / span, true[:, part] / span, relational)).backward()
            if self.losses[0].clip is not None:
                clip_each(moved, self.losses[0].clip)
            self.optimizer.step()
            gaps.append((smooth.detach() - true[:, part]).abs())
        self._learning(False)
        running = self.common["running_gap"]
        for gap in gaps if apart else [torch.cat(gaps, -1)]:
            now = gap.mean(-1)
            running.copy_(torch.where(running.isnan(), now, 0.9 * running + 0.1 * now))

    def _true(self, scores: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """Return the true losses, each metric once for all members that learn it: `(members, sets)`."""
        true = torch.empty(scores.shape[:2], dtype=self.common["running_gap"].dtype)
        for metric in dict.fromkeys(loss.metric for loss in self.losses):
            own = [i for i, loss in enumerate(self.losses) if loss.metric == metric]
            true[own] = self.losses[own[0]].true(scores[own], y, w)
        return true

    def _learning(self, on: bool) -> None:
        for name in self.moved:
            self.common[name].requires_grad_(on)


# ---- sailing -------------------------------------------------------------------------------------------------------


class _Keeper:
    """One member under one metric: its guard and its history."""

    def __init__(self, model: Scorer, metric: Metric, validation: Rows, form: str) -> None:
        self.model, self.metric = model, metric
        self.guard = Guard(model, metric if form == "zero" else metric.best, validation)
        self.history: list[Round] = []

    def trained(self) -> Trained:
        best = deepcopy(self.model)
        if self.guard.state is not None:
            best.load_state_dict(self.guard.state)
        return Trained(best.eval(), self.history)


class _Fleet:
    """Members under way: surrogates that learn first, then those that do not, then the losses made by hand."""

    def __init__(
        self,
        models: list[Scorer],
        members: Sequence[Member],
        sets: Draws,
        recipe: Recipe,
        validation: Rows,
        begun: float,
    ) -> None:
        self.models, self.members, self.sets, self.recipe = models, members, sets, recipe
        self.validation, self.begun = validation, begun
        self.keepers = [
            [_Keeper(model, metric, validation, recipe.form) for metric in member.metrics]
            for model, member in zip(models, members, strict=True)
        ]
        self.order = sorted(range(len(members)), key=lambda i: _rank(members[i].loss))
        self.joint = Models([models[i] for i in self.order])
        losses = [members[i].loss for i in self.order]
        groups = [[loss for loss in losses if _rank(loss) == rank] for rank in (0, 1)]
        self.groups = [Surrogates(group, recipe.surrogate_rate) for group in groups if group]  # type: ignore[arg-type]
        self.by_hand = losses[sum(map(len, groups)) :]
        self.gone = torch.zeros(len(members), dtype=torch.bool)

    def take_over(self, first: _Fleet) -> None:
        """Let every keeper start from what the warm-up found best by its metric, and from its history."""
        found = {keeper.metric: keeper for keeper in first.keepers[0]}
        for keepers in self.keepers:
            for keeper in keepers:
                old = found[keeper.metric]
                keeper.guard.least, keeper.guard.state = old.guard.least, old.guard.state
                keeper.history = list(old.history)

    def sail(self, phase: str, steps: int) -> None:
        """Take some model steps, refining after every round of them, and check at times."""
        recipe = self.recipe
        learnable = [*self.joint.learnable, *(p for loss in self.by_hand for p in loss.parameters())]
        optimizer, pace = build_optimizer(learnable, recipe, steps)
        if not steps:
            self._check(phase, 0, 0, torch.full((len(self.members),), NAN))
        for number, done in enumerate(range(0, steps, recipe.model_steps)):
            taken = min(recipe.model_steps, steps - done)
            if recipe.first == "surrogate":
                self._refine()
            values = torch.zeros(len(self.members))
            for x, y, w in self.sets.draw(taken, recipe.sets):
                optimizer.zero_grad()
                each = self._losses(self.joint.follow(x), y, torch.ones_like(y) if w is None else w)
                each.sum().backward()
                if recipe.clip is not None:
                    self.joint.clip(recipe.clip)
                optimizer.step()
                pace.step()
                values += each.detach() / taken
            if recipe.first == "model":
                self._refine()
            if done + taken == steps or due(number, recipe):
                self._check(phase, done + taken, steps, values)
        if bool(self.gone.any()):
            names = ", ".join(type(self.members[i].loss).__name__ for i in self.gone.nonzero()[:, 0].tolist())
            warnings.warn(f"losses stopped being finite, their best model before is kept: {names}", stacklevel=3)

    def _losses(self, scores: Tensor, y: Tensor, w: Tensor) -> Tensor:
        """Return the loss of every member in order, surrogates anchored: `(members, sets, n)` -> `(members,)`."""
        learned = sum(len(group.losses) for group in self.groups)
        values = [loss(own, y, w) for loss, own in zip(self.by_hand, scores[learned:], strict=True)]
        if not learned:
            return torch.stack(values)
        own = scores[:learned]
        parts = own.split([len(group.losses) for group in self.groups])
        losses = torch.cat([group(part, y, w) for group, part in zip(self.groups, parts, strict=True)])
        told = two_classes(y, w).to(losses.dtype)
        losses = (losses * told).sum(-1) / told.sum().clamp(min=1)
        if self.recipe.anchor:
            rows = F.binary_cross_entropy_with_logits(own, y.expand_as(own), reduction="none") * w
            losses = losses + self.recipe.anchor * rows.sum((-1, -2)) / w.sum()
        return torch.cat((losses, torch.stack(values))) if values else losses

    def _refine(self) -> None:
        recipe = self.recipe
        group = self.groups[0] if self.groups else None
        if group is None or group.optimizer is None or not recipe.surrogate_steps:
            return
        steps, count = recipe.surrogate_steps, len(group.losses)
        if recipe.refine_mode == "eval":
            judge = partial(self.joint.judge, first=count)
            group.refine(*self.sets.scored(judge, steps * recipe.refine_sets, recipe.noise), steps)
            return
        x, y, w = (torch.stack(rows) for rows in zip(*self.sets.draw(steps, recipe.refine_sets, "refine"), strict=True))
        still, live = (scores[:count] for scores in self.joint.probe(x.flatten(1, 2)))
        still, live = (scores.unflatten(-1, y.shape[1:]).flatten(1, 2) for scores in (still, live))
        judged = still if recipe.refine_mode == "both" else None
        if recipe.noise:
            live = torch.cat([self.sets.noisy(part, recipe.noise) for part in live.split(recipe.refine_sets, 1)], 1)
        group.refine(live, y.flatten(0, 1), w.flatten(0, 1), steps, judged, apart=True)

    def _check(self, phase: str, done: int, of: int, values: Tensor) -> None:
        """Look at the validation rows, and at how far the surrogates can be trusted."""
        recipe, count = self.recipe, len(self.members)
        scores = self.joint.judge(self.validation.x)
        trusts, gaps = [NAN] * count, [NAN] * count
        if self.groups and not (self.sets.whole and not recipe.noise):
            losses = [loss for group in self.groups for loss in group.losses]
            judge = partial(self.joint.judge, first=len(losses))
            tried, y, w = self.sets.scored(judge, TRUST_SETS, recipe.noise, "trust")
            for place, loss in enumerate(losses):
                trusts[place], gaps[place] = trust_on(loss, tried[place], y, w), loss.gap
        so_far = done if phase == "warm-up" else recipe.warmup + done
        unit = 1 if phase == "warm-up" else recipe.model_steps
        for place, i in enumerate(self.order):
            if not bool(scores[place].isfinite().all()):
                self.gone[i] = True
                continue
            for keeper in self.keepers[i]:
                checked = keeper.guard.check(scores[place])
                if not of:
                    continue
                numbers = (done // unit, of // unit, so_far, float(values[place]), gaps[place], trusts[place])
                keeper.history.append(Round(phase, *numbers, *checked, time.perf_counter() - self.begun))


def _rank(loss: nn.Module) -> int:
    """Return 0 for a surrogate that learns, 1 for one that does not, 2 for any other loss."""
    return 2 if not isinstance(loss, SurrogateLoss) else int(loss.frozen)
