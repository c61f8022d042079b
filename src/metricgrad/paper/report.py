"""Results as pages: self-contained HTML, readable without a network, on a phone and in the dark."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from metricgrad.evaluation.records import Record, Setting, open_store, read_records
from metricgrad.evaluation.runs import method_label, metric_label
from metricgrad.evaluation.statistics import Ranking, common_methods, rank_methods
from metricgrad.evaluation.store import Store
from metricgrad.evaluation.training_panel import training_panel
from metricgrad.metrics.registry import get_metric
from metricgrad.paper import printed as paper
from metricgrad.paper.against_printed import NOISE, compare
from metricgrad.paper.figures import figure1, figure2
from metricgrad.paper.panels import FIGURES, filter_bar, page_data
from metricgrad.paper.sections import (
    LEGEND,
    against_printed,
    datasets_table,
    how_it_was_made,
    rank_block,
    result_table,
    seconds_table,
)
from metricgrad.paper.tables import Table, losses, table1, table2, table3
from metricgrad.reporting.atomic import write_whole
from metricgrad.reporting.markup import boxed, note, page, tag

TITLE = "Learning surrogate losses, reproduced"
PARTS = {
    "data": "Datasets",
    "tables": "Tables",
    "printed": "Against the paper",
    "ranks": "Ranks",
    "training": "Training",
    "figures": "Figures",
    "seconds": "Time",
    "made": "How it was made",
}
WALK = (0, 2, 5, 10, 15, 20, 30, 40, 50, 60, 80, 100, 120)
"""Rounds of Figure 2 that a page can show."""


# ---- the report ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _View:
    """What is judged in one setting under one protocol."""

    place: int
    protocol: str
    tables: tuple[Table, Table]
    modes: Ranking | None
    rivals: Mapping[str, Ranking]

    def block(self, *inside: str) -> str:
        """Return markup that is shown only while its protocol and setting are chosen."""
        return tag("div", *inside, data_protocol=self.protocol, data_setting=self.place)


def write_report(results: Store | str | Path, path: str | Path, *, figures: bool = True) -> int:
    """Write one page about all records of a results folder, and return how many there are.

    Parameters
    ----------
    results : Store or path
        A folder that holds `runs.jsonl`, that file, or a store.
    path : path
        The page to write.
    figures : bool
        Whether to draw the paper's Figures 1 and 2 as well; they need no records, and a few seconds.
    """
    store = open_store(results)
    records = read_records(store)
    if not records:
        raise ValueError(f"results: expected records of trained models in {str(store.path)!r}, got none")
    settings = sorted(dict.fromkeys(r.setting for r in records), key=lambda s: -sum(r.setting == s for r in records))
    drawn = (figure1(points=61), figure2(WALK)) if figures else (None, None)
    text = page(
        f"metricgrad: {TITLE.lower()}",
        _body(records, settings, f"metricgrad report {store.path.parent.name}", figures),
        styles=("style.css", "report.css"),
        scripts=("draw.js", "sort.js", "filter.js", "convergence.js", "figures.js"),
        data=page_data(records, settings, *drawn),
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)
    return len(records)


def _view(records: Sequence[Record], place: int, setting: Setting, protocol: str) -> _View:
    second, third = table2(records, protocol, setting), table3(records, protocol, setting)
    cells = losses(records, protocol, setting).values()
    methods = common_methods(cells, paper.MODES)
    modes = rank_methods(cells, methods) if len(methods) > 1 else None
    rivals = {metric: rank_methods(third.rows(metric).values(), compared) for metric, compared in third.methods.items()}
    return _View(place, protocol, (second, third), modes, {m: ranking for m, ranking in rivals.items() if ranking})


def _body(records: Sequence[Record], settings: Sequence[Setting], again: str, figures: bool) -> str:
    views = [_view(records, i, s, protocol) for i, s in enumerate(settings) for protocol in ("honest", "paper")]
    inside = {
        "data": datasets_table(table1(records)),
        "tables": _tables(views, settings),
        "printed": _printed(views),
        "ranks": _ranks(views),
        "training": training_panel(settings),
        "figures": FIGURES if figures else "",
        "seconds": "".join(seconds_table([r for r in records if r.setting == s], s.title) for s in settings),
        "made": how_it_was_made(records, again),
    }
    parts = [name for name in PARTS if inside[name]]
    links = "".join(tag("a", escape(PARTS[name]), href=f"#{name}") for name in parts)
    sections = (tag("section", tag("h2", escape(PARTS[name])), inside[name], id=name) for name in parts)
    return (
        tag("header", tag("h1", TITLE), _headline(records, views))
        + tag("nav", tag("div", links), aria_label="Parts")
        + tag("main", *sections)
    )


def _headline(records: Sequence[Record], views: Sequence[_View]) -> str:
    facts = {
        "models trained": f"{len(records):,}",
        "datasets": f"{len({r.dataset for r in records})}",
        "methods": f"{len({r.method for r in records})}",
        "seeds": f"{len({r.seed for r in records})}",
        "hours of training": f"{sum(float(r.kept.get('seconds') or 0) for r in records) / 3600:,.1f}",
    }
    cards = (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items())
    said = (
        tag(
            "div",
            tag("h2", escape(f"Protocol {view.protocol}")),
            *(tag("p", escape(s)) for s in _findings(view)),
            class_="says",
        )
        for view in views
        if view.place == 0
    )
    lead = "Models trained for the metric they are judged by, beside what the paper printed."
    return tag("p", lead, class_="lead") + tag("dl", *cards, class_="facts") + tag("div", *said, class_="pair")


def _findings(view: _View) -> Iterator[str]:
    for table in view.tables:
        comparison = compare(table)
        tally, partial = comparison.overall, sum(cell.dataset in table.subsets for cell in comparison.cells)
        if tally.cells:
            held = f" {partial} of these cells are of datasets held only in part." if partial else ""
            yield (
                f"Table {table.number}: at or below the printed loss in {tally.at_or_below} of {tally.cells} cells; "
                f"better by more than noise in {tally.better}, worse in {tally.worse}.{held}"
            )
    if view.modes:
        ranks = ", ".join(f"{method_label(m)} {rank:.2f}" for m, rank in view.modes.ranks.items())
        alike = " and ".join(", ".join(map(method_label, clique)) for clique in view.modes.cliques)
        told = f"not told apart: {alike}" if alike else "all are told apart"
        yield f"Mean ranks over {view.modes.cells} cells: {ranks}; {told}."


def _tables(views: Sequence[_View], settings: Sequence[Setting]) -> str:
    bar = filter_bar([table for view in views for table in view.tables], settings)
    blocks = (
        view.block(*(result_table(t, f"table{t.number}-{view.protocol}-{view.place}") for t in view.tables))
        for view in views
    )
    return LEGEND + bar + "".join(blocks)


def _printed(views: Sequence[_View]) -> str:
    said = note(
        "A difference is within noise if it is at most two standard errors of ours plus the noise of the printed "
        f"tables, which is how far two printed runs of one loss lie apart: {NOISE['sl-u']} for SL-U, {NOISE['sl-s']} "
        f"for SL-S, {NOISE['sl-r']:.4f} for SL-R and, for want of any other, for hand-made losses."
    )
    return said + "".join(view.block(*map(against_printed, view.tables)) for view in views)


def _ranks(views: Sequence[_View]) -> str:
    said = note(
        "Cells are a dataset and a metric each. Pairs count as told apart only if Friedman's test, where there are "
        "three or more methods, and Wilcoxon's after Holm's correction both say so. Cells of one dataset are not quite "
        "independent, so p-values are a little too small."
    )
    blocks = (view.block(*_rank_blocks(view)) for view in views)
    return said + "".join(blocks)


def _rank_blocks(view: _View) -> Iterator[str]:
    name = f"{view.protocol}-{view.place}"
    where = f"protocol {view.protocol}, {view.tables[0].setting.title}"
    if view.modes:
        yield rank_block(view.modes, "All metrics", where, f"ranks-{name}")
    small = (
        rank_block(ranking, f"Table 3: {metric_label(metric)}", where, f"ranks-{metric}-{name}")
        for metric, ranking in view.rivals.items()
    )
    yield tag("div", *(tag("div", block) for block in small), class_="pair")


# ---- the page of the demo ------------------------------------------------------------------------------------------


def write_demo_page(
    path: Path, title: str, verdict: str, losses: Mapping[str, Mapping[str, float]], pictures: Mapping[str, Path]
) -> None:
    """Write a page: which model was kept, metrics as people know them, one column a method, best in bold; pictures."""
    figures = "".join(
        f'<figure><img alt="{escape(caption)}" src="data:image/png;base64,'
        f'{base64.b64encode(file.read_bytes()).decode()}"><figcaption>{escape(caption)}</figcaption></figure>'
        for caption, file in pictures.items()
    )
    lead = "Test rows, looked at once. Same network, steps, split and exact threshold for every method."
    body = (
        f"<header><h1>{escape(title)}</h1><p>{lead}</p></header><main>{_metric_table(losses)}"
        f"<p>{escape(verdict)}</p>{figures}</main>"
    )
    write_whole(path, page(title, body))


def _metric_table(losses: Mapping[str, Mapping[str, float]]) -> str:
    names = list(next(iter(losses.values())))
    head = "".join(f"<th scope='col'>{escape(method)}</th>" for method in losses)
    rows = "".join(_metric_row(name, [by[name] for by in losses.values()]) for name in names)
    return boxed(
        f"<table><thead><tr><th scope='col'>metric</th>{head}</tr></thead><tbody>{rows}</tbody></table>", "Test rows"
    )


def _metric_row(name: str, losses: list[float]) -> str:
    metric = get_metric(name)
    arrow = "higher is better" if metric.higher_is_better else "lower is better"
    shown = [f"{metric.value(loss):.4f}" for loss in losses]
    cells = [
        f"<td>{'<strong>' if loss == min(losses) else ''}{text}{'</strong>' if loss == min(losses) else ''}</td>"
        for text, loss in zip(shown, losses, strict=True)
    ]
    return f"<tr><th scope='row'>{escape(metric.label)} <small>({arrow})</small></th>{''.join(cells)}</tr>"
