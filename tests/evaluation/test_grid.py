"""Jobs run in several processes; the results of each come back as soon as it is done, even if others fail."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from programs import run_framework

from metricgrad.evaluation import grid
from metricgrad.evaluation.grid import JobsFailed, run_grid
from metricgrad.evaluation.store import Store

DEADLINE = 240
"""Seconds after which something hangs; starting workers takes long where others use the machine too."""


def test_one_job_at_a_time_stays_in_this_process_and_gives_its_threads_back() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        [(_, results)] = run_grid(["only"], lambda job: [os.getpid(), torch.get_num_threads()], n_jobs=1)
        assert results == [os.getpid(), 1]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_what_a_job_had_yielded_before_it_failed_comes_back_too() -> None:
    def work(job: int) -> Iterator[int]:
        yield job
        if job == 2:
            raise ArithmeticError("two is too many")

    found: list[tuple[int, list[int]]] = []
    with pytest.raises(
        JobsFailed, match=r"1 of 5 jobs failed, the others are done:\n  2: ArithmeticError: two"
    ) as raised:
        found.extend(run_grid(range(5), work, n_jobs=1))
    assert found == [(job, [job]) for job in range(5)]
    [failure] = raised.value.failures
    assert failure.job == 2
    assert "raise ArithmeticError" in failure.trace


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"engine": "spark"}, r"engine: expected one of local.*, got 'spark'"),
        ({"n_jobs": 0}, "n_jobs: expected None or an integer of at least 1, got 0"),
        ({"n_jobs": True}, "n_jobs: expected .* got True"),
        ({"n_jobs": 1.5}, "n_jobs: expected .* got 1.5"),
        ({"address": "tcp://a:1"}, "address: expected None because the engine 'local' has no cluster, got 'tcp://a:1'"),
    ],
)
def test_a_bad_argument_is_named_before_any_work(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_grid([1], range, **arguments)


@pytest.mark.parametrize(("engine", "package"), [("ray", "ray"), ("dask", "distributed")])
def test_an_engine_that_is_not_installed_says_how_to_get_it(
    engine: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(grid.ENGINES, engine, f"{package}_that_nobody_installs")
    with pytest.raises(ValueError, match=rf"engine: expected .* got '{engine}': pip install metricgrad\[{engine}\]"):
        run_grid([1], range, engine=engine)


@pytest.mark.parametrize(
    ("engine", "address"), [("ray", "nowhere"), ("ray", "host:port"), ("dask", "auto"), ("dask", "tcp://host")]
)
def test_an_address_that_cannot_be_one_is_refused_before_any_work(engine: str, address: str) -> None:
    with pytest.raises(ValueError, match=f"address: expected one like .*, got '{address}'"):
        run_grid([1], range, engine=engine, address=address)


@pytest.mark.parametrize(("engine", "address"), [("ray", "127.0.0.1:9"), ("dask", "tcp://127.0.0.1:9")])
def test_an_address_where_nobody_listens_is_named_at_once(engine: str, address: str) -> None:
    with pytest.raises(ConnectionError, match=f"address: expected that of a running .* cluster, got '{address}'"):
        list(run_grid([1], range, engine=engine, address=address))


def test_no_jobs_are_no_work() -> None:
    assert list(run_grid([], range)) == []


# ---- several processes, here and on clusters -----------------------------------------------------------------------


def check_engine(engine: str, address: str | None) -> None:
    """Run jobs, of which one fails and one cannot be sent back, on two workers that are not this process."""

    def work(job: int) -> Iterator[Any]:
        if job == 3:
            raise ArithmeticError("three is too many")
        time.sleep(0.4)
        yield (os.getpid(), torch.get_num_threads()) if job != 4 else lambda: None

    found: list[tuple[int, list[tuple[int, int]]]] = []
    with pytest.raises(JobsFailed, match="2 of 8 jobs failed, the others are done:") as raised:
        found.extend(run_grid(range(8), work, engine=engine, n_jobs=2, address=address))
    three, four = sorted(raised.value.failures)
    assert (three.job, three.reason) == (3, "ArithmeticError: three is too many")
    assert four.job == 4
    assert "pickle" in four.reason
    assert sorted(job for job, _ in found) == [0, 1, 2, 5, 6, 7]
    processes = {results[0][0] for _, results in found}
    assert len(processes) >= 2
    assert os.getpid() not in processes
    assert {results[0][1] for _, results in found} == {1}


@pytest.mark.slow  # starts processes that import torch
def test_jobs_run_in_processes_of_this_machine_which_can_be_stopped_early() -> None:
    check_engine("local", None)

    def work(job: int) -> Iterator[int]:
        time.sleep(2 * DEADLINE if job else 0)
        yield job

    begun = time.perf_counter()
    results = run_grid(range(4), work, n_jobs=2)
    assert next(results) == (0, [0])
    results.close()  # type: ignore[attr-defined]
    assert time.perf_counter() - begun < DEADLINE


@pytest.mark.cluster  # starts a real cluster
def test_jobs_run_on_ray_with_and_without_an_address() -> None:
    """One after the other: two Ray clusters that start at the same time starve each other."""
    import ray
    from ray.cluster_utils import Cluster

    check_engine("ray", None)
    assert not ray.is_initialized()
    node = {"num_cpus": 1, "object_store_memory": grid.OBJECT_STORE}
    cluster = Cluster(initialize_head=True, head_node_args={"include_dashboard": False, **node})
    try:
        cluster.add_node(**node)
        check_engine("ray", cluster.address)
        with pytest.raises(ValueError, match="n_jobs: expected at most the 2 cores of the cluster, got 3"):
            list(run_grid([1], range, engine="ray", n_jobs=3, address=cluster.address))
    finally:
        cluster.shutdown()


@pytest.mark.cluster  # starts a real cluster, here because two of them starve each other
def test_two_workers_of_ray_train_follow_a_metric_together() -> None:
    assert run_framework("ray_train", least=0.85)


@pytest.mark.cluster  # starts a real cluster
def test_jobs_run_on_dask_with_and_without_an_address() -> None:
    from distributed import LocalCluster

    check_engine("dask", None)
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        check_engine("dask", cluster.scheduler_address)
        assert len(cluster.scheduler_info["workers"]) == 2


@pytest.mark.cluster  # starts a real cluster
def test_dask_workers_of_several_threads_are_refused_because_they_share_random_numbers() -> None:
    from distributed import LocalCluster

    threads = {"n_workers": 1, "threads_per_worker": 2, "processes": False}
    threaded = LocalCluster(**threads, protocol="tcp://", dashboard_address=":0")
    with threaded, pytest.raises(ValueError, match="address: expected Dask workers of one thread each, got one of 2"):
        list(run_grid([1], range, engine="dask", address=threaded.scheduler_address))


# ---- kills, interrupts and two drivers at once ---------------------------------------------------------------------

DRIVER = """
import os, signal, sys, time
from metricgrad.evaluation.grid import run_grid
from metricgrad.evaluation.store import Store

path, log, n_jobs, seconds, *jobs = sys.argv[1:]

def work(job):
    with open(log, "a") as file:
        file.write(f"{job} {os.getpid()}\\n")
    time.sleep(float(seconds))
    yield {"square": int(job) ** 2}

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where whoever started this ignores it
    store = Store(path)
    left = [job for job in jobs if store.find({"job": job}) is None]
    for job, results in run_grid(left, work, n_jobs=int(n_jobs)):
        for result in results:
            store.add({"job": job}, result)
"""


class Drivers:
    """Starts drivers that write to one store, each in a process group of its own."""

    def __init__(self, folder: Path) -> None:
        self.store, self.log, self.script = Store(folder / "runs.jsonl"), folder / "log", folder / "driver.py"
        self.script.write_text(DRIVER)

    def start(self, seconds: float, jobs: range, n_jobs: int = 2) -> subprocess.Popen[bytes]:
        words = [sys.executable, self.script, self.store.path, self.log, n_jobs, seconds, *jobs]
        return subprocess.Popen([str(word) for word in words], start_new_session=True, stderr=subprocess.PIPE)

    def stored(self) -> list[str]:
        return [record["run"]["job"] for record in self.store]

    def started(self) -> Counter[str]:
        return Counter(line.split()[0] for line in self.log.read_text().splitlines())

    def workers(self) -> set[int]:
        return {int(line.split()[1]) for line in self.log.read_text().splitlines()}


@pytest.fixture
def drivers(tmp_path: Path) -> Drivers:
    return Drivers(tmp_path)


def wait_until(true: Callable[[], bool], seconds: float = DEADLINE) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def alive(process: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.slow  # starts processes that import torch
def test_a_killed_driver_goes_on_where_it_was_and_repeats_only_what_was_in_flight(drivers: Drivers) -> None:
    jobs = range(8)
    with drivers.start(0.5, jobs) as driver:
        wait_until(lambda: len(drivers.stored()) >= 3)
        driver.kill()
    wait_until(lambda: not any(map(alive, drivers.workers())))
    done = drivers.stored()
    assert len(done) < len(jobs)
    with drivers.start(0.0, jobs) as driver:
        assert driver.wait(DEADLINE) == 0
    assert sorted(drivers.stored()) == [str(job) for job in jobs]
    again = {job for job, times in drivers.started().items() if times > 1}
    assert len(again) <= 2 + 1  # two were running, one may have been done but not stored yet
    assert not again & set(done)


@pytest.mark.slow  # starts processes that import torch
def test_an_interrupted_driver_keeps_what_is_stored_and_leaves_no_process(drivers: Drivers) -> None:
    with drivers.start(0.5, range(40)) as driver:
        wait_until(lambda: len(drivers.stored()) >= 2)
        os.killpg(driver.pid, signal.SIGINT)
        _, stderr = driver.communicate(timeout=DEADLINE)
    assert stderr.decode().rstrip().endswith("KeyboardInterrupt")
    assert stderr.decode().count("Traceback") == 1
    assert 2 <= len(drivers.stored()) < 40
    wait_until(lambda: not any(map(alive, drivers.workers())))


@pytest.mark.slow  # starts processes that import torch
def test_a_worker_leaves_ctrl_c_to_its_driver(drivers: Drivers) -> None:
    with drivers.start(0.5, range(6)) as driver:
        wait_until(lambda: drivers.log.exists() and bool(drivers.workers()))
        for worker in drivers.workers():
            os.kill(worker, signal.SIGINT)
        _, stderr = driver.communicate(timeout=DEADLINE)
    assert (driver.returncode, stderr) == (0, b"")
    assert sorted(drivers.stored()) == [str(job) for job in range(6)]


@pytest.mark.slow  # starts processes that import torch
def test_two_drivers_at_once_lose_nothing(drivers: Drivers) -> None:
    with drivers.start(0.01, range(30), n_jobs=1) as one, drivers.start(0.01, range(30, 60), n_jobs=1) as other:
        assert (one.wait(DEADLINE), other.wait(DEADLINE)) == (0, 0)
    assert sorted(map(int, drivers.stored())) == list(range(60))
    assert {record["square"] for record in drivers.store} == {job**2 for job in range(60)}
