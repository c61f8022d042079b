"""Readings of the paper's recipe, trained side by side: what the paper leaves open, as data.

A reading is one way to fill in what the text does not say. All readings of a dataset, a metric and a seed see the same
sets and the same dropout, so that they differ by nothing else; their networks lie along a leading axis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
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
        replace(TENSORFLOW, name="TensorFlow's defaults, rates of 1e-4", rate=1e-4),
        ALL_AT_ONCE,
    ),
    "narrow": (
        FASTER,
        replace(TRAINING_MODE, name="training mode, rates of 1e-4", rate=1e-4),
        ALL_AT_ONCE,
    ),
}
"""Every candidate alone and some together; then those that the first grid left, on more cells and another seed."""


class Stack:
    """Parameters of m networks of one shape, `(m, p)`, moved by Adam as their readings say."""

    def __init__(self, states: Sequence[Sequence[Tensor]], readings: Sequence[Reading]) -> None:
        self.shapes = [tuple(part.shape) for part in states[0]]
        self.flat = torch.stack([torch.cat([part.flatten() for part in state]) for state in states])
        self.sizes = [part.numel() for part in states[0]]
        self.mean, self.square, self.step = torch.zeros_like(self.flat), torch.zeros_like(self.flat), 0
        self.rate = column(r.rate for r in readings)
        epsilon = column(r.epsilon for r in readings)
        self.inside = epsilon * column(r.adam == "inside" for r in readings)
        self.beside = epsilon * column(r.adam == "torch" for r in readings)
        self.uncorrected = epsilon * column(r.adam == "tensorflow" for r in readings)
        self.by_all = [n for n, r in enumerate(readings) if r.clip == "all"]
        self.by_each = [n for n, r in enumerate(readings) if r.clip == "each"]

    def parts(self, flat: Tensor) -> list[Tensor]:
        """Return the parameters by name's order, each `(m, *shape)`."""
        return [part.view(-1, *shape) for part, shape in zip(flat.split(self.sizes, 1), self.shapes, strict=True)]

    def move(self, gradient: Tensor) -> None:
        """Take a step of Adam against the clipped gradient, `(m, p)`."""
        scale = torch.ones(len(gradient), len(self.sizes))
        norms = torch.stack([part.norm(dim=1) for part in gradient.split(self.sizes, 1)], 1)
        scale[self.by_all] = (
            (CLIP / norms[self.by_all].norm(dim=1, keepdim=True)).clamp(max=1).expand(-1, norms.shape[1])
        )
        scale[self.by_each] = (CLIP / norms[self.by_each]).clamp(max=1)
        for part, own in zip(gradient.split(self.sizes, 1), scale.split(1, 1), strict=True):
            part.mul_(own)
        self.step += 1
        first, second = (1 - beta**self.step for beta in BETAS)
        self.mean.lerp_(gradient, 1 - BETAS[0])
        self.square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
        root = (self.square / second + self.inside).sqrt_().add_(self.beside + self.uncorrected / second**0.5)
        self.flat.sub_(self.rate / first * self.mean / root)


def column(values: Iterable[float]) -> Tensor:
    """Return numbers of the members as a column, `(m, 1)`."""
    return torch.tensor([float(value) for value in values]).unsqueeze(1)


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

    def live(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Normalise batches, `(m, batches, n, units)`, each by its own statistics, which move the running ones."""
        variance, mean = torch.var_mean(x, 2, correction=0)
        rows = x.shape[2]
        for batch in range(x.shape[1]):
            self.mean.lerp_(mean[:, batch].detach(), self.momentum)
            self.variance.lerp_(variance[:, batch].detach() * rows / (rows - 1), self.momentum)
        scale = weight.unsqueeze(1) * (variance + self.epsilon.unsqueeze(1)).rsqrt()
        return torch.addcmul((bias.unsqueeze(1) - mean * scale).unsqueeze(2), x, scale.unsqueeze(2))


class Models:
    """The paper's prediction model, m times."""

    def __init__(self, features: int, readings: Sequence[Reading], seed: int) -> None:
        body = build_model("mlp", features, seed).body
        torch_weights = [p.detach() for p in body.parameters()]
        self.stack = Stack([initial(torch_weights, r, seed) for r in readings], readings)
        zeros = [torch.zeros(len(readings), width) for width in PAPER_WIDTHS]
        self.norms = [Norm(zero, zero + 1, readings) for zero in zeros]

    def live(self, flat: Tensor, x: Tensor) -> Tensor:
        """Score batches in training mode: `(batches, n, features)` -> `(m, batches, n)`."""
        parts, (batches, n, _) = self.stack.parts(flat), x.shape
        masks = dropout_masks(DROPOUT, [batches * n * width for width in PAPER_WIDTHS], 1, x.dtype)
        latent = x.reshape(-1, x.shape[-1]).unsqueeze(0)
        for place, (norm, mask) in enumerate(zip(self.norms, masks, strict=True)):
            weight, bias, gain, shift = parts[4 * place : 4 * place + 4]
            latent = F.leaky_relu(dense(latent, weight, bias), SLOPE).unflatten(1, (batches, n))
            latent = (norm.live(latent, gain, shift) * mask.view(batches, n, -1)).flatten(1, 2)
        return dense(latent, *parts[-2:])[..., 0].unflatten(1, (batches, n))

    @torch.no_grad()
    def still(self, x: Tensor) -> Tensor:
        """Score rows in evaluation mode: `(n, features)` -> `(m, n)`."""
        parts, latent = self.stack.parts(self.stack.flat), x.unsqueeze(0)
        for place, norm in enumerate(self.norms):
            weight, bias, gain, shift = parts[4 * place : 4 * place + 4]
            latent = norm.still(F.leaky_relu_(dense(latent, weight, bias), SLOPE), gain, shift)
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

    def losses(self, flat: Tensor, scores: Tensor, targets: Tensor, refining: bool) -> Tensor:
        """Return the losses of a set: scores `(m, n)` and targets `(n,)` -> `(m,)`."""
        parts = self.stack.parts(flat)
        rows = torch.stack((targets.expand_as(scores), scores), -1)
        latent = torch.tanh(dense_each(rows, *parts[:2]))
        if refining:
            latent = self.norm.live(latent.unsqueeze(1), *parts[2:4]).squeeze(1)
        else:
            known = self.norm.mean.clone(), self.norm.variance.clone()
            live = self.norm.live(latent.unsqueeze(1), *parts[2:4]).squeeze(1)
            self.norm.mean, self.norm.variance = known
            latent = torch.lerp(self.norm.still(latent, *parts[2:4]), live, self.in_training)
        pooled = torch.tanh(dense_each(latent, *parts[4:6])).mean(1, keepdim=True)
        for place in (6, 8):
            pooled = torch.tanh(dense_each(pooled, *parts[place : place + 2]))
        return F.leaky_relu(dense_each(pooled, *parts[10:12]), SLOPE)[:, 0, 0]


def dense_each(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Apply m dense layers to the rows of each: `(m, n, a)` -> `(m, n, b)`."""
    return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)


def surrogate_parts(surrogate: Surrogate) -> list[Tensor]:
    """Return the parameters of a surrogate in the order in which they are applied."""
    g, h = surrogate.g, [layer for layer in surrogate.h if hasattr(layer, "weight")]
    layers = [g.layers[0], g.norm, g.layers[1], *h, surrogate.last]
    return [part.detach().clone() for layer in layers for part in (layer.weight, layer.bias)]


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
        self._follow(*following)

    def _refine(self, x: Tensor, y: Tensor) -> None:
        with torch.no_grad():
            clean = self.models.still(x.flatten(0, 1)).unflatten(1, x.shape[:2])
            noisy = self.models.live(self.models.stack.flat, x)
            judged = torch.where(self.true_noisy > 0, noisy, clean)
            shown = torch.where(self.shown_clean > 0, clean, noisy)
            true = self.metric(judged.double(), y.expand(len(judged), *y.shape)).float()
        stack, gaps = self.surrogates.stack, []
        for step in range(len(x)):
            flat = stack.flat.detach().requires_grad_()
            losses = self.surrogates.losses(flat, shown[:, step], y[step], refining=True)
            (gradient,) = torch.autograd.grad((losses - true[:, step]).abs().sum(), flat)
            gaps.append((losses - true[:, step]).abs().detach())
            stack.move(gradient)
        self.gap = torch.stack(gaps).mean(0)

    def _follow(self, x: Tensor, y: Tensor) -> None:
        stack, fixed = self.models.stack, self.surrogates.stack.flat
        for step in range(len(x)):
            flat = stack.flat.detach().requires_grad_()
            scores = self.models.live(flat, x[step : step + 1])[:, 0]
            (gradient,) = torch.autograd.grad(
                self.surrogates.losses(fixed, scores, y[step], refining=False).sum(), flat
            )
            stack.move(gradient)
