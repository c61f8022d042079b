"""Rounds of Algorithm 1 a second, by the paper's recipe: python -m benchmarks.speed.rounds

Contestants are a direct implementation of the paper's pseudo-code (`benchmarks/direct.py`), the trainer, and fleets
with compiled steps, in processor time; a fleet of seven learns all metrics of Table 2 at once. The record also has the
cost of compiling and from how many rounds on it pays, the share of the machine's rate of matrix multiplication that a
round reaches, and the time of the parts of a round.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from benchmarks.direct import Direct, stratified
from metricgrad.training.ensemble_trainer import Fleet, Member
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.speed.measuring import claim, in_turns, middle, parser_of, ratio, say, self_timed, store
from metricgrad import get_metric
from metricgrad.estimators.metric_estimator import make_loss
from metricgrad.paper.experiments import prepared
from metricgrad.paper.printed import LOSSES
from metricgrad.training import compiled_steps as swift
from metricgrad.training import ensemble as stacked
from metricgrad.training.data import Parts
from metricgrad.training.loader import SetLoader
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES, Recipe
from metricgrad.training.trainer import train

BAR = 8.0
"""Bar for the speed-up of a single run over the direct implementation."""
ENDLESS = 10**9
SIDE = 1_024
PARTS = {
    "draws of rows": (SetLoader, "at_once"),
    "draws of dropout": (stacked.Models, "masks"),
    "scores in both modes": (swift.Swift, "probe"),
    "metric": (stacked.Surrogates, "_true"),
    "surrogate steps": (swift.Swift, "refine"),
    "model steps": (swift.Swift, "follow"),
}
"""Parts of a round of a compiled fleet; dropout is drawn within scores and model steps."""


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
    one = Direct(build_model("mlp", parts.train.x.shape[1]), surrogate)
    streams = [
        stratified(parts.train.x, parts.train.y, recipe.set_size, torch.Generator().manual_seed(seed))
        for seed in (0, 1)
    ]
    return partial(one.round, *streams)


def trainer(parts: Parts, recipe: Recipe) -> Callable[[], Any]:
    """Return a round of the plain trainer."""
    model, loss = build_model("mlp", parts.train.x.shape[1]), make_loss("sl-s", get_metric("auc"), recipe)
    return partial(next, train(model, loss, parts.train, replace(recipe, rounds=ENDLESS, check_every=ENDLESS)))


def fleet(parts: Parts, recipe: Recipe, metrics: Sequence[str], compiles: bool) -> Callable[[], Any]:
    """Return a round of a fleet, one member a metric."""
    recipe = replace(recipe, rounds=ENDLESS, check_every=ENDLESS)
    members = [Member(make_loss("sl-s", get_metric(metric), recipe), ()) for metric in metrics]
    model = build_model("mlp", parts.train.x.shape[1])
    sets = SetLoader(parts.train, recipe, 0, weighted=True)
    models = [deepcopy(model) for _ in members]
    under_way = Fleet(models, members, sets, recipe, parts.validation, time.perf_counter(), compiles)
    return partial(next, under_way.sail("rounds", ENDLESS))


def fixed_cost(step: Callable[[], Any]) -> dict[str, float]:
    """Return wall and processor seconds of two rounds, the first plain, the second with compiling."""
    wall, before = time.perf_counter(), os.times()
    step()
    step()
    own = sum(now - then for then, now in zip(before[:4], os.times()[:4], strict=True))  # the compiler's, too
    return {"wall_seconds": time.perf_counter() - wall, "seconds": own}


class Watch:
    """Measures the parts of a round."""

    def __init__(self) -> None:
        self.spent = dict.fromkeys(PARTS, 0.0)
        for name, (kind, method) in PARTS.items():
            setattr(kind, method, self._watched(name, getattr(kind, method)))

    def _watched(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **how: Any) -> Any:
            start = time.process_time()
            out = function(*args, **how)
            self.spent[name] += time.process_time() - start
            return out

        return timed

    def breakdown(self, step: Callable[[], Any], rounds: int) -> dict[str, float]:
        """Return the milliseconds of a round by its parts."""
        self.spent |= dict.fromkeys(PARTS, 0.0)
        whole = Contestant(step, rounds)() * 1e3
        parts = {name: 1e3 * own / rounds for name, own in self.spent.items()}
        rest = whole - sum(parts.values()) + parts["draws of dropout"]
        return parts | {"rest": rest, "whole": whole}


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


def at_size(parts: Parts, size: int, repeats: int, rounds: int, seven: bool) -> dict[str, Any]:
    """Measure all at one size of sets, with or without the fleet of seven."""
    recipe = replace(RECIPES["paper"], set_size=size)
    fleets = {"fleet of one": ["auc"], **({"fleet of seven": LOSSES} if seven else {})}
    steps = {
        "direct": direct(parts, recipe),
        "trainer": trainer(parts, recipe),
        "fleet of one, plain": fleet(parts, recipe, ["auc"], compiles=False),
        **{name: fleet(parts, recipe, metrics, compiles=True) for name, metrics in fleets.items()},
    }
    flops = work(steps["direct"])
    say(f"N = {size}: compiling")
    compiling = {name: fixed_cost(steps[name]) for name in fleets}
    lap = {name: Contestant(step, rounds) for name, step in steps.items()}
    taken = in_turns({**lap, "product": Contestant(multiply(), 3)}, repeats, timed=self_timed, what=f"N = {size}")
    taken |= {f"{name}, a member": [own / len(fleets[name]) for own in taken[name]] for name in list(fleets)[1:]}
    plain, swift_one = (middle(taken)[name] for name in ("fleet of one, plain", "fleet of one"))
    return {
        "size": size,
        "seconds_a_round": middle(taken),
        "to_direct": {
            name: ratio(taken["direct"], own) for name, own in taken.items() if name not in ("direct", "product")
        },
        "compiling": compiling,
        "pays_from_rounds": round(compiling["fleet of one"]["seconds"] / (plain - swift_one)),
        "operations_a_round": flops,
        "share_of_rate": {
            name: share_of_rate(times * flops, taken[name], taken["product"])
            for name, times in (("direct", 1), *((name, len(metrics)) for name, metrics in fleets.items()))
        },
        "milliseconds": {name: WATCH.breakdown(steps[name], 5 * rounds) for name in fleets},
    }


WATCH = Watch()


def main() -> int:
    parser = parser_of(__doc__, repeats=15)
    parser.add_argument("--dataset", default="a9a")
    parser.add_argument("--sizes", default="100,2000", help="rows in a set; the claim is about the first")
    parser.add_argument("--rounds", type=int, default=10, help="a lap")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    parts = prepared(asked.dataset, 0, standardise=False)
    with tempfile.TemporaryDirectory() as cache:  # so that compiling starts from nothing
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        found = [
            at_size(parts, int(size), asked.repeats, asked.rounds, seven=not number)
            for number, size in enumerate(asked.sizes.split(","))
        ]
    first = found[0]
    says = (
        f"rounds a second of a single compiled run, times those of the direct way, {asked.dataset}, N = {first['size']}"
    )
    claims = [claim(says, first["to_direct"]["fleet of one"], at_least=BAR)]
    return 1 if store("rounds", claims, asked.folder, dataset=asked.dataset, by_size=found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
