"""From a raw table to a fitted model: what is inferred, how rows are split, what is refused."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.metrics import f1_score

from metricgrad import Recipe, TableClassifier
from metricgrad.tabular.cells import TableError
from metricgrad.training.splits import group_part, latest_part

N = 300
QUICK = Recipe(warmup=60, rounds=0, learning_rate=0.05)


def table(n: int = N, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "customer_id": [f"c{i:05}" for i in range(n)],
            "age": rng.normal(40, 10, n).round(1),
            "plan": rng.choice(["basic", "pro", "team"], n),
            "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), "D"),
            "household": rng.integers(0, 40, n),
            "weight": rng.integers(1, 4, n),
        }
    )
    chance = (frame["age"] - 40) / 10 + 2 * (frame["plan"] == "pro") + rng.normal(0, 0.5, n)
    frame.loc[::9, "age"] = None
    return frame.assign(churn=np.where(chance > 1.5, "yes", "no"))


def quick(metric: Any = "f1", **how: Any) -> TableClassifier:
    return TableClassifier(metric, **{"method": "cross-entropy", "model": "linear", "recipe": QUICK, **how})


FRAME = table()


def test_a_table_is_learned_and_what_was_inferred_is_noted() -> None:
    model = quick().fit(FRAME, "churn")
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.notes_ == [
        f"target churn: 'yes' is positive (it means yes), {(FRAME['churn'] == 'yes').sum()} of 300 rows, against 'no'",
        "numbers: age, household, weight",
        "categories: plan",
        "dates: joined",
        "dropped, unique values, like an id: customer_id",
    ]
    unseen = table(seed=1)
    assert set(model.predict(unseen)) == {"no", "yes"}
    expected = f1_score(unseen["churn"], model.predict(unseen), pos_label="yes")
    assert model.score(unseen) == pytest.approx(expected)
    assert expected > 0.7
    assert list(model.feature_names_in_) == ["age", "plan", "joined", "household", "weight"]


def test_text_and_types_give_the_same_model() -> None:
    text = FRAME.astype(object).where(FRAME.notna(), None).map(lambda cell: None if cell is None else str(cell))
    plain, typed = quick().fit(text, "churn"), quick().fit(FRAME, "churn")
    np.testing.assert_allclose(plain.decision_function(text), typed.decision_function(FRAME), atol=1e-6)
    np.testing.assert_allclose(typed.decision_function(text), typed.decision_function(FRAME), atol=1e-6)


def test_columns_may_come_in_any_order_with_new_categories_and_gaps() -> None:
    model = quick().fit(FRAME, "churn")
    shuffled = FRAME[FRAME.columns[::-1]].assign(extra=1)
    np.testing.assert_array_equal(model.decision_function(shuffled), model.decision_function(FRAME))
    strange = FRAME.head(3).assign(plan=["new", None, "pro"], age=[None, "?", 1e300], joined="no date")
    assert np.isfinite(model.decision_function(strange)).all()
    with pytest.raises(TableError, match="got none named age, plan"):
        model.predict(FRAME.drop(columns=["age", "plan"]))


def test_the_target_may_be_given_apart_and_rows_without_one_are_left_out() -> None:
    apart = quick().fit(FRAME.drop(columns="churn"), FRAME["churn"])
    np.testing.assert_array_equal(apart.decision_function(FRAME), quick().fit(FRAME, "churn").decision_function(FRAME))
    assert apart.target_.name == "churn"
    some = FRAME.assign(churn=FRAME["churn"].where(FRAME.index % 10 > 0))
    fitted = quick().fit(some, "churn")
    assert "left out: 30 rows without a target" in fitted.notes_
    assert fitted.data_ == {"rows": 270, "positives": int((some["churn"] == "yes").sum())}
    assert fitted.score(some) == fitted.score(some[some["churn"].notna()])


def test_groups_and_times_decide_which_rows_validate(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    from metricgrad.tabular.table_classifier import MetricClassifier

    original = MetricClassifier.fit

    def spied(self: Any, X: Any, y: Any, **named: Any) -> Any:
        seen.update(named)
        return original(self, X, y, **named)

    monkeypatch.setattr(MetricClassifier, "fit", spied)
    quick().fit(FRAME, "churn", groups="household")
    inside = FRAME.index.isin(seen["validation"])
    assert not set(FRAME["household"][inside]) & set(FRAME["household"][~inside])
    by_time = quick().fit(FRAME.assign(joined=FRAME["joined"].dt.strftime("%d/%m/%Y")), "churn", times="joined")
    inside = FRAME.index.isin(seen["validation"])
    assert FRAME["joined"][~inside].max() < FRAME["joined"][inside].min()
    assert "joined" not in by_time.feature_names_in_
    quick().fit(FRAME, "churn", sample_weight="weight")
    np.testing.assert_array_equal(seen["sample_weight"], FRAME["weight"])
    assert len(seen["validation"]) == pytest.approx(0.2 * N, abs=2)
    positives = (FRAME["churn"] == "yes").to_numpy()
    assert positives[seen["validation"]].mean() == pytest.approx(positives.mean(), abs=0.02)


def held_out_rows(frame: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, **how: Any) -> np.ndarray:
    """Fit, and return the numbers of the rows that the model was chosen on."""
    from metricgrad.tabular.table_classifier import MetricClassifier

    seen: list[np.ndarray] = []
    original = MetricClassifier.fit

    def spied(self: Any, X: Any, y: Any, **named: Any) -> Any:
        seen.append(named["validation"])
        return original(self, X, y, **named)

    with monkeypatch.context() as patch:
        patch.setattr(MetricClassifier, "fit", spied)
        quick(**how).fit(frame, "churn")
    return seen[0]


def test_equal_rows_are_on_the_same_side_of_the_split(monkeypatch: pytest.MonkeyPatch) -> None:
    twice = pd.concat([FRAME, FRAME], ignore_index=True).drop(columns="customer_id")
    rows = held_out_rows(twice, monkeypatch)
    assert set(rows[rows < N] + N) == set(rows[rows >= N])
    few = pd.DataFrame({"plan": ["a", "b"] * 100, "churn": ["yes", "no"] * 100})  # two distinct rows: nothing to keep
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the plan gives the target away
        assert len(held_out_rows(few, monkeypatch)) == 40


@pytest.mark.parametrize("by", [{}, {"groups": "household"}, {"times": "joined"}])
def test_outliers_in_validation_rows_change_neither_scale_nor_what_fills_gaps(
    by: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = FRAME.assign(age=FRAME["age"].where(FRAME["age"].notna(), 40.0), size=np.arange(N) / 7)
    plain = quick().fit(frame, "churn", **by)
    rows = held_out_rows(frame, monkeypatch) if not by else validated_by(frame, by)
    odd = frame.copy()
    odd.loc[rows, "size"] = 1e15
    other = quick().fit(odd, "churn", **by)
    assert other.pipeline_[0].encoders_ == plain.pipeline_[0].encoders_
    np.testing.assert_array_equal(other.model_.scale_, plain.model_.scale_)


def validated_by(frame: pd.DataFrame, by: dict[str, str]) -> np.ndarray:
    targets = (frame["churn"] == "yes").to_numpy().astype(float)
    if "groups" in by:
        return group_part(pd.factorize(frame["household"])[0], targets, 0, 0.2)
    return latest_part(frame["joined"].astype("int64"), 0.2)


def test_three_classes_name_a_metric_for_them() -> None:
    with pytest.raises(TableError, match=r"expected two classes in 'plan', got 3: .* metric of several .* macro_f1"):
        quick().fit(FRAME, "plan")


def test_fields_of_the_recipe_are_parameters() -> None:
    model = quick().set_params(recipe__warmup=9)
    assert model.recipe.warmup == clone(model).get_params()["recipe__warmup"] == 9
    assert model.fit(FRAME, "churn").model_.history_[-1].steps == 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": "chrun"}, "target: expected the name of a column, got 'chrun'; did you mean 'churn'"),
        ({"groups": "house"}, "group: expected the name of a column, got 'house'"),
        ({"groups": "household", "times": "joined"}, "time: expected none with groups"),
        ({"times": "plan"}, "time: expected a number or a date in every row, got"),
        ({"times": "age"}, "time: expected a number or a date in every row, got 'nan'"),
        ({"sample_weight": "plan"}, "weights: expected a number of at least 0 in every row, got '"),
        ({"sample_weight": np.full(N, -1)}, "weights: expected a number of at least 0 in every row, got"),
        ({"sample_weight": [1, 2]}, "weights: expected one for each of 300 rows, got 2"),
        ({"y": ["a", "b"]}, "target: expected one for each of 300 rows, got 2"),
        ({"groups": np.where(np.arange(N) < 9, None, "a")}, "group: expected one for every row, got 9 missing"),
        ({"groups": np.full(N, "a")}, "groups must be two at least, got one"),
        ({"times": np.ones(N)}, "two different ones at least"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TableError, match=message):
        quick().fit(FRAME, **{"y": "churn", **arguments})


def test_a_frame_with_two_columns_of_a_name_is_refused() -> None:
    with pytest.raises(TableError, match="expected unique column names, got 'age' more than once"):
        quick().fit(FRAME.rename(columns={"plan": "age"}), "churn")


def test_a_column_that_gives_the_target_away_is_warned_of() -> None:
    frame = FRAME.assign(closed=np.where(FRAME["churn"] == "yes", "2020-01-01", None))
    with pytest.warns(UserWarning, match=r"'closed' alone predicts the target \(AUC 1.0000\): ignore it if"):
        quick().fit(frame, "churn")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        quick(ignore=["closed"]).fit(frame, "churn")


def test_few_positives_are_noted() -> None:
    frame = table(40)
    assert any("few positives" in note for note in quick().fit(frame, "churn").notes_)


def test_notes_are_logged_before_training(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="metricgrad"):
        model = quick().fit(FRAME, "churn")
    assert [record.getMessage() for record in caplog.records] == model.notes_


def test_it_is_an_estimator_that_can_be_cloned() -> None:
    again = clone(quick("mcc", ignore=["age"], positive="no"))
    assert again.get_params()["metric"] == "mcc"
    assert again.fit(FRAME, "churn").classes_.tolist() == ["yes", "no"]
    assert "age" not in again.feature_names_in_


def test_an_expression_chooses_its_own_threshold() -> None:
    greedy = quick("10*tp - fp").fit(FRAME, "churn")
    careful = quick("tp - 10*fp").fit(FRAME, "churn")
    assert (greedy.predict(FRAME) == "yes").sum() > (careful.predict(FRAME) == "yes").sum()
    assert greedy.score(FRAME) > 0


def test_an_array_is_a_table_too() -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 3)), np.tile([0, 1], 30)
    assert set(quick().fit(X, y).predict(X)) <= {0, 1}
