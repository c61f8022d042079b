"""The plug-in rule: which function of a calibrated probability and of the columns decides best by the true metric.

Cross-entropy aims at the probability of a row. Where rows are worth different amounts, or groups are judged apart, the
best decision is a simple function of that probability and the columns of the metric. It needs no training: it is
searched for on scores of rows that the model did not learn from, by the true metric.

| kind | score of a row |
|---|---|
| `plain` | the score of the model |
| `power` | log p + a log c, which ranks as p * c^a does |
| `linear` | p * (gain of calling a positive) + (1 - p) * (gain of calling a negative), both linear in the columns |

To each an offset by group may be added.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from metricgrad.metrics.metric import Metric
from metricgrad.training.calibration import Calibration
from metricgrad.training.judged_rows import Array, Columns, JudgedRows
from metricgrad.training.row_gains import row_gains
from metricgrad.training.selection import standard_error

KINDS = ("plain", "power", "linear")
POWERS = (0.25, 0.5, 0.75, 1.0, 1.5)
FACTORS = (0.5, 1.0, 2.0)
"""Of the second column of a pair."""
OFFSET_STEPS = (0.5, 0.2, 0.1)
OFFSET_MOVES = 4
"""Offsets are moved by up to so many steps at once, in units of the spread of the scores."""
PASSES = 3
"""Times that the offsets of all groups are looked through for each step."""
ERRORS_TO_PREFER = 2.0
"""Standard errors by which another rule, or plain scores, have to be better than what follows from the metric."""
ALL = ""
"""The name of the constant among linear gains."""


@dataclass(frozen=True)
class Rule:
    """A decision score as plain data.

    Parameters
    ----------
    kind : {"plain", "power", "linear"}
        Which function, see above.
    calibration : Calibration
        From scores to log-odds.
    column : str
        The column of a power.
    power, floor : float
        Its exponent, and what smaller amounts count as.
    positive, negative : mapping of str to float
        What calling a positive and a negative row gains, by column; the constant under the empty name.
    offsets : mapping of str to tuple of float
        What is added to the scores of the groups of a column, by their codes; to any other group nothing.
    gain, standard_error : float
        By how much its loss is lower than that of plain scores, on the rows it was found on; and of this difference.
    """

    kind: str = "plain"
    calibration: Calibration = field(default_factory=Calibration)
    column: str = ""
    power: float = 0.0
    floor: float = 0.0
    positive: Mapping[str, float] = field(default_factory=dict)
    negative: Mapping[str, float] = field(default_factory=dict)
    offsets: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    gain: float = 0.0
    standard_error: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Whether it leaves the order of the scores as it is."""
        return self.kind == "plain" and not self.offsets

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it must know of new rows."""
        gains = {*self.positive, *self.negative} - {ALL} if self.kind == "linear" else set()
        return tuple(sorted({*gains, *self.offsets, *([self.column] if self.kind == "power" else [])}))

    def apply(self, scores: Any, columns: Columns | None = None) -> Array:
        """Return the decision scores of rows.

        Parameters
        ----------
        scores : array-like of shape (n,)
            Raw scores of the model.
        columns : mapping of str to array-like of shape (n,), optional
            Numbers, or codes of groups, as the rule was found on.

        Returns
        -------
        ndarray of shape (n,)
            In double precision.
        """
        scores = np.asarray(scores, dtype=float)
        if self.is_plain:
            return np.asarray(scores)
        known = {name: np.asarray(column, float) for name, column in (columns or {}).items()}
        absent = [name for name in self.columns if name not in known]
        if absent:
            raise ValueError(f"columns: expected {', '.join(self.columns)}, got none of the name {absent[0]!r}")
        return self.decided(self.calibration.log_odds(scores), known)

    def decided(self, log_odds: Array, columns: Mapping[str, Array]) -> Array:
        """Return the decision scores of rows of known log-odds."""
        if self.kind == "power":
            found = -np.logaddexp(0, -log_odds) + self.power * np.log(np.maximum(columns[self.column], self.floor))
        elif self.kind == "linear":
            p = 1 / (1 + np.exp(-np.clip(log_odds, -700, 700)))
            found = p * _linear(self.positive, columns, len(p)) + (1 - p) * _linear(self.negative, columns, len(p))
        else:
            found = log_odds
        for name, offsets in self.offsets.items():
            codes = np.clip(columns[name], 0, len(offsets)).astype(int)
            found = found + np.append(np.asarray(offsets, float), 0.0)[codes]
        return np.asarray(found)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        data = asdict(self) | {"calibration": self.calibration.to_dict()}
        return data | {"offsets": {name: list(offsets) for name, offsets in self.offsets.items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Rule:
        """Build from the plain data of `to_dict`."""
        if data.get("kind") not in KINDS:
            raise ValueError(f"kind: expected one of {', '.join(KINDS)}, got {data.get('kind')!r}")
        offsets = {str(name): tuple(map(float, each)) for name, each in data["offsets"].items()}
        gains = {key: {str(n): float(v) for n, v in data[key].items()} for key in ("positive", "negative")}
        numbers = {key: float(data[key]) for key in ("power", "floor", "gain", "standard_error")}
        calibration = Calibration.from_dict(data["calibration"])
        return cls(data["kind"], calibration, str(data["column"]), offsets=offsets, **gains, **numbers)  # type: ignore[arg-type]

    def __str__(self) -> str:
        told = {
            "plain": "p",
            "power": f"p * {self.column}^{self.power:g}",
            "linear": f"p * ({_told(self.positive)}) + (1 - p) * ({_told(self.negative)})",
        }[self.kind]
        return " + ".join([told, *(f"offset by {name}" for name in self.offsets)])


def find_rule(
    metric: Metric, scores: Any, y: Any, w: Any = None, columns: Columns | None = None, *, form: str = "best"
) -> Rule:
    """Search for the decision score of the lowest true loss on rows that the model did not learn from.

    Parameters
    ----------
    metric : Metric
        The metric, of two classes; with its columns, if it has any.
    scores : array-like of shape (n,)
        Scores of the model, of folds that it was not trained on.
    y : array-like of shape (n,) or (n, 1 + columns)
        Targets of 0 and 1; with the columns of the metric after them, if `columns` is not given.
    w : array-like of shape (n,), optional
        How much each row counts.
    columns : mapping of str to array-like of shape (n,), optional
        Numbers, or codes of groups: those of the metric.
    form : {"best", "zero"}
        Whether a metric with a threshold is judged at the best one.

    Returns
    -------
    Rule
        What follows from the metric, unless another is better beyond noise: its gain may be a little below 0. Where
        nothing follows, the best of all tried, plain scores among them.

    Examples
    --------
    >>> from metricgrad import get_metric
    >>> rng = np.random.default_rng(0)
    >>> scores, amount = rng.normal(size=4000) - 2, np.exp(rng.normal(size=4000))
    >>> y = (rng.random(4000) < 1 / (1 + np.exp(-scores))).astype(int)
    >>> rule = find_rule(get_metric("value_at_capacity(0.05, amount)"), scores, y, columns={"amount": amount})
    >>> rule.columns
    ('amount',)
    """
    search = _Search.of(metric, scores, y, w, columns, form)
    plain = Tried(Rule(calibration=search.calibration), search.loss(search.scores))
    derived = [Tried(rule, search.loss_of(rule)) for rule in search.linearised()]
    others = [Tried(rule, search.loss_of(rule)) for rule in search.proposals()]
    best = min((plain, *derived, *others), key=lambda tried: tried.loss)
    if derived:
        # It decides best if probabilities are right, and many others are tried: one must be better beyond noise.
        first = min(derived, key=lambda tried: tried.loss)
        noise = ERRORS_TO_PREFER * search.error(first.rule, best.rule)
        best = best if first.loss - best.loss > noise else first
    for start in (plain, best) if best is not plain else (plain,):
        for name in search.group_columns:
            best = min(best, search.with_offsets(start, name), key=lambda tried: tried.loss)
    if best.rule.is_plain:
        return plain.rule
    error = search.error(plain.rule, best.rule)
    return replace(best.rule, gain=plain.loss - best.loss, standard_error=error)


# ---- the search ----------------------------------------------------------------------------------------------------


class Tried(NamedTuple):
    """A rule and its loss on the rows."""

    rule: Rule
    loss: float


class _Search(JudgedRows):
    """Rules tried on rows: powers and pairs of columns, what follows from the metric, and offsets by group."""

    def decided(self, rule: Rule) -> Array:
        """Return the decision scores of the rows, by log-odds that were fitted without them."""
        return self.scores if rule.is_plain else rule.decided(self.log_odds, self.columns)

    def loss_of(self, rule: Rule) -> float:
        decided = self.decided(rule)
        return self.loss(decided) if np.isfinite(decided).all() else np.inf

    def error(self, one: Rule, other: Rule) -> float:
        """Return the standard error of the difference between the losses of two rules."""
        first, second = (torch.from_numpy(self.decided(rule)) for rule in (one, other))
        return standard_error(self.judge, first, second, self.targets, self.weights)

    # ---- candidates ------------------------------------------------------------------------------------------------

    def proposals(self) -> Iterator[Rule]:
        """Yield other rules without offsets, the most likely first."""
        for name in self.amounts:
            amounts = self.columns[name]
            floor = 1e-6 * float(amounts.mean())
            for power in sorted(POWERS, key=lambda power: abs(power - 1)):
                yield Rule("power", self.calibration, name, power, floor)
        for one in self.amounts:
            yield from (self._pair(one, other, 1.0) for other in self.amounts if other != one)
        for one in self.amounts:
            for other in (*(name for name in self.amounts if name != one), ALL):
                yield from (self._pair(one, other, f) for f in FACTORS if f != 1 or other == ALL)

    def _pair(self, one: str, other: str, factor: float) -> Rule:
        """Return p * one - (1 - p) * factor * other; where the other is constant, of the size of the first."""
        size = float(self.columns[one].mean()) if other == ALL else 1.0
        return Rule("linear", self.calibration, positive={one: 1.0}, negative={other: -factor * size})

    def linearised(self) -> Iterator[Rule]:
        """Yield the rules of what calls gain to first order; of a metric with a bound, at several prices of it."""
        from metricgrad.metrics.bounds import PRICES, bound_of, priced  # with its modules only where one has columns

        for price in (1.0,) if bound_of(self.metric) is None else PRICES:
            yield from self._linearised(priced(self.metric, price))

    def _linearised(self, metric: Metric) -> Iterator[Rule]:
        """Yield the rules of what calls gain, at the calls of plain scores, then at their own."""
        rule = Rule(calibration=self.calibration)
        for _ in range(2):
            gains = row_gains(metric, self.calls(self.decided(rule)), self.log_odds, self.row_facts())
            if gains is None:
                return
            positive, negative = (self._linear_in_columns(each) for each in gains)
            if {*positive, *negative} <= {ALL}:  # ranks as the probability does
                return
            rule = Rule("linear", self.calibration, positive=positive, negative=negative)
            yield rule

    def _linear_in_columns(self, gains: Array) -> dict[str, float]:
        """Return the least-squares coefficients of gains, `(n,)`, in the amounts and a constant."""
        sizes = {name: float(self.columns[name].mean()) for name in self.amounts}
        design = np.column_stack([np.ones(len(gains)), *(self.columns[name] / sizes[name] for name in sizes)])
        found = np.linalg.lstsq(design, gains, rcond=None)[0]
        found[np.abs(found) < 1e-9 * np.abs(found).max(initial=0)] = 0.0
        named = {ALL: float(found[0])} | {n: float(c / sizes[n]) for n, c in zip(sizes, found[1:], strict=True)}
        return {name: value for name, value in named.items() if value}

    # ---- offsets by group ------------------------------------------------------------------------------------------

    def with_offsets(self, start: Tried, name: str) -> Tried:
        """Return a rule with offsets by the groups of a column, found group by group."""
        rule, least = start
        codes = self.columns[name].astype(int)
        base = rule.decided(self.log_odds, self.columns)
        spread, present = float(base.std()) or 1.0, np.unique(codes)
        free = sorted(present, key=lambda code: (codes == code).sum())[: len(present) if self._zero_matters else -1]
        offsets = np.zeros(int(present.max()) + 1)
        for step in OFFSET_STEPS:
            for _ in range(PASSES):
                before = least
                for code in free:
                    moves = step * spread * np.array([m for m in range(-OFFSET_MOVES, OFFSET_MOVES + 1) if m])
                    tried = [base + (offsets + move * (np.arange(len(offsets)) == code))[codes] for move in moves]
                    losses = self.losses(np.stack(tried))
                    if losses.min() < least:
                        least, offsets[code] = float(losses.min()), offsets[code] + moves[losses.argmin()]
                if least == before:
                    break
        found = {**rule.offsets, name: tuple(offsets.tolist())} if offsets.any() else rule.offsets
        return Tried(replace(rule, offsets=found), least)

    @property
    def _zero_matters(self) -> bool:
        return self.judge.thresholded


def _linear(gains: Mapping[str, float], columns: Mapping[str, Array], rows: int) -> Array:
    found = np.full(rows, float(gains.get(ALL, 0.0)))
    for name, gain in gains.items():
        if name != ALL:
            found = found + gain * columns[name]
    return found


def _told(gains: Mapping[str, float]) -> str:
    return " + ".join(f"{gain:.3g} {name}".strip() for name, gain in gains.items()) or "0"
