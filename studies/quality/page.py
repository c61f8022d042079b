"""Write docs/quality.md from results/quality: python -m studies.quality.page"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from metricgrad import get_metric
from metricgrad.evaluation.records import FILE, read_records
from metricgrad.evaluation.store import Store
from studies.pages import DOCS, markdown
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "quality", DOCS / "quality.md"
METHODS = {"cross-entropy": 1.0, "sl-r": 1.05, "sl-s": 1.25}
"""Methods, and how many times the loss of cross-entropy theirs may be."""
SEEDS = (3, 4, 5)


def cells(folder: Path) -> Iterator[tuple[str, str, str, pd.DataFrame]]:
    """Yield model, dataset, metric and the test losses of the seeds that all methods have finished."""
    found = [
        (r.setting.model, r.dataset, r.metric, r.method, r.seed, r.loss("honest", r.metric))
        for r in read_records(folder)
    ]
    frame = pd.DataFrame(found, columns=["model", "dataset", "metric", "method", "seed", "loss"])
    for (model, name, metric), cell in frame.groupby(["model", "dataset", "metric"]):
        losses = cell.pivot_table(index="seed", columns="method", values="loss").dropna()
        if set(METHODS) <= set(losses) and len(losses):
            yield model, name, metric, losses


def page(folder: Path = RESULTS) -> str:
    """Return the page."""
    made, rows = next(iter(Store(folder / FILE)))["made_by"], []
    for model, name, metric, losses in cells(folder):
        shown = [f"{losses[m].mean():.4f} ± {losses[m].sem():.4f}" for m in METHODS]
        ratios = [f"{losses[m].mean() / losses['cross-entropy'].mean():.3f}" for m in METHODS][1:]
        rows.append([model, name, get_metric(metric).label, str(len(losses)), *shown, *ratios])
    head = ["model", "data", "metric", "seeds", "cross-entropy", "SL-R", "SL-S", "SL-R / CE", "SL-S / CE"]
    return f"""# Does it learn?

Written by `python -m studies.quality.page` from `results/quality`, where every run has its command, seed, commit, date
and history (metricgrad {made["metricgrad"]}, torch {made["torch"]}, {made["date"]}). Do not edit by hand.

Test *losses* (1 - F1, 1 - AP, 1 - AUC, (1 - MCC) / 2): lower is better. Mean and standard error over the seeds
{", ".join(map(str, SEEDS))}, none of which was used while the recipe was developed. The baseline is cross-entropy with
the same network, the same 3,000 + 3,000 steps on the same sets of 400 rows, the same restart of the schedule, the same
choice of checkpoint on validation rows, and an exact threshold. Features are standardised on the training rows, and no
checkpoint or threshold is chosen on test rows.

`mlp` is the paper's network; `linear` is trained with a learning rate of 0.01, for every method.

{markdown(head, rows, left=3)}

`codrna` is a subset (68 % of the rows).
"""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
