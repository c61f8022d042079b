"""What a user runs, timed beside what a user would run otherwise: python -m benchmarks.speed.user

Fits on tables of 20,000 rows (synthetic, 30 features; ijcnn1), one thread, in processor time as a ratio to LightGBM
with 200 trees in the same run, with the metric on test rows beside it. Then the first fit of metrics that have no
bundled surrogate, with an empty cache; `metricgrad fit` on a CSV file of 50,000 x 30; `compare` with five methods on
six splits of as many rows.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from benchmarks.speed.measuring import claim, in_turns, middle, parser_of, ratio, say, self_timed, spread, store_parts
from benchmarks.speed.user_contestants import (
    OLD_RECIPE,
    OLD_RECIPE_MODELS,
    TREES,
    WIDE,
    Data,
    Fit,
    binary_contestants,
    made_up,
    ours,
    real,
    trees,
)
from metricgrad import black_box, compare
from metricgrad.training.networks import MODELS
from studies.pages import ROOT

NAME = "user"
OVER_TREES = {"F1: linear": 3.0, "F1: additive": 6.0}
OVER_CROSS_ENTROPY = {"mlp": 2.5, WIDE: 1.6}
OVER_OLD_RECIPE = {"mlp": 1 / 3}
"""Bars over LightGBM, over cross-entropy with the same model, and over the recipe of version 0.1."""
FIRST_FIT_SECONDS = {"black box of labels": 10.0, "black box of scores": 20.0}
"""Bars for the first fit of a black box, beyond its calls and a fit with a bundled surrogate."""
MAX_CALLS = 4_000
OLD_VERSION = "version 0.1"
COMPARE_SECONDS = {"linear": 60.0, "additive": 60.0, "mlp": 240.0}
LARGE_ROWS = 50_000


# ---- fits on 20,000 rows ---------------------------------------------------------------------------------------------


def timed_fits(data: Data, contestants: Mapping[str, Fit], repeats: int, what: str) -> dict[str, Any]:
    """Time all contestants in turns, and return their ratios to LightGBM and their metric on test rows."""
    reached: dict[str, float] = {}

    def timed(name: str, fit: Fit) -> float:
        say(f"{what}: {name}")
        begun = time.process_time()
        reached[name] = fit(data)
        return time.process_time() - begun

    ready: dict[str, Callable[[], float]] = {
        name: lambda name=name, fit=fit: timed(name, fit)  # type: ignore[misc]
        for name, fit in contestants.items()
    }
    times = in_turns(ready, repeats, timed=self_timed, warm=False, what=what)
    return {
        "table": what,
        "rows": len(data.y),
        "features": data.X.shape[1],
        "positives": float((data.y == 1).mean()),
        "seconds": middle(times),
        "over_trees": {name: ratio(own, times[TREES]) for name, own in times.items()},
        "over_cross_entropy": {
            name.removeprefix("F1: "): ratio(own, times[name.replace("F1", "cross-entropy")])
            for name, own in times.items()
            if name.startswith("F1: ")
        },
        "over_old_recipe": {
            model: ratio(times[f"F1: {model}"], times[f"{OLD_RECIPE}: {model}"]) for model in OLD_RECIPE_MODELS
        },
        "test_metric": reached,
    }


# ---- the first fit of a metric ---------------------------------------------------------------------------------------


class Counted:
    """A function that counts its calls and their processor time."""

    def __init__(self, function: Callable[..., float]) -> None:
        self.function, self.calls, self.seconds = function, 0, 0.0

    def __call__(self, y_true: np.ndarray, y_score: np.ndarray) -> float:
        """Call the function."""
        begun = time.process_time()
        value = self.function(y_true, y_score)
        self.calls, self.seconds = self.calls + 1, self.seconds + time.process_time() - begun
        return value


def profit(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    """Return the gain of acting on every row called positive: a hit earns 8, a false alarm costs 1."""
    hits = float((y_pred * y_true).sum())
    return (8 * hits - float((y_pred * (1 - y_true)).sum())) / max(1.0, 8 * float(y_true.sum()))


def early_lift(y_true: np.ndarray, y_score: np.ndarray) -> float:
    """Return the share of positives among the highest tenth, the higher ones counting more."""
    order = np.argsort(-y_score, kind="stable")[: max(1, len(y_true) // 10)]
    decay = np.exp(-np.arange(len(order)) / (0.5 * len(order)))
    return float((decay * y_true[order]).sum() / decay.sum())


@contextmanager
def empty_cache() -> Any:
    """Let surrogates be cached in a new folder."""
    before = os.environ.get("METRICGRAD_CACHE")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["METRICGRAD_CACHE"] = folder
        try:
            yield
        finally:
            if before is None:
                del os.environ["METRICGRAD_CACHE"]
            else:
                os.environ["METRICGRAD_CACHE"] = before


def first_fits(model: str) -> list[dict[str, Any]]:
    """Fit a model for metrics without a bundled surrogate, twice: with an empty cache, then with what is cached."""
    two, five = made_up(), made_up(classes=5)
    known = timed_once(ours(model), two)
    found = []
    for name, data, function, options in (
        ("black box of labels", two, profit, {"labels": True}),
        ("black box of scores", two, early_lift, {}),
        ("macro F1 of five classes", five, None, {}),
    ):
        counted = Counted(function) if function else None
        metric = black_box(counted, higher_is_better=True, name=name, **options) if counted else "macro_f1"  # type: ignore[arg-type]
        runs = []
        with empty_cache():
            for _ in range(2):
                say(f"{name}: fit {len(runs) + 1}")
                calls, inside = (counted.calls, counted.seconds) if counted else (0, 0.0)
                seconds, value = timed_once(ours(model, metric=metric), data)
                own = (counted.calls - calls, counted.seconds - inside) if counted else (0, 0.0)
                runs.append({"seconds": seconds, "calls": own[0], "call_seconds": own[1], "test_metric": value})
        found.append({"metric": name, "model": model, "bundled_seconds": known[0], "first": runs[0], "second": runs[1]})
    return found


def timed_once(fit: Fit, data: Data) -> tuple[float, float]:
    """Return the processor time of a fit and the metric on test rows."""
    begun = time.process_time()
    value = fit(data)
    return time.process_time() - begun, value


# ---- the command, and compare ----------------------------------------------------------------------------------------


def command_fits(models: list[str]) -> list[dict[str, Any]]:
    """Run `metricgrad fit` on a CSV file, and return the processor time of the process."""
    data, found = made_up(LARGE_ROWS), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        frame = pd.DataFrame(data.X, columns=[f"f{i}" for i in range(data.X.shape[1])])
        frame.assign(label=data.y).to_csv(path, index=False)
        for model in models:
            say(f"metricgrad fit: {model}")
            asked = ("fit", str(path), "--target", "label", "--model", model, "--out", str(Path(folder) / model))
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, "-m", "metricgrad", *asked], check=True, cwd=ROOT, capture_output=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            found.append({"model": model, "rows": LARGE_ROWS, "seconds": seconds})
    return found


def comparison(model: str) -> dict[str, Any]:
    """Run `compare` with its five methods on six splits, in this process."""
    data = made_up(LARGE_ROWS)
    say(f"compare: {model}")
    begun, wall = time.process_time(), time.perf_counter()
    result = compare(data.X, data.y, "f1", model=model, n_jobs=1)
    return {
        "model": model,
        "rows": LARGE_ROWS,
        "methods": len(set(result.methods)),
        "seconds": time.process_time() - begun,
        "wall_seconds": time.perf_counter() - wall,
    }


# ---- claims ----------------------------------------------------------------------------------------------------------


def claims_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compare what was measured with the bars; the first table decides, the others are shown."""
    first, claims = record["fits"][0], []
    for name, bar in OVER_TREES.items():
        if name in first["over_trees"]:
            says = f"fit for {name.replace(': ', ', ')}, times as long as LightGBM"
            claims.append(claim(says, first["over_trees"][name], at_most=bar))
    for model, bar in OVER_CROSS_ENTROPY.items():
        says = f"fit for F1, {model}, times as long as cross-entropy alone"
        claims.append(claim(says, first["over_cross_entropy"][model], at_most=bar))
    for model, bar in OVER_OLD_RECIPE.items():
        over = record["old_recipe"]["over"][model]
        claims.append(claim(f"fit for F1, {model}, over the recipe of 0.1", over, at_most=bar))
    if "old_version" in record:
        over = record["old_version"]["over"]["mlp"]
        claims.append(claim("fit for F1, mlp, over version 0.1", over, at_most=OVER_OLD_RECIPE["mlp"]))
    for one in record["first_fits"]:
        if bar := FIRST_FIT_SECONDS.get(one["metric"], 0.0):
            beyond = one["first"]["seconds"] - one["first"]["call_seconds"] - one["bundled_seconds"]
            says = f"first fit, {one['metric']}, beyond calls and a fit, in units of {bar:.0f} s"
            claims.append(claim(says, spread([beyond / bar]), at_most=1))
            calls = spread([one["first"]["calls"] / MAX_CALLS])
            claims.append(claim(f"calls of a {one['metric']} in a first fit, over {MAX_CALLS:,}", calls, at_most=1))
    for model, bar in COMPARE_SECONDS.items():
        one = record[f"compare_{model}"]
        says = f"compare, {model}, 50,000 x 30, five methods, six splits, in units of {bar:.0f} s"
        claims.append(claim(says, spread([one["seconds"] / bar]), at_most=1))
    return claims


def old_recipe(repeats: int) -> dict[str, Any]:
    """Time the paper's network by the default recipe and by that of version 0.1, every lap on another table."""
    reached: dict[str, list[float]] = {"now": [], OLD_RECIPE: []}

    def timed(name: str, recipe: str) -> float:
        seed = len(reached[name])
        seconds, value = timed_once(ours("mlp", recipe=recipe, seed=seed), made_up(seed=seed))
        reached[name].append(value)
        return seconds

    ready = {"now": lambda: timed("now", "default"), OLD_RECIPE: lambda: timed(OLD_RECIPE, "default-0.1")}
    times = in_turns(ready, repeats, timed=self_timed, warm=False, what="recipes")
    over = {"mlp": ratio(times["now"], times[OLD_RECIPE])}
    return {"over": over, "seconds": middle(times), "test_metric": reached, "laps": repeats}


FIT_ONCE = """
import sys, time, warnings
import numpy as np, torch
from metricgrad import MetricClassifier
warnings.simplefilter("ignore")
torch.set_num_threads(1)
data = np.load(sys.argv[1])
MetricClassifier("f1", "sl-r", random_state=0).fit(data["X"][:500], data["y"][:500])  # late imports must not be timed
begun = time.process_time()
model = MetricClassifier("f1", "sl-r", random_state=0).fit(data["X"], data["y"])
print(time.process_time() - begun, model.score(data["X_test"], data["y_test"]))
"""
"""Fits the paper's network as it is by default, in any version, and prints processor seconds and F1."""


def old_version(folder: Path, repeats: int) -> dict[str, Any]:
    """Time the default fit of the paper's network beside that of another version, whose checkout is in a folder."""
    reached: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "data.npz"
        np.savez(path, **made_up()._asdict())

        def timed(name: str, source: Path) -> float:
            environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
            done = subprocess.run(
                [sys.executable, "-c", FIT_ONCE, str(path)], env=environment, capture_output=True, text=True, check=True
            )
            seconds, reached[name] = map(float, done.stdout.split())
            return seconds

        ready = {
            "now": lambda: timed("now", Path(__file__).parents[2] / "src"),
            OLD_VERSION: lambda: timed(OLD_VERSION, folder / "src"),
        }
        times = in_turns(ready, repeats, timed=self_timed, warm=False, what="versions")
    commit = subprocess.run(
        ["git", "-C", str(folder), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    ).stdout.strip()
    over = {"mlp": ratio(times["now"], times[OLD_VERSION])}
    return {"over": over, "seconds": middle(times), "test_metric": reached, "laps": repeats, "commit": commit}


def measured(asked: Any) -> dict[str, Any]:
    """Measure the parts that were asked for."""
    parts, found, models = asked.parts.split(","), {}, [name for name in asked.models.split(",") if name in MODELS]
    if "fits" in parts:
        contestants, found["missing"] = binary_contestants()
        found["fits"] = [
            timed_fits(
                make(),
                {who: fit for who, fit in contestants.items() if number == 0 or not who.endswith(WIDE)},
                asked.repeats,
                name,
            )
            for number, (name, make) in enumerate({"synthetic": made_up, "ijcnn1": real}.items())
        ]
    if "old" in parts:
        found["old_recipe"] = old_recipe(asked.repeats)
    if asked.before:
        found["old_version"] = old_version(asked.before, asked.repeats)
    if "first" in parts:
        found["first_fits"] = first_fits("linear")
    if "command" in parts:
        found["commands"] = command_fits(models)
    for model in models if "compare" in parts else ():
        found[f"compare_{model}"] = comparison(model)
    return found


def main() -> int:
    parser = parser_of(__doc__, repeats=3)
    parser.add_argument("--parts", default="fits,old,first,command,compare", help="what to measure; others stay")
    parser.add_argument("--before", type=Path, help="a checkout of version 0.1, to time the network by its code too")
    parser.add_argument("--models", default="linear,additive,mlp", help="of the command and of compare")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    os.environ["OMP_NUM_THREADS"] = "1"  # for the processes of the command
    warnings.simplefilter("ignore")
    trees(made_up(2_000))
    ours("linear")(made_up(2_000))  # late imports must not be timed
    return 1 if store_parts(NAME, measured(asked), claims_of, asked.folder) else 0


if __name__ == "__main__":
    raise SystemExit(main())
