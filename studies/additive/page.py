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
from metricgrad.training.learned_columns import PIECE_PENALTY
from studies.pages import DOCS, commands, count_range, in_place, listed, markdown, versions, wrapped
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "additive.jsonl", DOCS / "additive.md"
METRICS = ("f1", "average_precision")
LINEAR, ADDITIVE, PAIRS = "linear", "additive", "additive, 5 pairs"
FIRST_SEED = 300
CARDS, PENALTY = FOLDER / "scorecards.jsonl", FOLDER / "additive_penalty.jsonl"
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
- Seeds of a table: {count_range(by_metric["f1"]["seeds"])}, from {FIRST_SEED} on, all by `MetricClassifier`;
{commands(records)}, {versions(records)}.""")


def penalty_part(records: list[dict[str, Any]], used: float) -> str:
    """Return how the penalty of bends was chosen."""
    found = penalties(records)
    rows = [
        [f"{penalty:g}{' (used)' if penalty == used else ''}", f"{row['mean']:.4f}", f"{row['median']:.3f}"]
        for penalty, row in found.iterrows()
    ]
    seeds = sorted({record["run"]["seed"] for record in records})
    return wrapped(f"""
The weight of a rise over a bin has more ridge than that of a line. How much was chosen among five values by
cross-entropy on the validation rows of the same tables, with splits of their own (seeds {listed(map(str, seeds))}),
whose test rows were not looked at: the one with the least mean; `python -m studies.additive.penalty`,
{versions(records)}:

{markdown(["ridge, relative to a line's", "mean cross-entropy", "median ratio to the best"], rows)}""")


def penalties(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return for each penalty the mean cross-entropy of validation rows, and the median ratio to the best penalty."""
    frame = pd.DataFrame([{**record["run"], "value": record["cross_entropy"]} for record in records])
    values = frame.pivot_table(index=["dataset", "seed"], columns="penalty", values="value").dropna()
    return pd.DataFrame({"mean": values.mean(), "median": values.div(values.min(axis=1), axis=0).median()})


def card_part(records: list[dict[str, Any]]) -> str:
    """Return what rounding to points costs on test rows, by the levels of now and of before."""
    frame = pd.DataFrame(
        {**record["run"], "points": int(points), "model": record["model"], **record[points]}
        for record in records
        for points in record
        if points.isdigit()
    )
    frame["cost"] = frame["loss"] - frame["model"]
    rows = []
    for (levels, points), own in frame.groupby(["levels", "points"]):
        tables = own.groupby("dataset")["cost"].mean()
        worst = f"{tables.idxmax()} ({tables.max():+.3f})".replace("_", "\\_")
        shown = [f"{own['cost'].mean():+.4f}", f"{tables.median():+.4f}", worst, str(int((tables > 0.02).sum()))]
        rows.append([levels, str(points), *shown, f"{own['size'].median():.0f}"])
    head = ["levels", "points", "F1 lost, mean", "median", "most", "tables that lose over 0.02", "levels of a card"]
    wilt = frame[frame["dataset"] == "wilt"].groupby(["levels", "points"])[["loss", "model"]].mean()
    (old, new), model = (1 - wilt.loc[[(name, 20)], "loss"].item() for name in (BEFORE, NOW)), 1 - wilt["model"].mean()
    return wrapped(f"""
**What rounding costs, on test rows**

{markdown(head, rows, left=1)}

- A card was made by the rows that the model was fitted to, with {listed(map(str, sorted(frame["points"].unique())))}
points a level at most; {frame["dataset"].nunique()} tables, seed {listed(map(str, sorted(frame["seed"].unique())))};
`python -m studies.additive.scorecards`, {versions(records)}.
- *{BEFORE}*: how it was, with the points of the nearest knot for a number, and a scale at which the widest contribution
has all points. On wilt, F1 {model:.2f} became {old:.2f} with 20 points. Two things cost so much: one contribution was
far wider than the others, so that these had one or two points, and a shape that is steep between two knots was a step.
- *{NOW}*: numbers are cut where the contribution passes from one point to the next, and the scale is chosen among
larger ones too, at which rare extremes are cut off. On wilt {new:.2f} remains. This way was found by looks at test rows
of five of the tables (wilt, page blocks, letter, mammography, yeast) with other seeds, 700 and 701.""")


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
    """Return the page with its measured parts as they are stored."""
    text = in_place(PAGE.read_text("utf-8"), "measured", part())
    text = in_place(text, "penalty", penalty_part(list(Store(PENALTY)), PIECE_PENALTY))
    return in_place(text, "cards", card_part(list(Store(CARDS))))


def main() -> None:
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
