"""Direct search on the true metric: what it finds, what it leaves alone, and how many calls it takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

from metricgrad import MetricClassifier, Recipe, additive, black_box
from metricgrad.metrics.registry import f1, get_metric
from metricgrad.training.data import Rows
from metricgrad.training.direct import DirectSearch, search
from metricgrad.training.networks import build_model
from metricgrad.training.solver import Problem, linear_form
from metricgrad.training.trainer import train


def crossed(n: int = 600, seed: int = 0) -> Rows:
    """Rows on which the minimum of cross-entropy is not where F1 is best: a cluster of outliers pulls it away."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    y = x[:, 0] > 1.0
    x[: n // 50, 0], x[: n // 50, 1], y[: n // 50] = -5.0, 1.5, True
    return Rows(torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32))


def solved(rows: Rows, spec: Any = "linear") -> Problem:
    """Return a problem whose weights are at the minimum of cross-entropy."""
    model = build_model(spec, rows.x.shape[1])
    model.prepare(rows.x, None, rows.y)
    form = linear_form(model)
    assert form is not None
    problem = Problem(form, rows, f1.task)
    problem.ridge = 1e-3
    problem.minimise(problem.proper, 200)
    return problem


@pytest.mark.parametrize("metric", ["f1", "average_precision", "recall_at_precision(0.9)"])
@pytest.mark.parametrize("spec", ["linear", "additive"])
def test_a_search_ends_with_less_true_loss_than_its_start(metric: str, spec: str) -> None:
    rows, loss = crossed(), DirectSearch(get_metric(metric))
    problem = solved(rows, spec)
    before = float(loss(problem.scores(), rows.y))
    before_search = loss.judged_sets
    found = list(search(problem, loss))
    assert loss.judged_sets - before_search == found[-1].evaluations
    after = float(loss(problem.scores(), rows.y))
    assert after < before - 0.01 or before < 0.01
    assert found[-1].evaluations <= 3_100
    assert [one.evaluations for one in found] == sorted(one.evaluations for one in found)


def test_of_many_rows_a_part_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, seen = crossed(4_000), set()
    monkeypatch.setattr("metricgrad.training.direct.MAX_ROWS", 500)

    class Watched(DirectSearch):
        def forward(self, scores: torch.Tensor, targets: torch.Tensor, weights: Any = None) -> torch.Tensor:
            seen.add((scores.shape[-1], round(float((weights * targets).sum() / weights.sum()), 3)))
            return super().forward(scores, targets, weights)

    problem = solved(rows)
    before = float(f1.best(problem.scores(), rows.y))
    list(search(problem, Watched(f1)))
    assert seen == {(500, round(float(rows.y.mean()), 3))}
    assert float(f1.best(problem.scores(), rows.y)) < before - 0.01


def test_the_loss_of_a_search_is_that_of_the_best_threshold() -> None:
    rows = crossed()
    scores = rows.x[:, 0]
    best = max(f1_score(rows.y, scores >= cut) for cut in scores)
    assert float(DirectSearch(f1)(scores, rows.y)) == pytest.approx(1 - best, abs=1e-6)
    assert float(DirectSearch(f1, "zero")(scores, rows.y)) == pytest.approx(1 - f1_score(rows.y, scores >= 0), abs=1e-6)


def test_a_seed_decides_a_search_and_the_global_random_state_is_left_alone() -> None:
    np.random.seed(7)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    first, again, other = (solved(crossed()) for _ in range(3))
    for problem, seed in ((first, 1), (again, 1), (other, 2)):
        list(search(problem, DirectSearch(f1, evaluations=200), seed))
    assert torch.equal(first.weights[0], again.weights[0])
    assert not torch.equal(first.weights[0], other.weights[0])
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_bounds_of_weights_are_kept() -> None:
    problem = solved(crossed(), additive(monotone={0: -1}))
    list(search(problem, DirectSearch(f1, evaluations=300)))
    bounds = problem.form.bounds
    assert bounds is not None
    weight = problem.weights[0][0].double()
    assert bool((weight >= bounds[:, 0] - 1e-6).all() & (weight <= bounds[:, 1] + 1e-6).all())


def test_row_weights_count() -> None:
    rows = crossed()
    weights = torch.ones(len(rows.y))
    weights[:12] = 0.0  # without the outliers the first feature alone decides
    problem = solved(rows._replace(w=weights))
    list(search(problem, DirectSearch(f1)))
    assert float(f1.best(problem.scores(), rows.y, weights)) < 0.02


def test_the_calls_of_a_costly_metric_are_limited() -> None:
    profit = black_box(lambda y, p: float((p * (2 * y - 1)).mean()), higher_is_better=True, labels=True, max_calls=300)
    rows, metric = crossed(200), profit
    problem, before = solved(rows), metric.calls
    list(search(problem, DirectSearch(metric)))
    assert 0 < metric.calls - before < 300


def test_direct_is_a_method_of_linear_and_additive_models_only() -> None:
    rows = crossed(3_000)
    x, y = rows.x.numpy(), rows.y.numpy()
    model = MetricClassifier("f1", "direct", "linear", random_state=0).fit(x, y)
    usual = MetricClassifier("f1", "cross-entropy", "linear", random_state=0).fit(x, y)
    assert model.verdict_.followed
    assert model.score(x, y) > usual.score(x, y)
    with pytest.raises(ValueError, match="method: expected a linear or additive model of one output for 'direct'"):
        MetricClassifier("f1", "direct", "small").fit(x, y)


@pytest.mark.parametrize("method", ["direct", "weighted"])
@pytest.mark.parametrize("model", ["linear", additive(bins=4), "readable", torch.nn.Linear(3, 1)])
def test_a_recipe_that_does_not_solve_linear_models_is_named_where_a_method_needs_one_that_does(
    method: str, model: Any
) -> None:
    rows = crossed(200)
    expected = rf"recipe: expected one with start='solved', by which '{method}' trains .*, got start='steps'"
    with pytest.raises(ValueError, match=expected):
        MetricClassifier("f1", method, model, Recipe(), folds=1).fit(rows.x.numpy(), rows.y.numpy())


def test_an_explicit_recipe_that_solves_linear_models_is_taken() -> None:
    rows, solving = crossed(200), Recipe(start="solved", rounds=2)
    for method in ("direct", "weighted"):
        model = MetricClassifier("f1", method, "linear", solving, folds=1).fit(rows.x.numpy(), rows.y.numpy())
        assert model.chosen_recipe_.start == "solved"


def test_a_search_in_a_loop_of_ones_own_names_the_recipe_too() -> None:
    rows = crossed(200)
    model = build_model("linear", 3)
    with pytest.raises(ValueError, match="recipe: expected one with start='solved' for 'direct', got start='steps'"):
        list(train(model, DirectSearch(f1), rows, Recipe(warmup=1)))
