"""Does training ever collapse? Two hundred short runs over all metrics: python -m studies.collapse.run [--runs 200]

Every run draws its own table, prevalence (0.002 to 0.5), set size (50 to 2,000), model and metric by its seed. Compared
are the losses on 20,000 fresh rows at the start of the rounds and at the end: of the model that was selected, and of
the last one, which was not validated. Noise is the standard error of the paired difference. Every run is stored as it
ends; run again to continue.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import torch

from metricgrad.evaluation.store import Store
from metricgrad.metrics.registry import builtin_metrics, get_metric
from metricgrad.training.data import Rows
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Selection, scores_of, standard_error
from metricgrad.training.trainer import train
from studies import pages

RESULTS = pages.RESULTS / "collapse.jsonl"
ROWS = {"train": 8_000, "validation": 4_000, "test": 20_000}
FEATURES = 10
MODELS = {"linear": 0.01, "small": 0.003, "mlp": 0.001}
AT_ZERO = ("precision", "recall")
"""Metrics that some threshold always satisfies, so that they are trained and judged at zero."""
NOISE = 3.0
"""Standard errors: two hundred comparisons without any effect would exceed them 0.3 times."""


def case(seed: int) -> dict[str, Any]:
    """Return the settings of a run; every metric and model comes in turn."""
    drawn = np.random.default_rng(seed)
    metrics = [metric.name for metric in builtin_metrics()]
    return {
        "seed": seed,
        "metric": metrics[seed % len(metrics)],
        "model": list(MODELS)[seed // len(metrics) % len(MODELS)],
        "prevalence": float(np.exp(drawn.uniform(np.log(0.002), np.log(0.5)))),
        "set_size": int(np.exp(drawn.uniform(np.log(50), np.log(2_000)))),
        "noise": float(drawn.uniform(0.2, 2.0)),
    }


def tables(run: dict[str, Any]) -> dict[str, Rows]:
    """Draw a table in which positives are as rare as asked: a linear part, a product, and noise."""
    generator = torch.Generator().manual_seed(run["seed"])
    x = torch.randn(sum(ROWS.values()), FEATURES, generator=generator)
    noise = run["noise"] * torch.randn(len(x), generator=generator)
    logit = x[:, 0] + 0.5 * x[:, 1] + x[:, 2] * x[:, 3] + noise
    y = (logit > logit.quantile(1 - run["prevalence"])).float()
    parts = zip(x.split(list(ROWS.values())), y.split(list(ROWS.values())), strict=True)
    return {name: Rows(*part) for name, part in zip(ROWS, parts, strict=True)}


def carry_out(run: dict[str, Any]) -> dict[str, Any]:
    """Train, and compare the selected model and the last one with the start."""
    parts, metric = tables(run), get_metric(run["metric"])
    recipe = Recipe(
        warmup=300,
        rounds=100,
        trust_cap=300,
        check_every=10,
        set_size=run["set_size"],
        learning_rate=MODELS[run["model"]],
        form="zero" if run["metric"] in AT_ZERO else "best",
    )
    model = build_model(run["model"], FEATURES, run["seed"])
    torch.manual_seed(run["seed"])
    loss = make_loss("sl-r", metric, recipe)
    selection = Selection(parts["validation"], metric, recipe)
    start, last = model, model
    trusts = []
    for done in train(model, loss, parts["train"], recipe, selection=selection, seed=run["seed"]):
        if done.phase == "warm-up" and done.number == done.of:
            start = deepcopy(model)
        if done.number == done.of:
            last, trusts = deepcopy(model), [done.trust, done.cosine]
    assert selection.verdict is not None
    plain = deepcopy(model)
    plain.load_state_dict(selection.control.state)
    models = {"start": start, "kept": model, "last": last, "cross_entropy": plain}
    scores = {name: scores_of(own, parts["test"].x) for name, own in models.items()}
    y, judge = parts["test"].y, selection.metric
    found: dict[str, Any] = {name: float(judge(own, y)) for name, own in scores.items()}
    for name in ("kept", "last"):
        found[f"{name}_error"] = standard_error(judge, scores["start"], scores[name], y)
    return {**found, "followed": selection.verdict.followed, "trust": trusts[0], "cosine": trusts[1]}


def show(path: Path) -> None:
    found = list(Store(path))
    for name, title in (("kept", "the selected model"), ("last", "the last model, not validated")):
        rises = np.array([r[name] - r["start"] for r in found])
        errors = np.array([r[f"{name}_error"] for r in found])
        z = np.divide(rises, errors, out=np.zeros_like(rises), where=errors > 0)
        print(
            f"{title}: {len(found)} runs, {int((z > NOISE).sum())} worse than the start by more than {NOISE:g} "
            f"standard errors, {int((z > 1).sum())} by more than one, {int((z < -1).sum())} better by more than one; "
            f"largest rise {rises.max():.4f}, largest in errors {z.max():.1f} ({found[int(z.argmax())]['run']})"
        )
    print(f"the surrogate's model was selected in {sum(r['followed'] for r in found)} of {len(found)} runs")


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--runs", type=int, default=200)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    pages.run_missing(Store(asked.results), [] if asked.report else [case(s) for s in range(asked.runs)], carry_out)
    show(asked.results)


if __name__ == "__main__":
    main()
