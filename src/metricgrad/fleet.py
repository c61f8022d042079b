"""A fleet: models of one make trained at once on the same sets, each by a loss of its own.

Their parameters lie side by side in memory, so that a step of all of them is a few large multiplications instead of
many small ones. The mathematics is that of `trainer.train`, run by run; what does not depend on the loss is done once:
the warm-up, the draws and the dropout.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from copy import deepcopy
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.baselines import CrossEntropy
from metricgrad.loss import SurrogateLoss, two_classes
from metricgrad.metrics import Metric
from metricgrad.model import Scorer, folded
from metricgrad.recipe import Recipe
from metricgrad.surrogate import meta_loss
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
    """Say whether runs can be trained as a fleet: models known by name, surrogates of one fixed g, no clipping."""
    surrogates = [loss.surrogate for loss in losses if isinstance(loss, SurrogateLoss)]
    alike = len({surrogate.construction for surrogate in surrogates}) <= 1
    plain = recipe.refine_mode == "eval" and recipe.clip is None
    return bool(model.name) and plain and alike and all(surrogate.fixed_pool for surrogate in surrogates)


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
            "members: expected models known by name, surrogates of one construction with a fixed g, no clipping and "
            f"refine_mode='eval', got the recipe {recipe.name!r}"
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


def _of_layer(common: dict[str, Tensor], name: str) -> dict[str, Tensor]:
    return {key.removeprefix(f"{name}."): tensor for key, tensor in common.items() if key.startswith(f"{name}.")}


def _dense(weight: Tensor, bias: Tensor, latent: Tensor) -> Tensor:
    """Multiply `(members, out, in)` by columns of rows, shared `(in, rows)` or each member's own."""
    if latent.ndim == 2:
        flat = torch.addmm(bias.reshape(-1, 1), weight.flatten(0, 1), latent)
        return flat.view(*weight.shape[:2], -1)
    return torch.baddbmm(bias.unsqueeze(-1), weight, latent)


def _batch_norm(layer: nn.BatchNorm1d, own: dict[str, Tensor], latent: Tensor) -> Tensor:
    own["num_batches_tracked"] += 1
    means, variances, weight, bias = (own[k].view(-1) for k in ("running_mean", "running_var", "weight", "bias"))
    channels = latent.view(1, -1, latent.shape[-1])
    return F.batch_norm(channels, means, variances, weight, bias, True, layer.momentum or 0.0, layer.eps).view_as(
        latent
    )


class Surrogates:
    """Surrogate losses of one construction as one; of scores `(members, sets, n)`, all of the same rows."""

    def __init__(self, losses: Sequence[SurrogateLoss], rate: float) -> None:
        self.losses, self.shape = losses, losses[0].surrogate
        self.common = side_by_side(losses)
        self.moved = [f"surrogate.{name}" for name, _ in self.shape.named_parameters()]
        self.optimizer = None if losses[0].frozen else self._optimizer(rate)

    def _optimizer(self, rate: float) -> torch.optim.Optimizer:
        """Join the optimizers of the members, which go on where they are, each with its own count of steps."""
        for name in self.moved:
            self.common[name].grad = torch.zeros_like(self.common[name])
        joint = torch.optim.Adam([p for loss in self.losses for p in loss.surrogate.parameters()], rate, fused=True)
        for i, loss in enumerate(self.losses):
            assert loss.optimizer is not None
            for name, parameter in loss.surrogate.named_parameters():
                gradients = self.common[f"surrogate.{name}"].grad
                assert gradients is not None
                parameter.requires_grad_(True).grad = gradients[i]
                joint.state[parameter] = loss.optimizer.state[parameter]
        return joint

    def judge(self, pooled: Tensor) -> Tensor:
        """Return the loss of each set from what is known of it: `(members, sets, q)` -> `(members, sets)`."""
        latent = pooled
        for name, layer in self.shape.h.named_children():
            latent = self._dense(f"h.{name}", latent) if isinstance(layer, nn.Linear) else layer(latent)
        low, high = self.common["surrogate.low"].unsqueeze(-1), self.common["surrogate.high"].unsqueeze(-1)
        return low + (high - low) * self.shape.linked(self._dense("last", latent)[..., 0])

    def _dense(self, name: str, latent: Tensor) -> Tensor:
        weight, bias = self.common[f"surrogate.{name}.weight"], self.common[f"surrogate.{name}.bias"]
        return torch.baddbmm(bias.unsqueeze(-2), latent, weight.mT)

    def refine(self, scores: Tensor, y: Tensor, w: Tensor | None, steps: int) -> None:
        """Make every surrogate truer on these sets, shared out over some steps (Eq. 5)."""
        w = torch.ones_like(y) if w is None else w
        told = two_classes(y, w)
        for loss in self.losses:
            loss.skipped += told.numel() - int(told.sum())
        if self.optimizer is None or not bool(told.any()):
            return
        scores, y, w = scores[:, told], y[told], w[told]
        with torch.no_grad():
            true = torch.stack([loss.true(own, y, w) for loss, own in zip(self.losses, scores, strict=True)])
            pooled = self.shape.pool(scores, y.expand_as(scores), w.expand_as(scores))
        span = (self.common["surrogate.high"] - self.common["surrogate.low"]).unsqueeze(-1)
        gaps = []
        self._learning(True)
        for part in torch.arange(len(y)).chunk(steps):
            smooth = self.judge(pooled[:, part])
            for name in self.moved:
                gradient = self.common[name].grad
                assert gradient is not None
                gradient.zero_()
            relational = self.losses[0].relational
            (len(self.losses) * meta_loss(smooth / span, true[:, part] / span, relational)).backward()
            self.optimizer.step()
            gaps.append((smooth.detach() - true[:, part]).abs())
        self._learning(False)
        gap, running = torch.cat(gaps, -1).mean(-1), self.common["running_gap"]
        running.copy_(torch.where(running.isnan(), gap, 0.9 * running + 0.1 * gap))

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
        pooled = self.groups[0].shape.pool(own, y.expand_as(own), w.expand_as(own))
        parts = pooled.split([len(group.losses) for group in self.groups])
        losses = torch.cat([group.judge(part) for group, part in zip(self.groups, parts, strict=True)])
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
        judge = partial(self.joint.judge, first=len(group.losses))
        asked = recipe.surrogate_steps * recipe.refine_sets
        group.refine(*self.sets.scored(judge, asked, recipe.noise), recipe.surrogate_steps)

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
