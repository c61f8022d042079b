"""Terms: what every level of every feature adds to the score of a linear or additive model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metricgrad.training.additive import Additive
from metricgrad.training.data import Rows
from metricgrad.training.knots import learn_knots

if TYPE_CHECKING:
    from metricgrad.estimators.classifier import MetricClassifier
    from metricgrad.estimators.regressor import MetricRegressor

Floats = NDArray[np.float64]
MAX_BAND_ROWS = 20_000
"""Rows that a band is computed from."""
DRAWS = 200
MIN_RIDGE = 1e-6
LINEAR_REACH = 2.0
"""Standard deviations on either side that a line is drawn for if there are no rows to look at."""
MAX_LINE_KNOTS = 8


@dataclass(frozen=True, eq=False)
class Term:
    """One feature: its levels, what each adds to the score, and how many rows have it.

    A number has a place for each level, and the level is all that is nearest to it; the contribution between two places
    is linear. Other features have only the names of their levels.

    Attributes
    ----------
    feature : str
        Its name.
    levels : tuple of str
        Names of the levels.
    places : ndarray of shape (levels,), optional
        Places of a number, in the units of the table, in order.
    values : ndarray of shape (1 + draws, levels)
        Contributions, and those of bootstrap draws if rows were given.
    share : ndarray of shape (levels,)
        Share of the rows; NaN if it is not known.
    missing : ndarray of shape (1 + draws,), optional
        Contribution of a missing cell, where there were any.
    missing_share : float
        Share of the rows in which the cell is missing.
    unseen : float, optional
        Contribution of a level that was not seen in training, or of a missing cell if none was.
    kind : {"number", "category", "boolean", "pair"}
        What the column is.
    """

    feature: str
    levels: tuple[str, ...]
    places: Floats | None
    values: Floats
    share: Floats
    missing: Floats | None = None
    missing_share: float = 0.0
    unseen: float | None = None
    kind: str = "number"

    @property
    def contribution(self) -> Floats:
        """What each level adds, `(levels,)`."""
        return np.asarray(self.values[0])

    def scaled(self, scale: float, centre: float) -> Term:
        """Return the term of a number in other units."""
        assert self.places is not None
        places = self.places * scale + centre
        return replace(self, places=places, levels=tuple(f"{place:.6g}" for place in places))


@dataclass(frozen=True, eq=False)
class Terms:
    """All terms of a model: its score is `base` and one contribution a term; at least 0 is positive."""

    base: float
    each: list[Term] = field(default_factory=list)

    def in_units(self, scale: float, centre: float) -> Terms:
        """Return the terms of a score that is multiplied by a scale and moved by a centre."""
        each = [replace(term, values=scale * term.values) for term in self.each]
        return Terms(scale * self.base + centre, each)

    def with_levels(self, separator: str) -> Terms:
        """Join one-hot features, named column, separator and level, to one term a column."""
        own: dict[str, list[Term]] = {}
        for term in self.each:
            own.setdefault(term.feature.partition(separator)[0] if term.kind == "number" else "", []).append(term)
        joined = [
            _joined_levels(name, parts, separator) if separator in parts[0].feature else parts[0]
            for name, parts in own.items()
            if name
        ]
        return Terms(self.base, joined + own.get("", []))


def _joined_levels(name: str, own: list[Term], separator: str) -> Term:
    """Return the term of a category: a level adds its own feature, and the others their zeros."""
    off = sum(value_at(term, 0.0) for term in own)
    values = np.column_stack([value_at(term, 1.0) - value_at(term, 0.0) for term in own]) + np.reshape(off, (-1, 1))
    share = np.array([float(term.share[-1]) for term in own])
    levels = tuple(term.feature.partition(separator)[2] for term in own)
    return Term(name, levels, None, values, share, unseen=float(np.ravel(off)[0]), kind="category")


def value_at(term: Term, place: float) -> Floats:
    """Return the contribution of a value of a yes-or-no feature, `(1 + draws,)`; linear, also beyond the places."""
    assert term.places is not None
    if len(term.places) < 2:
        return np.asarray(term.values[:, 0])
    low, high = float(term.places[0]), float(term.places[-1])
    return np.asarray(term.values[:, 0] + (place - low) / (high - low) * (term.values[:, -1] - term.values[:, 0]))


def body_as_additive(body: nn.Module, x: Tensor | None) -> Additive:
    """Return a linear or additive model as an additive one; other models have no terms."""
    if isinstance(body, Additive):
        return body
    if not isinstance(body, nn.Linear):
        raise ValueError(f"model: expected a linear or additive one, got {type(body).__name__}")
    features = body.in_features
    found = (
        [] if x is None else [learn_knots(column, np.ones(len(x)), MAX_LINE_KNOTS) for column in x.double().numpy().T]
    )
    places = [one.places for one in found] or [np.array([-LINEAR_REACH, LINEAR_REACH])] * features
    shares = [one.share for one in found] or [np.full(2, np.nan)] * features
    model = Additive(
        features, body.out_features, sizes={"knots": sum(map(len, places)), "pieces": 0, "cells": 0}
    ).double()
    model.encoding.source = torch.from_numpy(np.repeat(np.arange(features), [len(one) for one in places]))
    model.encoding.knots = torch.from_numpy(np.concatenate(places))
    model.encoding.share = torch.from_numpy(np.concatenate(shares))
    model.head = body
    return model


@torch.no_grad()
def terms_of(
    model: MetricClassifier | MetricRegressor, names: list[str], rows: Rows | None = None, band: bool = True
) -> Terms:
    """Return the terms of a fitted model of two classes or of numbers, in the units of its input.

    With rows, as the network takes them, levels of a linear model have their share and contributions bootstrap draws.
    """
    if model.network_.outputs is not None:
        raise ValueError(f"explain: expected a model of two classes, got one of {model.network_.outputs} outputs")
    if model.network_.parts:
        names_of = ", ".join(dict.fromkeys(str(part.name) for part in model.network_.parts))
        raise ValueError(
            f"model: expected a linear or additive one, got a mixture of {names_of}; model='readable' fits one to read"
        )
    body = body_as_additive(model.network_.body, None if rows is None else rows.x)
    encoding, weight = body.encoding, body.head.weight[0].double()
    draws = torch.zeros(0, len(weight), dtype=torch.float64)
    if rows is not None and band:
        draws = bootstrap(body, rows)
    weights = torch.cat((weight.unsqueeze(0), weight + draws)).T  # (columns, 1 + draws)
    at = torch.zeros(len(encoding.knots), encoding.features, dtype=torch.float64)
    at[torch.arange(len(at)), encoding.source] = encoding.knots
    own = torch.cat((torch.arange(encoding.features), encoding.source[encoding.start]))
    count = len(own)
    columns = encoding(at)[:, :count] * (own == encoding.source.unsqueeze(1))
    values = (columns @ weights[:count]).T.numpy()
    found = []
    for number, name in enumerate(names):
        places = np.flatnonzero(encoding.source.numpy() == number)
        std, share = encoding.knots.numpy()[places], encoding.share.numpy()[places]
        found.append(Term(name, tuple("" for _ in std), std, values[:, places], share))
    scaled = [term.scaled(float(s), float(c)) for term, s, c in zip(found, model.scale_, model.centre_, strict=True)]
    base = float(body.head.bias[0]) - float(getattr(model, "threshold_", 0.0))
    return Terms(base, scaled + _pair_terms(body, weights, names, model))


def _pair_terms(body: Additive, weights: Tensor, names: list[str], model: Any) -> list[Term]:
    """Return a term for every pair of features: a level for each cell of its grid."""
    encoding = body.encoding
    first = encoding.columns - len(encoding.pair)
    found = []
    for a, b in sorted({(int(a), int(b)) for a, b in encoding.pair}):
        mine = ((encoding.pair[:, 0] == a) & (encoding.pair[:, 1] == b)).nonzero()[:, 0]
        cuts = [encoding.cut[mine, side].unique() for side in (0, 1)]
        grid = torch.cartesian_prod(*(torch.cat((cut[:1] - 1, cut)) for cut in cuts))
        there = (grid.unsqueeze(1) >= encoding.cut[mine]).all(-1).double() - encoding.mean[first + mine]
        values = (there @ weights[first + mine]).T.numpy()
        texts = [
            [f"{names[n]} {text}" for text in _ranges(cut.numpy() * float(model.scale_[n]) + float(model.centre_[n]))]
            for n, cut in zip((a, b), cuts, strict=True)
        ]
        levels = tuple(f"{one}, {other}" for one in texts[0] for other in texts[1])
        share = np.full(len(levels), np.nan)
        found.append(Term(f"{names[a]} x {names[b]}", levels, None, values, share, kind="pair"))
    return found


def _ranges(cuts: Floats) -> list[str]:
    shown = [f"{cut:.6g}" for cut in cuts]
    return [
        f"< {shown[0]}",
        *(f"{low} to {high}" for low, high in pairwise(shown)),
        f">= {shown[-1]}",
    ]


@torch.no_grad()
def bootstrap(body: Additive, rows: Rows, draws: int = DRAWS, seed: int = 0) -> Tensor:
    """Return how weights differ between bootstrap samples of the rows, `(draws, columns)`, to first order.

    One Newton step of cross-entropy from the model, with rows weighted by Poisson draws, less that with rows as they
    are. The ridge is the one for which the model is nearest to being a minimum.
    """
    generator = torch.Generator().manual_seed(seed)
    count = len(rows.y)
    chosen = torch.randperm(count, generator=generator)[:MAX_BAND_ROWS]
    columns = body.design(rows.x[chosen].double())
    columns = torch.cat((columns, columns.new_ones(len(columns), 1)), 1)
    y = rows.y[chosen].double()
    y = y if y.ndim == 1 else y[:, 0]
    w = torch.ones_like(y) if rows.w is None else rows.w[chosen].double()
    w = w / w.sum()
    vector = torch.cat((body.head.weight[0], body.head.bias)).double()
    p = (columns @ vector).sigmoid()
    pull = torch.cat((body.penalty.double(), vector.new_zeros(1)))
    gradients = columns * (w * (p - y)).unsqueeze(1)
    ridge = -(gradients.sum(0) @ (pull * vector)) / (pull * vector).square().sum().clamp(min=1e-12)
    curvature = columns.T @ (columns * (w * p * (1 - p)).unsqueeze(1)) + torch.diag(
        max(float(ridge), MIN_RIDGE) * pull + 1e-9
    )
    times = torch.poisson(torch.ones(draws, len(y), dtype=torch.float64), generator=generator) - 1
    moved: Tensor = torch.linalg.solve(curvature, (times @ gradients).T).T
    shrunk: Tensor = moved[:, :-1] * -((len(y) / count) ** 0.5)
    return shrunk
