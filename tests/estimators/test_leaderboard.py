"""What is said of a competition: every line names model and strategy, and none repeats another."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_classification

from metricgrad import MetricClassifier, MetricRegressor, black_box
from metricgrad.estimators.candidates import Candidate
from metricgrad.estimators.leaderboard import NOT_TRIED, ranked, strategy_of, titles
from metricgrad.metrics.registry import f1
from metricgrad.strategies.named import Named
from metricgrad.strategies.registry import STRATEGIES
from metricgrad.training.networks import MIXTURE
from metricgrad.training.recipe import Recipe

X, Y = make_classification(400, 5, n_informative=4, n_redundant=0, weights=[0.7], flip_y=0.1, random_state=0)


def record(model: str, strategy: str, behind: float = 0.0, note: str = "", **more: Any) -> dict[str, Any]:
    gap = math.nan if note == NOT_TRIED else behind
    return {
        "model": model,
        "strategy": strategy,
        "value": 0.9,
        "behind": gap,
        "standard_error": gap / 2,
        "note": note,
        **more,
    }


def test_lines_of_one_model_differ_by_their_strategy() -> None:
    results = [
        record("linear", "direct search"),
        record("additive", "direct search", 0.0454),
        record("additive", "cross-entropy", 0.5, "surely behind after 1 of 5 folds"),
    ]
    assert ranked(results, f1) == [
        "linear by direct search was chosen: F1 0.9000 on held-out rows",
        "additive by direct search: behind by 0.0454 (standard error 0.0227)",
        "additive by cross-entropy: behind by 0.5000 (standard error 0.2500), surely behind after 1 of 5 folds",
    ]


def test_what_was_not_tried_of_a_model_is_one_line() -> None:
    left = [record(*each, note=NOT_TRIED) for each in [("linear", "b"), ("linear", "c"), ("tabm", "a"), ("tabm", "b")]]
    assert ranked([record("linear", "a"), *left], f1)[1:] == [f"linear by b, c: {NOT_TRIED}", f"tabm: {NOT_TRIED}"]


def test_a_mixture_is_named_by_its_parts_and_units_where_they_differ() -> None:
    mixture = record(MIXTURE, "a mixture (67% linear by direct, 33% tabm by sl-r)")
    assert titles([mixture]) == ["a mixture (67% linear by direct, 33% tabm by sl-r)"]
    numbers = [record("linear", "mae", units=units) for units in ("log", "standardised")]
    assert titles(numbers) == ["linear by mae in log units", "linear by mae in standardised units"]
    assert titles(numbers[:1]) == ["linear by mae"]


@pytest.mark.parametrize(
    ("strategy", "words"),
    [(STRATEGIES[0], "cross-entropy"), (Named("direct"), "direct search"), (Named("focal"), "focal")],
)
def test_a_candidate_that_was_not_trained_is_named_by_its_strategy(strategy: Any, words: str) -> None:
    assert strategy_of(Candidate("linear", Recipe(), strategy)) == words


def test_folds_that_kept_the_usual_loss_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    candidate = Candidate("linear", Recipe(), Named("sl-r"))
    monkeypatch.setattr(Candidate, "kept_methods", Counter({"cross-entropy": 2, "sl-r": 3}))
    assert strategy_of(candidate) == "the learned surrogate in 3 folds, cross-entropy in 2"


@pytest.fixture(scope="module")
def model() -> MetricClassifier:
    return MetricClassifier("f1", model="readable", random_state=0, folds=2).fit(X, Y)


def test_every_line_of_a_fit_is_told_apart(model: MetricClassifier) -> None:
    lines = ranked(model.results_, f1)
    names = [line.partition(":")[0].removesuffix(" was chosen") for line in lines]
    assert len(set(names)) == len(lines) == len(model.results_)
    assert {"linear by cross-entropy", "additive by direct search", "linear by weighted cross-entropy"} <= set(names)


def test_the_calls_of_direct_search_are_the_candidates_that_it_judged_on_all_folds(model: MetricClassifier) -> None:
    board = model.leaderboard()
    counted = board["methods"] == "direct"
    assert board["calls"][~counted].isna().all()
    per_fold = board["calls"][counted] / board["folds"][counted]
    assert ((per_fold >= 100) & (per_fold <= 3_100)).all()


def test_the_verdict_has_everything_that_was_tried_and_what_it_cost(model: MetricClassifier) -> None:
    board, tried = model.leaderboard(), model.verdict_.tried
    assert tried[0].name == "linear by cross-entropy"
    assert {each.name for each in tried} == set(titles(model.results_))
    assert sum(each.seconds for each in tried) == pytest.approx(board["seconds"].sum())
    assert sum(each.calls or 0 for each in tried) == board["calls"].sum() > 0
    assert re.search(r"linear by direct search \d+\.\d s and \d,\d{3} calls", model.verdict_.costs)


def test_what_was_not_trained_cost_nothing_and_is_not_among_it() -> None:
    model = MetricClassifier("f1", model="linear", time_limit=1e-9, random_state=0).fit(X, Y)
    assert [each.name for each in model.verdict_.tried] == ["linear by cross-entropy"]
    assert len(model.results_) > 1


def test_every_call_of_a_function_of_the_users_own_in_training_is_counted() -> None:
    seen = []

    def gain(y: np.ndarray, p: np.ndarray) -> float:
        seen.append(1)
        return float((p * (2 * y - 1)).mean())

    metric = black_box(gain, higher_is_better=True, labels=True, max_calls=400)
    model = MetricClassifier(metric, "direct", "linear", random_state=0).fit(X, Y)
    calls = model.leaderboard()["calls"][0]
    assert 0 < calls <= model.calls_ == len(seen)
    assert model.verdict_.tried[0].calls == calls


def test_strategies_of_numbers_are_told_apart_by_their_units() -> None:
    prices = np.exp(X[:, 0] / 3)
    model = MetricRegressor("mae", "usual", "linear", random_state=0, folds=2).fit(X, prices)
    names = [each.name for each in model.verdict_.tried]
    assert len(set(names)) == len(names) == len(model.results_)
    assert {"linear by squared error in log units", "linear by squared error in standardised units"} <= set(names)
