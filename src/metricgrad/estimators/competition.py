"""A competition of models: each is trained on the same folds and judged on the rows that a fold leaves out."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from metricgrad.estimators.metric_estimator import Trained, scores_in_double
from metricgrad.losses.default import proxy_name
from metricgrad.metrics.registry import Metric
from metricgrad.training.averaging import averaged
from metricgrad.training.data import Rows
from metricgrad.training.history import Verdict
from metricgrad.training.networks import Scorer
from metricgrad.training.plug_in import Rule, find_rule
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import error_of_gain

if TYPE_CHECKING:
    from metricgrad.strategies.strategy import Strategy

MIN_SPREAD = 1e-12
"""Scores that differ by less are not scaled up."""
BEHIND = 2.0
"""Standard errors behind the best after which a candidate is trained on no further fold."""
PROPER = "proper"
"""The strategy that the others are compared with."""
RULE = "plug-in"
"""The strategy that trains nothing."""
RULE_PARTS = 5
"""Parts of the held-out rows, each decided by a rule that was found on the others."""
MARGIN = 0.5
"""Standard errors by which another strategy must be better than the usual loss to be chosen."""
MARGIN_OF_MONEY = 1.0
"""The same by a metric with columns, over every simpler strategy: few rows carry the money, and one may be found."""
NOT_TRIED = "not tried: the time was up"


class Judge(NamedTuple):
    """A metric as models are compared by it, at the best threshold of the rows, and as it is decided with."""

    metric: Metric
    decided: Metric

    @property
    def unit(self) -> float:
        """How much the value that is shown changes when the loss changes by one."""
        return abs(float(self.metric.value(1.0)) - float(self.metric.value(0.0)))


class HeldOut(NamedTuple):
    """Scores of held-out rows, `(rows,)` or `(rows, outputs)`, with their targets and weights."""

    scores: Tensor
    y: Tensor
    w: Tensor | None

    def loss(self, judge: Judge) -> float:
        """Return the true loss."""
        return float(judge.metric(self.scores, self.y, self.w))

    def error_against(self, other: HeldOut, judge: Judge) -> float:
        """Return the standard error of the difference between the losses of these and other scores of the rows."""
        return error_of_gain(judge.metric, judge.decided, self.scores, other.scores, self.y, self.w)


class FoldModel(NamedTuple):
    """A model trained on one fold, and the rows that the fold leaves out, with its scores of them."""

    trained: Trained
    rows: Rows
    scores: Tensor


class Candidate:
    """One kind of model in a competition.

    Parameters
    ----------
    model : str, module or factory
        As `build_model` takes it.
    recipe : Recipe
        How it is trained.
    classes : bool
        Whether it scores several classes, of which the highest is predicted.
    strategy : Strategy
        By which it is trained.

    Attributes
    ----------
    folds : list of FoldModel
        What was trained so far.
    seconds : float
        Spent on it.
    note : str
        Why it was trained on fewer folds than others, if it was.
    """

    def __init__(self, model: Any, recipe: Recipe, strategy: Strategy, classes: bool = False) -> None:
        self.model, self.recipe, self.classes, self.strategy = model, recipe, classes, strategy
        self.folds: list[FoldModel] = []
        self.seconds, self.note = 0.0, ""

    @property
    def name(self) -> str:
        """What it is called."""
        return self.model if isinstance(self.model, str) else getattr(self.model, "name", type(self.model).__name__)

    @property
    def title(self) -> str:
        """What it is called among others of its kind."""
        return self.name if self.strategy.alone else f"{self.name} by {self.strategy.name}"

    @property
    def proper(self) -> bool:
        """Whether it is trained by the usual loss."""
        return self.strategy.name == PROPER

    @property
    def methods(self) -> str:
        """By which methods the models of the folds were trained, and how often."""
        if not self.strategy.alone:
            return self.strategy.name
        kept = [
            (fold.trained.method if fold.trained.verdict.followed else fold.trained.verdict.proxy)
            if fold.trained.verdict
            else "log loss"
            for fold in self.folds
        ]
        return ", ".join(f"{method} {count}" for method, count in Counter(kept).most_common())

    def add(self, trained: Trained, rows: Rows) -> None:
        """Take the model of one more fold."""
        self.folds.append(FoldModel(trained, rows, scores_in_double(trained.network, rows.x)))

    def held_out(self, folds: int | None = None, control: bool | None = None) -> HeldOut:
        """Return the pooled scores of the rows that the first folds leave out, by default all folds.

        They are standardised by fold if there are several. With `control`, scores are those of the models that
        followed cross-entropy (True), or of those that followed the loss (False), whichever was kept.
        """
        used = self.folds[:folds]
        given = [fold.scores if control is None else fold.trained.held_out[int(not control)] for fold in used]
        scores = [own.double() for own in given if own is not None]
        if len(self.folds) > 1:
            scores = [standardised(own, self.classes) for own in scores]
        weights = [fold.rows.w for fold in used if fold.rows.w is not None]
        return HeldOut(torch.cat(scores), torch.cat([f.rows.y for f in used]), torch.cat(weights) if weights else None)

    def judged(self, folds: int | None = None) -> HeldOut:
        """Return the scores by which the candidate is compared with others."""
        return self.held_out(folds)

    @property
    def rule(self) -> Rule | None:
        """How scores and columns of the metric become decision scores; None if scores decide."""
        return None

    def network(self) -> Scorer:
        """Return the model to be used: the average of those of the folds."""
        networks = [fold.trained.network for fold in self.folds]
        if len(networks) == 1:
            return networks[0]
        scales = [scale_of(fold.scores, self.classes) for fold in self.folds]
        centre, scale = (torch.stack([torch.atleast_1d(part) for part in parts]) for parts in zip(*scales, strict=True))
        return averaged(networks, centre, scale)

    def verdict(self, judge: Judge) -> Verdict | None:
        """Return how much following the loss gained over cross-entropy, on the held-out rows of all folds."""
        verdicts = [fold.trained.verdict for fold in self.folds if fold.trained.verdict is not None]
        if len(verdicts) < len(self.folds) or len(self.folds) == 1:
            return verdicts[0] if verdicts else None
        kept = sum(verdict.followed for verdict in verdicts)
        gain = error = math.nan
        if all(None not in fold.trained.held_out for fold in self.folds):
            control = self.held_out(control=True)
            followed = self.held_out() if kept else self.held_out(control=False)
            gain, error = control.loss(judge) - followed.loss(judge), control.error_against(followed, judge)
        return Verdict(kept > 0, gain, error, verdicts[0].proxy, kept, len(verdicts))


class RuleCandidate(Candidate):
    """The models of the usual loss, decided by a rule of their scores and the columns of the metric.

    It is compared with others by rules that were found without the rows that they judge.
    """

    @cached_property
    def rule(self) -> Rule | None:
        """The rule that is best on all held-out rows; None if that is the scores themselves."""
        rule = self._rule(super().held_out())
        return None if rule.is_plain else rule

    def _rule(self, rows: HeldOut) -> Rule:
        metric, form = self.folds[0].trained.judge, self.recipe.form
        return find_rule(metric, rows.scores, rows.y, rows.w, form=form)

    def held_out(self, folds: int | None = None, control: bool | None = None) -> HeldOut:
        """Return the decision scores of held-out rows, by the rule of all of them."""
        rows = super().held_out(folds, control)
        return rows if self.rule is None else rows._replace(scores=self._decided(self.rule, rows))

    def judged(self, folds: int | None = None) -> HeldOut:
        """Return decision scores of held-out rows, each part by the rule that is best on the others."""
        count = sum(len(fold.rows.y) for fold in self.folds[:folds])
        return _part(self._cross_fitted, torch.arange(len(self._cross_fitted.y)) < count)

    @cached_property
    def _cross_fitted(self) -> HeldOut:
        rows = super().held_out()
        part = torch.arange(len(rows.y)) % RULE_PARTS
        part = part[torch.randperm(len(part), generator=torch.Generator().manual_seed(0))]
        scores = torch.empty_like(rows.scores)
        for number in range(RULE_PARTS):
            own, rule = _part(rows, part == number), self._rule(_part(rows, part != number))
            decided = own.scores if rule.is_plain else self._decided(rule, own)
            scores[part == number] = decided / decided.std(correction=0).clamp(min=MIN_SPREAD)
        return rows._replace(scores=scores)

    def _decided(self, rule: Rule, rows: HeldOut) -> Tensor:
        names = self.folds[0].trained.judge.columns
        columns = {name: rows.y[:, 1 + place].numpy() for place, name in enumerate(names)}
        return torch.from_numpy(rule.apply(rows.scores.numpy(), columns))


def _part(rows: HeldOut, mask: Tensor) -> HeldOut:
    return HeldOut(rows.scores[mask], rows.y[mask], None if rows.w is None else rows.w[mask])


def scale_of(scores: Tensor, classes: bool) -> tuple[Tensor, Tensor]:
    """Return centre and scale of scores, `()` or `(outputs,)`; scores of several classes have a common scale only."""
    if classes:
        spread = (scores - scores.mean(-1, keepdim=True)).std(correction=0).expand(scores.shape[-1])
        return torch.zeros_like(spread), spread.clamp(min=MIN_SPREAD)
    return scores.mean(0), scores.std(0, correction=0).clamp(min=MIN_SPREAD)


def standardised(scores: Tensor, classes: bool) -> Tensor:
    """Return scores less their centre, in units of their scale."""
    centre, scale = scale_of(scores, classes)
    return (scores - centre) / scale


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
    """

    def __init__(self, candidates: Sequence[Candidate], folds: int, limit: float | None = None) -> None:
        self.candidates, self.count, self.limit = list(candidates), folds, limit
        self.interrupted = False

    def run(self, train: Callable[[Candidate, int, float | None], tuple[Trained, Rows]]) -> None:
        """Call `train(candidate, fold, seconds left)` for every candidate and fold, until the end or the limit."""
        begun = time.perf_counter()
        running = list(self.candidates)
        for fold in range(self.count):
            for candidate in running:
                left = None if self.limit is None else self.limit - (time.perf_counter() - begun)
                if left is not None and left <= 0 and any(c.folds for c in self.candidates):
                    self.interrupted = True
                    return
                since = time.perf_counter()
                trained, rows = train(candidate, fold, left)
                candidate.seconds += time.perf_counter() - since
                self.interrupted = trained.interrupted
                if not trained.interrupted or not any(c.folds for c in self.candidates):
                    candidate.add(trained, rows)
                if trained.interrupted:
                    return
            running = self._not_behind(running)

    def _not_behind(self, running: Sequence[Candidate]) -> list[Candidate]:
        """Return the candidates that are not surely behind the best so far, each beside the usual loss of its model."""
        if len(running) == 1:
            return list(running)
        trained = [candidate for candidate in running if candidate.strategy.name != RULE]
        first = min((candidate.held_out() for candidate in trained), key=lambda own: own.loss(self.judge))
        near = [candidate for candidate in trained if not self._is_behind(candidate, first)]
        models = {id(candidate.model) for candidate in near}
        cheap = (PROPER, RULE)
        kept = [each for each in running if each in near or (each.strategy.name in cheap and id(each.model) in models)]
        for candidate in running:
            if candidate not in kept and len(candidate.folds) < self.count:
                candidate.note = f"surely behind after {len(candidate.folds)} of {self.count} folds"
        return kept

    def _is_behind(self, candidate: Candidate, first: HeldOut) -> bool:
        own = candidate.held_out()
        gap = own.loss(self.judge) - first.loss(self.judge)
        return gap > 0 and gap > BEHIND * own.error_against(first, self.judge)

    @cached_property
    def judge(self) -> Judge:
        """The metric as candidates are judged by it; of a black box, what stands in for it."""
        first = next(candidate for candidate in self.candidates if candidate.folds)
        own = first.folds[0].trained.judge
        return Judge(own if first.recipe.form == "zero" else own.best, own)

    @cached_property
    def best(self) -> Candidate:
        """The candidate with the least loss on the rows left out by the folds that all of the last ones have.

        Of the strategies of a model, the usual loss is preferred unless another is better by some standard errors.
        """
        tried = [candidate for candidate in self.candidates if candidate.folds]
        if len(tried) == 1:  # a metric may be costly
            return tried[0]
        most = max(len(candidate.folds) for candidate in tried)
        last = [candidate for candidate in tried if len(candidate.folds) >= most - int(self.interrupted and most > 1)]
        common = min(len(candidate.folds) for candidate in last)
        by_model: dict[int, list[Candidate]] = {}
        for candidate in last:
            by_model.setdefault(id(candidate.model), []).append(candidate)
        chosen = [self._best_strategy(alike, common) for alike in by_model.values()]
        return min(chosen, key=lambda candidate: candidate.judged(common).loss(self.judge))

    def _best_strategy(self, alike: Sequence[Candidate], common: int) -> Candidate:
        """Return the best of the candidates of one model, the usual loss unless another is better than noise."""
        if self.judge.metric.columns:
            return self._simplest(alike, common)
        best = min(alike, key=lambda candidate: candidate.judged(common).loss(self.judge))
        usual = next((candidate for candidate in alike if candidate.proper), best)
        if usual is best:
            return best
        own, other = best.judged(common), usual.judged(common)
        gain = other.loss(self.judge) - own.loss(self.judge)
        return best if gain > MARGIN * other.error_against(own, self.judge) else usual

    def _simplest(self, alike: Sequence[Candidate], common: int) -> Candidate:
        """Return the last of the candidates that is better, beyond noise, than the one kept of those before it."""
        kept, *others = alike
        for candidate in others:
            own, other = candidate.judged(common), kept.judged(common)
            gain = other.loss(self.judge) - own.loss(self.judge)
            if gain > MARGIN_OF_MONEY * other.error_against(own, self.judge):
                kept = candidate
        return kept

    def verdict(self) -> Verdict | None:
        """Return by how much the chosen strategy, or else the best of the others, is better than the usual loss."""
        if self.best.strategy.alone:
            own = self.best.verdict(self.judge)
            return None if own is None else replace(own, unit=self.judge.unit)
        alike = [each for each in self.candidates if each.model is self.best.model and each.folds]
        usual = next((each for each in alike if each.proper), None)
        others = [self.best] if not self.best.proper else [each for each in alike if not each.proper]
        proxy, folds = proxy_name(self.judge.metric.task), len(self.best.folds)
        if usual is None or not others:
            rarest = self.judge.metric.task.rarest(self.best.held_out().y)
            note = f"{rarest} held-out rows of the rarer class are too few to choose by" if len(alike) == 1 else ""
            return Verdict(False, math.nan, math.nan, proxy, folds=folds, unit=self.judge.unit, note=note)
        most = max(len(each.folds) for each in others)  # one that was dropped has judged fewer rows
        others = [each for each in others if len(each.folds) == most]
        common = min(len(usual.folds), most)
        other = min(others, key=lambda each: each.judged(common).loss(self.judge))
        control, followed = usual.judged(common), other.judged(common)
        return Verdict(
            not self.best.proper,
            control.loss(self.judge) - followed.loss(self.judge),
            control.error_against(followed, self.judge),
            proxy,
            kept=0 if self.best.proper else folds,
            folds=folds,
            strategy=other.methods,
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
        known = {"model": candidate.name, "methods": candidate.methods}
        return {**known, "folds": len(candidate.folds), "seconds": candidate.seconds, "note": note}


def leaderboard(results: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return the records of a competition as a table."""
    names = ["model", "methods", "value", "behind", "standard_error", "folds", "seconds", "note"]
    table: pd.DataFrame = pd.DataFrame({name: [line[name] for line in results] for name in names})
    return table


def ranked(results: Sequence[dict[str, Any]], metric: Metric) -> list[str]:
    """Return what was chosen and how far the others are behind, a line each."""
    best, *others = results
    lines = [f"model {best['model']} was chosen: {metric.label} {best['value']:.4f} on held-out rows"]
    for line in others:
        known = line["behind"] == line["behind"]
        gap = f"behind by {line['behind']:.4f} (standard error {line['standard_error']:.4f})" if known else ""
        lines.append(f"model {line['model']}: {', '.join(part for part in (gap, line['note']) if part)}")
    return lines
