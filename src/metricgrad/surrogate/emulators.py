"""Emulators of black boxes: a Gaussian process over known quantities of a set, fitted to a few hundred calls.

The value of a function of labels depends only on the four confusion counts, unless it depends on the order of rows or
on chance. The value of a function of scores is mostly a smooth function of some points of the curves of a set. Both
are mostly known after a hundred calls. An emulator then costs no calls, and takes weights; one of labels covers every
threshold.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor, nn

from metricgrad.metrics.confusion import Confusion, at_zero, confusion_curve, ratio
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.thresholds import guided_lowest_loss
from metricgrad.surrogate.gaussian_process import GaussianProcess
from metricgrad.surrogate.network import Progress
from metricgrad.surrogate.synthetic import GROUP_SIZE, BroadSets, Sets, sets_for

CALLS_TO_FIT = 400
CALLS_SHARE = 0.4
"""Calls that an emulator is fitted to, and at most this share of what a run may take."""
MIN_EXPLAINED, MIN_EXPLAINED_OF_SCORES = 0.9, 0.7
"""Share of the variance of calls left out that has to be explained; chance leaves some of it, row order most.

An emulator of scores is compared with the function again on the sets of a model."""
ROWS_PER_SET = 400
"""As in the sets of the default recipe."""
SIZES = (100, 400, 400, 1000)
"""Rows of the sets that functions of scores are called on."""
THRESHOLDS_PER_SET = 64
"""Thresholds at which the lowest loss of a set is looked for, evenly spaced, and as many again at the top."""
TOP_SHARES = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.7)
FALSE_ALARM_RATES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
RECALLS = (0.5, 0.7, 0.8, 0.9, 0.95)
PRECISIONS = (0.5, 0.8, 0.9)
COSTS = (1.0, 4.0, 15.0)
"""Where the curves of a set are read: rows at the top, false alarms, recall, precision, costs of a miss."""


class Emulator(nn.Module):
    """A black box as a Gaussian process over the features of its sets.

    Parameters
    ----------
    features : int
        How many.
    bounded : bool
        Whether losses lie in [0, 1].
    least : float
        Share of the variance that has to be explained.
    """

    def __init__(self, features: int, bounded: bool, least: float) -> None:
        super().__init__()
        self.bounded, self.least = bounded, least
        self.process = GaussianProcess(features, GROUP_SIZE)

    @property
    def explained(self) -> float:
        """Share of the variance that it explains of losses left out, group by group."""
        return float(self.process.explained)

    @property
    def is_accurate(self) -> bool:
        """Whether it can replace the function."""
        return self.explained >= self.least

    def losses(self, features: Tensor) -> Tensor:
        """Return losses of features: `(..., f)` -> `(...)`."""
        losses: Tensor = self.process(features)
        return losses.clamp(0, 1) if self.bounded else losses


class CountEmulator(Emulator):
    """The loss of confusion counts, `(...)` -> `(...)`."""

    def __init__(self, bounded: bool) -> None:
        super().__init__(rates(Confusion(*torch.ones(4))).shape[-1], bounded, MIN_EXPLAINED)

    def forward(self, c: Confusion) -> Tensor:
        """Return the loss of counts."""
        return self.losses(rates(c))


class ScoreEmulator(Emulator):
    """The loss of a set of scores, `(..., n)` -> `(...)`; targets may have columns.

    Parameters
    ----------
    columns : int
        Columns of the targets after the label.
    bounded : bool
        Whether losses lie in [0, 1].
    """

    def __init__(self, columns: int, bounded: bool) -> None:
        targets = torch.ones(2, 1 + columns) if columns else torch.ones(2)
        features = curve_points(torch.zeros(2), targets, None).shape[-1]
        super().__init__(features, bounded, MIN_EXPLAINED_OF_SCORES)

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        """Return the loss of every set."""
        return self.losses(curve_points(scores, targets, weights))

    def add(self, scores: Tensor, targets: Tensor, weights: Tensor | None, losses: Tensor) -> None:
        """Fit to more calls, `(k, n)` and `(k,)`, such as those of the sets that a model makes."""
        self.process.add(curve_points(scores, targets, weights), losses)


# ---- what a set is known by ----------------------------------------------------------------------------------------


def rates(c: Confusion) -> Tensor:
    """Return rates that do not depend on the size of the set, and logarithms of some: `(...)` -> `(..., 18)`."""
    positives, negatives = c.tp + c.fn, c.fp + c.tn
    rows, called = positives + negatives, c.tp + c.fp
    found, alarmed = ratio(c.tp, positives), ratio(c.fp, negatives)
    precision, share = ratio(c.tp, called), ratio(positives, rows)
    plain = (
        *(found, alarmed, share, ratio(called, rows), precision, ratio(c.tn, c.tn + c.fn)),
        *(ratio(2 * c.tp, 2 * c.tp + c.fp + c.fn), ratio(c.tp, rows), ratio(c.fp, rows)),
        (called <= 0).to(found),
    )
    logarithms = (share, 1 - share, found, 1 - found, alarmed, 1 - alarmed, precision, ratio(called, rows))
    return torch.stack((*plain, *((rate.clamp(min=0) + 1e-3).log() / 3 for rate in logarithms)), -1)


def curve_points(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    """Return points of the curves of every set and areas under them: `(..., n)` -> `(..., f)`.

    For every column of the targets there are also the shares of its sum, over positives and over negatives, that the
    rows at the top hold.
    """
    labels = targets[..., 0] if targets.ndim > scores.ndim else targets
    c = confusion_curve(scores.double(), labels, weights)
    positives, negatives = c.classes
    rows, called, slack = positives + negatives, c.tp + c.fp, 1e-9
    recall, alarmed, precision = ratio(c.tp, positives), ratio(c.fp, negatives), ratio(c.tp, called)
    share = ratio(positives, rows)
    top = torch.cat([(called < part * rows - slack).sum(-1, keepdim=True) for part in TOP_SHARES], -1)
    top = top.clamp(max=called.shape[-1] - 1)
    calm = torch.cat([(alarmed <= rate + slack).sum(-1, keepdim=True) - 1 for rate in FALSE_ALARM_RATES], -1)
    at_top = recall.gather(-1, top)
    found = [
        *(at_top, at_top * share, precision.gather(-1, top), recall.gather(-1, calm)),
        *(precision.masked_fill(recall < least - slack, 0).amax(-1, keepdim=True) for least in RECALLS),
        *(recall.masked_fill(precision < least - slack, 0).amax(-1, keepdim=True) for least in PRECISIONS),
        *(ratio(cost * c.fn + c.fp, rows).amin(-1, keepdim=True) for cost in COSTS),
        ratio(2 * c.tp, 2 * c.tp + c.fp + c.fn).amax(-1, keepdim=True),
        (recall.diff() * precision[..., 1:]).sum(-1, keepdim=True),
        (alarmed.diff() * (recall[..., 1:] + recall[..., :-1])).sum(-1, keepdim=True) / 2,
        (recall - alarmed).amax(-1, keepdim=True),
        share,
        (share + 1e-3).log() / 3,
    ]
    for column in targets[..., 1:].unbind(-1) if targets.ndim > scores.ndim else ():
        weighted = confusion_curve(scores.double(), labels, column if weights is None else weights * column)
        of_positives, of_negatives = (
            ratio(part, whole) for part, whole in zip((weighted.tp, weighted.fp), weighted.classes, strict=True)
        )
        held = of_positives.gather(-1, top)
        found += [held, of_negatives.gather(-1, top), of_positives.gather(-1, calm), (held - at_top).abs()]
        found.append(ratio(weighted.classes[0], torch.cat(weighted.classes, -1).sum(-1, keepdim=True)))
    return torch.cat(found, -1)


# ---- fitting -------------------------------------------------------------------------------------------------------


def calls_to_fit(metric: Metric) -> int:
    """Return how many calls of a metric its emulator is fitted to."""
    most = int(CALLS_SHARE * metric.budget.max_calls) if metric.budget else CALLS_TO_FIT
    return min(CALLS_TO_FIT, most) // GROUP_SIZE * GROUP_SIZE


def new_emulator(metric: Metric) -> CountEmulator | ScoreEmulator:
    """Return an unfitted emulator as suits a metric."""
    if metric.thresholded:
        return CountEmulator(metric.bounded)
    return ScoreEmulator(len(metric.columns), metric.bounded)


def fit_emulator(metric: Metric, seed: int = 0, progress: Progress | None = None) -> CountEmulator | ScoreEmulator:
    """Call a metric on random sets, of labels at random thresholds, once each, and fit an emulator to the losses."""
    emulator, calls = new_emulator(metric), calls_to_fit(metric)
    features, losses = [], []
    if isinstance(emulator, CountEmulator):
        generator = torch.Generator().manual_seed(seed)
        for _ in range(calls // GROUP_SIZE):
            scores, targets, counts = random_cuts(GROUP_SIZE, generator)
            features.append(rates(counts))
            losses.append(metric(scores, targets).double())
            if progress:
                progress("calling the metric", len(losses) * GROUP_SIZE, calls)
    else:
        for drawn in called_sets(metric, seed):
            features.append(curve_points(*drawn))
            losses.append(metric(*drawn).double())
            if progress:
                progress("calling the metric", len(losses) * GROUP_SIZE, calls)
    emulator.process.fit(torch.cat(features), torch.cat(losses))
    return emulator


def called_sets(metric: Metric, seed: int = 0) -> Iterator[Sets]:
    """Draw the random sets that a metric of scores is called on, group by group; the same ones every time."""
    generator, source = torch.Generator().manual_seed(seed), sets_for(metric)
    for number in range(calls_to_fit(metric) // GROUP_SIZE):
        yield source(1, GROUP_SIZE, SIZES[number % len(SIZES)], generator)


def random_cuts(sets: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Confusion]:
    """Draw random sets, cut at a random number of true positives: scores, targets `(sets, n)`, counts."""
    drawn = BroadSets(weighted=False)(sets // GROUP_SIZE, GROUP_SIZE, ROWS_PER_SET, generator)
    scores = drawn.scores.double()
    curve = confusion_curve(scores, drawn.targets)
    # -1: nothing is called positive
    wanted = (torch.rand(sets, 1, generator=generator) * (curve.fn[:, :1] + 2)).floor() - 1
    cut = torch.where(wanted < 0, 0, (curve.tp <= wanted).sum(-1, keepdim=True).clamp(max=ROWS_PER_SET))
    counts = Confusion(*(column.gather(-1, cut)[..., 0] for column in curve))
    ranked = scores.sort(-1, descending=True).values
    least = ranked.gather(-1, ((counts.tp + counts.fp).long().unsqueeze(-1) - 1).clamp(min=0))
    nothing = (counts.tp + counts.fp <= 0).unsqueeze(-1)
    return torch.where(nothing, -1.0, scores - least), drawn.targets, counts


# ---- the metric with its emulator ----------------------------------------------------------------------------------


def emulated(metric: Metric, emulator: CountEmulator | ScoreEmulator) -> Metric:
    """Return a metric with its function replaced by an emulator: no calls, and with weights."""
    if isinstance(emulator, ScoreEmulator):
        return replace(metric, function=emulator, takes_weights=True, costly=False)
    return replace(
        metric,
        function=partial(at_zero, counts=emulator),
        counts=emulator,
        best_function=partial(at_best_of_some, counts=emulator),
        takes_weights=True,
        costly=False,
    )


def guided(metric: Metric, stand_in: Metric) -> Metric:
    """Return a metric with its emulated form beside it, which proposes the thresholds of one of labels."""
    lowest = metric.best_function
    if stand_in.counts is not None:
        lowest = partial(guided_lowest_loss, function=metric.function, guide=stand_in.counts)
    return replace(metric, stand_in=stand_in, best_function=lowest)


def at_best_of_some(scores: Tensor, targets: Tensor, weights: Tensor | None, counts: CountEmulator) -> Tensor:
    """Return the lowest loss over some thresholds, `(..., n)` -> `(...)`, more of them at the top of the ranking."""
    curve = confusion_curve(scores, targets, weights)
    cuts = _some_cuts(scores.shape[-1])
    losses: Tensor = counts(Confusion(*(column[..., cuts] for column in curve)))
    return losses.amin(-1)


def _some_cuts(rows: int) -> Tensor:
    """Return numbers of rows to call positive: evenly spaced, and by equal factors."""
    even = torch.linspace(0, rows, min(rows + 1, THRESHOLDS_PER_SET))
    factors = torch.logspace(0, math.log10(max(rows, 1)), min(rows + 1, THRESHOLDS_PER_SET))
    cuts: Tensor = torch.cat((even, factors)).round().long().clamp(max=rows).unique()
    return cuts
