"""Pictures of a comparison show the arrays they are given."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from metricgrad.evaluation.diagnostics import Diagnosis, diagnose
from metricgrad.evaluation.plots import (
    plot_ahead,
    plot_calibration,
    plot_fidelity,
    plot_metric,
    plot_precision_recall,
    plot_ranks,
    plot_roc,
    plot_threshold,
    ranks_in_words,
)
from metricgrad.evaluation.statistics import Ranking, corrected_interval, rank_methods
from metricgrad.metrics.registry import get_metric
from metricgrad.paper.printed import LOSSES, MODES, TABLE2
from metricgrad.reporting.plots import Picture, inline_svg


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


# ---- ranks ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def ranking() -> Ranking:
    found = rank_methods([TABLE2[dataset][metric] for dataset in TABLE2 for metric in LOSSES], MODES)
    assert found is not None
    return found


def marked(figure: Picture, kind: str) -> list[Any]:
    """Return the artists of a kind."""
    names = [name for name, mark in figure.marks.items() if mark["class"] == kind]
    return [artist for name in names for artist in figure.findobj(lambda artist, name=name: artist.get_gid() == name)]


def test_every_method_stands_at_its_rank_and_bars_join_those_not_significantly_different(ranking: Ranking) -> None:
    figure = plot_ranks(ranking)
    for line, rank in zip(marked(figure, "method"), ranking.ranks.values(), strict=True):
        assert line.get_xdata()[0] == line.get_xdata()[1] == rank
    [bar] = marked(figure, "clique")
    assert bar.get_xdata()[0] < ranking.ranks["sl-s"] < ranking.ranks["sl-r"] < bar.get_xdata()[1]
    assert bar.get_xdata()[1] < ranking.ranks["sl-u"]
    assert [text.get_text() for text in figure.axes[0].texts] == [
        f"SL-S {ranking.ranks['sl-s']:.2f}",
        f"SL-R {ranking.ranks['sl-r']:.2f}",
        f"{ranking.ranks['sl-u']:.2f} SL-U",
    ]
    assert re.search(
        r"over 63 cells: SL-S 1\.\d\d, SL-R 1\.\d\d, SL-U 2\.\d\d\. Not significantly different: SL-S, SL-R\.",
        ranks_in_words(ranking),
    )


def test_methods_that_all_differ_have_no_bar_and_names_are_text() -> None:
    ranking = Ranking({"<b>": 1.0, "other": 2.0}, 9, None, (), (), 0.05)
    figure = plot_ranks(ranking)
    assert marked(figure, "clique") == []
    drawn = inline_svg(figure, "n", ranks_in_words(ranking))
    assert "&lt;b&gt; 1.00" in drawn
    assert "<b>" not in drawn
    assert ranks_in_words(ranking).endswith("Not significantly different: none.")


def test_a_lead_is_drawn_in_the_direction_of_the_metric_and_sets_as_dots() -> None:
    gains = {"ce": corrected_interval(np.array([0.1, 0.2, 0.15]), 0.25)}
    for metric, sign in (("f1", 1), ("error_rate", -1)):
        figure = plot_ahead(gains, get_metric(metric), "ours", {"ce": 3})
        [span] = marked(figure, "span")
        assert sorted(span.get_xdata()) == sorted((sign * gains["ce"].low, sign * gains["ce"].high))
    pairs = {"ours": np.array([[0.1, 0.2], [0.15, 0.25]])}
    [dots] = marked(plot_fidelity(pairs, get_metric("f1"), {"ours": 0}), "dots")
    np.testing.assert_allclose(dots.get_offsets(), pairs["ours"].T)


def test_names_of_methods_that_no_font_has_or_that_are_long_are_drawn() -> None:
    values = {"日本語": np.array([0.5, 0.6]), "x" * 99: np.array([0.5, 0.6]), "$a_{$\x1b": np.array([0.4, 0.6])}
    drawn = inline_svg(plot_metric(values, get_metric("f1")), "n", "l")
    assert ">日本語<" in drawn
    assert f">{'x' * 23}…<" in drawn
    assert ">$a_{$\\x1b<" in drawn
