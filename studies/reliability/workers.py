"""Workers: forked children that try cases one by one, a journal that keeps each, and a watch that ends what hangs.

A case that crashes the interpreter, takes too long or too much memory costs its own worker only, and is written down.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import signal
import struct
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from studies.reliability.verdicts import UNCLEAN, Verdict

Attempt = Callable[[int], Mapping[str, Any]]
"""Tries the case of a number, and returns what is to be kept of it: `outcome`, `kind`, `detail` and figures."""
ROOM, LARGEST = 4 << 30, 2 << 30
"""Bytes of address space above what the worker starts with, and of a file, that a case may take at all."""
NOW = struct.Struct("qd")
"""The case at work and when it was begun."""
STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Journal:
    """A file of lines of JSON: what was run, and every case as it was done; a line cut short by a kill is passed over.

    Parameters
    ----------
    path : path
        The file.
    head : mapping
        What the cases depend on, beside what is only kept: a journal with another `key` is begun again.
    """

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self.path = path
        if self.head.get("key") != head["key"]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            self.add({"head": dict(head)})

    @property
    def head(self) -> dict[str, Any]:
        """What was run."""
        return next((dict(line["head"]) for line in self._lines() if "head" in line), {})

    @property
    def cases(self) -> dict[int, dict[str, Any]]:
        """Cases by number."""
        return {int(line["case"]): line for line in self._lines() if "case" in line}

    def add(self, line: Mapping[str, Any]) -> None:
        """Append a line, in one piece; the break before it ends one that was cut short."""
        there = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(there, f"\n{json.dumps(line)}\n".encode())
        finally:
            os.close(there)

    def _lines(self) -> Iterator[dict[str, Any]]:
        text = self.path.read_text("utf-8", errors="replace") if self.path.exists() else ""
        for line in text.splitlines():
            try:
                yield dict(json.loads(line))
            except (ValueError, TypeError):
                continue


@dataclass
class Job:
    """Cases of one part that a worker tries one after the other, each in at most `seconds`."""

    journal: Journal
    attempt: Attempt
    cases: Sequence[int]
    seconds: float
    pid: int = 0
    shared: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, NOW.size), repr=False)

    def start(self) -> None:
        """Fork the worker."""
        self.shared[:] = NOW.pack(-1, time.monotonic())
        self.pid = os.fork()
        if self.pid == 0:
            _work(self)

    def ended(self) -> bool:
        """Whether the worker has ended; if it was ended in a case, that is written down."""
        done, status = os.waitpid(self.pid, os.WNOHANG)
        case, begun = NOW.unpack(self.shared[:])
        late = time.monotonic() - begun > self.seconds
        if not done and not late:
            return False
        if not done:
            os.kill(self.pid, signal.SIGKILL)
            _, status = os.waitpid(self.pid, 0)
        if status and case >= 0 and case not in self.journal.cases:
            said = f"not done in {self.seconds:g} s" if late else f"ended by signal {os.WTERMSIG(status)}"
            self.journal.add({"case": case, "kind": "", "outcome": UNCLEAN, "detail": said, "seconds": self.seconds})
        return True

    @property
    def left(self) -> list[int]:
        """Cases still to be tried."""
        done = self.journal.cases
        return [case for case in self.cases if case not in done]

    def stop(self) -> None:
        """End the worker."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def run_jobs(jobs: list[Job], workers: int, until: float, report: Callable[[], None]) -> None:
    """Run jobs on some workers until all are done or the time is over; a job whose worker ended goes on in another."""
    waiting, running = list(jobs), list[Job]()
    try:
        while (waiting or running) and time.monotonic() < until:
            while waiting and len(running) < workers:
                job = waiting.pop(0)
                job.cases = job.left
                if job.cases:
                    job.start()
                    running.append(job)
            ended = [job for job in running if job.ended()]
            running = [job for job in running if job not in ended]
            for job in ended:
                if job.left == list(job.cases):
                    raise RuntimeError(f"a worker of {job.journal.path.stem} ended before its first case")
            waiting = [job for job in ended if job.left] + waiting
            report()
            time.sleep(0.05)
    finally:
        for job in running:
            job.stop()


def _work(job: Job) -> None:
    """Try the cases of a job, and leave the process; it must never return."""
    code = 1
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        _limit()
        for case in job.cases:
            job.shared[:] = NOW.pack(case, time.monotonic())
            job.journal.add({"case": case, **tried(job.attempt, case)})
            job.shared[:] = NOW.pack(-1, time.monotonic())
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def tried(attempt: Attempt, case: int) -> dict[str, Any]:
    """Return what came of a case, with its seconds and the memory it took above what there was, in MB."""
    before, begun = _reset_peak(), time.perf_counter()
    try:
        found = dict(attempt(case))
    except MemoryError:
        found = {"kind": "", "outcome": UNCLEAN, "detail": f"wanted more than {ROOM >> 20:,} MB"}
    except Exception as error:  # of the attempt itself, so of no use as a figure
        found = {"kind": "", "outcome": UNCLEAN, "detail": f"{type(error).__name__}: {error}"}
    found["seconds"] = round(time.perf_counter() - begun, 4)
    found["peak_mb"] = round(max(0, memory("VmHWM") - before) / 1024, 1)
    return found


def memory(what: str = "VmRSS") -> int:
    """Return a line of this process's memory in KB; 0 where the system does not say."""
    lines = STATUS.read_text().splitlines() if STATUS.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{what}:")), 0)


def as_record(kind: str, verdict: Verdict, **figures: Any) -> dict[str, Any]:
    """Return a verdict as it is kept."""
    return {"kind": kind, "outcome": verdict.outcome, "detail": verdict.detail, **figures}


def _limit() -> None:
    """Keep a case from taking the machine with it."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (memory("VmSize") * 1024 + ROOM, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_FSIZE, (LARGEST, resource.RLIM_INFINITY))


def _reset_peak() -> int:
    """Forget the highest memory so far, and return what is taken now, in KB."""
    if RESET.exists():
        RESET.write_text("5")
    return memory()
