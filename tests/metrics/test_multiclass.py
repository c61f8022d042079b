"""Metrics of several classes and labels as records: found by name, checked, known as people know them."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.metrics.metric import Metric
from metricgrad.metrics.multiclass import CLASS_ALIASES, CLASS_METRICS, top_k_error
from metricgrad.metrics.multilabel import LABEL_ALIASES, LABEL_METRICS
from metricgrad.metrics.registry import builtin_metrics, get_metric
from metricgrad.metrics.tasks import MULTICLASS, MULTILABEL
from metricgrad.surrogate.views import VIEWS

OF_CLASSES, OF_LABELS = builtin_metrics(MULTICLASS), builtin_metrics(MULTILABEL)
EVERY = [*OF_CLASSES, *OF_LABELS]
every_metric = pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
RNG = np.random.default_rng(0)
SCORES, TARGETS = RNG.normal(size=(2, 12, 7)), np.eye(7, dtype=int)[RNG.integers(0, 7, (2, 12))]


def test_builtin_metrics_are_those_of_the_task() -> None:
    assert [metric.name for metric in OF_CLASSES] == [*(metric.name for metric in CLASS_METRICS), "top_k_error(5)"]
    assert tuple(OF_LABELS) == LABEL_METRICS


@every_metric
def test_a_metric_is_found_by_its_name_and_lies_between_zero_and_one(metric: Metric) -> None:
    assert get_metric(metric.name).name == metric.name
    for form in (metric, metric.best):
        losses = form(SCORES, TARGETS)
        assert losses.shape == (2,)
        assert ((losses >= 0) & (losses <= 1)).all()
        assert form.explanation.endswith(".")


@pytest.mark.parametrize(("alias", "name"), (CLASS_ALIASES | LABEL_ALIASES).items())
def test_other_names_are_known(alias: str, name: str) -> None:
    assert get_metric(alias).name == name


def test_every_name_is_on_the_page_about_targets() -> None:
    page = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
    for name in (*(metric.name for metric in (*CLASS_METRICS, *LABEL_METRICS)), *CLASS_ALIASES, *LABEL_ALIASES):
        assert f"`{name}`" in page


def test_classes_may_be_given_as_numbers() -> None:
    actual = TARGETS.argmax(-1)
    for metric in OF_CLASSES:
        assert torch.equal(metric(SCORES, actual), metric(SCORES, TARGETS))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("macro_f1", lambda y, called: sk.f1_score(y, called, average="macro")),
        ("multiclass_accuracy", sk.accuracy_score),
        ("multiclass_balanced_accuracy", sk.balanced_accuracy_score),
        ("multiclass_mcc", sk.matthews_corrcoef),
        ("cohen_kappa", sk.cohen_kappa_score),
        ("quadratic_kappa", lambda y, called: sk.cohen_kappa_score(y, called, weights="quadratic")),
        ("mean_iou", lambda y, called: sk.jaccard_score(y, called, average="macro")),
    ],
)
def test_a_loss_is_shown_as_scikit_learn_knows_it(name: str, value) -> None:
    actual, metric = np.arange(60) % 3, get_metric(name)
    scores = np.random.default_rng(1).normal(size=(60, 3)) + np.eye(3)[actual]
    shown = float(metric.value(metric(scores, actual)))
    assert shown == pytest.approx(value(actual, scores.argmax(-1)), abs=1e-9)


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 20), classes=st.integers(2, 5))
def test_renaming_the_classes_leaves_every_loss_as_it_is_but_of_ordered_ones(
    seed: int, rows: int, classes: int
) -> None:
    rng = np.random.default_rng(seed)
    scores, order = rng.normal(size=(rows, classes)), rng.permutation(classes)
    weights = rng.uniform(0.1, 9, rows)
    for metric in EVERY:
        if metric.name == "quadratic_kappa":
            continue
        one = metric.task == MULTICLASS
        targets = np.eye(classes)[rng.integers(0, classes, rows)] if one else rng.random((rows, classes)) < 0.4
        expected = float(metric(scores, targets, weights))
        found = float(metric(scores[:, order], targets[:, order], weights))
        assert found == pytest.approx(expected, abs=1e-9), metric.name


def test_the_order_of_ordered_classes_matters() -> None:
    actual = np.array([0, 1, 2, 2])
    near, far = np.eye(3)[[0, 1, 2, 1]], np.eye(3)[[0, 1, 2, 0]]
    kappa, quadratic = get_metric("cohen_kappa"), get_metric("quadratic_kappa")
    assert float(kappa(near, actual)) == pytest.approx(float(kappa(far, actual)), abs=0.05)
    assert float(quadratic(near, actual)) < float(quadratic(far, actual)) - 0.1


@every_metric
def test_the_best_form_loses_no_more_and_says_so(metric: Metric) -> None:
    best = metric.best
    assert (best(SCORES, TARGETS) <= metric(SCORES, TARGETS) + 1e-12).all()
    assert best.best is best
    if metric.thresholded:
        assert best.name == f"best_{metric.name}"
        assert best.explanation.endswith("at the best offsets of the set itself.")
        assert get_metric(best.name).name == best.name


@every_metric
def test_a_metric_survives_copying_and_pickling(metric: Metric) -> None:
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert other.task == metric.task
        for form, again in ((metric, other), (metric.best, other.best)):
            assert torch.equal(form(SCORES, TARGETS), again(SCORES, TARGETS))


@every_metric
def test_a_metric_is_seen_by_a_view_of_several_outputs(metric: Metric) -> None:
    assert metric.view is None or VIEWS[metric.view].outputs


def test_the_number_of_guesses_is_part_of_the_name() -> None:
    assert get_metric("top_k_error").name == "top_k_error(5)"
    assert get_metric("top-k-error@3").name == "top_k_error(3)"
    assert top_k_error(3).label == "top-3 error"
    scores, actual = np.array([[3.0, 2.0, 1.0]] * 3), [0, 1, 2]
    assert [float(top_k_error(k)(scores, actual)) for k in (1, 2, 3)] == pytest.approx([2 / 3, 1 / 3, 0])
    with pytest.raises(ValueError, match=r"k: expected a whole number from 1 to 1000000, got 0"):
        top_k_error(0)


@pytest.mark.parametrize(
    ("name", "scores", "targets", "weights", "message"),
    [
        ("macro_f1", [0.1, 0.2], [0, 1], None, r"scores: expected rows and outputs, \(..., n, c\), got .*\(2,\)"),
        ("macro_f1", [[0.1, 0.2]], [2], None, "targets: expected numbers of classes below 2, got 2"),
        ("macro_f1", [[0.1, 0.2]], [[0, 0]], None, "targets: expected a single 1 in every row, else 0, got 0"),
        ("hamming", [[0.1, 0.2]], [[0, 2]], None, r"targets: expected 0 or 1, got 2 at index \(0, 1\)"),
        ("hamming", [[0.1, 0.2]], [[0, 1]], [[1, 1]], r"weights: expected the shape of scores \(1,\)"),
    ],
)
def test_bad_rows_raise_an_error_that_names_argument_expectation_and_value(
    name: str, scores, targets, weights, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        get_metric(name)(scores, targets, weights)
