"""Additive models: a sum of one piecewise-linear function a feature, and of a few steps over pairs of features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from metricgrad.training.columns import Encoding
from metricgrad.training.learned_columns import learn_encoding

MAX_BINS = 16
"""Bins of a number at most, where the user does not say."""
MAX_PREPARED_ROWS = 200_000
"""Rows that knots are learned from; more make no difference."""


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
        rows = rows_to_prepare(x)
        features, weights = x[rows].detach().cpu(), weights_of(rows, w)
        outputs = self.head.out_features
        if self.options.monotone and outputs > 1:
            raise ValueError(f"monotone: expected a model of one output, got {outputs}")
        targets = None if y is None else y[rows].cpu().double().reshape(len(rows), -1)[:, :outputs]
        self.encoding = learn_encoding(features, weights, targets, **self.options.as_dict())
        self.head = nn.Linear(self.encoding.columns, self.head.out_features)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.to(like.device, like.dtype)


def rows_to_prepare(x: Any) -> Tensor:
    """Return the numbers of the rows that knots are learned from."""
    rows = torch.arange(x.shape[0])
    if len(rows) > MAX_PREPARED_ROWS:
        rows = torch.linspace(0, len(rows) - 1, MAX_PREPARED_ROWS, dtype=torch.float64).round().long()
    return rows


def weights_of(rows: Tensor, w: Tensor | None) -> Tensor:
    """Return the weights of some rows, in double; ones if there are none."""
    return torch.ones(len(rows), dtype=torch.float64) if w is None else w[rows].detach().cpu().double()


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
