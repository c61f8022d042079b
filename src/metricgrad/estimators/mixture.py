"""A mixture of candidates of a competition: the mean of their scores, chosen step by step on held-out rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from metricgrad.estimators.candidates import Candidate, Judge, NumberCandidate
from metricgrad.training.averaging import mixed
from metricgrad.training.networks import MIXTURE, Scorer

STEPS = 6
"""How often a candidate, perhaps the same one again, is added to the best."""


class Mixture(Candidate):
    """Several candidates as one: the weighted mean of their scores, those of classes in log-odds.

    Parameters
    ----------
    parts : sequence of Candidate
        Trained on the same folds, each as often as it counts; the first is the best of them, whose history and recipe
        are kept.
    """

    mixed = True

    def __init__(self, parts: Sequence[Candidate]) -> None:
        first = parts[0]
        super().__init__(_model_of(parts), first.recipe, first.strategy, first.classes)
        self._mix(parts)

    def _mix(self, parts: Sequence[Candidate]) -> None:
        counts = Counter(parts)
        self.folds, self.shares = parts[0].folds, {part: count / len(parts) for part, count in counts.items()}

    @property
    def methods(self) -> str:
        """What it is a mixture of, the largest share first."""
        ordered = sorted(self.shares.items(), key=lambda each: -each[1])
        return ", ".join(f"{share:.0%} {part.title}" for part, share in ordered)

    @property
    def factors(self) -> list[float]:
        """What the scores of every part are multiplied by."""
        return [share * part.slope for part, share in self.shares.items()]

    def fold_scores(self, folds: int | None = None, control: bool | None = None) -> list[Tensor]:
        """Return the mixed scores of the rows that each fold leaves out."""
        factors = torch.tensor(self.factors, dtype=torch.float64)
        every = zip(*(part.fold_scores(folds) for part in self.shares), strict=True)
        return [torch.stack(own, -1) @ factors for own in every]

    def network(self) -> Scorer:
        """Return the model to be used."""
        return mixed([part.network() for part in self.shares], self.factors)


class NumberMixture(Mixture, NumberCandidate):
    """A mixture of candidates of numbers, all in the same units."""

    def __init__(self, parts: Sequence[NumberCandidate]) -> None:
        first = parts[0]
        assert first.units is not None
        NumberCandidate.__init__(self, _model_of(parts), first.recipe, first.strategy, first.units, first.metric)
        self._mix(parts)


def _model_of(parts: Sequence[Candidate]) -> Any:
    """Return the kind of model that several are together: their own, if that is the same."""
    return parts[0].model if len({part.name for part in parts}) == 1 else MIXTURE


def mixture_of(parts: Sequence[Candidate]) -> Candidate:
    """Return candidates of one task as one."""
    numbers = [part for part in parts if isinstance(part, NumberCandidate)]
    return NumberMixture(numbers) if numbers else Mixture(parts)


def best_mixture(candidates: Sequence[Candidate], first: Candidate, judge: Judge) -> Candidate:
    """Return the best of the mixtures that arise by adding to the first, again and again, what helps most.

    A greedy selection with replacement (Caruana et al. 2004), by the loss on held-out rows. It may be the first alone.
    """
    alike = [each for each in candidates if each.units == first.units and len(each.folds) == len(first.folds)]
    tried, parts = [(first.judged().loss(judge), first)], [first]
    for _ in range(STEPS):
        mixtures = [mixture_of([*parts, each]) for each in alike]
        losses = [each.judged().loss(judge) for each in mixtures]
        best = min(range(len(alike)), key=losses.__getitem__)
        parts.append(alike[best])
        tried.append((losses[best], mixtures[best]))
    return min(tried, key=lambda each: each[0])[1]
