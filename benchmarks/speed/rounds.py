"""Rounds of Algorithm 1 a second, by the paper's recipe: python -m benchmarks.speed.rounds

A direct implementation of the paper's pseudo-code (`examples/plot_00_algorithm_1.py`) and the trainer take turns, some
rounds each, in processor time. The record also has the share of the machine's rate of matrix multiplication that a
round reaches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.speed.measuring import claim, in_turns, middle, parser_of, ratio, self_timed, store
from examples.plot_00_algorithm_1 import AlgorithmOne, stratified
from metricgrad import get_metric
from metricgrad.paper.experiments import prepared
from metricgrad.training.data import Parts
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES, Recipe
from metricgrad.training.trainer import train

BAR = 8.0
"""Bar for the speed-up of the trainer over the direct implementation."""
ENDLESS = 10**9
SIDE = 1_024


@dataclass
class Contestant:
    """Runs one round after the other."""

    step: Callable[[], Any]
    rounds: int

    def __call__(self) -> float:
        """Return the mean processor time of a round."""
        start = time.process_time()
        for _ in range(self.rounds):
            self.step()
        return (time.process_time() - start) / self.rounds


def direct(parts: Parts, recipe: Recipe) -> Callable[[], None]:
    """Return a round of the direct implementation."""
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
    """Return a large matrix product, to measure the rate of the machine."""
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
    taken = in_turns({**lap, "product": Contestant(multiply(), 3)}, repeats, timed=self_timed, what=f"N = {size}")
    return {
        "size": size,
        "seconds_a_round": middle(taken),
        "to_direct": {"trainer": ratio(taken["direct"], taken["trainer"])},
        "operations_a_round": flops,
        "share_of_rate": {name: share_of_rate(flops, taken[name], taken["product"]) for name in steps},
    }


def main() -> int:
    parser = parser_of(__doc__, repeats=15)
    parser.add_argument("--dataset", default="a9a")
    parser.add_argument("--sizes", default="100,2000", help="rows in a set; the claim is about the first")
    parser.add_argument("--rounds", type=int, default=10, help="a lap")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    parts = prepared(asked.dataset, 0, standardise=False)
    found = [at_size(parts, int(size), asked.repeats, asked.rounds) for size in asked.sizes.split(",")]
    says = f"rounds a second of the trainer, times those of the direct way, {asked.dataset}, N = {found[0]['size']}"
    claims = [claim(says, found[0]["to_direct"]["trainer"], at_least=BAR)]
    return 1 if store("rounds", claims, asked.folder, dataset=asked.dataset, by_size=found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
