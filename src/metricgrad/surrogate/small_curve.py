"""What `small_sets.py` needs of surrogates with attention: the tokens of a soft curve, and their gradient, in numpy."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from metricgrad.surrogate.soft_curve import EPSILON, LOWEST, TOKEN, TOP_NEGATIVES

Array = NDArray[Any]


class Attention(NamedTuple):
    """Attention over the thresholds of every set, `(k, t)`, and the value of each of them less that of the set."""

    weights: Array
    values: Array


def curve_rates(g: Any, position: Array, classes: Array) -> tuple[Array, Array]:
    """Return the rates above the thresholds of each set, `(k, 2, t)`, and the slope of every row at each of them."""
    with torch.no_grad():
        centres, sharpness = _placed_thresholds(position, classes, g.levels.numpy()), g.sharpness.numpy()
        rows = torch.from_numpy(position * sharpness).unsqueeze(-1)
        steps = torch.sub(rows, torch.from_numpy(centres * sharpness).unsqueeze(-2)).sigmoid_()
        above = classes @ steps.numpy()
        steps.addcmul_(steps, steps, value=-1)
    return above, steps.numpy()


def _placed_thresholds(position: Array, classes: Array, levels: Array) -> Array:
    """Return what `placed_thresholds` does, set by set: `(k, n)`, `(k, 2, n)`, `(t,)` -> `(k, t)`."""
    centres = np.empty((len(position), len(levels)), position.dtype)
    per_log = 1 / np.log1p(1 / TOP_NEGATIVES)
    for number, (scores, (positive, negative)) in enumerate(zip(position, classes, strict=True)):
        present = positive + negative > 0
        if not present.all():
            scores = np.where(present, scores, np.where(present, scores, LOWEST).max())
        order = np.argsort(-scores)
        ordered = scores[order]
        masses = negative[order].cumsum()
        masses *= 1 / TOP_NEGATIVES
        np.log1p(masses, out=masses)
        masses *= per_log
        masses += positive[order].cumsum()
        span = max(ordered[0] - ordered[-1], EPSILON)
        way = (ordered[0] - ordered) * (2 / span)
        place = np.minimum(np.searchsorted(masses + way, levels), len(scores) - 1)
        before = np.where(place > 0, masses[place - 1], 0) + way[place]
        centres[number] = ordered[place] + np.maximum(before - levels, 0) * (span / 2)
    return centres


def tokens_of(above: Array, shares: Array) -> Array:
    """Return what h gets of the rates above thresholds, `(k, 2, t)`, and the shares of the classes, `(k, 2, 1)`."""
    sets, _, thresholds = above.shape
    tokens = np.empty((sets, TOKEN, thresholds), above.dtype)
    odds = np.log(np.maximum(shares, EPSILON))
    tokens[:, 0] = np.minimum(np.maximum(odds[:, 0] - odds[:, 1], -8), 8) / 4
    masses = shares * above
    called = masses.sum(1)
    tokens[:, 1:3], tokens[:, 5] = above, called
    np.subtract(1, above, out=tokens[:, 3:5])
    rates = tokens[:, 1:6]
    np.log(np.maximum(rates, 0) + above.dtype.type(1e-4), out=rates)
    rates /= 4
    np.divide(masses[:, 0], called + above.dtype.type(1e-6), out=tokens[:, 6])
    return np.ascontiguousarray(tokens.transpose(0, 2, 1)).reshape(sets, -1)


def rates_gradient(above: Array, shares: Array, gradient: Array) -> Array:
    """Return the gradient of the rates above thresholds, `(k, 2, t)`, given that of the tokens, `(k, t * 7)`."""
    of_tokens = gradient.reshape(len(above), -1, TOKEN).transpose(0, 2, 1)
    masses = shares * above
    called = masses.sum(1, keepdims=True)
    rates = np.concatenate((above, 1 - above, called), 1)
    slopes = of_tokens[:, 1:6] * (rates >= 0)
    slopes /= 4 * (np.maximum(rates, 0) + 1e-4)
    total = called + 1e-6
    of_precision = of_tokens[:, 6:] / (total * total)
    of_masses = slopes[:, 4:] - of_precision * masses[:, :1]
    of_masses = np.concatenate((of_masses + of_precision * total, of_masses), 1)
    of_rates: Array = slopes[:, :2] - slopes[:, 2:4] + shares * of_masses
    return of_rates


def attended(outputs: Array, scale: float, thresholds: int) -> tuple[Array, Attention]:
    """Return the raw losses of sets, `(k,)`, given value and logit of every threshold, `(k * t, 2)`."""
    value, logit = outputs.reshape(-1, thresholds, 2).transpose(2, 0, 1)
    weights = np.exp(scale * (logit - logit.max(1, keepdims=True)))
    weights /= weights.sum(1, keepdims=True)
    raw: Array = np.einsum("kt,kt->k", weights, value)
    return raw, Attention(weights, value - raw[:, None])


def attention_gradient(attention: Attention, gradient: Array, scale: float) -> Array:
    """Return the gradient of value and logit of every threshold, `(k * t, 2)`, given that of raw losses, `(k,)`."""
    of_value = attention.weights * gradient[:, None]
    return np.stack((of_value, scale * of_value * attention.values), -1).reshape(-1, 2)
