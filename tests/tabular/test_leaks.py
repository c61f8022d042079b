"""Columns that alone tell the target; scikit-learn's AUC is the oracle."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from metricgrad.tabular.leaks import GLANCE, alone, leaking
from metricgrad.tabular.schema import Column, infer_columns

N = 400
RNG = np.random.default_rng(0)
Y = (RNG.random(N) < 0.3).astype(float)


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=2))
def test_the_auc_of_a_column_is_that_of_scikit_learn_whichever_way_it_points(rows: list[tuple[int, bool]]) -> None:
    values, targets = (np.array(column, float) for column in zip(*rows, strict=True))
    if len(set(targets)) < 2:
        return
    area = roc_auc_score(targets, values)
    assert alone(Column("x", "number"), pd.Series(values), targets) == pytest.approx(max(area, 1 - area))


def test_columns_that_give_the_target_away_are_named_and_others_are_not() -> None:
    noise = RNG.normal(size=N)
    frame = pd.DataFrame(
        {
            "honest": Y + noise,
            "copy": Y + noise * 1e-3,
            "reverse": -Y * 100 + noise,
            "status": np.where(Y == 1, RNG.choice(["left", "gone"], N), RNG.choice(["here", "active"], N)),
            "plan": RNG.choice(["a", "b", "c"], N),
            "rare": [f"level {i // 4}" for i in range(N)],
            "closed": np.where(Y == 1, "2020-01-01", None),
            "flag": np.where(Y == 1, "yes", "no"),
        }
    )
    found = dict(leaking(frame, infer_columns(frame).used, Y))
    assert set(found) == {"copy", "reverse", "status", "closed", "flag"}
    assert min(found.values()) > 0.999


def test_few_rows_are_no_ground_for_suspicion() -> None:
    frame = pd.DataFrame({"x": Y[:40]})
    assert leaking(frame, (Column("x", "number"),), Y[:40]) == []


def test_a_column_is_looked_at_whole_before_it_is_named() -> None:
    y = np.tile([0.0, 1.0], 3 * GLANCE)
    wrong_where_not_glanced_at = y.copy()
    rows = np.arange(len(y))
    wrong_where_not_glanced_at[rows % -(-len(y) // GLANCE) != 0] = 0.5
    assert leaking(pd.DataFrame({"x": wrong_where_not_glanced_at}), (Column("x", "number"),), y) == []
