"""Real sets for probing: rows of a table as a linear model and a network score them after cross-entropy."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from metricgrad.losses.binary import CrossEntropy
from metricgrad.paper import datasets
from metricgrad.training.data import Rows
from metricgrad.training.loader import SetSampler
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe
from metricgrad.training.splits import split
from metricgrad.training.trainer import train
from studies.fidelity.probe import ScoredSet, principal_directions

RECIPE = Recipe(warmup=3_000, rounds=0)
STRATIFIED_ROWS = 1_200
"""Sets of up to so many rows are drawn as the default recipe draws them; larger ones at the natural prevalence."""
RARE_SUFFIX, RARE = "@0.1%", 0.001
"""Of the name of a table whose positives are thinned out, and the share of them that is left."""


def training_rows(name: str) -> Rows:
    """Return the standardised training rows of a table; positives are thinned out if its name ends so."""
    data = datasets.load(name.removesuffix(RARE_SUFFIX))
    part = split(data.y, 0).train
    x, y = torch.from_numpy(data.X[part]).float(), torch.from_numpy(data.y[part]).float()
    if name.endswith(RARE_SUFFIX):
        positive = y.nonzero()[:, 0]
        left = positive[:: round(len(positive) / (RARE * float((y == 0).sum())))]
        rows = torch.cat((left, (y == 0).nonzero()[:, 0])).sort().values
        x, y = x[rows], y[rows]
    return Rows((x - x.mean(0)) / x.std(0).clamp(min=1e-6), y)


def trained(rows: Rows, kind: str) -> nn.Module:
    """Return a model after cross-entropy, in evaluation mode."""
    torch.manual_seed(0)
    model = build_model(kind, rows.x.shape[1], seed=0)
    for _ in train(model, CrossEntropy(), rows, RECIPE):
        pass
    return model.eval()


@torch.no_grad()
def last_inputs(model: nn.Module, x: Tensor) -> Tensor:
    """Return what the last linear layer of a model sees, `(n, d)`: the directions its scores can be moved along."""
    last = [layer for layer in model.modules() if isinstance(layer, nn.Linear)][-1]
    seen: list[Tensor] = []
    handle = last.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    with torch.enable_grad():  # else the layers are folded and the hook is passed by
        model(x)
    handle.remove()
    return seen[0].detach()


@torch.no_grad()
def scored_sets(model: nn.Module, rows: Rows, size: int, count: int, seed: int) -> list[ScoredSet]:
    """Return sets of training rows as a model scores them."""
    share = RECIPE.share_of(float(rows.y.mean())) if size <= STRATIFIED_ROWS else None
    sampler = SetSampler(rows.y, size, share, generator=torch.Generator().manual_seed(seed))
    made = []
    while len(made) < count:
        places, weights = (each[0] for each in sampler.draw(1))
        x, y = rows.x[places], rows.y[places]
        if 0 < float(y.mean()) < 1:
            made.append(ScoredSet(model(x), y, weights, principal_directions(last_inputs(model, x))))
    return made


def centred_at_prevalence(one: ScoredSet) -> ScoredSet:
    """Shift the scores so that as much weight is above zero as is positive, for metrics at threshold zero."""
    order = one.scores.argsort(descending=True)
    above = (one.weights[order].cumsum(0) <= (one.weights * one.targets).sum()).sum().clamp(1, len(order) - 1)
    cut = one.scores[order][above - 1 : above + 1].mean()
    return ScoredSet(one.scores - cut, one.targets, one.weights, one.directions)
