"""Our tables against the printed ones: where we lose less, as much, or more, and whether noise could explain it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from metricgrad.paper.tables import Table

Verdict = Literal["better", "within noise", "worse"]
NOISE: Mapping[str, float] = MappingProxyType({"sl-u": 0.058, "sl-r": 0.0010, "sl-s": 0.0009})
"""How far two printed runs of one thing lie apart: the mean of |MCR - JAC| over the nine rows of Table 2, by mode.

The authors' Jaccard is accuracy, so the columns MCR and JAC are two runs of the same loss; nothing else in the paper
tells its noise. It is taken for all losses."""
OTHER_NOISE = 0.0010
"""Of the printed hand-made losses, which were run once: that of SL-R, for want of any other."""
ERRORS = 2
"""How many of our standard errors count as noise."""
DIGITS = 4
"""Digits of the printed tables."""


@dataclass(frozen=True)
class Compared:
    """One of our cells beside the printed one."""

    dataset: str
    metric: str
    method: str
    ours: float
    error: float | None
    printed: float
    verdict: Verdict

    @property
    def at_or_below(self) -> bool:
        """Whether ours, with as many digits as were printed, is at or below the printed one."""
        return round(self.ours, DIGITS) <= self.printed


@dataclass(frozen=True)
class Tally:
    """How many cells were compared, how many of ours are at or below, and how many got each verdict."""

    cells: int
    at_or_below: int
    better: int
    within: int
    worse: int


@dataclass(frozen=True)
class Comparison:
    """Every cell of a table that can be compared with a printed one."""

    title: str
    protocol: str
    cells: tuple[Compared, ...]

    @property
    def overall(self) -> Tally:
        """The tally of all cells."""
        return _tally(self.cells)

    def by(self, what: Literal["method", "dataset", "metric"]) -> dict[str, Tally]:
        """Return a tally for each method, dataset or metric."""
        keys = dict.fromkeys(getattr(cell, what) for cell in self.cells)
        return {key: _tally(cell for cell in self.cells if getattr(cell, what) == key) for key in keys}


def compare(table: Table) -> Comparison:
    """Compare a table with the printed one, cell by cell.

    A difference is within noise if it is at most two standard errors of ours plus the noise of the printed tables;
    one seed has no standard error, and the noise of the printed tables stands alone. Cells in which the printed
    number measures another thing are left out.

    Parameters
    ----------
    table : Table
        Table 2 or 3.
    """
    cells = tuple(
        Compared(*place, cell.mean, cell.error, cell.printed, verdict(place[2], cell.mean, cell.error, cell.printed))
        for place, cell in table.cells.items()
        if cell.comparable and cell.mean is not None and cell.printed is not None
    )
    return Comparison(table.title, table.protocol, cells)


def verdict(method: str, ours: float, error: float | None, printed: float) -> Verdict:
    """Say whether a loss is better or worse than a printed one by more than noise.

    >>> verdict("sl-r", 0.1480, 0.0005, 0.1502), verdict("sl-u", 0.1480, 0.0005, 0.1502)
    ('better', 'within noise')
    """
    noise = ERRORS * (error or 0.0) + NOISE.get(method, OTHER_NOISE)
    if abs(ours - printed) <= noise:
        return "within noise"
    return "better" if ours < printed else "worse"


def _tally(cells: Iterable[Compared]) -> Tally:
    cells = list(cells)
    verdicts = [cell.verdict for cell in cells]
    return Tally(
        len(cells),
        sum(cell.at_or_below for cell in cells),
        verdicts.count("better"),
        verdicts.count("within noise"),
        verdicts.count("worse"),
    )
