"""The parts of a report that answer: controls, plots to be drawn by its script, and the data they are drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from metricgrad import paper
from metricgrad.figures import Figure1, Figure2
from metricgrad.histories import thin_histories
from metricgrad.markup import select, tag
from metricgrad.records import Record, Setting
from metricgrad.rendering import dataset_label, method_label, metric_label
from metricgrad.tables import Table

COLOURS = {"sl-r": 0, "sl-s": 1, "sl-u": 2, "cross-entropy": 3}
"""Colours of the methods by their number in the style; others follow."""
HUES = 8
ALL = {"": "all"}
NO_SCRIPT = "<noscript><p class='quiet'>This plot needs JavaScript; the tables do not.</p></noscript>"

FIGURES = (
    "<h3>Figure 1: losses over two predictions</h3><p class='quiet'>A set of ten rows; one negative and one positive "
    "prediction are shifted, all else stays. Flat steps have no gradient to follow. Drag, or use the arrow keys.</p>"
    "<div class='controls'><label>Loss <select id='surface-loss'></select></label></div>"
    f"<div class='plot'>{NO_SCRIPT}<canvas id='surface' tabindex='0' role='img'></canvas></div>"
    "<h3>Figure 2: a walk down a surrogate</h3><p class='quiet'>A model of one parameter, alpha. The error rate is a "
    "staircase; the surrogate is smooth, is kept true around the current alpha, and shows it the way down.</p>"
    "<div class='controls'><label class='wide'>Round <input type='range' id='walk-round' min='0' step='1'></label>"
    "<span id='walk-said' class='quiet' role='status'></span></div>"
    f"<div class='plot' id='walk-plot'>{NO_SCRIPT}</div>"
)


def filter_bar(tables: Sequence[Table], settings: Sequence[Setting]) -> str:
    """Return the controls of the tables; protocol and setting reach all that is judged."""
    protocols = dict.fromkeys(table.protocol for table in tables)
    datasets = dict.fromkeys(dataset for table in tables for dataset in table.datasets)
    methods = dict.fromkeys(k for table in tables for compared in table.methods.values() for k in compared)
    several = {str(i): setting.title for i, setting in enumerate(settings)}
    controls = (
        select("protocol", "Protocol", {p: p for p in protocols} | {"": "both"}),
        select("setting", "Setting", several) if len(several) > 1 else "",
        select("dataset", "Dataset", ALL | {d: dataset_label(d) for d in datasets}),
        select("metric", "Metric", ALL | {m: metric_label(m) for m in paper.LOSSES}),
        select("method", "Method", ALL | {k: method_label(k) for k in methods}),
        "<label>Find <input type='search' name='text' id='filter-text' placeholder='dataset or mode'></label>",
        "<button type='button' id='clear'>Show all</button>",
    )
    bar = tag("div", *controls, class_="controls", id="filters", role="search", aria_label="Filter the tables")
    return bar + "<p id='shown' class='quiet' role='status'></p>"


def training_panel(settings: Sequence[Setting], seeds: str = "seed", one: bool = False) -> str:
    """Return the controls and the place of the convergence plots; the script fills them.

    `seeds` is what runs that differ in their seed are called; with `one` dataset and metric there is no choice of them.
    """
    empty: dict[str, str] = {}
    controls = (
        tag("div", select("setting", "Setting", empty, "convergence-setting"), class_="wide", hidden=len(settings) < 2),
        *(tag("div", select(n, n.capitalize(), empty, f"convergence-{n}"), hidden=one) for n in ("dataset", "metric")),
        select("seed", seeds.capitalize(), empty, "convergence-seed"),
        "<fieldset class='wide'><legend>Methods</legend><div class='picks' id='convergence-methods'></div></fieldset>",
    )
    return (
        f"<p class='quiet'>Thin lines are {seeds}s, the thick one is their mean; dots are the best checkpoints. Point "
        "at the plot, or focus it and use the arrow keys, to read values.</p>"
        + tag("div", *controls, class_="controls")
        + f"<div class='plot' id='convergence-plot'>{NO_SCRIPT}<div class='tip' id='convergence-tip' hidden></div>"
        "</div>"
        "<p id='convergence-said' class='quiet' role='status'></p>"
    )


# ---- data ----------------------------------------------------------------------------------------------------------


def page_data(
    records: Sequence[Record], settings: Sequence[Setting], first: Figure1 | None, second: Figure2 | None
) -> dict[str, Any]:
    """Return all that the script draws from."""
    return {
        **thin_histories(records, settings),
        "labels": _labels(records, settings),
        "colours": _colours(dict.fromkeys(record.method for record in records)),
        "figure1": first and _surfaces(first),
        "figure2": second and _walk(second),
    }


def _labels(records: Iterable[Record], settings: Sequence[Setting]) -> dict[str, dict[str, str]]:
    records = list(records)
    return {
        "dataset": {r.dataset: dataset_label(r.dataset) for r in records},
        "metric": {name: metric_label(name) for name in (*paper.LOSSES, *(r.metric for r in records))},
        "method": {r.method: method_label(r.method) for r in records},
        "setting": {str(i): setting.title for i, setting in enumerate(settings)},
        "seed": {"": "all, and mean"},
    }


def _colours(methods: Mapping[str, None]) -> dict[str, int]:
    others = [method for method in methods if method not in COLOURS]
    return COLOURS | {method: len(COLOURS) + i % (HUES - len(COLOURS)) for i, method in enumerate(others)}


def _surfaces(figure: Figure1) -> dict[str, Any]:
    return {"shifts": _brief(figure.shifts), "losses": {name: _brief(z, 3) for name, z in figure.losses.items()}}


def _walk(figure: Figure2) -> dict[str, Any]:
    names = ("x", "y", "alphas", "true", "alpha", "surrogate")
    return {"rounds": list(figure.rounds)} | {name: _brief(getattr(figure, name)) for name in names}


def _brief(array: Any, digits: int = 4) -> Any:
    return np.asarray(array, dtype=float).round(digits).tolist()


def note(text: str) -> str:
    """Return a quiet sentence."""
    return tag("p", escape(text), class_="quiet")
