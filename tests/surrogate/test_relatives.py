from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.registry import get_metric
from metricgrad.surrogate.config import config_for
from metricgrad.surrogate.fidelity import measure_fidelity
from metricgrad.surrogate.network import new_surrogate
from metricgrad.surrogate.pretrained import load_universal
from metricgrad.surrogate.pretraining import Fitting, fit_universal
from metricgrad.surrogate.relatives import nearest_relative, start_at
from metricgrad.surrogate.synthetic import GROUP_SIZE, BroadSets, ClassSets, ColumnSets

SETS = BroadSets()(20, GROUP_SIZE, 200, torch.Generator().manual_seed(3))


def pooled_and_true(name: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    surrogate = new_surrogate(config_for(get_metric(name)), 0)
    with torch.no_grad():
        pooled = surrogate.pool(*SETS).unflatten(0, (-1, GROUP_SIZE))
    return [pooled], [get_metric(name)(*SETS).view(-1, GROUP_SIZE)]


@pytest.mark.parametrize("name", ["auc", "best_f1", "precision_at(0.02)", "pr_auc(0.95,1)"])
def test_a_metric_that_is_bundled_is_its_own_nearest_relative(name: str) -> None:
    found = nearest_relative(config_for(get_metric(name)), *pooled_and_true(name))
    assert found is not None
    assert found.name == name
    assert found.correlation > 0.95


def test_the_output_function_may_be_another() -> None:
    config = replace(config_for(get_metric("auc")), link="linear")
    found = nearest_relative(config, *pooled_and_true("auc"))
    assert found is not None
    assert found.name == "auc"


def test_what_resembles_no_metric_has_no_relative() -> None:
    pooled, (true,) = pooled_and_true("auc")
    noise = torch.rand(true.shape, generator=torch.Generator().manual_seed(0))
    assert nearest_relative(config_for(get_metric("auc")), pooled, [noise]) is None
    assert nearest_relative(replace(config_for(get_metric("auc")), h=(7,)), pooled, [true]) is None


def test_with_columns_a_relative_sees_the_rows_as_one_of_them_weighs_them() -> None:
    box = black_box(
        lambda y, s, amount: 0.0, name="none", higher_is_better=True, value_range=(0, 1), columns=("amount",)
    )
    config = config_for(box)
    scores, targets, weights = ColumnSets(1)(20, GROUP_SIZE, 200, torch.Generator().manual_seed(4))
    true = get_metric("auc")(scores, targets[..., 0], weights * targets[..., 1])
    surrogate = new_surrogate(config, 0)
    with torch.no_grad():
        pooled = surrogate.pool(scores, targets, weights).unflatten(0, (-1, GROUP_SIZE))
    found = nearest_relative(config, [pooled], [true.view(-1, GROUP_SIZE)])
    assert found is not None
    assert found.part == 1
    start_at(surrogate, found)
    with torch.no_grad():
        judged = surrogate(scores, targets, weights)
        expected = load_universal(found.name)(scores, targets[..., 0], weights * targets[..., 1])
    torch.testing.assert_close(judged, expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("name", ["f_beta(1.5)", "partial_auc(0.1)"])
def test_a_start_at_a_relative_is_faithful_after_a_short_fitting(name: str) -> None:
    metric = get_metric(name).best
    short = Fitting(groups=48, steps=100, learning_rate=1e-3, sizes=(100, 400))
    sets = BroadSets()(30, GROUP_SIZE, 400, torch.Generator().manual_seed(9))
    near, far = (
        measure_fidelity(fit_universal(metric, fitting=short, from_relatives=relatives), metric, sets)["spearman"]
        for relatives in (True, False)
    )
    assert near > 0.95
    assert near > far


@pytest.mark.parametrize("classes", [2, 5, 40])
def test_the_bundled_macro_f1_is_faithful_for_any_number_of_classes(classes: int) -> None:
    metric = get_metric("macro_f1")
    sets = ClassSets((classes,))(6, GROUP_SIZE, 400, torch.Generator().manual_seed(9))
    measured = measure_fidelity(load_universal("macro_f1"), metric, sets)
    assert measured["spearman"] > 0.97
    assert measured["gap"] < 0.03
