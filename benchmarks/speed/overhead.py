"""How much longer training for a metric takes than cross-entropy: python -m benchmarks.speed.overhead

`MetricClassifier("f1").fit(X, y)` against the same with `method="cross-entropy"`: the same model, sets and number of
model steps, by the default recipe with a share of its steps. Its control, cross-entropy that continues beside the
surrogate, is included; contestants without it, with fewer scored sets, and with as many steps as the two together show
what each part costs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.speed.measuring import claim, in_turns, made_up_table, middle, parser_of, ratio, self_timed, store
from metricgrad import MetricClassifier
from metricgrad.training.networks import PAPER_WIDTHS, mlp
from metricgrad.training.recipe import RECIPES, Recipe

BARS = {1: 2.5, 10: 1.5}
"""Width as a multiple of the paper's network, and the bar for the time over that of cross-entropy."""
LABELS = {1: "the paper's network", 10: "a network ten times wider"}
LIGHTER = {
    "without control": {"control": False},
    "half the sets scored": {"refine_sets": 4},
    "both": {"control": False, "refine_sets": 4},
}
"""Cheaper recipes, by their changes of the default."""
AS_MANY = "cross-entropy, as many steps"


def wide(times: int) -> Callable[[int], nn.Module]:
    """Return a factory of the paper's network, some times wider."""
    return partial(mlp, widths=tuple(times * width for width in PAPER_WIDTHS))


def cut(share: float) -> Recipe:
    """Return the default recipe with a share of its steps."""
    whole = RECIPES["default"]
    fewer = {name: max(1, round(share * getattr(whole, name))) for name in ("warmup", "rounds", "trust_cap")}
    return replace(whole, **fewer)


def measure(times: int, share: float, repeats: int, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Fit with and without the metric in turns, and return the ratios of processor time and of wall time."""
    model: Any = "mlp" if times == 1 else wide(times)
    recipe = cut(share)
    walls: dict[str, list[float]] = {}

    def fit(name: str, method: str, recipe: Recipe) -> float:
        wall, own = time.perf_counter(), time.process_time()
        MetricClassifier("f1", method, model, recipe, random_state=0).fit(X, y)
        walls.setdefault(name, []).append(time.perf_counter() - wall)
        return time.process_time() - own

    contestants = {
        "cross-entropy": partial(fit, "cross-entropy", "cross-entropy", recipe),
        "metric": partial(fit, "metric", "sl-r", recipe),
        AS_MANY: partial(fit, AS_MANY, "cross-entropy", replace(recipe, rounds=2 * recipe.rounds)),
        **{name: partial(fit, name, "sl-r", replace(recipe, **changes)) for name, changes in LIGHTER.items()},
    }
    taken = in_turns(contestants, repeats, timed=self_timed, warm=False, what=LABELS[times])
    return {
        "widths": [times * width for width in PAPER_WIDTHS],
        "steps": recipe.steps,
        "share": share,
        "seconds": middle(taken),
        "wall_seconds": middle(walls),
        "ratio": ratio(taken["metric"], taken["cross-entropy"]),
        "wall": ratio(walls["metric"], walls["cross-entropy"]),
        "as_many_steps": ratio(taken["metric"], taken[AS_MANY]),
        "lighter": {name: ratio(taken[name], taken["cross-entropy"]) for name in LIGHTER},
    }


def main() -> int:
    parser = parser_of(__doc__, repeats=5)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--features", type=int, default=100)
    parser.add_argument("--shares", default="0.2,0.05", help="of the default recipe: the paper's network, a wide one")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    X, y = made_up_table(asked.rows, asked.features)
    MetricClassifier("f1", recipe=cut(0.01)).fit(X[:2000], y[:2000])  # late imports of torch must not be timed
    found = {}
    for times, share in zip(BARS, asked.shares.split(","), strict=True):
        found[times] = measure(times, float(share), asked.repeats, X, y)
    claims = [
        claim(f"fit for F1, times as long as cross-entropy, {LABELS[times]}", found[times]["ratio"], at_most=bar)
        for times, bar in BARS.items()
    ]
    table = {"rows": asked.rows, "features": asked.features}
    return 1 if store("overhead", claims, asked.folder, **table, by_width=list(found.values())) else 0


if __name__ == "__main__":
    raise SystemExit(main())
