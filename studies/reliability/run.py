"""Attack metricgrad and store the figures: python -m studies.reliability.run [PART ...], or `make attack`.

Every case is recorded as it ends, so that a stop loses nothing and the same command continues from there.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from metricgrad.provenance import provenance
from studies.reliability import figures, folders, growth, inputs, kills, servers, specs
from studies.reliability.verdicts import REFUSED, UNCLEAN, USED
from studies.reliability.workers import Job, Journal, run_jobs

PARTS: dict[str, ModuleType] = {
    "growth": growth,
    "servers": servers,
    "kills": kills,
    "specs": specs,
    "inputs": inputs,
    "folders": folders,
}
"""Attacks by name; those that cannot be split come first, so that all workers end together."""
ROOT = Path(__file__).parents[2]
WORKERS, BATCH = 2, 250
"""Processes at a time, and the most cases that one of them tries."""
FAILED = 1


def main(words: Sequence[str] | None = None) -> int:
    """Run attacks, show and store their figures, and return 1 if anything was unclean or is incomplete."""
    asked = parser().parse_args(words)
    parts = {name: PARTS[name] for name in asked.parts or PARTS}
    if asked.case is not None:
        return one_case(parts, asked)
    wanted = {name: min(asked.cases or part.CASES, part.CASES) for name, part in parts.items()}
    journals = {name: journal(name, asked, wanted[name], fresh=asked.fresh) for name in parts}
    if all(len(journals[name].cases) >= wanted[name] for name in parts):
        journals = {name: journal(name, asked, wanted[name], fresh=True) for name in parts}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # both stops end the workers too
    try:
        attack(parts, journals, wanted, asked)
    except KeyboardInterrupt:
        print("stopped; the same command continues from here", file=sys.stderr)
    return finish(parts, journals, wanted, asked)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    found = argparse.ArgumentParser(prog="python -m studies.reliability.run", description=__doc__)
    found.add_argument("parts", nargs="*", metavar="PART", type=_part, help=", ".join(PARTS))
    found.add_argument("--cases", type=int, help="at most so many cases of each part")
    found.add_argument("--case", type=int, help="one case only, in this process, to see why it is not clean")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--minutes", type=float, default=10.0, help="after which the rest is left for the next run")
    found.add_argument("--fresh", action="store_true", help="begin again, even if nothing has changed")
    found.add_argument("--work", type=Path, default=ROOT / "build" / "reliability", help="for journals and models")
    found.add_argument("--out", type=Path, default=figures.STORED, help="where figures are stored")
    return found


def _part(name: str) -> str:
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"expected one of {', '.join(PARTS)}, got {name!r}")
    return name


def journal(name: str, asked: argparse.Namespace, wanted: int, fresh: bool) -> Journal:
    """Return the journal of a part; one of other code, another seed or another number of cases starts again."""
    path = asked.work / f"{name}.jsonl"
    if fresh:
        path.unlink(missing_ok=True)
    words = [name, *(f"--{key}={getattr(asked, key)}" for key in ("cases", "seed") if getattr(asked, key))]
    head = {
        "key": [source_hash(), asked.seed, wanted],
        "command": shlex.join(["python", "-m", "studies.reliability.run", *words]),
        "seed": asked.seed,
        "made_by": provenance(),
    }
    return Journal(path, head)


def source_hash() -> str:
    """Return a hash of the package and of the attacks on it."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), *Path(__file__).parent.rglob("*.py")]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def attack(
    parts: dict[str, ModuleType], journals: dict[str, Journal], wanted: dict[str, int], asked: argparse.Namespace
) -> None:
    """Try all cases that are not done yet, on a few workers."""
    torch.set_num_threads(1)
    until = time.monotonic() + 60 * asked.minutes
    done = {name: set(journals[name].cases) for name in parts}
    left = {name: [case for case in range(wanted[name]) if case not in done[name]] for name in parts}
    _prepare([part for name, part in parts.items() if left[name]], asked.work)
    jobs = [
        Job(journals[name], partial(part.attempt, asked.work, asked.seed), cases, part.SECONDS)
        for name, part in parts.items()
        for cases in batches(left[name])
    ]
    with own_temporary_folder():
        run_jobs(jobs, WORKERS, until, Progress(journals, wanted))


@contextmanager
def own_temporary_folder() -> Iterator[None]:
    """Put the temporary files of workers into one folder, and remove it with everything that killed workers leave."""
    with tempfile.TemporaryDirectory(prefix="metricgrad-attack-", ignore_cleanup_errors=True) as folder:
        tempfile.tempdir = folder
        try:
            yield
        finally:
            tempfile.tempdir = None


def batches(cases: list[int]) -> list[list[int]]:
    """Split cases so that all workers have some, and none too many at a time."""
    size = min(BATCH, -(-len(cases) // (4 * WORKERS))) or 1
    return [cases[start : start + size] for start in range(0, len(cases), size)]


def _prepare(parts: Sequence[ModuleType], work: Path) -> None:
    """Prepare the cases in a child, because a process that has trained must not be forked."""
    work.mkdir(parents=True, exist_ok=True)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            for part in parts:
                part.prepare(work)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    try:
        status = os.waitpid(pid, 0)[1]
    except KeyboardInterrupt:
        with suppress(ProcessLookupError, ChildProcessError):  # it may have just ended
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        raise
    if status:
        raise RuntimeError("the cases could not be prepared")


class Progress:
    """Shows how many cases are done, in place in a terminal and every ten seconds elsewhere."""

    def __init__(self, journals: dict[str, Journal], wanted: dict[str, int]) -> None:
        self.journals, self.wanted, self.last = journals, wanted, 0.0
        self.begun = time.monotonic()

    def __call__(self) -> None:
        """Show it, if it is time to."""
        terminal = sys.stderr.isatty()
        if time.monotonic() - self.last < (1 if terminal else 10):
            return
        self.last = time.monotonic()
        counts = (f"{name} {len(self.journals[name].cases):,}/{count:,}" for name, count in self.wanted.items())
        line = f"{self.last - self.begun:4.0f} s: {', '.join(counts)}"
        print(f"\r\033[K{line}" if terminal else line, end="" if terminal else "\n", file=sys.stderr, flush=True)


def finish(
    parts: dict[str, ModuleType], journals: dict[str, Journal], wanted: dict[str, int], asked: argparse.Namespace
) -> int:
    """Store and show the figures; return 1 if a guarantee is not met."""
    records = {}
    for name, part in parts.items():
        head, cases = journals[name].head, journals[name].cases.values()
        records[name] = {
            **{key: head[key] for key in ("command", "seed", "made_by")},
            "wanted": part.CASES,
            "limits": {"seconds": part.SECONDS, "mb": part.PEAK_MB},
            **figures.summed(cases, part.SECONDS, part.PEAK_MB),
            **_own_figures(name, list(cases)),
        }
        figures.store(name, records[name], asked.out)
    show(records)
    complete = all(record["cases"] == wanted[name] for name, record in records.items())
    return 0 if complete and not any(record[UNCLEAN] for record in records.values()) else FAILED


def _own_figures(name: str, cases: list[dict[str, Any]]) -> dict[str, Any]:
    kept = ("fits", "slope_kb", "mb_first", "mb_last", "more")
    return {key: cases[0][key] for key in kept if key in cases[0]} if name == "growth" and cases else {}


def show(records: dict[str, dict[str, Any]]) -> None:
    """Print the figures as a table, and examples of unclean cases."""
    table = Table("attack", "cases", USED, REFUSED, UNCLEAN, "slowest", "memory")
    for name, record in records.items():
        of = f"{record['cases']:,}" + ("" if record["cases"] == record["wanted"] else f" of {record['wanted']:,}")
        counts = (f"{record[outcome]:,}" for outcome in (USED, REFUSED, UNCLEAN))
        table.add_row(name, of, *counts, f"{record['slowest_seconds']:.2f} s", f"{record['peak_mb']:,.0f} MB")
    Console().print(table)
    for name, record in records.items():
        for example in record["examples"]:
            again = f"python -m studies.reliability.run {name} --seed {record['seed']} --case {example['case']}"
            print(f"{again}: {example['kind']} {example['detail']}".replace("\x1b", "?")[:400])


def one_case(parts: dict[str, ModuleType], asked: argparse.Namespace) -> int:
    """Try one case of each part, and print its outcome."""
    outcomes = []
    for name, part in parts.items():
        _prepare([part], asked.work)
        alone = Journal(asked.work / "one.jsonl", {"key": time.time()})
        attempt = partial(part.attempt, asked.work, asked.seed)
        with own_temporary_folder():
            run_jobs([Job(alone, attempt, [asked.case], part.SECONDS)], 1, time.monotonic() + 600, lambda: None)
        outcomes.append(alone.cases[asked.case]["outcome"])
        print(f"{name} {asked.case}: {alone.cases[asked.case]!r}")
    return FAILED if UNCLEAN in outcomes else 0


if __name__ == "__main__":
    sys.exit(main())
