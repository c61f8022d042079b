"""The parts of a report: each takes tables as data and returns markup."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby

from metricgrad.evaluation.records import Record
from metricgrad.evaluation.runs import method_label, metric_label
from metricgrad.evaluation.statistics import Ranking
from metricgrad.paper import printed as paper
from metricgrad.paper.against_printed import Comparison, Tally, compare, verdict
from metricgrad.paper.diagram import critical_difference
from metricgrad.paper.protocols import PROTOCOLS
from metricgrad.paper.rendering import PREFERRED, dataset_label, models_said, seeds_said, share_said
from metricgrad.paper.tables import Cell, DataRow, Table
from metricgrad.reporting.markup import head_cell, number, table_of, tag

MARKS = {"better": "↓", "within noise": "≈", "worse": "↑"}


# ---- Table 1 -------------------------------------------------------------------------------------------------------


def datasets_table(rows: Sequence[DataRow]) -> str:
    """Return Table 1, ours beside the printed."""
    head = (
        head_cell("dataset", class_="name")
        + "".join(head_cell(text, below) for text in ("rows", "positive") for below in ("ours", "the paper's"))
        + head_cell("held", class_="name")
    )
    body = [
        tag(
            "tr",
            tag("th", escape(row.title), scope="row", class_="name"),
            number(row.rows, ",d"),
            number(row.printed.rows if row.printed else None, ",d"),
            number(row.positive_share, ".2%"),
            number(row.printed.positive_share if row.printed else None, ".2%"),
            tag("td", escape(row.subset or "whole"), class_="name"),
        )
        for row in rows
    ]
    return table_of("Table 1: the datasets as they were held", head, body, class_="sortable", id="table1")


# ---- Tables 2 and 3 ------------------------------------------------------------------------------------------------


def result_table(table: Table, name: str) -> str:
    """Return Table 2 or 3 with its known problems below; `name` is its id."""
    head, rows, foot = _modes(table) if table.number == 2 else _rivals(table)
    explained = PROTOCOLS[table.protocol].explanation if table.protocol in PROTOCOLS else ""
    said = f"{explained} Means over {seeds_said(table)}. {models_said(table)}".strip()
    shown = table_of(table.title, head, rows, foot, said, class_="sortable judged", id=name)
    return shown + _known_problems(table)


def _modes(table: Table) -> tuple[str, list[str], list[str]]:
    modes = next(iter(table.methods.values()))
    head = head_cell("dataset", class_="name") + head_cell("mode", class_="name")
    head += "".join(head_cell(metric_label(m), marks=_marks(table, loss=m), data_metric=m) for m in table.methods)
    head += head_cell(PREFERRED)
    rows = [
        tag(
            "tr",
            _dataset(table, dataset),
            tag("td", escape(method_label(mode)), class_="name"),
            *(_cell(table.cells[dataset, m, mode], mode, data_metric=m) for m in table.methods),
            _preferred(table, mode, dataset),
            data_dataset=dataset,
            data_method=mode,
            data_words=f"{dataset} {method_label(mode)}".lower(),
        )
        for dataset in table.datasets
        for mode in modes
    ]
    foot = [
        tag(
            "tr",
            tag("th", "mean rank", scope="row", class_="name"),
            tag("td", escape(method_label(mode)), class_="name"),
            *(_summary(table.ranks.get(m), mode, ".2f", min, data_metric=m) for m in table.methods),
            _preferred(table, mode),
            data_method=mode,
        )
        for mode in modes
    ]
    return head, rows, foot


def _rivals(table: Table) -> tuple[str, list[str], list[str]]:
    columns = [(metric, method) for metric, methods in table.methods.items() for method in methods]
    head = head_cell("dataset", class_="name") + "".join(
        head_cell(metric_label(m), method_label(k), _marks(table, loss=m), data_metric=m, data_method=k)
        for m, k in columns
    )
    head += head_cell(PREFERRED, "SL-R")
    rows = [
        tag(
            "tr",
            _dataset(table, dataset),
            *(_cell(table.cells[dataset, m, k], k, data_metric=m, data_method=k) for m, k in columns),
            _preferred(table, "sl-r", dataset),
            data_dataset=dataset,
            data_words=dataset.lower(),
        )
        for dataset in table.datasets
    ]
    wins = (_summary(table.wins.get(m), k, ".1f", max, data_metric=m, data_method=k) for m, k in columns)
    return head, rows, [tag("tr", tag("th", "wins", scope="row", class_="name"), *wins, _preferred(table, "sl-r"))]


def _preferred(table: Table, method: str, dataset: str | None = None) -> str:
    part, whole = table.preferred(None, method, dataset)
    return tag("td", share_said(part, whole), data_value=f"{part / whole:.4f}" if whole else "")


def _dataset(table: Table, dataset: str) -> str:
    part = tag("small", escape(table.subsets[dataset])) if dataset in table.subsets else ""
    name = f"{escape(dataset_label(dataset))}{_marks(table, dataset=dataset)}{part}"
    return tag("th", name, scope="row", class_="name")


def _cell(cell: Cell, method: str, **places: str) -> str:
    said = f"{len(cell.seeds)} seed{'' if len(cell.seeds) == 1 else 's'}" if cell.seeds else "not run"
    ours = "–" if cell.mean is None else f"{cell.mean:.4f}"
    shown = tag("strong", ours) if cell.best else ours
    if cell.error is not None:
        shown += tag("span", f" ±{cell.error:.4f}", class_="se")
    if cell.printed is not None:
        found = (
            verdict(method, cell.mean, cell.error, cell.printed) if cell.comparable and cell.mean is not None else ""
        )
        said += f"; {found} against the paper's" if found else ""
        mark = tag("span", MARKS[found], aria_hidden="true") if found else "" if cell.comparable else "†"
        colour = found if found in ("better", "worse") else ""
        text = f"{tag('span', 'paper: ', class_='sr')}{mark} {cell.printed:.4f}"
        shown += tag("span", text, class_=f"beside {colour}".strip())
    value = "" if cell.mean is None else f"{cell.mean:.10g}"
    return tag("td", shown, data_value=value, class_="cell", title=said, **places)


def _summary(values: Mapping[str, float] | None, method: str, form: str, best: object, **places: str) -> str:
    if values is None:
        return number(None, form, **places)
    shown = format(values[method], form)
    first = values[method] == (min(values.values()) if best is min else max(values.values()))
    return tag("td", tag("strong", shown) if first else shown, **places)


def _marks(table: Table, dataset: str = "", loss: str = "") -> str:
    """Return the numbers of the known problems that are of one dataset, or of one loss in all datasets."""
    footnotes = {note.name: note for note in paper.FOOTNOTES}
    found = [
        str(i)
        for i, note in enumerate(table.notes, 1)
        if (dataset and dataset in footnotes[note.name].datasets)
        or (loss and loss in footnotes[note.name].losses and not footnotes[note.name].datasets)
    ]
    return tag("sup", tag("span", " note ", class_="sr"), ",".join(found)) if found else ""


def _known_problems(table: Table) -> str:
    if not table.notes:
        return ""
    items = (
        tag("li", tag("span", "ours too" if note.ours else "the paper's", class_="tag"), " ", escape(note.text))
        for note in table.notes
    )
    return tag("details", tag("summary", f"{len(table.notes)} known problems of the printed table"), tag("ol", *items))


LEGEND = (
    "<ul class='legend'><li><strong>0.1234</strong> <span class='se'>±0.0010</span> ours: mean test loss and standard "
    "error over seeds, lower is better, best in bold</li><li>below it, what the paper printed: "
    "<span class='better'>↓ ours is lower</span>, ≈ within noise, <span class='worse'>↑ ours is higher</span></li>"
    "<li>† measures another thing</li></ul>"
)


# ---- against the printed -------------------------------------------------------------------------------------------


def against_printed(table: Table) -> str:
    """Return how many of our cells are better, within noise or worse, by method and by dataset."""
    comparison = compare(table)
    if not comparison.cells:
        return ""
    head = "".join(head_cell(t) for t in ("at or below", "better", "within noise", "worse", "cells"))
    tables = (
        table_of(
            f"Table {table.number} against the printed, by {what}",
            head_cell(what, class_="name") + head_cell("share", class_="name") + head,
            _tallies(comparison, what),
            [_tally("all", comparison.overall)],
            f"protocol {table.protocol}, {table.setting.title}",
            class_="sortable",
        )
        for what in ("method", "dataset")
    )
    return tag("div", *tables, class_="pair")


def _tallies(comparison: Comparison, what: str) -> list[str]:
    label = method_label if what == "method" else dataset_label
    found = comparison.by("method" if what == "method" else "dataset")
    return [_tally(label(name), tally) for name, tally in found.items()]


def _tally(name: str, tally: Tally) -> str:
    parts = (("b", tally.better), ("w", tally.within), ("x", tally.worse))
    bar = tag(
        "div", *(tag("span", class_=c, style=f"width:{100 * n / tally.cells:.1f}%") for c, n in parts), class_="bar"
    )
    counts = (tally.at_or_below, tally.better, tally.within, tally.worse, tally.cells)
    return tag(
        "tr",
        tag("th", escape(name), scope="row", class_="name"),
        tag("td", bar, data_value=f"{tally.better - tally.worse}", class_="name"),
        *(number(count, "d") for count in counts),
    )


# ---- ranks ---------------------------------------------------------------------------------------------------------


def rank_block(ranking: Ranking, title: str, where: str, name: str) -> str:
    """Return a critical-difference diagram and its tests; `where` says under which protocol and in which setting."""
    head = head_cell("pair", class_="name") + "".join(
        head_cell(text) for text in ("first lower", "second lower", "Wilcoxon p", "after Holm")
    )
    rows = [
        tag(
            "tr",
            tag("th", f"{escape(method_label(p.one))} – {escape(method_label(p.other))}", scope="row", class_="name"),
            number(p.lower, "d"),
            number(p.higher, "d"),
            number(p.p, ".2g"),
            tag("td", tag("strong", f"{p.corrected:.2g}"), data_value=p.corrected)
            if p.corrected < ranking.level
            else number(p.corrected, ".2g"),
        )
        for p in ranking.pairs
    ]
    friedman = "Friedman: {:.2f}, p = {:.2g}. ".format(*ranking.friedman) if ranking.friedman else ""
    alike = f"Bars join methods that are not told apart at {ranking.level:g}." if ranking.cliques else ""
    said = f"{friedman}Mean ranks over {ranking.cells} cells, {where}. {alike}"
    drawn = critical_difference(ranking, f"{title}, {where}", name)
    figure = tag("figure", drawn, tag("figcaption", escape(said)), class_="ranks")
    return tag("h3", escape(title)) + figure + table_of(f"{title}: tests of pairs", head, rows, class_="sortable")


# ---- seconds -------------------------------------------------------------------------------------------------------


def seconds_table(records: Sequence[Record], title: str) -> str:
    """Return the mean seconds of a run by dataset and method."""
    methods = list(dict.fromkeys(record.method for record in records))
    datasets = list(dict.fromkeys(record.dataset for record in records))
    found: dict[tuple[str, str], list[float]] = {}
    for record in records:
        if isinstance(record.kept.get("seconds"), (int, float)):
            found.setdefault((record.dataset, record.method), []).append(float(record.kept["seconds"]))
    head = head_cell("dataset", class_="name") + "".join(head_cell(method_label(m)) for m in methods)
    rows = [
        tag(
            "tr",
            tag("th", escape(dataset_label(dataset)), scope="row", class_="name"),
            *(number(_mean(found.get((dataset, method), [])), ".1f") for method in methods),
        )
        for dataset in datasets
    ]
    return table_of(f"Seconds of a run, {title}", head, rows, class_="sortable")


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


# ---- how it was made -----------------------------------------------------------------------------------------------


def how_it_was_made(records: Sequence[Record], again: str) -> str:
    """Return commands, versions, commits, dates, seeds and settings of all records."""
    made = [record.kept.get("made_by") or {} for record in records]
    commands = dict.fromkeys(str(record.kept["command"]) for record in records if record.kept.get("command"))
    dates = sorted({str(m["date"]) for m in made if m.get("date")})
    versions = _distinct((name, m[name]) for m in made for name in m if name not in ("commit", "date"))
    facts = {
        "Trained": " to ".join(dict.fromkeys((dates[0], dates[-1]))) if dates else "",
        "Seeds": ", ".join(map(str, sorted({record.seed for record in records}))),
        "Settings": "; ".join(dict.fromkeys(record.setting.title for record in records)),
        "Commits": ", ".join(dict.fromkeys(str(m["commit"]) for m in made if m.get("commit"))),
        "Versions": ", ".join(f"{name} {' and '.join(found)}" for name, found in versions.items()),
    }
    listed = "".join(tag("dt", name) + tag("dd", escape(text)) for name, text in facts.items() if text)
    lines = escape("\n".join([*commands, again]))
    return tag("dl", listed, class_="made") + tag("h3", "To run it again") + tag("pre", tag("code", lines), tabindex=0)


def _distinct(pairs: Iterable[tuple[str, object]]) -> dict[str, list[str]]:
    ordered = sorted(dict.fromkeys((name, str(value)) for name, value in pairs if value))
    return {name: [value for _, value in group] for name, group in groupby(ordered, key=lambda pair: pair[0])}
