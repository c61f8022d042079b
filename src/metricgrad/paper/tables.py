"""The paper's three tables from stored records, with the printed numbers beside ours, as frames."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any

import pandas as pd

from metricgrad.evaluation.records import Record, Setting, read_records
from metricgrad.evaluation.statistics import mean_ranks, wins
from metricgrad.evaluation.store import Store
from metricgrad.paper import printed as paper
from metricgrad.paper.protocols import Protocol, get_protocol
from metricgrad.paper.sources import SOURCES

Results = Store | str | Path | Sequence[Record]
NOT_COMPARABLE: Mapping[str, tuple[str, ...]] = MappingProxyType({"honest": ("jaccard",)})
"""Losses by protocol for which the paper measured another quantity: its number is shown, but not compared."""


@dataclass(frozen=True, eq=False)
class PaperTable:
    """Table 2 or 3 under one protocol and in one setting.

    Parameters
    ----------
    number : int
        2 or 3.
    protocol : str
        How models were scored.
    setting : Setting
        How they were trained.
    datasets : tuple of str
        The rows.
    methods : mapping
        For every metric, the methods that are compared.
    frame : DataFrame
        A row for each dataset, metric and method (its index), with the columns `mean` and `error` of the test loss over
        `seeds`, the `printed` loss, whether it is `comparable`, the `verdict` on ours and whether that is
        `at_or_below`, whether it is the `best` of its row, names of `notes`, in how many seeds the model that followed
        the loss was `preferred` (NaN if unknown), and whether seeds are `mixed`: of different files or surrogates.
    subsets : mapping
        What part was available of datasets that were not available in full.
    notes : tuple of Note
        Known problems of the paper that concern some cell.
    followed : bool
        Whether losses are of the models that followed their loss, as in the paper; else of the models that were
        selected, which may have followed cross-entropy: records of older versions have no others.
    """

    number: int
    protocol: str
    setting: Setting
    datasets: tuple[str, ...]
    methods: Mapping[str, tuple[str, ...]]
    frame: pd.DataFrame = field(repr=False)
    subsets: Mapping[str, str] = field(repr=False)
    notes: tuple[paper.Note, ...] = field(repr=False)
    followed: bool = True

    @property
    def title(self) -> str:
        """Number, protocol and setting."""
        return f"Table {self.number}, protocol {self.protocol}, {self.setting.title}"

    def cell(self, dataset: str, metric: str, method: str) -> Any:
        """Return one row of the frame."""
        return self.frame.loc[(dataset, metric, method), :]

    @property
    def compared(self) -> pd.DataFrame:
        """The cells that can be compared with a printed one; dataset, metric and method are columns."""
        cells: pd.DataFrame = self.frame[self.frame["verdict"] != ""].reset_index()
        return cells

    def tally(self, by: str | None = None) -> pd.DataFrame:
        """Count cells and verdicts, by method, dataset or metric, or of all."""
        cells = self.compared
        counts = pd.DataFrame({"cells": True, "at or below": cells["at_or_below"]}, index=cells.index).astype(int)
        for verdict in paper.VERDICTS:
            counts[verdict] = (cells["verdict"] == verdict).astype(int)
        sums: pd.DataFrame = counts.groupby(cells[by] if by else ["all"] * len(cells), sort=False).sum()
        return sums

    def preferred(self, metric: str | None, method: str, dataset: str | None = None) -> tuple[int, int]:
        """Return in how many runs the model that followed the loss was preferred, and of how many that is known."""
        known = self.frame[self.frame["preferred"].notna()].reset_index()
        known = known[known["method"] == method]
        for column, value in (("metric", metric), ("dataset", dataset)):
            known = known if value is None else known[known[column] == value]
        return int(known["preferred"].sum()), int(known["seeds"].map(len).sum())

    @property
    def mixed(self) -> tuple[tuple[str, str, str], ...]:
        """Cells whose seeds were not run on the same data from the same surrogate."""
        return tuple(self.frame.index[self.frame["mixed"]])

    def complete_rows(self, metric: str) -> list[dict[str, float]]:
        """Return mean losses of a metric by method, for each dataset in which every method was run."""
        means = self.frame["mean"].xs(metric, level="metric").unstack("method")
        rows = means.reindex(index=list(self.datasets), columns=list(self.methods[metric])).dropna()
        return [dict(zip(self.methods[metric], row, strict=True)) for row in rows.to_numpy().tolist()]

    @property
    def counted(self) -> dict[str, int]:
        """In how many datasets every method was run, by metric."""
        return {metric: len(self.complete_rows(metric)) for metric in self.methods}

    @property
    def ranks(self) -> dict[str, dict[str, float]]:
        """Mean ranks by metric and method, over those datasets."""
        return {metric: mean_ranks(self.complete_rows(metric)) for metric, n in self.counted.items() if n}

    @property
    def wins(self) -> dict[str, dict[str, float]]:
        """Number of datasets won by metric and method, over those datasets."""
        return {metric: wins(self.complete_rows(metric)) for metric, n in self.counted.items() if n}


# ---- from records to frames ----------------------------------------------------------------------------------------


def table1(results: Results) -> pd.DataFrame:
    """Return the datasets of the records as they were available, and as printed; two versions of one have two rows.

    Parameters
    ----------
    results : Store, path or records
        Where the records are.
    """
    rows: dict[tuple[Any, ...], None] = {}
    for record in _records(results):
        parts, share = (record.kept.get("rows") or {}).values(), record.kept.get("positive_share")
        source, printed = SOURCES.get(record.dataset), paper.TABLE1.get(record.dataset)
        row = {
            "dataset": record.dataset,
            "title": source.title if source else record.dataset,
            "rows": sum(parts) if parts else None,
            "positive_share": None if share is None else float(share),
            "subset": record.subset,
            "printed_rows": printed.rows if printed else None,
            "printed_share": printed.positive_share if printed else None,
        }
        rows[tuple(row.items())] = None
    order = paper.in_order({row[0][1] for row in rows})
    found = sorted(map(dict, rows), key=lambda row: order.index(row["dataset"]))
    frame: pd.DataFrame = pd.DataFrame(found, dtype=object)
    return frame


def table2(
    results: Results,
    protocol: Protocol | str = "honest",
    setting: Setting | None = None,
    datasets: Collection[str] | None = None,
) -> PaperTable:
    """Return Table 2: the universal, the refined and the from-scratch surrogate under the seven losses.

    Parameters
    ----------
    results : Store, path or records
        Where the records are.
    protocol : Protocol or str
        How models are scored.
    setting : Setting, optional
        How they were trained; may be omitted if the records have only one.
    datasets : collection of str, optional
        The rows. By default all of the paper's if there is a record of any, then the others there are records of.
    """
    methods = dict.fromkeys(paper.LOSSES, paper.MODES)
    return _table(2, _records(results), get_protocol(protocol), setting, datasets, methods, paper.TABLE2)


def table3(
    results: Results,
    protocol: Protocol | str = "honest",
    setting: Setting | None = None,
    datasets: Collection[str] | None = None,
) -> PaperTable:
    """Return Table 3: the refined surrogate against the hand-made losses of four metrics.

    Parameters
    ----------
    results, protocol, setting, datasets
        As for `table2`.
    """
    methods = dict(paper.TABLE3_METHODS)
    return _table(3, _records(results), get_protocol(protocol), setting, datasets, methods, paper.TABLE3)


def losses(
    results: Results, protocol: Protocol | str, setting: Setting | None = None
) -> dict[tuple[str, str], dict[str, float]]:
    """Return the mean loss of every method for every dataset and metric there are records of: cells to rank over.

    Parameters
    ----------
    results, protocol, setting
        As for `table2`.
    """
    protocol, records = get_protocol(protocol), _of_setting(_records(results), setting)
    index, followed = _index(records), all(record.knows_followed for record in records)
    places = dict.fromkeys((r.dataset, m, r.method) for r in records for m in (r.metric, *protocol.instead))
    found: dict[tuple[str, str], dict[str, float]] = {}
    for dataset, metric, method in places:
        seen = _by_seed(index, protocol, (dataset, metric, method), followed)
        if seen:
            found.setdefault((dataset, metric), {})[method] = fmean(loss for loss, _ in seen.values())
    return found


Index = Mapping[tuple[str, str, str, int], Mapping[int, Record]]
"""Records by seed, by dataset, trained metric, method and replicate."""


def _records(results: Results) -> Sequence[Record]:
    return read_records(results) if isinstance(results, (Store, str, Path)) else results


def _of_setting(records: Sequence[Record], setting: Setting | None) -> list[Record]:
    """Return the records of one setting, so that models trained differently never share a table."""
    there = list(dict.fromkeys(record.setting for record in records))
    known = "; ".join(s.title for s in there) or "there is none"
    if setting is None and len(there) != 1:
        raise ValueError(f"setting: expected one of those that were stored ({known}), got none")
    setting = setting or there[0]
    if setting not in there:
        raise ValueError(f"setting: expected one of those that were stored ({known}), got {setting.title!r}")
    return [record for record in records if record.setting == setting]


def _index(records: Iterable[Record]) -> Index:
    index: dict[tuple[str, str, str, int], dict[int, Record]] = {}
    for record in records:
        place = (record.dataset, record.metric, record.method, record.replicate)
        index.setdefault(place, {})[record.seed] = record
    return index


Seen = Mapping[int, tuple[float, Record]]
"""Losses of a cell by seed, each with its record."""


def _by_seed(index: Index, protocol: Protocol, place: tuple[str, str, str], followed: bool) -> Seen:
    """Return the losses of a cell by seed; a metric measured as another one reads the second run of that one."""
    dataset, metric, method = place
    replaced = metric in protocol.instead
    trained = protocol.instead[metric].name if replaced else metric
    records = index.get((dataset, trained, method, int(replaced)), {})
    found = {seed: (r.loss(protocol.name, trained, followed), r) for seed, r in sorted(records.items())}
    return {seed: (loss, record) for seed, (loss, record) in found.items() if loss is not None}


def _table(
    table: int,
    records: Sequence[Record],
    protocol: Protocol,
    setting: Setting | None,
    datasets: Collection[str] | None,
    methods: Mapping[str, tuple[str, ...]],
    printed: paper.Cells,
) -> PaperTable:
    records = _of_setting(records, setting)
    there = {record.dataset for record in records}
    rows = paper.in_order(datasets or there | (set(paper.TABLE1) if there & set(paper.TABLE1) else set()))
    index, followed = _index(records), all(record.knows_followed for record in records)
    cells: dict[tuple[str, str, str], dict[str, Any]] = {}
    for dataset in rows:
        for metric, compared in methods.items():
            beside = printed.get(dataset, {}).get(metric, {})
            comparable = metric not in NOT_COMPARABLE.get(protocol.name, ())
            own = {k: _cell(k, _by_seed(index, protocol, (dataset, metric, k), followed)) for k in compared}
            means = [cell["mean"] for cell in own.values() if not math.isnan(cell["mean"])]
            for method, cell in own.items():
                cell["best"] = len(means) > 1 and cell["mean"] == min(means)
                problems = paper.footnotes(table, dataset, metric, method) if method in beside else []
                cell["notes"] = tuple(problem.name for problem in problems)
                cell |= _against(method, cell, beside.get(method, math.nan), comparable)
                cells[dataset, metric, method] = cell
    frame = pd.DataFrame(
        list(cells.values()), index=pd.MultiIndex.from_tuples(cells, names=["dataset", "metric", "method"])
    )
    printed_cells, run = (frame.index[frame[column].notna()] for column in ("printed", "mean"))
    notes = paper.notes_of(table, protocol.name, printed_cells, run)
    subsets = _subsets(records, rows)
    return PaperTable(table, protocol.name, records[0].setting, tuple(rows), methods, frame, subsets, notes, followed)


def _cell(method: str, seen: Seen) -> dict[str, Any]:
    """Return the columns of a cell that follow from its own runs."""
    values, verdicts = [loss for loss, _ in seen.values()], [record.verdict for _, record in seen.values()]
    known = bool(verdicts) and None not in verdicts and method in paper.MODES
    return {
        "mean": fmean(values) if values else math.nan,
        "error": stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan,
        "seeds": tuple(seen),
        "preferred": float(verdicts.count(True)) if known else math.nan,
        "mixed": len({record.sources for _, record in seen.values()}) > 1,
    }


def _against(method: str, cell: Mapping[str, Any], printed: float, comparable: bool) -> dict[str, Any]:
    """Return the columns of a cell that compare it with the printed one."""
    comparable = comparable and not math.isnan(printed)
    compared = comparable and not math.isnan(cell["mean"])
    error = 0.0 if math.isnan(cell["error"]) else cell["error"]
    return {
        "printed": printed,
        "comparable": comparable,
        "verdict": paper.verdict(method, cell["mean"], error, printed) if compared else "",
        "at_or_below": compared and round(cell["mean"], paper.PRINTED_DIGITS) <= printed,
    }


def _subsets(records: Iterable[Record], rows: Iterable[str]) -> dict[str, str]:
    """Return what part was available of each dataset that some model was not trained on in full."""
    parts: dict[str, dict[str, None]] = {}
    for record in records:
        parts.setdefault(record.dataset, {})[record.subset or "the whole"] = None
    held = {dataset: " and ".join(parts.get(dataset, ())) for dataset in rows}
    return {dataset: part for dataset, part in held.items() if part not in ("", "the whole")}
