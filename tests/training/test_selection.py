"""Selection keeps what is best on validation rows, and a learned loss must win by more than their noise."""

from __future__ import annotations

import math
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from metricgrad.losses.binary import CrossEntropy
from metricgrad.metrics.registry import Metric, auc, f1, get_metric
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training import selection as selecting
from metricgrad.training.data import Rows
from metricgrad.training.history import Verdict
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Selection, exact_scores, loss_of, scores_of, standard_error
from metricgrad.training.trainer import train

RECIPE = Recipe(warmup=6, rounds=4, set_size=48, refine_sets=4, trust=-1.0, check_every=1, model_steps=3)


def table(n: int = 300, seed: int = 0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=generator)
    return Rows(x, (x[:, 0] - x[:, 1] + torch.randn(n, generator=generator) > 1).float())


class Fixed(nn.Module):
    """A model that scores a row by its first feature, and how far it is to trust it."""

    def __init__(self, good: float) -> None:
        super().__init__()
        self.good = nn.Parameter(torch.tensor(good))

    def forward(self, x: Tensor) -> Tensor:
        return x[..., 0] * self.good - x[..., 1] * self.good + x[..., 2] * (1 - self.good)


def judged(control: float, followed: float, margin: float, learned: bool = True, n: int = 300) -> tuple[Verdict, float]:
    selection, model = Selection(table(n, 1), auc, replace(RECIPE, margin=margin)), Fixed(0.0)
    selection.check(Fixed(control), followed=False)
    selection.check(Fixed(followed), followed=True)
    selection.restore(model, learned)
    assert selection.verdict is not None
    return selection.verdict, model.good.item()


def test_a_clear_winner_is_kept_and_a_loser_is_not() -> None:
    verdict, kept = judged(0.2, 1.0, margin=1.0)
    assert verdict.followed
    assert verdict.gain > verdict.error > 0
    assert kept == 1.0
    verdict, kept = judged(1.0, 0.2, margin=1.0)
    assert not verdict.followed
    assert verdict.gain < 0
    assert kept == 1.0


def test_a_gain_within_the_noise_is_not_kept_unless_no_margin_is_asked_for() -> None:
    verdict, kept = judged(0.6, 0.61, margin=9.0)
    assert 0 < verdict.gain <= 9 * verdict.error
    assert not verdict.followed
    assert kept == pytest.approx(0.6)
    assert "noise" in str(verdict)
    assert judged(0.6, 0.61, margin=0.0)[1] == pytest.approx(0.61)


def test_a_loss_made_by_hand_needs_no_margin() -> None:
    assert judged(0.6, 0.61, margin=9.0, learned=False)[1] == pytest.approx(0.61)


def test_equal_models_leave_cross_entropy_in_place() -> None:
    assert not judged(0.5, 0.5, margin=0.0)[0].followed


@pytest.mark.parametrize("gain", [0.0, -0.02])
def test_a_model_that_gains_nothing_is_not_said_to_gain_within_the_noise(gain: float) -> None:
    said = str(Verdict(False, gain, math.nan))
    assert said.startswith("kept cross-entropy: ")
    beside = f" {'behind' if gain else 'over'} cross-entropy"
    assert f"{abs(gain):.4f}{beside} on the validation rows" in said
    assert "noise" not in said
    assert "nan" not in said


def test_nothing_looked_at_is_nothing_to_restore() -> None:
    selection, model = Selection(table(), auc, RECIPE), Fixed(0.7)
    selection.restore(model, learned=True)
    assert selection.verdict == Verdict(
        False, pytest.approx(math.nan, nan_ok=True), pytest.approx(math.nan, nan_ok=True)
    )
    assert model.good.item() == pytest.approx(0.7)


def test_the_error_of_a_difference_is_that_of_repeated_experiments() -> None:
    """Oracle: how much the difference varies over fresh validation rows."""
    differences, errors = [], []
    for seed in range(60):
        rows = table(400, 100 + seed)
        one, other = (scores_of(Fixed(good), rows.x) for good in (0.5, 0.8))
        differences.append(float(auc(one, rows.y) - auc(other, rows.y)))
        errors.append(standard_error(auc, one, other, rows.y, seed=seed))
    assert np.mean(errors) == pytest.approx(np.std(differences, ddof=1), rel=0.3)


@pytest.mark.parametrize("metric", [auc, f1.best])
def test_the_error_falls_with_the_root_of_the_rows_and_is_paired(metric: Metric) -> None:
    def error(n: int, first: float, second: float) -> float:
        rows = table(n, 3)
        return standard_error(metric, *(scores_of(Fixed(good), rows.x) for good in (first, second)), rows.y, draws=200)

    assert error(6400, 0.4, 0.8) == pytest.approx(error(400, 0.4, 0.8) / 4, rel=0.35)
    assert error(400, 0.8, 0.8) == 0
    assert error(400, 0.79, 0.8) < error(400, 0.4, 0.8) / 3


@pytest.mark.parametrize("metric", [auc, f1.best])
def test_the_error_of_very_many_rows_is_found_by_some_of_them(metric: Metric, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = table(20_000, 5)
    scores = [scores_of(Fixed(good), rows.x) for good in (0.4, 0.8)]
    by_all = standard_error(metric, *scores, rows.y, draws=200)
    monkeypatch.setattr(selecting, "MAX_TOTAL_ROWS", 16 * 4_000)
    sizes, judged = [], metric.function
    counted = replace(metric, function=lambda s, *sets: (sizes.append(s.shape[-1]), judged(s, *sets))[1])
    assert standard_error(counted, *scores, rows.y, draws=200) == pytest.approx(by_all, rel=0.3)
    assert set(sizes) == {4_000}


@pytest.mark.parametrize("spec", ["value_at_capacity(0.05, amount)", "savings(1, amount)"])
def test_by_a_metric_with_columns_some_negatives_stand_for_the_others(
    spec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Oracle: all rows. Negatives that stand for ten each must vary as ten rows do, not as one ten times as heavy."""
    rows, metric = table(20_000, 5), get_metric(spec).best
    amounts = torch.rand(20_000, generator=torch.Generator().manual_seed(0)) * 100
    rare = rows.y * (torch.rand(20_000, generator=torch.Generator().manual_seed(1)) < 0.1)
    targets = torch.stack([rare, amounts], -1)
    scores = [scores_of(Fixed(good), rows.x) for good in (0.4, 0.8)]
    by_all = standard_error(metric, *scores, targets, draws=200)
    monkeypatch.setattr(selecting, "MAX_ROWS_OF_COLUMNS", 2_500)
    sizes, judged = [], metric.function
    counted = replace(metric, function=lambda s, *sets: (sizes.append(s.shape[-1]), judged(s, *sets))[1])
    assert standard_error(counted, *scores, targets, draws=200) == pytest.approx(by_all, rel=0.3)
    assert set(sizes) == {2_500}


def test_rows_of_groups_are_all_resampled(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, metric = table(400, 5), get_metric("group_min(recall, sex)")
    monkeypatch.setattr(selecting, "MAX_ROWS_OF_COLUMNS", 100)
    sizes, judged = [], metric.function
    counted = replace(metric, function=lambda s, *sets: (sizes.append(s.shape[-1]), judged(s, *sets))[1])
    scores = [scores_of(Fixed(good), rows.x) for good in (0.4, 0.8)]
    standard_error(counted, *scores, torch.stack([rows.y, torch.arange(400) % 2], -1), draws=8)
    assert set(sizes) == {400}


def test_a_metric_without_weights_is_judged_on_rows_drawn_anew() -> None:
    rows = table(500, 4)
    scores = [scores_of(Fixed(good), rows.x) for good in (0.4, 0.8)]
    plain = replace(auc, name="plain", takes_weights=False)
    drawn, weighed = (standard_error(metric, *scores, rows.y, draws=300) for metric in (plain, auc))
    assert drawn == pytest.approx(weighed, rel=0.25)


def test_offsets_need_not_be_searched_anew_for_the_error() -> None:
    generator, metric = torch.Generator().manual_seed(0), get_metric("macro_f1")
    y = torch.randint(3, (600,), generator=generator)
    one_hot = torch.nn.functional.one_hot(y, 3).float()
    control, followed = (sharp * one_hot + torch.randn(600, 3, generator=generator) for sharp in (0.8, 1.2))
    found = Selection(Rows(torch.zeros(600, 1), one_hot), metric, Recipe())._error(control, followed)
    assert found == pytest.approx(standard_error(metric.best, control, followed, one_hot), rel=0.3)


@given(st.integers(2, 40), st.integers(0, 1000))
def test_the_error_of_anything_is_a_number(n: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    one, other = torch.randn(2, n, generator=generator).round()
    y = (torch.rand(n, generator=generator) < 0.2).float()
    for metric in (auc, f1.best):
        assert 0 <= standard_error(metric, one, other, y, draws=8) <= 1


def test_the_error_of_equal_models_is_not_asked_for() -> None:
    verdict, _ = judged(0.5, 0.5, margin=1.0)
    assert (verdict.followed, verdict.gain) == (False, 0)
    assert math.isnan(verdict.error)


@pytest.mark.parametrize(
    ("metric", "proxy"), [("auc", "cross-entropy"), ("ndcg", "LambdaRank"), ("spearman", "squared error")]
)
def test_a_verdict_names_the_proxy_of_the_task(metric: str, proxy: str) -> None:
    assert Selection(table(), get_metric(metric), RECIPE).choose(learned=True).proxy == proxy


def test_offsets_and_weights_have_their_say_in_the_error() -> None:
    generator, metric = torch.Generator().manual_seed(0), get_metric("macro_f1")
    one_hot = torch.nn.functional.one_hot(torch.randint(3, (600,), generator=generator), 3).float()
    control, followed = (sharp * one_hot + torch.randn(600, 3, generator=generator) for sharp in (0.8, 1.2))
    weights = (torch.arange(600) < 150).float()
    shifted = torch.tensor([4.0, 0.0, -4.0])

    def error(w: Tensor | None, rows: slice = slice(None), shift: Tensor | float = 0.0) -> float:
        validation = Rows(torch.zeros(600, 1)[rows], one_hot[rows], None if w is None else w[rows])
        return Selection(validation, metric, Recipe())._error(control[rows] + shift, followed[rows] + shift)

    assert error(None, shift=shifted) == pytest.approx(error(None), rel=0.1)
    # Rows of no weight say nothing: a quarter of the rows, twice the error.
    assert error(weights) == pytest.approx(error(None, slice(150)), rel=0.35)
    assert error(weights) > 1.5 * error(None)


# ---- scores --------------------------------------------------------------------------------------------------------


class Recorded(nn.Module):
    """A model that notes how many rows it is given at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(x.shape[:-1].numel())
        return x.sum(-1)


def test_many_rows_are_scored_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("metricgrad.training.selection.ROWS_AT_ONCE", 4)
    model, x = Recorded(), torch.randn(10, 3)
    torch.testing.assert_close(scores_of(model, x), x.sum(-1))
    assert model.rows == [4, 4, 2]
    model.rows.clear()
    torch.testing.assert_close(scores_of(model, x.view(2, 5, 3)), x.sum(-1).view(2, 5))
    assert model.rows == [10]


@pytest.mark.parametrize("outputs", [(), (3,)])
@pytest.mark.parametrize("shape", [(11,), (3, 5)])
def test_exact_scores_are_those_of_each_row_alone_in_double(
    shape: tuple[int, ...], outputs: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("metricgrad.training.selection.ROWS_AT_ONCE", 4)
    layers = [nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, *(outputs or (1,)))]
    model = nn.Sequential(*layers) if outputs else nn.Sequential(*layers, nn.Flatten(0))
    model(torch.randn(50, 2))  # statistics of the batch norm
    x, before = torch.randn(*shape, 2), deepcopy(model.state_dict())
    found = exact_scores(model, x)
    alone = deepcopy(model).double().eval()
    expected = torch.cat([alone(row[None].double()) for row in x.reshape(-1, 2)]).view(*shape, *outputs)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, expected.detach(), rtol=1e-12, atol=1e-12)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


# ---- rows in sets of their own -------------------------------------------------------------------------------------

GROUPS = [[0, 3, 5, 7], [1, 2], [6, 4, 8]]
MEMBERS = torch.tensor([[0, 3, 5, 7], [1, 2, -1, -1], [6, 4, 8, -1]])
SCORES = torch.tensor([0.1, 0.9, 0.3, 0.4, 0.8, 0.7, 0.2, 0.6, 0.5])
TARGETS = torch.tensor([0.0, 1, 1, 1, 0, 0, 1, 1, 0])  # of the second set, every row is positive
WEIGHTS = torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8, 9])


@pytest.mark.parametrize("w", [None, WEIGHTS])
def test_rows_of_a_set_come_with_their_own_targets_and_weights_and_padding_weighs_nothing(w: Tensor | None) -> None:
    scores, targets, weights = Rows(torch.zeros(9, 1), TARGETS, w, MEMBERS).in_sets(SCORES)
    assert weights is not None
    for group, s, y, weight in zip(GROUPS, scores, targets, weights, strict=True):
        assert s[: len(group)].tolist() == [float(SCORES[row]) for row in group]
        assert y[: len(group)].tolist() == [float(TARGETS[row]) for row in group]
        assert weight.tolist() == [1.0 if w is None else float(w[row]) for row in group] + [0.0] * (4 - len(group))


@pytest.mark.parametrize("w", [None, WEIGHTS])
def test_the_loss_of_sets_is_the_mean_of_those_with_both_classes(w: Tensor | None) -> None:
    weights = np.ones(9) if w is None else w.numpy()
    expected = [
        1 - roc_auc_score(TARGETS[group], SCORES[group], sample_weight=weights[group])
        for group in (GROUPS[0], GROUPS[2])
    ]
    rows = Rows(torch.zeros(9, 1), TARGETS, w, MEMBERS)
    assert loss_of(auc, rows, SCORES) == pytest.approx(np.mean(expected))
    assert loss_of(auc, rows._replace(members=MEMBERS[1:2]), SCORES) == 0
    whole = 1 - roc_auc_score(TARGETS, SCORES, sample_weight=weights)
    assert loss_of(auc, rows._replace(members=None), SCORES) == pytest.approx(whole)


# ---- the control -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["linear", "mlp"])
def test_the_control_is_the_very_run_of_cross_entropy(model: str) -> None:
    def run(loss: nn.Module, recipe: Recipe) -> list[tuple[float, float]]:
        torch.manual_seed(0)
        network = build_model(model, 5)
        torch.manual_seed(0)
        rounds = train(network, loss, table(), recipe, selection=Selection(table(200, 1), auc, recipe), seed=2)
        return [(done.validation, done.control) for done in rounds if done.phase == "rounds"]

    plain = run(CrossEntropy(), RECIPE)
    beside = run(SurrogateLoss("auc"), RECIPE)
    assert [control for _, control in beside] == [own for own, _ in plain]
    assert all(math.isnan(control) for _, control in plain)
    assert all(math.isnan(control) for _, control in run(SurrogateLoss("auc"), replace(RECIPE, control=False)))
    assert [own for own, _ in beside] == [own for own, _ in run(SurrogateLoss("auc"), replace(RECIPE, control=False))]


@pytest.mark.parametrize(("set_size", "apart"), [(48, 0.0), (50, 1e-3)])
def test_a_surrogate_that_gains_nothing_ends_at_cross_entropy(set_size: int, apart: float) -> None:
    # Exactly where memory is aligned for both members; else their steps are rounded differently in the last bit.
    recipe = replace(RECIPE, set_size=set_size, warmup=60, rounds=30, learning_rate=0.02, margin=1e9)
    ends = []
    for loss in (CrossEntropy(), SurrogateLoss("auc")):
        network = build_model("mlp", 5)
        torch.manual_seed(0)
        selection = Selection(table(200, 1), auc, recipe)
        list(train(network, loss, table(), recipe, selection=selection, seed=2))
        ends.append(network.state_dict())
    assert selection.verdict is not None
    assert not selection.verdict.followed
    for name, value in ends[0].items():
        torch.testing.assert_close(value, ends[1][name], rtol=0, atol=apart)


def test_a_model_that_loses_as_much_as_the_best_so_far_is_not_the_best() -> None:
    selection = Selection(table(), auc, RECIPE)
    assert [selection.check(Fixed(good), followed=False)[1] for good in (0.2, 0.2, 1.0, 1.0, 0.5)] == [
        True,
        False,
        True,
        False,
        False,
    ]
