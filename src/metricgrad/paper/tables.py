"""Tables as data: the paper's three, filled from stored records, with what the paper printed beside every cell."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType

from metricgrad.evaluation.records import Record, Setting, read_records
from metricgrad.evaluation.statistics import mean_ranks, wins
from metricgrad.evaluation.store import Store
from metricgrad.paper import printed as paper
from metricgrad.paper.protocols import Protocol, get_protocol
from metricgrad.paper.sources import SOURCES, PaperRow

Results = Store | str | Path | Sequence[Record]
Place = tuple[str, str, str]
"""Where a cell is: dataset, metric, method."""
UNLIKE: Mapping[str, tuple[str, ...]] = MappingProxyType({"honest": ("jaccard",)})
"""Losses by protocol for which the printed number measures another thing, so that it can be shown, not compared."""
SHARED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"paper": ("test-threshold", "floor", "accuracy", "mcc"), "honest": ("mcc",)}
)
"""Footnotes by protocol that concern our cells as well as the printed ones."""


@dataclass(frozen=True)
class Cell:
    """Mean test loss of one method over seeds; `mean` is None where nothing was run.

    Parameters
    ----------
    mean, error : float, optional
        Mean and its standard error; one seed has no error.
    seeds : tuple of int
        What the mean is over.
    printed : float, optional
        What the paper printed.
    comparable : bool
        Whether the printed number measures the same thing.
    best : bool
        Whether no method beside it loses less.
    notes : tuple of str
        Names of the footnotes that concern it.
    preferred : int, optional
        In how many of the seeds the model that followed the loss was the one kept, the other having followed
        cross-entropy; None where that was not stored.
    mixed : bool
        Whether its seeds were run on different files of the dataset, or from different surrogates.
    """

    mean: float | None = None
    error: float | None = None
    seeds: tuple[int, ...] = ()
    printed: float | None = None
    comparable: bool = False
    best: bool = False
    notes: tuple[str, ...] = ()
    preferred: int | None = None
    mixed: bool = False


@dataclass(frozen=True)
class Note:
    """A known problem of the paper that concerns a table; `ours` says whether our cells have it too."""

    name: str
    text: str
    ours: bool


@dataclass(frozen=True)
class Table:
    """Table 2 or 3 under one protocol and in one setting.

    Parameters
    ----------
    number : int
        Of the paper's table.
    protocol : str
        How models were scored.
    setting : Setting
        How they were trained.
    datasets : tuple of str
        The rows.
    methods : mapping
        For every metric, the methods that are compared.
    cells : mapping
        A cell for each dataset, metric and method.
    subsets : mapping
        What part was held of datasets that were not held whole.
    notes : tuple of Note
        Known problems of the paper that concern some cell.
    followed : bool
        Whether the losses are of the models that followed their loss, as in the paper, their checkpoints chosen on
        validation rows; else of the models that were kept, which may have followed cross-entropy: records of older
        versions have no others.
    """

    number: int
    protocol: str
    setting: Setting
    datasets: tuple[str, ...]
    methods: Mapping[str, tuple[str, ...]]
    cells: Mapping[Place, Cell] = field(repr=False, hash=False)
    subsets: Mapping[str, str] = field(repr=False, hash=False)
    notes: tuple[Note, ...] = field(repr=False)
    followed: bool = True

    @property
    def title(self) -> str:
        """What the table shows, under which protocol, in which setting."""
        return f"Table {self.number}, protocol {self.protocol}, {self.setting.title}"

    def preferred(self, metric: str | None, method: str, dataset: str | None = None) -> tuple[int, int]:
        """Return in how many runs the model that followed the loss was the one kept, and of how many that is known."""
        known = [
            cell
            for (row, loss, by), cell in self.cells.items()
            if by == method and cell.preferred is not None and metric in (None, loss) and dataset in (None, row)
        ]
        return sum(cell.preferred or 0 for cell in known), sum(len(cell.seeds) for cell in known)

    @property
    def mixed(self) -> tuple[Place, ...]:
        """Cells whose seeds were not run on the same data from the same surrogate."""
        return tuple(place for place, cell in self.cells.items() if cell.mixed)

    def rows(self, metric: str) -> dict[str, dict[str, float]]:
        """Return, for a metric, the losses by method of every dataset in which all methods were run."""
        methods, found = self.methods[metric], {}
        for dataset in self.datasets:
            means = {method: self.cells[dataset, metric, method].mean for method in methods}
            there = {method: mean for method, mean in means.items() if mean is not None}
            if len(there) == len(methods):
                found[dataset] = there
        return found

    @property
    def counted(self) -> dict[str, int]:
        """In how many datasets every method was run, by metric."""
        return {metric: len(self.rows(metric)) for metric in self.methods}

    @property
    def ranks(self) -> dict[str, dict[str, float]]:
        """Mean ranks by metric and method, over those datasets."""
        return {metric: mean_ranks(self.rows(metric).values()) for metric, n in self.counted.items() if n}

    @property
    def wins(self) -> dict[str, dict[str, float]]:
        """Cells won by metric and method, over those datasets."""
        return {metric: wins(self.rows(metric).values()) for metric, n in self.counted.items() if n}


@dataclass(frozen=True)
class DataRow:
    """A row of Table 1: a dataset as it was held when models were trained, and as the paper prints it."""

    dataset: str
    title: str
    rows: int | None
    positive_share: float | None
    subset: str | None
    printed: PaperRow | None
    notes: tuple[str, ...]


def table1(results: Results) -> list[DataRow]:
    """Return what is kept of the datasets of the records; one held in two ways has two rows.

    Parameters
    ----------
    results : Store, path or records
        Where the records are.
    """
    found: dict[DataRow, None] = {}
    for record in _records(results):
        parts = (record.kept.get("rows") or {}).values()
        share = record.kept.get("positive_share")
        source = SOURCES.get(record.dataset)
        row = DataRow(
            record.dataset,
            source.title if source else record.dataset,
            sum(parts) if parts else None,
            None if share is None else float(share),
            record.subset,
            paper.TABLE1.get(record.dataset),
            tuple(note.name for note in paper.footnotes(1, record.dataset)),
        )
        found[row] = None
    order = _ordered({row.dataset for row in found})
    return sorted(found, key=lambda row: order.index(row.dataset))


def table2(
    results: Results,
    protocol: Protocol | str = "honest",
    setting: Setting | None = None,
    datasets: Collection[str] | None = None,
) -> Table:
    """Return Table 2: the universal, the refined and the from-scratch surrogate under the seven losses.

    Parameters
    ----------
    results : Store, path or records
        Where the records are.
    protocol : Protocol or str
        How models are scored.
    setting : Setting, optional
        How they were trained; may be left out where the records have but one.
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
) -> Table:
    """Return Table 3: the refined surrogate against the hand-made losses of four metrics.

    Parameters
    ----------
    results, protocol, setting, datasets
        As for `table2`.
    """
    return _table(3, _records(results), get_protocol(protocol), setting, datasets, dict(paper.RIVALS), paper.TABLE3)


def losses(
    results: Results, protocol: Protocol | str, setting: Setting | None = None
) -> dict[tuple[str, str], dict[str, float]]:
    """Return the mean loss of every method in every dataset and metric there are records of: cells to rank over.

    Parameters
    ----------
    results, protocol, setting
        As for `table2`.
    """
    protocol, records = get_protocol(protocol), _of_setting(_records(results), setting)
    index, followed = _index(records), _knows_followed(records)
    asked = dict.fromkeys((r.dataset, m, r.method) for r in records for m in (r.metric, *protocol.instead))
    found: dict[tuple[str, str], dict[str, float]] = {}
    for dataset, metric, method in asked:
        seen = _by_seed(index, protocol, (dataset, metric, method), followed)
        if seen:
            found.setdefault((dataset, metric), {})[method] = fmean(loss for loss, _ in seen.values())
    return found


# ---- from records to cells -----------------------------------------------------------------------------------------

Index = Mapping[tuple[str, str, str, int], Mapping[int, Record]]
"""Records by seed, by dataset, trained metric, method and replicate."""


def _records(results: Results) -> Sequence[Record]:
    return read_records(results) if isinstance(results, (Store, str, Path)) else results


def _of_setting(records: Sequence[Record], setting: Setting | None) -> list[Record]:
    """Return the records of one setting, so that models trained differently never meet in a table."""
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


def _knows_followed(records: Iterable[Record]) -> bool:
    """Whether every record has the losses of the model that followed the loss."""
    return all(record.knows_followed for record in records)


Seen = Mapping[int, tuple[float, Record]]
"""Losses of a cell by seed, each with its record."""


def _by_seed(index: Index, protocol: Protocol, place: Place, followed: bool) -> Seen:
    """Return the losses of a cell by seed; a metric measured as another one reads the second run of that one."""
    dataset, metric, method = place
    replaced = metric in protocol.instead
    trained = protocol.instead[metric].name if replaced else metric
    records = index.get((dataset, trained, method, int(replaced)), {})
    found = {seed: (r.loss(protocol.name, trained, followed), r) for seed, r in sorted(records.items())}
    return {seed: (loss, record) for seed, (loss, record) in found.items() if loss is not None}


def _ordered(datasets: Collection[str]) -> list[str]:
    """Put the paper's datasets first, in its order."""
    return [*(d for d in paper.TABLE1 if d in datasets), *sorted(d for d in datasets if d not in paper.TABLE1)]


def _table(
    number: int,
    records: Sequence[Record],
    protocol: Protocol,
    setting: Setting | None,
    datasets: Collection[str] | None,
    methods: Mapping[str, tuple[str, ...]],
    printed: paper.Cells,
) -> Table:
    records = _of_setting(records, setting)
    there = {record.dataset for record in records}
    rows = _ordered(datasets or there | (set(paper.TABLE1) if there & set(paper.TABLE1) else set()))
    index, followed = _index(records), _knows_followed(records)
    cells: dict[Place, Cell] = {}
    for dataset in rows:
        for metric, compared in methods.items():
            seen = {method: _by_seed(index, protocol, (dataset, metric, method), followed) for method in compared}
            beside = printed.get(dataset, {}).get(metric, {})
            comparable = metric not in UNLIKE.get(protocol.name, ())
            for method, cell in _compared(seen).items():
                notes = tuple(note.name for note in paper.footnotes(number, dataset, metric, method))
                cells[dataset, metric, method] = replace(
                    cell,
                    printed=beside.get(method),
                    comparable=comparable and method in beside,
                    notes=notes if method in beside else (),
                )
    return Table(
        number,
        protocol.name,
        records[0].setting,
        tuple(rows),
        MappingProxyType(dict(methods)),
        MappingProxyType(cells),
        MappingProxyType(_subsets(records, rows)),
        _notes(number, cells, protocol),
        followed,
    )


def _compared(seen: Mapping[str, Seen]) -> dict[str, Cell]:
    """Return the cells of methods beside each other, from their losses by seed; the best of several is marked."""
    means = {method: fmean(loss for loss, _ in by_seed.values()) for method, by_seed in seen.items() if by_seed}
    least = min(means.values()) if len(means) > 1 else None
    cells = {}
    for method, by_seed in seen.items():
        mean, values = means.get(method), [loss for loss, _ in by_seed.values()]
        verdicts = [record.verdict for _, record in by_seed.values()]
        cells[method] = Cell(
            mean,
            stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None,
            tuple(by_seed),
            best=mean is not None and mean == least,
            preferred=verdicts.count(True) if verdicts and None not in verdicts and method in paper.MODES else None,
            mixed=len({record.sources for _, record in by_seed.values()}) > 1,
        )
    return cells


def _subsets(records: Iterable[Record], rows: Iterable[str]) -> dict[str, str]:
    """Return what part was held of each dataset that some model was not trained on the whole of."""
    parts: dict[str, dict[str, None]] = {}
    for record in records:
        parts.setdefault(record.dataset, {})[record.subset or "the whole"] = None
    held = {dataset: " and ".join(parts.get(dataset, ())) for dataset in rows}
    return {dataset: part for dataset, part in held.items() if part not in ("", "the whole")}


def _notes(number: int, cells: Mapping[Place, Cell], protocol: Protocol) -> tuple[Note, ...]:
    """Return the known problems that concern a printed cell, or one of ours that is scored as the paper's were."""
    shared = SHARED.get(protocol.name, ())
    return tuple(
        Note(note.name, note.text, note.name in shared)
        for note in paper.FOOTNOTES
        if any(
            (cell.printed is not None or (cell.mean is not None and note.name in shared))
            and note.concerns(number, *place)
            for place, cell in cells.items()
        )
    )
