"""Against LibAUC (AUCM loss, PESG) for AUC and AP-Perf for F1: python -m benchmarks.speed.peers

First the time of a model step, with batches of 100 and 1,000 rows and the paper's network; ours has a surrogate that is
refined after every third step, as in the default recipe. Then the processor time until the test rows of ijcnn1 reach a
goal, the value that cross-entropy reached in 500 steps: AUC, or F1 at its best threshold; evaluation is not timed.
Peers have the settings their documentation starts with. They are not dependencies: one that is missing is listed as
such.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import repeat
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.speed.measuring import in_turns, middle, parser_of, ratio, say, self_timed, store
from metricgrad.losses.binary import CrossEntropy
from metricgrad.metrics.registry import get_metric
from metricgrad.paper.experiments import prepared
from metricgrad.training.data import Rows
from metricgrad.training.loader import SetLoader
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES
from metricgrad.training.selection import scores_of
from metricgrad.training.steps import objectives
from metricgrad.training.trainer import train

BATCHES = (100, 1_000)
MAX_STEP_SECONDS = 5.0
"""Most seconds of a step."""
GOALS = {"auc": "LibAUC", "f1": "AP-Perf"}
"""Metrics with a goal, and the peer for each."""
PACKAGES = {"LibAUC": "libauc", "AP-Perf": "ap_perf"}
Stepper = Callable[[Tensor, Tensor], None]
"""Takes one model step on rows `(n, features)` and targets `(n,)`."""


def cross_entropy(model: nn.Module, metric: str) -> Stepper:
    """Follow cross-entropy by Adam."""
    return follower(model, CrossEntropy(), 0.0)


def follower(model: nn.Module, loss: nn.Module, anchor: float) -> Stepper:
    """Follow a loss as the trainer does."""
    optimizer = torch.optim.Adam(model.parameters(), RECIPES["default"].learning_rate, fused=True)

    def step(x: Tensor, y: Tensor) -> None:
        (value,) = objectives([loss], model(x).unsqueeze(0), y, torch.ones_like(y), anchor)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()

    return step


def ours(model: nn.Module, metric: str) -> Stepper:
    """Follow a surrogate that is refined on eight sets after every third step."""
    recipe = RECIPES["default"]
    loss = make_loss("sl-r", get_metric(metric), recipe)
    follow, taken = follower(model, loss, recipe.anchor), 0

    def step(x: Tensor, y: Tensor) -> None:
        nonlocal taken
        follow(x.unsqueeze(0), y.unsqueeze(0))
        taken += 1
        if taken % recipe.model_steps == 0:
            places = torch.stack([torch.randperm(len(y)) for _ in range(recipe.refine_sets)])
            loss.refine(scores_of(model, x[places]), y[places])
            model.train()

    return step


def libauc(model: nn.Module, metric: str) -> Stepper:
    """Train on the AUCM loss of LibAUC with its optimizer PESG."""
    from libauc.losses import AUCMLoss
    from libauc.optimizers import PESG

    loss = AUCMLoss()
    optimizer = PESG(
        model.parameters(), loss_fn=loss, lr=0.1, momentum=0.9, margin=1.0, epoch_decay=2e-3, verbose=False
    )

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        loss(model(x).sigmoid(), y).backward()
        optimizer.step()

    return step


def ap_perf(model: nn.Module, metric: str) -> Stepper:
    """Train on the F1 of AP-Perf with Adam."""
    from ap_perf import MetricLayer, PerformanceMetric

    class F1(PerformanceMetric):
        def define(self, C: Any) -> Any:
            return (2 * C.tp) / (C.ap + C.pp)

    f1 = F1()
    f1.initialize()
    f1.enforce_special_case_positive()
    layer = MetricLayer(f1)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step(x: Tensor, y: Tensor) -> None:
        optimizer.zero_grad()
        layer(model(x), y).backward()
        optimizer.step()

    return step


PEERS = {"LibAUC": libauc, "AP-Perf": ap_perf}


def there(name: str, features: int) -> str:
    """Return why a peer cannot take part, or an empty text if it can take a step."""
    try:
        rng = torch.Generator().manual_seed(0)
        x = torch.randn(20, features, generator=rng)
        PEERS[name](build_model("mlp", features).train(), "")(x, (torch.arange(20) < 8).float())
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


# ---- time of a step --------------------------------------------------------------------------------------------------


def step_times(rows: Rows, peers: list[str], batch: int, repeats: int, steps: int) -> dict[str, Any]:
    """Time steps of all contestants on the same rows in turns."""
    features = rows.x.shape[1]
    sets = SetLoader(rows, replace(RECIPES["default"], set_size=batch), 0, weighted=True)
    drawn = [(x[0], y[0]) for x, y, _ in sets.draw(steps, 1)]
    contestants = {"cross-entropy": cross_entropy, "ours": ours, **{name: PEERS[name] for name in peers}}

    def timed(stepper: Stepper) -> float:
        begun = time.process_time()
        for x, y in drawn:
            stepper(x, y)
        return (time.process_time() - begun) / steps

    steppers = {
        name: partial(timed, make(build_model("mlp", features).train(), "f1")) for name, make in contestants.items()
    }
    times = in_turns(steppers, repeats, timed=self_timed, what=f"steps of {batch} rows")
    over = {name: ratio(own, times["ours"]) for name, own in times.items() if name != "ours"}
    return {"batch": batch, "seconds": middle(times), "over_ours": over}


def is_affordable(peer: str, batch: int, before: list[dict[str, Any]]) -> bool:
    """Whether a step of a peer is short enough to be timed, if its cost grows with the square of the batch."""
    growth = [one["seconds"][peer] * (batch / one["batch"]) ** 2 for one in before]
    return all(seconds < MAX_STEP_SECONDS for seconds in growth)


# ---- time to a goal --------------------------------------------------------------------------------------------------


def course(make: Callable[[nn.Module, str], Stepper], rows: Rows, metric: str, look: int) -> Iterator[nn.Module]:
    """Train on batches of 100 natural rows, and yield the model after every so many steps."""
    torch.manual_seed(0)
    model = build_model("mlp", rows.x.shape[1]).train()
    step = make(model, metric)
    rng = torch.Generator().manual_seed(0)
    for _ in repeat(None):
        for _ in range(look):
            some = torch.randint(len(rows.y), (100,), generator=rng)
            step(rows.x[some], rows.y[some])
        yield model
        model.train()


def our_course(rows: Rows, metric: str, look: int) -> Iterator[nn.Module]:
    """Train by the default recipe, shortened to 300 steps of warm-up and 300 rounds."""
    torch.manual_seed(0)
    recipe = replace(RECIPES["default"], warmup=300, rounds=300, check_every=10**9, control=False)
    model = build_model("mlp", rows.x.shape[1])
    rounds = train(model, make_loss("sl-r", get_metric(metric), recipe), rows, recipe)
    for done in rounds:
        if done.number % max(1, look // recipe.model_steps) == 0:
            yield model


def until(goal: float, models: Iterator[nn.Module], metric: str, test: Rows, limit: float) -> dict[str, Any]:
    """Return the processor time until the goal is reached, evaluation excluded, and the best value."""
    judge, spent, best = get_metric(metric).best, 0.0, 1.0
    while spent < limit:
        begun = time.process_time()
        model = next(models, None)
        spent += time.process_time() - begun
        if model is None:
            break
        best = min(best, float(judge(scores_of(model, test.x), test.y)))
        if best <= goal:
            return {"reached": True, "seconds": spent, "value": 1 - best}
    return {"reached": False, "seconds": spent, "value": 1 - best}


def to_goal(metric: str, train_rows: Rows, test: Rows, peer: str | None, limit: float) -> dict[str, Any]:
    """Set the goal by cross-entropy, and time all contestants until they reach it."""
    say(f"{metric}: how long to the goal")
    look = 25
    start = course(cross_entropy, train_rows, metric, look)
    judge = get_metric(metric).best
    goal = min(float(judge(scores_of(next(start), test.x), test.y)) for _ in range(500 // look))
    contestants = {
        "cross-entropy": course(cross_entropy, train_rows, metric, look),
        "ours": our_course(train_rows, metric, look),
    }
    if peer:
        contestants[peer] = course(PEERS[peer], train_rows, metric, look)
    found = {name: until(goal, models, metric, test, limit) for name, models in contestants.items()}
    return {"metric": metric, "goal": 1 - goal, "found": found}


def main() -> int:
    parser = parser_of(__doc__, repeats=5)
    parser.add_argument("--steps", type=int, default=15, help="timed together, at the smallest batch")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds after which a goal is given up")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    parts = prepared("ijcnn1", 0, standardise=True)
    why = {name: there(name, parts.train.x.shape[1]) for name in PEERS}
    peers = [name for name, reason in why.items() if not reason]
    steps: list[dict[str, Any]] = []
    for batch in BATCHES:
        some = max(1, asked.steps * BATCHES[0] // batch)
        steps.append(
            step_times(parts.train, [p for p in peers if is_affordable(p, batch, steps)], batch, asked.repeats, some)
        )
    goals = [
        to_goal(metric, parts.train, parts.test, peer if peer in peers else None, asked.limit)
        for metric, peer in GOALS.items()
    ]
    packages = {name: version(PACKAGES[name]) for name in peers}
    missing = {name: reason for name, reason in why.items() if reason}
    return store("peers", [], asked.folder, packages=packages, missing=missing, steps=steps, goals=goals)


if __name__ == "__main__":
    raise SystemExit(main())
