"""Is a change of the recipe worth it? The default and some variants of it, each with its own cross-entropy control.

Only training and validation rows are used: the validation rows of a seed fall into two halves, one chooses checkpoint
and threshold, the other judges. Every trial is stored as it is done; run again to continue.

    METRICGRAD_DATA=... python benchmarks/ablations.py --models linear,small --variants anchor=0.1 anchor=0,noise=0.1
"""

from __future__ import annotations

import ast
import time
import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from asking import command, parser_of
from metricgrad.experiments import prepared
from metricgrad.fleet import Member, train_fleet
from metricgrad.guard import Rows
from metricgrad.metric_estimator import make_loss
from metricgrad.metrics import get_metric
from metricgrad.model import build_model
from metricgrad.recipe import get_recipe
from metricgrad.resampling import standard_error
from metricgrad.results import Store
from metricgrad.threshold import best_threshold
from win import DATASETS, RATES, ROWS

RESULTS = Path(__file__).parents[1] / "results" / "ablations.jsonl"
METRICS = ("f1", "mcc", "average_precision", "partial_auc(0.05)", "precision_at(0.02)")
CONTROL = "cross-entropy"


def changes_of(variant: str) -> dict[str, Any]:
    """Read `anchor=0.1,noise=0` as changes of the recipe; `default` is none."""
    pairs = [] if variant == "default" else [pair.split("=") for pair in variant.split(",")]
    return {name: ast.literal_eval(value) for name, value in pairs}


def halves(rows: Rows) -> tuple[Rows, Rows]:
    """Split rows in two, classes in proportion: every other row of each class."""
    first = torch.zeros(len(rows.y), dtype=torch.bool)
    for label in (0, 1):
        first[(rows.y == label).nonzero()[::2, 0]] = True
    return Rows(rows.x[first], rows.y[first]), Rows(rows.x[~first], rows.y[~first])


def trial(dataset: str, model: str, seed: int, metrics: tuple[str, ...], variant: str) -> dict[str, Any]:
    """Train cross-entropy and a surrogate for each metric, and return what both lose on either half."""
    changes = changes_of(variant)
    method = changes.pop("method", "sl-r")
    plain = {"learning_rate": RATES[model], "companion": False, "margin": 0.0}  # the better of start and surrogate
    recipe = get_recipe("default", **{**plain, **changes})
    parts = prepared(dataset, seed, True, ROWS)
    choosing, judging = halves(parts.validation)
    network = build_model(model, parts.train.x.shape[1], seed)
    known = [get_metric(name) for name in metrics]
    torch.manual_seed(seed)
    members = [Member(make_loss(CONTROL, known[0], recipe), tuple(known))]
    for metric in known:
        torch.manual_seed(seed)
        members.append(Member(make_loss(method, metric, recipe), (metric,)))
    torch.manual_seed(seed)
    (controls, *surrogates) = train_fleet(network, members, parts.train, recipe, validation=choosing, seed=seed)
    found = {}
    for metric, control, (surrogate,) in zip(known, controls, surrogates, strict=True):
        numbers: dict[str, Any] = {}
        scores = {}
        for name, trained in (("control", control), ("surrogate", surrogate)):
            own = trained.model.double().eval()
            with torch.no_grad():
                chosen, judged = own(choosing.x.double()), own(judging.x.double())
            cut = best_threshold(metric, chosen, choosing.y) if metric.thresholded else 0.0
            scores[name] = chosen
            numbers[name] = [float(metric.best(chosen, choosing.y)), float(metric(judged - cut, judging.y))]
        numbers["error"] = standard_error(metric.best, scores["control"], scores["surrogate"], choosing.y)
        trusts = [done.trust for done in surrogate.history if done.trust == done.trust]
        numbers["trust"] = sum(trusts) / len(trusts) if trusts else None
        found[metric.name] = numbers
    return found


def show(path: Path) -> None:
    """Print the mean gain of every variant over its control, by model and metric, on the half that judges."""
    rows = []
    for kept in Store(path):
        run = kept["run"]
        for metric, n in kept["losses"].items():
            control, ours = n["control"][1], n["surrogate"][1]
            gain = max((control - ours) / control, -1.0) if control > 0 else -float(ours > 0)
            rows.append((run["model"], run["variant"], metric, run["dataset"], run["seed"], gain))
    frame = pd.DataFrame(rows, columns=["model", "variant", "metric", "dataset", "seed", "gain"])
    pd.set_option("display.width", 200)
    for model, part in frame.groupby("model"):
        table = part.pivot_table(index="variant", columns="metric", values="gain", aggfunc="mean")
        table["all"] = part.groupby("variant")["gain"].mean()
        table["worst"] = part.groupby(["variant", "dataset", "metric"])["gain"].mean().groupby("variant").min()
        table["trials"] = part.groupby("variant")["gain"].count()
        print(f"\n{model}: mean relative gain over cross-entropy, per cent")
        print((table * 100).assign(trials=table["trials"]).round(2).to_string())


def main() -> None:
    parser = parser_of(__doc__, RESULTS)
    parser.add_argument("--models", default="linear,small")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--metrics", default=" ".join(METRICS))
    parser.add_argument("--seeds", default="10,11")
    parser.add_argument("--variants", nargs="*", default=["default"])
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", ".*is not faithful yet")
    store = Store(asked.results)
    metrics = tuple(asked.metrics.split())
    for seed in [] if asked.report else map(int, asked.seeds.split(",")):
        for dataset in asked.datasets.split(","):
            for model in asked.models.split(","):
                for variant in asked.variants:
                    run = {"dataset": dataset, "model": model, "seed": seed, "variant": variant, "metrics": metrics}
                    if store.find(run):
                        continue
                    begun = time.perf_counter()
                    losses = trial(dataset, model, seed, metrics, variant)
                    seconds = time.perf_counter() - begun
                    store.add(run, {"losses": losses, "seconds": seconds, "command": command()})
    show(asked.results)


if __name__ == "__main__":
    main()
