"""Sets of rows that came in sets: drawn whole, without what pads all of them, perturbed by what is there."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from metricgrad.losses.ranking import ListNet
from metricgrad.metrics.registry import get_metric
from metricgrad.metrics.tasks import RANKING
from metricgrad.surrogate.fidelity import spread_of
from metricgrad.training.data import Rows, members, queries_of
from metricgrad.training.loader import SetLoader
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import present_scores, train

SIZES = [2, 3, 2, 2, 40]


def queries(features: int = 3) -> Rows:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(sum(SIZES), features, generator=generator)
    y = torch.randint(3, (len(x),), generator=generator).float()
    return Rows(x, y, None, torch.as_tensor(members(queries_of(len(x), group=SIZES))))


def test_a_draw_holds_whole_queries_and_no_column_that_pads_all_of_them() -> None:
    rows = queries()
    widths = set()
    for x, y, w in SetLoader(rows, Recipe(), 0, False, RANKING).draw(40, 2):
        sizes = (w > 0).sum(-1).tolist()
        widths.add(x.shape[1])
        assert x.shape[1] == max(sizes)
        for one, grades, size in zip(x, y, sizes, strict=True):
            (start,) = (rows.x == one[0]).all(-1).nonzero()[0].tolist()
            assert size in SIZES
            assert torch.equal(one[:size], rows.x[start : start + size])
            assert torch.equal(grades[:size], rows.y[start : start + size])
    assert widths == {2, 3, 40}


def test_padding_does_not_count_in_the_spread_of_scores() -> None:
    scores = torch.randn(3, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    weights = torch.ones(3, 9)
    assert torch.equal(spread_of(scores, RANKING, weights), scores.std(-1, keepdim=True))
    weights[0, 4:], weights[1, 1:], weights[2, :] = 0, 0, 0
    expected = torch.tensor([float(scores[0, :4].std()), 0, 0], dtype=torch.float64).unsqueeze(-1)
    torch.testing.assert_close(spread_of(scores, RANKING, weights), expected)


def test_noise_is_in_units_of_the_spread_of_what_is_there() -> None:
    sets = SetLoader(queries(), Recipe(), 0, False, RANKING)
    scores, weights = torch.zeros(500, 40), torch.ones(500, 40)
    scores[:, 0], scores[:, 1], weights[:, 2:] = 1, -1, 0
    moved = (sets.noisy(scores, 1.0, weights=weights) - scores)[:, :2].std()
    assert float(moved) == pytest.approx(2**0.5 / 3**0.5, rel=0.1)  # the share of every set is uniform


def test_what_pads_a_set_is_not_scored_and_gets_no_gradient() -> None:
    x, w = torch.randn(4, 6, 3), torch.ones(4, 6)
    w[1:, 2:] = 0
    seen: list[Tensor] = []

    class Model(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x)
            return super().forward(x)[..., 0].unsqueeze(0)  # one member

    model = Model(3, 1)
    scores = present_scores(model, x, w)
    assert seen[0].shape == (12, 3)
    torch.testing.assert_close(scores, model(x) * w)
    scores.sum().backward()
    torch.testing.assert_close(model.bias.grad, torch.tensor([12.0]))
    assert torch.equal(present_scores(model, x, torch.ones(4, 6)), model(x))


def test_a_batch_norm_sees_no_padding() -> None:
    rows = queries(features=1)
    assert rows.members is not None
    far = torch.cat((torch.full((1, 1), 1e6), rows.x)), torch.cat((torch.zeros(1), rows.y))
    later = rows.members.where(rows.members < 0, rows.members + 1)  # the far row is in no query: it only pads
    norm = nn.BatchNorm1d(1)
    recipe = Recipe(warmup=5, rounds=0, sets=4, learning_rate=1e-6)
    padded = Rows(*far, None, later)
    selection = Selection(padded, get_metric("map"), recipe)
    list(train(nn.Sequential(norm, nn.Linear(1, 1), nn.Flatten(0)), ListNet(), padded, recipe, selection=selection))
    assert float(norm.running_mean.abs()) < 1
