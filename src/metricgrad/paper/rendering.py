"""Tables as text: for terminals (rich) and for documents (Markdown), the best in bold, what was printed in brackets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from rich import box
from rich.console import Group
from rich.table import Table as RichTable
from rich.text import Text

from metricgrad.evaluation.runs import method_label, metric_label
from metricgrad.evaluation.statistics import Ranking
from metricgrad.paper.against_printed import Comparison, Tally
from metricgrad.paper.sources import SOURCES
from metricgrad.paper.tables import Cell, DataRow, Table
from metricgrad.reporting.terminal import visible

UNLIKE_MARK = "†"


@dataclass(frozen=True)
class Word:
    """The text of a cell, whether it is the best, and what follows it in plain type."""

    text: str
    bold: bool = False
    after: str = ""


@dataclass(frozen=True)
class Grid:
    """A table of words: a title, headings, rows, and sentences below. The first `left` columns are names."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Word, ...], ...]
    below: tuple[str, ...] = field(default=())
    left: int = 1


def dataset_label(dataset: str) -> str:
    """Return what the paper calls a dataset; the name itself if it is not one of ours."""
    return SOURCES[dataset].title if dataset in SOURCES else dataset


# ---- what is written -----------------------------------------------------------------------------------------------


def table_grid(table: Table) -> Grid:
    """Write Table 2 with a row for each dataset and mode, or Table 3 with a column for each metric and method."""
    head, rows = _modes(table) if table.number == 2 else _rivals(table)
    return Grid(table.title, head, rows, _below(table), left=2 if table.number == 2 else 1)


def _modes(table: Table) -> tuple[tuple[str, ...], tuple[tuple[Word, ...], ...]]:
    metrics, modes = list(table.methods), next(iter(table.methods.values()))
    rows = [
        (
            Word(_marked(table, dataset) if mode == modes[0] else ""),
            Word(method_label(mode)),
            *(_cell(table.cells[dataset, metric, mode]) for metric in metrics),
            Word(share_said(*table.preferred(None, mode, dataset))),
        )
        for dataset in table.datasets
        for mode in modes
    ]
    rows += [
        (
            Word("mean rank" if mode == modes[0] else ""),
            Word(method_label(mode)),
            *(_summary(table.ranks, metric, mode, ".2f", least=True) for metric in metrics),
            Word(share_said(*table.preferred(None, mode))),
        )
        for mode in modes
    ]
    return ("dataset", "mode", *(metric_label(metric) for metric in metrics), PREFERRED), tuple(rows)


def _rivals(table: Table) -> tuple[tuple[str, ...], tuple[tuple[Word, ...], ...]]:
    columns = [(metric, method) for metric, methods in table.methods.items() for method in methods]
    rows = [
        (
            Word(_marked(table, dataset)),
            *(_cell(table.cells[dataset, metric, method]) for metric, method in columns),
            Word(share_said(*table.preferred(None, "sl-r", dataset))),
        )
        for dataset in table.datasets
    ]
    last = tuple(_summary(table.wins, metric, method, ".1f", least=False) for metric, method in columns)
    head = tuple(f"{metric_label(metric)}: {method_label(method)}" for metric, method in columns)
    total = Word(share_said(*table.preferred(None, "sl-r")))
    return ("dataset", *head, PREFERRED), (*rows, (Word("wins"), *last, total))


PREFERRED = "kept"
"""Heading of the column that says how often the model that followed a surrogate was kept."""


def share_said(part: int, whole: int) -> str:
    """Return a share in percent; a dash if nothing is known."""
    return f"{part / whole:.0%}" if whole else "-"


def models_said(table: Table) -> str:
    """Return which models a table shows, and what its column `kept` says."""
    if table.followed:
        return (
            'The models are those that followed their loss, checkpoints chosen on validation rows; "kept" is the '
            "share of the surrogates' models that beat cross-entropy there by more than the recipe's margin, so that "
            "`fit` would keep them."
        )
    return (
        "The models are those that were kept on validation rows: of surrogates as many as the column says, where that "
        "is known; the others followed cross-entropy. What the surrogates' models lose themselves was not stored with "
        "these runs."
    )


def _marked(table: Table, dataset: str) -> str:
    """Name a dataset, with a star if it was held only in part."""
    return dataset + ("*" if dataset in table.subsets else "")


def _cell(cell: Cell) -> Word:
    shown = f"{cell.printed:.4f}" if cell.printed is not None else ""
    printed = f" ({shown})" if cell.comparable else f" {UNLIKE_MARK}{shown}" if shown else ""
    if cell.mean is None:
        return Word("-", after=printed)
    error = "" if cell.error is None else f" ±{cell.error:.4f}"
    return Word(f"{cell.mean:.4f}", cell.best, f"{error}{printed}")


def _summary(found: dict[str, dict[str, float]], metric: str, method: str, form: str, *, least: bool) -> Word:
    if metric not in found:
        return Word("-")
    values = found[metric]
    best = min(values.values()) if least else max(values.values())
    return Word(format(values[method], form), values[method] == best)


def seeds_said(table: Table) -> str:
    """Return over how many seeds the cells of a table are: `3 seeds`, `1 to 3 seeds`."""
    seeds = sorted({len(cell.seeds) for cell in table.cells.values() if cell.seeds}) or [0]
    return f"{_span(seeds)} seed{'' if seeds == [1] else 's'}"


def _span(counts: Sequence[int]) -> str:
    return f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


def _below(table: Table) -> tuple[str, ...]:
    rows = _span(sorted(table.counted.values()))
    parts = (f"* {dataset}: {part}." for dataset, part in table.subsets.items())
    mixed = [f"{dataset} {metric_label(metric)} {method_label(method)}" for dataset, metric, method in table.mixed]
    unlike = any(cell.printed is not None and not cell.comparable for cell in table.cells.values())
    notes = (f"{'Both' if note.ours else 'The paper'}: {note.text}" for note in table.notes)
    return (
        f"Mean test loss ± standard error over {seeds_said(table)} (as the paper printed it); lower"
        f" is better, best in bold. The last {'rows are' if table.number == 2 else 'row is'} over the {rows} datasets "
        "that have every method.",
        models_said(table),
        *parts,
        *([f"Seeds on different files or from different surrogates in: {', '.join(mixed)}."] if mixed else []),
        *([f"{UNLIKE_MARK} The paper measures another thing there: not to be compared."] if unlike else []),
        *notes,
    )


def data_grid(rows: Sequence[DataRow]) -> Grid:
    """Write Table 1."""
    head = ("dataset", "called", "rows", "the paper's", "positive", "the paper's", "held")
    return Grid("Table 1: the datasets", head, tuple(tuple(map(Word, _data(row))) for row in rows), left=2)


def _data(row: DataRow) -> tuple[str, ...]:
    return (
        row.dataset,
        row.title,
        "-" if row.rows is None else f"{row.rows:,}",
        f"{row.printed.rows:,}" if row.printed else "-",
        "-" if row.positive_share is None else f"{row.positive_share:.2%}",
        f"{row.printed.positive_share:.2%}" if row.printed else "-",
        row.subset or "whole",
    )


def comparison_grid(comparison: Comparison) -> Grid:
    """Write how our cells stand to the printed ones, by method, then by dataset, then in all."""
    tallies = {
        **{method_label(m): t for m, t in comparison.by("method").items()},
        **comparison.by("dataset"),
        "all": comparison.overall,
    }
    head = ("", "cells", "at or below", "better", "within noise", "worse")
    rows = tuple((Word(name), *_tally(tally)) for name, tally in tallies.items())
    return Grid(f"{comparison.title}: ours against the printed", head, rows)


def _tally(tally: Tally) -> tuple[Word, ...]:
    counts = (tally.cells, tally.at_or_below, tally.better, tally.within, tally.worse)
    return tuple(Word(str(count)) for count in counts)


def ranking_grid(ranking: Ranking, title: str) -> Grid:
    """Write mean ranks and, below them, the tests."""
    rows = tuple((Word(method_label(method)), Word(f"{rank:.2f}")) for method, rank in ranking.ranks.items())
    return Grid(f"{title}, over {ranking.cells} cells", ("method", "mean rank"), rows, tuple(_tests(ranking)))


def _tests(ranking: Ranking) -> list[str]:
    friedman = ["Friedman: {:.2f}, p = {:.2g}.".format(*ranking.friedman)] if ranking.friedman else []
    pairs = [
        f"{method_label(pair.one)} against {method_label(pair.other)}: lower in {pair.lower}, higher in {pair.higher} "
        f"cells; Wilcoxon p = {pair.p:.2g}, after Holm {pair.corrected:.2g}."
        for pair in ranking.pairs
    ]
    alike = [f"Not told apart at {ranking.level:g}: {', '.join(map(method_label, c))}." for c in ranking.cliques]
    return friedman + pairs + alike


# ---- how it is written ---------------------------------------------------------------------------------------------


def as_rich(grid: Grid) -> Group:
    """Return a table for the terminal, and what stands below it.

    Parameters
    ----------
    grid : Grid
        What to show.
    """
    table = RichTable(title=Text(visible(grid.title), "table.title"), box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for i, heading in enumerate(grid.head):
        table.add_column(Text(visible(heading)), justify="left" if i < grid.left else "right", overflow="fold")
    for row in grid.rows:
        table.add_row(*(Text.assemble((visible(w.text), "bold" if w.bold else ""), visible(w.after)) for w in row))
    return Group(table, *(Text(visible(sentence)) for sentence in grid.below))


def as_markdown(grid: Grid) -> str:
    """Return a table for documents, with its title above and what stands below as a list.

    Parameters
    ----------
    grid : Grid
        What to show.
    """
    lines = [
        f"**{_safe(grid.title)}**",
        "",
        _line([_safe(heading) for heading in grid.head]),
        _line(["---" if i < grid.left else "---:" for i in range(len(grid.head))]),
        *(_line([_bold(word) for word in row]) for row in grid.rows),
    ]
    if grid.below:
        lines += ["", *(f"- {_safe(sentence)}" for sentence in grid.below)]
    return "\n".join(lines) + "\n"


def _bold(word: Word) -> str:
    return (f"**{_safe(word.text)}**" if word.bold else _safe(word.text)) + _safe(word.after)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _safe(text: str) -> str:
    """Take their meaning from the marks of Markdown and HTML."""
    return re.sub(r"([\\`*_\[\]<>|&])", r"\\\1", re.sub(r"\s+", " ", text))
