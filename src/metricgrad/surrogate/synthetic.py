"""Sets drawn at random to fit universal surrogates to (Eq. 3): those of the paper, and broad ones of every task.

Sets come in groups that share one distribution, as the sets that one model sees do, and every second set of a group is
a perturbed copy of the one before. What differs within a group is what a model can change, so it matters most.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from metricgrad.metrics.metric import Metric

GROUP_SIZE = 8
"""Sets of a group."""


class Sets(NamedTuple):
    """Scores, targets and weights of several sets, each `(k, n)`, or scores and targets with another axis."""

    scores: Tensor
    targets: Tensor
    weights: Tensor


class RandomSets(Protocol):
    """A source of random sets: called, it draws `groups * group_size` of them, those of a group next to each other."""

    def __call__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets of `size` rows."""


@dataclass(frozen=True)
class PaperSets:
    """The random sets of the paper: targets ~ Bernoulli(p), scores ~ Normal(mu, sigma), whatever the target is."""

    p: float = 0.5
    mu: float = 0.0
    sigma: float = 1.0

    def __call__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets; here those of a group have nothing in common but their size."""
        shape = (groups * group_size, size)
        targets = (torch.rand(shape, generator=generator) < self.p).float()
        scores = torch.randn(shape, generator=generator) * self.sigma + self.mu
        return Sets(scores, targets, torch.ones(shape))


@dataclass(frozen=True)
class BroadSets:
    """Random sets as models make them: rare or common positives, mixtures, separation, skew, tails, weights, ties."""

    rarest: float = 0.002
    common: float = 0.6
    weighted: bool = True

    def __call__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(groups * group_size, size)`."""
        draw = GroupDraw(groups, group_size, size, generator)
        prevalence, natural = self._prevalence(draw), draw.chance(0.4 if self.weighted else 1.0)
        share = torch.where(natural, prevalence, draw.uniform(0.1, 0.6))
        targets = draw.paired(torch.rand(draw.shape, generator=generator)) < share
        targets[:, 0], targets[:, 1] = True, False
        targets = targets.float()
        scores = self._scores(draw, targets)
        found = targets.mean(-1, keepdim=True)
        restoring = targets * prevalence / found + (1 - targets) * (1 - prevalence) / (1 - found)
        weights = torch.where(natural, torch.ones(()), restoring)
        spread = torch.where(draw.chance(0.15 if self.weighted else 0.0), torch.tensor(0.5), torch.tensor(0.0))
        return Sets(scores, targets, weights * (spread * draw.paired(draw.normal_rows())).exp())

    def _prevalence(self, draw: GroupDraw) -> Tensor:
        rare = draw.uniform(math.log(self.rarest), math.log(self.common)).exp()
        return torch.where(draw.chance(0.8), rare, draw.uniform(0.3, 0.95))

    def _scores(self, draw: GroupDraw, targets: Tensor) -> Tensor:
        positive = targets > 0
        first = draw.uniform(0, 1), draw.uniform(0, 1)
        part = torch.rand(draw.shape, generator=draw.generator) < torch.where(positive, *first)
        component = 2 * positive.long() + part.long()
        means = torch.cat([draw.normal() for _ in range(4)], -1).gather(-1, component)
        spreads = torch.cat([(0.5 * draw.normal()).exp() for _ in range(4)], -1).gather(-1, component)
        apart = torch.where(draw.chance(0.7), draw.uniform(0, 5), draw.uniform(0, 9))
        cut = apart * draw.uniform(-0.2, 1.2) + 0.5 * draw.normal()
        scores = draw.perturbed(draw.normal_rows() * spreads + means + apart * targets) - cut
        skew, tail = 0.5 * draw.normal(), (0.35 * draw.normal()).exp()
        warped = ((scores.asinh() + skew) * tail).clamp(-12, 12).sinh()
        scores = torch.where(draw.chance(0.6), warped, scores)
        return torch.where(draw.chance(0.05), (scores * 4).round() / 4, scores)


class GroupDraw:
    """Random numbers, one per group `(groups * group_size, 1)` or one per row `(groups * group_size, size)`."""

    def __init__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> None:
        if group_size % 2:
            raise ValueError(f"group_size: expected an even number, because sets come in pairs, got {group_size}")
        self.groups, self.group_size, self.generator = groups, group_size, generator
        self.shape = (groups * group_size, size)

    def _per_group(self, make: Callable[..., Tensor]) -> Tensor:
        return make(self.groups, 1, generator=self.generator).repeat_interleave(self.group_size, 0)

    def uniform(self, low: float, high: float) -> Tensor:
        """Draw one uniform number per group."""
        return low + (high - low) * self._per_group(torch.rand)

    def normal(self) -> Tensor:
        """Draw one normal number per group."""
        return self._per_group(torch.randn)

    def chance(self, probability: float) -> Tensor:
        """Draw True or False, one per group."""
        return self._per_group(torch.rand) < probability

    def normal_rows(self) -> Tensor:
        """Draw one normal number per row."""
        return torch.randn(self.shape, generator=self.generator)

    def paired(self, rows: Tensor) -> Tensor:
        """Give every second set the values of the one before it."""
        pairs = rows.clone().view(-1, 2, self.shape[1])
        pairs[:, 1] = pairs[:, 0]
        return pairs.view(self.shape)

    def perturbed(self, scores: Tensor) -> Tensor:
        """Make every second set a noisy copy of the one before it; the noise is log-uniform in 0.02 to 0.7."""
        low, high = math.log(0.02), math.log(0.7)
        size = torch.rand(len(scores) // 2, 1, generator=self.generator) * (high - low) + low
        copies = self.paired(scores).view(-1, 2, self.shape[1])
        copies[:, 1] += size.exp() * torch.randn(copies[:, 1].shape, generator=self.generator)
        return copies.view(self.shape)


OUTPUTS = (3, 4, 6, 10, 16)
"""Numbers of classes or labels of random sets; a surrogate takes any other number too."""


@dataclass(frozen=True)
class ClassSets:
    """Sets of several classes, rare or common, some separated better than others; their number is drawn."""

    outputs: tuple[int, ...] = OUTPUTS
    weighted: bool = True

    def __call__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(groups * group_size, size, classes)`."""
        classes = _one_of(self.outputs, generator)
        draw = GroupDraw(groups, group_size, size * classes, generator)
        shape = (groups * group_size, size, classes)
        share = _of_outputs(draw, classes)
        chance = draw.paired(torch.rand(draw.shape, generator=generator)).view(shape).clamp(1e-9, 1 - 1e-9)
        class_index = (share - (-chance.log()).log()).argmax(-1)
        class_index[:, 0], class_index[:, 1] = 0, 1
        targets = one_hot(class_index, classes).float()
        apart = _of_outputs(draw, classes).abs() + draw.uniform(0, 4).unsqueeze(-1)
        tendency = 0.7 * _of_outputs(draw, classes) + draw.uniform(0, 1).unsqueeze(-1) * share
        scores = draw.perturbed((draw.normal_rows().view(shape) + apart * targets + tendency).flatten(1)).view(shape)
        scores = scores * (0.5 * draw.normal()).exp().unsqueeze(-1)
        return Sets(scores, targets, _random_weights(draw, size, self.weighted))


@dataclass(frozen=True)
class LabelSets:
    """Sets of several labels, each rare or common, that come together or alone; their number is drawn."""

    outputs: tuple[int, ...] = OUTPUTS
    weighted: bool = True

    def __call__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(groups * group_size, size, labels)`."""
        labels = _one_of(self.outputs, generator)
        draw = GroupDraw(groups, group_size, size * labels, generator)
        shape = (groups * group_size, size, labels)
        together = draw.uniform(0, 0.7).unsqueeze(-1)
        common = draw.paired(draw.normal_rows()).view(shape)[..., :1]
        own = draw.paired(draw.normal_rows()).view(shape)
        rarity = 1 + 0.8 * _of_outputs(draw, labels)
        targets = (together * common + (1 - together**2).sqrt() * own > rarity).float()
        targets[:, 0], targets[:, 1] = 1, 0
        apart = draw.uniform(0, 4).unsqueeze(-1) + 0.5 * _of_outputs(draw, labels)
        cut = apart * draw.uniform(0, 1).unsqueeze(-1) + 0.5 * _of_outputs(draw, labels)
        scores = draw.perturbed((draw.normal_rows().view(shape) + apart * targets).flatten(1)).view(shape) - cut
        return Sets(scores, targets, _random_weights(draw, size, self.weighted))


@dataclass(frozen=True)
class QuerySets:
    """Queries: few documents of high grades among many of grade 0."""

    def __call__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> Sets:
        """Draw queries `(groups * group_size, size)`."""
        draw = GroupDraw(groups, group_size, size, generator)
        steepness, rarity = draw.uniform(0.5, 2), draw.uniform(0, 1.5)
        grade = (draw.paired(draw.normal_rows()) * steepness - rarity).ceil().clamp(0, 4)
        grade[:, 0], grade[:, 1] = grade[:, 0].clamp(min=1), 0
        scores = draw.perturbed(draw.normal_rows() + draw.uniform(0, 1.5) * grade)
        return Sets(scores, grade, torch.ones(draw.shape))


@dataclass(frozen=True)
class NumberSets:
    """Numbers and predictions of them: noisy, shrunk towards the mean, biased; `scaled`, on several scales."""

    weighted: bool = True
    scaled: bool = False

    def __call__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(groups * group_size, size)`."""
        draw = GroupDraw(groups, group_size, size, generator)
        plain = draw.paired(draw.normal_rows())
        targets = torch.where(draw.chance(0.5), plain, (draw.uniform(0.2, 1.0) * plain).exp()) + draw.uniform(0, 3)
        spread, mean = targets.std(-1, keepdim=True), targets.mean(-1, keepdim=True)
        near = mean + draw.uniform(0.3, 1.1) * (targets - mean) + 0.3 * draw.normal() * spread
        scores = draw.perturbed(near / spread + (draw.normal() - 1).exp() * draw.normal_rows()) * spread
        unit = draw.uniform(-1.5, 1.5).exp() if self.scaled else 1.0
        return Sets(unit * scores, unit * targets, _random_weights(draw, size, self.weighted))


@dataclass(frozen=True)
class ErrorSets:
    """Numbers above 0 and predictions of them, missed by fractions or multiples of a unit, or of a share of each."""

    unit: float
    relative: bool
    weighted: bool = True

    def __call__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(groups * group_size, size)`."""
        draw = GroupDraw(groups, group_size, size, generator)
        targets = (draw.uniform(0.1, 1.0) * draw.paired(draw.normal_rows())).exp()
        tail = (0.35 * draw.normal()).exp()
        noise = ((draw.normal_rows().asinh() * tail).sinh() + 0.7 * draw.normal()) * draw.uniform(-2.3, 2.3).exp()
        wide = (0.3 * draw.normal() * targets.log()).exp()  # rows of high targets may be missed by more, or by less
        missed = draw.perturbed(noise * wide)
        scores = targets + self.unit * missed * (targets if self.relative else 1)
        return Sets(scores, targets, _random_weights(draw, size, self.weighted))


@dataclass(frozen=True, eq=False)
class ModelSets:
    """Rows as a model of numbers sees them: its errors, made larger, smaller or biased, with noise of their size.

    Parameters
    ----------
    scores, targets : Tensor of shape (rows,)
        Of the model, and of all its rows; targets may have columns.
    """

    scores: Tensor
    targets: Tensor
    weighted: bool = True

    def __call__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(groups * group_size, size)`."""
        draw = GroupDraw(groups, group_size, size, generator)
        rows = draw.paired(torch.randint(len(self.scores), draw.shape, generator=generator).float()).long()
        targets = self.targets[rows]
        labels = targets if self.targets.ndim == 1 else targets[..., 0]
        errors = self.scores[rows] - labels
        spread = errors.std(-1, keepdim=True).clamp(min=1e-6)
        moved = draw.uniform(-1.2, 0.6).exp() * errors / spread + 0.7 * draw.normal()
        return Sets(labels + spread * draw.perturbed(moved), targets, _random_weights(draw, size, self.weighted))


@dataclass(frozen=True)
class CensoredSets:
    """Times and predictions of them; some rows are only followed until an earlier time."""

    weighted: bool = True

    def __call__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(groups * group_size, size)` with targets `(groups * group_size, size, 2)`."""
        scores, times, weights = NumberSets(self.weighted)(groups, group_size, size, generator)
        draw = GroupDraw(groups, group_size, size, generator)
        followed = draw.paired(draw.normal_rows()) + draw.uniform(-1, 2.5)
        spread, mean = times.std(-1, keepdim=True), times.mean(-1, keepdim=True)
        until = mean + spread * followed
        seen = times <= until
        seen[:, 0] = True
        return Sets(scores, torch.stack((times.minimum(until), seen.float()), -1), weights)


@dataclass(frozen=True)
class ColumnSets:
    """Broad sets whose rows have amounts, or belong to a group or not.

    `sizes` holds a typical amount of every column, or of a group, those in `groups`, how many there are.
    """

    columns: int
    weighted: bool = True
    sizes: tuple[float, ...] = ()
    groups: tuple[int, ...] = ()

    def __call__(self, groups: int, group_size: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(groups * group_size, size)` with targets `(groups * group_size, size, 1 + columns)`."""
        scores, targets, weights = BroadSets(weighted=self.weighted)(groups, group_size, size, generator)
        draw, columns = GroupDraw(groups, group_size, size, generator), [targets]
        for number in range(self.columns):
            plain = draw.paired(draw.normal_rows()) + 0.5 * draw.normal() * targets
            amounts, shift = (draw.uniform(0.2, 1.5) * plain).exp(), draw.normal()
            if number in self.groups:
                columns.append(self._codes(plain - shift, number))
            elif self.sizes:
                columns.append(self.sizes[number] * amounts)
            else:
                columns.append(torch.where(draw.chance(0.5), amounts, (plain > shift).float()))
        return Sets(scores, torch.stack(columns, -1), weights)

    def _codes(self, plain: Tensor, number: int) -> Tensor:
        """Return codes of groups, the higher the plain number of a row: two, or as many as are known."""
        count = self.sizes[number] if self.sizes else 2.0
        return ((plain / 2).sigmoid() * count).floor().clamp(max=count - 1)


def sets_for(metric: Metric) -> RandomSets:
    """Return the source of random sets for a metric."""
    weighted = metric.takes_weights
    made: dict[str, RandomSets] = {
        "binary": BroadSets(weighted=weighted),
        "columns": ColumnSets(
            len(metric.columns),
            weighted,
            metric.column_sizes,
            tuple(place for place, name in enumerate(metric.columns) if name in metric.groups),
        ),
        "multiclass": ClassSets(weighted=weighted),
        "multilabel": LabelSets(weighted=weighted),
        "ranking": QuerySets(),
        "regression": _number_sets(metric),
        "censored": CensoredSets(weighted),
    }
    return made[metric.task.name]


def _number_sets(metric: Metric) -> RandomSets:
    """Return sets on which a metric of numbers differs: near its tolerance, on several scales, or on any one."""
    head, _, settings = (metric.view or "levels").partition("(")
    if head in ("errors", "ratios"):
        return ErrorSets(float(settings.removesuffix(")").split(",")[0]), head == "ratios", metric.takes_weights)
    return NumberSets(metric.takes_weights, scaled=head == "levels")


def _one_of(numbers: tuple[int, ...], generator: torch.Generator) -> int:
    return numbers[int(torch.randint(len(numbers), (), generator=generator))]


def _of_outputs(draw: GroupDraw, outputs: int) -> Tensor:
    """Return one normal number per group and output: `(groups * group_size, 1, outputs)`."""
    return torch.cat([draw.normal() for _ in range(outputs)], -1).unsqueeze(-2)


def _random_weights(draw: GroupDraw, size: int, weighted: bool) -> Tensor:
    spread = torch.where(draw.chance(0.15 if weighted else 0.0), torch.tensor(0.5), torch.tensor(0.0))
    return (spread * draw.paired(draw.normal_rows())[:, :size]).exp()
