"""Does it learn? SL-R and SL-S against cross-entropy: METRICGRAD_DATA=... python -m studies.quality.run [--jobs 2]

All have the same network, steps and restarts, and an exact threshold. Honest protocol: features standardised on the
training rows, checkpoint and threshold chosen on validation rows, test rows used once. Every run is stored as it ends;
run again to continue.
"""

from __future__ import annotations

from metricgrad.evaluation.records import FILE
from metricgrad.evaluation.store import Store
from metricgrad.paper.experiments import Run
from metricgrad.paper.reproduce import Plan, carry_out
from metricgrad.reporting.progress import work_bar
from studies.pages import command, parser_of
from studies.quality import page

DATASETS = ("ijcnn1", "a9a", "codrna", "covtype")
METRICS = ("f1", "average_precision", "auc", "mcc")
MODELS = {"linear": (("learning_rate", 0.01),), "mlp": ()}


def main() -> None:
    parser = parser_of(__doc__, page.RESULTS)
    parser.add_argument("--jobs", type=int, default=2)
    asked = parser.parse_args()
    runs = tuple(
        Run(dataset, metric, method, seed, model, changes=changes)
        for seed in page.SEEDS
        for model, changes in MODELS.items()
        for dataset in DATASETS
        for metric in METRICS
        for method in page.METHODS
    )
    if not asked.report:
        plan = Plan(runs, ("honest",), DATASETS)
        with work_bar() as report:
            for done, total in carry_out(plan, Store(asked.results / FILE), command=command(), n_jobs=asked.jobs):
                report("runs", done, total)
    for model, dataset, metric, losses in page.cells(asked.results):
        means = losses.mean()
        ratios = {method: means[method] / means["cross-entropy"] for method in page.METHODS}
        shown = ", ".join(f"{m} {r:.3f}{' !' if r > page.METHODS[m] else ''}" for m, r in ratios.items())
        print(f"{model} {dataset} {metric}, times the loss of cross-entropy: {shown}")
    if asked.results == page.RESULTS:
        page.main()


if __name__ == "__main__":
    main()
