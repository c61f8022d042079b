"""Twelve small training runs in double precision whose results are stored: `python stored_runs.py` writes the file."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from metricgrad import get_metric
from metricgrad.training.data import Rows
from metricgrad.training.history import Round
from metricgrad.training.jobs import train_each
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import train

FILE = Path(__file__).parents[1] / "data" / "stored_runs.json"
FAST = {"learning_rate": 1e-3, "surrogate_rate": 1e-3}
SHORT = {"warmup": 60, "rounds": 40, "set_size": 100, "check_every": 10, "trust_cap": 200}
CHANGES = {
    "default": SHORT,
    "default, fast": {**SHORT, "learning_rate": 0.02},
    "paper": {"rounds": 40, "check_every": 10},
    "paper, fast": {"rounds": 40, "check_every": 10, **FAST},
}
AS_STORED = {"default": "default-0.1"}
"""Names of recipes when the runs were stored, and what they are called now."""
RECIPE = {
    name: replace(RECIPES[AS_STORED.get(name.split(",")[0], name.split(",")[0])], **changes)
    for name, changes in CHANGES.items()
}
RUNS = [
    "fit | linear | default, fast | sl-r | f1",
    "fit | small | default, fast | sl-u | auc",
    "fit | mlp | default | sl-s | average_precision",
    "fit | mlp | default | cross-entropy | f1",
    "fit | mlp | paper, fast | sl-r | auc",
    "fit | linear | paper, fast | pairwise | auc",
    "compare | linear | default, fast | sl-s | f1",
    "compare | small | default | global-objectives | average_precision f1",
    "compare | mlp | default, fast | sl-r | auc",
    "compare | mlp | paper | sl-u | f1",
    "compare | mlp | paper, fast | sl-s | average_precision",
    "compare | small | paper, fast | pairwise | auc f1",
]
"""Entry point, model, recipe, method, and the metrics by which models are chosen."""
SEED = 3


def table(rows: int, seed: int) -> Rows:
    """Return rows of eight features with a curved boundary and noise, about a quarter positive."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 8, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, generator=generator, dtype=torch.float64)
    return Rows(x, (x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * noise > 1).double())


def outcome(name: str) -> dict[str, list[float]]:
    """Train a run and return its results: losses of the last check, and some weights of the model kept."""
    entry, model_name, recipe_name, method, names = name.split(" | ")
    recipe, metrics = RECIPE[recipe_name], tuple(map(get_metric, names.split()))
    torch.manual_seed(SEED)
    loss = make_loss(method, metrics[0], recipe).double()
    model = build_model(model_name, 8, SEED).double()
    torch.manual_seed(SEED)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*is not faithful yet")
        if entry == "fit":
            selection = Selection(table(200, 1), metrics[0], recipe)
            *_, last = train(model, loss, table(500, 0), recipe, selection=selection, seed=SEED)
            ends = [(last, model)]
        else:
            (found,) = train_each(model, [(loss, metrics)], table(500, 0), recipe, validation=table(200, 1), seed=SEED)
            ends = [(one.history[-1], one.model) for one in found]
    surrogate = [float(p.detach().norm()) for p in loss.parameters()]
    return {"loss parameters": surrogate} | {
        metric.name: _numbers(last, kept) for metric, (last, kept) in zip(metrics, ends, strict=True)
    }


def _numbers(last: Round, kept: nn.Module) -> list[float]:
    """Return validation, control, loss and gap of the last round, then the first weights and the norm of the model."""
    weights = torch.cat([p.detach().flatten() for p in kept.parameters()])
    losses = [last.validation, last.control, last.loss, last.gap]
    return [*losses, *weights[:3].tolist(), *weights[-1:].tolist(), float(weights.norm())]


def store() -> None:
    """Write the results of all runs."""
    found: dict[str, Any] = {name: outcome(name) for name in RUNS}
    FILE.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    store()
