"""Bounds that are checked on held-out rows after the choice."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from metricgrad import MetricClassifier, TableClassifier
from metricgrad.training.recipe import get_recipe

QUICK = get_recipe("linear", trust=-1.0, rounds=1)


def payments(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows whose amounts have nothing to do with their features or class."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    y = (rng.random(rows) < 1 / (1 + np.exp(2 - 2 * X[:, 0]))).astype(int)
    return X, y, np.exp(1.5 * rng.normal(size=rows))


def test_a_bound_that_holds_on_held_out_rows_is_said_to_be_kept() -> None:
    X, y, amount = payments(1500, 0)
    model = MetricClassifier("sum(amount * tp) subject to precision >= 0.4", model="linear", recipe=QUICK)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y, columns={"amount": amount})
    check = model.bound_
    assert check.kept
    assert min(check.value, check.unseen) >= 0.4
    assert check.rows == 1500
    assert str(check).startswith("bound precision >= 0.4 kept: 0.4")
    assert model.rule_ is not None  # it weighs money against precision, and does not rank by p * amount alone
    assert model.rule_.negative[""] < 0
    new_X, new_y, new_amount = payments(4000, 1)
    called = model.predict(new_X, {"amount": new_amount}) == 1
    assert called.sum() > 800
    assert new_y[called].mean() == pytest.approx(0.43, abs=0.04)
    assert MetricClassifier("f1", "cross-entropy", "linear", QUICK).fit(X, y).bound_ is None


def test_a_bound_that_is_missed_on_held_out_rows_is_warned_of_and_noted() -> None:
    X, y, _ = payments(400, 0)
    frame = pd.DataFrame(X).assign(target=y)
    model = TableClassifier("recall subject to precision >= 0.999", model="linear", recipe=QUICK)
    with pytest.warns(UserWarning, match=r"bound precision >= 0\.999 missed: .* expect it to be missed on new rows"):
        model.fit(frame, "target")
    assert any(note.startswith("bound precision >= 0.999 missed: ") for note in model.notes_)
    fixed = MetricClassifier("recall subject to precision >= 0.9", "cross-entropy", "linear", QUICK, threshold=-9.0)
    with pytest.warns(UserWarning, match="bound precision"):
        check = fixed.fit(X, y).bound_
    assert check.unseen == check.value == pytest.approx(y.mean(), abs=0.03)
