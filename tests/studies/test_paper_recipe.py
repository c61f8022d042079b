"""Readings of the paper's recipe: side by side they do what one alone does, and the page says what is stored."""

from __future__ import annotations

import math
import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from metricgrad.surrogate.network import Surrogate, new_surrogate
from metricgrad.training.data import Rows
from metricgrad.training.networks import build_model
from studies.paper_recipe import page, readings, run
from studies.paper_recipe.readings import GRIDS, OURS, Models, Reading, SideBySide, Stack, Surrogates

EXAMPLE = Path(__file__).parents[2] / "examples" / "plot_00_algorithm_1.py"
FEATURES, SEED = 5, 3


class OneSet(nn.Module):
    """A surrogate of a single set."""

    def __init__(self, surrogate: Surrogate) -> None:
        super().__init__()
        self.surrogate = surrogate

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        return self.surrogate(scores.unsqueeze(0), targets.unsqueeze(0))[0]


def rows() -> Rows:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, FEATURES, generator=generator)
    return Rows(x, (x[:, 0] + torch.randn(400, generator=generator) > 0.5).float())


def test_our_reading_is_algorithm_1_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    from metricgrad.metrics.registry import get_metric

    monkeypatch.setattr(readings, "DROPOUT", 0.0)
    members = (OURS, *GRIDS["narrow"])
    models, surrogate = Models(FEATURES, members, SEED), new_surrogate("paper", SEED)
    surrogates = Surrogates([surrogate] * len(members), members)
    together = SideBySide(models, surrogates, get_metric("auc"), members)
    model = build_model("mlp", FEATURES, SEED)
    for layer in model.body.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    alone = runpy.run_path(str(EXAMPLE))["AlgorithmOne"](model, OneSet(surrogate))
    start, sets, same = model.eval()(rows().x).detach(), run.Sets(rows(), 1), run.Sets(rows(), 1)
    for _ in range(5):
        together.round(sets.draw(10), sets.draw(3))
        alone.round(*(zip(*same.draw(count), strict=True) for count in (10, 3)))
    found, expected = models.still(rows().x), model.eval()(rows().x)
    assert found[0].detach().allclose(expected, atol=1e-4)
    assert (expected - start).abs().max() > 0.1
    assert all((found[0] - other).abs().max() > 1e-4 for other in found[1:])  # the other readings do something else


@pytest.mark.parametrize("clip", ["all", "each", "none"])
def test_a_step_is_that_of_torch_after_the_clipping_that_is_named(clip: str) -> None:
    torch.manual_seed(0)
    start = [torch.randn(4, 3), torch.randn(4)]
    gradients = [torch.randn(4, 3), 1e-3 * torch.randn(4)]
    stack = Stack([start], [Reading("", clip=clip, rate=1e-3)])
    known = [nn.Parameter(part.clone()) for part in start]
    adam = torch.optim.Adam(known, 1e-3)
    total = math.sqrt(sum(float(part.square().sum()) for part in gradients))
    for _ in range(3):
        stack.move(torch.cat([part.flatten() for part in gradients]).unsqueeze(0))
        for part, gradient in zip(known, gradients, strict=True):
            norm = {"all": total, "each": float(gradient.norm()), "none": 0.0}[clip]
            part.grad = gradient * (readings.CLIP / norm if norm else 1.0)
        adam.step()
    for part, moved in zip(known, stack.parts(stack.flat), strict=True):
        assert moved[0].allclose(part, atol=1e-7)


def test_epsilon_stands_where_the_reading_says() -> None:
    first = {}
    for adam in ("torch", "tensorflow", "inside"):
        stack = Stack([[torch.zeros(1)]], [Reading("", adam=adam, clip="none", rate=1.0)])
        stack.move(torch.tensor([[1e-7]]))
        first[adam] = -float(stack.flat)
    assert first["torch"] == pytest.approx(1e-7 / (1e-7 + 1e-8), rel=1e-4)
    assert first["tensorflow"] == pytest.approx(1e-7 / (1e-7 + 1e-8 / math.sqrt(0.001)), rel=1e-3)
    assert first["inside"] == pytest.approx(1e-7 / math.sqrt(1e-14 + 1e-8), rel=1e-3)


def record(seed: int, losses: dict[str, list[float]]) -> dict[str, object]:
    names = {"ours": OURS, "other": Reading("other", follows="train")}
    members = [{"mode": "sl-r", **vars(names[name])} for name in losses]
    checks = [
        {"round": 250 * (i + 1), "validation": list(own), "test": [2 * loss for loss in own], "gap": [0.1] * len(own)}
        for i, own in enumerate(zip(*losses.values(), strict=True))
    ]
    return {"run": {"dataset": "a9a", "metric": "auc", "seed": seed, "members": members}, "checks": checks}


def test_the_page_finds_the_checkpoints_and_compares_only_readings_that_differ_in_one_point() -> None:
    found = page.courses([record(0, {"ours": [0.4, 0.2, 0.3], "other": [0.3, 0.2, 0.1]})])
    assert dict(found[0].losses) == {"last": 0.6, "validation": 0.4, "test": 0.4}
    assert found[0].distance("last") == pytest.approx(math.log(0.6 / 0.0983))
    assert [(a.name, b.name) for a, b in page.paired(found, "follows", "eval", "train")] == [("ours", "other")]
    assert page.paired(found, "rate", 1e-5, 1e-4) == []
    assert page.paired_sentence(found, "follows", "eval", "train").startswith("lower in 1 of 1 pairs")
    text = page.grid_table(found, "t").splitlines()
    assert text[4].startswith("| **printed** | 0.0983 |")
    assert text[5].startswith("| other | 0.2000 | x 2.03 |")  # the nearest first
