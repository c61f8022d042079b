"""Expressions over the four counts: exact, vectorised, weighted, and never run as code."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from metricgrad import best_threshold, get_metric
from metricgrad.metrics.confusion import Confusion
from metricgrad.metrics.expressions import evaluate, expression_metric, is_expression, parse

COST = "1 - (5*tp - fp)/(5*(tp+fn))"
BUILT_IN = {
    "2*tp/(2*tp+fp+fn)": "f1",
    "tp/(tp+fp)": "precision",
    "fp + fn": "error_rate",
    "tp/(tp+fp+fn)": "jaccard",
    "(fn/(tp+fn) + fp/(fp+tn))/2": "balanced_error",
    "(tp*tn - fp*fn)/sqrt((tp+fp)*(tp+fn)*(tn+fp)*(tn+fn))": "mcc",
}
rows = st.lists(st.tuples(st.floats(-3, 3), st.booleans(), st.integers(1, 4)), min_size=2, max_size=30).filter(
    lambda found: 0 < sum(row[1] for row in found) < len(found)
)
leaf = st.one_of(st.sampled_from(["tp", "fp", "fn", "tn"]), st.floats(0, 9).map(lambda x: repr(round(x, 3))))
arithmetic = st.recursive(
    leaf,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        inner.map(lambda x: f"(-{x})"),
        inner.map(lambda x: f"({x})**2"),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda p: f"{p[0]}({p[1]}, {p[2]})"),
        inner.map(lambda x: f"abs({x})"),
    ),
    max_leaves=8,
)


@pytest.mark.parametrize(("text", "name"), BUILT_IN.items())
@settings(max_examples=25)
@given(rows)
def test_an_expression_of_a_built_in_metric_is_that_metric(text: str, name: str, found: list) -> None:
    scores, targets, weights = (torch.tensor(column, dtype=torch.float64) for column in zip(*found, strict=True))
    ours, theirs = expression_metric(text), get_metric(name)
    assert ours.higher_is_better == theirs.higher_is_better
    for mine, other in ((ours, theirs), (ours.best, theirs.best)):
        value = float(mine.value(mine(scores, targets, weights)))
        assert value == pytest.approx(float(other.value(other(scores, targets, weights))), abs=1e-9)


@given(rows)
def test_the_threshold_of_an_expression_is_exact_by_brute_force(found: list) -> None:
    scores, targets, _ = (np.array(column, float) for column in zip(*found, strict=True))
    metric = expression_metric(COST)
    cut = best_threshold(metric, scores, targets)

    def loss(threshold: float) -> float:
        found = scores >= threshold
        tp, fp, fn = (found & (targets == 1)).sum(), (found & (targets == 0)).sum(), (~found & (targets == 1)).sum()
        return 1 - (5 * tp - fp) / (5 * (tp + fn))

    assert loss(cut) == pytest.approx(min(loss(t) for t in (*scores, np.inf)), abs=1e-9)
    assert float(metric(scores - cut, targets)) == pytest.approx(loss(cut), abs=1e-9)


@given(arithmetic, st.lists(st.integers(0, 9), min_size=4, max_size=4).filter(any))
def test_the_value_is_what_python_makes_of_the_same_text(text: str, counts: list[int]) -> None:
    shares = dict(zip(("tp", "fp", "fn", "tn"), np.array(counts) / sum(counts), strict=True))
    expected = eval(text, {"__builtins__": {}, "min": min, "max": max, "abs": abs}, shares)
    found = evaluate(text, Confusion(*(torch.tensor(float(count), dtype=torch.float64) for count in counts)))
    assert float(found) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_many_sets_are_judged_at_once_and_alike_whatever_their_size() -> None:
    metric = expression_metric("5*tp - fp")
    scores, targets = torch.randn(3, 50), (torch.rand(3, 50) < 0.3).float()
    together = metric(scores, targets)
    np.testing.assert_allclose(together, [float(metric(s, t)) for s, t in zip(scores, targets, strict=True)], atol=1e-6)
    np.testing.assert_allclose(metric(scores.repeat(1, 4), targets.repeat(1, 4)), together, atol=1e-6)
    assert metric.higher_is_better


def test_division_by_nothing_is_zero_as_in_scikit_learn() -> None:
    metric = expression_metric("2*tp/(2*tp+fp+fn)")
    assert metric.value(metric([-1.0, -2.0], [0, 0])) == f1_score([0, 0], [0, 0], zero_division=0)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('touch pwned')",
        "tp.__class__",
        "(lambda: tp)()",
        "[tp for tp in (1,)]",
        "tp if fp else fn",
        "tp and fp",
        "tp < fp",
        "tp[0]",
        "f'{tp}'",
        "tp := 3",
        "open('pwned', 'w') and tp",
        "exec('tp')",
        "tp @ fp",
        "tp // fp",
        "tp % fp",
        "True + tp",
        "'a' * tp",
        "1j * tp",
        "1e999 * tp",
        "tp ** fp",
        "tp ** 99",
        "tp ** -1",
        "tp ** 0.5",
        "max(tp)",
        "max(tp, fp, fn)",
        "max(*tp)",
        "max(tp, key=fp)",
        "sum(tp, fp)",
        "tp fp",
        "tp +",
        "(" * 150 + "tp" + ")" * 150,
        "-" * 299 + "tp",
        "tp + " * 100 + "tp",
        "precision + tp",
        "1" * 290 + "+tp",
        "tp\0",
    ],
)
def test_whatever_is_not_arithmetic_is_refused_and_never_run(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="metric: "):
        expression_metric(text)
    assert not (tmp_path / "pwned").exists()


@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_a_value_error(text: str) -> None:
    try:
        tree = parse(text)
    except ValueError:
        return
    allowed = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Call, ast.operator, ast.unaryop, ast.Load)
    assert all(isinstance(node, allowed) for node in ast.walk(tree))


@pytest.mark.parametrize("text", ["tp + fp", "3 + 0*tp", "tn*fn + fp"])
def test_an_expression_that_does_not_say_which_way_is_better_is_refused(text: str) -> None:
    if text == "tn*fn + fp":  # worse where all is wrong, so it does
        assert not expression_metric(text).higher_is_better
        return
    with pytest.raises(ValueError, match="to tell sets in which all is right from sets in which all is wrong"):
        expression_metric(text)


def test_a_value_that_is_not_finite_is_named() -> None:
    with pytest.raises(ValueError, match="metric: expected finite numbers of"):
        expression_metric("1e300*1e300*fp")


@pytest.mark.parametrize(
    ("text", "expected"), [(COST, True), ("f1", False), ("tp", True), ("partial_auc(0.05)", False), ("tp +", True)]
)
def test_an_expression_is_told_from_a_name(text: str, expected: bool) -> None:
    assert is_expression(text) == expected


def test_a_metric_of_an_expression_can_be_sent_to_another_process() -> None:
    again = pickle.loads(pickle.dumps(expression_metric(COST)))
    assert float(again([1.0, -1.0], [1, 0])) == 0
