"""Does it win? SL-R against every baseline: METRICGRAD_DATA=... python -m studies.win.run [--seeds 5] [--jobs 2]

All methods have the same splits, steps, restarts and choice of checkpoint on validation rows. Honest protocol, at most
60,000 rows of a dataset (drawn by the seed, classes in proportion), eight metrics, three models, five seeds. Every run
is stored when its job ends; run again to continue. Stored runs of another recipe, other data or other surrogates are
other runs. The linear model on fewer rows:

    METRICGRAD_DATA=... python -m studies.win.run --rows 2000,6000,20000 --models linear \\
        --methods sl-r,cross-entropy --results results/sizes
"""

from __future__ import annotations

from pathlib import Path

from metricgrad.evaluation.records import FILE
from metricgrad.evaluation.store import Store
from metricgrad.paper.experiments import Run
from metricgrad.paper.reproduce import Plan, carry_out
from metricgrad.reporting.progress import work_bar
from metricgrad.training.networks import TREES as BOOSTED
from studies import pages
from studies.win.gains import BASELINE, MAX_ROWS, OURS, PUBLISHED, losses

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
BASELINES = (
    BASELINE,
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
METHODS = (OURS, *BASELINES, PUBLISHED, BOOSTED)
AS_PUBLISHED = {"check_every": 50, "clip": None, "rounds": 2_000, "standardise": True, "surrogate_rate": 1e-3}
"""The published recipe in as many model steps as the others take; its own steps of 1e-5 would not get anywhere."""
FIRST_SEED = 100
"""No other experiment has used these seeds."""
RATES = {"linear": 0.01, "small": 0.003, "mlp": 0.001}
"""Learning rates of the model for every method, chosen for cross-entropy."""
RESULTS = pages.RESULTS / "win"


def runs_of(
    models: list[str],
    seeds: int,
    datasets: list[str],
    methods: list[str],
    rows: int = MAX_ROWS,
    recipe: str = "default-0.1",
) -> list[Run]:
    """Return every run on so many rows: each method on each model, and boosted trees once."""
    found = []
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for dataset in datasets:
            for model in models:
                rate = {"learning_rate": RATES[model]}
                default = tuple(rate.items()) if RATES[model] != 0.001 and recipe == "default-0.1" else ()
                published = tuple(sorted({**AS_PUBLISHED, **rate}.items()))
                how = {"model": model, "rows": rows}
                for method in methods:
                    if method == PUBLISHED:
                        found += [
                            Run(dataset, m, OURS, seed, recipe="paper", changes=published, **how) for m in METRICS
                        ]
                    elif method != BOOSTED:
                        found += [Run(dataset, m, method, seed, recipe=recipe, changes=default, **how) for m in METRICS]
            if BOOSTED in methods:
                found += [Run(dataset, m, BOOSTED, seed, rows=rows) for m in METRICS]
    return found


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--models", default=",".join(RATES))
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--rows", default=str(MAX_ROWS), help="rows of a dataset at most; several with commas")
    parser.add_argument("--recipe", default="default-0.1", help="of SL-R and the baselines")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    models, datasets, methods = (text.split(",") for text in (asked.models, asked.datasets, asked.methods))
    sizes = [int(rows) for rows in asked.rows.split(",")]
    if not asked.report:
        runs = tuple(
            run for rows in sizes for run in runs_of(models, asked.seeds, datasets, methods, rows, asked.recipe)
        )
        plan, store = Plan(runs, ("honest",), DATASETS), Store(asked.results / FILE)
        with work_bar() as report:
            for done, total in carry_out(plan, store, command=pages.command(), n_jobs=asked.jobs, brief=True):
                report("runs", done, total)
    show(asked.results, sizes)


def show(folder: Path, sizes: list[int]) -> None:
    """Print the tables of gains for every number of rows."""
    from studies.when_it_helps.tables import baseline_table, gain_table, gains

    for rows in sizes:
        frame = losses(folder, rows)
        print(f"\nAt most {rows:,} rows: loss saved\n", gain_table(gains(frame)), "", baseline_table(frame), sep="\n")


if __name__ == "__main__":
    main()
