"""Additive models: a sum of one piecewise-linear function a feature, and of a few steps over pairs of features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

if TYPE_CHECKING:
    from metricgrad.training.knots import Knots

MAX_BINS = 16
"""Bins of a number at most, where the user does not say."""
MAX_PREPARED_ROWS = 200_000
"""Rows that knots are learned from; more make no difference."""
PIECE_PENALTY, PAIR_PENALTY = 10.0, 10.0
"""Ridge weight of the rise over a bin, and of a cell of a pair, relative to that of a standardised number."""
PAIR_CUTS, MAX_PAIR_ROWS = 3, 20_000
"""Cuts of a feature in a pair at most, and rows by which pairs are chosen."""
PAIR_RIDGE, NEWTON_STEPS = 1e-3, 5
"""Of the model of single features whose residuals pairs are chosen by."""
ROWS_AT_ONCE = 16_384
"""Rows whose columns are in memory at a time while they are prepared."""
FAR = 1e30
"""Outer knots of a feature before any are learned."""


class Encoding(nn.Module):
    """Columns of an additive model: every feature, clipped; a ramp for every bin; a step for every cell of a pair.

    A ramp is 0 up to the left knot of its bin, 1 from the right knot on and linear between, so that its weight is a
    difference of the shape function beside the linear one, and ridge shrinks the shape towards a line. A feature of
    two values has no bins. Missing values count as 0, the mean of a standardised feature. All columns have mean 0 on
    the training rows.

    Attributes
    ----------
    source : Tensor of shape (knots,)
        The feature of every knot, in order.
    knots : Tensor of shape (knots,)
        Knots of every feature, in order; beyond the outer ones its shape function is constant.
    share : Tensor of shape (knots,)
        Share of the training rows that are nearest to each knot.
    start : Tensor of shape (pieces,)
        The left knot of every ramp, by its number.
    pair, cut : Tensor of shape (cells, 2)
        Two features, and where each has its step; the column is 1 where both are at least there.
    mean, penalty : Tensor of shape (columns,)
        Means on training rows, and relative ridge weights.
    sign : Tensor of shape (features,)
        1 where the score may only rise with a feature, -1 where it may only fall, else 0.
    """

    source: Tensor
    knots: Tensor
    share: Tensor
    start: Tensor
    pair: Tensor
    cut: Tensor
    mean: Tensor
    penalty: Tensor
    sign: Tensor

    def __init__(self, features: int, knots: int | None = None, pieces: int = 0, cells: int = 0) -> None:
        super().__init__()
        count = 2 * features if knots is None else knots
        columns = features + pieces + cells
        self.register_buffer("source", torch.arange(count) // 2)
        self.register_buffer("knots", FAR * (2.0 * (torch.arange(count) % 2) - 1))
        self.register_buffer("share", torch.full((count,), 0.5))
        self.register_buffer("start", torch.zeros(pieces, dtype=torch.int64))
        self.register_buffer("pair", torch.zeros(cells, 2, dtype=torch.int64))
        self.register_buffer("cut", torch.zeros(cells, 2))
        self.register_buffer("mean", torch.zeros(columns))
        self.register_buffer("penalty", torch.ones(columns))
        self.register_buffer("sign", torch.zeros(features, dtype=torch.int64))

    @property
    def columns(self) -> int:
        """Number of columns."""
        return len(self.mean)

    @property
    def features(self) -> int:
        """Number of features."""
        return len(self.sign)

    def outer(self) -> tuple[Tensor, Tensor]:
        """Return the first and the last knot of every feature, `(features,)` each."""
        each = torch.arange(self.features, device=self.source.device)
        first, after = (torch.searchsorted(self.source, each, right=right) for right in (False, True))
        return self.knots[first], self.knots[after - 1]

    def forward(self, x: Tensor) -> Tensor:
        """Return the columns of rows: `(n, features)` -> `(n, columns)`."""
        x = x.nan_to_num(0.0)
        left, right = self.knots[self.start], self.knots[self.start + 1]
        ramps = ((x[:, self.source[self.start]] - left) / (right - left)).clamp_(0, 1)
        parts = [x.clamp(*self.outer()), ramps]
        if len(self.pair):
            there = x[:, self.pair] >= self.cut  # (n, cells, 2)
            parts.append(there.all(-1).to(x.dtype))
        return torch.cat(parts, 1) - self.mean

    def largest(self, x: Tensor) -> Tensor:
        """Return the largest absolute value of every column, `(columns,)`, given those of the features."""
        low, high = self.outer()
        reached = torch.maximum(low.abs(), high.abs()).minimum(x)
        return torch.cat((reached, x.new_ones(self.columns - self.features))) + self.mean.abs()

    def bounds(self) -> Tensor | None:
        """Return the least and greatest weight of every column, `(columns, 2)`; None if none is bounded.

        A shape function only rises if its linear column and all of its ramps have weights of at least 0. Features that
        may only rise or fall are in no pair.
        """
        if not bool(self.sign.any()):
            return None
        signs = torch.cat((self.sign, self.sign[self.source[self.start]], self.sign.new_zeros(len(self.pair))))
        wide = torch.full((self.columns,), torch.inf, dtype=self.mean.dtype, device=self.mean.device)
        return torch.stack((torch.where(signs > 0, 0.0, -wide), torch.where(signs < 0, 0.0, wide)), 1)

    def check(self) -> None:
        """Refuse buffers, such as those of a forged file, that do not belong together."""
        ends = self.start + 1
        rising = bool((self.knots.diff() > 0)[self.source.diff() == 0].all())
        if not (rising and torch.equal(self.source.unique(), torch.arange(self.features))):
            raise ValueError("encoding: expected knots of every feature in order, got others")
        if not bool((self.source.diff() >= 0).all()):
            raise ValueError("encoding.source: expected features in order, got others")
        inside = bool(((self.start >= 0) & (ends < len(self.knots))).all())
        if not inside or not torch.equal(self.source[self.start], self.source[ends]):
            raise ValueError("encoding.start: expected knots that have a next one of the same feature, got others")
        if not bool(((self.pair >= 0) & (self.pair < self.features)).all()):
            raise ValueError(f"encoding.pair: expected features below {self.features}, got others")


class Additive(nn.Module):
    """A model that is linear in fixed columns of the features: `(n, features)` -> `(n, outputs)`.

    Until `prepare` has learned knots from training rows, it is a linear model.

    Parameters
    ----------
    features, outputs : int
        Numbers of features and outputs.
    options : AdditiveOptions, optional
        Bins, pairs and monotone features.
    sizes : mapping of str to int, optional
        Sizes of a model that was prepared: `knots`, `pieces` and `cells`.
    """

    def __init__(
        self,
        features: int,
        outputs: int = 1,
        options: AdditiveOptions | None = None,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__()
        self.options = options or AdditiveOptions()
        self.encoding = Encoding(features, **(sizes or {}))
        self.head = nn.Linear(self.encoding.columns, outputs)

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of what was learned, from which an empty model of the same shapes can be built."""
        return {name: len(getattr(self.encoding, buffer)) for name, buffer in SIZES.items()}

    @property
    def penalty(self) -> Tensor:
        """Relative ridge weight of every column, `(columns,)`."""
        return self.encoding.penalty

    @property
    def bounds(self) -> Tensor | None:
        """Least and greatest weight of every column, `(columns, 2)`; None if none is bounded."""
        return self.encoding.bounds()

    def design(self, x: Tensor) -> Tensor:
        """Return the columns that the model is linear in: `(n, features)` -> `(n, columns)`."""
        columns: Tensor = self.encoding(x)
        return columns

    def forward(self, x: Tensor) -> Tensor:
        """Score rows: `(n, features)` -> `(n, outputs)`."""
        scores: Tensor = self.head(self.design(x))
        return scores

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Take the state of any additive model of the same features and outputs, whatever its knots."""
        sizes = {name: len(state_dict[f"encoding.{buffer}"]) for name, buffer in SIZES.items()}
        if sizes != self.sizes:
            like = self.head.weight
            fresh = Additive(self.encoding.features, self.head.out_features, self.options, sizes)
            fresh.to(like.device, like.dtype)
            self.encoding, self.head = fresh.encoding, fresh.head
        return super().load_state_dict(state_dict, strict, assign)

    @torch.no_grad()
    def project(self) -> None:
        """Put weights that a monotone feature forbids to 0."""
        bounds = self.bounds
        if bounds is not None:
            self.head.weight.clamp_(*bounds.unbind(1))

    @torch.no_grad()
    def prepare(self, x: Any, w: Tensor | None = None, y: Tensor | None = None) -> None:
        """Learn knots, and with targets the best pairs, from training rows; all weights are then 0.

        Parameters
        ----------
        x : Tensor of shape (rows, features)
            Features as the model will get them, or what stands in for them.
        w : Tensor of shape (rows,), optional
            Weights.
        y : Tensor of shape (rows,) or (rows, outputs), optional
            Targets, needed for pairs only.
        """
        like = self.head.weight
        rows = torch.arange(x.shape[0])
        if len(rows) > MAX_PREPARED_ROWS:
            rows = torch.linspace(0, len(rows) - 1, MAX_PREPARED_ROWS, dtype=torch.float64).round().long()
        features = x[rows].detach().cpu()
        weights = torch.ones(len(rows), dtype=torch.float64) if w is None else w[rows].detach().cpu().double()
        outputs = self.head.out_features
        if self.options.monotone and outputs > 1:
            raise ValueError(f"monotone: expected a model of one output, got {outputs}")
        targets = None if y is None else y[rows].cpu().double().reshape(len(rows), -1)[:, :outputs]
        self.encoding = learn_encoding(features, weights, targets, self.options)
        self.head = nn.Linear(self.encoding.columns, self.head.out_features)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.to(like.device, like.dtype)


SIZES = {"knots": "knots", "pieces": "start", "cells": "pair"}
"""Sizes of an encoding, and the buffers that have them."""


@dataclass(frozen=True)
class AdditiveOptions:
    """An additive model with options, to be given as `model`; see `additive`."""

    bins: int = MAX_BINS
    interactions: int = 0
    monotone: Mapping[Any, int] | None = None
    name: ClassVar[str] = "additive"

    def as_dict(self) -> dict[str, Any]:
        """Return the options as plain data."""
        return {"bins": self.bins, "interactions": self.interactions, "monotone": self.monotone}

    def with_numbers(self, names: Iterable[str]) -> AdditiveOptions:
        """Return the options with numbers of features instead of their names."""
        place = {str(name): number for number, name in enumerate(names)}
        unknown = [name for name in self.monotone or () if isinstance(name, str) and name not in place]
        if unknown:
            known = ", ".join(list(place)[:8]) or "numbers, since the features have no names"
            raise ValueError(f"monotone: expected features of the table ({known}), got {unknown[0]!r}")
        return replace(self, monotone={place.get(n, n): sign for n, sign in (self.monotone or {}).items()} or None)

    def __call__(self, features: int, outputs: int = 1) -> Additive:
        """Build the model, not prepared yet."""
        return Additive(features, outputs, self)


def additive(bins: int = MAX_BINS, interactions: int = 0, monotone: Mapping[Any, int] | None = None) -> AdditiveOptions:
    """Return an additive model with options, for `model=` of an estimator; the name `"additive"` has the defaults.

    Parameters
    ----------
    bins : int
        Bins of a number at most; fewer rows have fewer.
    interactions : int
        How many pairs of features to add: those that explain most of what single features leave.
    monotone : mapping of str or int to {1, -1}, optional
        Features, by name or number, with which the score of the positive class may only rise (1) or fall (-1).

    Returns
    -------
    AdditiveOptions

    Examples
    --------
    >>> additive(bins=8, monotone={"age": 1})
    AdditiveOptions(bins=8, interactions=0, monotone={'age': 1})
    """
    for name, value, least in (("bins", bins, 2), ("interactions", interactions, 0)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
            raise ValueError(f"{name}: expected an integer of at least {least}, got {value!r}")
    for feature, sign in (monotone or {}).items():
        if sign not in (1, -1):
            raise ValueError(f"monotone: expected 1 or -1 for {feature!r}, got {sign!r}")
    return AdditiveOptions(int(bins), int(interactions), dict(monotone) if monotone else None)


# ---- what is learned from training rows ----------------------------------------------------------------------------


def learn_encoding(x: Tensor, w: Tensor, y: Tensor | None, options: AdditiveOptions) -> Encoding:
    """Learn the columns of an additive model from training rows, `(rows, features)`."""
    from metricgrad.training.knots import bins_for, learn_knots  # loading a model needs none

    signs = monotone_signs(options.monotone, x.shape[1])
    bins = bins_for(int((w > 0).sum()), options.bins)
    learned = [learn_knots(values, w.numpy(), bins) for values in x.double().numpy().T]
    counts = np.array([len(one.places) for one in learned])
    firsts = np.cumsum(counts) - counts
    starts = [first + np.arange(count - 1) for first, count in zip(firsts, counts, strict=True) if count > 2]
    start = np.concatenate(starts) if starts else np.zeros(0, np.int64)
    encoding = Encoding(x.shape[1], int(counts.sum()), len(start)).double()
    encoding.source = torch.from_numpy(np.repeat(np.arange(len(counts)), counts))
    encoding.knots = torch.from_numpy(np.concatenate([one.places for one in learned]))
    encoding.share = torch.from_numpy(np.concatenate([one.share for one in learned]))
    encoding.start, encoding.sign = torch.from_numpy(start.astype(np.int64)), torch.from_numpy(signs)
    encoding.penalty[x.shape[1] :] = PIECE_PENALTY
    encoding.mean = _means(encoding, x, w)
    if options.interactions and y is not None:
        _add_pairs(encoding, learned, x, w, y, options.interactions)
    return encoding


def _add_pairs(encoding: Encoding, learned: Sequence[Knots], x: Tensor, w: Tensor, y: Tensor, most: int) -> None:
    """Add the cells of the best pairs of features; monotone features are in none."""
    from metricgrad.training.knots import best_pairs, pair_cuts

    free = (encoding.sign == 0).tolist()
    cuts = [pair_cuts(one, PAIR_CUTS) if usable else np.zeros(0) for one, usable in zip(learned, free, strict=True)]
    some = torch.linspace(0, len(x) - 1, min(MAX_PAIR_ROWS, len(x)), dtype=torch.float64).round().long()
    x, w, y = x[some].double(), w[some], y[some]
    steps = [_after_main_effects(encoding, x, w, targets) for targets in y.T]
    codes = [np.searchsorted(cut, column, side="right") for cut, column in zip(cuts, x.numpy().T, strict=True)]
    pairs = best_pairs(codes, cuts, [(slope.numpy(), curve.numpy()) for slope, curve in steps], most)
    grids = [(pair.first, pair.second, c, d) for pair in pairs for c in pair.cuts[0] for d in pair.cuts[1]]
    table = torch.tensor(grids, dtype=torch.float64).reshape(-1, 4)
    encoding.pair, encoding.cut = table[:, :2].long(), table[:, 2:]
    encoding.penalty = torch.cat((encoding.penalty, encoding.penalty.new_full((len(table),), PAIR_PENALTY)))
    encoding.mean = encoding.mean.new_zeros(len(encoding.penalty))
    encoding.mean = _means(encoding, x, w)


def _after_main_effects(encoding: Encoding, x: Tensor, w: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return gradient and curvature of cross-entropy by row, once single features are fitted by Newton steps."""
    columns = torch.cat((encoding(x), x.new_ones(len(x), 1)), 1)
    ridge = PAIR_RIDGE * torch.cat((encoding.penalty, x.new_zeros(1))) + 1e-9
    w, weights = w / w.sum(), x.new_zeros(columns.shape[1])
    low, high = float(y.min()), float(y.max())
    y = (y - low) / max(high - low, 1e-12)  # grades of a ranking are ordered too
    for _ in range(NEWTON_STEPS):
        p = (columns @ weights).sigmoid()
        curve = columns.T @ (columns * (w * p * (1 - p)).unsqueeze(1)) + torch.diag(ridge)
        weights = weights - torch.linalg.solve(curve, columns.T @ (w * (p - y)) + ridge * weights)
    p = (columns @ weights).sigmoid()
    return w * (p - y), w * p * (1 - p)


def _means(encoding: Encoding, x: Tensor, w: Tensor) -> Tensor:
    """Return the mean of every column, `(columns,)`, some rows at a time."""
    total = torch.zeros(encoding.columns, dtype=torch.float64)
    encoding.mean = torch.zeros_like(total)
    for rows, weights in zip(x.split(ROWS_AT_ONCE), w.split(ROWS_AT_ONCE), strict=True):
        total += weights @ encoding(rows.double())
    return total / w.sum()


def monotone_signs(monotone: Mapping[Any, int] | None, features: int) -> NDArray[np.int64]:
    """Return the sign of every feature, `(features,)`; features are given by number here."""
    signs = np.zeros(features, np.int64)
    for feature, sign in (monotone or {}).items():
        if isinstance(feature, str) or not 0 <= feature < features:
            raise ValueError(f"monotone: expected a feature's name or a number below {features}, got {feature!r}")
        signs[feature] = sign
    return signs
