"""The paper's figures show the arrays they are given."""

from __future__ import annotations

import numpy as np

from metricgrad.paper.figure_plots import figure1_panels, figure2_panels, plot_figure1, plot_figure2, plot_figure3
from metricgrad.paper.figures import Figure2, Figure3, figure1


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
    assert figure.axes[2].get_title(loc="left") == "round 7: alpha = 0.60"
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
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "surrogate loss, training sets",
        "gap to the true loss, training sets",
        "true loss, test rows",
    ]
    for axes, x, curves in zip(figure.axes, (steps, steps, checks), (by_round, gaps, by_check), strict=True):
        for line, curve in zip(axes.get_lines(), curves.values(), strict=True):
            np.testing.assert_array_equal(line.get_xdata(), x)
            np.testing.assert_array_equal(line.get_ydata(), curve)
    assert [text.get_text() for text in figure.axes[0].get_legend().get_texts()] == ["SL-S", "SL-R"]


def test_panels_for_a_page_are_those_of_the_whole_figures() -> None:
    surfaces = dict(figure1_panels(figure1(points=9)))
    assert list(surfaces) == ["auc", "average_precision", "error_rate", "eer", "f1"]
    assert surfaces["f1"].axes[0].get_title() == "F1 loss"
    alphas = np.linspace(0.1, 1, 5)
    arrays = Figure2(np.array([0.0, 2.0]), np.array([0, 1]), alphas, alphas, (4,), np.array([0.5]), alphas[None])
    titles = [figure.axes[0].get_title(loc="left") for figure in figure2_panels(arrays)]
    assert titles == ["Data and learned cut", "round 4: alpha = 0.50"]
