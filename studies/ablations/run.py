"""What is each part of the recipe worth? METRICGRAD_DATA=... python -m studies.ablations.run [--seeds 10,11]

Trains the default and variants of it (`--variants anchor=0.1 anchor=0,noise=0.1`), each beside its own control:
cross-entropy with the same sets, steps and restart. Only training and validation rows are used: one half of the
validation rows chooses checkpoint and threshold, the other half is the test set. Every trial is stored as it ends; run
again to continue.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from metricgrad.evaluation.store import Store
from metricgrad.metrics.registry import get_metric
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.paper.experiments import prepared
from metricgrad.training.data import Rows
from metricgrad.training.jobs import train_each
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import get_recipe
from metricgrad.training.selection import standard_error
from studies import pages
from studies.win.gains import CELL, MAX_ROWS, share_saved, signed_rank
from studies.win.run import RATES

RESULTS = pages.RESULTS / "ablations.jsonl"
DATASETS = ("covtype", "ijcnn1", "codrna", "skin")
"""On the others every variant ends where cross-entropy does."""
METRICS = ("f1", "average_precision", "partial_auc(0.05)")
MIN_CHANGE = 0.01
"""Share of a loss from which a change is counted."""
CONTROL, DEFAULT = "cross-entropy", "default"
VARIANTS = {
    DEFAULT: "the default",
    "method='sl-u'": "a surrogate that is not refined (SL-U)",
    "method='sl-s'": "a surrogate from scratch (SL-S)",
    "noise=0.0": "no noise on refined scores",
    "relational=0.0": "no relational part of what a surrogate learns by",
    "refine_sets=1": "one set a refining step instead of eight",
    "surrogate_steps=4": "four refining steps a round instead of one",
    "trust=-1.0": "not waiting until the surrogate can be trusted",
    "anchor=0.0": "no anchor",
    "set_size=100": "sets of 100 rows instead of 400",
    "set_size=1000": "sets of 1,000 rows",
    "sets=4": "four sets a model step instead of one",
    "positive_share=None": "rows drawn as they come",
    "positive_share=0.5,restore=False": "half of a set positive, and not weighed back",
    "warmup=0,rounds=2000": "no warm-up, as many steps in all",
    "schedule='constant'": "a constant rate instead of a cosine",
}
"""The default without one of its parts, or with more or less of it."""


def changes_of(variant: str) -> dict[str, Any]:
    """Read `anchor=0.1,noise=0` as changes of the recipe; `default` is none."""
    pairs = [] if variant == DEFAULT else [pair.split("=") for pair in variant.split(",")]
    return {name: ast.literal_eval(value) for name, value in pairs}


def halves(rows: Rows) -> tuple[Rows, Rows]:
    """Split rows in two, classes in proportion: every other row of each class."""
    first = torch.zeros(len(rows.y), dtype=torch.bool)
    for label in (0, 1):
        first[(rows.y == label).nonzero()[::2, 0]] = True
    return Rows(rows.x[first], rows.y[first]), Rows(rows.x[~first], rows.y[~first])


def trial(dataset: str, model: str, seed: int, metrics: Sequence[str], variant: str) -> dict[str, Any]:
    """Train cross-entropy and a surrogate for each metric, and return the losses of both on either half."""
    changes = changes_of(variant)
    method = changes.pop("method", "sl-r")
    plain = {"learning_rate": RATES[model], "control": False, "margin": 0.0}  # the better of start and surrogate
    recipe = get_recipe("default-0.1", **{**plain, **changes})
    parts = prepared(dataset, seed, True, MAX_ROWS)
    choosing, judging = halves(parts.validation)
    network = build_model(model, parts.train.x.shape[1], seed)
    known = [get_metric(name) for name in metrics]
    torch.manual_seed(seed)
    runs = [(make_loss(CONTROL, known[0], recipe), known)]
    for metric in known:
        torch.manual_seed(seed)
        runs.append((make_loss(method, metric, recipe), [metric]))
    torch.manual_seed(seed)
    (controls, *surrogates) = train_each(network, runs, parts.train, recipe, validation=choosing, seed=seed)
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


def cells(path: Path) -> pd.DataFrame:
    """Return the test losses of control and surrogate by variant, cell and seed."""
    rows = [
        (run["variant"], run["dataset"], metric, run["model"], run["seed"], n["control"][1], n["surrogate"][1])
        for kept in Store(path)
        for run in [kept["run"]]
        for metric, n in kept["losses"].items()
    ]
    frame = pd.DataFrame(rows, columns=["variant", *CELL, "seed", "control", "surrogate"])
    return frame.groupby(["variant", *CELL, "seed"]).mean()


def worth(found: pd.DataFrame) -> pd.DataFrame:
    """Compare every variant with its control and, in the cells and seeds that both have, with the default.

    `saved` is the mean share of its control's loss that a surrogate saves, `more` the median share of the default's own
    loss, `better` and `worse` count the cells in which that is more than 1 %, and p is Wilcoxon's over them.
    """
    rows = {}
    ours = found.xs(DEFAULT)["surrogate"].rename("ours")
    for variant in found.index.unique("variant"):
        part = found.xs(variant).join(ours, how="inner").groupby(level=CELL).mean()
        saved, more = (share_saved(part["surrogate"], part[base]) for base in ("control", "ours"))
        rows[variant] = {
            **{model: saved.xs(model, level="model").mean() for model in saved.index.unique("model")},
            "saved": saved.mean(),
            "more": more.median(),
            "better": int((more > MIN_CHANGE).sum()),
            "worse": int((more < -MIN_CHANGE).sum()),
            "p": signed_rank(more),
        }
    return pd.DataFrame.from_dict(rows, orient="index").sort_values("more", ascending=False)


def main() -> None:
    from studies.ablations.page import recipe_part  # which imports this module

    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--models", default="linear,small")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--metrics", default=" ".join(METRICS))
    parser.add_argument("--seeds", default="10")
    parser.add_argument("--variants", nargs="*", default=list(VARIANTS))
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", ".*is not faithful yet")
    runs = [
        {"dataset": dataset, "model": model, "seed": int(seed), "variant": variant, "metrics": asked.metrics.split()}
        for seed in asked.seeds.split(",")
        for dataset in asked.datasets.split(",")
        for model in asked.models.split(",")
        for variant in asked.variants
    ]
    pages.run_missing(Store(asked.results), [] if asked.report else runs, lambda run: {"losses": trial(**run)})
    print(recipe_part(asked.results))


if __name__ == "__main__":
    main()
