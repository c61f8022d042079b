"""A surrogate that does not follow its metric, in a competition: restarted once with a line, then left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification

from metricgrad import MetricClassifier, Recipe, SurrogateLoss
from metricgrad.estimators.candidates import Candidate
from metricgrad.estimators.competition import Competition
from metricgrad.estimators.leaderboard import leaderboard
from metricgrad.estimators.metric_estimator import Trained
from metricgrad.metrics.registry import f1
from metricgrad.strategies import named as named_module
from metricgrad.strategies import surrogate as strategy_module
from metricgrad.strategies.registry import STRATEGIES
from metricgrad.training.history import UNKNOWN, Round, doubt_of
from metricgrad.training.networks import Scorer
from metricgrad.training.steps import UnfaithfulWarning
from tests.estimators.test_competition import Fixed, rows_of

SHORT = Recipe(warmup=60, rounds=4, set_size=150, refine_sets=4, learning_rate=0.03, trust=-1.0, patience=None)
X, Y = make_classification(500, 5, n_informative=3, n_redundant=0, weights=[0.7], flip_y=0.1, random_state=0)


def rounds(**last: float) -> list[Round]:
    return [Round("warm-up", 9, 9, 9, 0.5, trust=-1.0, cosine=-1.0), Round("rounds", 1, 1, 10, 0.3, **last)]


@pytest.mark.parametrize(
    ("known", "doubt"),
    [
        ({"trust": 0.9, "cosine": -0.2}, ""),
        ({"trust": 0.0, "cosine": 0.99}, "correlation 0.00 with the metric, and cosine 0.99 with its gradient"),
        ({"trust": 0.9}, ""),
        ({"cosine": 0.3}, ""),
        ({"trust": 0.1}, "correlation 0.10 with the metric"),
        ({"trust": 0.1, "cosine": -0.2}, "correlation 0.10 with the metric, and cosine -0.20 with its gradient"),
        ({"cosine": -0.2}, "cosine -0.20 with its gradient"),
        ({}, UNKNOWN),
    ],
)
def test_a_surrogate_is_doubtful_if_nothing_known_of_it_speaks_for_it(known: dict[str, float], doubt: str) -> None:
    assert doubt_of(rounds(**known)) == doubt


def test_the_last_that_is_known_counts_and_a_model_that_followed_no_loss_has_no_surrogate_to_doubt() -> None:
    later = [
        *rounds(trust=0.1, gap=0.3),
        Round("rounds", 2, 2, 20, 0.3, 0.1, trust=0.8),
        Round("rounds", 3, 3, 30, 0.3),
    ]
    assert doubt_of(later) == ""
    assert "did not fall" in doubt_of([*rounds(trust=0.1, gap=0.1), Round("rounds", 2, 2, 20, 0.3, 0.3, trust=0.1)])
    assert "did not fall" not in doubt_of([*rounds(trust=0.1, gap=0.3), Round("rounds", 2, 2, 20, 0.3, 0.1, trust=0.1)])
    assert doubt_of(rounds()[:1]) == ""


def test_a_candidate_of_a_doubtful_surrogate_is_left_out_with_a_note_even_if_it_seems_best() -> None:
    by_name = {strategy.name: strategy for strategy in STRATEGIES}
    noises, calls = {"proper": 1.0, "weighted": 0.5, "sl-r": 0.0}, []
    candidates = [Candidate("linear", SHORT, by_name[name]) for name in noises]

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Any]:
        calls.append((candidate.strategy.name, fold))
        doubt = "correlation 0.10 with the metric" if candidate.strategy.name == "sl-r" else ""
        return Trained(Scorer(Fixed(noises[candidate.strategy.name])), [], False, None, f1, doubt=doubt), rows_of(fold)

    found = Competition(candidates, 2)
    found.run(train)
    assert found.best.strategy.name == "weighted"
    assert ("sl-r", 1) not in calls
    table = leaderboard(found.results(0.9)).set_index("methods")
    assert table["note"]["sl-r"] == "left out: doubtful surrogate (correlation 0.10 with the metric)"
    assert table["behind"]["sl-r"] < 0  # on the rows of the first fold, it was ahead


def dead(metric: Any, made: list[SurrogateLoss]) -> SurrogateLoss:
    """Return a surrogate that gives every set the same loss, and can hardly learn."""
    loss = SurrogateLoss(metric, learning_rate=1e-12)
    with torch.no_grad():
        loss.surrogate.last.weight.zero_()
        loss.surrogate.last.bias.fill_(9.0)
    made.append(loss)
    return loss


def test_a_dead_surrogate_is_restarted_once_with_a_line_and_then_left_out(monkeypatch) -> None:
    made: list[SurrogateLoss] = []
    monkeypatch.setattr(strategy_module, "make_loss", lambda name, metric, *_: dead(metric, made))
    model = MetricClassifier("f1", model="linear", folds=2, recipe=SHORT, random_state=0).fit(X, Y)
    table = model.leaderboard().set_index("methods")
    assert table["note"]["sl-r"].startswith("left out: doubtful surrogate (correlation 0.00 with the metric")
    assert table.index[0] != "sl-r"
    assert table["folds"]["sl-r"] == 1
    assert [loss.surrogate.config.link for loss in made] == ["sigmoid", "linear"]
    assert np.isfinite(model.decision_function(X)).all()


def test_a_single_method_warns_if_its_surrogate_is_doubtful_at_the_end(monkeypatch) -> None:
    monkeypatch.setattr(named_module, "make_loss", lambda name, metric, *_: dead(metric, []))
    recipe = replace(SHORT, trust=0.5, trust_cap=2)
    with pytest.warns(UnfaithfulWarning) as caught:
        MetricClassifier("f1", "sl-r", "linear", folds=1, recipe=recipe, random_state=0).fit(X, Y)
    last = "doubtful at the end of training: correlation 0.00 with the metric"
    assert [last in str(each.message) for each in caught] == [False, True]  # the first is of the start


def test_a_restart_that_follows_the_metric_competes(monkeypatch) -> None:
    made: list[SurrogateLoss] = []

    def first_dead(name: str, metric: Any, *_: Any) -> SurrogateLoss:
        if made:
            made.append(SurrogateLoss(metric))
            return made[-1]
        return dead(metric, made)

    monkeypatch.setattr(strategy_module, "make_loss", first_dead)
    model = MetricClassifier("f1", model="linear", folds=1, recipe=SHORT, random_state=0).fit(X, Y)
    table = model.leaderboard().set_index("methods")
    assert table["note"]["sl-r"] == ""
    assert [loss.surrogate.config.link for loss in made] == ["sigmoid", "linear"]
