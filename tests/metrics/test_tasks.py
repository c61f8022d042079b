"""Tests of what targets may be, and which sets tell anything, task by task."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.losses.default import PROXIES, proxy_for
from metricgrad.metrics.registry import Metric, checked_sets
from metricgrad.metrics.tasks import BINARY, COLUMNS, MULTICLASS, MULTILABEL, RANKING, REGRESSION, TASKS
from metricgrad.surrogate.synthetic import sets_for
from metricgrad.training.loader import GroupSampler, SetSampler, shared_out

INF = float("inf")


@pytest.mark.parametrize(
    ("task", "targets", "message"),
    [
        (BINARY, [0, 2], "expected 0 or 1, got 2"),
        (COLUMNS, [[1.0, 3.0], [0.5, 1.0]], "expected 0 or 1, then numbers of at least 0 .* got 0.5"),
        (COLUMNS, [[1.0, -3.0], [0.0, 1.0]], "expected 0 or 1, then numbers of at least 0 .* got -3"),
        (MULTICLASS, [[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]], "expected a single 1 in every row"),
        (MULTICLASS, [3, 0], "expected indices of classes below 3, got 3"),
        (MULTILABEL, [[0.0, 0.2, 0.0], [0.0, 0.0, 1.0]], "expected 0 or 1, got 0.2"),
        (RANKING, [1.0, -1.0], "expected grades of at least 0, got -1"),
        (REGRESSION, [1.0, INF], "expected finite numbers, got inf"),
    ],
)
def test_a_target_that_is_none_is_named(task, targets, message: str) -> None:
    scores = torch.zeros(2, 3) if task.outputs else torch.zeros(2)
    with pytest.raises(ValueError, match=f"targets: {message}"):
        checked_sets(scores, torch.tensor(targets), None, task)


def test_several_outputs_need_an_axis() -> None:
    with pytest.raises(ValueError, match=r"scores: expected rows and outputs, \(..., n, c\), got the shape \(3,\)"):
        checked_sets(torch.zeros(3), torch.zeros(3), None, MULTICLASS)


def test_numbers_of_classes_are_taken_as_well_as_ones_and_zeros() -> None:
    _, targets, _ = checked_sets(torch.zeros(2, 3, 4), torch.tensor([[0, 3, 1], [2, 2, 0]]), None, MULTICLASS)
    assert targets.shape == (2, 3, 4)
    assert targets.argmax(-1).tolist() == [[0, 3, 1], [2, 2, 0]]
    again = checked_sets(torch.zeros(2, 3, 4), targets, None, MULTICLASS)[1]
    assert torch.equal(again, targets)


@pytest.mark.parametrize(
    ("task", "targets", "weights", "expected"),
    [
        (BINARY, [1, 0, 0], [1, 1, 1], True),
        (BINARY, [1, 0, 0], [0, 1, 1], False),
        (COLUMNS, [[1, 2], [0, 3]], [1, 1], True),
        (COLUMNS, [[1, 2], [1, 3]], [1, 1], False),
        (MULTICLASS, [[1, 0], [0, 1]], [1, 1], True),
        (MULTICLASS, [[1, 0], [0, 1]], [1, 0], False),
        (MULTILABEL, [[1, 0], [1, 1]], [1, 1], True),
        (MULTILABEL, [[1, 0], [1, 0]], [1, 1], False),
        (RANKING, [0, 0, 2], [1, 1, 1], True),
        (RANKING, [0, 0, 2], [1, 1, 0], False),
        (REGRESSION, [1.5, 1.5], [1, 1], False),
        (REGRESSION, [1.5, -2], [1, 1], True),
    ],
)
def test_a_set_that_is_all_the_same_tells_nothing(task, targets, weights, expected: bool) -> None:
    informative = task.informative(torch.tensor(targets).float(), torch.tensor(weights).float())
    assert bool(informative) is expected


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_random_sets_of_every_task_are_valid_and_follow_the_seed(task) -> None:
    metric = Metric("any", lambda s, t, w: s.sum(-1), "any", task=task, columns=("a", "b"))
    drawn, again = (sets_for(metric)(2, 8, 20, torch.Generator().manual_seed(3)) for _ in range(2))
    scores, targets, weights = checked_sets(*drawn, task)
    assert weights is not None
    assert weights.shape == (16, 20)
    assert bool(task.informative(targets, weights).all())
    assert all(torch.equal(one, other) for one, other in zip(drawn, again, strict=True))
    assert torch.equal(targets[0], targets[1])  # sets of a group are copies with moved scores
    assert not torch.equal(scores[0], scores[1])


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_the_proxy_of_a_task_has_less_to_say_of_a_better_model(task) -> None:
    metric = Metric("any", lambda s, t, w: s.sum(-1), "any", task=task, columns=("a",))
    _, targets, weights = sets_for(metric)(2, 8, 30, torch.Generator().manual_seed(0))
    right = task.label(targets) if not task.outputs else targets
    right = right - right.mean() if task is not REGRESSION else right
    proxy = proxy_for(task)
    losses = [float(proxy(scores, targets, weights)) for scores in (right, 0 * right, -right)]
    assert losses[0] < losses[1] < losses[2]
    assert set(PROXIES) == set(TASKS)


@given(shares=st.lists(st.floats(0.01, 1), min_size=2, max_size=8), size=st.integers(30, 500))
def test_a_set_is_shared_out_wholly(shares: list[float], size: int) -> None:
    shares = [share / sum(shares) for share in shares]
    counts = shared_out(size, shares)
    assert sum(counts) == size
    assert min(counts) >= 1
    assert all(abs(count - share * size) <= len(shares) for count, share in zip(counts, shares, strict=True))


def test_sets_of_several_classes_hold_all_and_weigh_as_the_data() -> None:
    classes = torch.tensor([0] * 900 + [1] * 90 + [2] * 10)
    sampler = SetSampler(classes, 50, (0.5, 0.3, 0.2), generator=torch.Generator().manual_seed(0))
    rows, weights = sampler.draw(4)
    drawn = classes[rows]
    assert [int((drawn == number).sum()) for number in range(3)] == [100, 60, 40]
    share = [float((weights * (drawn == number)).sum() / weights.sum()) for number in range(3)]
    assert share == pytest.approx([0.9, 0.09, 0.01], rel=1e-5)


def test_rows_that_come_in_sets_stay_in_them() -> None:
    members = torch.tensor([[0, 1, 2], [3, 4, -1]])
    sampler = GroupSampler(members, torch.tensor([1.0, 2, 3, 4, 5]), torch.Generator().manual_seed(0))
    rows, weights = sampler.draw(100)
    seen = {(tuple(r), tuple(w)) for r, w in zip(rows.tolist(), weights.tolist(), strict=True)}
    assert seen == {((0, 1, 2), (1, 2, 3)), ((3, 4, 0), (4, 5, 0))}
