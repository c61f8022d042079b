"""What is stored of the reproduction, and the tables it gives."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from metricgrad.evaluation.records import Record, Setting, read_records, settings
from metricgrad.evaluation.statistics import Ranking, rank_methods
from metricgrad.paper import printed as paper
from metricgrad.paper.tables import PaperTable, losses, table2, table3
from studies.pages import RESULTS as FOLDER

RESULTS = FOLDER / "reproduction"
PROTOCOLS = ("paper", "honest")
COMPARED = ("a9a", "codrna", "covtype", "ijcnn1", "skin")
"""The datasets that are held whole, or nearly, and have common positives."""
STANDARD = Setting("mlp", "default")
"""The standard budget by the recipe of today."""
PUBLISHED = Setting("mlp", "paper")
"""Our first reading of the paper's own recipe."""


@dataclass(frozen=True)
class Evidence:
    """What is stored, and the tables of the setting that is shown: Tables 2 and 3 of each protocol."""

    records: list[Record]
    settings: list[Setting]

    @cached_property
    def own(self) -> list[Record]:
        """The runs of the tables."""
        return [record for record in self.records if record.setting == STANDARD]

    @cached_property
    def tables(self) -> dict[str, tuple[PaperTable, PaperTable]]:
        """Tables 2 and 3 by protocol."""
        return {p: (table2(self.records, p, STANDARD), table3(self.records, p, STANDARD)) for p in PROTOCOLS}

    @cached_property
    def rankings(self) -> dict[str, Ranking | None]:
        """The order of the modes by protocol."""
        return {p: rank_methods(losses(self.records, p, STANDARD).values(), paper.MODES) for p in PROTOCOLS}

    def at_or_below(self, table: int, method: str) -> str:
        """Return in how many cells of the datasets compared a method is at or below its printed number."""
        cells = [
            cell
            for cell in self.tables["paper"][table].compared.itertuples()
            if cell.method == method and cell.dataset in COMPARED
        ]
        return f"{sum(cell.at_or_below for cell in cells)} of {len(cells)}"


def evidence() -> Evidence:
    """Read what is stored."""
    return Evidence(read_records(RESULTS), settings(RESULTS))
