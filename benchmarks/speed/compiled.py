"""Whether the public torch.compile makes a step on the surrogate faster: python -m benchmarks.speed.compiled

A step of the paper's network, with the loss as it is and under `torch.compile(loss, fullgraph=True)`: the paper's
surrogate on sets of 100 rows, and the bundled one of F1 on sets of 400 and 4,000. Compiling itself, which takes longer
than many short fits, is timed apart.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.speed.measuring import in_turns, made_up_table, middle, parser_of, ratio, say, self_timed, store
from benchmarks.speed.own_loop import FEATURES, follows, timed
from metricgrad import SurrogateLoss

CASES: dict[str, tuple[Callable[[], SurrogateLoss], int]] = {
    "the paper's surrogate": (lambda: SurrogateLoss("auc", "scratch", config="paper", frozen=True), 100),
    "the bundled one of F1": (lambda: SurrogateLoss("f1", frozen=True), 400),
    "the bundled one of F1, on a grid": (lambda: SurrogateLoss("f1", frozen=True), 4_000),
}
"""Surrogates, and the rows of a set."""


def measure(name: str, repeats: int, steps: int) -> dict[str, Any]:
    """Time steps with the loss as it is and compiled, in turns."""
    make, rows = CASES[name]
    table, labels = made_up_table(rows, FEATURES, 0.1)
    x, y = torch.from_numpy(table).unsqueeze(0), torch.from_numpy(labels).float().unsqueeze(0)
    say(f"compiling {name}")
    begun = time.process_time()
    compiled = follows(torch.compile(make(), fullgraph=True), x, y)
    compiled()
    taken = time.process_time() - begun
    steppers = {"plain": follows(make(), x, y), "compiled": compiled}
    laps = {who: partial(timed, step, steps) for who, step in steppers.items()}
    times = in_turns(laps, repeats, timed=self_timed, what=name)
    return {
        "surrogate": name,
        "rows": rows,
        "seconds": middle(times),
        "compiling_seconds": taken,
        "over_plain": ratio(times["compiled"], times["plain"]),
    }


def main() -> int:
    parser = parser_of(__doc__, repeats=15)
    parser.add_argument("--steps", type=int, default=30, help="timed together")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = [measure(name, asked.repeats, asked.steps) for name in CASES]
    return store("compiled", [], asked.folder, cases=found)


if __name__ == "__main__":
    raise SystemExit(main())
