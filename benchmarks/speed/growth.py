"""How time and memory of a round, of `fit` and of a metric grow with the rows: python -m benchmarks.speed.growth

A round draws sets of fixed size, so it takes the same time for any size of the table; a check on the validation rows,
every 50 rounds, does not, and is shown beside it. Memory is the peak of a new process that creates a table in single
precision and fits a model to it.
"""

from __future__ import annotations

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
    claim,
    in_turns,
    made_up_table,
    middle,
    parser_of,
    ratio,
    say,
    self_timed,
    spread,
    store,
)
from metricgrad import MetricClassifier
from metricgrad.metrics.registry import get_metric
from metricgrad.training.data import Rows
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import train
from studies.pages import ROOT

SIZES = (10_000, 100_000, 1_000_000, 5_000_000)
FEATURES = 8
ROUNDS_PER_LAP = 20
"""Rounds that are timed together."""
METRICS = ("auc", "best_f1", "f1")
LENGTHS = (100_000, 1_000_000, 10_000_000)
STATUS = Path("/proc/self/status")
FIXED_BYTES = 600e6
"""Bytes for Python, torch and everything else that does not depend on the rows."""


# ---- time of a round -------------------------------------------------------------------------------------------------


class Rounds:
    """Training on a table of some rows, round by round, without checks on validation rows."""

    def __init__(self, rows: int) -> None:
        X, y = made_up_table(rows, FEATURES)
        table = Rows(torch.from_numpy(X), torch.from_numpy(y).float())
        recipe = replace(RECIPES["default"], warmup=0, trust=-1.0, check_every=10**9)
        torch.manual_seed(0)
        self.model = build_model("mlp", FEATURES)
        self.rounds = train(self.model, make_loss("sl-r", get_metric("f1"), recipe), table, recipe)
        some = rows // 4  # a fifth of all rows, where these are the other four
        self.selection = Selection(Rows(table.x[:some], table.y[:some]), get_metric("f1"), recipe)

    def several(self) -> float:
        """Return the mean processor time of several rounds."""
        begun = time.process_time()
        for _ in range(ROUNDS_PER_LAP):
            next(self.rounds)
        return (time.process_time() - begun) / ROUNDS_PER_LAP

    def check(self) -> float:
        """Return the processor time of a check on validation rows, a quarter as many as the training rows."""
        begun = time.process_time()
        self.selection.check(self.model, followed=True)
        return time.process_time() - begun


def by_rows(sizes: tuple[int, ...], repeats: int) -> dict[str, Any]:
    """Time rounds on tables of all sizes in turns."""
    tables = {str(rows): Rounds(rows) for rows in sizes}
    times = in_turns({n: t.several for n, t in tables.items()}, repeats, timed=self_timed, what="rounds")
    looks = in_turns({n: t.check for n, t in tables.items()}, 2, timed=self_timed, what="looks at validation rows")
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
    MetricClassifier("f1", "sl-r", recipe=recipe, random_state=0).fit(X, y)
    print(before, peak_memory())


def memory(rows: int, features: int) -> dict[str, float]:
    """Fit in a new process; return its peak memory above the fixed part, in copies of the table."""
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
        "copies": (peak - FIXED_BYTES) / table,
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

    times = in_turns({n: lambda n=n: timed(n) for n in sets}, repeats, timed=self_timed, what=f"{name} on long sets")
    longest, before = (str(n) for n in (lengths[-1], lengths[-2]))
    sorting = lengths[-1] * math.log(lengths[-1]) / (lengths[-2] * math.log(lengths[-2]))
    grown = spread([a / b / sorting for a, b in zip(times[longest], times[before], strict=True)])
    return {"metric": name, "seconds": middle(times), "system_seconds": middle(of_system), "growth": grown}


def main() -> int:
    parser = parser_of(__doc__, repeats=7)
    parser.add_argument("--largest", type=int, default=SIZES[-1], help="rows of the largest table")
    parser.add_argument("--longest", type=int, default=LENGTHS[-1], help="rows of the longest set")
    parser.add_argument("--weigh", help="rows,features: only fit, and print the peak memory")
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
