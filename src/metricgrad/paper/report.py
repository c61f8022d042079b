"""The report of a results folder: one file, for offline, phones and dark screens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pandas as pd
from markupsafe import Markup

from metricgrad.evaluation.plots import plot_ranks, ranks_in_words
from metricgrad.evaluation.records import Record, Setting, open_store, read_records
from metricgrad.evaluation.report import picks
from metricgrad.evaluation.runs import method_label, metric_label
from metricgrad.evaluation.statistics import Ranking, common_methods, rank_methods
from metricgrad.evaluation.store import Store
from metricgrad.files import write_whole
from metricgrad.paper import printed as paper
from metricgrad.paper.figures import figure1, figure1_panels, figure2, figure2_panels
from metricgrad.paper.layouts import (
    dataset_label,
    datasets_table,
    models_shown,
    pairs_table,
    result_table,
    seconds_table,
    seed_count,
    tally_page_table,
)
from metricgrad.paper.player import frame_rounds, player
from metricgrad.paper.protocols import PROTOCOLS
from metricgrad.paper.tables import PaperTable, losses, table1, table2, table3
from metricgrad.reporting.html import render_page
from metricgrad.reporting.plots import PALETTE, PANELS, inline_svg, plot_training
from metricgrad.reporting.tables import as_html

TITLE = "Learning surrogate losses, reproduced"
FIGURE2_ROUNDS = (0, 5, 15, 30, 120)
"""Rounds of Figure 2 on the page."""
SERIES_NUMBERS = {"sl-r": 0, "sl-s": 1, "sl-u": 2, "cross-entropy": 3}
"""Numbers of the methods in the palette; others follow."""
PAGE_POINTS, MIN_POINTS, MAX_POINTS = 60_000, 12, 60
"""Points of training curves in all of a page, and in one curve."""
RUN_TIPS = 12
"""Places of a training chart that show values; there is a chart for every dataset and metric."""


# ---- the report ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _View:
    """The tables and rankings of one setting under one protocol."""

    place: int
    protocol: str
    tables: tuple[PaperTable, PaperTable]
    modes: Ranking | None
    baselines: Mapping[str, Ranking]


def write_report(results: Store | str | Path, path: str | Path, *, figures: bool = True) -> int:
    """Write one page about all records of a results folder, and return how many there are.

    Parameters
    ----------
    results : Store or path
        A folder that holds `runs.jsonl`, that file, or a store.
    path : path
        The page to write.
    figures : bool
        Whether to draw the paper's Figures 1 and 2 as well; they need no records, but some seconds.
    """
    store = open_store(results)
    records = read_records(store)
    if not records:
        raise ValueError(f"results: expected records of trained models in {str(store.path)!r}, got none")
    settings = sorted(dict.fromkeys(r.setting for r in records), key=lambda s: -sum(r.setting == s for r in records))
    views = [_view(records, i, s, protocol) for i, s in enumerate(settings) for protocol in ("honest", "paper")]
    numbers = series_numbers(record.method for record in records)
    text = render_page(
        "report.html",
        f"metricgrad: {TITLE.lower()}",
        styles=("style.css", "report.css"),
        scripts=("page.js", "sort.js", "filter.js", "charts.js", "player.js"),
        heading=TITLE,
        facts=_facts(records),
        findings=[(view.protocol, list(_findings(view))) for view in views if view.place == 0],
        datasets=as_html(datasets_table(table1(records), page=True), id="table1"),
        filters=_filters(views, settings),
        blocks=[_block(view) for view in views],
        noise=paper.PRINTED_NOISE,
        training=training_charts(records, settings, numbers),
        training_filters=_training_filters(records, settings),
        picks=picks(numbers),
        figure1=_figure1() if figures else [],
        **(_figure2() if figures else {}),
        seconds=[as_html(seconds_table([r for r in records if r.setting == s], s.title)) for s in settings],
        made=how_it_was_made(records),
        commands="\n".join([*_commands(records), f"metricgrad report {store.path.parent.name}"]),
    )
    write_whole(path, text)
    return len(records)


def _view(records: Sequence[Record], place: int, setting: Setting, protocol: str) -> _View:
    second, third = table2(records, protocol, setting), table3(records, protocol, setting)
    cells = losses(records, protocol, setting).values()
    methods = common_methods(cells, paper.MODES)
    modes = rank_methods(cells, methods) if len(methods) > 1 else None
    found = {m: rank_methods(third.complete_rows(m), compared) for m, compared in third.methods.items()}
    return _View(place, protocol, (second, third), modes, {m: ranking for m, ranking in found.items() if ranking})


def _facts(records: Sequence[Record]) -> dict[str, str]:
    return {
        "models trained": f"{len(records):,}",
        "datasets": f"{len({r.dataset for r in records})}",
        "methods": f"{len({r.method for r in records})}",
        "seeds": f"{len({r.seed for r in records})}",
        "hours of training": f"{sum(float(r.kept.get('seconds') or 0) for r in records) / 3600:,.1f}",
    }


def _findings(view: _View) -> Iterator[str]:
    for table in view.tables:
        cells = table.compared
        if cells.empty:
            continue
        counts, partial = table.tally().iloc[0], int(cells["dataset"].isin(list(table.subsets)).sum())
        part = f" {partial} of these cells are of datasets held only in part." if partial else ""
        below = f"{counts['at or below']} of {counts['cells']}"
        yield (
            f"Table {table.number}: at or below the printed loss in {below} cells; better by more"
            f" than noise in {counts['better']}, worse in {counts['worse']}.{part}"
        )
    if view.modes:
        yield ranks_in_words(view.modes)


def _filters(views: Sequence[_View], settings: Sequence[Setting]) -> dict[str, dict[str, str]]:
    """Return the choices of every filter of the tables."""
    tables = [table for view in views for table in view.tables]
    methods = dict.fromkeys(k for table in tables for compared in table.methods.values() for k in compared)
    every = {"": "all"}
    return {
        "protocol": {view.protocol: view.protocol for view in views} | {"": "both"},
        "setting": _titles(settings),
        "dataset": every | {d: dataset_label(d) for table in tables for d in table.datasets},
        "metric": every | {m: metric_label(m) for m in paper.LOSSES},
        "method": every | {k: method_label(k) for k in methods},
    }


def _titles(settings: Sequence[Setting]) -> dict[str, str]:
    return {str(i): setting.title for i, setting in enumerate(settings)}


def _block(view: _View) -> dict[str, Any]:
    """Return what is shown while a protocol and a setting are chosen."""
    name = f"{view.protocol}-{view.place}"
    where = f"protocol {view.protocol}, {view.tables[0].setting.title}"
    rankings = {"All metrics": (view.modes, f"ranks-{name}")} if view.modes else {}
    small = {f"Table 3: {metric_label(m)}": (r, f"ranks-{m}-{name}") for m, r in view.baselines.items()}
    return {
        "protocol": view.protocol,
        "setting": view.place,
        "tables": [paper_table(table, f"table{table.number}-{name}") for table in view.tables],
        "tallies": [
            [as_html(tally_page_table(table, by), lead=where) for by in ("method", "dataset")]
            for table in view.tables
            if len(table.compared)
        ],
        "ranks": [_rank_block(ranking, title, where, id) for title, (ranking, id) in rankings.items() if ranking],
        "pairs": [_rank_block(ranking, title, where, id) for title, (ranking, id) in small.items()],
    }


def paper_table(table: PaperTable, name: str) -> dict[str, Any]:
    """Return Table 2 or 3 as HTML with its known problems; `name` is its id."""
    explained = PROTOCOLS[table.protocol].explanation if table.protocol in PROTOCOLS else ""
    lead = f"{explained} Means over {seed_count(table)}. {models_shown(table)}".strip()
    shown = as_html(result_table(table, page=True), id=name, lead=lead, classes="sortable judged")
    return {"html": shown, "notes": table.notes}


def _rank_block(ranking: Ranking, title: str, where: str, name: str) -> dict[str, Any]:
    friedman = "Friedman: {:.2f}, p = {:.2g}. ".format(*ranking.friedman) if ranking.friedman else ""
    bars = f"Bars join methods that are not significantly different at {ranking.level:g}." if ranking.cliques else ""
    return {
        "title": title,
        "svg": inline_svg(plot_ranks(ranking), name, f"{title}, {where}. {ranks_in_words(ranking)}"),
        "caption": f"{friedman}Mean ranks over {ranking.cells} cells, {where}. {bars}",
        "table": as_html(pairs_table(ranking, title)),
    }


# ---- training and figures ------------------------------------------------------------------------------------------


def series_numbers(methods: Iterable[str]) -> dict[str, int]:
    """Return numbers in the palette by the label of a method: fixed for some, the next free ones for the others."""
    found = dict.fromkeys(methods)
    others = [method for method in found if method not in SERIES_NUMBERS]
    free = len(PALETTE) - len(SERIES_NUMBERS)
    numbers = SERIES_NUMBERS | {method: len(SERIES_NUMBERS) + i % free for i, method in enumerate(others)}
    return {method_label(method): numbers[method] for method in found}


def training_charts(
    records: Sequence[Record], settings: Sequence[Setting], numbers: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Return a chart of training for every setting, dataset and metric, of first runs that stored their history."""
    kept = [record for record in records if record.replicate == 0 and (record.kept.get("history") or {}).get("steps")]
    most = min(MAX_POINTS, max(MIN_POINTS, PAGE_POINTS // max(1, 2 * len(kept))))
    cells: dict[tuple[int, str, str], dict[str, list[pd.DataFrame]]] = {}
    for record in kept:
        place = settings.index(record.setting), record.dataset, record.metric
        cells.setdefault(place, {}).setdefault(method_label(record.method), []).append(
            stored_history(record.kept["history"])
        )
    charts = []
    for i, ((setting, dataset, metric), series) in enumerate(cells.items()):
        figure = plot_training(series, PANELS, numbers=numbers, thin=("validation",), points=most, tips=RUN_TIPS)
        label = f"Training on {dataset_label(dataset)} for {metric_label(metric)}"
        best = "; ".join(f"{name} {_mean_best(own):.4f}" for name, own in series.items())
        choice = {"setting": str(setting), "dataset": dataset, "metric": metric}
        caption = f"Least true validation loss: {best}."
        charts.append({"choice": choice, "caption": caption, "svg": inline_svg(figure, f"training-{i}", label)})
    return charts


def stored_history(history: Mapping[str, Any]) -> pd.DataFrame:
    """Return a stored history as a frame of steps, validation, loss and gap; NaN where nothing was measured."""
    columns = {name: list(history.get(name) or ()) for name in ("steps", *PANELS)}
    size = len(columns["steps"])
    found = pd.DataFrame({name: (values + [None] * size)[:size] for name, values in columns.items()})
    numbers: pd.DataFrame = found.apply(pd.to_numeric, errors="coerce").replace([math.inf, -math.inf], math.nan)
    return numbers


def _mean_best(runs: Sequence[pd.DataFrame]) -> float:
    return float(pd.Series([run["validation"].min() for run in runs]).mean())


def _training_filters(records: Sequence[Record], settings: Sequence[Setting]) -> dict[str, dict[str, str]]:
    return {
        "setting": _titles(settings),
        "dataset": {record.dataset: dataset_label(record.dataset) for record in records},
        "metric": {record.metric: metric_label(record.metric) for record in records},
    }


def _figure1() -> list[Markup]:
    panels = figure1_panels(figure1(points=61))
    return [inline_svg(figure, f"figure1-{name}", f"{metric_label(name)} loss, a surface") for name, figure in panels]


def _figure2() -> dict[str, Any]:
    """Return Figure 2 to play with, and some of its rounds as panels."""
    arrays = figure2(tuple(sorted({*FIGURE2_ROUNDS, *frame_rounds(max(FIGURE2_ROUNDS))})))
    shown = [arrays.rounds.index(number) for number in FIGURE2_ROUNDS]
    some = replace(arrays, rounds=FIGURE2_ROUNDS, alpha=arrays.alpha[shown], surrogate=arrays.surrogate[shown])
    label = "Figure 2, {}".format
    panels = [
        inline_svg(f, f"figure2-{i}", label(f.axes[0].get_title(loc="left")), legend=True)
        for i, f in enumerate(figure2_panels(some))
    ]
    return {"figure2": panels, "player": player(arrays)}


# ---- how it was made -----------------------------------------------------------------------------------------------


def _commands(records: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(str(record.kept["command"]) for record in records if record.kept.get("command")))


def how_it_was_made(records: Sequence[Record]) -> dict[str, str]:
    """Return dates, seeds, settings, commits and versions of all records."""
    made = [record.kept.get("made_by") or {} for record in records]
    dates = sorted({str(m["date"]) for m in made if m.get("date")})
    named = sorted({(name, str(m[name])) for m in made for name in m if name not in ("commit", "date") and m[name]})
    versions = [
        f"{name} {' and '.join(v for _, v in group)}" for name, group in groupby(named, key=lambda pair: pair[0])
    ]
    facts = {
        "Trained": " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "",
        "Seeds": ", ".join(map(str, sorted({record.seed for record in records}))),
        "Settings": "; ".join(dict.fromkeys(record.setting.title for record in records)),
        "Commits": ", ".join(dict.fromkeys(str(m["commit"]) for m in made if m.get("commit"))),
        "Versions": ", ".join(versions),
    }
    return {name: text for name, text in facts.items() if text}
