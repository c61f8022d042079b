"""A competition of models: each is trained on the same folds and judged on the rows that a fold leaves out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from metricgrad.estimators.candidates import MIN_EVIDENCE, Candidate, HeldOut, Judge
from metricgrad.estimators.leaderboard import NOT_TRIED, strategy_of, titles
from metricgrad.estimators.metric_estimator import Trained
from metricgrad.estimators.mixture import Mixture, best_mixture
from metricgrad.losses.default import proxy_name
from metricgrad.training.data import Rows
from metricgrad.training.history import Tried, Verdict
from metricgrad.training.networks import MIXTURE

BEHIND = 2.0
"""Standard errors behind the best after which a candidate is trained on no further fold."""
MARGIN = 0.5
"""Standard errors by which another strategy must be better than the usual loss, and a mixture than what is chosen
without it, to be chosen."""
MARGIN_OF_MONEY = 2.0
"""The same by a metric with columns, over the plug-in rule and every simpler strategy: few rows carry the money, so the
best of several is ahead by more than one of them where it is no better."""
MARGIN_OF_NUMBERS = 1.0
"""The same of what follows a metric of numbers itself, over the best of the losses made by hand."""


class Competition:
    """Trains candidates fold by fold, drops those that are surely behind, and chooses the best.

    Parameters
    ----------
    candidates : sequence of Candidate
        The cheapest first.
    folds : int
        Number of folds.
    limit : float, optional
        Seconds after which no further model is trained.
    judge : Judge, optional
        By what candidates are compared; by default the metric that chose their checkpoints.
    asked : str, optional
        The strategy whose best candidate is chosen, whatever the others do.
    mixes : bool
        Whether a mixture of candidates may be chosen.
    """

    def __init__(
        self,
        candidates: Sequence[Candidate],
        folds: int,
        limit: float | None = None,
        judge: Judge | None = None,
        asked: str | None = None,
        mixes: bool = False,
    ) -> None:
        self.candidates, self.count, self.limit, self.given = list(candidates), folds, limit, judge
        self.asked, self.mixes = asked, mixes
        self.interrupted = False

    def among(self, candidates: Sequence[Candidate]) -> Competition:
        """Return what the competition would have been of some of the candidates."""
        found = Competition(candidates, self.count, self.limit, self.given)
        found.interrupted = self.interrupted
        return found

    def run(self, train: Callable[[Candidate, int, float | None], tuple[Trained, Rows]]) -> None:
        """Call `train(candidate, fold, seconds left)` for every candidate and fold, until the end or the limit."""
        begun = time.perf_counter()
        running = list(self.candidates)
        for fold in range(self.count):
            for candidate in list(running):
                if candidate not in running:
                    continue
                left = None if self.limit is None else self.limit - (time.perf_counter() - begun)
                if left is not None and left <= 0 and any(c.folds for c in self.candidates):
                    self.interrupted = True
                    return
                since = time.perf_counter()
                trained, rows = train(candidate, fold, left)
                candidate.seconds += time.perf_counter() - since
                candidate.calls = _sum(candidate.calls, trained.calls)
                self.interrupted = trained.interrupted
                if not trained.interrupted or not any(c.folds for c in self.candidates):
                    candidate.add(trained, rows)
                if trained.interrupted:
                    return
                if trained.doubt:
                    candidate.left_out, candidate.note = True, f"left out: doubtful surrogate ({trained.doubt})"
                    running.remove(candidate)
                if not fold and candidate.proper:
                    running = self._in_best_units(running, candidate.model)
            running = self._not_behind(running) if fold + 1 < self.count else running

    def _in_best_units(self, running: list[Candidate], model: Any) -> list[Candidate]:
        """Return the candidates without those of a model in other units than the usual loss does best in on a fold.

        That loss itself is trained on in all of them.
        """
        usual = [candidate for candidate in running if candidate.proper and candidate.model is model]
        if len(usual) == 1 or not all(candidate.folds for candidate in usual):
            return running
        best = min(usual, key=self._loss)
        tried = [each for each in running if each.model is not model or each.proper or each.units == best.units]
        self.candidates = [each for each in self.candidates if each in tried]
        return tried

    def _loss(self, candidate: Candidate, folds: int | None = None) -> float:
        return candidate.judged(folds).loss(self.judge)

    def _not_behind(self, running: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that are not surely behind the best so far, each beside the usual loss of its model."""
        if len(running) == 1 or self.asked is not None:
            return list(running)
        trained = [candidate for candidate in running if not candidate.strategy.nothing]
        first = min(trained, key=self._loss).judged()
        near = [candidate for candidate in trained if not self._is_behind(candidate, first)]
        near += self._starts(trained, near)
        kinds = {candidate.kind for candidate in near}
        kept = [each for each in running if each in near or (each.kind in kinds and _is_cheap(each))]
        for candidate in running:
            if candidate not in kept:
                candidate.note = f"surely behind after {len(candidate.folds)} of {self.count} folds"
        return kept

    def _starts(self, trained: Sequence[Candidate], near: Sequence[Candidate]) -> list[Candidate]:
        """Return the best loss of every kind from which another strategy of numbers starts."""
        if not self.judge.metric.task.numbers:
            return []
        kinds = {candidate.kind for candidate in near if _starts_late(candidate)}
        first = [candidate for candidate in trained if not _starts_late(candidate)]
        return [min((each for each in first if each.kind == kind), key=self._loss) for kind in kinds]

    def _is_behind(self, candidate: Candidate, first: HeldOut) -> bool:
        own = candidate.judged()
        gap = own.loss(self.judge) - first.loss(self.judge)
        return gap > 0 and gap > BEHIND * own.error_against(first, self.judge)

    @cached_property
    def judge(self) -> Judge:
        """The metric as candidates are judged by it; of a black box, what stands in for it."""
        if self.given is not None:
            return self.given
        first = next(candidate for candidate in self.candidates if candidate.folds)
        own = first.folds[0].trained.judge
        return Judge(own if first.recipe.form == "zero" else own.best, own)

    @cached_property
    def best(self) -> Candidate:
        """What is used: the best candidate, or a mixture of several that is better than it by half a standard error."""
        single = self._best_single()
        if not self.mixes or self._is_small:
            return single
        begun = time.perf_counter()
        mixture = best_mixture(self._choosable, single, self.judge)
        mixture.seconds += time.perf_counter() - begun if mixture is not single else 0.0
        return mixture if self._is_ahead(mixture, single, len(single.folds), MARGIN) else single

    @property
    def _choosable(self) -> list[Candidate]:
        """The candidates that may be chosen: of a strategy, if that was asked for, and not left out.

        If training was stopped early and few rows of a class are held out, those of the usual loss.
        """
        trained = [candidate for candidate in self.candidates if candidate.folds]
        asked = [candidate for candidate in trained if candidate.strategy.name == self.asked]
        able = [candidate for candidate in trained if not candidate.left_out] or trained
        usual = [candidate for candidate in able if self._is_usual(candidate)] if self._is_small else []
        return asked or usual or able

    @cached_property
    def _is_small(self) -> bool:
        """Whether too few rows of a class were held out, by the folds that there are, for any choice but of a model."""
        task = self.judge.metric.task
        y = max((each for each in self.candidates if each.folds), key=lambda each: len(each.folds)).pooled().y
        return task.rarest(y) < MIN_EVIDENCE if task.classes and not task.outputs else False

    def _is_usual(self, candidate: Candidate) -> bool:
        """Whether a candidate has followed the usual loss, and nothing else."""
        return candidate.proper or candidate.strategy.name == proxy_name(self.judge.metric.task)

    def _best_single(self) -> Candidate:
        """Return the candidate with the least loss on the rows left out by the folds that all of the last ones have.

        Of the strategies of a model, the usual loss is preferred unless another is better by some standard errors.
        """
        tried = self._choosable
        if len(tried) == 1:  # a metric may be costly
            return tried[0]
        most = max(len(candidate.folds) for candidate in tried)
        last = [candidate for candidate in tried if len(candidate.folds) >= most - int(self.interrupted and most > 1)]
        common = min(len(candidate.folds) for candidate in last)
        by_model: dict[int, list[Candidate]] = {}
        for candidate in last:
            by_model.setdefault(id(candidate.model), []).append(candidate)
        chosen = [self._best_strategy(alike, common) for alike in by_model.values()]
        return min(chosen, key=lambda candidate: self._loss(candidate, common))

    def _best_strategy(self, alike: Sequence[Candidate], common: int) -> Candidate:
        """Return the best of the candidates of one model, the usual loss unless another is better than noise."""
        if self.judge.metric.task.numbers:
            return self._learned_if_better(alike, common)
        if self.judge.metric.columns:
            return self._simplest(alike, common)
        best = min(alike, key=lambda candidate: self._loss(candidate, common))
        usual = next((candidate for candidate in alike if candidate.proper), best)
        return best if usual is best or self._is_ahead(best, usual, common, MARGIN) else usual

    def _simplest(self, alike: Sequence[Candidate], common: int) -> Candidate:
        """Return the last of the candidates that is surely better than the one kept of those before it.

        A rule that decides by probability and columns comes first: of calibrated probabilities it is the best there is.
        """
        kept, *others = sorted(alike, key=lambda candidate: not candidate.strategy.nothing)
        for candidate in others:
            kept = candidate if self._is_ahead(candidate, kept, common, MARGIN_OF_MONEY) else kept
        return kept

    def _learned_if_better(self, alike: Sequence[Candidate], common: int) -> Candidate:
        """Return the best; one that follows the metric itself must beat the best of the others beyond noise."""
        by_hand = [candidate for candidate in alike if not candidate.strategy.learned]
        best = min(by_hand or alike, key=lambda candidate: self._loss(candidate, common))
        ahead = [
            each for each in alike if each.strategy.learned and self._is_ahead(each, best, common, MARGIN_OF_NUMBERS)
        ]
        return min([best, *ahead], key=lambda candidate: self._loss(candidate, common))

    def _is_ahead(self, candidate: Candidate, other: Candidate, common: int, margin: float) -> bool:
        """Return whether a candidate is better than another by more than some standard errors."""
        own, first = candidate.judged(common), other.judged(common)
        gain = first.loss(self.judge) - own.loss(self.judge)
        return gain > 0 and gain > margin * first.error_against(own, self.judge)

    def verdict(self) -> Verdict | None:
        """Return by how much the chosen strategy, or else the best of the others, is better than the usual loss.

        It holds what was tried, in the order of training, and what each cost.
        """
        found = self._verdict()
        return None if found is None else replace(found, tried=self._tried())

    def _tried(self) -> tuple[Tried, ...]:
        lines = [self._cost(each) for each in self.candidates if each.folds or each.seconds]
        return tuple(
            Tried(name, line["seconds"], line["calls"]) for name, line in zip(titles(lines), lines, strict=True)
        )

    def _verdict(self) -> Verdict | None:
        if isinstance(self.best, Mixture):
            return self._verdict_of(self.best)
        if self.best.strategy.alone:
            own = self.best.verdict(self.judge)
            return self._verdict_of_trees() if own is None else replace(own, unit=self.judge.unit)
        alike = [each for each in self.candidates if each.model is self.best.model and each.folds]
        usual = min((each for each in alike if each.proper), key=self._loss, default=None)
        others = [self.best] if not self.best.proper else [each for each in alike if not each.proper]
        proxy, folds = proxy_name(self.judge.metric.task), len(self.best.folds)
        few = self.best.proper and self._is_small
        if usual is None or not others or few:
            rarest = self.judge.metric.task.rarest(self.best.held_out().y)
            note = f"{rarest} held-out rows of the rarer class are too few to choose by" if few else ""
            return Verdict(False, math.nan, math.nan, proxy, folds=folds, unit=self.judge.unit, note=note)
        most = max(len(each.folds) for each in others)  # one that was dropped has judged fewer rows
        others = [each for each in others if len(each.folds) == most]
        common = min(len(usual.folds), most)
        return self._compared(usual, min(others, key=lambda each: self._loss(each, common)), common)

    def _verdict_of_trees(self) -> Verdict | None:
        """Return by how much trees, which follow no metric, are better than the best model by the usual loss."""
        usual = [each for each in self.candidates if each.proper and each.folds]
        if not usual:
            return None
        most = max(len(each.folds) for each in usual)
        other = min((each for each in usual if len(each.folds) == most), key=self._loss)
        found = self._compared(other, self.best, min(most, len(self.best.folds)))
        kept, compared = (f"{each.name} by {strategy_of(each)}" for each in (self.best, other))
        return replace(found, strategy=kept, proxy=compared)

    def _verdict_of(self, mixture: Mixture) -> Verdict:
        """Return by how much a mixture is better than the best model by the usual loss, or else the best of all."""
        proxy = proxy_name(self.judge.metric.task)
        alike = [each for each in self._choosable if len(each.folds) == len(mixture.folds)]
        usual = [each for each in alike if self._is_usual(each)]
        other = min(usual or alike, key=self._loss)
        found = self._compared(other, mixture, len(other.folds))
        return replace(found, proxy=proxy if usual else other.title, detail=mixture.methods)

    def _compared(self, usual: Candidate, other: Candidate, common: int) -> Verdict:
        """Return by how much a candidate, which was chosen or is the best of the others, is better than the usual."""
        control, followed, folds = usual.judged(common), other.judged(common), len(self.best.folds)
        chosen = other is self.best
        return Verdict(
            chosen,
            control.loss(self.judge) - followed.loss(self.judge),
            control.error_against(followed, self.judge),
            proxy_name(self.judge.metric.task),
            kept=folds if chosen else 0,
            folds=folds,
            strategy=MIXTURE if isinstance(other, Mixture) else other.methods,
            unit=self.judge.unit,
            rows=len(control.y),
            positives=self.judge.metric.task.rarest(control.y),
        )

    def results(self, value: float) -> list[dict[str, Any]]:
        """Return a record of every candidate, the chosen one, which has this value, first, then by how far behind."""
        chosen = {"value": value, "behind": 0.0, "standard_error": 0.0}
        others = [self._cost(one) | self._gap(one) for one in self.candidates if one is not self.best]
        others.sort(key=lambda line: (line["note"] == NOT_TRIED, line["behind"]))
        return [self._cost(self.best) | chosen, *others]

    def _gap(self, candidate: Candidate) -> dict[str, float]:
        """Return how far a candidate is behind the chosen one, on the rows that both have scored."""
        common = min(len(candidate.folds), len(self.best.folds))
        if not common:
            return dict.fromkeys(("value", "behind", "standard_error"), math.nan)
        own, first = candidate.judged(common), self.best.judged(common)
        loss, unit = own.loss(self.judge), self.judge.unit
        return {
            "value": float(self.judge.metric.value(loss)),
            "behind": unit * (loss - first.loss(self.judge)),
            "standard_error": unit * own.error_against(first, self.judge),
        }

    def _cost(self, candidate: Candidate) -> dict[str, Any]:
        note = candidate.note or ("" if candidate.folds else NOT_TRIED)
        known = {"model": candidate.name, "methods": candidate.methods, "strategy": strategy_of(candidate)}
        if candidate.units is not None:
            known["units"] = candidate.units.name
        spent = {"seconds": candidate.seconds, "calls": candidate.calls}
        return {**known, "folds": len(candidate.folds), **spent, "note": note}


def _sum(left: int | None, right: int | None) -> int | None:
    """Return the sum of two counts, of which either may not be known."""
    return left if right is None else right + (left or 0)


def _starts_late(candidate: Candidate) -> bool:
    return candidate.strategy.learned or candidate.strategy.goes_on


def _is_cheap(candidate: Candidate) -> bool:
    return candidate.proper or candidate.strategy.nothing
