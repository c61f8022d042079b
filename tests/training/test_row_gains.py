from __future__ import annotations

import numpy as np
import pytest
from rows_with_amounts import AMOUNT, COST, ODDS, SCORES, Y

from metricgrad import get_metric
from metricgrad.training.row_gains import error_costs, row_gains


def test_gains_are_differences_of_the_loss() -> None:
    metric = get_metric("savings(cost, amount, 0.1)")
    few = slice(0, 40)
    rows = {"weights": np.ones(40), "scores": SCORES[few], "columns": {"amount": AMOUNT[few], "cost": COST[few]}}
    gains = row_gains(metric, np.zeros(40, bool), ODDS[few], rows)
    assert gains is not None
    positive, negative = gains
    expected = np.concatenate((AMOUNT[few] - 0.1, -COST[few]))
    assert np.concatenate((positive, negative)) == pytest.approx(expected / np.abs(expected).max())


def test_costs_of_errors_are_those_that_the_metric_names() -> None:
    known = {"amount": AMOUNT, "cost": COST}
    named = np.where(Y == 1, AMOUNT, COST)
    found = error_costs(get_metric("sum(amount * fn + cost * fp)"), SCORES, Y, columns=known)
    assert found == pytest.approx(named / named.mean())
    at_capacity = error_costs(get_metric("value_at_capacity(0.05, amount)"), SCORES, Y, columns=known)
    assert at_capacity is not None
    assert np.ptp(at_capacity[Y == 0]) < 1e-12
    assert np.corrcoef(at_capacity[Y == 1], AMOUNT[Y == 1])[0, 1] > 0.99
    assert at_capacity.mean() == pytest.approx(1)
    classes = error_costs(get_metric("f1"), SCORES, Y)
    assert classes is not None
    assert len(np.unique(classes.round(9))) == 2
    assert error_costs(get_metric("auc"), SCORES, Y) is None
