"""What competes: a kind of model trained by one strategy, fold by fold, with the rows that each fold leaves out."""

from __future__ import annotations

import math
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from metricgrad.estimators.metric_estimator import Trained, scores_in_double
from metricgrad.metrics.constants import Units, best_constant
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.regression import OF_ORDER
from metricgrad.strategies.proper import Proper
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
MIN_EVIDENCE = 30
"""Held-out rows of the rarer of two classes below which nothing but the usual loss is tried, and no models are mixed: a
choice would be one of chance."""
RULE_PARTS = 5
"""Parts of the held-out rows, each decided by a rule that was found on the others."""


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
    calls : int or None
        How often the true metric was evaluated on a set while it was trained, where that is counted.
    note : str
        Why it was trained on fewer folds than others, if it was.
    left_out : bool
        Whether it may not be chosen, because its surrogate was doubtful.
    mixed : bool
        Whether it is several others together.
    """

    mixed = False

    def __init__(self, model: Any, recipe: Recipe, strategy: Strategy, classes: bool = False) -> None:
        self.model, self.recipe, self.classes, self.strategy = model, recipe, classes, strategy
        self.folds: list[FoldModel] = []
        self.seconds, self.note, self.left_out = 0.0, "", False
        self.units: Units | None = None
        self.calls: int | None = None

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
        """Whether it is trained by the usual loss, and nothing else."""
        return isinstance(self.strategy, Proper)

    @property
    def kind(self) -> tuple[int, Units | None]:
        """What it shares with the candidates that differ from it by their strategy only."""
        return id(self.model), self.units

    @property
    def methods(self) -> str:
        """By which methods the models of the folds were trained, and how often."""
        if not self.strategy.alone:
            if len(self.kept_methods) == 1:
                return next(iter(self.kept_methods))
            if self.strategy.goes_on:  # other losses in other folds: "huber or pinball, longer"
                losses = sorted({str(fold.trained.method).partition(",")[0] for fold in self.folds})
                return f"{' or '.join(losses)}, {self.strategy.name}" if losses else self.strategy.name
            return self.strategy.name
        return ", ".join(f"{method} {count}" for method, count in self.kept_methods.most_common())

    @property
    def kept_methods(self) -> Counter[str]:
        """How many models of folds were kept by each method; none by several settings of one strategy."""
        if not self.strategy.alone:
            names = [fold.trained.method or self.strategy.name for fold in self.folds]
            return Counter(names if len(set(names)) == 1 else ())
        verdicts = [fold.trained.verdict for fold in self.folds]
        return Counter(
            "log loss" if verdict is None else fold.trained.method if verdict.followed else verdict.proxy
            for fold, verdict in zip(self.folds, verdicts, strict=True)
        )

    def add(self, trained: Trained, rows: Rows) -> None:
        """Take the model of one more fold."""
        self.folds.append(FoldModel(trained, rows, scores_in_double(trained.network, rows.x)))

    def held_out(self, folds: int | None = None, control: bool | None = None) -> HeldOut:
        """Return scores of the rows that the first folds leave out, as they are decided by; see `pooled`."""
        return self.pooled(folds, control)

    def pooled(self, folds: int | None = None, control: bool | None = None) -> HeldOut:
        """Return the pooled scores of the rows that the first folds leave out, by default all folds.

        With `control`, scores are those of the models that followed cross-entropy (True), or of those that followed
        the loss (False), whichever was kept.
        """
        used = self.folds[:folds]
        weights = [fold.rows.w for fold in used if fold.rows.w is not None]
        scores, y = torch.cat(self.fold_scores(folds, control)), torch.cat([fold.rows.y for fold in used])
        return HeldOut(scores, y, torch.cat(weights) if weights else None)

    def fold_scores(self, folds: int | None = None, control: bool | None = None) -> list[Tensor]:
        """Return the scores of the rows that each fold leaves out, standardised by fold if there are several."""
        used = self.folds[:folds]
        given = [fold.scores if control is None else fold.trained.held_out[int(not control)] for fold in used]
        scores = [own.double() for own in given if own is not None]
        if len(self.folds) == 1:
            return scores
        return [(own - centre) / scale for own in scores for centre, scale in [self.scale_of(own)]]

    def judged(self, folds: int | None = None) -> HeldOut:
        """Return the scores by which the candidate is compared with others."""
        return self.held_out(folds)

    @cached_property
    def slope(self) -> float:
        """What scores are multiplied by to be mixed with those of others: on held-out rows they are then log-odds."""
        from metricgrad.estimators.probabilities import log_odds_slope

        rows, task = self.pooled(), self.folds[0].trained.judge.task
        if task.name == "multilabel":  # each label has a spread of its own
            return 1.0
        y = rows.y[:, 0] if task.name == "columns" else rows.y
        return log_odds_slope(rows.scores.numpy(), y.numpy(), None if rows.w is None else rows.w.numpy())

    @property
    def rule(self) -> Rule | None:
        """How scores and columns of the metric become decision scores; None if scores decide."""
        return None

    def scale_of(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return what scores of a fold are centred and divided by before they are pooled and averaged."""
        return scale_of(scores, self.classes)

    def network(self) -> Scorer:
        """Return the model to be used: the average of those of the folds."""
        networks = [fold.trained.network for fold in self.folds]
        if len(networks) == 1:
            return networks[0]
        scales = [self.scale_of(fold.scores) for fold in self.folds]
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
        rule = self._rule(self.pooled())
        return None if rule.is_plain else rule

    def _rule(self, rows: HeldOut) -> Rule:
        metric, form = self.folds[0].trained.judge, self.recipe.form
        return find_rule(metric, rows.scores, rows.y, rows.w, form=form)

    def held_out(self, folds: int | None = None, control: bool | None = None) -> HeldOut:
        """Return the decision scores of held-out rows, by the rule of all of them."""
        rows = self.pooled(folds, control)
        return rows if self.rule is None else rows._replace(scores=self._decided(self.rule, rows))

    def judged(self, folds: int | None = None) -> HeldOut:
        """Return decision scores of held-out rows, each part by the rule that is best on the others."""
        count = sum(len(fold.rows.y) for fold in self.folds[:folds])
        return _part(self._cross_fitted, torch.arange(len(self._cross_fitted.y)) < count)

    @cached_property
    def _cross_fitted(self) -> HeldOut:
        rows = self.pooled()
        part = torch.arange(len(rows.y)) % RULE_PARTS
        part = part[torch.randperm(len(part), generator=torch.Generator().manual_seed(0))]
        scores = torch.empty_like(rows.scores)
        for number in range(RULE_PARTS):
            rule = self._rule(_part(rows, part != number))
            decided = rows.scores if rule.is_plain else self._decided(rule, rows)
            # The unit is the spread over all rows: that of a part may be due to one row with much money.
            unit = decided.std(correction=0).clamp(min=MIN_SPREAD)
            scores[part == number] = decided[part == number] / unit
        return rows._replace(scores=scores)

    def _decided(self, rule: Rule, rows: HeldOut) -> Tensor:
        names = self.folds[0].trained.judge.columns
        columns = {name: rows.y[:, 1 + place].numpy() for place, name in enumerate(names)}
        return torch.from_numpy(rule.apply(rows.scores.numpy(), columns))


class NumberCandidate(Candidate):
    """Models of numbers, in some units; they are judged in those of the targets, at their best constant.

    Parameters
    ----------
    model, recipe, strategy : Any, Recipe, Strategy
        As of any candidate.
    units : Units
        What it is trained in, the same in every fold.
    metric : Metric
        In the unit of the targets.
    """

    def __init__(self, model: Any, recipe: Recipe, strategy: Strategy, units: Units, metric: Metric) -> None:
        super().__init__(model, recipe, strategy)
        self.units, self.metric = units, metric
        self._judged: dict[int, HeldOut] = {}

    slope = 1.0

    def scale_of(self, scores: Tensor) -> tuple[Tensor, Tensor]:
        """Return that predictions stay as they are: they have a unit."""
        return torch.zeros(()), torch.ones(())

    def held_out(self, folds: int | None = None, control: bool | None = None) -> HeldOut:
        """Return predictions of held-out rows, in the unit of the targets."""
        rows = self.pooled(folds, control)
        assert self.units is not None
        return rows._replace(scores=self.units.to_targets(rows.scores))

    def judged(self, folds: int | None = None) -> HeldOut:
        """Return these predictions with the constant that is best for them: a factor of logarithms, else a shift.

        By a metric of their order they are standardised by fold: a loss of order says nothing of their level.
        """
        count = len(self.folds[:folds])
        if count not in self._judged and self.metric.name in OF_ORDER:
            scores = self.fold_scores(folds)
            own = [(each - mean) / size for each in scores for mean, size in [scale_of(each, classes=False)]]
            self._judged[count] = self.held_out(folds)._replace(scores=torch.cat(own))
        if count not in self._judged:  # a metric may be costly
            rows = self.held_out(folds)
            assert self.units is not None
            constant = best_constant(self.metric, *rows, kind=self.units.kind)
            self._judged[count] = rows._replace(scores=torch.from_numpy(constant.apply(rows.scores.numpy())))
        return self._judged[count]


def _part(rows: HeldOut, mask: Tensor) -> HeldOut:
    return HeldOut(rows.scores[mask], rows.y[mask], None if rows.w is None else rows.w[mask])


def scale_of(scores: Tensor, classes: bool) -> tuple[Tensor, Tensor]:
    """Return centre and scale of scores, `()` or `(outputs,)`; scores of several classes have a common scale only."""
    if classes:
        spread = (scores - scores.mean(-1, keepdim=True)).std(correction=0).expand(scores.shape[-1])
        return torch.zeros_like(spread), spread.clamp(min=MIN_SPREAD)
    return scores.mean(0), scores.std(0, correction=0).clamp(min=MIN_SPREAD)
