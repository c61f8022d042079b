"""What is said of a competition: every line names model and strategy, and none repeats another."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from sklearn.datasets import make_classification

from metricgrad import MetricClassifier
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
    mixture = record(MIXTURE, "67% linear by direct, 33% tabm by sl-r")
    assert titles([mixture]) == ["mixture (67% linear by direct, 33% tabm by sl-r)"]
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


def test_every_line_of_a_fit_is_told_apart() -> None:
    model = MetricClassifier("f1", model="readable", random_state=0, folds=2).fit(X, Y)
    lines = ranked(model.results_, f1)
    names = [line.partition(":")[0].removesuffix(" was chosen") for line in lines]
    assert len(set(names)) == len(lines) == len(model.results_)
    assert {"linear by cross-entropy", "additive by direct search", "linear by weighted cross-entropy"} <= set(names)
