"""LightGBM on numbers: by three objectives on five folds, and continued along the gradient of a surrogate."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import lightgbm
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from metricgrad import get_metric
from metricgrad.metrics.constants import Units, chosen_correction, in_units
from metricgrad.metrics.registry import Metric
from metricgrad.strategies.number_losses import quantile_of_constant
from metricgrad.strategies.number_surrogate import NumberSurrogate
from metricgrad.strategies.strategy import Known, Setting
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows
from metricgrad.training.recipe import Recipe
from metricgrad.training.splits import folds, split

Array = NDArray[Any]
RATE, MAX_TREES, PATIENCE = 0.05, 2_000, 50
ROUNDS, ROUND_RATE, LOOK_EVERY = 200, 0.02, 5
"""Of a continuation: trees, their learning rate, and trees between looks at held-out rows."""
SET_SIZE, REFINED_SETS, NOISE = 400, 6, 0.1
"""Rows of a set, sets that the surrogate is refined on after every tree, and the noise on their scores."""


class Data(NamedTuple):
    """Known rows, in units of training too, and what is held out of them; and the test rows."""

    X: Array
    y: Array
    z: Array
    units: Units
    parts: Sequence[tuple[Array, Array]]
    test_X: Array
    test_y: Array


class Forest(NamedTuple):
    """Trees of every part, by a name, with their scores of held-out rows, pooled, and of test rows, averaged."""

    name: str
    log: bool
    held_out: Tensor
    tested: Tensor


def options(seed: int) -> dict[str, Any]:
    return {"verbose": -1, "num_threads": 1, "learning_rate": RATE, "seed": seed}


def booster(data: Data, train: Array, kept: Array, how: dict[str, Any]) -> lightgbm.Booster:
    """Grow trees until their own loss on the rows kept has not fallen for a while."""
    rows = lightgbm.Dataset(data.X[train], data.z[train])
    valid = rows.create_valid(data.X[kept], data.z[kept])
    stop = [lightgbm.early_stopping(PATIENCE, verbose=False)]
    return lightgbm.train(how, rows, MAX_TREES, valid_sets=[valid], callbacks=stop)


def forest(name: str, data: Data, seed: int, **objective: Any) -> Forest:
    """Grow trees on every part."""
    trees = [booster(data, *part, options(seed) | objective) for part in data.parts]
    scores = [own.predict(data.X[kept]) for own, (_, kept) in zip(trees, data.parts, strict=True)]
    tested = np.mean([own.predict(data.test_X) for own in trees], axis=0)
    return Forest(name, data.units.log, torch.from_numpy(np.concatenate(scores)), torch.from_numpy(tested))


def values_of(metric: Metric, data: Data, own: Forest, seed: int) -> dict[str, Any]:
    """Return the loss on held-out rows, and the values there and on test rows, with a constant chosen on the first."""
    truth = torch.from_numpy(np.concatenate([data.y[kept] for _, kept in data.parts]))
    correction, loss = chosen_correction(metric, data.units.to_targets(own.held_out), truth, seed=seed)
    value = metric.value(metric(correction.apply(data.units.to_targets(own.tested).numpy()), data.test_y))
    validation = float(metric.value(loss))
    return {"name": own.name, "log": own.log, "validation": validation, "test": float(value), "loss": loss}


def grown(run: dict[str, Any], X: Array, y: Array, test_X: Array, test_y: Array, seed: int) -> dict[str, Any]:
    """Return the values by three objectives, each with its constant, and of the best on held-out rows."""
    metric, parts = get_metric(run["metric"]), list(folds(np.zeros(len(y), np.int8), run["folds"], seed))
    squared = []
    for log in (False, True) if (y > 0).all() else (False,):
        units = Units.of(y, log=log)
        data = Data(X, y, units.from_targets(y), units, parts, test_X, test_y)
        own = forest("l2", data, seed, objective="l2")
        squared.append((values_of(metric, data, own, seed), data, own))
    best, data, own = min(squared, key=lambda each: each[0]["loss"])
    level = _level(metric, data, own)
    found = {
        "squared error": best,
        "absolute error": values_of(metric, data, forest("l1", data, seed, objective="l1"), seed),
        "quantile": values_of(
            metric, data, forest(f"quantile {level:.2f}", data, seed, objective="quantile", alpha=level), seed
        ),
    }
    return _outcome(found)


def _level(metric: Metric, data: Data, own: Forest) -> float:
    kept = np.concatenate([kept for _, kept in data.parts])
    z, truth = torch.from_numpy(data.z[kept]), torch.from_numpy(data.y[kept])
    return quantile_of_constant(in_units(metric, data.units), own.held_out, z, truth, None)


def _outcome(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return what is stored: the values of every kind, and of the best of them on held-out rows."""
    found["chosen"] = min(found.values(), key=lambda each: each["loss"])
    values = {kind: {name: each[name] for name in each if name != "loss"} for kind, each in found.items()}
    return {"values": values, "validation": {}}


# ---- continued along the gradient of a surrogate -------------------------------------------------------------------

Gradient = Callable[[Tensor], Tensor]
"""From scores of all training rows to the gradient of a loss."""


def continued(run: dict[str, Any], X: Array, y: Array, test_X: Array, test_y: Array, seed: int) -> dict[str, Any]:
    """Return the values of trees by squared error and by a quantile, and of both continued in two ways.

    Along the surrogate, and along the loss they followed before, as a control: with the same number and size of steps,
    of which the best on held-out rows by the metric itself is kept. One split with a fifth of the rows held out.
    """
    metric, parts = get_metric(run["metric"]), split(np.zeros(len(y)), seed, test=0.0, validation=0.2)
    units = Units.of(y[parts.train])
    data = Data(X, y, units.from_targets(y), units, [(parts.train, parts.validation)], test_X, test_y)
    level = _level(metric, data, forest("l2", data, seed, objective="l2"))
    found = {}
    for name, objective in {
        "squared error": {"objective": "l2"},
        "quantile": {"objective": "quantile", "alpha": level},
    }.items():
        start = booster(data, parts.train, parts.validation, options(seed) | objective)
        z = torch.from_numpy(data.z[parts.train])
        own = (lambda s, z=z: s - z) if name == "squared error" else (lambda s, z=z: (s > z).double() - level)
        found[name] = values_of(metric, data, _stage(name, data, start, [], 0), seed)
        for title, gradient in {"continued": own, "surrogate": surrogate_gradient(metric, data, start, seed)}.items():
            stages = list(_continued(f"{name}, {title}", data, start, gradient, seed))
            found[f"{name}, {title}"] = min(
                (values_of(metric, data, each, seed) for each in stages), key=lambda v: v["loss"]
            )
    return _outcome(found)


def _stage(name: str, data: Data, start: lightgbm.Booster, trees: list[lightgbm.Booster], count: int) -> Forest:
    def scored(rows: Array) -> Tensor:
        more = trees[0].predict(rows, num_iteration=count) if trees and count else 0.0
        return torch.from_numpy(start.predict(rows) + more)

    return Forest(f"{name} {count}", False, scored(data.X[data.parts[0][1]]), scored(data.test_X))


def _continued(name: str, data: Data, start: lightgbm.Booster, gradient: Gradient, seed: int) -> Iterator[Forest]:
    """Grow trees along a gradient, in steps of its own size, and yield every few of them."""
    train = data.parts[0][0]
    begun = start.predict(data.X[train])

    def objective(scores: Array, _: lightgbm.Dataset) -> tuple[Array, Array]:
        found = gradient(torch.from_numpy(begun + scores)).numpy()
        return found / max(float(np.sqrt(np.square(found).mean())), 1e-12), np.ones_like(found)

    rows = lightgbm.Dataset(data.X[train], data.z[train])
    how = options(seed) | {"learning_rate": ROUND_RATE, "objective": objective}
    trees = [lightgbm.train(how, rows, ROUNDS)]
    yield from (_stage(name, data, start, trees, count) for count in range(0, ROUNDS + 1, LOOK_EVERY))


def surrogate_gradient(metric: Metric, data: Data, start: lightgbm.Booster, seed: int) -> Gradient:
    """Return the gradient of a surrogate over sets of training rows, refined on noisy sets each time it is asked."""
    train = data.parts[0][0]
    x, z = torch.from_numpy(data.X[train]), torch.from_numpy(data.z[train]).float()
    scored = torch.from_numpy(start.predict(data.X[train]))
    rows, truth = Rows(x, z), torch.from_numpy(data.y[train])
    known = Known(rows, rows, truth, lambda _: scored, lambda _: scored, torch.nn.MSELoss(), {})
    network: Any = None  # trees are no network
    recipe = Recipe(surrogate_rate=1e-3, set_size=SET_SIZE)
    loss = NumberSurrogate().losses(Setting(in_units(metric, data.units), recipe, network, known))[0]
    assert isinstance(loss, SurrogateLoss)
    generator = torch.Generator().manual_seed(seed)

    def sets(count: int) -> Tensor:
        drawn = [torch.randperm(len(z), generator=generator)[: len(z) // SET_SIZE * SET_SIZE] for _ in range(count)]
        return torch.cat(drawn).view(-1, SET_SIZE)

    def gradient(scores: Tensor) -> Tensor:
        scores = scores.float()
        place = sets(1)[:REFINED_SETS]
        noise = torch.randn(place.shape, generator=generator) * NOISE * scores.std()
        loss.refine(scores[place] + noise, z[place])
        live = scores.clone().requires_grad_(True)
        place = sets(2)
        loss(live[place], z[place]).backward()
        assert live.grad is not None
        return live.grad.double()

    return gradient
