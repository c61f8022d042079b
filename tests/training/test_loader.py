"""Sets of rows: stratified, natural, or those they came in, drawn whole and perturbed by what is there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from metricgrad.losses.ranking import ListNet
from metricgrad.metrics.registry import get_metric
from metricgrad.metrics.tasks import RANKING
from metricgrad.surrogate.fidelity import spread_of
from metricgrad.training.data import Rows, members, queries_of
from metricgrad.training.ensemble import present_scores
from metricgrad.training.loader import SetLoader, SetSampler
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import train

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


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def imbalanced(rows: int, every: int = 10) -> Tensor:
    return (torch.arange(rows) % every == 0).float()


# ---- sets of rows ----------------------------------------------------------------------------------------------------


@given(
    rows=st.integers(2, 60),
    positives=st.integers(1, 59),
    size=st.integers(2, 50),
    share=st.floats(0.01, 0.99),
    seed=st.integers(0, 1000),
)
def test_a_stratified_set_holds_exactly_its_share_and_counts_as_the_data_do(
    rows: int, positives: int, size: int, share: float, seed: int
) -> None:
    positives = min(positives, rows - 1)
    targets = torch.zeros(rows)
    targets[torch.randperm(rows, generator=seeded(seed))[:positives]] = 1
    drawn, weights = SetSampler(targets, size, share, generator=seeded(seed)).draw(3)
    assert drawn.shape == weights.shape == (3, size)
    found = targets[drawn].sum(-1)
    assert found.tolist() == [min(max(round(share * size), 1), size - 1)] * 3
    prevalence = (weights * targets[drawn]).sum(-1) / weights.sum(-1)
    torch.testing.assert_close(prevalence, torch.full((3,), positives / rows))
    torch.testing.assert_close(weights.mean(-1), torch.ones(3))


@given(
    own=st.lists(st.floats(0.1, 10), min_size=4, max_size=30),
    size=st.integers(2, 20),
    share=st.floats(0.05, 0.95),
    seed=st.integers(0, 1000),
)
def test_every_row_weighs_on_average_what_its_user_says(own: list[float], size: int, share: float, seed: int) -> None:
    targets = (torch.arange(len(own)) % 3 == 0).float()
    user = torch.tensor(own, dtype=torch.float64)
    sampler = SetSampler(targets, size, share, weights=user, generator=seeded(seed))
    rows, weights = sampler.draw(20)
    # Chance to be drawn in one set, times what the row weighs there: the same share of the user's weight for all.
    positive = targets[rows] == 1
    places = torch.where(positive, positive.sum(-1, keepdim=True), (~positive).sum(-1, keepdim=True))
    alike = torch.where(positive, targets.sum(), (1 - targets).sum())
    torch.testing.assert_close(places / alike * weights, user[rows] * size / len(own), rtol=1e-5, atol=0)


def test_weights_that_differ_by_class_alone_are_restored_in_every_set() -> None:
    targets = imbalanced(1000)
    user = 1 + 4 * targets
    rows, weights = SetSampler(targets, 40, 0.5, weights=user, generator=seeded()).draw(5)
    prevalence = (weights * targets[rows]).sum(-1) / weights.sum(-1)
    torch.testing.assert_close(prevalence, torch.full((5,), float((user * targets).sum() / user.sum())))


def test_the_form_of_the_paper_is_half_and_half_unweighted() -> None:
    targets = imbalanced(1000)
    rows, weights = SetSampler(targets, 100, 0.5, restore=False, generator=seeded()).draw(7)
    assert targets[rows].sum(-1).tolist() == [50.0] * 7
    assert torch.equal(weights, torch.ones(7, 100))


def test_a_natural_set_has_the_prevalence_of_the_data_on_average_only() -> None:
    targets = imbalanced(1000)
    rows, weights = SetSampler(targets, 50, generator=seeded()).draw(2000)
    found = targets[rows].mean(-1)
    assert float(found.mean()) == pytest.approx(0.1, abs=0.003)
    assert float(found.std()) == pytest.approx((0.1 * 0.9 / 50) ** 0.5, rel=0.1)
    assert torch.equal(weights, torch.ones(2000, 50))
    user = torch.rand(1000, generator=seeded())
    rows, weights = SetSampler(targets, 50, weights=user, generator=seeded()).draw(3)
    assert torch.equal(weights, user[rows])


@pytest.mark.parametrize("share", [None, 0.3])
def test_every_row_is_drawn_as_often_as_others_of_its_class(share: float | None) -> None:
    targets = imbalanced(20, every=4)
    rows, _ = SetSampler(targets, 10, share, generator=seeded()).draw(20_000)
    times = torch.bincount(rows.flatten(), minlength=20).float()
    for some in (times[targets == 1], times[targets == 0]):
        assert float(some.max() / some.min()) < 1.1


def test_a_set_may_be_larger_than_the_data() -> None:
    targets = torch.tensor([1.0, 0, 0])
    rows, weights = SetSampler(targets, 100, 0.4, generator=seeded()).draw(2)
    assert rows.shape == (2, 100)
    torch.testing.assert_close((weights * targets[rows]).sum(-1) / weights.sum(-1), torch.full((2,), 1 / 3))


@pytest.mark.parametrize("share", [None, 0.3])
def test_the_same_seed_draws_the_same_sets_one_after_another(share: float | None) -> None:
    targets = imbalanced(500)
    one, two, other = (SetSampler(targets, 30, share, generator=seeded(seed)) for seed in (5, 5, 6))
    first = one.draw(4)[0]
    assert torch.equal(first, two.draw(4)[0])
    assert not torch.equal(first, other.draw(4)[0])
    second = one.draw(4)[0]
    assert not torch.equal(first, second)
    assert torch.equal(second, two.draw(4)[0])


class Work(TorchDispatchMode):
    """Notes the name of each operation on tensors, what it makes, and which of them were given all the rows."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        self.done: list[tuple[str, tuple[int, ...]]] = []
        self.given_all: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.done.append((func.__name__, tuple(made.shape) if isinstance(made, Tensor) else ()))
        if any(isinstance(arg, Tensor) and arg.numel() >= self.rows // 20 for arg in args):
            self.given_all.add(func.overloadpacket.__name__)
        return made


@pytest.mark.parametrize("share", [None, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_draw_does_the_same_work_on_ten_thousand_and_on_five_million_rows(share, weighted: bool) -> None:
    done = []
    for rows in (10_000, 5_000_000):
        user = torch.ones(rows) if weighted else None
        sampler = SetSampler(imbalanced(rows), 20, share, weights=user, generator=seeded())
        with Work(rows) as work:
            sampler.draw(4)
        assert work.given_all <= {"index"}  # which looks up the rows drawn, and no other
        assert max(torch.Size(shape).numel() for _, shape in work.done) <= 80
        done.append(work.done)
    assert done[0] == done[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"targets": torch.ones(9), "positive_share": 0.5}, "targets: expected both classes .* got one class only"),
        ({"targets": torch.zeros(9), "positive_share": 0.5}, "targets: expected both classes .* got one class only"),
        ({"targets": torch.zeros(0)}, r"targets: expected one for every row, \(rows,\), got shape \(0,\)"),
        ({"targets": torch.zeros(3, 2)}, r"targets: expected one for every row, \(rows,\), got shape \(3, 2\)"),
        ({"weights": torch.ones(8)}, r"weights: expected one for every row, \(9,\), got \(8,\)"),
        ({"size": 1}, "size: expected at least 2 rows in a set, got 1"),
        ({"positive_share": 0.0}, "positive_share: expected a number between 0 and 1, got 0.0"),
        ({"positive_share": 1.0}, "positive_share: expected a number between 0 and 1, got 1.0"),
        ({"positive_share": float("nan")}, "positive_share: expected a number between 0 and 1, got nan"),
    ],
)
def test_what_cannot_be_drawn_from_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SetSampler(**{"targets": imbalanced(9, every=3), "size": 4, **arguments})


def test_natural_sets_may_be_of_one_class() -> None:
    rows, _ = SetSampler(torch.ones(9), 4, generator=seeded()).draw(2)
    assert rows.shape == (2, 4)
