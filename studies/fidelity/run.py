"""Are bundled surrogates faithful on real scores before refining? METRICGRAD_DATA=... python -m studies.fidelity.run

For models trained on cross-entropy: the Spearman correlation of surrogate and metric over 400 sets of 400 training
rows drawn as the default recipe draws them, and the change of the metric on the whole training set along one step
against the surrogate's gradient (the length of the step is a share of the norm of the weights).
"""

from __future__ import annotations

import json
from copy import deepcopy

import torch

from metricgrad import SurrogateLoss
from metricgrad.losses.binary import CrossEntropy
from metricgrad.metrics.registry import PAPER
from metricgrad.paper import datasets
from metricgrad.provenance import provenance
from metricgrad.training.data import Rows
from metricgrad.training.loader import SetSampler
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe
from metricgrad.training.splits import split
from metricgrad.training.trainer import train
from studies.fidelity import page
from studies.pages import command

DATASETS = ("a9a", "ijcnn1", "covtype")
STEPS = {"linear": 0.01, "mlp": 0.001}
RECIPE = Recipe(warmup=3_000, rounds=0)


def trained(rows: Rows, kind: str) -> torch.nn.Module:
    torch.manual_seed(0)
    model = build_model(kind, rows.x.shape[1], seed=0)
    for _ in train(model, CrossEntropy(), rows, RECIPE):
        pass
    return model


def judge(name: str, model: torch.nn.Module, rows: Rows, step: float) -> dict[str, float]:
    loss = SurrogateLoss(name, frozen=True)
    prevalence = float(rows.y.mean())
    share, generator = RECIPE.share_of(prevalence), torch.Generator().manual_seed(1)
    sampler = SetSampler(rows.y, 400, share, generator=generator)
    chosen, weights = sampler.draw(400)
    with torch.no_grad():
        scores = model(rows.x[chosen])
        before = float(loss.metric(model(rows.x), rows.y))
    faithful = loss.fidelity(scores, rows.y[chosen], weights)
    moved = deepcopy(model)
    chosen, weights = sampler.draw(64)
    loss(moved(rows.x[chosen]), rows.y[chosen], weights).backward()
    parameters = list(moved.parameters())
    with torch.no_grad():
        norm = torch.cat([p.flatten() for p in parameters]).norm()
        slope = torch.cat([p.grad.flatten() for p in parameters]).norm()
        for p in parameters:
            p -= step * norm / slope * p.grad
        after = float(loss.metric(moved(rows.x), rows.y))
    return {**faithful, "loss": before, "change": after - before, "step": step}


def main() -> None:
    torch.set_num_threads(1)
    cells = []
    for name in DATASETS:
        data = datasets.load(name)
        part = split(data.y, 0).train
        x = torch.from_numpy(data.X[part])
        rows = Rows((x - x.mean(0)) / x.std(0).clamp(min=1e-6), torch.from_numpy(data.y[part]).float())
        for kind, step in STEPS.items():
            model = trained(rows, kind)
            for metric in PAPER:
                cells.append({"data": name, "model": kind, "metric": metric, **judge(metric, model, rows, step)})
                print(cells[-1], flush=True)
    stored = {"command": command(), "seed": 0, "made_by": provenance(), "cells": cells}
    page.RESULTS.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    page.main()
    worst, uphill = min(c["spearman"] for c in cells), sum(c["change"] >= 0 for c in cells)
    print(f"lowest Spearman {worst:.3f} (bar 0.9); {uphill} of {len(cells)} cells do not fall (bar 0)")


if __name__ == "__main__":
    main()
