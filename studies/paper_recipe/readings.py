"""Readings of the paper's recipe, trained side by side: what the paper leaves open, as data.

A reading is one way to fill in what the text does not say. All readings of a dataset, a metric and a seed see the same
sets and the same dropout, so that they differ by nothing else; their networks lie along a leading axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import grad
from torch.nn import functional as F

from metricgrad.surrogate.network import Surrogate
from metricgrad.training.dropout import dropout_masks
from metricgrad.training.networks import PAPER_WIDTHS, build_model

SIZE, MODEL_STEPS, SURROGATE_STEPS, CLIP, DROPOUT, SLOPE = 100, 3, 10, 1e-5, 0.2, 0.2
BETAS = (0.9, 0.999)


@dataclass(frozen=True)
class Reading:
    """What the paper's text leaves open; the defaults are the recipe `paper` of this package.

    `adam` places epsilon: beside the corrected root as in torch, beside the uncorrected one as in TensorFlow 1, or
    inside it. `clip` is the norm of all gradients of a network, of each variable, or none. `follows` is the mode of
    the surrogate's batch norm while the model follows it. `true_on` and `shown` are the scores the metric and the
    surrogate get while refining: clean (evaluation mode) or noisy (dropout). `norm` are the defaults of batch norm.
    """

    name: str
    adam: str = "torch"
    epsilon: float = 1e-8
    clip: str = "all"
    follows: str = "eval"
    norm: str = "torch"
    true_on: str = "clean"
    shown: str = "noisy"
    weights: str = "torch"
    rate: float = 1e-5


OURS = Reading("ours")
TENSORFLOW = Reading("TensorFlow's defaults", adam="tensorflow", norm="tensorflow", weights="glorot")
TRAINING_MODE = replace(OURS, name="surrogate's batch norm in training mode", follows="train")
FASTER = replace(OURS, name="rates of 1e-4", rate=1e-4)
TENSORFLOW_FASTER = replace(TENSORFLOW, name="TensorFlow's defaults, rates of 1e-4", rate=1e-4)
ALL_AT_ONCE = replace(
    TENSORFLOW, name="TensorFlow's defaults, training mode, rates of 1e-4", follows="train", clip="each", rate=1e-4
)
GRIDS = {
    "wide": (
        OURS,
        replace(OURS, name="epsilon beside the uncorrected root", adam="tensorflow"),
        replace(OURS, name="epsilon inside the root", adam="inside"),
        replace(OURS, name="epsilon 1e-7", epsilon=1e-7),
        replace(OURS, name="clipped by variable", clip="each"),
        replace(OURS, name="not clipped", clip="none"),
        TRAINING_MODE,
        replace(OURS, name="TensorFlow's batch norm", norm="tensorflow"),
        replace(OURS, name="true loss of noisy scores", true_on="noisy"),
        replace(OURS, name="surrogate sees clean scores", shown="clean"),
        replace(OURS, name="Glorot's initial weights", weights="glorot"),
        FASTER,
        TENSORFLOW,
        replace(TENSORFLOW, name="TensorFlow's defaults, clipped by variable", clip="each"),
        TENSORFLOW_FASTER,
        ALL_AT_ONCE,
    ),
    "narrow": (
        FASTER,
        replace(TRAINING_MODE, name="training mode, rates of 1e-4", rate=1e-4),
        ALL_AT_ONCE,
    ),
    "chosen": (OURS, TRAINING_MODE, TENSORFLOW_FASTER, ALL_AT_ONCE),
}
"""Every candidate alone and some together; those that this left, on another seed; those that mattered, elsewhere."""


class State(NamedTuple):
    """What Adam moves: parameters and the means of gradients and of their squares, `(m, p)`; powers of the betas."""

    flat: Tensor
    mean: Tensor
    square: Tensor
    powers: Tensor


class Stack:
    """Parameters of m networks of one shape, `(m, p)`, moved by Adam as their readings say."""

    def __init__(self, states: Sequence[Sequence[Tensor]], readings: Sequence[Reading]) -> None:
        self.shapes = [tuple(part.shape) for part in states[0]]
        self.sizes = [part.numel() for part in states[0]]
        self.variable_of = F.one_hot(torch.repeat_interleave(torch.tensor(self.sizes))).float()  # (p, variables)
        flat = torch.stack([torch.cat([part.flatten() for part in state]) for state in states])
        self.now = State(flat, torch.zeros_like(flat), torch.zeros_like(flat), torch.ones(2, dtype=torch.double))
        self.rate = column(r.rate for r in readings)
        epsilon = column(r.epsilon for r in readings)
        self.inside = epsilon * column(r.adam == "inside" for r in readings)
        self.beside = epsilon * column(r.adam == "torch" for r in readings)
        self.uncorrected = epsilon * column(r.adam == "tensorflow" for r in readings)
        self.by_all = column(r.clip == "all" for r in readings) > 0
        self.by_each = column(r.clip == "each" for r in readings) > 0

    @property
    def flat(self) -> Tensor:
        """The parameters, `(m, p)`."""
        return self.now.flat

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Return the parameters by name's order, each `(m, *shape)`."""
        return [part.view(-1, *shape) for part, shape in zip(flat.split(self.sizes, 1), self.shapes, strict=True)]

    def move(self, gradient: Tensor) -> None:
        """Take a step of Adam against the clipped gradient, `(m, p)`."""
        norms = (gradient.square() @ self.variable_of).sqrt()
        limited = torch.where(self.by_all, norms.norm(dim=1, keepdim=True), norms)
        scale = torch.where(self.by_all | self.by_each, (CLIP / limited).clamp(max=1), 1.0)
        gradient = gradient * (scale @ self.variable_of.T)
        powers = self.now.powers * self.now.powers.new_tensor(BETAS)
        first, second = (1 - powers).float()
        mean = self.now.mean.lerp(gradient, 1 - BETAS[0])
        square = BETAS[1] * self.now.square + (1 - BETAS[1]) * gradient.square()
        root = (square / second + self.inside).sqrt() + self.beside + self.uncorrected / second.sqrt()
        self.now = State(self.now.flat - self.rate / first * mean / root, mean, square, powers)


def column(values: Iterable[float]) -> Tensor:
    """Return numbers of the members as a column, `(m, 1)`."""
    return torch.tensor([float(value) for value in values]).unsqueeze(1)


Statistics = tuple[Tensor, Tensor]
"""Means and variances of batches, `(m, batches, units)` each."""


class Norm:
    """Running statistics of a batch norm of m networks, `(m, units)`."""

    def __init__(self, mean: Tensor, variance: Tensor, readings: Sequence[Reading]) -> None:
        self.mean, self.variance = mean.clone(), variance.clone()
        self.momentum = column(0.01 if r.norm == "tensorflow" else 0.1 for r in readings)
        self.epsilon = column(1e-3 if r.norm == "tensorflow" else 1e-5 for r in readings)

    def still(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Normalise `(m, n, units)` by the running statistics."""
        scale = weight * (self.variance + self.epsilon).rsqrt()
        return torch.addcmul((bias - self.mean * scale).unsqueeze(1), x, scale.unsqueeze(1))

    def live(self, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, Statistics]:
        """Normalise batches, `(m, batches, n, units)`, each by its own statistics; return these too."""
        mean, centred, variance = moments(x)
        scale = weight[:, None, None] * (variance + self.epsilon[..., None, None]).rsqrt()
        return torch.addcmul(bias[:, None, None], centred, scale), (mean[:, :, 0].detach(), variance[:, :, 0].detach())

    def move(self, statistics: Statistics, rows: int) -> None:
        """Move the running statistics by those of batches of so many rows, in their order."""
        means, variances = statistics
        batches = means.shape[1]
        left = (1 - self.momentum) ** torch.arange(batches - 1, -1, -1)  # (m, batches)
        shares = (self.momentum * left).unsqueeze(1)
        kept = (1 - self.momentum) ** batches
        self.mean = kept * self.mean + (shares @ means)[:, 0]
        self.variance = kept * self.variance + (shares @ variances)[:, 0] * (rows / (rows - 1))


def moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return means, centred values and variances of batches, `(m, batches, n, units)`, over their rows.

    Products with a row of shares: ten times as fast as `torch.var_mean` over an inner axis.
    """
    share = x.new_full((1, x.shape[2]), 1 / x.shape[2])
    mean = share @ x
    centred = x - mean
    return mean, centred, share @ centred.square()


class Models:
    """The paper's prediction model, m times."""

    def __init__(self, features: int, readings: Sequence[Reading], seed: int) -> None:
        body = build_model("mlp", features, seed).body
        torch_weights = [p.detach() for p in body.parameters()]
        self.stack = Stack([initial(torch_weights, r, seed) for r in readings], readings)
        zeros = [torch.zeros(len(readings), width) for width in PAPER_WIDTHS]
        self.norms = [Norm(zero, zero + 1, readings) for zero in zeros]

    def live(self, flat: Tensor, x: Tensor, masks: Sequence[Tensor]) -> tuple[Tensor, list[Statistics]]:
        """Score batches in training mode: `(batches, n, features)` -> `(m, batches, n)`; return the statistics too."""
        parts, (batches, n, _) = self.stack.parts(flat), x.shape
        latent, seen = x.reshape(-1, x.shape[-1]).unsqueeze(0), []
        for place, (norm, mask) in enumerate(zip(self.norms, masks, strict=True)):
            weight, bias, gain, shift = parts[4 * place : 4 * place + 4]
            latent = F.leaky_relu(dense(latent, weight, bias), SLOPE).unflatten(1, (batches, n))
            latent, statistics = norm.live(latent, gain, shift)
            latent = (latent * mask.view(batches, n, -1)).flatten(1, 2)
            seen.append(statistics)
        return dense(latent, *parts[-2:])[..., 0].unflatten(1, (batches, n)), seen

    def move_norms(self, seen: Sequence[Statistics], rows: int) -> None:
        """Move the running statistics of every layer."""
        for norm, statistics in zip(self.norms, seen, strict=True):
            norm.move(statistics, rows)

    @torch.no_grad()
    def still(self, x: Tensor) -> Tensor:
        """Score rows in evaluation mode: `(n, features)` -> `(m, n)`."""
        parts, latent = self.stack.parts(self.stack.flat), x.unsqueeze(0)
        for place, norm in enumerate(self.norms):
            weight, bias, gain, shift = parts[4 * place : 4 * place + 4]
            latent = norm.still(F.leaky_relu(dense(latent, weight, bias), SLOPE), gain, shift)
        return dense(latent, *parts[-2:])[..., 0]


def dense(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply m dense layers: `(m or 1, n, a)` -> `(m, n, b)`."""
    if len(x) == 1 and len(weight) > 1:
        wide = x[0] @ weight.flatten(0, 1).T  # all members in one product
        return wide.unflatten(1, weight.shape[:2]).transpose(0, 1) + bias.unsqueeze(1)
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def initial(weights: Sequence[Tensor], reading: Reading, seed: int) -> list[Tensor]:
    """Return initial weights: torch's, or Glorot's uniform ones with zero biases."""
    if reading.weights == "torch":
        return list(weights)
    generator, found = torch.Generator().manual_seed(seed), []
    for number, part in enumerate(weights):
        if part.ndim == 2:
            bound = (6 / sum(part.shape)) ** 0.5
            found.append((2 * torch.rand(part.shape, generator=generator) - 1) * bound)
        else:  # after a weight comes its bias; a gain of batch norm is one already
            found.append(torch.zeros_like(part) if weights[number - 1].ndim == 2 else part)
    return found


class Surrogates:
    """The paper's surrogate, m times: tanh, batch norm after the first layer of g, leaky ReLU at the end."""

    def __init__(self, surrogates: Sequence[Surrogate], readings: Sequence[Reading]) -> None:
        self.stack = Stack([surrogate_parts(each) for each in surrogates], readings)
        norms = [each.g.norm for each in surrogates]
        means, variances = ([getattr(n, name) for n in norms] for name in ("running_mean", "running_var"))
        self.norm = Norm(torch.stack(means), torch.stack(variances), readings)
        self.in_training = column(r.follows == "train" for r in readings).view(-1, 1, 1)

    def losses(self, flat: Tensor, scores: Tensor, targets: Tensor, refining: bool) -> tuple[Tensor, Statistics]:
        """Return the losses of a set and its statistics: scores `(m, n)` and targets `(n,)` -> `(m,)`."""
        parts = self.stack.parts(flat)
        rows = torch.stack((targets.expand_as(scores), scores), -1)
        latent = torch.tanh(dense_each(rows, *parts[:2]))
        live, statistics = self.norm.live(latent.unsqueeze(1), *parts[2:4])
        if refining:
            latent = live.squeeze(1)
        else:
            latent = torch.lerp(self.norm.still(latent, *parts[2:4]), live.squeeze(1), self.in_training)
        pooled = torch.tanh(dense_each(latent, *parts[4:6])).mean(1, keepdim=True)
        for place in (6, 8):
            pooled = torch.tanh(dense_each(pooled, *parts[place : place + 2]))
        return F.leaky_relu(dense_each(pooled, *parts[10:12]), SLOPE)[:, 0, 0], statistics


def dense_each(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply m dense layers to the rows of each: `(m, n, a)` -> `(m, n, b)`."""
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def surrogate_parts(surrogate: Surrogate) -> list[Tensor]:
    """Return the parameters of a surrogate in the order in which they are applied."""
    g, h = surrogate.g, [layer for layer in surrogate.h if hasattr(layer, "weight")]
    layers = [g.layers[0], g.norm, g.layers[1], *h, surrogate.last]
    return [part.detach().clone() for layer in layers for part in (layer.weight, layer.bias)]


STEPS = ("_scored", "_refine_once", "_follow")
"""The methods of `SideBySide` that take nearly all of its time."""


class SideBySide:
    """Algorithm 1 for m members: the surrogate first, then the model, as in the authors' program."""

    def __init__(
        self,
        models: Models,
        surrogates: Surrogates,
        metric: Callable[[Tensor, Tensor], Tensor],
        readings: Sequence[Reading],
    ) -> None:
        self.models, self.surrogates, self.metric = models, surrogates, metric
        self.true_noisy = column(r.true_on == "noisy" for r in readings).unsqueeze(2)
        self.shown_clean = column(r.shown == "clean" for r in readings).unsqueeze(2)
        self.gap = torch.full((len(readings),), float("nan"))

    def round(self, refining: tuple[Tensor, Tensor], following: tuple[Tensor, Tensor]) -> None:
        """Take a round on sets `(steps, n, features)` and their targets `(steps, n)`."""
        self._refine(*refining)
        for x, y in zip(*following, strict=True):
            self._follow(x, y, drawn_masks(1, len(x)))

    def compile(self) -> None:
        """Compile the steps, which takes a minute; a round then takes half the time."""
        for name in STEPS:
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in STEPS}

    def _refine(self, x: Tensor, y: Tensor) -> None:
        clean, noisy = self._scored(x, drawn_masks(*x.shape[:2]))
        judged = torch.where(self.true_noisy > 0, noisy, clean)
        shown = torch.where(self.shown_clean > 0, clean, noisy)
        true = self.metric(judged.double(), y.expand(len(judged), *y.shape)).float()
        gaps = [self._refine_once(shown[:, step], true[:, step], y[step]) for step in range(len(x))]
        self.gap = torch.stack(gaps).mean(0)

    @torch.no_grad()
    def _scored(self, x: Tensor, masks: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return scores of sets in evaluation and in training mode, `(m, steps, n)` each."""
        clean = self.models.still(x.flatten(0, 1)).unflatten(1, x.shape[:2])
        noisy, seen = self.models.live(self.models.stack.flat, x, masks)
        self.models.move_norms(seen, x.shape[1])
        return clean, noisy

    def _refine_once(self, shown: Tensor, true: Tensor, y: Tensor) -> Tensor:
        """Move the surrogates towards the true losses of a set, and return their gaps, `(m,)`."""

        def error(flat: Tensor) -> tuple[Tensor, tuple[Tensor, Statistics]]:
            losses, statistics = self.surrogates.losses(flat, shown, y, refining=True)
            gaps = (losses - true).abs()
            return gaps.sum(), (gaps, statistics)

        gradient, (gaps, statistics) = grad(error, has_aux=True)(self.surrogates.stack.flat)
        self.surrogates.norm.move(statistics, len(y))
        self.surrogates.stack.move(gradient)
        return gaps

    def _follow(self, x: Tensor, y: Tensor, masks: Sequence[Tensor]) -> None:
        """Move the models along their surrogates on a set."""

        def followed(flat: Tensor) -> tuple[Tensor, list[Statistics]]:
            scores, seen = self.models.live(flat, x.unsqueeze(0), masks)
            return self.surrogates.losses(self.surrogates.stack.flat, scores[:, 0], y, refining=False)[0].sum(), seen

        gradient, seen = grad(followed, has_aux=True)(self.models.stack.flat)
        self.models.move_norms(seen, len(y))
        self.models.stack.move(gradient)


def drawn_masks(batches: int, rows: int) -> list[Tensor]:
    """Draw the dropout of every layer, which all members share: `(1, batches * rows * width)` each."""
    return dropout_masks(DROPOUT, [batches * rows * width for width in PAPER_WIDTHS], 1, torch.float32)
