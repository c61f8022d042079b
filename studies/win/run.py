"""Does it win? SL-R against every rival with the same splits, steps, restarts and choice of checkpoint on validation.

Honest protocol, at most 60,000 rows of a dataset (drawn by the seed, classes in proportion), eight metrics, three
models, five seeds. Every run is stored as its job is done; run again to continue. Runs stored by another recipe, on
other data or from other surrogates are other runs, and are not taken for these.

    METRICGRAD_DATA=... python benchmarks/win.py [--models linear,small,mlp] [--seeds 5] [--jobs 2]

Does the number of rows matter? The linear model on fewer of them:

    METRICGRAD_DATA=... python benchmarks/win.py --rows 2000,6000,20000 --models linear \\
        --methods sl-r,cross-entropy --results results/sizes
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table
from scipy.stats import ttest_1samp, wilcoxon

from metricgrad.evaluation.ranks import holm
from metricgrad.evaluation.records import FILE, Record, read_records
from metricgrad.evaluation.store import Store
from metricgrad.paper.experiments import BOOSTED, Run
from metricgrad.paper.reproduce import Plan, carry_out
from metricgrad.reporting.progress import work_bar
from studies.common import command, parser_of

DATASETS = ("a9a", "ccfraud", "codrna", "covtype", "ijcnn1", "porto", "skin", "susy")
METRICS = (
    "auc",
    "average_precision",
    "f1",
    "mcc",
    "error_rate",
    "jaccard",
    "partial_auc(0.05)",
    "precision_at(0.02)",
)
RIVAL = "cross-entropy"
RIVALS = (
    RIVAL,
    "balanced",
    "focal",
    "cost-sensitive",
    "soft-f1",
    "soft-jaccard",
    "lovasz-softmax",
    "pairwise",
    "global-objectives",
    "aucm",
)
PUBLISHED = "sl-published"
METHODS = ("sl-r", *RIVALS, PUBLISHED, BOOSTED)
AS_PUBLISHED = (
    ("check_every", 50),
    ("clip", None),
    ("rounds", 2_000),
    ("standardise", True),
    ("surrogate_rate", 1e-3),
)
"""The published recipe in as many model steps as the others take: its own steps of 1e-5 would not get anywhere."""
FIRST_SEED = 100
"""Seeds no other experiment has used."""
RATES = {"linear": 0.01, "small": 0.003, "mlp": 0.001}
"""Of the model's optimizer, for every method: what cross-entropy does well with."""
ROWS = 60_000
CELL = ["dataset", "metric", "model"]
RESULTS = Path(__file__).parents[2] / "results" / "win"


def runs_of(models: list[str], seeds: int, datasets: list[str], methods: list[str], most_rows: int = ROWS) -> list[Run]:
    """Return every run on so many rows: the surrogate and its rivals on each model, and trees once."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for dataset in datasets:
            for model in models:
                rate = (("learning_rate", RATES[model]),) if RATES[model] != 0.001 else ()
                how = {"model": model, "rows": most_rows}
                for by in methods:
                    if by == PUBLISHED:
                        published = tuple(sorted((*AS_PUBLISHED, ("learning_rate", RATES[model]))))
                        found += [
                            Run(dataset, m, "sl-r", seed, recipe="paper", changes=published, **how) for m in METRICS
                        ]
                    elif by != BOOSTED:
                        found += [Run(dataset, m, by, seed, changes=rate, **how) for m in METRICS]
            if BOOSTED in methods:
                found += [Run(dataset, m, BOOSTED, seed, rows=most_rows) for m in METRICS]
    return found


def of_one_recipe(records: list[Record]) -> list[Record]:
    """Return records unchanged; a surrogate trained by two contents of one recipe must not be averaged.

    Fields that concern surrogates alone may differ between runs of hand-made losses.
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


def losses(folder: Path, most_rows: int = ROWS) -> pd.DataFrame:
    """Return the test loss of runs on so many rows: by dataset, metric, model and seed, a column for each method."""
    rows = [
        (
            r.dataset,
            r.metric,
            r.setting.model,
            r.seed,
            PUBLISHED if r.setting.recipe == "paper" else r.method,
            r.loss("honest", r.metric),
        )
        for r in of_one_recipe(read_records(folder))
        if r.setting.rows == most_rows
    ]
    frame = pd.DataFrame(rows, columns=["dataset", "metric", "model", "seed", "method", "loss"])
    trees = frame[frame["method"] == BOOSTED]  # one model, beside each of ours
    beside = [trees.assign(model=model) for model in RATES]
    frame = pd.concat([frame[frame["method"] != BOOSTED], *beside])
    return frame.pivot_table(index=[*CELL, "seed"], columns="method", values="loss")


def share_saved(ours: pd.Series, theirs: pd.Series) -> pd.Series:
    """Return the share of their loss that ours saves, at least -1: where they lose nothing, any loss is far worse."""
    return ((theirs - ours) / theirs.where(theirs > 0)).fillna(-(ours > 0).astype(float)).clip(lower=-1)


def gains(frame: pd.DataFrame, rival: str = RIVAL) -> pd.DataFrame:
    """Compare SL-R with a rival cell by cell, over the seeds both have finished.

    The gain is the share of the rival's loss that SL-R saves, the error that of the mean difference over seeds, and p
    that of a paired t test.
    """
    both = frame[["sl-r", rival]].dropna()
    cells = both.groupby(level=CELL)
    ours, theirs = cells["sl-r"].mean(), cells[rival].mean()
    difference = (both[rival] - both["sl-r"]).groupby(level=CELL)
    return pd.DataFrame(
        {
            "rival": theirs,
            "ours": ours,
            "gain": share_saved(ours, theirs),
            "difference": difference.mean(),
            "error": difference.sem(),
            "p": difference.apply(_paired),
            "seeds": difference.count(),
        }
    )


def _paired(differences: pd.Series) -> float:
    """Return p of a paired t test; 1 where nothing differs."""
    if len(differences) < 2 or not differences.any():
        return 1.0
    if differences.std() <= 1e-9 * differences.abs().max():  # all the same: as sure as can be
        return 0.0
    return float(ttest_1samp(differences, 0).pvalue)


def worse(found: pd.DataFrame) -> pd.DataFrame:
    """Return the cells in which SL-R loses more by more than one standard error."""
    return found[found["difference"] < -found["error"].fillna(0) - 1e-12]


def certain(found: pd.DataFrame) -> tuple[int, int]:
    """Return in how many cells SL-R is surely better, and surely worse: paired t over seeds, Holm over cells."""
    sure = np.array(holm(found["p"].tolist())) < 0.05
    return int((sure & (found["difference"] > 0)).sum()), int((sure & (found["difference"] < 0)).sum())


def signed_rank(gain: pd.Series) -> float:
    """Return p of a Wilcoxon test that gains are as often losses."""
    return float(wilcoxon(gain).pvalue) if len(gain) > 1 and gain.any() else 1.0


def show(folder: Path, most_rows: int) -> None:
    """Print gain and tests by model and metric, against cross-entropy and against every rival."""
    frame, console = losses(folder, most_rows), Console(width=120)
    found = gains(frame)
    title = f"SL-R against {RIVAL} + exact threshold, at most {most_rows:,} rows: mean relative loss reduction (cells)"
    table = Table(title=title)
    table.add_column("metric")
    models = [model for model in RATES if model in found.index.get_level_values("model")]
    for model in (*models, "all", "p"):
        table.add_column(model, justify="right")
    for metric in (*METRICS, None):
        of_metric = found if metric is None else found[found.index.get_level_values("metric") == metric]
        shown = [of_metric.xs(model, level="model")["gain"] for model in models]
        means = [f"{gain.mean():+.1%} ({len(gain)})" for gain in (*shown, of_metric["gain"])]
        table.add_row(metric or "all", *means, f"{signed_rank(of_metric['gain']):.2g}")
    console.print(table)
    bad, (better, bad_for_sure) = worse(found), certain(found)
    console.print(f"worse by more than one standard error: {len(bad)} of {len(found)} cells")
    console.print(f"paired t over seeds, Holm over cells: {better} surely better, {bad_for_sure} surely worse")
    rivals = [rival for rival in frame.columns.drop("sl-r") if len(gains(frame, rival))]
    against = {rival: gains(frame, rival) for rival in rivals}
    tests = holm([signed_rank(cells["gain"]) for cells in against.values()])
    for (rival, cells), p in zip(against.items(), tests, strict=True):
        won, lost = (cells["difference"] > 0).sum(), (cells["difference"] < 0).sum()
        console.print(
            f"against {rival}: {cells['gain'].mean():+.2%} over {len(cells)} cells, better in {won}, worse in {lost}, "
            f"Wilcoxon p after Holm {p:.2g}"
        )


def main() -> None:
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--models", default="linear,small,mlp")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rows", default=str(ROWS), help="use at most so many of a dataset; several with commas")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    models, datasets, methods = (text.split(",") for text in (asked.models, asked.datasets, asked.methods))
    rows = [int(most) for most in asked.rows.split(",")]
    if not asked.report:
        runs = tuple(run for most in rows for run in runs_of(models, asked.seeds, datasets, methods, most))
        with work_bar() as report:
            plan = Plan(runs, ("honest",), DATASETS)
            for done, total in carry_out(
                plan, Store(asked.results / FILE), command=command(), n_jobs=asked.jobs, brief=True
            ):
                report("runs", done, total)
    for most in rows:
        show(asked.results, most)


if __name__ == "__main__":
    main()
