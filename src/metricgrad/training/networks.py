"""Prediction models: the network of the paper, a linear one, or the user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from metricgrad.training.additive import Additive
    from metricgrad.training.tabm import TabM

PAPER_WIDTHS = (100, 30, 10)
TREES = "lightgbm"
"""The name of boosted trees, which are no network."""
MIXTURE = "mixture"
"""The name of a weighted sum of models of several kinds."""
ROWS_IN_CACHE = 2_048
"""Rows scored at a time: as many as stay in the processor's cache."""


class Scorer(nn.Module):
    """A model whose single output has no axis of its own, `(..., features)` -> `(...)`, or several: -> `(..., c)`.

    One that is known by name is saved as that name and plain arrays, so that loading it runs no code of the file.
    """

    def __init__(
        self,
        body: nn.Module,
        name: str | None = None,
        features: int = 0,
        outputs: int | None = None,
        folds: int = 1,
    ) -> None:
        super().__init__()
        self.body, self.name, self.features, self.outputs, self.folds = body, name, features, outputs, folds

    @property
    def additive(self) -> Additive | None:
        """The body, if it is an additive model."""
        return cast("Additive", self.body) if self.name == "additive" else None

    @property
    def encoded(self) -> Additive | TabM | None:
        """The body, if it learns an encoding of the features from training rows."""
        return cast("Additive | TabM", self.body) if self.name in ENCODED_MODELS and self.folds == 1 else None

    @property
    def several(self) -> bool:
        """Whether in training mode it has a score for every member of an ensemble, on a last axis."""
        return self.name == "tabm" and self.folds == 1

    @property
    def layered(self) -> bool:
        """Whether it is a model known by name that consists of layers."""
        return self.name is not None and isinstance(self.body, (nn.Sequential, nn.Linear))

    @property
    def sizes(self) -> dict[str, int] | None:
        """Sizes of the body that depend on the training rows; None if none do."""
        body = cast(Average, self.body).models[0].body if self.folds > 1 else self.body
        return getattr(body, "sizes", None)

    @property
    def parts(self) -> tuple[Scorer, ...]:
        """The models of a mixture; of any other none."""
        return tuple(cast("Sequence[Scorer]", self.body.models)) if self.name == MIXTURE else ()

    @property
    def options(self) -> dict[str, Any]:
        """What `named_body` needs beside the numbers of features and outputs to build a body of the same shapes."""
        if self.parts:
            return {"parts": [{"name": part.name, "folds": part.folds, **part.options} for part in self.parts]}
        if self.additive is not None:
            return {**self.additive.options.as_dict(), "sizes": self.additive.sizes}
        return {} if self.sizes is None else {"sizes": self.sizes}

    def prepare(self, x: Any, w: Tensor | None = None, y: Tensor | None = None) -> None:
        """Let the model learn from training rows what it is not trained: the knots of an encoding."""
        if self.encoded is not None:
            self.encoded.prepare(x, w, y)

    def forward(self, x: Tensor) -> Tensor:
        """Score rows, however many axes they lie on; on whatever device the model is, scores are where the rows are."""
        flat = x.reshape(-1, x.shape[-1]).to(next((p.device for p in self.parameters()), x.device))
        rows = len(flat)
        plain = self.name is not None and not (self.training or torch.is_grad_enabled())
        scores = self._in_parts(flat) if plain else self.body(flat)
        if self.several and self.training:
            shape = x.shape[:-1] if self.outputs is None else (*x.shape[:-1], self.outputs)
            return cast("Tensor", scores).to(x.device).reshape(*shape, -1)
        allowed = ((rows,), (rows, 1)) if self.outputs is None else ((rows, self.outputs),)
        if not isinstance(scores, Tensor) or scores.shape not in allowed:
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise ValueError(f"model: expected an output of shape {' or '.join(map(str, allowed))}, got {got}")
        return scores.to(x.device).reshape(x.shape[:-1] if self.outputs is None else (*x.shape[:-1], self.outputs))

    def _in_parts(self, rows: Tensor) -> Tensor:
        """Score rows as the body does in evaluation mode, with fewer passes over memory: -> `(n, outputs)`."""
        if not self.layered:
            size = getattr(self.body, "rows_at_once", ROWS_IN_CACHE)
            return torch.cat([self.body(part) for part in rows.split(size)])
        (*hidden, last), slope = folded(self.body)
        parts = []
        for part in rows.split(ROWS_IN_CACHE):
            for dense in hidden:
                part = F.leaky_relu_(F.linear(part, *dense), slope)
            parts.append(F.linear(part, *last))
        return torch.cat(parts)

    def __getstate__(self) -> dict[str, Any]:
        if self.name is None:
            return self.__dict__
        weights = {key: value.detach().cpu().numpy() for key, value in self.body.state_dict().items()}
        shape = {"features": self.features, "outputs": self.outputs, "folds": self.folds, "options": self.options}
        return {"name": self.name, **shape, "weights": weights, "training": self.training}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "weights" not in state:
            super().__setstate__(state)  # type: ignore[no-untyped-call]
            return
        with torch.random.fork_rng(devices=[]):
            name, features, outputs = state["name"], state["features"], state.get("outputs")
            folds = state.get("folds", 1)
            body = named_body(name, features, outputs, folds, **state.get("options", {}))
            self.__init__(body, name, features, outputs, folds)  # type: ignore[misc]
        weights = {key: torch.tensor(value) for key, value in state["weights"].items()}
        self.body.load_state_dict(weights, assign=True)
        self.requires_grad_(True).train(state["training"])


class Average(nn.Module):
    """The mean of standardised scores of k models: `(n, features)` -> `(n, outputs)`.

    Parameters
    ----------
    models : sequence of Scorer
        The models.
    centre, scale : tensor of shape (k, outputs), optional
        What is taken from the scores of each model, and what they are then divided by; by default 0 and 1.
    """

    rows_at_once = 32_768
    """Rows to be scored at a time: each model divides them further."""
    centre: Tensor
    scale: Tensor

    def __init__(self, models: Sequence[Scorer], centre: Tensor | None = None, scale: Tensor | None = None) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        shape = (len(models), models[0].outputs or 1)
        self.register_buffer("centre", torch.zeros(shape) if centre is None else centre)
        self.register_buffer("scale", torch.ones(shape) if scale is None else scale)

    def forward(self, x: Tensor) -> Tensor:
        """Score rows."""
        exporting = torch.compiler.is_exporting()  # a program for any number of rows cannot check shapes
        called = [cast(Scorer, model).body if exporting else model for model in self.models]
        scores = [score(x).reshape(x.shape[0], -1) for score in called]
        parts = zip(scores, self.centre, self.scale, strict=True)
        return torch.stack([(own - centre) / scale for own, centre, scale in parts]).mean(0)


def layers_of(body: nn.Module) -> list[nn.Module]:
    """Return the layers of a model known by name."""
    return list(body) if isinstance(body, nn.Sequential) else [body]


def folded(body: nn.Module) -> tuple[list[tuple[Tensor, Tensor]], float]:
    """Return a model known by name in evaluation mode as dense layers, weight and bias each, and the slope between.

    Batch norm is then a scale and a shift, which the next dense layer takes up.
    """
    dense: list[tuple[Tensor, Tensor]] = []
    scale = shift = None
    slope = 0.0
    for layer in layers_of(body):
        if isinstance(layer, nn.Linear):
            weight: Tensor = layer.weight
            bias: Tensor = layer.bias
            if scale is not None and shift is not None:
                weight, bias = weight * scale, bias + weight @ shift
            dense.append((weight, bias))
        elif isinstance(layer, nn.BatchNorm1d):
            assert layer.running_mean is not None
            assert layer.running_var is not None
            scale = layer.weight * (layer.running_var + layer.eps).rsqrt()
            shift = layer.bias - layer.running_mean * scale
        elif isinstance(layer, nn.LeakyReLU):
            slope = layer.negative_slope
    return dense, slope


class Dropout(nn.Dropout):
    """Dropout, drawn faster than by torch."""

    def forward(self, latent: Tensor) -> Tensor:
        """Drop cells in training mode."""
        if not (self.training and self.p):
            return latent
        from metricgrad.training.dropout import dropout_masks  # loading and predicting draw none

        (mask,) = dropout_masks(self.p, [latent.numel()], 1, latent.dtype)
        mask = mask.to(latent.device)
        return latent * mask.view(latent.shape[-1], -1).mT.reshape(latent.shape)  # unit by unit, as ensembles compute


def mlp(features: int, widths: tuple[int, ...] = PAPER_WIDTHS, dropout: float = 0.2, outputs: int = 1) -> nn.Module:
    """Build the paper's network: dense, leaky ReLU, batch norm, dropout at each width, then a dense output."""
    layers: list[nn.Module] = []
    for before, after in pairwise((features, *widths)):
        layers += [nn.Linear(before, after), nn.LeakyReLU(0.2), nn.BatchNorm1d(after), Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def small(features: int, outputs: int = 1) -> nn.Module:
    """Build a network of 30 units, without dropout."""
    return mlp(features, (30,), 0.0, outputs)


def plain(features: int, outputs: int = 1) -> nn.Module:
    """Build the paper's network without dropout, which blurs predictions of numbers."""
    return mlp(features, dropout=0.0, outputs=outputs)


def linear(features: int, outputs: int = 1) -> nn.Module:
    """Build a linear model."""
    return nn.Linear(features, outputs)


def additive(features: int, outputs: int = 1, **options: Any) -> nn.Module:
    """Build an additive model, which is not prepared yet."""
    from metricgrad.training.additive import Additive, AdditiveOptions  # loading any other model needs none

    sizes = options.pop("sizes", None)
    return Additive(features, outputs, AdditiveOptions(**options), sizes)


def tabm(features: int, outputs: int = 1, sizes: Mapping[str, int] | None = None) -> nn.Module:
    """Build an ensemble network with piecewise-linear encoding, which is not prepared yet."""
    from metricgrad.training.tabm import TabM

    return TabM(features, outputs, sizes)


def lightgbm(features: int, outputs: int = 1, sizes: Mapping[str, int] | None = None) -> nn.Module:
    """Build boosted trees, which are not grown yet."""
    from metricgrad.training.trees import empty_trees

    return empty_trees(features, outputs, sizes)


MODELS: dict[str, Callable[..., nn.Module]] = {
    "mlp": mlp,
    "small": small,
    "plain": plain,
    "linear": linear,
    "additive": additive,
    "tabm": tabm,
    TREES: lightgbm,
}
ENCODED_MODELS = ("additive", "tabm")
"""Names of models that learn an encoding of the features from training rows."""
LINEAR_MODELS = ("linear", "additive")
"""Names of models that are linear in fixed columns."""


def named_body(name: str, features: int, outputs: int | None = None, folds: int = 1, **options: Any) -> nn.Module:
    """Build the body of a model known by name: one, or the average of those of some folds, or a mixture of `parts`."""
    if name == MIXTURE:
        return Average([named_scorer(features=features, outputs=outputs, **part) for part in options["parts"]])
    bodies = [MODELS[name](features, outputs=outputs or 1, **options) for _ in range(folds)]
    if folds == 1:
        return bodies[0]
    return Average([Scorer(body, name, features, outputs) for body in bodies])


def named_scorer(name: str, features: int, outputs: int | None = None, folds: int = 1, **options: Any) -> Scorer:
    """Build a model known by name, with the body that `named_body` returns."""
    return Scorer(named_body(name, features, outputs, folds, **options), name, features, outputs, folds)


def numbered(spec: Any, names: Iterable[str]) -> Any:
    """Return the spec of a model with numbers of features, where it has options, instead of their names."""
    return spec.with_numbers(names) if getattr(spec, "name", None) == "additive" else spec


def kind_of(spec: Any) -> str:
    """Return the kind of a model, given as `build_model` takes it: linear in fixed columns, a network, an
    ensemble network with its own encoding, or own.
    """
    name = spec if isinstance(spec, str) else getattr(spec, "name", None)
    if isinstance(spec, nn.Linear) or name in LINEAR_MODELS:
        return "linear"
    if name == "tabm":
        return "tabm"
    return "network" if isinstance(spec, str) else "own"


def build_model(spec: Any, features: int, seed: int = 0, outputs: int | None = None) -> Scorer:
    """Build a model from a name, a module (copied) or a factory `features -> module`; its weights follow the seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if isinstance(spec, nn.Module):
            return Scorer(deepcopy(spec), outputs=outputs)
        if isinstance(spec, str):
            if spec not in MODELS:
                raise ValueError(f"model: expected one of {', '.join(MODELS)}, a module or a factory, got {spec!r}")
            return Scorer(MODELS[spec](features, outputs=outputs or 1), spec, features, outputs)
        if getattr(spec, "name", None) == "additive":
            return Scorer(spec(features, outputs=outputs or 1), spec.name, features, outputs)
        if callable(spec):
            built = spec(features)
            if not isinstance(built, nn.Module):
                raise TypeError(f"model: expected the factory to return a torch module, got {type(built).__name__}")
            return Scorer(built, outputs=outputs)
    raise TypeError(f"model: expected a name, a torch module or a factory, got {spec!r}")
