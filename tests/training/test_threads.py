"""Threads of torch are taken away for small work only, and come back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits
from torch import nn

from metricgrad import MetricClassifier, Recipe
from metricgrad.estimators.competition import Competition
from metricgrad.training.networks import mlp
from metricgrad.training.threads import MIN_WORK_FOR_THREADS, one_thread, threads_for, work_of


@pytest.fixture(autouse=True)
def three() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_one_thread_inside_and_as_many_as_before_outside() -> None:
    with one_thread():
        assert torch.get_num_threads() == 1
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3


def blas_threads() -> set[int]:
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}


def test_blas_has_one_thread_inside_and_as_many_as_before_outside() -> None:
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        with one_thread():
            assert blas_threads() == {1}
            with one_thread():
                assert blas_threads() == {1}
            assert blas_threads() == {1}
        assert blas_threads() == before


def test_fit_of_a_small_model_gives_blas_one_thread() -> None:
    rng = np.random.default_rng(0)
    X, seen = rng.standard_normal((300, 3)), set[int]()
    with threadpool_limits(2, user_api="blas"):
        MetricClassifier("f1", model="linear", folds=2, callback=lambda done: seen.update(blas_threads())).fit(
            X, X[:, 0] > 0.5
        )
        assert blas_threads() == {2}
    assert seen == {1}


def test_threads_come_back_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="stop"), one_thread():
        raise RuntimeError("stop")
    assert torch.get_num_threads() == 3


def test_whoever_leaves_first_or_last_all_come_back_to_what_there_was() -> None:
    inside, leave, found = threading.Event(), threading.Event(), list[int]()

    def other() -> None:
        with one_thread():
            inside.set()
            leave.wait(10)
        found.append(torch.get_num_threads())

    thread = threading.Thread(target=other)
    with one_thread():
        thread.start()
        assert inside.wait(10)
    assert torch.get_num_threads() == 3
    leave.set()
    thread.join()
    assert found == [3]
    fresh = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    fresh.start()
    fresh.join()
    assert found == [3, 3]
    assert torch.get_num_threads() == 3


def test_the_work_of_dense_layers_is_a_product_for_every_weight_and_row() -> None:
    assert work_of(nn.Linear(7, 1), 400) == 400 * 8
    body = nn.Sequential(nn.Linear(20, 10), nn.BatchNorm1d(10), nn.ReLU(), nn.Linear(10, 1))
    assert work_of(body, 10) == 10 * (210 + 20 + 11)


def test_the_work_of_layers_that_share_weights_is_not_guessed() -> None:
    assert work_of(nn.Sequential(nn.Conv1d(1, 2, 3), nn.Flatten(), nn.Linear(4, 1)), 2) == float("inf")

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3))

    assert work_of(Own(), 2) == float("inf")


def test_small_steps_have_one_thread_and_large_ones_what_the_user_set() -> None:
    with threads_for([mlp(123)], 400):
        assert torch.get_num_threads() == 1
    wide = nn.Linear(1000, MIN_WORK_FOR_THREADS // 400 // 1000 + 1)
    with threads_for([mlp(123), wide], 400):
        assert torch.get_num_threads() == 3


@pytest.mark.parametrize(
    ("model", "expected"),
    [("linear", 1), ("tabm", 1), (lambda n: nn.Sequential(nn.Linear(n, 20_000), nn.Linear(20_000, 1)), 3)],
)
def test_fit_trains_small_models_on_one_thread_and_gives_the_others_back(model: object, expected: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 3))
    seen: set[int] = set()
    short = Recipe(warmup=2, rounds=1, trust=-1, control=False)
    MetricClassifier("auc", model=model, recipe=short, callback=lambda done: seen.add(torch.get_num_threads())).fit(
        X, X[:, 0] > 1
    )
    assert seen == {expected}
    assert torch.get_num_threads() == 3


def test_where_tabm_competes_everything_is_trained_and_judged_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[int] = set()
    not_behind = Competition._not_behind

    def watched(*args: Any) -> Any:
        seen.add(torch.get_num_threads())
        return not_behind(*args)

    monkeypatch.setattr(Competition, "_not_behind", watched)
    X = np.random.default_rng(0).standard_normal((300, 3))
    short = Recipe(warmup=2, rounds=1, trust=-1, control=False)
    model = MetricClassifier("f1", "sl-r", "auto", short, folds=2, callback=lambda _: seen.add(torch.get_num_threads()))
    model.fit(X, X[:, 0] > 1)
    assert "tabm" in set(model.leaderboard()["model"])
    assert seen == {1}
