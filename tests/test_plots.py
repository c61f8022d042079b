"""Pictures show the arrays they are given."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from made_up import a_round
from metricgrad.diagnosis import Diagnosis, diagnose
from metricgrad.figures import Figure2, Figure3, figure1
from metricgrad.metrics import get_metric
from metricgrad.plots import (
    plot_calibration,
    plot_convergence,
    plot_figure1,
    plot_figure2,
    plot_figure3,
    plot_metric,
    plot_precision_recall,
    plot_roc,
    plot_threshold,
)
from metricgrad.trainer import Round

NAN = float("nan")


def history(losses: list[float], gap: float) -> list[Round]:
    warm = a_round("warm-up", 30, 30, steps=30, loss=0.7, gap=NAN, trust=NAN, validation=0.5)
    rounds = [
        a_round("rounds", i + 1, 3, steps=33 + 3 * i, loss=0.3, gap=gap, trust=0.9, validation=loss)
        for i, loss in enumerate(losses)
    ]
    return [warm, *rounds]


def test_convergence_shows_the_metric_people_know_and_marks_the_checkpoint_kept() -> None:
    figure = plot_convergence(
        {"ce": history([0.4, 0.2, NAN], NAN), "sl": history([0.3, 0.1, 0.2], 0.01)}, get_metric("f1")
    )
    above, below = figure.axes
    line, dot = above.get_lines()[:2]
    np.testing.assert_allclose(line.get_xdata(), [30, 33, 36])
    np.testing.assert_allclose(line.get_ydata(), [0.5, 0.6, 0.8])
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (36, pytest.approx(0.8))
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["ce", "sl"]
    assert len([line for line in below.get_lines() if len(line.get_xdata()) > 2]) == 1


def test_figure_1_has_a_surface_for_every_loss() -> None:
    figure = plot_figure1(figure1(points=9))
    assert [axes.get_title() for axes in figure.axes] == [
        "AUC loss",
        "AP loss",
        "error rate loss",
        "EER loss",
        "F1 loss",
    ]
    assert all(len(axes.collections) == 1 for axes in figure.axes)


def test_figure_2_has_the_data_and_a_panel_for_every_round() -> None:
    alphas = np.linspace(0.1, 1, 5)
    arrays = Figure2(
        np.array([0.0, 2.0]),
        np.array([0, 1]),
        alphas,
        alphas / 2,
        (0, 7),
        np.array([0.3, 0.6]),
        np.stack([alphas, 1 - alphas]),
    )
    figure = plot_figure2(arrays)
    assert len(figure.axes) == 3
    assert figure.axes[2].get_title() == "round 7: alpha = 0.60"
    true, surrogate, here = figure.axes[2].get_lines()
    np.testing.assert_allclose(true.get_ydata(), alphas / 2)
    np.testing.assert_allclose(surrogate.get_ydata(), 1 - alphas)
    assert here.get_xdata()[0] == 0.6


def test_figure_3_has_a_panel_each_for_surrogate_loss_gap_and_test_loss() -> None:
    steps, checks = np.array([3, 6, 9]), np.array([0, 9])
    by_round = {"sl-s": np.array([0.5, 0.6, 0.2]), "sl-r": np.array([0.4, 0.2, 0.1])}
    gaps = {"sl-s": np.array([0.3, 0.2, 0.1]), "sl-r": np.array([0.02, 0.01, 0.01])}
    by_check = {"sl-s": np.array([0.8, 0.3]), "sl-r": np.array([0.8, 0.1])}
    figure = plot_figure3(Figure3("digits8", "f1", steps, by_round, gaps, checks, by_check))
    assert [axes.get_title() for axes in figure.axes] == [
        "surrogate loss, training sets",
        "gap to the true loss, training sets",
        "true loss, test rows",
    ]
    for axes, x, curves in zip(figure.axes, (steps, steps, checks), (by_round, gaps, by_check), strict=True):
        for line, curve in zip(axes.get_lines(), curves.values(), strict=True):
            np.testing.assert_array_equal(line.get_xdata(), x)
            np.testing.assert_array_equal(line.get_ydata(), curve)
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["SL-S", "SL-R"]


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
