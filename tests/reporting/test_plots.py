"""Charts: they show the values of a metric, and become SVG that follows its page and runs nothing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from made_up import a_round

from metricgrad.metrics.registry import get_metric
from metricgrad.reporting.html import STATIC
from metricgrad.reporting.plots import (
    CSS_COLOURS,
    PALETTE,
    Picture,
    inline_svg,
    plot_convergence,
    plot_training,
    thinned,
)
from metricgrad.training.history import Round

NAN = float("nan")


def history(losses: list[float], gap: float) -> list[Round]:
    warm = a_round("warm-up", 30, 30, steps=30, loss=0.7, gap=NAN, trust=NAN, validation=0.5)
    rounds = [
        a_round("rounds", i + 1, 3, steps=33 + 3 * i, loss=0.3, gap=gap, trust=0.9, validation=loss)
        for i, loss in enumerate(losses)
    ]
    return [warm, *rounds]


def test_convergence_shows_the_value_of_the_metric_and_marks_the_best_checkpoint() -> None:
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


# ---- many runs -----------------------------------------------------------------------------------------------------


def course(validation: list[float], **columns: list[float]) -> pd.DataFrame:
    steps = [10 * (i + 1) for i in range(len(validation))]
    return pd.DataFrame({"steps": steps, "validation": validation, "loss": validation, "gap": NAN} | columns)


def test_a_thick_line_is_the_mean_of_the_runs_and_a_dot_the_best_of_each() -> None:
    runs = {"sl-r": [course([0.5, 0.3, 0.4]), course([0.7, 0.5, 0.2])], "other": [course([0.6, 0.6, 0.1])]}
    figure = plot_training(runs, numbers={"sl-r": 0, "other": 4})
    validation, loss, gap = figure.axes
    mean = next(line for line in validation.get_lines() if line.get_label() == "sl-r")
    np.testing.assert_allclose(mean.get_ydata(), [0.6, 0.4, 0.3])
    dots = sorted(
        (line.get_xdata()[0], line.get_ydata()[0]) for line in validation.get_lines() if len(line.get_xdata()) == 1
    )
    assert dots == [(20, 0.3), (30, 0.1), (30, 0.2)]
    assert len(loss.get_lines()) == 4
    assert not any(len(line.get_xdata()) for line in gap.get_lines())


def test_runs_of_other_steps_are_drawn_but_not_averaged() -> None:
    runs = {"a": [course([0.5, 0.3, 0.4]), course([0.9, 0.9])]}
    lines = plot_training(runs).axes[0].get_lines()
    np.testing.assert_allclose(next(line for line in lines if line.get_label() == "a").get_ydata(), [0.5, 0.3, 0.4])
    assert any(list(line.get_ydata()) == [0.9, 0.9] for line in lines)


def test_few_points_of_a_run_are_drawn_but_its_best_is_marked() -> None:
    losses = [0.5] * 100
    losses[41] = 0.1
    lines = plot_training({"a": [course(losses)]}, points=10).axes[0].get_lines()
    assert [len(line.get_xdata()) for line in lines] == [10, 1]
    assert (lines[1].get_xdata()[0], lines[1].get_ydata()[0]) == (420, 0.1)


def test_a_long_run_is_thinned_to_validated_rows_from_first_to_last() -> None:
    run = course([NAN, 0.5, NAN, 0.4, 0.3, NAN])
    assert thinned(run, 100)["steps"].tolist() == [10, 20, 30, 40, 50, 60]
    assert thinned(run, 5)["steps"].tolist() == [20, 40, 50]
    assert thinned(run, 2)["steps"].tolist() == [20, 50]
    assert thinned(course([NAN] * 4), 3)["steps"].tolist() == [10, 30, 40]


# ---- SVG -----------------------------------------------------------------------------------------------------------

HOSTILE = "</text><script>alert(1)</script>$\\frac{$\x00\ud800--><b>"


def drawn(name: str = "n", text: str = "a") -> str:
    figure = Picture(figsize=(4, 3))
    axes = figure.subplots()
    (line,) = axes.plot([0, 1, 2], [0, 1, 0.5], color=PALETTE[0], label=text)
    figure.mark(line, "mean", text, tip=text)
    axes.set(title=text, xlabel=text, yticks=[0], yticklabels=[text.replace("\ud800", "")])
    axes.legend()
    return str(inline_svg(figure, name, text))


def test_a_figure_on_a_page_has_names_of_colours_text_as_text_and_a_label() -> None:
    root = ET.fromstring(drawn(text="F1"))
    assert (root.tag, root.get("role"), root.get("aria-label"), root.get("tabindex")) == ("svg", "img", "F1", "0")
    [mark] = root.findall(".//g[@class='mean']")
    assert mark.get("data-series") == mark.find("title").text == "F1"
    assert "var(--c0)" in mark.find("path").get("style")
    assert [text.text for text in root.iter("text")].count("F1") == 3
    assert root.get("width") is None
    assert root.find(".//style") is None
    assert root.find(".//metadata") is None


def test_colours_of_charts_are_those_of_the_style_sheet() -> None:
    light, dark = re.findall(r":root \{(.*?)\}", (STATIC / "style.css").read_text(encoding="utf-8"), re.DOTALL)
    for colour, name in CSS_COLOURS.items():
        assert f"{name[4:-1]}: {colour};" in light
        assert f"{name[4:-1]}: #" in dark


def test_figures_are_the_same_each_time_and_share_no_ids() -> None:
    assert drawn("one") == drawn("one")
    ids = [set(re.findall(r' id="([^"]+)"', drawn(name))) for name in ("one", "two")]
    assert ids[0]
    assert not ids[0] & ids[1]
    assert set(re.findall(r"#([\w-]+)[)\"]", drawn("one"))) <= ids[0]


@pytest.mark.filterwarnings("error")
def test_hostile_names_are_text_in_a_figure_and_never_mathematics() -> None:
    text = drawn(text=HOSTILE.replace("\ud800", ""))
    root = ET.fromstring(text)
    assert root.find(".//script") is None
    assert "<script" not in text
    assert "<b>" not in text
    assert any("$\\frac{$" in (element.text or "") for element in root.iter("text"))
    assert "<script" not in str(inline_svg(Picture(), "n", HOSTILE))
