"""The arrays of the figures are those the paper describes, and the figures show the arrays they are given."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from metricgrad.metrics.registry import get_metric
from metricgrad.paper.experiments import prepared
from metricgrad.paper.figures import (
    FIGURE1,
    FIGURE3,
    Figure2,
    Figure3,
    figure1,
    figure1_panels,
    figure2,
    figure2_panels,
    figure3,
    plot_figure1,
    plot_figure2,
    plot_figure3,
    save_arrays,
)
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import train


def test_every_point_of_a_surface_is_the_loss_of_the_perturbed_set() -> None:
    arrays = figure1(points=7, seed=3)
    scores = torch.randn(10, generator=torch.Generator().manual_seed(3))
    targets = torch.arange(10) % 2
    assert tuple(arrays.losses) == FIGURE1
    for name, surface in arrays.losses.items():
        assert surface.shape == (7, 7)
        moved = scores.clone()
        moved[0] += float(arrays.shifts[2])
        moved[1] += float(arrays.shifts[5])
        assert surface[2, 5] == pytest.approx(float(get_metric(name)(moved, targets)))


def test_surfaces_are_steps_that_fall_as_the_two_are_told_apart() -> None:
    arrays = figure1()
    for surface in arrays.losses.values():
        assert len(np.unique(surface)) < 100
    ranking = arrays.losses["auc"]
    assert (np.diff(ranking, axis=0) >= -1e-7).all()
    assert (np.diff(ranking, axis=1) <= 1e-7).all()


@pytest.fixture(scope="module")
def arrays() -> Figure2:
    return figure2()


def test_alpha_starts_where_the_paper_says_and_ends_near_the_least_error(arrays: Figure2) -> None:
    assert arrays.alpha[0] == pytest.approx(0.3)
    reached = np.interp(arrays.alpha[-1], arrays.alphas, arrays.true)
    assert reached <= arrays.true.min() + 0.02
    assert np.interp(0.3, arrays.alphas, arrays.true) > reached + 0.2


def test_the_true_loss_is_the_share_of_rows_on_the_wrong_side(arrays: Figure2) -> None:
    by_hand = [np.mean((alpha * arrays.x - 1 >= 0) != (arrays.y == 1)) for alpha in arrays.alphas]
    np.testing.assert_allclose(arrays.true, by_hand, atol=1e-6)


def test_the_surrogate_is_true_where_the_model_stands(arrays: Figure2) -> None:
    gap = np.abs(arrays.surrogate[-1] - arrays.true)
    near = np.abs(arrays.alphas - arrays.alpha[-1]) < 0.05
    assert gap[near].mean() < 0.03
    assert gap[near].mean() < gap[arrays.alphas > 1.2].mean()


def test_the_example_is_reproducible_and_leaves_the_generator_alone() -> None:
    before = torch.get_rng_state()
    first, second = figure2(rounds=(0, 2)), figure2(rounds=(0, 2))
    np.testing.assert_array_equal(first.surrogate, second.surrogate)
    assert torch.equal(torch.get_rng_state(), before)


SHORT = Recipe(name="short", rounds=12, check_every=5, set_size=60, warmup=300)


@pytest.fixture(scope="module")
def convergence() -> Figure3:
    return figure3("breast_cancer", "f1", SHORT, model="small")


def test_both_methods_are_shown_on_the_same_steps(convergence: Figure3) -> None:
    np.testing.assert_array_equal(convergence.steps, 4 * np.arange(1, 13))
    np.testing.assert_array_equal(convergence.checks, [0, 20, 40, 48])
    for curves, points in ((convergence.surrogate, 12), (convergence.gap, 12), (convergence.test, 4)):
        assert tuple(curves) == FIGURE3
        assert all(curve.shape == (points,) and np.isfinite(curve).all() for curve in curves.values())
    assert (convergence.dataset, convergence.metric) == ("breast_cancer", "f1")


def test_both_methods_start_from_the_same_model(convergence: Figure3) -> None:
    assert convergence.test["sl-s"][0] == convergence.test["sl-r"][0]


def test_a_universal_start_is_nearer_to_the_metric_than_one_from_scratch(convergence: Figure3) -> None:
    assert convergence.gap["sl-r"][0] < convergence.gap["sl-s"][0] / 2


def test_looking_at_test_rows_changes_nothing(convergence: Figure3) -> None:
    recipe = replace(SHORT, warmup=0, anchor=0.0, trust=-1.0)
    parts, f1 = prepared("breast_cancer", 0, recipe.standardise), get_metric("f1")
    with torch.random.fork_rng(devices=[]):
        model = build_model("small", parts.train.x.shape[1], 0)
        torch.manual_seed(0)
        loss = make_loss("sl-r", f1, recipe)
        torch.manual_seed(0)
        rounds = list(
            train(model, loss, parts.train, recipe, selection=Selection(parts.validation, f1, recipe), seed=0)
        )
    np.testing.assert_array_equal([done.loss for done in rounds], convergence.surrogate["sl-r"])
    np.testing.assert_array_equal([done.gap for done in rounds], convergence.gap["sl-r"])


def test_convergence_is_reproducible_and_leaves_the_generator_alone(convergence: Figure3) -> None:
    before = torch.get_rng_state()
    again = figure3("breast_cancer", "f1", SHORT, model="small")
    for method in FIGURE3:
        np.testing.assert_array_equal(again.surrogate[method], convergence.surrogate[method])
        np.testing.assert_array_equal(again.gap[method], convergence.gap[method])
        np.testing.assert_array_equal(again.test[method], convergence.test[method])
    assert torch.equal(torch.get_rng_state(), before)


def test_a_recipe_with_nothing_to_show_is_refused() -> None:
    with pytest.raises(ValueError, match="recipe: expected at least one round to show, got none"):
        figure3("breast_cancer", recipe=Recipe(rounds=0))


def test_arrays_of_every_figure_are_saved_whole_and_load_without_pickle(
    tmp_path: Path, arrays: Figure2, convergence: Figure3
) -> None:
    surfaces = figure1(points=5)
    for number, figure in enumerate((surfaces, arrays, convergence), 1):
        save_arrays(figure, tmp_path / f"figure{number}.npz")
    with np.load(tmp_path / "figure1.npz", allow_pickle=False) as saved:
        assert set(saved) == {"shifts", *(f"losses.{name}" for name in FIGURE1)}
        np.testing.assert_array_equal(saved["losses.f1"], surfaces.losses["f1"])
    with np.load(tmp_path / "figure2.npz", allow_pickle=False) as saved:
        assert tuple(saved["rounds"]) == arrays.rounds
        np.testing.assert_array_equal(saved["surrogate"], arrays.surrogate)
    with np.load(tmp_path / "figure3.npz", allow_pickle=False) as saved:
        assert (str(saved["dataset"]), str(saved["metric"])) == ("breast_cancer", "f1")
        curves = {
            name: {method: saved[f"{name}.{method}"] for method in FIGURE3} for name in ("surrogate", "gap", "test")
        }
        loaded = Figure3("breast_cancer", "f1", saved["steps"], checks=saved["checks"], **curves)
    for name in ("surrogate", "gap", "test"):
        for method in FIGURE3:
            np.testing.assert_array_equal(getattr(loaded, name)[method], getattr(convergence, name)[method])
    np.testing.assert_array_equal(loaded.steps, convergence.steps)
    np.testing.assert_array_equal(loaded.checks, convergence.checks)


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
