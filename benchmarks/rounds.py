"""Rounds of Algorithm 1 a second, by the paper's recipe: the direct way, and the trainer.

The direct way (`examples/plot_00_algorithm_1.py`) is the pseudo-code of the paper as one would write it down. Both take
turns, some rounds each, in processor time. Beside the claim the record says what share of the machine's rate of matrix
multiplication a round reaches.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from measuring import FOLDER, claim, in_turns, middle, own_word, ratio, store
from metricgrad import get_metric
from metricgrad.estimators.metric_estimator import make_loss
from metricgrad.paper.experiments import Parts, prepared
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES, Recipe
from metricgrad.training.trainer import train

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from plot_00_algorithm_1 import AlgorithmOne, stratified

BAR = 1.5
"""How many times the rounds a second of the direct way the trainer is to reach."""
ENDLESS = 10**9
SIDE = 1_024


@dataclass
class Contestant:
    """Takes one round after the other."""

    step: Callable[[], Any]
    rounds: int

    def __call__(self) -> float:
        """Return the processor time of a round, over some."""
        start = time.process_time()
        for _ in range(self.rounds):
            self.step()
        return (time.process_time() - start) / self.rounds


def direct(parts: Parts, recipe: Recipe) -> Callable[[], None]:
    """Return a round of the direct way."""
    surrogate = make_loss("sl-s", get_metric("auc"), recipe).surrogate
    one = AlgorithmOne(build_model("mlp", parts.train.x.shape[1]), surrogate)
    streams = [
        stratified(parts.train.x, parts.train.y, recipe.set_size, torch.Generator().manual_seed(seed))
        for seed in (0, 1)
    ]
    return partial(one.round, *streams)


def trainer(parts: Parts, recipe: Recipe) -> Callable[[], Any]:
    """Return a round of the trainer."""
    model, loss = build_model("mlp", parts.train.x.shape[1]), make_loss("sl-s", get_metric("auc"), recipe)
    return partial(next, train(model, loss, parts.train, replace(recipe, rounds=ENDLESS, check_every=ENDLESS)))


def work(step: Callable[[], Any]) -> int:
    """Return the floating-point operations of matrix products in a round."""
    counter = FlopCounterMode(display=False)
    with counter:
        step()
    return int(counter.get_total_flops())


def multiply() -> Callable[[], Any]:
    """Return a large matrix product, to know the rate of the machine."""
    one, other = torch.randn(2, SIDE, SIDE)
    return partial(torch.mm, one, other)


def share_of_rate(flops: int, taken: Sequence[float], multiplied: Sequence[float]) -> dict[str, float]:
    """Return the rate of a round as a share of that of a large product, measured in the same laps."""
    found = ratio(multiplied, taken)
    return {name: flops / (2 * SIDE**3) * value for name, value in found.items()}


def at_size(parts: Parts, size: int, repeats: int, rounds: int) -> dict[str, Any]:
    """Measure both at one size of sets."""
    recipe = replace(RECIPES["paper"], set_size=size)
    steps = {"direct": direct(parts, recipe), "trainer": trainer(parts, recipe)}
    flops = work(steps["direct"])
    lap = {name: Contestant(step, rounds) for name, step in steps.items()}
    taken = in_turns({**lap, "product": Contestant(multiply(), 3)}, repeats, timed=own_word, what=f"N = {size}")
    return {
        "size": size,
        "seconds_a_round": middle(taken),
        "to_direct": {"trainer": ratio(taken["direct"], taken["trainer"])},
        "operations_a_round": flops,
        "share_of_rate": {name: share_of_rate(flops, taken[name], taken["product"]) for name in steps},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="a9a")
    parser.add_argument("--sizes", default="100,2000", help="rows in a set; the claim is about the first")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=10, help="a lap")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the record is kept")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    parts = prepared(asked.dataset, 0, standardise=False)
    found = [at_size(parts, int(size), asked.repeats, asked.rounds) for size in asked.sizes.split(",")]
    says = f"rounds a second of the trainer, times those of the direct way, {asked.dataset}, N = {found[0]['size']}"
    claims = [claim(says, found[0]["to_direct"]["trainer"], at_least=BAR)]
    return 1 if store("rounds", claims, asked.folder, dataset=asked.dataset, by_size=found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
