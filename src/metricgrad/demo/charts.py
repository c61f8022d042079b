"""Charts of the demonstration: cost curves, errors, and what the model says of every column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.typing import NDArray

from metricgrad.demo.bikes import HOUR_FREE, HOUR_WORKING, NUMBERS
from metricgrad.demo.trial import METHODS, OURS, SQUARED
from metricgrad.estimators.explain import Explanation
from metricgrad.evaluation.plots import method_numbers
from metricgrad.evaluation.report import DASH_CLASSES
from metricgrad.reporting.plots import DASHES, EVEN, INK, SOFT, Picture, add_tips, pen, plain
from metricgrad.reporting.shapes import show_factors

Array = NDArray[Any]
NUMBERS_OF = method_numbers(list(METHODS))
COLOURS = {method: pen(number)["color"] for method, number in NUMBERS_OF.items()}
STYLES = dict(zip(METHODS, DASHES, strict=False))
"""Dashes, for those who do not see colours."""
REACH, BIN = (-150, 250), 10
"""Errors that are drawn, in bikes, and the width of a bin; what is beyond counts at the ends."""
COLUMNS = (HOUR_WORKING, HOUR_FREE, "temperature", "humidity", "wind", "month", "weekday", "weather")
"""Columns by their place on the page."""
BEFORE_AFTER = (SQUARED, OURS)
"""Methods whose shapes are drawn."""
SIZE = (5.6, 3.6)


def legend() -> list[dict[str, str]]:
    """Return what a page needs to let readers choose methods: name, number in the palette, dashes."""
    numbers = (str(number) for number in NUMBERS_OF.values())
    return [
        {"name": name, "colour": colour, "dash": dash}
        for name, colour, dash in zip(METHODS, numbers, DASH_CLASSES, strict=False)
    ]


def plot_curves(curves: Mapping[str, Sequence[float]], size: tuple[float, float] = SIZE) -> Picture:
    """Plot the mean cost of an hour against bikes that are added to all predictions, with the names at the lines.

    `curves` has the key `shift`, and the costs of every method, as `DemoResult.record` stores them.
    """
    shift = np.asarray(curves["shift"])
    figure = Picture(figsize=size, layout="constrained")
    axes = plain(figure.subplots(), "Cost of an hour", "bikes added to every prediction")
    axes.axvline(0, color=EVEN, lw=0.8)
    texts = {}
    for method in METHODS:
        cost = np.asarray(curves[method])
        here = float(np.interp(0, shift, cost))
        (line,) = axes.plot(
            shift, cost, color=COLOURS[method], linestyle=STYLES[method], lw=2, label=f"{method} {here:.1f}"
        )
        figure.mark(line, "mean", method)
        (dot,) = axes.plot(0, here, "o", color=COLOURS[method], ms=6)
        figure.mark(dot, "dot", method, tip=f"{method}: {here:.1f}")
        texts[method] = [f"{value:.1f}" for value in cost]
    axes.set_xlim(shift[0], shift[-1])
    axes.legend(frameon=False, fontsize=9, labelcolor=INK)
    add_tips(figure, axes, "added", shift, texts)
    return figure


def plot_errors(errors: Mapping[str, Array]) -> Picture:
    """Plot how many hours had which error: bikes short on the left, bikes over on the right."""
    figure = Picture(figsize=SIZE, layout="constrained")
    axes = plain(figure.subplots(), "Hours, of 100", "bikes short (−) or over")
    edges = np.arange(REACH[0], REACH[1] + BIN, BIN)
    middle, texts = edges[:-1] + BIN / 2, {}
    for method, own in errors.items():
        share = 100 * np.histogram(np.clip(own, *REACH), edges)[0] / len(own)
        style = {"color": COLOURS[method], "linestyle": STYLES[method]}
        (line,) = axes.step(middle, share, where="mid", lw=1.8, label=method, **style)
        figure.mark(line, "mean", method)
        texts[method] = [f"{value:.1f} of 100 hours" for value in share]
    axes.axvline(0, color=EVEN, lw=0.8)
    axes.set(xlim=REACH, ylim=(0, None))
    add_tips(figure, axes, "error", middle, texts, most=len(middle))
    return figure


# ---- shapes --------------------------------------------------------------------------------------------------------


def plot_column(column: str, models: Mapping[str, Sequence[Explanation]]) -> Picture:
    """Plot by what factor a column changes the prediction: the mean of the models of all splits, and their range.

    A category has a dot a level, joined where levels have an order; a number has a line.
    """
    figure = Picture(figsize=(5.6, 3), layout="constrained")
    unit = f"{NUMBERS[column]}" if column in NUMBERS else ""
    axes = plain(figure.subplots(), column[0].upper() + column[1:], unit)
    show_factors(axes)
    axes.axhline(0, color=EVEN, lw=0.8)
    first = next(iter(models.values()))[0].terms[column]
    number = first.places is not None
    places = np.asarray(first.places) if number else np.arange(len(first.levels))
    names, texts = [f"{place:.4g}" for place in places] if number else list(first.levels), {}
    for method, explanations in models.items():
        lines = np.stack([_at(explanation, column, places if number else None) for explanation in explanations])
        style = {"color": COLOURS[method], "linestyle": STYLES[method]}
        band = axes.fill_between(places, lines.min(0), lines.max(0), color=COLOURS[method], alpha=0.18, lw=0)
        figure.mark(band, "band", method)
        (line,) = axes.plot(places, lines.mean(0), lw=1.8, marker="" if number else "o", ms=3.5, **style)
        figure.mark(line, "mean", method)
        texts[method] = [f"×{np.exp(value):.2f}" for value in lines.mean(0)]
    if not number:
        step = 3 if len(names) > 12 else 1
        axes.set_xticks(places[::step], names[::step])
    axes.tick_params(axis="x", colors=SOFT)
    add_tips(figure, axes, unit or column, places.astype(float), texts, most=len(places))
    return figure


def _at(explanation: Explanation, column: str, places: Array | None) -> Array:
    """Return the contributions of a column at some places, or of all levels."""
    term = explanation.terms[column]
    return term.contribution if places is None else np.interp(places, np.asarray(term.places), term.contribution)


# ---- the picture ---------------------------------------------------------------------------------------------------


def draw_picture(record: Mapping[str, Any], path: Path) -> None:
    """Draw the cost curves of a stored record as a file, on white, legible at 360 pixels."""
    mean, low, high = (f"{100 * end:.0f}" for end in record["saved"][SQUARED])
    figure = plot_curves(record["curves"], (4.8, 3.3))
    (axes,) = figure.axes[:1]
    axes.set_title(f"Cost of an hour: {mean} % less ({low} to {high} %)", loc="left", fontsize=11, fontweight="bold")
    axes.xaxis.label.set_fontsize(10)
    axes.tick_params(labelsize=10)
    axes.legend(frameon=False, fontsize=10, labelcolor=INK)
    with mpl.rc_context({"svg.hashsalt": "demo"}):
        figure.savefig(path, facecolor="white", metadata={"Date": None})
