"""Write docs/solver.md, linear models solved against those of the recipe of 0.1: python -m studies.solver.page

The runs are made by: METRICGRAD_DATA=... python -m studies.win.run --models linear --methods sl-r,cross-entropy
--recipe linear --seeds 3 --results results/solver
and, for the control: METRICGRAD_DATA=... python -m studies.solver.control
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from studies.pages import DOCS, RESULTS, markdown, versions, wrapped
from studies.solver.control import CONTROLS, METRICS, MODELS
from studies.solver.control import RESULTS as CONTROL

NEW, OLD, PAGE = RESULTS / "solver" / "runs.jsonl", RESULTS / "win" / "runs.jsonl", DOCS / "solver.md"
CELL = ["dataset", "metric", "seed", "method"]
FEW_ROWS = "precision_at(0.02)"
"""The metric that depends on so few rows that a ratio of losses says little."""


def losses(store: Store, recipe: str) -> pd.DataFrame:
    """Return the test losses of linear models by a recipe, a row a run."""
    rows = [
        [*(record["run"][name] for name in CELL), record["test"]["honest"][record["run"]["metric"]]]
        for record in store
        if (record["run"]["model"], record["run"]["recipe"]) == ("linear", recipe)
    ]
    return pd.DataFrame(rows, columns=[*CELL, "loss"])


def same_cells() -> pd.DataFrame:
    """Return runs of the same cell by both recipes, with the share of the old loss that the new one saves."""
    both = losses(Store(NEW), "linear").merge(losses(Store(OLD), "default-0.1"), on=CELL, suffixes=("", "_before"))
    both["saved"] = 100 * (both["loss_before"] - both["loss"]) / both["loss_before"].where(both["loss_before"] > 0)
    return both


def table(cells: pd.DataFrame) -> str:
    """Return the loss saved by dataset and method, without the metric of few rows."""
    rows = []
    for (dataset, method), own in cells[cells["metric"] != FEW_ROWS].groupby(["dataset", "method"]):
        saved = own["saved"]
        better, worse = int((saved > 0.5).sum()), int((saved < -0.5).sum())
        rows.append([dataset, method, f"{saved.mean():+.1f} %", f"{saved.median():+.1f} %", f"{better} : {worse}"])
    return markdown(["dataset", "method", "mean", "median", "better : worse"], rows, left=2)


def controls(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a row a run: its test losses and verdicts with either control; only datasets that have all their runs."""
    frame = pd.DataFrame(
        {**record["run"], **{(name, field): value for name in CONTROLS for field, value in record[name].items()}}
        for record in records
    )
    cells = frame.groupby(["dataset", "seed"])["metric"].transform("count")
    return frame[cells == len(MODELS) * len(METRICS)]


def control_table(found: pd.DataFrame) -> str:
    """Return the mean loss of the model kept and of the control, by either choice, and how they differ."""
    rows = []
    for (model, metric), own in found.groupby(["model", "metric"]):
        for what, field in (("kept", "loss"), ("control", "control")):
            first, second = (own[name, field] for name in CONTROLS)
            saved = second - first
            tables = saved.groupby(own["dataset"]).mean()
            rows.append(
                [
                    model,
                    f"{get_metric(metric).label}, {what}",
                    *(f"{losses.mean():.4f}" for losses in (first, second)),
                    f"{saved.mean():+.4f} ± {tables.sem():.4f}",
                    f"{int((saved > 1e-9).sum())} : {int((saved < -1e-9).sum())}",
                    " / ".join(f"{100 * own[name, 'followed'].mean():.0f} %" for name in CONTROLS),
                ]
            )
    head = ["model", "loss on test rows", *CONTROLS, "saved by the first", "better : worse", "surrogate kept"]
    return markdown(head, rows, left=2)


def control_part() -> str:
    """Return what was measured of the control."""
    records = list(Store(CONTROL))
    found = controls(records)
    one, other = (found[name, "loss"].mean() for name in CONTROLS)
    weights = [found[name, "largest_weight"].max() for name in CONTROLS]
    splits = len(found.groupby(["dataset", "seed"]))
    calls = "one look at validation rows instead of one for every penalty"
    return wrapped(f"""
## Which model is the control?

The start has the ridge penalty with the least cross-entropy on validation rows. The control that competes with the
surrogate's model can be that model, or the best of all penalties by the metric on validation rows, as it was before.
Both were tried in the same runs, {len(found)} in all: {found["dataset"].nunique()} tables (thirty small ones, and 6,000
rows of each of the paper's), {splits} splits by seeds from {found["seed"].min()} on, thresholds chosen on validation
rows, test rows used once. Standard errors are over tables. Additive models still had a penalty of bends of 10.

{control_table(found)}

Over all runs the loss is {one:.4f} with the control by cross-entropy and {other:.4f} by the metric; the largest weight
of a control is {weights[0]:.0f} and {weights[1]:.0f}. Neither is better by more than noise, and F1 is better by the
metric in more single runs. The first is what the package does, because it takes {calls}.
`python -m studies.solver.control`, {versions(records)}.""")


def page() -> str:
    """Return the page."""
    cells = same_cells()
    ours = cells[cells["method"] == "sl-r"]
    most, few = ours[ours["metric"] != FEW_ROWS], ours[ours["metric"] == FEW_ROWS]
    made = next(iter(Store(NEW)))["made_by"]
    return f"""# Are solved linear models as good?

Written by `python -m studies.solver.page` from `results/solver` and `results/win` (metricgrad {made["metricgrad"]},
{made["date"]}). Do not edit by hand.

The recipe `linear` solves for cross-entropy and follows the surrogate on all rows; that of version 0.1 took 6,000 steps
of Adam at a rate of 0.01, beside a control. The table compares both on the same cells: dataset, metric, split and seed
({len(most)} cells of SL-R, {ours["seed"].nunique()} seeds). It shows the share of the old test loss that is saved, and
how many cells are better or worse by more than 0.5 %.

{table(cells)}

Over all cells SL-R saves {most["saved"].mean():+.1f} % of the old loss in the mean and {most["saved"].median():+.1f} %
in the median. `{FEW_ROWS}` is left out, because it depends on a few rows and a ratio of such losses says little: its
loss is {few["loss"].mean():.4f} in the mean, against {few["loss_before"].mean():.4f} before.

{control_part()}"""


def main() -> None:
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
