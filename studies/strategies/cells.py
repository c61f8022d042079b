"""What strategies and rules of choice save: stored runs as a frame, cells of it, and differences between columns."""

from __future__ import annotations

from typing import Any

import pandas as pd
from packaging.version import Version

from metricgrad.evaluation.store import Store
from studies.pages import RESULTS as FOLDER

RESULTS = FOLDER / "strategies.jsonl"
RULE_RESULTS, BEFORE = FOLDER / "strategies_rules.jsonl", FOLDER / "strategies-0.1.jsonl"
METRICS = ("f1", "average_precision", "mcc", "partial_auc(0.05)", "precision_at(0.02)", "recall_at_precision(0.9)")
PAPER = ("a9a", "ccfraud", "codrna", "covtype", "ijcnn1", "porto", "skin", "susy")
MARGINS = (0.0, 0.5, 1.0)
DEVELOPMENT = (
    *("abalone_binarized", "auction", "climate_simulation_crashes", "graduation", "kc1", "letter_img", "mammography"),
    *("ozone_level", "page_blocks", "covtype", "ijcnn1", "skin"),
)
"""Tables on which strategies and rules were looked at while they were built."""
PACKAGE_MARGIN = 0.5
MARGIN = f"{PACKAGE_MARGIN:g} SE"
PACKAGE = f"choice, {MARGIN}"
"""The rule of the package."""
TIE = 0.2
"""Per cent of a loss below which two models are level."""
NETWORKS = ("small", "mlp")
"""Models whose metrics share their warm-ups."""
STRATEGIES = ("proper", "weighted", "hand-made", "direct", "sl-r")


def newest(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of the newest version of the package: runs of different code are not mixed."""
    found = [Version(record["run"].get("version") or record["made_by"]["metricgrad"]) for record in records]
    last = max(found)
    return [record for record, version in zip(records, found, strict=True) if version == last]


def frame_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a row for every run: shares of the loss of a single model that strategies and rules save, in per cent."""
    rows = []
    for record in newest(records):
        base, alone = record["single"], record["alone"]
        if base <= 0:
            continue
        losses = {
            **alone,
            **{f"choice, {margin}": alone[name] for margin, name in record["choice"].items()},
            **{f"without, {margin}": alone[name] for margin, name in record["choice_without_surrogate"].items()},
            **{name: record[name] for name in ("interpolated", "bag", "averaged")},
            **({"mixture": record["mixture"]} if "mixture" in record else {}),
        }
        saved = {name: 100 * (1 - loss / base) for name, loss in losses.items()}
        rows.append(
            {
                **record["run"],
                **saved,
                "single": base,
                "positives": record["positives"],
                "chosen": record["choice"][MARGIN],
                "cpu": record["cpu"],
            }
        )
    return pd.DataFrame(rows)


def older(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the runs by 0.1.0 of models that no later run is of."""
    before = frame_of(list(Store(BEFORE)))
    return before[~before["model"].isin(frame["model"].unique())]


def cells_of(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return `mean`, `sem` and `size` over the seeds of what every cell saves."""
    known = frame.dropna(subset=column)
    return known.groupby(["dataset", "metric", "model"], sort=False)[column].agg(["mean", "sem", "size"])


def clearly_worse(cells: pd.DataFrame) -> tuple[int, int]:
    """Return how many cells lose more than a standard error over their seeds, and how many have several seeds."""
    judged = cells[cells["size"] > 1]
    return int((judged["mean"] + judged["sem"] < 0).sum()), len(judged)


def difference(frame: pd.DataFrame, strategy: str) -> tuple[float, float]:
    """Return how much more the choice saves than one strategy, in the mean over cells, and the error of that.

    Where the strategy does not apply, the usual loss stands in for it.
    """
    behind = frame[PACKAGE] - frame[strategy].fillna(frame["proper"])
    cells = cells_of(frame.assign(behind=behind), "behind")["mean"]
    return float(cells.mean()), float(cells.sem())


def against_hindsight(frame: pd.DataFrame) -> tuple[str, float, float]:
    """Return the strategy that saves most by test rows, how much more the choice saves, and the error of that."""
    known = [name for name in STRATEGIES if name in frame]
    found = {name: difference(frame, name) for name in known}
    best = min(known, key=lambda name: found[name][0])
    return best, *found[best]


def surrogate_adds(frame: pd.DataFrame) -> tuple[float, float]:
    """Return how much more is saved with the surrogate among the strategies, in the mean over cells, and its error."""
    added = frame[PACKAGE] - frame[f"without, {MARGIN}"]
    cells = cells_of(frame.assign(added=added), "added")["mean"]
    return float(cells.mean()), float(cells.sem())
