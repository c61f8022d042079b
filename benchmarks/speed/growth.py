"""How time and memory grow with the rows of a table: of a round, of `fit`, of a metric.

A round draws sets of fixed size, so that it takes the same time however large the table is; a look at the validation
rows, every 50 rounds, does not, and is shown beside it. Memory is the peak of a whole process that makes a table in
single precision and fits a model to it, in a process of its own.
"""

from __future__ import annotations

import argparse
import math
import resource
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.measuring import (
    FOLDER,
    claim,
    in_turns,
    made_up_table,
    middle,
    own_word,
    ratio,
    say,
    spread,
    store,
)
from metricgrad import MetricClassifier
from metricgrad.estimators.metric_estimator import make_loss
from metricgrad.metrics.registry import get_metric
from metricgrad.training.data import Rows
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import train
from studies.common import ROOT

SIZES = (10_000, 100_000, 1_000_000, 5_000_000)
FEATURES = 8
AT_A_TIME = 20
"""Rounds that are timed together."""
METRICS = ("auc", "best_f1", "f1")
LENGTHS = (100_000, 1_000_000, 10_000_000)
STATUS = Path("/proc/self/status")
GIVEN = 600e6
"""Bytes for Python, torch and what else does not depend on the rows."""


# ---- time of a round -------------------------------------------------------------------------------------------------


class Rounds:
    """Training on a table of some rows, round by round, without looking at validation rows."""

    def __init__(self, rows: int) -> None:
        X, y = made_up_table(rows, FEATURES)
        table = Rows(torch.from_numpy(X), torch.from_numpy(y).float())
        recipe = replace(RECIPES["default"], warmup=0, trust=-1.0, check_every=10**9)
        torch.manual_seed(0)
        self.model = build_model("mlp", FEATURES)
        self.rounds = train(self.model, make_loss("sl-r", get_metric("f1"), recipe), table, recipe)
        some = rows // 4  # a fifth of all rows, where these are the other four
        self.guard = Selection(Rows(table.x[:some], table.y[:some]), get_metric("f1"), recipe)

    def some(self) -> float:
        """Return the processor time of some rounds."""
        begun = time.process_time()
        for _ in range(AT_A_TIME):
            next(self.rounds)
        return (time.process_time() - begun) / AT_A_TIME

    def look(self) -> float:
        """Return the processor time of a look at validation rows, a quarter as many as the rows trained on."""
        begun = time.process_time()
        self.guard.check(self.model, bold=True)
        return time.process_time() - begun


def by_rows(sizes: tuple[int, ...], repeats: int) -> dict[str, Any]:
    """Time rounds on tables of all sizes in turns."""
    tables = {str(rows): Rounds(rows) for rows in sizes}
    times = in_turns({n: t.some for n, t in tables.items()}, repeats, timed=own_word, what="rounds")
    looks = in_turns({n: t.look for n, t in tables.items()}, 2, timed=own_word, what="looks at validation rows")
    first = str(sizes[0])
    return {
        "features": FEATURES,
        "seconds": middle(times),
        "look_seconds": middle(looks),
        "ratio": {n: ratio(own, times[first]) for n, own in times.items()},
    }


# ---- memory of fit ---------------------------------------------------------------------------------------------------


def peak_memory() -> int:
    """Return the peak memory of this process in bytes; on Linux without that of its parent."""
    lines = [line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM")] if STATUS.is_file() else []
    if lines:
        return int(lines[0].split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def fit_and_weigh(rows: int, features: int) -> None:
    """Print the peak memory of this process before and after fitting a table, in bytes."""
    X, y = made_up_table(rows, features)
    before = peak_memory()
    recipe = replace(RECIPES["default"], warmup=60, rounds=20, trust=-1.0)
    MetricClassifier("f1", recipe=recipe, random_state=0).fit(X, y)
    print(before, peak_memory())


def memory(rows: int, features: int) -> dict[str, float]:
    """Fit in a process of its own; return its peak above what is given to every process, in copies of the table."""
    say(f"memory of fit on {rows:,} rows of {features} features")
    asked = [sys.executable, "-m", "benchmarks.speed.growth", "--weigh", f"{rows},{features}"]
    ended = subprocess.run(asked, capture_output=True, text=True, check=True, cwd=ROOT)
    before, peak = map(int, ended.stdout.split())
    table = 4 * rows * features
    return {
        "rows": rows,
        "features": features,
        "table_bytes": table,
        "before_bytes": before,
        "peak_bytes": peak,
        "copies": (peak - GIVEN) / table,
    }


# ---- time of a metric ------------------------------------------------------------------------------------------------


def metric_growth(name: str, lengths: tuple[int, ...], repeats: int) -> dict[str, Any]:
    """Time a metric on longer and longer sets; return how its cost grows over that of sorting, n log n."""
    judge = get_metric(name.removeprefix("best_"))
    judge = judge.best if name.startswith("best_") else judge
    rng = torch.Generator().manual_seed(0)
    sets = {}
    for n in lengths:
        targets = (torch.rand(n, generator=rng) < 0.3).float()
        sets[str(n)] = (torch.randn(n, generator=rng) + targets, targets)

    of_system: dict[str, list[float]] = {n: [] for n in sets}

    def timed(n: str) -> float:
        system, begun = resource.getrusage(resource.RUSAGE_SELF).ru_stime, time.process_time()
        judge(*sets[n])
        taken = time.process_time() - begun
        of_system[n].append(resource.getrusage(resource.RUSAGE_SELF).ru_stime - system)
        return taken

    times = in_turns({n: lambda n=n: timed(n) for n in sets}, repeats, timed=own_word, what=f"{name} on long sets")
    longest, before = (str(n) for n in (lengths[-1], lengths[-2]))
    sorting = lengths[-1] * math.log(lengths[-1]) / (lengths[-2] * math.log(lengths[-2]))
    grown = spread([a / b / sorting for a, b in zip(times[longest], times[before], strict=True)])
    return {"metric": name, "seconds": middle(times), "system_seconds": middle(of_system), "growth": grown}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="rows of the largest table")
    parser.add_argument("--longest", type=int, default=LENGTHS[-1], help="rows of the longest set")
    parser.add_argument("--weigh", help="rows,features: only fit, and print the peak memory")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the record is kept")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.weigh:
        fit_and_weigh(*map(int, asked.weigh.split(",")))
        return 0
    sizes = tuple(rows for rows in SIZES if rows <= asked.largest)
    rounds = by_rows(sizes, asked.repeats)
    weighed = [memory(asked.largest * 2 // 5, 50), memory(asked.largest, FEATURES)]
    lengths = tuple(n for n in LENGTHS if n <= asked.longest)
    grown = [metric_growth(name, lengths, max(3, asked.repeats // 2)) for name in METRICS]
    worst = max((one["growth"] for one in grown), key=lambda growth: growth["ratio"])
    claims = [
        claim(f"time of a round, {sizes[-1]:,} rows over {sizes[0]:,}", rounds["ratio"][str(sizes[-1])], at_most=1.2),
        *(
            claim(
                f"peak memory of fit, less 600 MB, in tables; {one['features']} features",
                spread([one["copies"]]),
                at_most=1.6,
            )
            for one in weighed
        ),
        claim(f"cost of a metric, {lengths[-2]:,} to {lengths[-1]:,} rows, over n log n", worst, at_most=1.0),
    ]
    return 1 if store("growth", claims, asked.folder, rounds=rounds, memory=weighed, metrics=grown) else 0


if __name__ == "__main__":
    raise SystemExit(main())
