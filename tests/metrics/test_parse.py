"""Metrics as people write them: names, expressions, scikit-learn's, functions in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics
from sklearn.metrics import cohen_kappa_score, log_loss

from metricgrad import get_metric
from metricgrad.metrics.parse import read_metric
from metricgrad.metrics.registry import SKLEARN_NAMES

RNG = np.random.default_rng(0)
Y = (RNG.random(80) < 0.4).astype(int)
SCORES = Y + RNG.normal(size=80)


def shown(spec: object, **how: bool) -> float:
    metric = read_metric(spec, **how)
    return float(metric.value(metric(SCORES, Y)))


@pytest.mark.parametrize(("name", "twin"), SKLEARN_NAMES.items())
def test_functions_of_scikit_learn_that_are_built_in_give_the_same_numbers(name: str, twin: str) -> None:
    given = SCORES if twin in ("auc", "average_precision") else SCORES >= 0
    assert shown(f"sklearn.metrics.{name}") == pytest.approx(getattr(sklearn_metrics, name)(Y, given))
    assert read_metric(f"sklearn.metrics.{name}") == get_metric(twin)


def test_other_functions_of_scikit_learn_are_called() -> None:
    kappa = read_metric("sklearn.metrics.cohen_kappa_score")
    assert kappa.higher_is_better
    assert kappa.label == "cohen_kappa_score"
    assert shown("sklearn.metrics.zero_one_loss") == pytest.approx(np.mean((SCORES >= 0) != Y))
    assert shown("sklearn.metrics.log_loss") == pytest.approx(log_loss(Y, 1 / (1 + np.exp(-SCORES))))
    assert not read_metric("sklearn.metrics.log_loss").thresholded


def test_the_kappa_of_scikit_learn_is_passed_labels() -> None:
    assert shown("sklearn.metrics.cohen_kappa_score") == pytest.approx(cohen_kappa_score(Y, SCORES >= 0))


@pytest.mark.parametrize(
    "name", ["no_such_score", "os", "make_scorer", "__builtins__", "pairwise_distances", "DetCurveDisplay"]
)
def test_what_is_no_metric_of_scikit_learn_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"metric: expected a function \(y_true, ...\) of sklearn.metrics, got"):
        read_metric(f"sklearn.metrics.{name}")


def test_names_expressions_and_metrics_are_taken_as_they_are() -> None:
    assert read_metric("F1") == get_metric("f1")
    assert read_metric(get_metric("mcc")) == get_metric("mcc")
    assert read_metric("fp + fn").name == "fp + fn"
    with pytest.raises(ValueError, match="metric: unknown name 'f11'; did you mean f1"):
        read_metric("f11")


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
    assert shown(f"{file}:profit", run_code=True) == (10 * Y * found - found).sum()
    assert shown(f"{file}:ready", run_code=True) == (10 * Y * found - found).sum()
    assert shown(f"{file}:miss_loss", run_code=True) == pytest.approx((SCORES[Y == 1] < 0.5).mean())
    metric = read_metric(f"{file}:profit", run_code=True)
    assert (metric.name, metric.label, metric.thresholded) == (f"{file}:profit", "profit", True)


@pytest.mark.parametrize(
    ("name", "twin", "label"), [("scorer", "f_beta(2)", "fbeta_score"), ("theirs", "auc", "BinaryAUROC")]
)
def test_a_metric_of_another_package_may_stand_in_a_file(file: Path, name: str, twin: str, label: str) -> None:
    metric = read_metric(f"{file}:{name}", run_code=True)
    assert (metric.name, metric.label) == (f"{file}:{name}", label)
    assert shown(f"{file}:{name}", run_code=True) == pytest.approx(shown(twin))


@pytest.mark.parametrize(("name", "higher"), [("plain_profit", True), ("cost", False), ("spread", True)])
def test_a_name_that_does_not_tell_which_way_is_better_is_tried(file: Path, name: str, higher: bool) -> None:
    metric = read_metric(f"{file}:{name}", run_code=True)
    assert metric.higher_is_better is higher
    right, wrong = (float(metric(sign * (2.0 * Y - 1), Y)) for sign in (1, -1))
    assert right < wrong  # a loss, whichever way people know it


def test_code_is_not_run_unless_asked_for(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')\ndef f(y_true, y_pred): return 0\n")
    with pytest.raises(ValueError, match="metric: expected one that needs no code run"):
        read_metric(f"{tmp_path / 'evil.py'}:f")
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.py:f", "expected a file of Python, got .*none.py', which is not there"),
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
        read_metric(str(file.parent / name), run_code=True)


@pytest.mark.parametrize(
    "text", ["x" * 1_001, "tp+" * 1_000 + "tp", "sklearn.metrics." + "x" * 10_000, "x" * 5_000 + ".py:f"]
)
def test_a_text_that_is_too_long_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(ValueError, match=rf"^metric: expected a text of at most 1,000 characters, got {len(text):,}$"):
        read_metric(text, run_code=True)


def test_a_file_that_leaves_the_program_is_named(tmp_path: Path) -> None:
    path = tmp_path / "leaves.py"
    path.write_text("import sys\nsys.exit(0)\n")
    with pytest.raises(ValueError, match=r"^metric: .*leaves.py cannot be run: SystemExit: 0$"):
        read_metric(f"{path}:f", run_code=True)
