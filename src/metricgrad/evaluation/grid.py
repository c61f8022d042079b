"""Many jobs at once, on this machine or on a cluster, through joblib; results come back as each job is done."""

from __future__ import annotations

import importlib.util
import logging
import os
import pickle
import signal
import socket
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import joblib
from joblib import Parallel, delayed, parallel_config

J = TypeVar("J")
R = TypeVar("R")

ENGINES = {"local": "joblib", "ray": "ray", "dask": "distributed"}
"""Where jobs can be done, and the package each needs."""
ADDRESSES = {"ray": "'auto', 'host:6379' or 'ray://host:10001'", "dask": "'tcp://host:8786'"}
"""What the address of a cluster looks like."""


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
    engine : {"local", "ray", "dask"}
        Where: in processes of this machine, or on a cluster, whose workers must have metricgrad and what `work` needs.
        Those of Dask must have one thread each; stopped early, they finish the job they are at.
    n_jobs : int, optional
        Jobs at a time; None is one a core of the machine or cluster. A local 1 works in this very process.
    address : str, optional
        Of a running cluster: `"auto"`, `"host:6379"` or `"ray://host:10001"` for Ray, `"tcp://host:8786"` for Dask.
        None starts one on this machine and stops it afterwards.

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
    if importlib.util.find_spec(ENGINES[engine]) is None:
        raise ValueError(f"engine: expected one that is installed, got {engine!r}: pip install metricgrad[{engine}]")
    count: Any = n_jobs
    if count is not None and (not isinstance(count, Integral) or count is True or count is False or count < 1):
        raise ValueError(f"n_jobs: expected None or a whole number of at least 1, got {n_jobs!r}")
    if address is not None and engine == "local":
        raise ValueError(f"address: expected None, for the engine 'local' has no cluster, got {address!r}")
    if address is not None and (engine, address) != ("ray", "auto") and not _host_and_port(str(address)):
        raise ValueError(f"address: expected one like {ADDRESSES[engine]}, got {address!r}")
    return _done(list(jobs), work, engine, n_jobs, address)


def _done(
    jobs: list[J], work: Callable[[J], Iterable[R]], engine: str, n_jobs: int | None, address: str | None
) -> Generator[tuple[J, list[R]], None, None]:
    """Yield jobs with results; raise at the end for those that failed."""
    failures: list[Failure] = []
    with _outcomes(jobs, work, engine, n_jobs, address) as outcomes:
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
def _outcomes(
    jobs: list[Any], work: Callable[[Any], Iterable[Any]], engine: str, n_jobs: int | None, address: str | None
) -> Iterator[Iterator[_Outcome]]:
    """Start the jobs and give their outcomes as they come; what is still running at the end is stopped."""
    if not jobs or (engine == "local" and (n_jobs or joblib.cpu_count()) == 1):
        yield (_outcome(number, work, job) for number, job in enumerate(jobs))
        return
    with _WORKERS[engine](n_jobs, address, len(jobs)) as (workers, at_once, settings):
        with parallel_config(**settings):  # left at once: the caller's joblib is not ours to set
            parallel = Parallel(workers, batch_size=1, pre_dispatch=at_once, return_as="generator_unordered")
        packed = parallel(delayed(_packed)(number, work, job) for number, job in enumerate(jobs))
        try:
            yield map(pickle.loads, packed)
        finally:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*tasks (have been|which were)", UserWarning)  # stopped on purpose
                packed.close()


class _Workers(NamedTuple):
    """How many workers there are, how many jobs they may have at a time, and what joblib must know to use them."""

    workers: int
    at_once: int
    settings: dict[str, Any]


LEAST = 2
"""Workers of a cluster; with a single one joblib would not use the cluster, but work in this process."""


@contextmanager
def _local(n_jobs: int | None, address: str | None, jobs: int) -> Iterator[_Workers]:
    """Use processes of this machine, which leave when this one does."""
    workers = max(LEAST, min(n_jobs or joblib.cpu_count(), jobs))
    stay = {"inner_max_num_threads": 1, "initializer": _leave_with, "initargs": (os.getpid(),)}
    yield _Workers(workers, workers, {"backend": "loky", **stay})


@contextmanager
def _ray(n_jobs: int | None, address: str | None, jobs: int) -> Iterator[_Workers]:
    """Use a Ray cluster: the one there is, the one at the address, or a local one that is shut down afterwards."""
    import ray

    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    ours = not ray.is_initialized()
    if ours:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        if address is None:
            cores = max(LEAST, n_jobs or joblib.cpu_count())
            ray.init("local", num_cpus=cores, include_dashboard=False, object_store_memory=OBJECT_STORE, **quiet)
        else:
            with _reached(address, "Ray"):
                ray.init(address, **quiet)
    backend = _ray_backend()
    try:
        workers, at_once = _shared(int(ray.cluster_resources().get("CPU", 0)), n_jobs, jobs)
        yield _Workers(workers, at_once, {"backend": backend})
    finally:
        for call in backend.calls.values():  # a call still waiting would start Ray anew
            call.wait(PATIENCE)
        if ours:
            ray.shutdown()


def _ray_backend() -> Any:
    """Return Ray's backend of joblib, made to stream and to keep every worker busy."""
    from ray.util.joblib.ray_backend import RayBackend

    class Streaming(RayBackend):  # type: ignore[misc]
        supports_return_generator = True  # its pool calls back as each job is done, which is all a generator needs

        def __init__(self, **settings: Any) -> None:
            super().__init__(**settings)
            self.idle: deque[int] = deque()
            self.calls: dict[int, Any] = {}

        def configure(self, *args: Any, **settings: Any) -> int:
            workers = int(super().configure(*args, **settings))
            self.idle = deque(range(workers))
            return workers

        def submit(self, func: Any, callback: Callable[[Any], Any]) -> Any:
            worker = self.idle.popleft()
            self._get_pool()._current_index = worker - 1  # Ray would take workers in turn, busy or not

            def done(out: Any) -> None:
                self.idle.append(worker)
                callback(out)

            self.calls[worker] = super().submit(func, done)
            return self.calls[worker]

    return Streaming()


@contextmanager
def _dask(n_jobs: int | None, address: str | None, jobs: int) -> Iterator[_Workers]:
    """Use a Dask cluster: the one at the address, or a local one that is closed afterwards."""
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        if address is None:
            cores = max(LEAST, n_jobs or joblib.cpu_count())
            quiet = {"processes": True, "silence_logs": logging.ERROR}
            local = LocalCluster(n_workers=cores, threads_per_worker=1, dashboard_address=":0", **quiet)
            client = stack.enter_context(Client(stack.enter_context(local), set_as_default=False))
        else:
            with _reached(address, "Dask"):
                client = stack.enter_context(Client(address, timeout=PATIENCE, set_as_default=False))
                client.wait_for_workers(1, timeout=PATIENCE)
        threads = client.nthreads().values()
        if max(threads) > 1:  # torch has one generator of random numbers a process
            raise ValueError(f"address: expected Dask workers of one thread each, got one of {max(threads)} threads")
        workers, at_once = _shared(sum(threads), n_jobs, jobs)
        yield _Workers(workers, at_once, {"backend": "dask", "client": client})


_WORKERS = {"local": _local, "ray": _ray, "dask": _dask}
OBJECT_STORE = 100 * 2**20
"""Bytes for the results that a local Ray cluster holds; Ray would take a third of the memory."""
PATIENCE = 30
"""Seconds to wait for a cluster."""


@contextmanager
def _reached(address: str, cluster: str) -> Iterator[None]:
    """Name the address if there is no cluster at it; Ray and Dask would try for minutes if nobody listens at all."""
    try:
        place = _host_and_port(address)
        if place:
            socket.create_connection(place, PATIENCE).close()
        yield
    except (OSError, RuntimeError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise ConnectionError(
            f"address: expected that of a running {cluster} cluster, got {address!r}: {why}"
        ) from error


def _host_and_port(address: str) -> tuple[str, int] | None:
    parts = urlsplit(address if "://" in address else f"//{address}")
    try:
        return (parts.hostname, parts.port) if parts.hostname and parts.port else None
    except ValueError:  # a port that is no number
        return None


def _shared(cores: int, n_jobs: int | None, jobs: int) -> tuple[int, int]:
    """Return how many workers of a cluster to ask for, and how many jobs to give them at a time."""
    if cores < LEAST:
        raise ValueError(f"address: expected a cluster of at least {LEAST} cores, got {cores}")
    if n_jobs is not None and n_jobs > cores:
        raise ValueError(f"n_jobs: expected at most the {cores} cores of the cluster, got {n_jobs}")
    at_once = min(n_jobs or cores, jobs)
    return max(LEAST, at_once), at_once


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
    from metricgrad.training.threads import one_thread  # here, for a driver that only hands out jobs needs no torch

    results: list[Any] = []
    with one_thread():
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
    """Watch the driver, and leave when it is gone: loky's workers would outlive one that was killed.

    Ctrl-C, which a terminal sends to all, is left to the driver, lest every worker tell of it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _said(error: BaseException) -> tuple[str, str]:
    return f"{type(error).__name__}: {error}", traceback.format_exc()
