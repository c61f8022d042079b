"""Curves of scores, against scikit-learn and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, f1_score, precision_recall_curve, roc_curve

from metricgrad import black_box
from metricgrad.evaluation.diagnostics import RECALLS, SHARES, diagnose
from metricgrad.metrics.registry import get_metric

F1 = get_metric("f1")
SETS = st.integers(2, 60).flatmap(
    lambda n: st.tuples(
        npst.arrays(float, n, elements=st.integers(-6, 6).map(lambda i: i / 2)),
        npst.arrays(int, n, elements=st.integers(0, 1)),
    )
)


@settings(max_examples=60)
@given(SETS, st.floats(-4, 4))
def test_confusion_loss_and_share_called_are_scikit_learns_at_the_threshold(
    rows: tuple[np.ndarray, np.ndarray], threshold: float
) -> None:
    scores, targets = rows
    assume(0 < targets.sum() < len(targets))
    found = diagnose(F1, scores, targets, threshold)
    called = scores >= threshold
    tn, fp, fn, tp = confusion_matrix(targets, called, labels=[0, 1]).ravel()
    assert [int(count) for count in found.confusion] == [tp, fp, fn, tn]
    assert 1 - found.loss == pytest.approx(f1_score(targets, called, zero_division=0))
    assert found.called == pytest.approx(called.mean())


@settings(max_examples=60)
@given(SETS)
def test_the_roc_curve_is_scikit_learns_read_off_a_grid(rows: tuple[np.ndarray, np.ndarray]) -> None:
    scores, targets = rows
    assume(0 < targets.sum() < len(targets))
    alarms, recall, _ = roc_curve(targets, scores, drop_intermediate=False)
    for share, read in zip(SHARES, diagnose(F1, scores, targets).roc, strict=True):
        last = np.flatnonzero(alarms <= share + 1e-12)[-1]
        expected = recall[last]
        if last + 1 < len(alarms):
            step = (share - alarms[last]) / (alarms[last + 1] - alarms[last])
            expected += step * (recall[last + 1] - recall[last])
        assert read == pytest.approx(expected, abs=1e-9)


@settings(max_examples=60)
@given(SETS)
def test_precision_is_that_of_the_highest_threshold_that_reaches_the_recall(
    rows: tuple[np.ndarray, np.ndarray],
) -> None:
    scores, targets = rows
    assume(0 < targets.sum() < len(targets))
    precision, recall, _ = precision_recall_curve(targets, scores)
    precision, recall = precision[-2::-1], recall[-2::-1]  # from the highest threshold down, without its made-up end
    for level, read in zip(RECALLS, diagnose(F1, scores, targets).precision, strict=True):
        assert read == pytest.approx(precision[np.flatnonzero(recall >= level - 1e-12)[0]])


@settings(max_examples=60)
@given(SETS)
def test_the_loss_of_a_share_is_that_of_calling_so_many_rows(rows: tuple[np.ndarray, np.ndarray]) -> None:
    scores, targets = rows
    assume(0 < targets.sum() < len(targets))
    losses = diagnose(F1, scores, targets).losses
    assert losses is not None
    for share, loss in zip(SHARES, losses, strict=True):
        called = scores >= min(t for t in (np.inf, *np.unique(scores)) if (scores >= t).mean() <= share + 1e-12)
        found = (called & (targets == 1)).sum()
        assert 1 - loss == pytest.approx(2 * found / max(called.sum() + targets.sum(), 1))


def test_a_black_box_of_labels_has_the_same_threshold_curve_as_the_counts() -> None:
    rng = np.random.default_rng(0)
    targets = (rng.random(300) < 0.3).astype(int)
    scores = targets + rng.normal(size=300).round(1)
    blind = black_box(lambda y, called: f1_score(y, called, zero_division=0), higher_is_better=True, labels=True)
    asked, counted = (diagnose(metric, scores, targets) for metric in (blind, F1))
    assert asked.losses is not None
    assert counted.losses is not None
    np.testing.assert_allclose(blind.value(asked.losses), F1.value(counted.losses), atol=1e-6)


@given(st.integers(0, 1000), st.integers(30, 300))
def test_calibration_is_scikit_learns_in_quantiles(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    scores, targets = rng.normal(size=n), (rng.random(n) < 0.4).astype(int)
    assume(0 < targets.sum() < n)
    found = diagnose(F1, scores, targets)
    there = np.isfinite(found.predicted)
    observed, predicted = calibration_curve(targets, 1 / (1 + np.exp(-scores)), n_bins=10, strategy="quantile")
    np.testing.assert_allclose(found.predicted[there], predicted)
    np.testing.assert_allclose(found.observed[there], observed)


def test_a_metric_of_the_ranking_has_no_threshold_curve() -> None:
    assert diagnose(get_metric("auc"), [0.1, 0.4, 0.3], [0, 1, 0]).losses is None


@pytest.mark.parametrize("targets", [[0, 0, 0], [1, 1, 1]])
def test_rows_of_one_class_are_refused(targets: list[int]) -> None:
    with pytest.raises(ValueError, match="targets: expected rows of both classes"):
        diagnose(F1, [0.1, 0.2, 0.3], targets)
