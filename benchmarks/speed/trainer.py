"""The cost of the trainer beside that of another checkout: python -m benchmarks.speed.trainer --before ../before

Laps alternate between two processes, one with each code, in processor time on one thread. `fit` is shortened to a tenth
of its steps. A round of the paper's recipe is measured plain and, if the other checkout compiles its steps, compiled.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

ROUNDS = 300_000
ENDLESS = 10**9
MODELS = ("linear", "small", "mlp")


class Worker:
    """A process with the code of one checkout, which takes one lap at a time."""

    def __init__(self, source: Path) -> None:
        command = [sys.executable, __file__, "--worker", str(source)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def lap(self, name: str) -> float:
        """Return the processor seconds of a lap, NaN if this commit has nothing of that name."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(name, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def work(source: Path) -> None:
    """Take the laps asked for on the standard input with the code of a checkout."""
    sys.path.insert(0, str(source))
    import torch

    torch.set_num_threads(1)
    laps: dict[str, Callable[[], float]] = {f"fit {model}": fit_lap(model) for model in MODELS}
    laps |= {"round": round_lap(False), "round compiled": round_lap(True)}
    for line in sys.stdin:
        print(laps[line.strip()](), flush=True)


def fit_lap(model: str) -> Callable[[], float]:
    """Return a fit of a table of 20,000 rows and 30 features."""
    from benchmarks.speed.measuring import made_up_table
    from metricgrad import MetricClassifier, Recipe

    X, y = made_up_table(20_000, 30)
    recipe = Recipe(warmup=300, rounds=100)
    return partial(processor_time, lambda: MetricClassifier("f1", "sl-r", model=model, recipe=recipe).fit(X, y), 1)


def round_lap(compiled: bool, rounds: int = 20) -> Callable[[], float]:
    """Return some rounds of the paper's recipe on a9a, for AUC from scratch; NaN if steps are not compiled here."""
    from metricgrad import get_metric
    from metricgrad.paper.experiments import prepared

    try:
        from metricgrad.training.methods import make_loss
    except ImportError:  # where it was before
        from metricgrad.estimators.metric_estimator import make_loss
    from metricgrad.training.networks import build_model
    from metricgrad.training.recipe import RECIPES
    from metricgrad.training.trainer import train

    parts = prepared("a9a", 0, standardise=False)
    recipe = replace(RECIPES["paper"], rounds=ENDLESS, check_every=ENDLESS)
    loss, model = make_loss("sl-s", get_metric("auc"), recipe), build_model("mlp", parts.train.x.shape[1])
    if not compiled:
        return partial(processor_time, partial(next, train(model, loss, parts.train, recipe)), rounds)
    try:
        from metricgrad.training.ensemble_trainer import Fleet, Member  # as it was before there was one trainer
    except ImportError:
        return lambda: float("nan")
    from metricgrad.training.loader import SetLoader

    loader = SetLoader(parts.train, recipe, 0, weighted=True)
    fleet: Any = Fleet([model], [Member(loss, ())], loader, recipe, parts.validation, time.perf_counter(), True)
    return partial(processor_time, partial(next, fleet.sail("rounds", ENDLESS)), rounds)


def processor_time(step: Callable[[], Any], times: int) -> float:
    """Return the processor seconds of a step, over some."""
    start = time.process_time()
    for _ in range(times):
        step()
    return (time.process_time() - start) / times


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of another commit")
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        work(asked.worker)
        return 0
    from benchmarks.speed.measuring import claim, in_turns, middle, ratio, self_timed, store

    root = Path(__file__).parents[2]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), str(root))))
    workers = {"after": Worker(root / "src"), "before": Worker(asked.before.resolve() / "src")}
    taken = {}
    for name, repeats in {"round": 2 * asked.repeats, **{f"fit {model}": asked.repeats for model in MODELS}}.items():
        laps = {who: partial(worker.lap, name) for who, worker in workers.items()}
        if name == "round":
            laps["before, compiled"] = partial(workers["before"].lap, "round compiled")
        found = in_turns(laps, repeats, timed=self_timed, what=name)
        taken |= {f"{name}, {who}": own for who, own in found.items()}
    claims = [
        claim(
            f"{name} by the code as it is, over that before",
            ratio(taken[f"{name}, after"], taken[f"{name}, before"]),
            at_most=1.05,
        )
        for name in (*(f"fit {model}" for model in MODELS), "round")
    ]
    hours = {who: seconds * ROUNDS / 3600 for who, seconds in middle(taken).items() if who.startswith("round")}
    return 1 if store("trainer", claims, seconds=middle(taken), hours_of_all_rounds=hours) else 0


if __name__ == "__main__":
    raise SystemExit(main())
