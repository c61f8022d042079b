"""What is wanted of the default, and whether the stored runs meet it."""

from __future__ import annotations

from typing import NamedTuple

import pandas as pd

from studies.pages import markdown
from studies.strategies.cells import PACKAGE, against_hindsight, cells_of, clearly_worse, difference

MIN_POSITIVES = 40
"""Of training rows, where the test rows hold about ten: with fewer, a loss is mostly luck."""
LEAST_MEAN, LEAST_MEDIAN, MOST_WORSE, WORST = 5.0, 2.5, 3.0, -10.0
"""Per cent, the bars: saved in the mean and in the median, cells that may be worse, and the least that any saves."""


class Bar(NamedTuple):
    """What is wanted of the default, what was found, and whether that is enough; None if it cannot be judged."""

    text: str
    found: str
    met: bool | None

    @property
    def cells(self) -> list[str]:
        """The bar as a line of a table."""
        return [self.text, self.found, "not judged" if self.met is None else "met" if self.met else "**missed**"]


def below(saved: pd.Series) -> str:
    """Return how many cells lose more than they should, and what the worst one saves."""
    return f"{int((saved < WORST).sum())} of {len(saved)} below, the worst {saved.min():.0f} %"


def bars_of(frame: pd.DataFrame) -> list[Bar]:
    """Return the bars by the runs of one model, or of all."""
    cells = cells_of(frame, PACKAGE)
    mean, median, worst = cells["mean"].mean(), cells["mean"].median(), cells["mean"].min()
    enough = cells_of(frame[frame["positives"] >= MIN_POSITIVES], PACKAGE)["mean"]
    worse, judged = clearly_worse(cells)
    share = 100 * worse / max(judged, 1)
    best, behind, error = against_hindsight(frame)
    return [
        Bar(
            f"saves at least {LEAST_MEAN:g} % in the mean",
            f"{mean:.1f} ± {cells['mean'].sem():.1f} %",
            mean >= LEAST_MEAN,
        ),
        Bar(f"and {LEAST_MEDIAN:g} % in the median", f"{median:.1f} %", median >= LEAST_MEDIAN),
        Bar(
            f"worse by more than a standard error over seeds in at most {MOST_WORSE:g} % of cells",
            f"{worse} of {judged} ({share:.0f} %)",
            share <= MOST_WORSE if judged else None,
        ),
        Bar(f"no cell below {WORST:g} %", below(cells["mean"]), worst >= WORST),
        Bar("the same, tables with ten test positives or more", below(enough), enough.min() >= WORST),
        Bar(
            "level with the best single strategy in hindsight",
            f"{behind:+.1f} ± {error:.1f} against {best}",
            behind >= -error,
        ),
    ]


def bars_table(frame: pd.DataFrame) -> str:
    """Return which bars the package's rule meets, by model, and against direct search for linear models."""
    rows = [[str(name), *bar.cells] for name, own in frame.groupby("model", sort=False) for bar in bars_of(own)]
    linear = frame[frame["model"] == "linear"]
    if len(linear) and "direct" in linear:
        behind, error = difference(linear, "direct")
        found = f"{behind:+.1f} ± {error:.1f}"
        rows.append(["linear", *Bar("not behind direct search by more than an error", found, behind >= -error).cells])
    return markdown(["model", "bar", "found", ""], rows, left=4)
