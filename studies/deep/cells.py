"""What the study stored, as frames: values on test rows by task, metric, loss and start, and differences of losses."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from metricgrad.evaluation.store import Store
from studies.pages import RESULTS as FOLDER

RESULTS = FOLDER / "deep.jsonl"
FIRST_PILOT = 100
"""Seeds from here on were for trying things out, and are left out."""
CROSS_ENTROPY = "cross-entropy"
LOSSES = {
    CROSS_ENTROPY: "cross-entropy",
    "focal": "focal",
    "libauc-auc": "LibAUC, AUC margin",
    "libauc-ap": "LibAUC, AP (SOAP)",
    "smooth-ap": "Smooth-AP",
    "soft-dice": "soft Dice",
    "lovasz-hinge": "Lovasz hinge",
    "surrogate-ap": "surrogate of AP",
    "surrogate-recall": "surrogate of recall at precision",
    "surrogate-top": "surrogate of P@100",
    "surrogate-iou": "surrogate of IoU",
    "surrogate-boundary": "surrogate of boundary F1",
    "iou-best-cut": "surrogate of IoU, best threshold of each picture",
    "iou-noise": "surrogate of IoU, noise on scores",
    "iou-anchor": "surrogate of IoU + 0.5 cross-entropy",
}
REMEDIES = ("iou-best-cut", "iou-noise", "iou-anchor")


class Cell(NamedTuple):
    """A task and a metric, how they are called, and the surrogate of that metric."""

    task: str
    metric: str
    title: str
    own: str


CELLS = (
    Cell("fashion", "average_precision", "Fashion-MNIST, AP", "surrogate-ap"),
    Cell("fashion", "recall_at_precision(0.9)", "Fashion-MNIST, recall at precision 0.9", "surrogate-recall"),
    Cell("fashion", "precision_at(0.01)", "Fashion-MNIST, P@100", "surrogate-top"),
    Cell("membranes", "iou", "membranes, IoU", "surrogate-iou"),
    Cell("membranes", "boundary", "membranes, boundary F1", "surrogate-boundary"),
    Cell("spam", "recall_at_precision(0.99)", "spam, recall at precision 0.99", "surrogate-recall"),
    Cell("spam", "average_precision", "spam, AP", "surrogate-ap"),
)


def records_of(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the stored jobs of the seeds that count."""
    return [record for record in Store(path) if record["run"]["seed"] < FIRST_PILOT]


def frame_of(records: Iterable[dict[str, Any]]) -> pd.DataFrame:
    """Return a row for every job and metric: what was chosen on validation rows, and its value on test rows."""
    rows = [
        {**record["run"], "metric": metric, **chosen}
        for record in records
        for metric, chosen in record["chosen"].items()
    ]
    return pd.DataFrame(rows)


def by_start(frame: pd.DataFrame, cell: Cell, loss: str) -> pd.DataFrame:
    """Return the test values of a loss, a row for each seed: from each start, and from that which validation chose.

    The way to the late start, which is cross-entropy's alone, is a start of its own: `none`.
    """
    own = frame[(frame["task"] == cell.task) & (frame["metric"] == cell.metric) & (frame["loss"] == loss)]
    best = own.loc[own.groupby("seed")["validation"].idxmax()].set_index("seed")["test"]
    return own.pivot(index="seed", columns="start", values="test").assign(chosen=best)


class Difference(NamedTuple):
    """How far one loss is ahead of another: mean and standard error over seeds, seeds ahead, seeds."""

    mean: float
    error: float
    ahead: int
    seeds: int

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.error:.3f}"

    @property
    def word(self) -> str:
        """Whether it is ahead, behind, or level: within a standard error."""
        return "ahead" if self.mean > self.error else "behind" if self.mean < -self.error else "level"


def difference(ours: pd.Series, others: pd.Series) -> Difference:
    """Return how far some values are ahead of others of the same seeds."""
    paired = (ours - others).dropna()
    error = float(paired.sem()) if len(paired) > 1 else float("nan")
    return Difference(float(paired.mean()), error, int((paired > 0).sum()), len(paired))


def losses_of(frame: pd.DataFrame, cell: Cell, remedies: bool = False) -> list[str]:
    """Return the losses of a task in the order of the tables; remedies only where they are asked for."""
    there = set(frame[frame["task"] == cell.task]["loss"])
    return [loss for loss in LOSSES if loss in there and (remedies or loss not in REMEDIES)]


def best_rival(frame: pd.DataFrame, cell: Cell) -> str:
    """Return the hand-made loss with the highest mean on test rows, in hindsight."""
    rivals = [loss for loss in losses_of(frame, cell) if not loss.startswith("surrogate")]
    return max(rivals, key=lambda loss: by_start(frame, cell, loss)["chosen"].mean())


def fidelity_of(records: Iterable[dict[str, Any]], cell: Cell, loss: str) -> pd.DataFrame:
    """Return fidelity of the surrogate in all jobs of a loss: at the start, and at the end of the rate chosen."""
    rows = []
    for record in records:
        run = record["run"]
        if (run["task"], run["loss"]) == (cell.task, loss) and run["start"] != "none":
            found, rate = record["fidelity"], record["chosen"][cell.metric]["rate"]
            rows += [
                {"when": when, **found[key]} for when, key in (("start", "start"), ("end", rate)) if found.get(key)
            ]
    return pd.DataFrame(rows).astype({"gap": float, "spearman": float, "cosine": float}) if rows else pd.DataFrame()


def reach_of(records: Iterable[dict[str, Any]], start: str) -> pd.DataFrame:
    """Return where the gradients of the losses of membranes lie at a start: a row for each loss, means over seeds."""
    rows = [
        {"loss": record["run"]["loss"], **record["fidelity"]["reach"]}
        for record in records
        if record["run"]["task"] == "membranes" and record["run"]["start"] == start
    ]
    found = pd.DataFrame(rows).groupby("loss").mean()
    return found.loc[[loss for loss in LOSSES if loss in found.index]]


def curve_of(records: Iterable[dict[str, Any]], cell: Cell, loss: str, start: str) -> np.ndarray:
    """Return the mean over seeds of the validation values at every look, of the rate that was chosen."""
    found = [
        record["curves"][record["chosen"][cell.metric]["rate"]][cell.metric]
        for record in records
        if (record["run"]["task"], record["run"]["loss"], record["run"]["start"]) == (cell.task, loss, start)
    ]
    return np.mean(found, 0)
