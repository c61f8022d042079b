"""The two classes of a target, which is positive, and columns that leak it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from metricgrad.tabular.cells import TableError
from metricgrad.tabular.leaks import PROBED_ROWS, column_auc, leaking_columns
from metricgrad.tabular.schema import Column, infer_columns
from metricgrad.tabular.target import Target, check_column
from metricgrad.tabular.target_inference import infer_target


def cells(**counts: int) -> pd.Series:
    return pd.Series([label for label, count in counts.items() for _ in range(count)])


@pytest.mark.parametrize(
    ("given", "positive", "why"),
    [
        (cells(yes=9, no=3), "yes", "it means yes"),
        (pd.Series(["0"] * 3 + ["1"] * 9), "1", "it means yes"),
        (pd.Series([0] * 3 + [1] * 9), 1, "it means yes"),
        (pd.Series([True] * 9 + [False] * 3), True, "it means yes"),
        (pd.Series([-1.0] * 3 + [1.0] * 9), "1", "the larger number"),
        (pd.Series([1] * 9 + [2] * 9), 2, "the larger number"),
        (cells(stayed=9, left=3), "left", "the rarer label"),
    ],
)
def test_the_positive_class_is_inferred_and_the_reason_given(given: pd.Series, positive: Any, why: str) -> None:
    target, text = infer_target(given, "churn")
    assert target.positive == positive
    assert type(target.positive) is type(positive)
    assert f"is positive ({why})" in text


def test_the_positive_class_may_be_chosen_also_against_all_others() -> None:
    assert infer_target(cells(yes=9, no=3), "churn", "no")[0] == Target("churn", "yes", "no")
    target, text = infer_target(cells(a=9, b=3, c=4), "grade", "b")
    assert target == Target("grade", "other", "b", rest=True)
    assert text == "target grade: 'b' is positive (as requested), 3 of 16 rows, against 2 others"
    np.testing.assert_array_equal(target.classes(pd.Series(["a", "b", "new", None])), [0, 1, 0, np.nan])
    with pytest.raises(TableError, match="positive: expected one of 'yes', 'no', got 'maybe'"):
        infer_target(cells(yes=9, no=3), "churn", "maybe")


def test_labels_are_the_same_however_they_are_stored() -> None:
    target = infer_target(pd.Series([0, 1] * 5), "y")[0]
    np.testing.assert_array_equal(target.classes(pd.Series(["1", "0", None])), [1, 0, np.nan])
    np.testing.assert_array_equal(target.classes(pd.Series([1.0, 0.0, np.nan])), [1, 0, np.nan])
    with pytest.raises(TableError, match="target: expected 0 or 1 in 'y', got '2'"):
        target.classes(pd.Series([1, 2]))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (cells(no=9), "target: expected two classes in 'churn', got one only, 'no'; columns of two classes: 'churned'"),
        (pd.Series([None, None]), "target: expected two classes in 'churn', got only missing cells"),
        (
            cells(a=3, b=2, c=2, d=2),
            r"expected two classes in 'churn', got 4: 'a', 'b', 'c' ...; choose the positive one, or a metric",
        ),
        (cells(yes=1, no=9), "target: expected at least 2 rows of each class in 'churn', got 1 of 'yes'"),
        (cells(yes=9, no=1), "target: expected at least 2 rows of each class in 'churn', got 1 of 'no'"),
    ],
)
def test_an_unusable_target_is_named_with_a_suggestion(given: pd.Series, message: str) -> None:
    others = pd.DataFrame(
        {"vip": [0, 1] * 5, "age": range(10), "churned": ["y", "n"] * 5, "tags": [[i] for i in range(10)]}
    )
    with pytest.raises(TableError, match=message):
        infer_target(given, "churn", others=others)


def test_a_column_that_is_not_there_is_named_with_one_that_is() -> None:
    check_column("churn", ["age", "churn"], "target")
    with pytest.raises(TableError, match="target: expected the name of a column, got 'chrun'; did you mean 'Churn'"):
        check_column("chrun", ["age", "Churn"], "target")
    with pytest.raises(TableError, match="weights: expected the name of a column, got 'zzz'; there are age, churn"):
        check_column("zzz", ["age", "churn"], "weights")


# ---- leaks ---------------------------------------------------------------------------------------------------------


N = 400
RNG = np.random.default_rng(0)
Y = (RNG.random(N) < 0.3).astype(float)


@given(st.lists(st.tuples(st.integers(-5, 5), st.booleans()), min_size=2))
def test_the_auc_of_a_column_is_that_of_scikit_learn_whichever_way_it_points(rows: list[tuple[int, bool]]) -> None:
    values, targets = (np.array(column, float) for column in zip(*rows, strict=True))
    if len(set(targets)) < 2:
        return
    area = roc_auc_score(targets, values)
    assert column_auc(Column("x", "number"), pd.Series(values), targets) == pytest.approx(max(area, 1 - area))


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
    found = dict(leaking_columns(frame, infer_columns(frame).used, Y))
    assert set(found) == {"copy", "reverse", "status", "closed", "flag"}
    assert min(found.values()) > 0.999


def test_few_rows_are_no_ground_for_suspicion() -> None:
    frame = pd.DataFrame({"x": Y[:40]})
    assert leaking_columns(frame, (Column("x", "number"),), Y[:40]) == []


def test_a_column_is_looked_at_whole_before_it_is_named() -> None:
    y = np.tile([0.0, 1.0], 3 * PROBED_ROWS)
    wrong_where_not_glanced_at = y.copy()
    rows = np.arange(len(y))
    wrong_where_not_glanced_at[rows % -(-len(y) // PROBED_ROWS) != 0] = 0.5
    assert leaking_columns(pd.DataFrame({"x": wrong_where_not_glanced_at}), (Column("x", "number"),), y) == []


@pytest.mark.parametrize(
    ("cells", "advice"),
    [
        (
            np.arange(26),
            "if they are classes, choose the positive one, or .* macro_f1; if not, a metric of num",
        ),
        (np.arange(26) + 0.5, "; choose a metric of numbers, such as mae"),
        (np.arange(500), "; choose a metric of numbers, such as mae"),
        (np.arange(5), "; choose the positive one, or a metric of several classes, such as macro_f1$"),
    ],
)
def test_numbers_in_place_of_two_classes_are_rather_classes_or_numbers(cells: np.ndarray, advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        infer_target(pd.Series(np.tile(cells, 3)), "letter")
