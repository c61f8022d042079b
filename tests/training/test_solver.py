"""Models linear in fixed columns: their start is the minimum of cross-entropy, as scikit-learn finds it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from torch import nn

from metricgrad.losses.binary import BASELINES
from metricgrad.metrics.registry import get_metric
from metricgrad.metrics.tasks import BINARY, MULTICLASS
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows
from metricgrad.training.networks import Scorer, build_model
from metricgrad.training.recipe import RECIPES, get_recipe
from metricgrad.training.selection import Selection, scores_of
from metricgrad.training.solver import RIDGES, Problem, _quota, linear_form, part_of
from metricgrad.training.trainer import train

LINEAR = RECIPES["linear"]


def rows_of(n: int, features: int, seed: int, classes: int = 2, weighted: bool = False) -> Rows:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(n, features, generator=draw)
    raw = x[:, :1] * torch.arange(classes) + torch.randn(n, classes, generator=draw)
    kind = raw.argmax(-1)
    y = kind.float() if classes == 2 else nn.functional.one_hot(kind, classes).float()
    return Rows(x, y, torch.rand(n, generator=draw) + 0.5 if weighted else None)


def problem_of(model: nn.Module, rows: Rows, task=BINARY) -> Problem:
    form = linear_form(model)
    assert form is not None
    return Problem(form, rows, task)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_minimum_is_that_of_logistic_regression(weighted):
    rows = rows_of(500, 4, 1, weighted=weighted)
    problem = problem_of(build_model("linear", 4), rows)
    problem.ridge = 1e-3
    problem.minimise(problem.proper, 300)
    total = len(rows.y) if rows.w is None else float(rows.w.sum())
    theirs = LogisticRegression(C=1 / (1e-3 * total), tol=1e-8, max_iter=1_000)
    theirs.fit(rows.x.numpy(), rows.y.numpy(), None if rows.w is None else rows.w.numpy())
    weight, bias = problem.weights
    assert weight.numpy() == pytest.approx(theirs.coef_, abs=2e-3)
    assert bias.numpy() == pytest.approx(theirs.intercept_, abs=2e-3)


def test_the_minimum_of_several_classes_is_that_of_multinomial_regression():
    rows = rows_of(600, 3, 2, classes=3)
    problem = problem_of(build_model("linear", 3, outputs=3), rows, MULTICLASS)
    problem.ridge = 1e-2
    problem.minimise(problem.proper, 300)
    theirs = LogisticRegression(C=1 / (1e-2 * 600), tol=1e-8, max_iter=1_000).fit(rows.x.numpy(), rows.y.argmax(-1))
    with torch.no_grad():
        ours = problem.scores().softmax(-1).numpy()
    assert ours == pytest.approx(theirs.predict_proba(rows.x.numpy()), abs=2e-3)


def test_bounds_of_weights_are_kept_exactly():
    class Monotone(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 1)
            self.bounds = torch.tensor([[-torch.inf, 0.0]] + [[-torch.inf, torch.inf]] * 3)

        def design(self, x):
            return x

        def forward(self, x):
            return self.head(x)

    model, rows = Scorer(Monotone()), rows_of(300, 4, 3)
    nn.init.zeros_(model.body.head.weight)
    for _ in train(model, SurrogateLoss("f1"), rows, get_recipe(LINEAR, rounds=2), selection=selection_of(rows)):
        assert float(model.body.head.weight[0, 0].detach()) <= 0
    assert float(model.body.head.weight[0, 0].detach()) == 0  # the data pulls it the other way


def selection_of(rows: Rows, metric: str = "f1") -> Selection:
    return Selection(rows, get_metric(metric), LINEAR)


def test_the_warm_up_ends_at_the_penalty_with_the_least_held_out_cross_entropy():
    rows, held_out = rows_of(400, 5, 4), rows_of(400, 5, 5)
    model, selection = build_model("linear", 5), selection_of(held_out)
    done = list(train(model, SurrogateLoss("f1"), rows, get_recipe(LINEAR, rounds=0), selection=selection))
    assert {(each.phase, each.of) for each in done} == {("warm-up", len(RIDGES))}
    assert 3 <= len(done) - 1 <= len(RIDGES)  # weaker penalties are not tried after two that only got worse

    def held_out_loss(ridge: float) -> tuple[float, torch.Tensor]:
        theirs = LogisticRegression(C=1 / (ridge * 400), tol=1e-8, max_iter=1_000).fit(rows.x.numpy(), rows.y.numpy())
        scores = torch.as_tensor(theirs.decision_function(held_out.x.numpy()))
        return float(nn.functional.binary_cross_entropy_with_logits(scores, held_out.y.double())), scores

    _, best = min(map(held_out_loss, RIDGES), key=lambda found: found[0])
    assert scores_of(model, held_out.x).numpy() == pytest.approx(best.numpy(), abs=5e-3)
    assert [each.validation for each in done if each.validation == each.validation] == [selection.control.least]


def test_a_fit_stopped_on_the_path_of_penalties_keeps_the_best_so_far():
    rows, held_out = rows_of(400, 5, 4), rows_of(400, 5, 5)
    paths = {}
    for stop in (3, 5):
        model = build_model("linear", 5)
        rounds = train(model, SurrogateLoss("f1"), rows, LINEAR, selection=selection_of(held_out))
        for _ in range(stop):
            next(rounds)
        rounds.close()
        entropy = nn.functional.binary_cross_entropy_with_logits(scores_of(model, held_out.x), held_out.y)
        paths[stop] = float(entropy)
    assert paths[5] <= paths[3] < nn.functional.binary_cross_entropy_with_logits(torch.zeros(400), held_out.y)


@pytest.mark.slow  # trains by both losses to the end
def test_a_surrogate_lowers_the_metric_that_cross_entropy_cannot_reach():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(4_000, 2, generator=draw)
    y = ((x[:, 0] > 1.5) | ((x[:, 1] > 0) & (torch.rand(4_000, generator=draw) < 0.1))).float()
    rows = Rows(x, y)
    losses = {}
    for method, loss in (("ours", SurrogateLoss("f1")), ("usual", nn.Module())):
        model, selection = build_model("linear", 2), selection_of(rows)
        recipe = LINEAR if method == "ours" else get_recipe(LINEAR, rounds=0, baseline_steps=None)
        for _ in train(model, loss, rows, recipe, selection=selection):
            pass
        losses[method] = float(get_metric("f1").best(scores_of(model, x), y))
    assert losses["ours"] < 0.9 * losses["usual"]


def test_a_run_ends_when_patience_does():
    rows = rows_of(300, 3, 6)
    recipe = get_recipe(LINEAR, rounds=30, patience=2)
    done = list(train(build_model("linear", 3), SurrogateLoss("f1"), rows, recipe, selection=selection_of(rows)))
    followed = [each for each in done if each.phase == "rounds"]
    assert len(followed) < 30
    assert not any(each.best for each in followed[-2:])


def test_cross_entropy_is_not_followed_beyond_its_minimum():
    from metricgrad.losses.binary import CrossEntropy

    rows = rows_of(300, 3, 7)
    done = list(train(build_model("linear", 3), CrossEntropy(), rows, LINEAR, selection=selection_of(rows)))
    assert {each.phase for each in done} == {"warm-up"}


def test_a_network_has_no_linear_form():
    assert linear_form(build_model("small", 3)) is None


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=5), st.integers(10, 2_000))
def test_small_classes_are_kept_whole_and_no_more_rows_than_asked(sizes, most):
    quota = _quota(torch.tensor(sizes), most)
    assert int(quota.sum()) == min(most, sum(sizes))
    assert all(int(kept) <= size for kept, size in zip(quota, sizes, strict=True))
    if len(sizes) > 1 and min(sizes) <= most // len(sizes):
        assert int(quota[int(np.argmin(sizes))]) == min(sizes)


def test_a_part_of_a_large_table_counts_classes_as_the_table_does():
    rows = rows_of(5_000, 4, 8)
    y = (torch.arange(5_000) % 50 == 0).float()
    part = part_of(Rows(rows.x, y), 1_000, y, 0)
    assert len(part.y) == 1_000
    assert int(part.y.sum()) == 100
    assert float((part.w * part.y).sum() / part.w.sum()) == pytest.approx(0.02)
    natural = part_of(Rows(rows.x, y), 1_000, None, 0)
    assert natural.w is None
    assert len(natural.y) == 1_000


@pytest.mark.parametrize("name", ["balanced", "focal", "soft-f1"])
def test_smooth_hand_made_losses_are_lowered_on_all_rows(name):
    rows, loss = rows_of(600, 4, 5), BASELINES[name]()
    recipe = get_recipe(LINEAR, rounds=20, patience=None)
    model = build_model("linear", rows.x.shape[1])
    with torch.no_grad():
        before = None
        for done in train(model, loss, rows, recipe):
            if done.phase == "warm-up":
                before = float(loss(model(rows.x), rows.y))
        after = float(loss(model(rows.x), rows.y))
    assert after < before
    if name == "balanced":
        expected = LogisticRegression(class_weight="balanced", C=1e4, tol=1e-8, max_iter=1_000)
        expected.fit(rows.x.numpy(), rows.y.numpy())
        np.testing.assert_allclose(model.body.weight.detach()[0], expected.coef_[0], rtol=0.02, atol=0.02)


def test_class_weights_are_followed_to_the_minimum_that_scikit_learn_finds():
    rows = rows_of(600, 4, 8)
    rows = Rows(rows.x, rows.y * (rows.x[:, 1] > -0.3))  # one class is rarer
    model = build_model("linear", 4)
    done = list(train(model, BASELINES["balanced"](), rows, LINEAR))  # nothing held out: the weakest penalty is kept
    assert len([each for each in done if each.phase == "rounds"]) < LINEAR.rounds  # it ends where the loss does
    theirs = LogisticRegression(C=1 / (RIDGES[-1] * 600), class_weight="balanced", tol=1e-8, max_iter=1_000)
    expected = theirs.fit(rows.x.numpy(), rows.y.numpy()).decision_function(rows.x.numpy())
    assert scores_of(model, rows.x).numpy() == pytest.approx(expected, abs=2e-2)


def test_problems_of_copies_of_a_model_share_their_columns_and_end_at_the_same_weights():
    rows = rows_of(300, 4, 9)
    first, second = build_model("additive", 4), build_model("additive", 4)
    for model in (first, second):
        model.prepare(rows.x)
    alone = problem_of(first, rows)
    shared = Problem(linear_form(second), rows, BINARY, like=alone)
    assert shared.columns is alone.columns
    torch.testing.assert_close(alone.columns, first.body.design(rows.x))
    values = [list(problem.path()) for problem in (alone, shared)]
    assert values[0] == values[1]
    torch.testing.assert_close(shared.scores(), scores_of(first, rows.x), rtol=1e-4, atol=1e-4)


def test_columns_that_depend_on_each_other_have_coordinates_though_rounding_made_their_products_indefinite():
    kinds = torch.randint(3, (2_500,), generator=torch.Generator().manual_seed(0))
    one_hot = nn.functional.one_hot(kinds, 3).double()
    problem = problem_of(
        build_model("linear", 3), Rows(((one_hot - one_hot.mean(0)) / one_hot.std(0)).float(), kinds % 2.0)
    )
    problem.gram, problem.ridge = problem.gram - 1e-4 * torch.ones(3, 3), RIDGES[-1]  # as other rows are rounded
    assert float(torch.linalg.eigvalsh(problem.gram)[0]) < -RIDGES[-1]
    assert bool(problem.basis.isfinite().all())
    assert problem.minimise(problem.proper, 300, problem.basis) < 0.6
