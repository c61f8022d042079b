"""Metrics as people write them: names, expressions, scikit-learn's, functions in files."""

from __future__ import annotations

import ast
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sklearn_metrics
from sklearn.metrics import cohen_kappa_score, f1_score, log_loss

from metricgrad import best_threshold
from metricgrad.metrics.confusion import Confusion
from metricgrad.metrics.parse import evaluate_expression, expression_metric, expression_tree, is_expression
from metricgrad.metrics.registry import SKLEARN_NAMES, get_metric

RNG = np.random.default_rng(0)
Y = (RNG.random(80) < 0.4).astype(int)
SCORES = Y + RNG.normal(size=80)


def shown(spec: object, **how: bool) -> float:
    metric = get_metric(spec, **how)
    return float(metric.value(metric(SCORES, Y)))


@pytest.mark.parametrize(("name", "twin"), SKLEARN_NAMES.items())
def test_functions_of_scikit_learn_that_are_built_in_give_the_same_numbers(name: str, twin: str) -> None:
    of_scores = twin in ("auc", "average_precision") or get_metric(twin).task.name == "regression"
    given = SCORES if of_scores else SCORES >= 0
    given = given.clip(min=0) if twin == "rmsle" else given
    assert shown(f"sklearn.metrics.{name}") == pytest.approx(getattr(sklearn_metrics, name)(Y, given))
    assert get_metric(f"sklearn.metrics.{name}") == get_metric(twin)


def test_other_functions_of_scikit_learn_are_called() -> None:
    kappa = get_metric("sklearn.metrics.cohen_kappa_score")
    assert kappa.higher_is_better
    assert kappa.label == "cohen_kappa_score"
    assert shown("sklearn.metrics.zero_one_loss") == pytest.approx(np.mean((SCORES >= 0) != Y))
    assert shown("sklearn.metrics.log_loss") == pytest.approx(log_loss(Y, 1 / (1 + np.exp(-SCORES))))
    assert not get_metric("sklearn.metrics.log_loss").thresholded


def test_the_kappa_of_scikit_learn_is_passed_labels() -> None:
    assert shown("sklearn.metrics.cohen_kappa_score") == pytest.approx(cohen_kappa_score(Y, SCORES >= 0))


@pytest.mark.parametrize(
    "name", ["no_such_score", "os", "make_scorer", "__builtins__", "pairwise_distances", "DetCurveDisplay"]
)
def test_what_is_no_metric_of_scikit_learn_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"metric: expected a function \(y_true, ...\) of sklearn.metrics, got"):
        get_metric(f"sklearn.metrics.{name}")


def test_names_expressions_and_metrics_are_taken_as_they_are() -> None:
    assert get_metric("F1") == get_metric("f1")
    assert get_metric(get_metric("mcc")) == get_metric("mcc")
    assert get_metric("fp + fn").name == "fp + fn"
    with pytest.raises(ValueError, match="metric: unknown name 'f11'; did you mean f1"):
        get_metric("f11")


FILE = """
from sklearn.metrics import fbeta_score, make_scorer
from torchmetrics.classification import BinaryAUROC
from metricgrad import black_box

def profit(y_true, y_pred):
    return float((10 * y_true * y_pred - y_pred).sum())
profit.higher_is_better = True

def plain_profit(y_true, y_pred):
    return 10 * y_true[y_pred == 1].sum() - y_pred.sum()

def cost(y_true, y_pred):
    return float(abs(y_true - y_pred).sum())

def spread(y_true, y_score):
    return float(y_score[y_true == 1].mean() - y_score[y_true == 0].mean())

def odd(y_true, y_pred):
    raise KeyError("x")

def miss_loss(y_true, y_score):
    return float((y_score[y_true == 1] < 0.5).mean())

def undirected(y_true, y_pred):
    return 0.0

ready = black_box(profit, name="ready", higher_is_better=True, labels=True)
scorer = make_scorer(fbeta_score, beta=2)
theirs = BinaryAUROC()
number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my_metrics.py"
    path.write_text(FILE)
    return path


def test_a_function_in_a_file_is_a_metric_if_code_may_be_run(file: Path) -> None:
    found = SCORES >= 0
    assert shown(f"{file}:profit", allow_files=True) == (10 * Y * found - found).sum()
    assert shown(f"{file}:ready", allow_files=True) == (10 * Y * found - found).sum()
    assert shown(f"{file}:miss_loss", allow_files=True) == pytest.approx((SCORES[Y == 1] < 0.5).mean())
    metric = get_metric(f"{file}:profit", allow_files=True)
    assert (metric.name, metric.label, metric.thresholded) == (f"{file}:profit", "profit", True)


@pytest.mark.parametrize(
    ("name", "twin", "label"), [("scorer", "f_beta(2)", "fbeta_score"), ("theirs", "auc", "BinaryAUROC")]
)
def test_a_metric_of_another_package_may_stand_in_a_file(file: Path, name: str, twin: str, label: str) -> None:
    metric = get_metric(f"{file}:{name}", allow_files=True)
    assert (metric.name, metric.label) == (f"{file}:{name}", label)
    assert shown(f"{file}:{name}", allow_files=True) == pytest.approx(shown(twin))


@pytest.mark.parametrize(("name", "higher"), [("plain_profit", True), ("cost", False), ("spread", True)])
def test_a_name_that_does_not_tell_which_way_is_better_is_tried(file: Path, name: str, higher: bool) -> None:
    metric = get_metric(f"{file}:{name}", allow_files=True)
    assert metric.higher_is_better is higher
    right, wrong = (float(metric(sign * (2.0 * Y - 1), Y)) for sign in (1, -1))
    assert right < wrong  # a loss, whichever way people know it


def test_code_is_not_run_unless_asked_for(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')\ndef f(y_true, y_pred): return 0\n")
    with pytest.raises(ValueError, match="metric: expected one that needs no code run"):
        get_metric(f"{tmp_path / 'evil.py'}:f")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py:f", "expected a Python file, got .*none.py', which does not exist"),
        (
            "my_metrics.py:f",
            "expected a function in .*, got 'f'; there are profit, plain_profit",
        ),
        ("my_metrics.py:number", "expected a function in .*, got 'number'"),
        ("my_metrics.py:undirected", "expected to know which way is better, got 'undirected', which"),
        ("my_metrics.py:odd", "odd cannot be called: KeyError: 'x'"),
        ("broken.py:f", "broken.py cannot be run: ZeroDivisionError: division by zero"),
        ("syntax.py:f", "syntax.py cannot be run: SyntaxError"),
    ],
)
def test_a_file_that_is_no_metric_is_named(file: Path, name: str, message: str) -> None:
    (file.parent / "broken.py").write_text("1 / 0")
    (file.parent / "syntax.py").write_text("def f(:")
    with pytest.raises(ValueError, match=message):
        get_metric(str(file.parent / name), allow_files=True)


@pytest.mark.parametrize(
    "text", ["x" * 1_001, "tp+" * 1_000 + "tp", "sklearn.metrics." + "x" * 10_000, "x" * 5_000 + ".py:f"]
)
def test_a_text_that_is_too_long_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^metric: expected a text of at most 1,000 characters, got {len(text):,}$"):
        get_metric(text, allow_files=True)


def test_a_file_that_leaves_the_program_is_named(tmp_path: Path) -> None:
    path = tmp_path / "leaves.py"
    path.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(ValueError, match=r"^metric: .*leaves.py cannot be run: SystemExit: 0$"):
        get_metric(f"{path}:f", allow_files=True)


# ---- expressions -----------------------------------------------------------------------------------------------------

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
    found = evaluate_expression(text, Confusion(*(torch.tensor(float(count), dtype=torch.float64) for count in counts)))
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
        tree = expression_tree(text)
    except ValueError:
        return
    allowed = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Call, ast.operator, ast.unaryop, ast.Load)
    assert all(isinstance(node, allowed) for node in ast.walk(tree))


@pytest.mark.parametrize("text", ["tp + fp", "3 + 0*tp", "tn*fn + fp"])
def test_an_expression_that_does_not_say_which_way_is_better_is_refused(text: str) -> None:
    if text == "tn*fn + fp":  # worse where all is wrong, so it does
        assert not expression_metric(text).higher_is_better
        return
    with pytest.raises(ValueError, match="does not separate sets predicted correctly"):
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
