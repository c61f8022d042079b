"""The paper's tables to be shown, in a terminal, a document or a page: which cells, names, notes and marks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from metricgrad.evaluation.records import Record
from metricgrad.evaluation.runs import method_label, metric_label
from metricgrad.evaluation.statistics import Ranking
from metricgrad.paper import printed as paper
from metricgrad.paper.sources import SOURCES
from metricgrad.paper.tables import PaperTable
from metricgrad.reporting.tables import ResultTable, Shown, number, result_frame

MARKS = {"better": "↓", "within noise": "≈", "worse": "↑", "": ""}
FOOTNOTES_BY_NAME = {note.name: note for note in paper.FOOTNOTES}


def dataset_label(dataset: str) -> str:
    """Return the paper's name of a dataset; our name if it is not one of the paper's."""
    return SOURCES[dataset].title if dataset in SOURCES else dataset


def result_table(table: PaperTable, *, page: bool = False) -> ResultTable:
    """Lay out Table 2 with a row for each dataset and mode, or Table 3 with a column for each metric and method.

    `page` is whether it is for a page, which sorts rows, so that each has its dataset, by the paper's name.
    """
    by_mode = table.number == 2
    modes = next(iter(table.methods.values())) if by_mode else ("",)
    columns = [(m, k) for m, methods in table.methods.items() for k in (("",) if by_mode else methods)]
    rows, attributes = [], []
    for dataset in (*table.datasets, ""):
        for mode in modes:
            name = _row_name(table, dataset, page, first=mode == modes[0])
            cells = [_shown_cell(table, dataset, metric, method or mode) for metric, method in columns]
            names = [name, Shown(method_label(mode))] if by_mode else [name]
            rows.append([*names, *cells, _share(*table.preferred(None, mode or "sl-r", dataset or None))])
            own = {"data-dataset": dataset, "data-method": mode}
            own["data-words"] = f"{dataset} {method_label(mode)}".strip().lower() if dataset else ""
            attributes.append({key: value for key, value in own.items() if value})
    head: list[Any] = [(metric_label(m), method_label(k) if k else "") for m, k in columns]
    kept = ("kept", "SL-R" if page else "") if not by_mode else ("kept", "")
    first = [("dataset", ""), ("mode", "")] if by_mode else [("dataset", "")]
    none: dict[str, str] = {}
    places = [{"data-metric": m, **({"data-method": k} if k else none)} for m, k in columns]
    return ResultTable(
        table.title,
        result_frame(rows, [*first, *head, kept]),
        _below(table),
        names=len(first),
        summary_rows=len(modes),
        row_attributes=attributes,
        column_attributes=[*[none] * len(first), *places, none],
        column_notes=[*[""] * len(first), *(_note_numbers(table, loss=m) for m, _ in columns), ""],
    )


def _row_name(table: PaperTable, dataset: str, page: bool, first: bool) -> Shown:
    if not dataset:
        return Shown(("mean rank" if table.number == 2 else "wins") if first or page else "")
    if page:
        part = table.subsets.get(dataset, "")
        return Shown(dataset_label(dataset), note=_note_numbers(table, dataset=dataset), small=part)
    return Shown(dataset + ("*" if dataset in table.subsets else "") if first else "")


def _shown_cell(table: PaperTable, dataset: str, metric: str, method: str) -> Shown:
    if not dataset:
        found = (table.ranks if table.number == 2 else table.wins).get(metric)
        if found is None:
            return Shown("-")
        best = (min if table.number == 2 else max)(found.values())
        return Shown(format(found[method], ".2f" if table.number == 2 else ".1f"), best=found[method] == best)
    cell = table.cell(dataset, metric, method)
    seeds = f"{len(cell.seeds)} seed{'' if len(cell.seeds) == 1 else 's'}" if cell.seeds else "not run"
    printed = "" if math.isnan(cell.printed) else f"{cell.printed:.4f}"
    return number(
        cell["mean"],
        ".4f",
        best=bool(cell.best),
        error="" if math.isnan(cell.error) else f" ±{cell.error:.4f}",
        brackets=(f" ({printed})" if cell.comparable else f" †{printed}") if printed else "",
        beside=f"{MARKS[cell.verdict] if cell.comparable else '†'} {printed}".strip() if printed else "",
        verdict=cell.verdict.replace(" ", "-"),
        title=f"{seeds}; {cell.verdict} against the paper's" if cell.verdict else seeds,
    )


def _share(part: int, whole: int) -> Shown:
    return number(part / whole if whole else None, ".0%")


def _note_numbers(table: PaperTable, dataset: str = "", loss: str = "") -> str:
    """Return the numbers of the known problems that are of one dataset, or of one loss in all datasets."""
    notes = [(str(i), FOOTNOTES_BY_NAME[note.name]) for i, note in enumerate(table.notes, 1)]
    if dataset:
        return ",".join(i for i, note in notes if dataset in note.datasets)
    return ",".join(i for i, note in notes if loss in note.losses and not note.datasets)


def models_shown(table: PaperTable) -> str:
    """Return which models a table shows, and what its column `kept` is."""
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


def seed_count(table: PaperTable) -> str:
    """Return over how many seeds the cells of a table are: `3 seeds`, `1 to 3 seeds`."""
    seeds = sorted({len(seeds) for seeds in table.frame["seeds"] if seeds}) or [0]
    return f"{_span(seeds)} seed{'' if seeds == [1] else 's'}"


def _span(counts: Sequence[int]) -> str:
    return f"{counts[0]}" if counts[0] == counts[-1] else f"{counts[0]} to {counts[-1]}"


def _below(table: PaperTable) -> tuple[str, ...]:
    rows = _span(sorted(table.counted.values()))
    parts = (f"* {dataset}: {part}." for dataset, part in table.subsets.items())
    mixed = [f"{dataset} {metric_label(metric)} {method_label(method)}" for dataset, metric, method in table.mixed]
    other = (table.frame["printed"].notna() & ~table.frame["comparable"]).any()
    notes = (f"{'Both' if note.ours else 'The paper'}: {note.text}" for note in table.notes)
    return (
        f"Mean test loss ± standard error over {seed_count(table)} (as the paper printed it); lower"
        f" is better, best in bold. The last {'rows are' if table.number == 2 else 'row is'} over the {rows} datasets "
        "that have every method.",
        models_shown(table),
        *parts,
        *([f"Seeds on different files or from different surrogates in: {', '.join(mixed)}."] if mixed else []),
        *(["† The paper measures another thing there: not to be compared."] if other else []),
        *notes,
    )


def datasets_table(found: pd.DataFrame, *, page: bool = False) -> ResultTable:
    """Lay out Table 1, ours beside the printed."""
    rows = []
    for row in found.itertuples():
        counts = number(row.rows, ",d"), number(row.printed_rows, ",d")
        shares = number(row.positive_share, ".2%"), number(row.printed_share, ".2%")
        held = row.subset or "whole"
        rows.append([row.title, held, *counts, *shares] if page else [row.dataset, row.title, *counts, *shares, held])
    if page:
        both = [(text, whose) for text in ("rows", "positive") for whose in ("ours", "the paper's")]
        return ResultTable(
            "Table 1: the datasets as they were held", result_frame(rows, ["dataset", "held", *both]), names=2
        )
    head = ["dataset", "called", "rows", "the paper's", "positive", "the paper's", "held"]
    return ResultTable("Table 1: the datasets", result_frame(rows, head), names=2)


def tally_table(table: PaperTable) -> ResultTable:
    """Lay out how our cells compare with the printed ones, by method, then by dataset, then in all."""
    counts = pd.concat([table.tally("method").rename(index=method_label), table.tally("dataset"), table.tally()])
    rows = [[name, *map(str, row)] for name, *row in counts.itertuples()]
    return ResultTable(f"{table.title}: ours against the printed", result_frame(rows, ["", *counts.columns]))


def ranking_table(ranking: Ranking, title: str) -> ResultTable:
    """Lay out mean ranks, with the tests below."""
    rows = [(method_label(method), f"{rank:.2f}") for method, rank in ranking.ranks.items()]
    friedman = ["Friedman: {:.2f}, p = {:.2g}.".format(*ranking.friedman)] if ranking.friedman else []
    pairs = [
        f"{method_label(pair.one)} against {method_label(pair.other)}: lower in {pair.lower}, higher in {pair.higher} "
        f"cells; Wilcoxon p = {pair.p:.2g}, after Holm {pair.corrected:.2g}."
        for pair in ranking.pairs
    ]
    alike = [
        f"Not significantly different at {ranking.level:g}: {', '.join(map(method_label, c))}." for c in ranking.cliques
    ]
    frame = result_frame(rows, ["method", "mean rank"])
    return ResultTable(f"{title}, over {ranking.cells} cells", frame, (*friedman, *pairs, *alike))


# ---- for pages only ------------------------------------------------------------------------------------------------


def tally_page_table(table: PaperTable, by: str) -> ResultTable:
    """Lay out the verdicts by method or by dataset, with a bar of their shares."""
    label = method_label if by == "method" else dataset_label
    counts = pd.concat([table.tally(by).rename(index=label), table.tally()])
    classes = dict(zip(paper.VERDICTS, ("b", "w", "x"), strict=True))
    rows = []
    for name, row in counts.iterrows():
        bar = [(classes[verdict], f"{100 * row[verdict] / row['cells']:.1f}") for verdict in paper.VERDICTS]
        columns = ("at or below", *paper.VERDICTS, "cells")
        balance = float(row["better"] - row["worse"])
        rows.append([Shown(str(name)), Shown("", balance, bar=bar), *(number(int(row[c]), "d") for c in columns)])
    head = [by, "share", "at or below", *paper.VERDICTS, "cells"]
    title = f"Table {table.number} against the printed, by {by}"
    return ResultTable(title, result_frame(rows, head), names=2, summary_rows=1)


def pairs_table(ranking: Ranking, title: str) -> ResultTable:
    """Lay out the tests of every pair of methods."""
    rows = [
        [
            f"{method_label(pair.one)} – {method_label(pair.other)}",
            number(pair.lower, "d"),
            number(pair.higher, "d"),
            number(pair.p, ".2g"),
            number(pair.corrected, ".2g", best=pair.corrected < ranking.level),
        ]
        for pair in ranking.pairs
    ]
    head = ["pair", "first lower", "second lower", "Wilcoxon p", "after Holm"]
    return ResultTable(f"{title}: tests of pairs", result_frame(rows, head))


def seconds_table(records: Sequence[Record], title: str) -> ResultTable:
    """Lay out the mean seconds of a run by dataset and method."""
    found = pd.DataFrame([(r.dataset, r.method, r.kept.get("seconds")) for r in records], columns=["d", "m", "seconds"])
    found["seconds"] = pd.to_numeric(found["seconds"], errors="coerce")
    means = found.groupby(["d", "m"], sort=False)["seconds"].mean().unstack("m")
    means = means.reindex(index=found["d"].unique(), columns=found["m"].unique())
    rows = [[dataset_label(d), *(number(value, ".1f") for value in row)] for d, *row in means.itertuples()]
    return ResultTable(
        f"Seconds of a run, {title}", result_frame(rows, ["dataset", *(method_label(m) for m in means.columns)])
    )
