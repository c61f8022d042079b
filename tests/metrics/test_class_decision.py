"""The best offsets as people ask for them."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import sklearn.metrics as sk
import torch

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.class_decision import best_offsets
from metricgrad.metrics.class_offsets import COSTLY
from metricgrad.metrics.registry import builtin_metrics, get_metric
from metricgrad.metrics.tasks import MULTICLASS, MULTILABEL


def skewed(rows: int = 400, classes: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores and classes, of which the last are rare, as a model trained by cross-entropy gives them."""
    rng = np.random.default_rng(seed)
    share = 0.4 ** np.arange(classes)
    actual = rng.choice(classes, rows, p=share / share.sum())
    return rng.normal(size=(rows, classes)) + 1.5 * np.eye(classes)[actual] + np.log(share), actual


def test_rare_classes_are_given_more_often_where_all_count_the_same() -> None:
    scores, actual = skewed()
    offsets = best_offsets("macro_f1", scores, actual).numpy()
    plain, tuned = scores.argmax(-1), (scores + offsets).argmax(-1)
    gained = sk.f1_score(actual, tuned, average="macro") - sk.f1_score(actual, plain, average="macro")
    assert gained > 0.05
    assert offsets[-1] > offsets[0]


def test_labels_are_each_cut_where_they_are_best() -> None:
    rng = np.random.default_rng(1)
    targets = (rng.random((90, 3)) < [0.1, 0.3, 0.6]).astype(int)
    scores = rng.normal(size=(90, 3)) + 2 * targets - [3, 2, 1]
    offsets = best_offsets("label_macro_f1", scores, targets).numpy()
    for k in range(3):
        every = [sk.f1_score(targets[:, k], scores[:, k] >= cut, zero_division=0) for cut in [*scores[:, k], np.inf]]
        assert sk.f1_score(targets[:, k], scores[:, k] + offsets[k] >= 0) == pytest.approx(max(every))


@pytest.mark.parametrize("name", [m.name for t in (MULTICLASS, MULTILABEL) for m in builtin_metrics(t)])
def test_the_best_form_of_a_metric_loses_what_its_best_offsets_do(name: str) -> None:
    metric, (scores, actual) = get_metric(name), skewed(60)
    targets = np.eye(4)[actual]
    offsets = best_offsets(metric, scores, targets)
    lost = float(metric(torch.tensor(scores) + offsets, targets))
    assert float(metric.best(scores, targets)) == pytest.approx(lost)
    assert lost <= float(metric(scores, targets))


@pytest.mark.parametrize("name", ["macro_auc", "label_map", "best_macro_f1"])
def test_a_metric_that_decides_nothing_needs_no_offsets(name: str) -> None:
    assert best_offsets(name, torch.randn(5, 3), torch.eye(3)[[0, 1, 2, 0, 1]]).tolist() == [0, 0, 0]


def test_the_same_rows_have_the_same_offsets_however_they_are_held() -> None:
    scores, actual = skewed(80)
    offsets = best_offsets("cohen_kappa", scores, actual)
    assert offsets.dtype == torch.float64
    for held in ((scores.tolist(), actual.tolist()), (torch.tensor(scores), np.eye(4)[actual])):
        assert torch.equal(best_offsets("cohen_kappa", *held, np.ones(80)), offsets)


def test_single_precision_is_searched_in_double() -> None:
    scores, actual = skewed(300)
    single = torch.tensor(scores).float()
    assert torch.equal(best_offsets("macro_f1", single, actual), best_offsets("macro_f1", single.double(), actual))


def test_a_black_box_is_asked_sparingly() -> None:
    calls = []

    def profit(y_true: np.ndarray, y_pred: np.ndarray) -> float:
        calls.append(len(y_true))
        return float((10 * (y_true == 3) * (y_pred == 3) - (y_pred == 3)).sum())

    metric, (scores, actual) = black_box(profit, higher_is_better=True, labels=True, task="multiclass"), skewed(200)
    offsets = best_offsets(metric, scores, actual)
    assert 0 < len(calls) <= 10 * 4 * (COSTLY + 1) + 2
    assert float(metric(scores + offsets.numpy(), actual)) < float(metric(scores, actual))


def test_the_best_form_of_a_black_box_is_that_at_its_best_offsets() -> None:
    averaged = functools.partial(sk.f1_score, average="macro", zero_division=0)
    metric = black_box(averaged, name="f", higher_is_better=True, labels=True, task="multilabel", value_range=(0, 1))
    rng = np.random.default_rng(1)
    targets = (rng.random((2, 30, 3)) < 0.4).astype(int)
    scores = rng.normal(size=(2, 30, 3)) + 2 * targets - 2
    found = metric.best(scores, targets)
    assert (found < metric(scores, targets) - 0.05).all()
    for i in range(2):
        offsets = best_offsets(metric, scores[i], targets[i]).numpy()
        assert float(found[i]) == pytest.approx(1 - averaged(targets[i], scores[i] + offsets >= 0))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["macro_f1", "quadratic_kappa"])
def test_many_rows_of_many_classes_are_searched(name: str) -> None:
    scores, actual = skewed(20_000, 26)
    metric, offsets = get_metric(name), best_offsets(name, scores, actual).numpy()
    assert float(metric(scores + offsets, actual)) < float(metric(scores, actual)) - 0.01


@pytest.mark.parametrize(
    ("metric", "scores", "targets", "message"),
    [
        ("f1", [[0.1, 0.2]], [1], "metric: expected one of several classes or labels, got 'f1' of one score a row"),
        ("macro_f1", torch.zeros(2, 3, 4), torch.eye(4)[:3], r"scores: expected one set, \(n, c\), got .*\(2, 3, 4\)"),
        ("macro_f1", torch.zeros(0, 4), torch.zeros(0, 4), r"scores: expected at least one row, got .*\(0, 4\)"),
        ("macro_f1", [[0.1, 0.2]], [[1, 1]], "targets: expected a single 1 in every row, else 0, got 1"),
        ("hamming", [[0.1, np.inf]], [[1, 1]], r"scores: expected finite numbers, got inf at index \(0, 1\)"),
    ],
)
def test_bad_rows_raise_an_error_that_names_argument_expectation_and_value(metric, scores, targets, message) -> None:
    with pytest.raises(ValueError, match=message):
        best_offsets(metric, scores, targets)
