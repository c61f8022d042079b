"""Random sets beyond binary ones, as models make them, for Eq. 3: each class draws `families * kin` sets of one task.

As in `synthetic.py`, sets come in families that share one distribution, and every second kin is a perturbed copy of the
one before.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from metricgrad.metrics.registry import Metric
from metricgrad.surrogate.synthetic import BroadSets, FamilyDraw, RandomSets, Sets


@dataclass(frozen=True)
class ClassSets:
    """Sets of several classes, rare or common, some told apart better than others."""

    classes: int = 6
    weighted: bool = True

    def __call__(self, families: int, kin: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(families * kin, size, classes)`."""
        draw = FamilyDraw(families, kin, size * self.classes, generator)
        shape = (families * kin, size, self.classes)
        share = _of_outputs(draw, self.classes)
        chance = draw.paired(torch.rand(draw.shape, generator=generator)).view(shape).clamp(1e-9, 1 - 1e-9)
        number = (share - (-chance.log()).log()).argmax(-1)
        number[:, 0], number[:, 1] = 0, 1
        targets = one_hot(number, self.classes).float()
        apart = _of_outputs(draw, self.classes).abs() + draw.uniform(0, 4).unsqueeze(-1)
        tendency = 0.7 * _of_outputs(draw, self.classes) + draw.uniform(0, 1).unsqueeze(-1) * share
        scores = draw.perturbed((draw.normal_rows().view(shape) + apart * targets + tendency).flatten(1)).view(shape)
        return Sets(scores * (0.5 * draw.normal()).exp().unsqueeze(-1), targets, _weights(draw, size, self.weighted))


@dataclass(frozen=True)
class LabelSets:
    """Sets of several labels, each rare or common, that come together or alone."""

    labels: int = 6
    weighted: bool = True

    def __call__(self, families: int, kin: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(families * kin, size, labels)`."""
        draw = FamilyDraw(families, kin, size * self.labels, generator)
        shape = (families * kin, size, self.labels)
        together = draw.uniform(0, 0.7).unsqueeze(-1)
        common = draw.paired(draw.normal_rows()).view(shape)[..., :1]
        own = draw.paired(draw.normal_rows()).view(shape)
        rarity = 1 + 0.8 * _of_outputs(draw, self.labels)
        targets = (together * common + (1 - together**2).sqrt() * own > rarity).float()
        targets[:, 0], targets[:, 1] = 1, 0
        apart = draw.uniform(0, 4).unsqueeze(-1) + 0.5 * _of_outputs(draw, self.labels)
        cut = apart * draw.uniform(0, 1).unsqueeze(-1) + 0.5 * _of_outputs(draw, self.labels)
        scores = draw.perturbed((draw.normal_rows().view(shape) + apart * targets).flatten(1)).view(shape) - cut
        return Sets(scores, targets, _weights(draw, size, self.weighted))


@dataclass(frozen=True)
class QuerySets:
    """Queries: few documents of high grades among many of none."""

    def __call__(self, families: int, kin: int, size: int, generator: torch.Generator) -> Sets:
        """Draw queries `(families * kin, size)`."""
        draw = FamilyDraw(families, kin, size, generator)
        steepness, rarity = draw.uniform(0.5, 2), draw.uniform(0, 1.5)
        grade = (draw.paired(draw.normal_rows()) * steepness - rarity).ceil().clamp(0, 4)
        grade[:, 0], grade[:, 1] = grade[:, 0].clamp(min=1), 0
        scores = draw.perturbed(draw.normal_rows() + draw.uniform(0, 1.5) * grade)
        return Sets(scores, grade, torch.ones(draw.shape))


@dataclass(frozen=True)
class NumberSets:
    """Numbers and predictions of them: noisy, shrunk to the mean, off by some."""

    weighted: bool = True

    def __call__(self, families: int, kin: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(families * kin, size)`."""
        draw = FamilyDraw(families, kin, size, generator)
        plain = draw.paired(draw.normal_rows())
        targets = torch.where(draw.chance(0.5), plain, (draw.uniform(0.2, 1.0) * plain).exp()) + draw.uniform(0, 3)
        spread, mean = targets.std(-1, keepdim=True), targets.mean(-1, keepdim=True)
        near = mean + draw.uniform(0.3, 1.1) * (targets - mean) + 0.3 * draw.normal() * spread
        scores = draw.perturbed(near / spread + (draw.normal() - 1).exp() * draw.normal_rows()) * spread
        return Sets(scores, targets, _weights(draw, size, self.weighted))


@dataclass(frozen=True)
class ColumnSets:
    """Broad sets whose rows have amounts, or belong to a group or not."""

    columns: int
    weighted: bool = True

    def __call__(self, families: int, kin: int, size: int, generator: torch.Generator) -> Sets:
        """Draw sets `(families * kin, size)` with targets `(families * kin, size, 1 + columns)`."""
        scores, targets, weights = BroadSets(weighted=self.weighted)(families, kin, size, generator)
        draw, columns = FamilyDraw(families, kin, size, generator), [targets]
        for _ in range(self.columns):
            plain = draw.paired(draw.normal_rows()) + 0.5 * draw.normal() * targets
            amounts = (draw.uniform(0.2, 1.5) * plain).exp()
            columns.append(torch.where(draw.chance(0.5), amounts, (plain > draw.normal()).float()))
        return Sets(scores, torch.stack(columns, -1), weights)


def sets_for(metric: Metric) -> RandomSets:
    """Return where the random sets of a metric come from."""
    weighted = metric.takes_weights
    made: dict[str, RandomSets] = {
        "binary": BroadSets(weighted=weighted),
        "columns": ColumnSets(len(metric.columns), weighted),
        "multiclass": ClassSets(weighted=weighted),
        "multilabel": LabelSets(weighted=weighted),
        "ranking": QuerySets(),
        "regression": NumberSets(weighted),
    }
    return made[metric.task.name]


def _of_outputs(draw: FamilyDraw, outputs: int) -> Tensor:
    """Return a normal number for every output of a family: `(families * kin, 1, outputs)`."""
    return torch.cat([draw.normal() for _ in range(outputs)], -1).unsqueeze(-2)


def _weights(draw: FamilyDraw, size: int, weighted: bool) -> Tensor:
    spread = torch.where(draw.chance(0.15 if weighted else 0.0), torch.tensor(0.5), torch.tensor(0.0))
    return (spread * draw.paired(draw.normal_rows())[:, :size]).exp()
