"""How much of a baseline's loss SL-R saves, cell by cell (dataset, metric, model), and how certain that is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import ttest_1samp, wilcoxon

from metricgrad.evaluation.records import Record, read_records
from metricgrad.evaluation.statistics import holm
from metricgrad.training.networks import TREES as BOOSTED

CELL = ["dataset", "metric", "model"]
OURS, BASELINE, PUBLISHED = "sl-r", "cross-entropy", "sl-published"
MODELS = ("linear", "small", "mlp")
MAX_ROWS = 60_000
"""Rows of a dataset that a run uses at most."""


def losses(folder: Path, max_rows: int = MAX_ROWS) -> pd.DataFrame:
    """Return the test losses of runs on so many rows: by dataset, metric, model and seed, a column for each method."""
    rows = [
        (
            r.dataset,
            r.metric,
            r.setting.model,
            r.seed,
            PUBLISHED if r.setting.recipe == "paper" else r.method,
            r.loss("honest", r.metric),
        )
        for r in _of_one_recipe(read_records(folder))
        if r.setting.rows == max_rows
    ]
    frame = pd.DataFrame(rows, columns=[*CELL, "seed", "method", "loss"])
    is_boosted = frame["method"] == BOOSTED  # one model, shown beside each of ours
    frame = pd.concat([frame[~is_boosted], *(frame[is_boosted].assign(model=model) for model in MODELS)])
    return frame.pivot_table(index=[*CELL, "seed"], columns="method", values="loss")


def _of_one_recipe(records: list[Record]) -> list[Record]:
    """Return the records unchanged, or raise if surrogates were trained by two contents of one recipe.

    Runs of hand-made losses may differ in fields that concern surrogates only.
    """
    contents: dict[tuple[str, str], set[str]] = {}
    for record in records:
        if record.method.startswith("sl-"):
            place = record.setting.model, record.setting.recipe
            contents.setdefault(place, set()).add(str(record.setting.changes))
    mixed = [" ".join(place) for place, found in contents.items() if len(found) > 1]
    if mixed:
        raise ValueError(f"results: expected surrogates trained by one content of a recipe, got several of {mixed}")
    return records


def share_saved(ours: pd.Series, theirs: pd.Series) -> pd.Series:
    """Return the share of their loss that ours saves, at least -1, which is also that of any loss where theirs is 0."""
    return ((theirs - ours) / theirs.where(theirs > 0)).fillna(-(ours > 0).astype(float)).clip(lower=-1)


def gains(frame: pd.DataFrame, baseline: str = BASELINE) -> pd.DataFrame:
    """Compare SL-R with a baseline in every cell, over the seeds both have finished.

    `gain` is the share of the baseline's loss that SL-R saves, `error` the standard error of the mean difference over
    seeds, and `p` that of a paired t test.
    """
    both = frame[[OURS, baseline]].dropna()
    cells = both.groupby(level=CELL)
    ours, theirs = cells[OURS].mean(), cells[baseline].mean()
    difference = (both[baseline] - both[OURS]).groupby(level=CELL)
    return pd.DataFrame(
        {
            "baseline": theirs,
            "ours": ours,
            "gain": share_saved(ours, theirs),
            "difference": difference.mean(),
            "error": difference.sem(),
            "p": difference.apply(_paired_t),
            "seeds": difference.count(),
        }
    )


def _paired_t(differences: pd.Series) -> float:
    """Return p of a paired t test; 1 where nothing differs."""
    if len(differences) < 2 or not differences.any():
        return 1.0
    if differences.std() <= 1e-9 * differences.abs().max():  # all equal: the test would divide by zero
        return 0.0
    return float(ttest_1samp(differences, 0).pvalue)


def worse(found: pd.DataFrame) -> pd.DataFrame:
    """Return the cells in which SL-R is worse by more than one standard error."""
    return found[found["difference"] < -found["error"].fillna(0) - 1e-12]


def significant(found: pd.DataFrame) -> tuple[int, int]:
    """Return the numbers of cells that are significantly better and worse: paired t over seeds, Holm over cells."""
    certain = np.array(holm(found["p"].tolist())) < 0.05
    return int((certain & (found["difference"] > 0)).sum()), int((certain & (found["difference"] < 0)).sum())


def signed_rank(gain: pd.Series) -> float:
    """Return p of Wilcoxon's signed-rank test of gains against 0."""
    return float(wilcoxon(gain).pvalue) if len(gain) > 1 and gain.any() else 1.0
