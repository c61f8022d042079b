"""Write the measured part of docs/additive.md from results/additive: python -m studies.additive.page"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binom
from scipy.stats import t as student

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from studies.pages import DOCS, count_range, in_place, markdown, versions, wrapped
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "additive.jsonl", DOCS / "additive.md"
METRICS = ("f1", "average_precision")
LINEAR, ADDITIVE, PAIRS = "linear", "additive", "additive, 5 pairs"
FIRST_SEED = 300
CARDS = FOLDER / "scorecards.jsonl"
NOW, BEFORE = "where points change", "nearest knot"
"""How a number is divided into levels by the code of today, and by that before."""


def cells(records: Iterable[dict[str, Any]], metric: str, model: str = ADDITIVE) -> pd.DataFrame:
    """Compare a model with the linear one on every table over the seeds both have.

    Columns: losses of both, the loss saved and its standard error, and seeds.
    """
    rows = [{**record["run"], "loss": record["loss"]} for record in records if record["run"]["metric"] == metric]
    both = pd.DataFrame(rows).pivot_table(index=["dataset", "seed"], columns="model", values="loss")
    both = both[[LINEAR, model]].dropna()
    grouped = both.assign(saved=both[LINEAR] - both[model]).groupby(level="dataset")
    found = grouped.mean().rename(columns={LINEAR: "linear", model: "own"})
    return found.assign(error=grouped["saved"].sem().fillna(0.0), seeds=grouped["saved"].count())


def expected_worse(found: pd.DataFrame) -> tuple[float, int]:
    """Return how many tables would be worse by more than one standard error if nothing differed, and how many at most.

    The second number is exceeded by chance in one of twenty cases.
    """
    share = float(student.cdf(-1, int(found["seeds"].min()) - 1))
    return share * len(found), int(binom.ppf(0.95, len(found), share))


def part(path: Path = RESULTS) -> str:
    """Return a table of every data set, and what it shows."""
    records = list(Store(path))
    by_metric = {metric: cells(records, metric) for metric in METRICS}
    rows = []
    for dataset in by_metric[METRICS[0]].index:
        row = [dataset.replace("_", "\\_")]
        for metric, found in by_metric.items():
            one, judge = found.loc[dataset], get_metric(metric)
            saved = f"{one['saved']:+.3f} ± {one['error']:.3f}"
            row += [f"{judge.value(one['linear']):.3f}", f"{judge.value(one['own']):.3f}"]
            row.append(f"**{saved}**" if one["saved"] > one["error"] else saved)
        rows.append(row)
    labels = [get_metric(metric).label for metric in METRICS]
    head = ["table", *(f"{label}{what}" for label in labels for what in (", linear", ", additive", ": loss saved"))]
    said = "\n".join(_said(records, metric, found) for metric, found in by_metric.items())
    return wrapped(f"""
**Additive against linear, both by cross-entropy: value on test rows, and the loss saved (mean ± standard error)**

{markdown(head, rows)}

{said}
- Seeds of a table: {count_range(by_metric["f1"]["seeds"])}, from {FIRST_SEED} on; {records[-1]["command"]},
{versions(records)}.""")


def _said(records: list[dict[str, Any]], metric: str, found: pd.DataFrame) -> str:
    better, worse = (found[sign * found["saved"] > found["error"] + 1e-12] for sign in (1, -1))
    share = 100 * (1 - found["own"].sum() / found["linear"].sum())
    chance, most = expected_worse(found)
    pairs = cells(records, metric, PAIRS)
    more = 100 * (1 - pairs["own"].sum() / pairs["linear"].sum())
    names = ", ".join(f"{name} ({row['saved']:+.3f} ± {row['error']:.3f})" for name, row in worse.iterrows())
    names = names.replace("_", "\\_")
    return (
        f"- {get_metric(metric).label}: the additive model has {share:.1f} % less loss in the mean, with five pairs "
        f"{more:.1f} % less. It is better by more than one standard error on {len(better)} of {len(found)} tables and "
        f"worse on {len(worse)}{': ' if names else ''}{names}. If nothing differed, {chance:.1f} would be worse by "
        f"chance, at most {most} in 19 of 20 cases."
    )


def page() -> str:
    """Return the page with its measured part as it is stored."""
    return in_place(PAGE.read_text("utf-8"), "measured", part())


def main() -> None:
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
