"""Scorecards: integers, rounded by the metric, and the same points in SQL, in Python and in the card."""

from __future__ import annotations

import sqlite3
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recipes import READABLE
from sklearn.metrics import f1_score

from metricgrad import MetricClassifier, TableClassifier, get_metric
from metricgrad.estimators.card_levels import Scale, item_of, moved, short_cut
from metricgrad.estimators.scorecard import Scorecard, make_scorecard
from metricgrad.estimators.terms import Term, Terms
from metricgrad.tabular.readable import table_cells

RNG = np.random.default_rng(0)
ROWS = 500


def mixed_table() -> pd.DataFrame:
    frame = pd.DataFrame({"age": RNG.normal(50, 10, ROWS), "member": RNG.random(ROWS) < 0.3})
    frame['the "plan"'] = RNG.choice(["it's", "b|c", "1", "2"], ROWS)
    frame["income"] = RNG.exponential(size=ROWS) * 1e5
    frame["region"] = RNG.choice(["north", "south", "rare"], ROWS, p=[0.6, 0.395, 0.005])
    frame.loc[:20, ["income", 'the "plan"']] = None
    score = (
        np.abs(frame["age"] - 50) / 10
        + frame["member"]
        + (frame['the "plan"'] == "1")
        - frame["income"].fillna(0) / 1e5
    )
    frame["churn"] = np.where(score + RNG.normal(size=ROWS) / 3 > 0.5, "yes", "no")
    return frame


TABLE = mixed_table()
MODELS = {
    name: TableClassifier("f1", "cross-entropy", name, READABLE).fit(TABLE, "churn") for name in ("linear", "additive")
}
NEW = pd.DataFrame(
    {
        "age": [20.0, None, 1e9, 50.0],
        "member": [True, None, False, True],
        'the "plan"': ["it's", None, "never seen", "2"],
        "income": [None, 1.0, 5e5, 0.0],
        "region": ["south", "rare", None, "moon"],
    }
)


def by_sqlite(card: Scorecard, frame: pd.DataFrame) -> pd.DataFrame:
    with sqlite3.connect(":memory:") as base:
        frame.to_sql("data", base, index=False)
        return pd.read_sql(card.to_sql(), base)


def by_duckdb(card: Scorecard, frame: pd.DataFrame) -> pd.DataFrame:
    base = duckdb.connect()
    base.register("data", frame)
    return base.sql(card.to_sql().rstrip().rstrip(";")).df()


def by_python(card: Scorecard, frame: pd.DataFrame) -> pd.DataFrame:
    code: dict[str, Any] = {}
    exec(card.to_python(), code)
    rows = frame.to_dict("records")
    return pd.DataFrame({"points": map(code["points"], rows), "positive": map(code["positive"], rows)})


@pytest.mark.parametrize("run", [by_sqlite, by_duckdb, by_python])
@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_sql_and_python_give_the_points_of_the_card(name: str, rows: bool, run: Any) -> None:
    model = MODELS[name]
    card = model.scorecard(TABLE if rows else None, points=12)
    features = pd.concat([TABLE.drop(columns="churn"), NEW], ignore_index=True)
    expected = card.points(table_cells(features, model.pipeline_[0]))
    found = run(card, features)
    np.testing.assert_array_equal(found["points"], expected)
    np.testing.assert_array_equal(found["positive"].astype(bool), expected >= card.threshold)


@pytest.mark.slow  # tries every rounding of a card
@pytest.mark.parametrize("name", MODELS)
def test_the_loss_of_rounding_is_that_of_scikit_learn(name: str) -> None:
    model = MODELS[name]
    card = model.scorecard(TABLE, points=15)
    positive = card.points(table_cells(TABLE, model.pipeline_[0])) >= card.threshold
    truth = TABLE["churn"] == "yes"
    assert card.loss == pytest.approx(1 - f1_score(truth, positive))
    scores = model.decision_function(TABLE)
    best = max(f1_score(truth, scores >= cut) for cut in np.unique(scores))
    assert card.model_loss == pytest.approx(1 - best)
    assert card.loss <= card.model_loss + 0.05
    assert card.frame["points"].between(0, 15).all()
    assert card.frame["points"].max() >= 7


def test_rounding_by_the_metric_loses_no_more_than_rounding_to_the_nearest() -> None:
    model = MODELS["additive"]
    chosen, nearest = model.scorecard(TABLE, points=4), model.scorecard(points=4)
    cells = table_cells(TABLE, model.pipeline_[0])
    f1, truth = get_metric("f1").best, (TABLE["churn"] == "yes").to_numpy(float)
    assert float(f1(chosen.points(cells).astype(float), truth)) <= float(f1(nearest.points(cells).astype(float), truth))


def test_a_card_of_arrays_reads_features_by_number() -> None:
    X, y = RNG.normal(size=(400, 3)), RNG.integers(0, 2, 400)
    X[:, 0] += y
    model = MetricClassifier("f1", "cross-entropy", "additive", READABLE).fit(X, y)
    card = model.scorecard(X, y)
    assert set(card.frame["feature"]) <= {"x0", "x1", "x2"}
    total = card.points({f"x{i}": column for i, column in enumerate(X.T)})
    assert card.loss == pytest.approx(1 - f1_score(y, total >= card.threshold))


def test_markdown_and_csv_have_every_level() -> None:
    card = MODELS["additive"].scorecard(TABLE)
    lines = card.to_markdown().splitlines()
    assert sum(line.startswith("| ") for line in lines) == len(card.frame) + 1
    assert "b\\|c" in card.to_markdown()
    assert card.summary in lines
    assert card.to_csv().splitlines()[-1].endswith(str(card.threshold))
    assert len(card.to_csv().splitlines()) == len(card.frame) + 2
    assert "points" in card._repr_html_()
    assert card.summary in repr(card)


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e6))
@settings(max_examples=60)
def test_cuts_lie_between_what_they_part(low: float, width: float) -> None:
    high = low + width
    if high > low:
        cut = short_cut(low, high)
        assert low <= cut <= high
        assert low < cut or np.nextafter(low, high) == high


def test_points_must_be_a_positive_integer() -> None:
    with pytest.raises(ValueError, match="points: expected an integer of at least 1, got 0"):
        MODELS["linear"].scorecard(points=0)


def test_large_scale_points_are_the_terms() -> None:
    term = Term("x", ("a", "b", "c"), np.array([0.0, 1, 2]), np.array([[-1.0, 0.25, 1]]), np.ones(3) / 3)
    card = make_scorecard(Terms(0.5, [term]), get_metric("f1"), 1_000)
    assert card.items[0].points.tolist() == [0, 625, 1_000]
    assert card.items[0].cuts.tolist() == [0.5, 1.5]
    assert card.threshold == 250


SHAPES = st.lists(st.tuples(st.integers(1, 40), st.floats(-30, 30)), min_size=2, max_size=9)


def shape_of(steps: list[tuple[int, float]], unit: float) -> Term:
    places, values = np.cumsum([width for width, _ in steps]) * unit, np.array([[value for _, value in steps]])
    return Term("x", ("",) * len(steps), places, values, np.full(len(steps), np.nan))


@given(SHAPES, st.integers(1, 30), st.sampled_from([0.37, 1.0]))
def test_points_follow_the_shape_between_its_places(steps: list[tuple[int, float]], top: int, unit: float) -> None:
    term = shape_of(steps, unit)
    low, high = float(term.contribution.min()), float(term.contribution.max())
    scale = Scale(top / (high - low) if high > low else 1.0, low, top)
    item = item_of(term, scale)
    x = np.arange(0, int(term.places[-1] / unit) + 3) * unit  # of a column of integers, all that can occur
    exact = scale.size * (np.interp(x, term.places, term.contribution) - low)
    off = np.abs(item.points[item.codes(x)] - exact).max()
    assert off <= (0.5 if unit == 1 else 1) + 1e-4
    assert (np.diff(item.cuts) > 0).all()
    assert (np.diff(item.points) != 0).all()


def test_a_rare_extreme_leaves_points_for_the_other_features() -> None:
    rng = np.random.default_rng(3)
    x, z = rng.normal(size=2_000), rng.normal(size=2_000)
    x[:4] = 50.0
    y = (x + z + rng.normal(size=2_000) / 4 > 1).astype(float)
    terms = [Term(name, ("", ""), np.array([-4.0, 50]), np.array([[-4.0, 50]]), np.ones(2) / 2) for name in "xz"]
    card = make_scorecard(Terms(-1.0, terms), get_metric("f1"), 10, {"x": x, "z": z}, y, scores=x + z - 1)
    assert card.loss <= card.model_loss + 0.03
    assert card.frame["points"].between(0, 10).all()


def test_a_level_has_rows_and_a_move_keeps_the_order_of_neighbours() -> None:
    term = Term("x", ("", ""), np.array([0.0, 0.9]), np.array([[0.0, 10]]), np.ones(2) / 2)
    item = item_of(term, Scale(1.0, 0.0, 10), np.array([0.1, 0.1, 0.8, np.nan]))
    assert item.points.tolist() == [1, 9]
    assert 0.1 < item.cuts[0] < 0.8
    higher, lower = (moved(item, item.points, 0, step) for step in (1, -1))
    assert (higher and higher.points.tolist(), lower and lower.points.tolist()) == ([2, 9], [0, 9])
    steep = item_of(term, Scale(0.1, 0.0, 10))
    assert steep.points.tolist() == [0, 1]
    level_now = moved(steep, steep.points, 0, 1)
    assert level_now is not None
    assert moved(level_now, steep.points, 1, -1) is None  # 1, 0 would be the other way round
