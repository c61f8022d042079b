"""Thresholds lie where the scores of a set do, and attention over them finds the one that a metric belongs to."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from metricgrad import MetricClassifier, Recipe, SurrogateLoss, get_metric
from metricgrad.surrogate import pretraining
from metricgrad.surrogate.bundling import fit_bundled
from metricgrad.surrogate.config import CONFIGS, SurrogateConfig
from metricgrad.surrogate.fidelity import measure_fidelity
from metricgrad.surrogate.network import Surrogate
from metricgrad.surrogate.pooling import GRID_ROWS
from metricgrad.surrogate.pretrained import ATTENTION_FOLDER, bundled_digest, bundled_index, faithfulness
from metricgrad.surrogate.pretraining import Fitting
from metricgrad.surrogate.soft_curve import TOKEN, SoftCurve, placed_thresholds, threshold_levels
from metricgrad.surrogate.standardising import class_weights
from metricgrad.surrogate.synthetic import GROUP_SIZE, BroadSets

LEVELS = threshold_levels(64)
CURVE = SoftCurve(64, GRID_ROWS).double()


def drawn(seed: int, rows: int, share: float = 0.3) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = (torch.rand(rows, generator=generator) < share).double()
    targets[:2] = torch.tensor([1.0, 0.0])
    scores = torch.randn(rows, generator=generator, dtype=torch.float64) + targets
    return scores, targets, torch.rand(rows, generator=generator, dtype=torch.float64) + 0.1


def placed(scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    return placed_thresholds(scores, class_weights(targets, weights), LEVELS)


def pooled(scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    shares = weights / weights.sum()
    return CURVE(scores, targets, shares, class_weights(targets, shares))


@given(seed=st.integers(0, 10**6), rows=st.integers(2, 200))
def test_thresholds_fall_and_lie_within_the_scores(seed: int, rows: int) -> None:
    sets = drawn(seed, rows)
    found = placed(*sets)
    assert (found.diff() <= 1e-12).all()
    assert found.max() <= sets[0].max() + 1e-12
    assert found.min() >= sets[0].min() - 1e-12
    span = float(sets[0].max() - sets[0].min())
    assert float(-found.diff().min()) <= span / 32 + 1e-9  # half of the levels are for the way from top to bottom


@given(seed=st.integers(0, 10**6), shift=st.floats(-5, 5), scale=st.floats(0.1, 10))
def test_thresholds_move_with_the_scores(seed: int, shift: float, scale: float) -> None:
    scores, targets, weights = drawn(seed, 40)
    torch.testing.assert_close(
        placed(scale * scores + shift, targets, weights), scale * placed(scores, targets, weights) + shift
    )


def test_rare_positives_have_thresholds_of_their_own() -> None:
    scores, targets, weights = drawn(0, 10_000, share=0.001)
    found, positives = placed(scores, targets, weights), scores[targets > 0]
    assert all(float((found - score).abs().min()) < 1e-9 for score in positives)


def test_a_token_holds_the_rates_at_its_threshold() -> None:
    scores, targets, _ = drawn(1, 500)
    weights = torch.ones_like(scores)
    tokens = pooled(scores * 30, targets, weights).view(-1, TOKEN)  # so far apart that steps are nearly sharp
    centres = placed((scores * 10).asinh(), targets, weights)
    above = (scores * 10).asinh() > centres.unsqueeze(-1)
    near = (tokens[:, 6] - (above * targets).sum(-1) / above.sum(-1).clamp(min=1)).abs()
    assert float(near.median()) < 0.01
    found = (4 * tokens[:, 1]).exp() - 1e-4
    assert float((found - (above * targets).sum(-1) / targets.sum()).abs().median()) < 0.02


@pytest.mark.parametrize("rows", [300, 500])
def test_a_set_repeated_onto_the_grid_has_the_same_features_and_gradient(rows: int) -> None:
    sets = drawn(2, rows)
    copies = GRID_ROWS // rows + 1
    leaf = sets[0].clone().requires_grad_()
    direct, many = pooled(leaf, *sets[1:]), pooled(leaf.repeat(copies), *(rest.repeat(copies) for rest in sets[1:]))
    torch.testing.assert_close(many, direct, rtol=0, atol=5e-3)
    slopes = [torch.autograd.grad(each.sin().sum(), leaf)[0] for each in (direct, many)]
    assert float((slopes[0] - slopes[1]).norm()) < 0.01 * float(slopes[0].norm())


def test_nan_and_extreme_scores_reach_the_loss_as_nan_and_as_finite_numbers() -> None:
    surrogate = Surrogate(SurrogateConfig(h=(8,), attention=True))
    targets = (torch.arange(2 * GRID_ROWS) % 3 == 0).float()
    for rows in (30, 2 * GRID_ROWS):
        scores = torch.linspace(-1, 1, rows)
        far = torch.where(torch.arange(rows) == 3, 1e15, scores).requires_grad_()
        surrogate(far, targets[:rows]).backward()
        assert far.grad.isfinite().all()
        assert surrogate(torch.where(torch.arange(rows) == 3, torch.nan, scores), targets[:rows]).isnan()


def test_attention_is_only_for_plain_sets_of_two_classes_and_not_at_zero() -> None:
    with pytest.raises(ValueError, match="attention: expected no learned g and the view 'rows'"):
        Surrogate(SurrogateConfig(view="labels", attention=True))
    with pytest.raises(ValueError, match="attention"):
        Surrogate(SurrogateConfig(g=(4,), attention=True))
    with pytest.raises(ValueError, match="at threshold zero, got 'attention'"):
        SurrogateLoss("f1", form="zero", config="attention")
    with pytest.raises(ValueError, match="expected a view of multiclass sets"):
        SurrogateLoss("macro_auc", "scratch", config="attention")


def test_surrogates_with_attention_are_bundled_for_those_who_ask() -> None:
    index = bundled_index(ATTENTION_FOLDER)
    assert {"best_f1", "precision_at(0.02)", "recall_at_precision(0.9)"} < set(index)
    assert all(SurrogateConfig.from_dict(entry["config"]) == CONFIGS["attention"] for entry in index.values())
    assert all(faithfulness(entry) > 0.97 for entry in index.values())
    assert all("--attention" in entry["command"] for entry in index.values())
    assert SurrogateLoss("f1", config="attention").surrogate.config == CONFIGS["attention"]
    assert SurrogateLoss("f1").surrogate.config == SurrogateConfig()
    metric = get_metric("f1")
    digests = {config: bundled_digest(metric, config, "best") for config in ("default", "attention", "paper")}
    assert digests["attention"] == index["best_f1"]["sha256"][:16] != digests["default"]
    assert digests["paper"] == ""


def test_a_metric_without_a_bundled_one_starts_at_its_nearest_relative_with_attention(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path))
    monkeypatch.setattr(pretraining, "ON_DEMAND_ATTENTION", Fitting(groups=16, steps=5, batch=8, sizes=(100,)))
    surrogate = SurrogateLoss("f_beta(1.5)", config="attention", progress=lambda *_: None).surrogate
    assert surrogate.config == CONFIGS["attention"]
    sets = BroadSets()(8, GROUP_SIZE, 200, torch.Generator().manual_seed(5))
    assert measure_fidelity(surrogate, get_metric("f_beta(1.5)").best, sets)["spearman"] > 0.9


def test_surrogates_with_attention_can_be_fitted_and_say_how(tmp_path) -> None:
    tiny = Fitting(groups=16, steps=3, batch=8, sizes=(50,))
    ((name, record),) = fit_bundled(["best_f1"], tmp_path, tiny, attention=True)
    assert name == "best_f1"
    assert record["config"]["attention"]
    assert "--attention --groups 16 --steps 3" in record["command"]


def test_an_estimator_takes_a_surrogate_with_attention_by_its_recipe() -> None:
    rows = drawn(7, 300)
    x = torch.stack((rows[0], rows[2]), 1).numpy()
    recipe = Recipe(warmup=20, rounds=2, set_size=100, trust=-1.0, surrogate_config="attention")
    model = MetricClassifier("f1", "sl-r", "linear", recipe, folds=1, random_state=0).fit(x, rows[1].numpy())
    assert model.history_[-1].gap < 0.1


@pytest.mark.parametrize(("name", "level"), [("precision_at(0.02)", 0.02), ("fnr_at_fpr(0.05)", 0.05)])
def test_the_gradient_of_a_metric_at_a_level_lies_on_the_rows_near_it(name: str, level: float) -> None:
    surrogate = SurrogateLoss(name, config="attention").surrogate
    scores, targets, _ = drawn(3, 900)
    leaf = scores.float().requires_grad_()
    surrogate(leaf, targets.float()).backward()
    among = scores if name.startswith("precision") else scores[targets == 0]
    cut = among.sort(descending=True).values[round(level * len(among))]
    near = (scores - cut).abs() < 0.5
    slopes = leaf.grad.abs()
    assert float(slopes[near].sum()) > 0.7 * float(slopes.sum())
