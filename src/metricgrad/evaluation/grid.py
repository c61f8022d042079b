"""Many jobs at once through joblib, on this machine, Ray or Dask; results come back as each job is done."""

from __future__ import annotations

import importlib.util
import logging
import os
import pickle
import re
import signal
import socket
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from numbers import Integral
from typing import Any, NamedTuple, TypeVar

import joblib
from joblib import Parallel, delayed, parallel_config

J = TypeVar("J")
R = TypeVar("R")
Work = Callable[[Any], Iterable[Any]]

ENGINES = {"local": "joblib", "ray": "ray", "dask": "distributed"}
"""Where jobs can run, and the package each needs."""
ADDRESSES = {"ray": "'auto', 'host:6379' or 'ray://host:10001'", "dask": "'tcp://host:8786'"}
"""What the address of a cluster looks like."""
HOST_AND_PORT = re.compile(r"(?:\w+://)?\[?([^/\]]+?)\]?:(\d+)")
MIN_WORKERS = 2
"""With a single worker joblib would work in this process instead of on the cluster."""
TIMEOUT = 30
"""Seconds to wait for a cluster."""
OBJECT_STORE = 100 * 2**20
"""Bytes for results in a local Ray cluster; Ray would take a third of the memory."""


class Failure(NamedTuple):
    """A job that raised: the job, the error in one line, and the traceback."""

    job: Any
    reason: str
    trace: str


Outcome = tuple[int, list[Any], "Failure | None"]
"""The number of a job, its results and, if it raised, its failure."""


class JobsFailed(RuntimeError):
    """Some jobs raised; all others are done. `failures` holds them, in the order they came back."""

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
    """Run many jobs, and yield each with its results as soon as it is done.

    `work` maps a job to an iterable of results, in any process, with one torch thread. The caller stores the results:
    a kill loses only the jobs that were running. To stop early, stop iterating: the workers stop too (those of Dask
    finish their current job). Of a job that raised, the results it had yielded before come back, if any; at the
    end `JobsFailed` names these jobs.

    `n_jobs` at a time run in processes of this machine or on a cluster, whose workers need metricgrad and, of Dask,
    must have one thread each; None is one per core, and a local 1 works in this process. `address` is that of a running
    cluster (see `ADDRESSES`); None starts one on this machine and stops it afterwards.

    >>> sorted(run_grid([2, 3], range, n_jobs=1))
    [(2, [0, 1]), (3, [0, 1, 2])]
    """
    if engine not in ENGINES:
        raise ValueError(f"engine: expected one of {', '.join(ENGINES)}, got {engine!r}")
    if importlib.util.find_spec(ENGINES[engine]) is None:
        raise ValueError(f"engine: expected one that is installed, got {engine!r}: pip install metricgrad[{engine}]")
    count: Any = n_jobs
    if count is not None and (not isinstance(count, Integral) or count is True or count < 1):
        raise ValueError(f"n_jobs: expected None or an integer of at least 1, got {n_jobs!r}")
    if address is not None and engine == "local":
        raise ValueError(f"address: expected None because the engine 'local' has no cluster, got {address!r}")
    if address is not None and (engine, address) != ("ray", "auto") and not HOST_AND_PORT.fullmatch(str(address)):
        raise ValueError(f"address: expected one like {ADDRESSES[engine]}, got {address!r}")
    jobs = list(jobs)
    if not jobs or (engine == "local" and (n_jobs or joblib.cpu_count()) == 1):
        return _results(jobs, (_outcome(number, work, job) for number, job in enumerate(jobs)))
    return _results(jobs, _parallel(jobs, work, engine, n_jobs, address))


def _results(jobs: list[Any], outcomes: Generator[Outcome]) -> Generator[tuple[Any, list[Any]]]:
    """Yield jobs with results, and raise at the end if some failed."""
    failures: list[Failure] = []
    with closing(outcomes):
        for number, results, failure in outcomes:
            if failure:
                failures.append(failure)
            if results or not failure:
                yield jobs[number], results
    if failures:
        raise JobsFailed(failures, len(jobs))


def _parallel(jobs: list[Any], work: Work, engine: str, n_jobs: int | None, address: str | None) -> Generator[Outcome]:
    """Run the jobs and yield their outcomes as they come; jobs still running at the end are stopped."""
    with _BACKENDS[engine](max(MIN_WORKERS, n_jobs or joblib.cpu_count()), address) as (cores, settings):
        if cores < MIN_WORKERS:
            raise ValueError(f"address: expected a cluster of at least {MIN_WORKERS} cores, got {cores}")
        if n_jobs is not None and n_jobs > cores:
            raise ValueError(f"n_jobs: expected at most the {cores} cores of the cluster, got {n_jobs}")
        running = min(n_jobs or cores, len(jobs))
        how = {"batch_size": 1, "pre_dispatch": running, "return_as": "generator_unordered"}
        with parallel_config(**settings):  # only while it is made: the caller's joblib keeps its settings
            parallel = Parallel(max(MIN_WORKERS, running), **how)
        packed = parallel(delayed(_packed)(number, work, job) for number, job in enumerate(jobs))
        try:
            yield from map(pickle.loads, packed)
        finally:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*tasks (have been|which were)", UserWarning)  # stopped on purpose
                packed.close()


# ---- backends: how many cores there are, and what joblib must know to use them --------------------------------------

Backend = tuple[int, dict[str, Any]]


@contextmanager
def _local(cores: int, address: str | None) -> Iterator[Backend]:
    """Use processes of this machine, which exit when this one does."""
    initializer = {"initializer": _exit_with, "initargs": (os.getpid(),)}
    yield cores, {"backend": "loky", "inner_max_num_threads": 1, **initializer}


@contextmanager
def _ray(cores: int, address: str | None) -> Iterator[Backend]:
    """Use the Ray cluster that is connected, the one at the address, or a local one that is shut down afterwards."""
    import ray
    from ray.util.joblib.ray_backend import RayBackend

    class Streaming(RayBackend):  # type: ignore[misc]
        """Ray's backend with streaming, which its callbacks support, and idle workers first: Ray takes them in turn."""

        supports_return_generator = True

        def configure(self, *args: Any, **settings: Any) -> int:
            workers = int(super().configure(*args, **settings))
            self.idle = list(range(workers))
            return workers

        def submit(self, func: Any, callback: Callable[[Any], Any]) -> Any:
            worker = self.idle.pop()
            self._get_pool()._current_index = worker - 1

            def done(result: Any) -> None:
                self.idle.append(worker)
                callback(result)

            calls[worker] = super().submit(func, done)
            return calls[worker]

    calls: dict[int, Any] = {}
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    local = {"num_cpus": cores, "include_dashboard": False, "object_store_memory": OBJECT_STORE}
    ours = not ray.is_initialized()
    if ours:
        with _connecting(address, "Ray"):
            quiet = {"log_to_driver": False, "logging_level": logging.ERROR}
            ray.init(address or "local", **quiet, **({} if address else local))
    try:
        yield int(ray.cluster_resources().get("CPU", 0)), {"backend": Streaming()}
    finally:
        for call in calls.values():  # a call that still waits would start Ray again
            call.wait(TIMEOUT)
        if ours:
            ray.shutdown()


@contextmanager
def _dask(cores: int, address: str | None) -> Iterator[Backend]:
    """Use the Dask cluster at the address, or a local one that is closed afterwards."""
    from distributed import Client

    local = {"n_workers": cores, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.ERROR}
    with ExitStack() as stack:
        with _connecting(address, "Dask"):
            made = Client(address, timeout=TIMEOUT, set_as_default=False, **({} if address else local))
            client = stack.enter_context(made)
            client.wait_for_workers(1, timeout=TIMEOUT)
        threads = client.nthreads().values()
        if max(threads) > 1:  # torch has one generator of random numbers per process
            raise ValueError(f"address: expected Dask workers of one thread each, got one of {max(threads)} threads")
        yield sum(threads), {"backend": "dask", "client": client}


_BACKENDS = {"local": _local, "ray": _ray, "dask": _dask}


@contextmanager
def _connecting(address: str | None, cluster: str) -> Iterator[None]:
    """Name the address if there is no cluster; Ray and Dask would try for minutes where nothing listens."""
    if address is None:
        yield
        return
    try:
        place = HOST_AND_PORT.fullmatch(address)
        if place:
            socket.create_connection((place[1], int(place[2])), TIMEOUT).close()
        yield
    except (OSError, OverflowError, RuntimeError, ValueError) as error:
        why = str(error) or type(error).__name__
        raise ConnectionError(
            f"address: expected that of a running {cluster} cluster, got {address!r}: {why}"
        ) from error


# ---- in the worker -------------------------------------------------------------------------------------------------


def _outcome(number: int, work: Work, job: Any) -> Outcome:
    """Run one job; an error is part of the outcome."""
    from metricgrad.training.threads import one_thread  # here, because a driver that only sends jobs needs no torch

    results: list[Any] = []
    with one_thread():
        try:
            results.extend(work(job))
        except (Exception, SystemExit) as error:
            return number, results, _failure(job, error)
    return number, results, None


def _packed(number: int, work: Work, job: Any) -> bytes:
    """Run one job and pickle the outcome here, where results that cannot be pickled fail this job and no other."""
    try:
        return pickle.dumps(_outcome(number, work, job))
    except Exception as error:
        return pickle.dumps((number, [], _failure(job, error)))


def _failure(job: Any, error: BaseException) -> Failure:
    return Failure(job, f"{type(error).__name__}: {error}", traceback.format_exc())


def _exit_with(driver: int) -> None:
    """Exit when the driver is gone, which loky's workers would outlive, and leave Ctrl-C to the driver."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        while os.getppid() == driver:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
