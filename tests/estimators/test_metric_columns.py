"""Columns that a metric needs: checked, encoded in one place, and warned of where they leak the target."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_classification

from metricgrad import MetricClassifier, Recipe, black_box, get_metric
from metricgrad.estimators.metric_columns import checked_columns, learn_columns
from metricgrad.metrics.registry import Metric
from metricgrad.surrogate.synthetic import sets_for

TABLES = os.environ.get("METRICGRAD_DATA")
COSTS = ("c_fp", "c_fn", "c_tp", "c_tn")
BRIEF = Recipe(warmup=30, rounds=4)
FAIR = get_metric("min over sex of recall")
Y = np.array([0, 1, 0, 1])


@given(st.lists(st.one_of(st.text(max_size=3), st.none()), min_size=1, max_size=12))
def test_codes_stand_for_the_same_groups_as_text_does(values: list[str | None]) -> None:
    metric, codes, known = learn_columns({"sex": values}, FAIR, np.zeros(len(values)))
    assert known is not None
    words = ["" if value is None else value for value in values]
    assert [codes["sex"][int(code)] for code in known[:, 0]] == words
    assert metric.column_sizes == (len(set(words)),)
    again = checked_columns({"sex": ["never seen!", *words]}, FAIR, len(words) + 1, codes)
    assert again is not None
    assert again[:, 0].tolist() == [len(codes["sex"]), *known[:, 0]]


@pytest.mark.parametrize(
    "values", [pd.Categorical(["f", "m", "f"]), pd.Series(["f", "m", "f"], dtype="string"), [1, 2, 1], [0.5, 9.0, 0.5]]
)
def test_groups_of_any_kind_become_codes_from_zero(values: object) -> None:
    _, _, known = learn_columns({"sex": values}, FAIR, np.zeros(3))
    assert known is not None
    assert known.ravel().tolist() == [0, 1, 0]


def test_text_is_encoded_for_callables_and_refused_as_an_amount() -> None:
    of_text = black_box(lambda y, s, shop: 0.0, higher_is_better=True, columns=("shop",), name="none")
    assert learn_columns({"shop": ["b", "a", "b", "c"]}, of_text, Y)[1] == {"shop": ["a", "b", "c"]}
    with pytest.raises(ValueError, match="columns: expected numbers for 'amount', got"):
        learn_columns({"amount": ["b", "a", "b", "c"]}, get_metric("sum(amount * tp)"), Y)


def test_columns_that_the_metric_does_not_use_are_named() -> None:
    with pytest.raises(ValueError, match=r"expected amount for the metric .*, got amount, x; x is not used by it"):
        learn_columns({"amount": [1.0] * 4, "x": [1.0] * 4}, get_metric("sum(amount * tp)"), Y)


def test_random_sets_have_amounts_of_the_size_of_the_table_and_as_many_groups() -> None:
    metric = get_metric("min over sex of sum(amount * tp)")
    columns = {"amount": [100.0, 90, 120, 110], "sex": list("abca")}
    learned, _, _ = learn_columns(columns, metric, Y)
    assert learned.column_sizes == (128.0, 3.0)
    drawn = sets_for(learned)(16, 8, 100, torch.Generator().manual_seed(0))
    assert 64 < drawn.targets[..., 1].median() < 256
    assert set(drawn.targets[..., 2].unique().tolist()) == {0.0, 1.0, 2.0}


def test_a_column_that_separates_the_classes_is_warned_of() -> None:
    y = np.repeat([0, 1], 50)
    with pytest.warns(UserWarning, match=r"columns: 'amount' alone predicts the target \(AUC 1.0000\)"):
        learn_columns({"amount": y * 7.0}, get_metric("sum(amount * tp)"), y)
    learn_columns({"amount": np.tile([1.0, 2.0], 50)}, get_metric("sum(amount * tp)"), y)  # no warning


@pytest.mark.parametrize("of", [0, 1])
def test_an_amount_that_only_one_class_has_is_warned_of_although_some_of_its_rows_have_none(of: int) -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.1).astype(int)
    amount = np.where((y == of) & (rng.random(3000) > 0.05), rng.lognormal(3, 1, 3000), 0)  # an AUC of 0.975
    metric, others = get_metric("sum(amount * tp)"), {0: "positive", 1: "negative"}[of]
    with pytest.warns(UserWarning, match=rf"columns: 'amount' is 0 in 100 % of the {others} rows and in \d"):
        learn_columns({"amount": amount}, metric, y)
    with pytest.warns(UserWarning, match=rf"in 99\.\d+ % of the {others} rows"):
        learn_columns({"amount": np.where(rng.random(3000) < 0.004, 5.0, amount)}, metric, y)


def warnings_of(columns: dict[str, Any], metric: Metric, y: np.ndarray) -> list[str]:
    """What is warned of where columns are learned."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        learn_columns(columns, metric, y)
    return [str(each.message) for each in caught]


def test_constant_amounts_and_few_rows_are_not_warned_of() -> None:
    rng = np.random.default_rng(0)
    y = (rng.random(3000) < 0.1).astype(int)
    metric = get_metric("sum(amount * tp)")
    for amount in (np.full(3000, 5.0), np.where(rng.random(3000) < 0.3, 9.0, 0.0), rng.lognormal(size=3000)):
        assert not warnings_of({"amount": amount}, metric, y)
    few = np.arange(3000) < 10
    assert not warnings_of({"amount": np.where(few & (np.arange(3000) > 2), 5.0, 0.0)}, metric, few.astype(int))


@pytest.mark.skipif(not TABLES, reason="METRICGRAD_DATA is not set")
@pytest.mark.parametrize(
    ("file", "columns", "metric"),
    [
        ("ccfraud.parquet", {"amount": "Amount"}, "sum(amount * tp)"),
        ("extra/churn_tv.parquet", {each: each.upper() for each in COSTS}, "savings(c_fp, c_fn, c_tp, c_tn)"),
        ("rt30/club_loan.parquet", {"amount": "installment"}, "sum(amount * tp)"),
        ("a9a.parquet", {"sex": "f73"}, "min over sex of recall"),
        ("a9a.parquet", {"amount": "f73"}, "sum(amount * tp)"),
    ],
)
def test_columns_of_real_tables_are_not_warned_of(file: str, columns: dict[str, str], metric: str) -> None:
    path = Path(str(TABLES)) / file
    if not path.exists():
        pytest.skip(f"no {file}")
    frame = pd.read_parquet(path, columns=[*columns.values(), "target"])
    known = {name: frame[each] for name, each in columns.items()}
    assert not warnings_of(known, get_metric(metric), frame["target"].to_numpy())


def test_a_classifier_is_trained_and_scored_with_amounts_and_text_groups() -> None:
    X, y = make_classification(500, 6, random_state=0)
    rng = np.random.default_rng(0)
    amount, sex = np.exp(rng.normal(size=500)), np.where(rng.random(500) < 0.5, "f", "m")
    money = MetricClassifier("sum(amount * tp) - 2 * fp", "cross-entropy", "linear", BRIEF)
    money.fit(X[:400], y[:400], columns={"amount": amount[:400]})
    called = money.predict(X[400:]) == 1
    profit = np.where(called, np.where(y[400:] == 1, amount[400:], -2), 0).mean()
    assert money.score(X[400:], y[400:], columns={"amount": amount[400:]}) == pytest.approx(profit)
    assert money.column_codes_ == {}
    fair = MetricClassifier("min over sex of f1", "cross-entropy", "linear", BRIEF)
    fair.fit(X[:400], y[:400], columns={"sex": sex[:400]})
    assert fair.column_codes_ == {"sex": ["f", "m"]}
    assert 0 < fair.score(X[400:], y[400:], columns={"sex": sex[400:]}) <= 1
