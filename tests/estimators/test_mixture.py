"""Mixtures of models that compete: when one is chosen, what it weighs, and that all of it is one model."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification, make_regression
from sklearn.linear_model import LogisticRegression
from torch import nn

from metricgrad import MetricClassifier, MetricRegressor, Recipe, black_box
from metricgrad.estimators.candidates import Candidate, Judge, NumberCandidate
from metricgrad.estimators.competition import Competition
from metricgrad.estimators.leaderboard import ranked
from metricgrad.estimators.metric_estimator import Trained, scores_in_double
from metricgrad.estimators.mixture import Mixture, best_mixture, mixture_of
from metricgrad.metrics.constants import Units
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.strategies.named import Named
from metricgrad.strategies.proper import Proper
from metricgrad.strategies.registry import STRATEGIES
from metricgrad.training.averaging import mixed
from metricgrad.training.data import Rows
from metricgrad.training.networks import MIXTURE, Average, Scorer
from metricgrad.training.trees import has_lightgbm

SHORT = Recipe(warmup=40, rounds=4, set_size=100, refine_sets=2, learning_rate=0.03, trust=-1.0, patience=None)
AP = get_metric("average_precision")
FOLDS = 3
X, Y = make_classification(400, 5, n_informative=4, n_redundant=0, weights=[0.7], flip_y=0.1, random_state=0)


class Column(nn.Module):
    """Scores rows by one column, times a factor."""

    def __init__(self, column: int, factor: float = 1.0) -> None:
        super().__init__()
        self.factor, self.column = nn.Parameter(torch.tensor(factor)), column

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x[:, self.column, None]


def rows_of(fold: int, n: int = 300) -> Rows:
    """Rows with three columns: two are the target with noise of their own, the third is noise alone."""
    generator = torch.Generator().manual_seed(fold)
    y = (torch.rand(n, generator=generator) < 0.3).float()
    noise = torch.randn(n, 3, generator=generator)
    return Rows(torch.stack((y + noise[:, 0], y + noise[:, 1], noise[:, 2]), 1), y)


def competed(columns: Mapping[str, int], factor: float = 1.0, metric: Metric = AP, mixes: bool = True) -> Competition:
    """Run a competition of models that score by a column each; the second one's scores are so many times as large."""
    candidates = [Candidate(name, SHORT, Named("cross-entropy")) for name in columns]
    factors = dict(zip(columns, (1.0, factor, 1.0), strict=False))

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
        network = Scorer(Column(columns[candidate.name], factors[candidate.name]))
        return Trained(network, [], False, None, metric), rows_of(fold)

    found = Competition(candidates, FOLDS, mixes=mixes)
    found.run(train)
    return found


def test_models_with_errors_of_their_own_are_mixed_and_the_mixture_is_better_than_each() -> None:
    found = competed({"one": 0, "two": 1})
    assert isinstance(found.best, Mixture)
    own = found.best.judged().loss(found.judge)
    singles = [each.judged() for each in found.candidates]
    error = min(singles, key=lambda each: each.loss(found.judge)).error_against(found.best.judged(), found.judge)
    assert own < min(each.loss(found.judge) for each in singles) - 0.5 * error
    assert sum(found.best.shares.values()) == pytest.approx(1)
    assert not isinstance(competed({"one": 0, "two": 1}, mixes=False).best, Mixture)


def test_a_model_that_knows_nothing_more_is_not_mixed_in() -> None:
    assert competed({"one": 0, "same": 0}).best.name == "one"
    found = competed({"one": 0, "noise": 2})
    assert found.best.name == "one"


@pytest.mark.parametrize("factor", [1e-3, 1.0, 1e4])
def test_a_mixture_does_not_depend_on_the_unit_of_the_scores_of_a_model(factor: float) -> None:
    plain, other = (competed({"one": 0, "two": 1}, each).best for each in (1.0, factor))
    torch.testing.assert_close(other.pooled().scores, plain.pooled().scores, rtol=1e-5, atol=1e-6)


def test_mixed_scores_are_the_mean_of_log_odds_as_logistic_regression_finds_them() -> None:
    one, two = competed({"one": 0, "two": 1}).candidates
    mixture, expected = mixture_of([one, one, two]), torch.zeros(900, dtype=torch.float64)
    for share, part in ((2 / 3, one), (1 / 3, two)):
        rows = part.pooled()
        line = LogisticRegression(C=1e9).fit(rows.scores[:, None].numpy(), rows.y.numpy())
        expected += share * float(line.coef_[0, 0]) * rows.scores
    torch.testing.assert_close(mixture.pooled().scores, expected, rtol=0.02, atol=0.02)
    assert mixture.methods == "67% one, 33% two"


def test_the_network_of_a_mixture_scores_rows_as_its_parts_do_together() -> None:
    found = competed({"one": 0, "two": 1})
    x = rows_of(17).x.double()
    parts = [part.network() for part in found.best.shares]
    expected = sum(f * scores_in_double(part, x) for f, part in zip(found.best.factors, parts, strict=True))
    torch.testing.assert_close(scores_in_double(found.best.network(), x), expected)


def test_the_first_model_stays_in_and_others_are_added_step_by_step() -> None:
    found = competed({"one": 0, "two": 1, "noise": 2})
    complete = [each for each in found.candidates if len(each.folds) == FOLDS]
    best = best_mixture(complete, complete[0], found.judge)
    assert isinstance(best, Mixture)
    assert complete[0] in best.shares
    for share in best.shares.values():
        assert any(share == pytest.approx(n / m) for m in range(1, 8) for n in range(1, m + 1))


def test_a_candidate_that_was_dropped_is_in_no_mixture() -> None:
    found = competed({"one": 0, "two": 1})
    found.candidates[1].folds.pop()
    assert found.best.name == "one"


def test_the_verdict_and_the_leaderboard_say_what_a_mixture_consists_of() -> None:
    found = competed({"one": 0, "two": 1})
    verdict, lines = found.verdict(), found.results(0.7)
    assert verdict is not None
    assert str(verdict).startswith(f"kept a mixture ({found.best.methods}): it gained ")
    assert "over cross-entropy on 900 held-out rows" in str(verdict)
    assert lines[0]["model"] == MIXTURE
    assert {line["model"] for line in lines[1:]} == {"one", "two"}
    assert all(line["behind"] > 0 for line in lines[1:])
    assert ranked(lines, AP)[0] == f"a mixture ({found.best.methods}) was chosen: AP 0.7000 on held-out rows"


def test_the_gain_of_a_mixture_is_that_over_the_best_model_by_the_usual_loss() -> None:
    by_name = {strategy.name: strategy for strategy in STRATEGIES}
    columns = {"proper": 2, "direct": 0, "sl-r": 1}
    candidates = [Candidate("linear", SHORT, by_name[name]) for name in columns]

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
        return Trained(Scorer(Column(columns[candidate.strategy.name])), [], False, None, AP), rows_of(fold)

    found = Competition(candidates, FOLDS, mixes=True)
    found.run(train)
    usual, verdict = candidates[0].judged(), found.verdict()
    assert isinstance(found.best, Mixture)
    assert isinstance(candidates[0].strategy, Proper)
    assert verdict is not None
    assert verdict.gain == pytest.approx(usual.loss(found.judge) - found.best.judged().loss(found.judge))


# ---- numbers -------------------------------------------------------------------------------------------------------


def numbers(units: tuple[Units, ...], metric: str = "mae") -> Competition:
    """Run a competition of two models of numbers, whose errors are their own, in some units."""
    judged, by_name = get_metric(metric), {0: 0, 1: 1}
    candidates = [
        NumberCandidate(f"{n}", SHORT, Proper("mse"), unit, judged) for n, unit in zip(by_name, units, strict=True)
    ]

    def rows(fold: int) -> Rows:
        generator = torch.Generator().manual_seed(fold)
        y = torch.rand(200, generator=generator, dtype=torch.float64) * 4 + 20
        noise = torch.randn(200, 2, generator=generator, dtype=torch.float64)
        return Rows(torch.stack([(y + noise[:, n] - 22) / 2 for n in range(2)], 1), y)

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
        return Trained(Scorer(Column(by_name[int(candidate.name)])), [], False, None, judged), rows(fold)

    found = Competition(candidates, FOLDS, judge=Judge(judged, judged), mixes=True)
    found.run(train)
    return found


@pytest.mark.parametrize("metric", ["mae", "spearman", "step_cost(5,1,10)"])
def test_predictions_of_numbers_are_mixed_in_their_unit(metric: str) -> None:
    unit = Units(22.0, 2.0, log=False)
    found = numbers((unit, unit), metric)
    assert isinstance(found.best, Mixture)
    one, two = (each.held_out().scores for each in found.candidates)
    shares = [found.best.shares[each] for each in found.candidates]
    torch.testing.assert_close(found.best.held_out().scores, shares[0] * one + shares[1] * two)
    singles = [each.judged().loss(found.judge) for each in found.candidates]
    assert found.best.judged().loss(found.judge) < min(singles)


def test_numbers_in_different_units_are_not_mixed() -> None:
    units = Units(22.0, 2.0, log=False), Units(22.0, 2.5, log=False)
    assert not isinstance(numbers(units).best, Mixture)


# ---- estimators ----------------------------------------------------------------------------------------------------


def test_auto_mixes_models_and_readable_does_not() -> None:
    model = MetricClassifier("average_precision", model="auto", recipe=SHORT, folds=2).fit(X, Y)
    found = model.network_
    chosen = model.results_[0]["model"]
    assert chosen == found.name
    assert {part.name for part in found.parts} <= {"linear", "additive", "lightgbm", "tabm"}
    assert (chosen == MIXTURE) == bool(found.parts)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert not MetricClassifier("auc", "cross-entropy", "readable").fit(X, Y).network_.parts


def test_the_held_out_value_of_a_mixture_is_that_of_its_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricgrad.estimators.competition.MARGIN", -np.inf)
    monkeypatch.setattr(Competition, "_is_ahead", lambda *_: True)
    model = MetricClassifier("auc", "cross-entropy", "auto", recipe=SHORT, folds=2).fit(X, Y)
    known = model.predict_proba(X)
    assert np.allclose(known.sum(1), 1)
    assert model.score(X, Y) > 0.8
    assert 0.5 < 1 - model.validation_loss_ <= 1


@pytest.mark.parametrize("model", ["small", "linear", "additive", "readable"])
def test_strategies_of_one_model_are_not_mixed(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricgrad.estimators.competition.best_mixture", lambda *_: pytest.fail("mixed"))
    assert MetricClassifier("f1", model=model, recipe=SHORT, folds=2, random_state=0).fit(X, Y).score(X, Y) > 0.5


def test_networks_of_one_kind_are_mixed_to_one_average() -> None:
    networks = [
        MetricClassifier("f1", "cross-entropy", "small", SHORT, folds=2, random_state=s).fit(X, Y).network_
        for s in (0, 1)
    ]
    found, x = mixed(networks, [0.3, 1.4]), torch.from_numpy(X)
    assert isinstance(found.body, Average)
    assert (found.name, found.folds) == ("small", 4)
    expected = sum(f * scores_in_double(each, x) for f, each in zip([0.3, 1.4], networks, strict=True))
    torch.testing.assert_close(scores_in_double(found, x), expected)
    again = pickle.loads(pickle.dumps(found))
    assert torch.equal(scores_in_double(again, x), scores_in_double(found, x))


def profit(y_true: Any, y_pred: Any) -> float:
    """What is gained by decisions."""
    return float((y_pred * (2 * y_true - 1)).mean())


@pytest.mark.parametrize(
    "how",
    [
        {"metric": black_box(profit, higher_is_better=True, labels=True, max_calls=300)},
        {"metric": "f1", "threshold": "cv", "method": "cross-entropy"},
        {"metric": "f1", "warm_start": True, "method": "cross-entropy"},
    ],
)
def test_where_a_single_model_is_needed_none_are_mixed(how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricgrad.estimators.competition.best_mixture", lambda *_: pytest.fail("mixed"))
    model = MetricClassifier(model="auto", recipe=SHORT, **how).fit(X, Y)
    assert model.network_.parts == ()


def test_with_few_rows_of_a_class_none_are_mixed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricgrad.estimators.competition.best_mixture", lambda *_: pytest.fail("mixed"))
    kept = np.r_[np.flatnonzero(Y == 0), np.flatnonzero(Y == 1)[:29]]
    assert MetricClassifier("auc", model="auto", recipe=SHORT, folds=2).fit(X[kept], Y[kept]).score(X, Y) > 0.5


def test_several_classes_are_mixed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Competition, "_is_ahead", lambda *_: True)
    x, y = make_classification(500, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=1)
    model = MetricClassifier("macro_f1", "cross-entropy", "auto", recipe=SHORT, folds=2).fit(x, y)
    assert model.decision_function(x).shape == (500, 3)
    assert model.score(x, y) > 0.5
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(x), model.predict(x))


@pytest.mark.skipif(not has_lightgbm(), reason="needs LightGBM")
def test_a_regressor_says_what_it_mixed() -> None:
    x, y = make_regression(400, 5, n_informative=3, noise=20.0, random_state=0)
    model = MetricRegressor("mae", "usual", "auto", replace(SHORT, warmup=20), folds=2).fit(x, np.exp(y / 200))
    assert model.network_.name == model.results_[0]["model"]
    if model.network_.parts:
        assert "mixture" in str(model.verdict_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(x), model.predict(x))
