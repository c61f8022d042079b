"""The parts of a report that answer: controls, plots to be drawn by its script, and the data they are drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from metricgrad.evaluation.records import Record, Setting
from metricgrad.evaluation.runs import method_label, metric_label
from metricgrad.evaluation.training_panel import NO_SCRIPT, training_data
from metricgrad.paper import printed as paper
from metricgrad.paper.figures import Figure1, Figure2
from metricgrad.paper.rendering import dataset_label
from metricgrad.paper.tables import Table
from metricgrad.reporting.markup import select, tag

ALL = {"": "all"}

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


# ---- data ----------------------------------------------------------------------------------------------------------


def page_data(
    records: Sequence[Record], settings: Sequence[Setting], first: Figure1 | None, second: Figure2 | None
) -> dict[str, Any]:
    """Return all that the script draws from."""
    data = training_data(records, settings)
    data["labels"]["dataset"] = {record.dataset: dataset_label(record.dataset) for record in records}
    data["labels"]["metric"] |= {name: metric_label(name) for name in paper.LOSSES}
    return data | {"figure1": first and _surfaces(first), "figure2": second and _walk(second)}


def _surfaces(figure: Figure1) -> dict[str, Any]:
    return {"shifts": _brief(figure.shifts), "losses": {name: _brief(z, 3) for name, z in figure.losses.items()}}


def _walk(figure: Figure2) -> dict[str, Any]:
    names = ("x", "y", "alphas", "true", "alpha", "surrogate")
    return {"rounds": list(figure.rounds)} | {name: _brief(getattr(figure, name)) for name in names}


def _brief(array: Any, digits: int = 4) -> Any:
    return np.asarray(array, dtype=float).round(digits).tolist()
