"""Many jobs at once, on this machine or on a cluster, through joblib; results come back as each job is done."""

from __future__ import annotations

import os
import pickle
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import joblib
import torch
from joblib import Parallel, delayed, parallel_config

J = TypeVar("J")
R = TypeVar("R")

ENGINES = ("local",)


class Failure(NamedTuple):
    """A job that raised: what it was, why in one line, and the whole traceback."""

    job: Any
    reason: str
    trace: str


class JobsFailed(RuntimeError):
    """Some jobs raised; every other one is done. `failures` holds them, in the order they came back."""

    def __init__(self, failures: Sequence[Failure], total: int) -> None:
        named = "".join(f"\n  {failure.job}: {failure.reason}" for failure in failures)
        super().__init__(f"{len(failures)} of {total} jobs failed, the others are done:{named}")
        self.failures = tuple(failures)


def run_grid(
    jobs: Iterable[J],
    work: Callable[[J], Iterable[R]],
    *,
    engine: str = "local",
    n_jobs: int | None = None,
    address: str | None = None,
) -> Iterator[tuple[J, list[R]]]:
    """Do many jobs, and yield each with its results as soon as it is done.

    Whoever iterates stores the results, so that workers on other machines need no store: a kill then loses only the
    jobs that were running. To stop early, stop iterating: the workers stop too.

    Parameters
    ----------
    jobs : iterable
        What to do; each is sent to a worker. Leave out what is stored already.
    work : callable
        `job -> results`, in any process, one job at a time with one torch thread, so that n_jobs fill n_jobs cores.
    engine : {"local"}
        Where: in processes of this machine.
    n_jobs : int, optional
        Jobs at a time; None is one a core. 1 works in this very process.
    address : str, optional
        Of a cluster to use.

    Yields
    ------
    job, results : tuple
        In the order they are done. Of a job that raised, the results it had yielded before, if there were any.

    Raises
    ------
    JobsFailed
        At the end, if some jobs raised: which, and why.

    Examples
    --------
    >>> sorted(run_grid([2, 3], range, n_jobs=1))
    [(2, [0, 1]), (3, [0, 1, 2])]
    """
    if engine not in ENGINES:
        raise ValueError(f"engine: expected one of {', '.join(ENGINES)}, got {engine!r}")
    count: Any = n_jobs
    if count is not None and (not isinstance(count, Integral) or count is True or count is False or count < 1):
        raise ValueError(f"n_jobs: expected None or a whole number of at least 1, got {n_jobs!r}")
    if address is not None and engine == "local":
        raise ValueError(f"address: expected None, for the engine 'local' has no cluster, got {address!r}")
    return _done(list(jobs), work, n_jobs)


def _done(
    jobs: list[J], work: Callable[[J], Iterable[R]], n_jobs: int | None
) -> Generator[tuple[J, list[R]], None, None]:
    """Yield jobs with results; raise at the end for those that failed."""
    failures: list[Failure] = []
    n_jobs = min(n_jobs or joblib.cpu_count(), max(len(jobs), 1))
    with _outcomes(jobs, work, n_jobs) as outcomes:
        for outcome in outcomes:
            job = jobs[outcome.number]
            if outcome.reason:
                failures.append(Failure(job, outcome.reason, outcome.trace))
            if outcome.results or not outcome.reason:
                yield job, outcome.results
    if failures:
        raise JobsFailed(failures, len(jobs))


# ---- where the jobs are done ---------------------------------------------------------------------------------------


@contextmanager
def _outcomes(jobs: list[Any], work: Callable[[Any], Iterable[Any]], n_jobs: int) -> Iterator[Iterator[_Outcome]]:
    """Start the jobs and give their outcomes as they come; what is still running at the end is stopped."""
    if n_jobs == 1:
        yield (_outcome(number, work, job) for number, job in enumerate(jobs))
        return
    settings = {"inner_max_num_threads": 1, "initializer": _leave_with, "initargs": (os.getpid(),)}
    with parallel_config(backend="loky", **settings):  # left at once: the caller's joblib is not ours to set
        parallel = Parallel(n_jobs=n_jobs, batch_size=1, pre_dispatch=n_jobs, return_as="generator_unordered")
    packed = parallel(delayed(_packed)(number, work, job) for number, job in enumerate(jobs))
    try:
        yield map(pickle.loads, packed)
    finally:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*tasks (have been|which were)", UserWarning)  # stopped on purpose
            packed.close()


# ---- in the worker -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Outcome:
    """What a job came to: its number, its results and, if it raised, why."""

    number: int
    results: list[Any]
    reason: str = ""
    trace: str = ""


def _outcome(number: int, work: Callable[[Any], Iterable[Any]], job: Any) -> _Outcome:
    """Do one job; what it raises is part of the outcome."""
    results: list[Any] = []
    with _one_thread():
        try:
            results.extend(work(job))
        except (Exception, SystemExit) as error:
            return _Outcome(number, results, *_said(error))
    return _Outcome(number, results)


def _packed(number: int, work: Callable[[Any], Iterable[Any]], job: Any) -> bytes:
    """Do one job and pack the outcome here, where results that cannot be sent fail this job and no other."""
    outcome = _outcome(number, work, job)
    try:
        return pickle.dumps(outcome)
    except Exception as error:
        return pickle.dumps(_Outcome(number, [], *_said(error)))


def _leave_with(driver: int) -> None:
    """Watch the driver, and leave when it is gone: loky's workers would outlive one that was killed."""

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _said(error: BaseException) -> tuple[str, str]:
    return f"{type(error).__name__}: {error}", traceback.format_exc()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch use one thread: cores are for other jobs, and results must not depend on how many there are."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
