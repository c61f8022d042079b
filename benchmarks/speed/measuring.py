"""What all benchmarks share: contestants that take turns, claims about their ratios, the machine, and the records.

On a busy machine a single time means little. Contestants take turns within one run, so that whatever slows one slows
all; the result is the median of the ratios of neighbours, with its quartiles.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import NormalDist, median, quantiles
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from metricgrad.provenance import provenance
from metricgrad.training.networks import PAPER_WIDTHS, mlp
from studies.pages import RESULTS

FOLDER = RESULTS / "benchmarks"
CPU_INFO = Path("/proc/cpuinfo")
CHUNK = 65_536
ORIGIN = ("command", "made_by", "machine")
"""Fields of every record that say where it comes from."""
Contestant = Callable[[], Any]


def parser_of(doc: str, repeats: int) -> argparse.ArgumentParser:
    """Return a parser with the options of all benchmarks."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=repeats, help="laps that count")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the record is stored")
    return parser


def seconds(run: Contestant) -> float:
    """Return the wall time of a call."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def processor_seconds(run: Contestant) -> float:
    """Return the processor time of a call; for one thread the waiting time on an idle machine."""
    start = time.process_time()
    run()
    return time.process_time() - start


def self_timed(run: Contestant) -> float:
    """Return the time that a contestant reports itself, without its set-up."""
    return float(run())


def in_turns(
    contestants: Mapping[str, Contestant],
    repeats: int,
    *,
    timed: Callable[[Contestant], float] = seconds,
    warm: bool = True,
    what: str = "",
) -> dict[str, list[float]]:
    """Time contestants in turns, each once a lap, every second lap backwards; return the times of each, lap by lap.

    Parameters
    ----------
    contestants : mapping of str to callable
        Contestants by name.
    repeats : int
        Laps that count.
    timed : callable
        `seconds`, `processor_seconds`, or `self_timed` for contestants that time themselves.
    warm : bool
        Whether to run one lap first that does not count.
    what : str
        Shown as progress.
    """
    if warm:
        for run in contestants.values():
            run()
    found: dict[str, list[float]] = {name: [] for name in contestants}
    for lap in range(repeats):
        say(f"{what}: lap {lap + 1} of {repeats}" if what else "")
        for name in list(contestants)[:: -1 if lap % 2 else 1]:
            found[name].append(timed(contestants[name]))
    say("")
    return found


def ratio(above: Sequence[float], below: Sequence[float]) -> dict[str, float]:
    """Return the median of the ratios of two contestants, lap by lap, and its quartiles."""
    return spread([a / b for a, b in zip(above, below, strict=True)])


def spread(found: Sequence[float]) -> dict[str, float]:
    """Return the median of some numbers, and their quartiles."""
    low, middle, high = quantiles(found, n=4, method="inclusive") if len(found) > 1 else [found[0]] * 3
    return {"ratio": middle, "quartile_low": low, "quartile_high": high}


def middle(times: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median seconds of every contestant; only ratios can be compared between runs."""
    return {name: median(own) for name, own in times.items()}


def made_up_table(rows: int, features: int, positives: float = 0.2, seed: int = 0) -> tuple[Any, Any]:
    """Return a synthetic table that cannot be learned perfectly: features in single precision, and labels.

    It is filled in chunks, so that its creation takes no more memory than the table.
    """
    rng = np.random.default_rng(seed)
    direction = rng.standard_normal(features) / features**0.5
    X, y = np.empty((rows, features), np.float32), np.empty(rows, np.int8)
    cut = NormalDist(0, 2**0.5).inv_cdf(1 - positives)
    for start in range(0, rows, CHUNK):
        part = slice(start, min(start + CHUNK, rows))
        X[part] = rng.standard_normal((part.stop - start, features), np.float32)
        y[part] = X[part] @ direction + rng.standard_normal(part.stop - start) > cut
    return X, y


def wide(times: int) -> Callable[[int], nn.Module]:
    """Return a factory of the paper's network, some times wider."""
    return partial(mlp, widths=tuple(times * width for width in PAPER_WIDTHS))


def claim(
    says: str, found: Mapping[str, float], *, at_most: float | None = None, at_least: float | None = None
) -> dict[str, Any]:
    """Return a claim, its measurement and whether it holds, as plain data."""
    if (at_most is None) == (at_least is None):
        raise ValueError(f"claim: expected one of at_most and at_least, got {at_most!r} and {at_least!r}")
    bar = {"at_most": at_most} if at_least is None else {"at_least": at_least}
    met = found["ratio"] <= at_most if at_most is not None else found["ratio"] >= at_least
    return {"says": says, **found, **bar, "met": bool(met)}


def machine() -> dict[str, Any]:
    """Return what times depend on: processor, cores, threads of torch, and the load of the machine."""
    named = [line.split(":", 1)[1].strip() for line in _lines(CPU_INFO) if line.startswith("model name")]
    return {
        "machine": platform.machine(),
        "processor": named[0] if named else platform.processor(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def store(name: str, claims: Sequence[Mapping[str, Any]], folder: Path = FOLDER, **found: Any) -> int:
    """Store and show a measurement, and return how many claims do not hold.

    The record has the command, version, commit and date, the machine, the claims, and the fields of `found`.
    """
    taken = {*ORIGIN, "claims"} & set(found)
    if taken:
        raise ValueError(f"found: expected fields of other names than those of every record, got {sorted(taken)}")
    record = {**origin(), "claims": list(claims), **found}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if claims:
        show(name, claims)
    return sum(not one["met"] for one in claims)


def origin() -> dict[str, Any]:
    """Return where a measurement comes from: the command, versions, commit and date, and the machine."""
    command = shlex.join(["python", "-m", f"benchmarks.speed.{Path(sys.argv[0]).stem}", *sys.argv[1:]])
    return {"command": command, "made_by": provenance(), "machine": machine()}


def store_parts(
    name: str, measured: Mapping[str, Any], claims_of: Callable[[Mapping[str, Any]], Any], folder: Path = FOLDER
) -> int:
    """Store some parts of a measurement beside those that an earlier command stored; `parts` has the origin of each."""
    before = stored(name, folder) if (folder / f"{name}.json").is_file() else {}
    known = {field: value for field, value in before.items() if field not in (*ORIGIN, "claims", "parts")}
    earlier = {field: before[field] for field in ORIGIN if field in before}
    parts = {**dict.fromkeys(known, earlier), **before.get("parts", {}), **dict.fromkeys(measured, origin())}
    record = {**known, **measured}
    return store(name, claims_of(record), folder, parts=parts, **record)


def stored(name: str, folder: Path = FOLDER) -> dict[str, Any]:
    """Return a stored record."""
    return dict(json.loads((folder / f"{name}.json").read_text("utf-8")))


def bar_of(one: Mapping[str, Any]) -> str:
    """Return the bar of a claim as text."""
    return f"at most {one['at_most']:.3g}" if "at_most" in one else f"at least {one['at_least']:.3g}"


def show(name: str, claims: Sequence[Mapping[str, Any]]) -> None:
    """Print claims as a table; those that do not hold in red."""
    table = Table("claim", "measured", "quartiles", "bar", title=f"{name}: {len(claims)} claims")
    for one in claims:
        style = "" if one["met"] else "red"
        quartiles = f"{one['quartile_low']:.3g} to {one['quartile_high']:.3g}"
        table.add_row(one["says"], f"{one['ratio']:.3g}", quartiles, bar_of(one), style=style)
    Console().print(table)


def say(line: str) -> None:
    """Show progress, in place in a terminal, line by line elsewhere."""
    if sys.stderr.isatty():
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)
    elif line:
        print(line, file=sys.stderr, flush=True)


def _lines(path: Path) -> list[str]:
    return path.read_text("utf-8", errors="replace").splitlines() if path.is_file() else []
