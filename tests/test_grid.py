"""Jobs run in several processes; what each comes to is there as soon as it is done, whatever becomes of the others."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from metricgrad.grid import JobsFailed, run_grid


def test_results_come_back_from_several_processes_with_one_thread_each() -> None:
    def work(job: int) -> Iterator[tuple[int, int, int]]:
        time.sleep(0.2)
        yield job, os.getpid(), torch.get_num_threads()

    found = dict(run_grid(range(6), work, n_jobs=2))
    assert sorted(found) == list(range(6))
    assert all(results[0][0] == job for job, results in found.items())
    processes = {results[0][1] for results in found.values()}
    assert len(processes) >= 2
    assert os.getpid() not in processes
    assert {results[0][2] for results in found.values()} == {1}


def test_one_job_at_a_time_stays_in_this_process_and_gives_its_threads_back() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        [(_, results)] = run_grid(["only"], lambda job: [os.getpid(), torch.get_num_threads()], n_jobs=1)
        assert results == [os.getpid(), 1]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_job_that_fails_is_named_at_the_end_and_loses_no_other(n_jobs: int) -> None:
    def work(job: int) -> Iterator[int]:
        yield job
        if job == 2:
            raise ArithmeticError("two is too many")

    found = []
    with pytest.raises(
        JobsFailed, match=r"1 of 5 jobs failed, the others are done:\n  2: ArithmeticError: two is"
    ) as e:
        found.extend(run_grid(range(5), work, n_jobs=n_jobs))
    assert [failure.job for failure in e.value.failures] == [2]
    assert "raise ArithmeticError" in e.value.failures[0].trace


def test_results_that_cannot_be_sent_fail_their_job_only() -> None:
    def work(job: int) -> list[Any]:
        return [job if job else (lambda: None)]

    found: list[tuple[int, list[Any]]] = []
    with pytest.raises(JobsFailed, match=r"1 of 4 .*\n  0: "):
        found.extend(run_grid(range(4), work, n_jobs=2))
    assert sorted(found) == [(1, [1]), (2, [2]), (3, [3])]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"engine": "spark"}, r"engine: expected one of local.*, got 'spark'"),
        ({"n_jobs": 0}, "n_jobs: expected None or a whole number of at least 1, got 0"),
        ({"n_jobs": True}, "n_jobs: expected .* got True"),
        ({"n_jobs": 1.5}, "n_jobs: expected .* got 1.5"),
        ({"address": "tcp://a:1"}, "address: expected None, for the engine 'local' has no cluster, got 'tcp://a:1'"),
    ],
)
def test_a_bad_argument_is_named_before_any_work(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run_grid([1], range, **wrong)
