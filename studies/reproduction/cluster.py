"""What the tables would take on more machines: jobs handed to free workers in turn, from measured seconds."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence

from metricgrad.evaluation.records import Record
from studies.pages import markdown, titled

WORKERS = (1, 2, 10, 100)


def job_seconds(records: Iterable[Record]) -> list[float]:
    """Return the seconds of every job: runs on the same data with the same seed share it, and their warm-up."""
    jobs: dict[tuple[object, ...], float] = {}
    for record in records:
        place = record.dataset, record.seed, record.replicate, record.setting
        jobs[place] = jobs.get(place, 0.0) + float(record.kept.get("seconds") or 0)
    return list(jobs.values())


def elapsed(jobs: Sequence[float], workers: int) -> float:
    """Return when the last job ends if each goes to the first worker that is free.

    >>> elapsed([3, 2, 2], 2)
    4
    """
    free: list[float] = [0] * workers
    for seconds in jobs:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def cluster_table(jobs: Sequence[float]) -> str:
    """Write hours, hours of all workers, and the share of these that is spent working."""
    rows = []
    for workers in WORKERS:
        hours = elapsed(jobs, workers) / 3600
        busy = sum(jobs) / 3600 / (workers * hours)
        rows.append([f"{workers}", f"{hours:.2f}", f"{workers * hours:.1f}", f"{busy:.0%}"])
    head = ("workers of one core", "hours", "paid core hours", "busy")
    return titled(f"{len(jobs)} jobs on a cluster, simulated from their measured seconds", markdown(head, rows))


def parts_table(parts: Mapping[str, Sequence[float]]) -> str:
    """Write hours on one and on two cores of every part, from the seconds of its jobs."""
    rows = [
        [name, f"{len(jobs)}", f"{sum(jobs) / 3600:.2f}", f"{elapsed(jobs, 2) / 3600:.2f}"]
        for name, jobs in parts.items()
        if jobs
    ]
    return titled("How long each part takes", markdown(("part", "jobs", "hours on one core", "on two"), rows))


def part_seconds(records: Iterable[Record]) -> Mapping[str, float]:
    """Return the mean seconds of a run by dataset."""
    found: dict[str, list[float]] = {}
    for record in records:
        found.setdefault(record.dataset, []).append(float(record.kept.get("seconds") or 0))
    return {dataset: sum(own) / len(own) for dataset, own in found.items()}
