"""Pictures of a comparison show the arrays they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from metricgrad.evaluation.diagnostics import Diagnosis, diagnose
from metricgrad.evaluation.plots import plot_calibration, plot_metric, plot_precision_recall, plot_roc, plot_threshold
from metricgrad.metrics.registry import get_metric

# ---- contests ------------------------------------------------------------------------------------------------------


def shown(seeds: list[int]) -> list[Diagnosis]:
    found = []
    for seed in seeds:
        rng = np.random.default_rng(seed)
        targets = (np.arange(60) % 3 == 0).astype(int)
        found.append(diagnose(get_metric("f1"), targets + rng.normal(size=60), targets, threshold=0.5))
    return found


def thick(axes: Any) -> list[Any]:
    """Return the lines of means."""
    return [line for line in axes.get_lines() if line.get_linewidth() == 1.8]


@pytest.mark.parametrize(("plot", "of"), [(plot_roc, "roc"), (plot_precision_recall, "precision")])
def test_a_curve_of_a_method_is_the_mean_of_its_splits(plot: Any, of: str) -> None:
    given = {"ours": shown([0, 1, 2]), "theirs": shown([3, 4])}
    (axes,) = plot(given).axes
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["ours", "theirs"]
    for line, splits in zip(thick(axes), given.values(), strict=True):
        np.testing.assert_allclose(line.get_ydata(), np.mean([getattr(one, of) for one in splits], axis=0))


def test_thresholds_chosen_are_dots_at_the_metric_they_reach() -> None:
    given = {"ours": shown([0, 1])}
    (axes,) = plot_threshold(given, get_metric("f1")).axes
    (dots,) = axes.collections
    np.testing.assert_allclose(dots.get_offsets(), [(one.called, 1 - one.loss) for one in given["ours"]])
    with pytest.raises(ValueError, match="metric: expected one that depends on a threshold, got 'auc'"):
        plot_threshold(given, get_metric("auc"))


def test_calibration_and_values_are_drawn_as_given() -> None:
    given = {"ours": shown([0, 1])}
    (axes,) = plot_calibration(given).axes
    np.testing.assert_allclose(thick(axes)[0].get_ydata(), np.mean([one.observed for one in given["ours"]], axis=0))
    values = {"ours": np.array([0.5, 0.7]), "theirs": np.array([0.4, 0.6])}
    (axes,) = plot_metric(values, get_metric("f1")).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ours", "theirs"]
    for dots, own in zip(axes.collections, values.values(), strict=True):
        np.testing.assert_allclose(dots.get_offsets()[:, 0], own)
