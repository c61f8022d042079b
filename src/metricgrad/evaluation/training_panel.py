"""The training curves on a page: their controls, and the data its script draws them from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from metricgrad.evaluation.histories import thin_histories
from metricgrad.evaluation.records import Record, Setting
from metricgrad.evaluation.runs import method_label, metric_label
from metricgrad.reporting.markup import select, tag

COLOURS = {"sl-r": 0, "sl-s": 1, "sl-u": 2, "cross-entropy": 3}
"""Colours of the methods by their number in the style; others follow."""
HUES = 8
NO_SCRIPT = "<noscript><p class='quiet'>This plot needs JavaScript; the tables do not.</p></noscript>"


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


def training_data(records: Sequence[Record], settings: Sequence[Setting]) -> dict[str, Any]:
    """Return all that the script draws training curves from; datasets are called by their names."""
    return {
        **thin_histories(records, settings),
        "labels": {
            "dataset": {record.dataset: record.dataset for record in records},
            "metric": {record.metric: metric_label(record.metric) for record in records},
            "method": {record.method: method_label(record.method) for record in records},
            "setting": {str(i): setting.title for i, setting in enumerate(settings)},
            "seed": {"": "all, and mean"},
        },
        "colours": _colours(dict.fromkeys(record.method for record in records)),
        "figure1": None,
        "figure2": None,
    }


def _colours(methods: Mapping[str, None]) -> dict[str, int]:
    others = [method for method in methods if method not in COLOURS]
    return COLOURS | {method: len(COLOURS) + i % (HUES - len(COLOURS)) for i, method in enumerate(others)}
