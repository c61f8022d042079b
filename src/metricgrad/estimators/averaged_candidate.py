"""The average of candidates of one model that held-out rows cannot tell apart, as a candidate of its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from metricgrad.estimators.candidates import Candidate, FoldModel, HeldOut, RuleCandidate
from metricgrad.training.averaging import averaged
from metricgrad.training.networks import Scorer
from metricgrad.training.plug_in import Rule


class AveragedCandidate(RuleCandidate):
    """The mean of the standardised scores of candidates of one model, fold by fold.

    If a plug-in rule is among them, its model takes part in the mean, and a rule is found for the mean.

    Parameters
    ----------
    members : sequence of Candidate
        Of one model, the best first.
    folds : int
        How many folds, all of which every member has.
    """

    def __init__(self, members: Sequence[Candidate], folds: int) -> None:
        first = members[0]
        super().__init__(first.model, first.recipe, first.strategy, first.classes)
        self.members, self.units = list(members), first.units
        self.by_rule = any(member.strategy.nothing for member in members)
        for number in range(folds):
            alike = [member.folds[number] for member in members]
            scores = torch.stack([self._standardised(fold) for fold in alike]).mean(0)
            self.folds.append(FoldModel(alike[0].trained, alike[0].rows, scores))

    def _standardised(self, fold: FoldModel) -> torch.Tensor:
        centre, scale = self.scale_of(fold.scores)
        return (fold.scores.double() - centre) / scale

    @property
    def proper(self) -> bool:
        """That it is not the model of the usual loss alone."""
        return False

    @property
    def methods(self) -> str:
        """By which methods its members were trained."""
        return " + ".join(member.methods for member in self.members)

    def judged(self, folds: int | None = None) -> HeldOut:
        """Return the scores by which it is compared with others."""
        return super().judged(folds) if self.by_rule else self.held_out(folds)

    def _rule(self, rows: HeldOut) -> Rule:
        return super()._rule(rows) if self.by_rule else Rule()

    def network(self) -> Scorer:
        """Return one model: the average of those of all members and folds."""
        networks, centres, scales = [], [], []
        for number, fold in enumerate(self.folds):
            centre, scale = self.scale_of(fold.scores) if len(self.folds) > 1 else (torch.zeros(()), torch.ones(()))
            for member in self.members:
                own_centre, own_scale = self.scale_of(member.folds[number].scores)
                networks.append(member.folds[number].trained.network)
                centres.append(torch.atleast_1d(own_centre + own_scale * centre))
                scales.append(torch.atleast_1d(own_scale * scale))
        return averaged(networks, torch.stack(centres), torch.stack(scales))
