"""Metrics that some threshold satisfies whatever the model: held at a share of rows, refused, or left as they are."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from metricgrad import get_metric
from metricgrad.metrics.held_share import held_at_share

Y = np.array([1, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0])
COLUMN = np.arange(12)[:, None] % 2


@pytest.mark.parametrize(
    "spec",
    ["recall", "min over sex of recall", "group_min(recall,sex)", "sum(amount * tp)", "tn",
     "recall subject to precision >= 0.2"],
)  # fmt: skip
def test_what_some_threshold_satisfies_is_judged_where_as_many_rows_are_called_as_are_positive(spec: str) -> None:
    metric = get_metric(spec)
    with pytest.warns(UserWarning, match=r"some threshold satisfies .* whatever the model.*'top\(0\.25\): "):
        held = held_at_share(metric, Y, COLUMN)
    assert held.name == f"top(0.25): {metric.name}"
    assert not held.thresholded
    assert held.columns == metric.columns


@pytest.mark.parametrize("spec", ["equal_opportunity_gap(sex)", "gap over sex of precision", "gap over sex of recall"])
def test_a_gap_alone_is_refused_with_metrics_that_make_sense(spec: str) -> None:
    with pytest.raises(ValueError, match=r"metric: expected one that depends on the model, got .*'f1 subject to"):
        held_at_share(get_metric(spec), Y, COLUMN)


@pytest.mark.parametrize(
    "spec",
    ["f1", "precision", "auc", "top(0.1): recall", "f1 - equal_opportunity_gap(sex)", "sum(amount * tp) - 5 * fp",
     "recall subject to precision >= 0.4", "expected_profit(1,5)", "mae", "macro_f1"],
)  # fmt: skip
def test_any_other_metric_stays_as_it_is(spec: str) -> None:
    metric = get_metric(spec)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert held_at_share(metric, Y, COLUMN) is metric


def test_the_share_counts_weights_and_sizes_of_columns_are_kept() -> None:
    metric = replace(get_metric("min over sex of recall"), column_sizes=(2.0,))
    weights = np.where(Y == 1, 1.0, 3.0)
    weights.setflags(write=False)  # as joblib shares arrays; warnings are errors here
    with pytest.warns(UserWarning, match="some threshold"):
        held = held_at_share(metric, Y, COLUMN, weights)
    assert held.name == "top(0.1): min over sex of recall"
    assert held.column_sizes == (2.0,)
