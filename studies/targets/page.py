"""Write the measured part of docs/targets.md from results/targets: python -m studies.targets.page"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from studies.pages import DOCS, commands, count_range, in_place, markdown, versions, wrapped
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "targets.jsonl", DOCS / "targets.md"
RIVALS = FOLDER / "targets_rivals.jsonl"
PACKAGE = "metricgrad"
BASELINE, OURS = "cross-entropy", "sl-r"
FIRST_SEED = 200
CLASSES = ("macro_f1", "multiclass_balanced_error", "multiclass_mcc", "cohen_kappa", "mean_iou", "macro_auc")
LABELS = (
    "label_macro_f1",
    "label_micro_f1",
    "sample_f1",
    "label_ranking_average_precision",
    "hamming",
    "label_map",
)
METRICS = {
    "letter": ("macro_f1", "mean_iou"),
    "wine_white": ("quadratic_kappa", *CLASSES),
    "dry_bean": CLASSES,
    "yeast": LABELS,
}


def cells(records: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Compare both methods in every cell, over the seeds both have; a positive difference is better than the baseline.

    Columns: losses, difference, its standard error, the share of runs that kept the surrogate's model, and seeds.
    """
    rows = [
        {**record["run"], "loss": record["loss"], "kept": (record["verdict"] or {}).get("followed", False)}
        for record in records
        if record["run"]["metric"] in METRICS[record["run"]["dataset"]]
    ]
    both = pd.DataFrame(rows).pivot_table(
        index=["dataset", "metric", "seed"], columns="method", values=["loss", "kept"], sort=False
    )
    both = both.dropna()
    of_cells = both["loss"].assign(saved=both["loss"][BASELINE] - both["loss"][OURS], kept=both["kept"][OURS])
    grouped = of_cells.groupby(level=["dataset", "metric"], sort=False)
    found = grouped.mean().rename(columns={BASELINE: "baseline", OURS: "ours", "saved": "difference"})
    return found.assign(error=grouped["saved"].sem().fillna(0.0), seeds=grouped["saved"].count())


def part(path: Path = RESULTS) -> str:
    """Return a table of every cell, and what it shows."""
    records = list(Store(path))
    found, rows = cells(records), []
    better, worse = (found[sign * found["difference"] > found["error"] + 1e-12] for sign in (1, -1))
    for (dataset, name), row in found.iterrows():
        metric, difference = get_metric(name), f"{row['difference']:+.4f} ± {row['error']:.4f}"
        values = [f"{metric.value(row[method]):.4f}" for method in ("baseline", "ours")]
        difference = f"**{difference}**" if (dataset, name) in better.index else difference
        kept = f"{row['kept'] * row['seeds']:.0f} of {row['seeds']:.0f}"
        rows.append([_safe(dataset), metric.label, *values, difference, kept])
    where = ", ".join(f"{_safe(dataset)} {get_metric(name).label}" for dataset, name in worse.index)
    head = ["data", "metric", BASELINE, "metricgrad", "loss saved", "surrogate kept"]
    return wrapped(f"""
**metricgrad against cross-entropy, decisions of both tuned on validation rows: value on test rows**

{markdown(head, rows, left=2)}

- Better by more than one standard error in {len(better)} of {len(found)} cells (bold), worse by more than one in
{len(worse)}{": " if where else ""}{where}. Where the validation gain of the surrogate's model did not exceed one
standard error, cross-entropy's model was kept and the difference is zero.
- Where only one seed differs, the mean is off by exactly one standard error and is counted neither way.
- A linear model, the same splits and steps for both; seeds of a cell: {count_range(found["seeds"])}, from {FIRST_SEED}
on; `{records[-1]["command"]}`, which is now `python -m studies.targets.run`; {versions(records)}.""")


RIVAL_NAMES = {
    "offsets": "logistic regression, offsets of classes",
    "offsets and factors": "... CMA-ES over an offset and a factor of every class",
    "class weights": "... CMA-ES over the class weights of cross-entropy",
    "all weights": "... CMA-ES over all weights of the model",
    PACKAGE: "learned surrogate (`MetricClassifier`)",
}


def rivals(path: Path = RIVALS) -> str:
    """Return the learned surrogate beside searches for decision, class weights and model, by macro F1 on letter."""
    records = list(Store(path))
    rows = [{**record["run"], **record} for record in records]
    frame = pd.DataFrame(rows)
    losses = frame.pivot_table(index="seed", columns="method", values="loss")
    lines = []
    for method, name in RIVAL_NAMES.items():
        if method not in losses:
            continue
        saved = (losses[method] - losses[PACKAGE]).dropna()
        error = f" ± {saved.sem():.4f}" if len(saved) > 1 else ""
        gap = "" if method == PACKAGE else f"{saved.mean():+.4f}{error}"
        seconds = frame.loc[frame["method"] == method, "cpu"].mean()
        value = 1 - losses.loc[saved.index, method].mean()
        lines.append([name, f"{value:.4f}", gap, f"{len(saved)}", f"{seconds:.0f} s"])
    head = ["linear model of letter, 26 classes", "macro F1", "the surrogate is ahead by", "splits", "processor time"]
    return wrapped(f"""
**Is it the loss, or would a search do? Value on test rows**

{markdown(head, lines)}

Rivals start from multinomial logistic regression at its minimum, with the ridge penalty that is best on validation
rows; class weights are judged by the model that they lead to. All have their offsets tuned on validation rows. Splits
from seed {FIRST_SEED} on, those of the table above; the surrogate by the default recipe of today;
{commands(records)}, {versions(records)}.""")


def _safe(text: str) -> str:
    return text.replace("_", "\\_")


def page() -> str:
    """Return the page with its measured part as it is stored."""
    return in_place(in_place(PAGE.read_text("utf-8"), "several", part()), "rivals", rivals())


def main() -> None:
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
