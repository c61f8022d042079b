"""Against packages for the same purpose: LibAUC (AUCM loss, PESG) for AUC, and AP-Perf for F1.

First the time of a model step, at batches of 100 and 1,000 rows, with the paper's network; ours has a surrogate that is
refined after every third step, as the default recipe does. Then the processor time until test rows reach a goal on
ijcnn1: what cross-entropy came to in 500 steps. AUC, or F1 at its best threshold; looking does not count. Peers run
with the settings their own documentation begins with. They are no dependencies: one that is missing is named as such.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from itertools import repeat
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from measuring import FOLDER, in_turns, middle, own_word, ratio, say, store
from metricgrad.estimators.metric_estimator import make_loss
from metricgrad.losses.binary import CrossEntropy
from metricgrad.metrics.registry import get_metric
from metricgrad.paper.experiments import prepared
from metricgrad.training.data import Rows
from metricgrad.training.loader import SetLoader
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES
from metricgrad.training.selection import scores_of
from metricgrad.training.trainer import objectives, train

BATCHES = (100, 1_000)
PATIENCE = 5.0
"""Seconds that a step may take."""
GOALS = {"auc": "LibAUC", "f1": "AP-Perf"}
"""What is to be reached, and who else aims for it."""
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
    """Follow the AUCM loss of LibAUC by its optimizer PESG."""
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
    """Follow the F1 of AP-Perf by Adam."""
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
    """Return why a peer cannot take part; nothing if it takes a step."""
    try:
        rng = torch.Generator().manual_seed(0)
        x = torch.randn(20, features, generator=rng)
        PEERS[name](build_model("mlp", features).train(), "")(x, (torch.arange(20) < 8).float())
    except Exception as error:
        return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


# ---- time of a step --------------------------------------------------------------------------------------------------


def step_times(rows: Rows, peers: list[str], batch: int, repeats: int, steps: int) -> dict[str, Any]:
    """Time some steps of everybody on the same rows in turns."""
    features = rows.x.shape[1]
    sets = SetLoader(rows, replace(RECIPES["default"], set_size=batch), 0, weighted=True)
    drawn = [(x[0], y[0]) for x, y, _ in sets.draw(steps, 1)]
    everybody = {"cross-entropy": cross_entropy, "ours": ours, **{name: PEERS[name] for name in peers}}

    def timed(stepper: Stepper) -> float:
        begun = time.process_time()
        for x, y in drawn:
            stepper(x, y)
        return (time.process_time() - begun) / steps

    steppers = {
        name: partial(timed, make(build_model("mlp", features).train(), "f1")) for name, make in everybody.items()
    }
    times = in_turns(steppers, repeats, timed=own_word, what=f"steps of {batch} rows")
    over = {name: ratio(own, times["ours"]) for name, own in times.items() if name != "ours"}
    return {"batch": batch, "seconds": middle(times), "over_ours": over}


def bearable(peer: str, batch: int, before: list[dict[str, Any]]) -> bool:
    """Say whether a step of a peer is short enough to be timed, if its cost grows with the square of the batch."""
    growth = [one["seconds"][peer] * (batch / one["batch"]) ** 2 for one in before]
    return all(seconds < PATIENCE for seconds in growth)


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
    """Train by the default recipe, cut to 300 steps of warm-up and 300 rounds."""
    torch.manual_seed(0)
    recipe = replace(RECIPES["default"], warmup=300, rounds=300, check_every=10**9, control=False)
    model = build_model("mlp", rows.x.shape[1])
    rounds = train(model, make_loss("sl-r", get_metric(metric), recipe), rows, recipe)
    for done in rounds:
        if done.number % max(1, look // recipe.model_steps) == 0:
            yield model


def until(goal: float, models: Iterator[nn.Module], metric: str, test: Rows, limit: float) -> dict[str, Any]:
    """Return the processor time until the goal is reached, looking not counted, and how far it came if it is not."""
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
    """Let cross-entropy set the goal, and time everybody until it is reached."""
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=15, help="timed together, at the smallest batch")
    parser.add_argument("--limit", type=float, default=30.0, help="seconds after which a goal is given up")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the record is kept")
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
            step_times(parts.train, [p for p in peers if bearable(p, batch, steps)], batch, asked.repeats, some)
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
