"""Bounds on another metric: a miss is worse than any value that keeps them, whatever the unit of the metric."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricgrad import best_threshold, get_metric
from metricgrad.metrics.bounds import bound_of, bounded_value

MONEY = "sum(amount * tp) subject to precision >= 0.75"


def rows(seed: int, unit: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(30) < rng.integers(2, 28)).astype(float)
    return rng.normal(size=30) + y, np.column_stack((y, unit * rng.lognormal(size=30)))


def precisions(scores: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the precision of calling the first 1, 2 ... rows."""
    return np.asarray(np.cumsum(y[np.argsort(-scores)]) / np.arange(1, len(y) + 1))


@given(st.integers(0, 10_000), st.sampled_from([1e-6, 1.0, 1e6]))
def test_every_threshold_that_misses_the_bound_loses_more_than_every_one_that_keeps_it(seed: int, unit: float) -> None:
    scores, targets = rows(seed, unit)
    metric, ordered = get_metric(MONEY), np.sort(scores)[::-1]
    losses = np.array([float(metric(scores - each, targets)) for each in ordered])
    kept = precisions(scores, targets[:, 0]) >= 0.75
    if kept.any() and not kept.all():
        assert losses[kept].max() < losses[~kept].min()
        threshold = best_threshold(metric, scores, targets)
        called = scores >= threshold
        assert targets[called, 0].mean() >= 0.75
    again = float(metric(scores, targets * [1.0, 8.0]))
    assert again == pytest.approx(8 * float(metric(scores, targets)), rel=1e-12)


def test_a_bound_on_an_amount_is_measured_in_the_range_of_the_amount() -> None:
    _, targets = rows(0, 1e6)
    metric = get_metric("f1 subject to sum(amount * fp) <= 0")
    everything, nothing = (float(metric(np.full(30, each), targets)) for each in (1.0, -1.0))
    assert everything == pytest.approx(1 - float(get_metric("f1").value(get_metric("f1")(np.ones(30), targets[:, 0])))
                                       + 1 + 10)  # fmt: skip
    assert nothing == 1


def test_the_value_that_is_bounded_is_known_beside_the_metric() -> None:
    metric = get_metric(MONEY)
    bound = bound_of(metric)
    assert bound is not None
    assert bound.text == "precision >= 0.75"
    assert bound_of(get_metric("f1 subject to recall <= 0.5")).text == "recall <= 0.5"  # type: ignore[union-attr]
    assert bound_of(get_metric("f1")) is None
    scores, targets = rows(3)
    value = bounded_value(metric, torch.from_numpy(scores), torch.from_numpy(targets))
    assert value == pytest.approx(targets[scores >= 0, 0].mean())
    assert (bound.keeps(0.75 - 1e-12), bound.keeps(0.74)) == (True, False)
