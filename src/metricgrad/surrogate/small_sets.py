"""A surrogate on small sets in numpy: its losses, with the gradients of scores and of weights written out.

On a set of a few hundred rows the arithmetic is so small that the number of operations decides how long a step takes,
and an operation of torch takes several times as long as one of numpy, its gradient once more. The formulas are those of
`Surrogate`, which everything else uses, and which tests compare these with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricgrad.surrogate.network import ATTENTION_SCALE, Surrogate
from metricgrad.surrogate.pooling import GRID_ROWS
from metricgrad.surrogate.small_curve import (
    Attention,
    attended,
    attention_gradient,
    curve_rates,
    rates_gradient,
    tokens_of,
)
from metricgrad.surrogate.standardising import EPSILON

Array = NDArray[Any]
MAX_CELLS = 1 << 16
"""Rows of all sets together up to which numpy is faster."""


class Pooled(NamedTuple):
    """Pooled features of sets, `(k, q)`, and what the gradient of their scores needs."""

    features: Array
    classes: Array
    both: Array
    centred: Array
    per_spread: Array
    stretched: Array
    slopes: Array
    above: Array
    shares: Array


def is_small(surrogate: Surrogate, scores: Tensor) -> bool:
    """Whether sets of these scores, `(..., n)`, are small and their surrogate is of the kind written out here."""
    config, rows = surrogate.config, scores.shape[-1]
    usual = config.view == "rows" and not config.g and config.standardise in ("shift", "scale")
    return (
        usual
        and config.activation == "gelu"
        and config.link in ("sigmoid", "linear")
        and 0 < rows <= GRID_ROWS
        and scores.numel() <= MAX_CELLS
        and scores.device.type == "cpu"
        and surrogate.low.device.type == "cpu"
        and not torch.compiler.is_compiling()
    )


class Sets(NamedTuple):
    """Sets of two classes in the precision of a surrogate, `(k, n)`, and which of them hold both classes, `(k,)`."""

    scores: Array
    targets: Array
    weights: Array | None
    informative: Array


def read_sets(
    surrogate: Surrogate, scores: Tensor, targets: Tensor, weights: Tensor | None, seen: Seen | None = None
) -> Sets | None:
    """Return small sets of two classes, `(..., n)`; None for others, also for those that have to be refused.

    Those that were `seen` before are known to be valid.
    """
    if not (isinstance(scores, Tensor) and scores.is_floating_point() and scores.ndim and is_small(surrogate, scores)):
        return None
    for rows in (targets,) if weights is None else (targets, weights):
        if not isinstance(rows, Tensor) or rows.shape != scores.shape or rows.requires_grad or not rows.is_cpu:
            return None
    try:
        values, labels = arrays(surrogate, scores, targets)
        heavy = None if weights is None else arrays(surrogate, weights)[0]
    except RuntimeError:  # tensors inside a transform of torch.func cannot be read
        return None
    if seen is not None and seen.holds(values, labels, heavy):
        return seen.sets
    positive = labels == 1
    if not (positive | (labels == 0)).all() or scores.shape[-1] == 1:
        return None
    if heavy is None:
        count = positive.sum(-1)
        return Sets(values, labels, heavy, (count > 0) & (count < positive.shape[-1]))
    if not ((heavy >= 0) & np.isfinite(heavy)).all():
        return None
    present = heavy > 0
    return Sets(values, labels, heavy, (present & positive).any(-1) & (present & ~positive).any(-1))


def arrays(surrogate: Surrogate, *sets: Tensor) -> list[Array]:
    """Return sets, `(..., n)`, as arrays in the precision of the surrogate, `(k, n)`."""
    dtype = surrogate.low.dtype
    return [rows.detach().to(dtype).numpy().reshape(-1, rows.shape[-1]) for rows in sets]


@np.errstate(all="ignore")  # what is not finite reaches the loss, as in torch
def pool(surrogate: Surrogate, scores: Array, targets: Array, weights: Array | None) -> Pooled:
    """Return the pooled features of sets, `(k, n)`, as `Surrogate.pool` does."""
    g: Any = surrogate.g
    if weights is None:
        weights = np.full_like(scores, 1 / scores.shape[-1])
    else:
        scores = np.where(weights > 0, scores, 0)  # padding may hold any number
        weights = weights / np.maximum(weights.sum(-1, keepdims=True), EPSILON)
    classes = np.empty((len(scores), 2, scores.shape[-1]), scores.dtype)
    np.multiply(weights, targets, out=classes[:, 0])
    np.subtract(weights, classes[:, 0], out=classes[:, 1])
    masses = classes.sum(-1, keepdims=True)
    classes /= np.maximum(masses, EPSILON)
    both = classes.sum(1)
    both /= np.maximum(both.sum(-1, keepdims=True), EPSILON)
    if surrogate.config.standardise == "shift":
        scores = scores - _dot(both, scores)
    per_spread = 1 / np.sqrt(_dot(both * scores, scores) + EPSILON)
    stretched = scores * (g.stretch * per_spread)
    attends = surrogate.config.attention
    above, slopes = (curve_rates if attends else _rates)(g, np.arcsinh(stretched), classes)
    share = masses[:, 0]
    shares = np.concatenate((share, 1 - share), 1)[:, :, None]
    features = (tokens_of if attends else _features)(above, shares)
    return Pooled(features, classes, both, scores, per_spread, stretched, slopes, above, shares)


def _rates(g: Any, position: Array, classes: Array) -> tuple[Array, Array]:
    """Return the rates above thresholds, `(k, 2, t)`, and the slope of every row at each of them, `(k, n, t)`.

    Slopes take the place of the steps: another array of this size would cost more than what is computed in it.
    """
    with torch.no_grad():
        # Not as a matrix product, which autocast would round.
        steps = torch.addcmul(g.offsets, torch.from_numpy(position.reshape(-1, 1)), g.sharpness).sigmoid_()
        above = classes @ steps.numpy().reshape(*position.shape, -1)
        steps.addcmul_(steps, steps, value=-1)
    return above, steps.numpy().reshape(*position.shape, -1)


def _features(above: Array, shares: Array) -> Array:
    """Return what h gets of the rates above thresholds, `(k, 2, t)`, and the shares of the classes, `(k, 2, 1)`."""
    sets, _, thresholds = above.shape
    features = np.empty((sets, 5 * thresholds + 1), above.dtype)
    odds = np.log(np.maximum(shares, EPSILON))  # of both classes, and limited below
    features[:, 0] = np.minimum(np.maximum(odds[:, 0, 0] - odds[:, 1, 0], -8), 8) / 4
    features[:, 1 : 2 * thresholds + 1] = above.reshape(sets, -1)
    features[:, 2 * thresholds + 1 : 4 * thresholds + 1] = 1 - above.reshape(sets, -1)
    rates = features[:, 1 : 4 * thresholds + 1]
    np.log(np.maximum(rates, 0) + above.dtype.type(1e-4), out=rates)
    rates /= 4
    masses = shares * above
    np.divide(masses[:, 0], masses.sum(1) + above.dtype.type(1e-6), out=features[:, 4 * thresholds + 1 :])
    return features


def scores_gradient(surrogate: Surrogate, pooled: Pooled, gradient: Array) -> Array:
    """Return the gradient of the scores, `(k, n)`, given that of the pooled features, `(k, q)`."""
    g: Any = surrogate.g
    of_rates = (rates_gradient if surrogate.config.attention else _rates_gradient)(
        pooled.above, pooled.shares, gradient
    )
    of_rates *= g.sharpness.numpy()
    moved = of_rates @ pooled.slopes.transpose(0, 2, 1)
    moved *= pooled.classes
    of_scores: Array = moved.sum(1)
    of_scores *= g.stretch * pooled.per_spread
    of_scores /= np.sqrt(pooled.stretched * pooled.stretched + 1)  # the slope of asinh
    # The spread depends on all scores, and so does the centre.
    of_scores -= _dot(of_scores, pooled.centred) * pooled.per_spread**2 * (pooled.both * pooled.centred)
    if surrogate.config.standardise == "shift":
        of_scores -= of_scores.sum(-1, keepdims=True) * pooled.both
    return of_scores


def _rates_gradient(above: Array, shares: Array, gradient: Array) -> Array:
    """Return the gradient of the rates above thresholds, `(k, 2, t)`, given that of the pooled features, `(k, q)`."""
    sets, _, thresholds = above.shape
    rates = np.concatenate((above, 1 - above), 1)
    slopes = gradient[:, 1 : 4 * thresholds + 1].reshape(sets, 4, thresholds) * (rates >= 0)
    slopes /= 4 * (np.maximum(rates, 0) + 1e-4)
    masses = shares * above
    total = masses.sum(1) + 1e-6
    of_masses = np.negative(masses[:, :1]).repeat(2, 1)
    of_masses[:, 0] += total
    of_masses *= (gradient[:, 4 * thresholds + 1 :] / (total * total))[:, None]
    of_rates: Array = slopes[:, :2] - slopes[:, 2:] + shares * of_masses
    return of_rates


class Judged(NamedTuple):
    """Losses of sets, `(k,)`, and what their gradients need: inputs, slopes and weights of every layer of h.

    With attention, the layers judge every threshold, `(k * t, width)`, and the last one returns value and logit.
    """

    losses: Array
    inputs: list[Array]
    slopes: list[Array]
    weights: list[Array]
    attention: Attention | None = None


def judge(surrogate: Surrogate, features: Array) -> Judged:
    """Return the losses of pooled sets, `(k, q)`, as `Surrogate.judge` does."""
    attends = surrogate.config.attention
    layers: list[Any] = list(surrogate.h)[::2]
    weights = [layer.weight.detach().numpy() for layer in layers]
    inputs, slopes, hidden = [features], [], features.reshape(-1, weights[0].shape[1])
    for layer, weight in zip(layers, weights, strict=True):
        hidden, slope = _gelu(hidden @ weight.T + layer.bias.detach().numpy())
        inputs.append(hidden)
        slopes.append(slope)
    weights.append(surrogate.last.weight.detach().numpy())
    attention = None
    if attends:
        weights[-1] = np.concatenate((weights[-1], surrogate.attend.weight.detach().numpy()))
        raw, attention = attended(hidden @ weights[-1].T, ATTENTION_SCALE, surrogate.config.thresholds)
    else:
        raw = hidden @ weights[-1][0]
    raw += surrogate.last.bias.detach().numpy()
    low, high = surrogate.low.numpy(), surrogate.high.numpy()
    span = high - low
    if surrogate.config.link == "sigmoid":
        linked = torch.from_numpy(raw).sigmoid().numpy()
        slopes.append(span * linked * (1 - linked))
        return Judged(low + span * linked, inputs, slopes, weights, attention)
    slopes.append(np.full_like(raw, span))
    return Judged(low + span * raw, inputs, slopes, weights, attention)


def _gelu(x: Array) -> tuple[Array, Array]:
    """Return the values and slopes of GELU."""
    below = 0.5 * torch.erf(torch.from_numpy(x * x.dtype.type(0.5**0.5))).numpy()
    below += 0.5
    density = np.exp(-0.5 * x * x)
    density *= x.dtype.type((2 * np.pi) ** -0.5)
    return x * below, below + x * density


def features_gradient(judged: Judged, gradient: Array) -> Array:
    """Return the gradient of the pooled features, `(k, q)`, given that of the losses, `(k,)`."""
    first: Array = _flow(judged, gradient)[0] @ judged.weights[0]
    return first.reshape(judged.inputs[0].shape)


def weights_gradient(judged: Judged, gradient: Array) -> list[Tensor]:
    """Return the gradients of weight and bias of every layer of h, given that of the losses, `(k,)`."""
    found: list[Tensor] = []
    for passed, given in zip(_flow(judged, gradient), judged.inputs, strict=True):
        rows = torch.from_numpy(given.reshape(len(passed), -1))
        by_set = torch.from_numpy(passed).mT @ rows  # of one set, numpy takes several times as long
        found += [by_set, torch.from_numpy(passed.sum(0))]
    if judged.attention is None:
        return found
    both, bias = found[-2:]
    return [*found[:-2], both[:1], bias[:1], both[1:]]


def _flow(judged: Judged, gradient: Array) -> list[Array]:
    """Return the gradient of what every layer returns, before its output function: `(k, width)`, the first first."""
    of_raw = gradient * judged.slopes[-1]
    last = judged.attention and attention_gradient(judged.attention, of_raw, ATTENTION_SCALE)
    flow = [of_raw[:, None] if last is None else last]
    for weight, slope in zip(judged.weights[:0:-1], judged.slopes[-2::-1], strict=True):
        flow.insert(0, (flow[0] @ weight) * slope)
    return flow


def _dot(one: Array, other: Array) -> Array:
    """Return the products of rows summed up: `(k, n)`, `(k, n)` -> `(k, 1)`."""
    products: Array = np.einsum("kn,kn->k", one, other)
    return products[:, None]


class Known(torch.autograd.Function):
    """A scalar whose gradient is known: scores, value, gradient `(..., n)`, and what to differentiate twice."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, value: Tensor, gradient: Tensor, plain: Any) -> Tensor:
        """Return the value."""
        ctx.save_for_backward(scores)
        ctx.gradient, ctx.plain = gradient, plain
        return value

    @staticmethod
    def backward(ctx: Any, *of_value: Tensor) -> tuple[Tensor, None, None, None]:
        """Return the gradient of the scores; that of the plain arithmetic where it is to be differentiated again."""
        if not torch.is_grad_enabled():
            return (of_value[0] * ctx.gradient).to(ctx.saved_tensors[0].dtype), None, None, None
        (scores,) = ctx.saved_tensors
        (again,) = torch.autograd.grad(ctx.plain(scores), scores, of_value[0], create_graph=True)
        return again, None, None, None


class Seen(NamedTuple):
    """Sets that a surrogate has judged, with some of its numbers, which every step of learning moves."""

    sets: Sets
    judged: Judged
    numbers: tuple[float, ...]

    @classmethod
    def of(cls, surrogate: Surrogate, sets: Sets, judged: Judged) -> Seen:
        """Return what has just been judged; the rows are copied, since a user may change them in place."""
        rows = sets.scores.copy(), sets.targets.copy(), None if sets.weights is None else sets.weights.copy()
        return cls(Sets(*rows, sets.informative), judged, numbers_of(surrogate))

    def holds(self, scores: Array, targets: Array, weights: Array | None) -> bool:
        """Whether these are the sets that were judged, in the same precision."""
        known = self.sets
        if scores.dtype != known.scores.dtype or not np.array_equal(scores, known.scores):
            return False
        if weights is None or known.weights is None:
            return weights is known.weights and np.array_equal(targets, known.targets)
        return np.array_equal(targets, known.targets) and np.array_equal(weights, known.weights)


def numbers_of(surrogate: Surrogate) -> tuple[float, ...]:
    """Return some numbers by which a surrogate that has learned since can be told."""
    return float(surrogate.last.bias.detach()), float(surrogate.low), float(surrogate.high)


@np.errstate(all="ignore")
def judged_again(surrogate: Surrogate, sets: Sets, seen: Seen | None) -> Judged:
    """Return the losses of sets; what is known of them from the last time is not computed again."""
    if seen is None or sets is not seen.sets:
        return judge(surrogate, pool(surrogate, *sets[:3]).features)
    if seen.numbers == numbers_of(surrogate):
        return seen.judged
    return judge(surrogate, seen.judged.inputs[0])  # pooled features depend on nothing that is learned


@np.errstate(all="ignore")
def mean_loss(surrogate: Surrogate, sets: Sets) -> tuple[Tensor, Tensor, Judged]:
    """Return the mean loss of the informative sets, the gradient of the scores, `(k, n)`, and what was judged."""
    pooled = pool(surrogate, *sets[:3])
    judged = judge(surrogate, pooled.features)
    kept = sets.informative.astype(judged.losses.dtype)
    kept /= max(kept.sum(), 1)
    gradient = scores_gradient(surrogate, pooled, features_gradient(judged, kept))
    value = torch.from_numpy(np.asarray(judged.losses @ kept))
    return value, torch.from_numpy(gradient), judged


@np.errstate(all="ignore")
def distance_gradient(surrogate: Surrogate, judged: Judged, true: Array, relational: float) -> list[Tensor]:
    """Return the gradients of h down the distance of the losses of sets from the true ones, `(k,)`.

    The distance is `meta_loss`, in units of the range of the surrogate.
    """
    span = surrogate.high.numpy() - surrogate.low.numpy()
    error = judged.losses / span - true / span
    slope = np.sign(error)
    if relational and len(error) > 1:
        beside = np.sign(error - error.mean()) / ((true / span).std(ddof=1) + 0.005)
        slope = slope + relational * (beside - beside.mean())
    return weights_gradient(judged, (slope / (len(error) * span)).astype(judged.inputs[0].dtype))
