"""Strategies: which suit a metric and a model, and what they let it follow."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from metricgrad import black_box, get_metric
from metricgrad.losses.binary import CostSensitive, SoftCounts
from metricgrad.losses.default import SquaredError
from metricgrad.losses.regression import Huber, SoftWithin, Welsch
from metricgrad.metrics.constants import Units, in_units
from metricgrad.strategies.named import Named
from metricgrad.strategies.number_losses import quantile_of_constant, tolerances
from metricgrad.strategies.number_surrogate import NumberSurrogate
from metricgrad.strategies.registry import strategies_for
from metricgrad.strategies.strategy import Known, Setting
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows
from metricgrad.training.direct import MAX_SEARCHED, DirectSearch
from metricgrad.training.networks import build_model, kind_of
from metricgrad.training.recipe import recipe_for


def setting_of(metric: object, model: str, features: int = 4, outputs: int | None = None) -> Setting:
    return Setting(get_metric(metric), recipe_for("default", kind_of(model)), build_model(model, features, 0, outputs))


@pytest.mark.parametrize(
    ("metric", "model", "names"),
    [
        ("f1", "linear", ["proper", "weighted", "hand-made", "direct", "sl-r"]),
        ("auc", "linear", ["proper", "weighted", "hand-made", "direct", "sl-r"]),
        ("eer", "linear", ["proper", "weighted", "direct", "sl-r"]),
        ("f1", "small", ["proper", "hand-made", "sl-r"]),
        ("average_precision", "mlp", ["proper", "hand-made", "sl-r"]),
    ],
)
def test_strategies_suit_metric_and_model(metric: str, model: str, names: list[str]) -> None:
    assert [one.name for one in strategies_for(setting_of(metric, model))] == names


def test_several_outputs_and_many_weights_are_not_searched() -> None:
    several = setting_of("macro_f1", "linear", outputs=3)
    assert [one.name for one in strategies_for(several)] == ["proper", "sl-r"]
    wide = setting_of("f1", "linear", features=MAX_SEARCHED + 1)
    assert "direct" not in [one.name for one in strategies_for(wide)]


def test_a_metric_with_columns_may_have_a_plug_in_rule() -> None:
    names = [one.name for one in strategies_for(setting_of("value_at_capacity(0.1, amount)", "linear"))]
    assert names == ["proper", "plug-in", "cost-weighted", "direct", "sl-r"]


def test_what_costs_calls_is_not_searched_or_weighted() -> None:
    box = black_box(lambda y, s: float(((s >= 0) == y).mean()), higher_is_better=True, name="share")
    names = [one.name for one in strategies_for(setting_of(box, "linear"))]
    assert not {"direct", "weighted"} & set(names)


@pytest.mark.parametrize(
    ("metric", "model", "names"),
    [
        ("mae", "linear", ["mse", "mae", "huber", "pinball", "direct", "surrogate"]),
        ("within(0.1)", "linear", ["mse", "mae", "huber", "pinball", "tolerance", "direct", "surrogate"]),
        ("r2", "small", ["mse", "mae", "huber", "pinball", "longer", "surrogate"]),
        ("censored_concordance", "linear", ["mse", "cox", "direct", "surrogate"]),
    ],
)
def test_strategies_of_numbers_suit_metric_and_model(metric: str, model: str, names: list[str]) -> None:
    setting = setting_of(in_units(get_metric(metric), Units()), model)
    assert [one.name for one in strategies_for(setting)] == names


def known_of(followed: nn.Module, bias: float = 0.0) -> Known:
    """Rows whose targets are 2 x + 1, scored by 2 x + bias."""
    x = torch.linspace(-1, 1, 101).unsqueeze(1)
    rows = Rows(x, 2 * x[:, 0] + 1)

    def score(features: torch.Tensor) -> torch.Tensor:
        return 2 * features[:, 0].double() + bias

    return Known(rows, rows, rows.y, score, score, followed, {})


def test_losses_of_numbers_suit_the_errors_of_squared_error() -> None:
    setting = setting_of(in_units(get_metric("within_units(3)"), Units()), "small")._replace(
        known=known_of(Huber(0.7), bias=0.5)
    )
    losses = {one.name: one.losses(setting) for one in strategies_for(setting) if one.name != "surrogate"}
    (huber,) = losses["huber"]
    assert isinstance(huber, Huber)
    assert huber.width == pytest.approx(0.5)
    assert [type(one) for one in losses["tolerance"]] == [SoftWithin, Welsch]
    assert [one.width for one in losses["tolerance"]] == [3, 3]
    assert losses["longer"] == [setting.known.followed]  # type: ignore[union-attr]
    assert len(losses["pinball"]) == 3


def test_the_surrogate_of_numbers_is_fitted_once_and_refined_on_every_fold() -> None:
    known = known_of(SquaredError(), bias=0.5)
    inside = in_units(get_metric("step_cost(5,1,10)"), Units())
    setting = setting_of(inside, "linear")._replace(known=known)
    setting = setting._replace(recipe=replace(setting.recipe, trust_cap=20))
    seen: list[int] = []
    (first,) = NumberSurrogate().losses(setting, lambda _, done, total: seen.append(done))
    (second,) = NumberSurrogate().losses(setting, lambda *_: pytest.fail("it was fitted again"))
    assert seen[-1] == 20
    assert isinstance(first, SurrogateLoss)
    assert isinstance(second, SurrogateLoss)
    before = second.surrogate.state_dict()
    assert all(torch.equal(tensor, before[name]) for name, tensor in first.surrogate.state_dict().items())
    scores = torch.linspace(-1, 1, 64).repeat(8, 1)
    first.refine(scores, scores + torch.linspace(-1, 1, 8).unsqueeze(1))
    assert not torch.equal(first.surrogate.last.weight, second.surrogate.last.weight)


def test_a_quantile_is_the_level_of_the_best_constant_among_the_errors() -> None:
    generator = torch.Generator().manual_seed(0)
    scores, targets = torch.zeros(2000).double(), torch.randn(2000, generator=generator).double()
    for metric, level in (("pinball(0.8)", 0.8), ("mae", 0.5), ("step_cost(9,1)", 0.9), ("spearman", 0.5)):
        inside = in_units(get_metric(metric), Units(0.0, 3.0))
        found = quantile_of_constant(inside, scores, targets, 3 * targets, None)
        assert found == pytest.approx(level, abs=1e-3)


def test_a_tolerance_is_known_in_the_units_of_training() -> None:
    cases = {
        ("within(0.1)", True): 0.1 / 0.5,
        ("within(0.1)", False): 0.1 * 200 / 50,
        ("within_units(5)", False): 5 / 50,
        ("within_units(5)", True): 5 / 200 / 0.5,
    }
    for (name, log), expected in cases.items():
        units = Units(0.0, 0.5 if log else 50.0, log)
        assert tolerances(in_units(get_metric(name), units), torch.full((5,), 200.0)) == pytest.approx([expected])
    assert tolerances(in_units(get_metric("mae"), Units()), torch.ones(5)) == []


def test_losses_are_those_of_the_strategy() -> None:
    setting = setting_of("f1", "linear")
    losses = {one.name: one.losses(setting) for one in strategies_for(setting)}
    assert isinstance(losses["hand-made"][0], SoftCounts)
    assert isinstance(losses["direct"][0], DirectSearch)
    assert isinstance(losses["sl-r"][0], SurrogateLoss)
    assert [loss.weight for loss in losses["weighted"] if isinstance(loss, CostSensitive)] == [0.3, 3.0, 10.0]


def test_only_the_surrogate_of_a_linear_form_starts_from_the_best_of_the_others() -> None:
    for model, expected in (("linear", {"sl-r"}), ("additive", {"sl-r"}), ("small", set())):
        setting = setting_of("f1", model)
        assert {one.name for one in strategies_for(setting) if one.from_best(setting)} == expected


def test_a_method_by_name_has_all_its_settings() -> None:
    assert len(Named("cost-sensitive").losses(setting_of("f1", "linear"))) == 6
    (loss,) = Named("sl-u").losses(setting_of("f1", "linear"))
    assert isinstance(loss, SurrogateLoss)
    assert loss.frozen


def test_soft_counts_of_certain_scores_are_the_metric() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = 200.0 * torch.randn(40, generator=generator).sign()
    targets = (torch.rand(40, generator=generator) < 0.4).float()
    weights = torch.rand(40, generator=generator) + 0.1
    for name in ("f1", "mcc", "jaccard", "balanced_error", "f_beta(2)"):
        metric = get_metric(name)
        assert metric.counts is not None
        soft = SoftCounts(metric.counts)(scores.double(), targets, weights.double())
        assert float(soft) == pytest.approx(float(metric(scores.double(), targets, weights)), abs=1e-6)
