"""The example that writes the paper down directly does the same mathematics as the trainer."""

from __future__ import annotations

import importlib.util
import sys
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from metricgrad import get_metric
from metricgrad.training.data import Rows
from metricgrad.training.loader import SetLoader
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES
from metricgrad.training.trainer import train

FILE = Path(__file__).parents[2] / "examples" / "plot_00_algorithm_1.py"
RECIPE = replace(RECIPES["paper"], rounds=20)


def example() -> Any:
    spec = importlib.util.spec_from_file_location("algorithm_1", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["algorithm_1"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("rate", [1e-5, 1e-3])
def test_twenty_rounds_end_at_the_same_parameters_by_both_ways(rate: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 12, generator=generator, dtype=torch.float64)
    rows = Rows(x, (x[:, 0] + x[:, 1] * x[:, 2] > 1).double())
    recipe = replace(RECIPE, learning_rate=rate, surrogate_rate=rate)
    auc, start = get_metric("auc"), build_model("mlp", 12).double()
    torch.manual_seed(0)
    loss = make_loss("sl-s", auc, recipe).double()

    sets = SetLoader(rows, recipe, 5, weighted=True)
    refining = [rows_of for _ in range(20) for rows_of in sets.draw(10, 1, "refine")]
    following = [rows_of for _ in range(20) for rows_of in sets.draw(3, 1)]
    paper = example().AlgorithmOne(deepcopy(start), deepcopy(loss.surrogate), rate)
    torch.manual_seed(1)
    streams = [iter([(x[0], y[0]) for x, y, _ in drawn]) for drawn in (refining, following)]
    for _ in range(20):
        paper.round(*streams)

    model = deepcopy(start)
    torch.manual_seed(1)
    list(train(model, loss, rows, recipe, seed=5))
    for one, other in ((paper.surrogate, loss.surrogate), (paper.model, model)):
        for name, tensor in one.state_dict().items():
            torch.testing.assert_close(tensor, other.state_dict()[name], rtol=0, atol=1e-9)
    assert not torch.equal(next(model.parameters()), next(start.parameters()))
