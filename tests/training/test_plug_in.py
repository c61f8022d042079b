"""The plug-in rule recovers the rules that are known to be best on made-up rows."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rows_with_amounts import AMOUNT, COST, ODDS, RNG, SCORES, N, P, Y

from metricgrad import black_box, get_metric
from metricgrad.training.calibration import Calibration, calibrate, platt
from metricgrad.training.plug_in import Rule, find_rule

Array = np.ndarray


def value(text: str, scores: Array, **columns: Array) -> float:
    metric = get_metric(text).best
    targets = np.column_stack((Y, *(columns[name] for name in metric.columns)))
    return float(metric.value(metric(scores, targets)))


@pytest.mark.parametrize(
    ("text", "bayes"),
    [
        ("value_at_capacity(0.03, amount)", P * AMOUNT),
        ("top(0.03): sum(amount * tp)", P * AMOUNT),
        ("sum(amount * tp) - 0.5 * fp", P * AMOUNT - 0.5 * (1 - P)),
        ("expected_profit(amount, cost)", P * AMOUNT - COST),
        ("savings(cost, amount, 0.1)", P * (AMOUNT - 0.1) - (1 - P) * COST),
        ("sum(amount * fn + cost * fp)", P * AMOUNT - (1 - P) * COST),
    ],
)
def test_it_is_level_with_the_rule_of_the_true_probabilities(text: str, bayes: Array) -> None:
    columns = {"amount": AMOUNT, "cost": COST}
    rule = find_rule(get_metric(text), SCORES, Y, columns=columns)
    plain, best = value(text, SCORES, **columns), value(text, bayes, **columns)
    found = value(text, rule.apply(SCORES, columns), **columns)
    assert abs(found - best) <= 0.2 * abs(best - plain)
    assert rule.gain > 2 * rule.standard_error > 0


def test_the_rule_of_a_metric_that_is_linear_in_its_columns_is_exact() -> None:
    metric = get_metric("savings(cost, amount, 0.1)")
    rule = find_rule(metric, SCORES, Y, columns={"amount": AMOUNT, "cost": COST})
    unit = rule.positive["amount"]
    assert rule.positive == pytest.approx({"": -0.1 * unit, "amount": unit})
    assert rule.negative == pytest.approx({"cost": -unit})
    assert rule.columns == ("amount", "cost")


def test_what_follows_from_the_metric_is_kept_where_plain_scores_are_ahead_by_luck() -> None:
    metric = get_metric("value_at_capacity(0.05, amount)")
    parts = [slice(start, start + 200) for start in range(0, 2000, 200)]
    rules = [find_rule(metric, SCORES[part], Y[part], columns={"amount": AMOUNT[part] ** 0.3}) for part in parts]
    assert {rule.kind for rule in rules} == {"linear"}
    assert min(rule.gain for rule in rules) < 0


def test_a_rule_of_a_bounded_metric_weighs_it_against_what_is_bounded() -> None:
    metric = get_metric("sum(amount * tp) subject to precision >= 0.5")
    rule = find_rule(metric, SCORES, Y, columns={"amount": AMOUNT})
    money = find_rule(get_metric("value_at_capacity(0.1, amount)"), SCORES, Y, columns={"amount": AMOUNT})
    assert rule.positive["amount"] > 0
    assert rule.negative[""] < 0
    by_money = value(metric.name, money.apply(SCORES, {"amount": AMOUNT}), amount=AMOUNT)
    plain, own = (value(metric.name, each, amount=AMOUNT) for each in (SCORES, rule.apply(SCORES, {"amount": AMOUNT})))
    assert own > max(plain, by_money)


def test_an_offset_by_group_recovers_the_fair_optimum() -> None:
    sex = (RNG.random(N) < 0.4).astype(float)
    metric = get_metric("min over sex of recall subject to precision >= 0.3")
    shifted = SCORES - 2.0 * sex  # a model that is unfair to one group by as much
    rule = find_rule(metric, shifted, Y, columns={"sex": sex})
    assert rule.columns == ("sex",)
    unit = rule.calibration.slope
    assert rule.offsets["sex"][1] - rule.offsets["sex"][0] == pytest.approx(2.0 * unit, abs=0.6 * unit)
    fair, unfair = (value(metric.name, each, sex=sex) for each in (SCORES, shifted))
    assert value(metric.name, rule.apply(shifted, {"sex": sex}), sex=sex) > fair - 0.25 * (fair - unfair)


def test_without_columns_or_without_a_gain_scores_stay_as_they_are() -> None:
    plain = find_rule(get_metric("f1"), SCORES, Y)
    assert plain.is_plain
    assert plain.apply(SCORES).tolist() == SCORES.tolist()
    same = find_rule(get_metric("value_at_capacity(0.1, amount)"), SCORES, Y, columns={"amount": np.ones(N)})
    assert same.is_plain
    assert same.gain == 0


def test_columns_may_stand_in_the_targets_and_weights_count_as_repeated_rows() -> None:
    metric, some = get_metric("sum(amount * tp) - 0.5 * fp"), slice(0, 1500)
    whole = np.random.default_rng(1).integers(0, 3, 1500)
    named = find_rule(metric, SCORES[some], Y[some], whole, {"amount": AMOUNT[some]})
    stacked = find_rule(metric, SCORES[some], np.column_stack((Y, AMOUNT))[some], whole)
    assert named == stacked
    repeated = np.repeat(np.arange(1500), whole)
    again = platt(SCORES[repeated], Y[repeated], np.ones(len(repeated)))
    weighted = platt(SCORES[some], Y[some], whole.astype(float))
    assert (again.slope, again.intercept) == pytest.approx((weighted.slope, weighted.intercept), rel=1e-6)


def test_a_black_box_is_called_at_most_as_often_as_it_may_be() -> None:
    def caught(y_true, y_score, amount):
        top = np.argsort(-y_score, kind="stable")[: len(y_score) // 20]
        return (y_true * amount)[top].sum() / (y_true * amount).sum()

    metric = black_box(caught, higher_is_better=True, columns=("amount",), value_range=(0, 1))
    rule = find_rule(metric, SCORES, Y, columns={"amount": AMOUNT})
    assert rule.columns == ("amount",)
    assert rule.gain > 0.05
    assert metric.calls <= 40 + 2 * 16


rules = st.builds(
    Rule,
    st.sampled_from(["plain", "power", "linear"]),
    st.one_of(
        st.builds(Calibration, st.floats(0.1, 5), st.floats(-3, 3)),
        st.just(Calibration(1e-6, 0.0, (-1.0, 0.0, 2.0), (-4.0, -1.0, 3.0))),
    ),
    st.just("amount"),
    st.floats(0.1, 2),
    st.just(1e-6),
    positive=st.just({"amount": 1.0, "": -0.5}),
    negative=st.just({"cost": -1.0}),
    offsets=st.sampled_from([{}, {"sex": (0.0, 1.5)}]),
)


@settings(max_examples=40)
@given(rules, st.integers(0, 999))
def test_a_rule_survives_json_and_judges_every_row_by_itself(rule: Rule, seed: int) -> None:
    again = Rule.from_dict(json.loads(json.dumps(rule.to_dict())))
    assert again == rule
    rng = np.random.default_rng(seed)
    columns = {"amount": rng.exponential(size=9), "cost": rng.exponential(size=9), "sex": rng.integers(0, 3, 9)}
    scores = rng.normal(size=9)
    whole = again.apply(scores, columns)
    alone = [rule.apply(scores[i : i + 1], {n: c[i : i + 1] for n, c in columns.items()})[0] for i in range(9)]
    assert whole.tolist() == pytest.approx(alone)
    if not rule.is_plain:
        with pytest.raises(ValueError, match="got none of the name"):
            replace(rule, offsets={"sex": (1.0,)}).apply(scores, {})


def test_a_group_that_was_not_seen_has_no_offset() -> None:
    rule = Rule(offsets={"sex": (0.5, -0.5)})
    assert rule.apply([1.0, 1.0, 1.0], {"sex": [0, 1, 2]}).tolist() == [1.5, 0.5, 1.0]
    assert str(rule) == "p + offset by sex"


def test_what_is_no_rule_or_no_metric_of_two_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="kind: expected one of plain, power, linear, got 'code'"):
        Rule.from_dict({"kind": "code"})
    with pytest.raises(ValueError, match="metric: expected one of two classes, got 'macro_f1'"):
        find_rule(get_metric("macro_f1"), SCORES, Y)
    with pytest.raises(ValueError, match="columns: expected amount, and y of one axis, got sex and 1"):
        find_rule(get_metric("sum(amount * tp)"), SCORES, Y, columns={"sex": AMOUNT})


# ---- calibration ---------------------------------------------------------------------------------------------------


def test_calibration_recovers_the_log_odds() -> None:
    calibration, crossed = calibrate(SCORES, Y)
    assert calibration.slope == pytest.approx(0.5, abs=0.05)
    assert np.abs(calibration.log_odds(SCORES) - ODDS).mean() < 0.1
    assert np.abs(crossed - ODDS).mean() < 0.1


def test_a_bent_curve_is_calibrated_by_rising_steps() -> None:
    calibration, crossed = calibrate(np.sign(ODDS + 2.5) * np.abs(ODDS + 2.5) ** 4, Y)
    assert calibration.points
    assert np.corrcoef(crossed, ODDS)[0, 1] > 0.9
    again = Calibration.from_dict(json.loads(json.dumps(calibration.to_dict())))
    assert again == calibration


@settings(max_examples=30)
@given(st.integers(2, 40), st.integers(0, 999))
def test_a_line_is_finite_and_rises_whatever_the_rows(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    scores, y = rng.choice([-1.0, 0.0, 3.0], size), rng.integers(0, 2, size)
    line = platt(scores, y, rng.uniform(0.1, 2, size))
    assert 0 < line.slope < 1e6
    assert np.isfinite(line.intercept)
