"""What a folder says of a table comes back, and what it cannot say is refused before anything is trained."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from metricgrad import Recipe, TableClassifier, black_box
from metricgrad.tabular.encoding import Preparation
from metricgrad.tabular.manifest import TEXT, Field
from metricgrad.tabular.table_state import check_storable, read_table_state, table_state
from metricgrad.tabular.target import Target

ENDLESS = Recipe(warmup=10**9)
"""A training that would never end."""


def test_metric_target_and_encoders_come_back() -> None:
    frame = pd.DataFrame({"age": [20, 40, None] * 9, "plan": ["a", "b", "a"] * 9, "all": 1})
    preparation, target = Preparation().fit(frame), Target("left", False, True)
    state = table_state("f1", target, preparation)
    check_storable(state)
    metric, again, prepared = read_table_state(Field(json.loads(json.dumps(state))))
    assert (metric, again) == ("f1", target)
    assert prepared.schema_ == preparation.schema_
    np.testing.assert_array_equal(prepared.transform(frame), preparation.transform(frame))


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"age": np.arange(40) % 7, "left": ["yes", "no"] * 20, **columns})


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"c" * (TEXT + 1): np.arange(40) % 5}, r"columns\[1\].name: expected text of at most 100,000 characters"),
        (
            {"plan": np.array(["x" * (TEXT + 1), "y", "z"])[np.arange(40) % 3]},
            r"preparation\[1\].levels\[\d\]: expected text of at most 100,000",
        ),
        (
            {f"plan{i}": [f"{n % 5}{'😀' * 90_000}" for n in range(40)] for i in range(6)},
            "expected a table described in .* bytes and .* values, got .*; ignore some columns",
        ),
    ],
    ids=["name", "level", "all"],
)
def test_a_table_that_cannot_be_described_is_refused_before_training(columns: dict[str, Any], message: str) -> None:
    model = TableClassifier("f1", "cross-entropy", "linear", ENDLESS)
    with pytest.raises(ValueError, match=message):
        model.fit(frame(**columns), "left")


def test_a_label_that_cannot_be_described_is_refused_before_training() -> None:
    strange = ["x" * (TEXT + 1), "y"] * 20
    with pytest.raises(ValueError, match=r"target.(negative|positive): expected text of at most 100,000 characters"):
        TableClassifier("f1", "cross-entropy", "linear", ENDLESS).fit(frame()[["age"]], np.array(strange))


def test_a_metric_whose_name_cannot_be_kept_is_refused_before_training() -> None:
    def gain(y_true: Any, y_pred: Any) -> float:
        return float((y_true * y_pred).sum())

    metric = black_box(gain, name="g" * 2_000, higher_is_better=True, labels=True)
    with pytest.raises(ValueError, match="metric: expected text of at most 1,000 characters of Unicode, got 'ggg"):
        TableClassifier(metric, "cross-entropy", "linear", ENDLESS).fit(frame(), "left")


@pytest.mark.parametrize("metric", ["macro_f1", "label_map", "ndcg"])
def test_a_metric_of_anything_but_two_classes_is_refused_before_training(metric: str) -> None:
    with pytest.raises(ValueError, match=f"metric: expected one for two classes, such as 'f1', got '{metric}"):
        TableClassifier(metric, "cross-entropy", "linear", ENDLESS).fit(frame(), "left")


def test_the_positive_label_may_be_called_other() -> None:
    labels = np.array(["other", "a", "b", "c"] * 10)
    quick = Recipe(warmup=9, rounds=0)
    model = TableClassifier("f1", "cross-entropy", "linear", quick, positive="other").fit(frame()[["age"]], labels)
    assert model.classes_.tolist() == ["not other", "other"]
