"""The page of the demonstration and the table of its costs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from markupsafe import Markup

from metricgrad.demo import charts
from metricgrad.demo.trial import METHODS, OURS, SQUARED, DemoResult, percent
from metricgrad.evaluation.plots import plot_metric
from metricgrad.files import write_whole
from metricgrad.provenance import provenance
from metricgrad.reporting.html import render_page
from metricgrad.reporting.plots import inline_svg
from metricgrad.reporting.tables import ResultTable, Shown, as_html, number, result_frame

TITLE = "How many bikes, if short costs five times over?"
DOCS = Path(__file__).parents[3] / "docs"
"""Where the documentation is in a source tree; an installed package has none."""
PAGES = ("demo.md", "numbers.md", "when-it-helps.md")
"""Pages that are linked to."""


def write_demo(result: DemoResult, out: Path, command: str) -> list[Path]:
    """Write the page, its picture, the numbers and all predictions into a folder; return the files."""
    out.mkdir(parents=True, exist_ok=True)
    files = [out / name for name in ("index.html", "demo.json", "predictions.csv", "demo.svg")]
    record = result.record(command)
    write_whole(files[0], demo_page(result, out, command))
    write_whole(files[1], json.dumps(record, indent=1) + "\n")
    write_whole(files[2], result.predicted().to_csv(index=False))
    charts.draw_picture(record, files[3])
    return files


def costs_table(result: DemoResult) -> ResultTable:
    """Return every method as a row: its cost, what ours saves with its interval, and how often bikes were short."""
    columns = ["method", "cost an hour", "saved", "95 % interval", "% of hours short", "bikes over"]
    splits, hours = len(result.trials), len(result.hours)
    title = f"Cost on {hours:,} hours, each judged once, in {splits} splits"
    return ResultTable(title, result_frame([_row(result, method) for method in METHODS], columns))


def _row(result: DemoResult, method: str) -> list[Shown]:
    errors, gain = result.errors(method), None if method == OURS else result.saved(method)
    cost, least = result.costs(method).mean(), min(result.costs(each).mean() for each in METHODS)
    lead = [Shown("")] * 2
    if gain is not None:
        tone = "better" if gain.better else "worse" if gain.worse else ""
        lead = [
            Shown(f"{percent(gain.mean)} %", gain.mean, tone=tone),
            Shown(f"{percent(gain.low)} to {percent(gain.high)}", gain.low),
        ]
    return [
        Shown(method),
        number(cost, ".1f", best=bool(cost == least)),
        *lead,
        number(100 * (errors < 0).mean(), ".1f"),
        number(float(errors.clip(0).mean()), ".1f"),
    ]


def demo_page(result: DemoResult, out: Path, command: str) -> str:
    """Return the page, for a folder that its links are relative to."""
    usual = result.saved(SQUARED)
    facts = {
        "of the cost saved": f"{percent(usual.mean)}\u00a0%",
        "95 % interval": f"{percent(usual.low)} to {percent(usual.high)}\u00a0%",
        "hours judged": f"{len(result.hours):,}",
        "splits ahead": f"{int((result.costs(OURS) < result.costs(SQUARED)).sum())} of {len(result.trials)}",
    }
    return render_page(
        "demo.html",
        f"metricgrad: {TITLE}",
        styles=("style.css", "report.css"),
        scripts=("page.js", "charts.js"),
        heading=TITLE,
        result=result,
        facts=facts,
        picks=charts.legend(),
        costs=as_html(costs_table(result), id="methods", classes=""),
        charts=_charts(result),
        links=_links(out),
        made=_made(result),
        command=command,
    )


def _charts(result: DemoResult) -> dict[str, Any]:
    """Return the charts by name; `columns` is a list of those of the model."""
    costs = {method: result.costs(method) for method in METHODS}
    drawn = {
        "costs": (plot_metric(costs, result.metric), "Cost of an hour by method, split by split"),
        "curves": (charts.plot_curves(result.curves()), "Cost of an hour if bikes were added to every prediction"),
        "errors": (charts.plot_errors({m: result.errors(m) for m in METHODS}), "Hours by how many bikes were wrong"),
    }
    models = {method: result.explained(method) for method in charts.BEFORE_AFTER}
    shapes = [
        inline_svg(charts.plot_column(column, models), f"column{number}", f"Factor by {column}")
        for number, column in enumerate(charts.COLUMNS)
    ]
    found: dict[str, Markup] = {name: inline_svg(figure, name, text) for name, (figure, text) in drawn.items()}
    return {**found, "columns": shapes}


def _links(out: Path) -> dict[str, str]:
    """Return where pages of the documentation are, seen from a folder; empty where there are none."""
    return {
        name: Path(os.path.relpath(DOCS / name, out.resolve())).as_posix() if (DOCS / name).is_file() else ""
        for name in PAGES
    }


def _made(result: DemoResult) -> dict[str, Any]:
    made = provenance()
    return {
        "Data": "Bike Sharing (Fanaee-T and Gama 2013), CC BY 4.0, hours of 2011, by way of the package ISLP",
        "Model": f"additive, of {result.bikes.X.shape[1]} features in {len(charts.COLUMNS)} columns",
        "Loss and constant of every split": [f"{m}: {'; '.join(result.followed(m))}" for m in METHODS],
        "Time": f"{result.cpu_seconds:.0f} s of one core, seed {result.seed}",
        "Versions": f"metricgrad {made['metricgrad']}, torch {made['torch']}, Python {made['python']}",
    }
