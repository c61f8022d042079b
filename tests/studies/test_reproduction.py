"""The parts of the page of the reproduction that are not tables of the package."""

from __future__ import annotations

from itertools import product

from metricgrad.evaluation.records import Record
from studies.reproduction.cluster import elapsed, job_seconds, part_seconds, parts_table
from studies.reproduction.evidence import STANDARD
from studies.reproduction.modes import modes_table


def made(dataset: str, method: str, seed: int, **kept: object) -> Record:
    return Record(dataset, "f1", method, STANDARD, seed, 0, {"seconds": 2.0, **kept})


def test_jobs_go_to_the_first_free_worker() -> None:
    jobs = [5.0, 4.0, 3.0, 3.0, 1.0]
    assert elapsed(jobs, 1) == sum(jobs)
    assert elapsed(jobs, 2) == 8.0  # 5 + 3 and 4 + 3 + 1
    assert elapsed(jobs, 100) == max(jobs)


def test_runs_of_one_dataset_and_seed_are_one_job() -> None:
    runs = [made(dataset, mode, seed) for dataset, mode, seed in product("ab", ("sl-r", "sl-s"), range(3))]
    assert job_seconds(runs) == [4.0] * 6
    assert part_seconds(runs) == {"a": 2.0, "b": 2.0}


def test_modes_are_shown_with_what_the_guard_keeps_and_the_fidelity_at_the_end() -> None:
    runs = [
        made("a", "sl-r", seed, verdict={"followed": kept}, history={"trust": [0.1, trust, None]})
        for seed, (kept, trust) in enumerate([(True, 0.9), (False, 0.8), (False, 0.7)])
    ]
    lines = modes_table(runs).splitlines()
    (row,) = [line for line in lines if "SL-R" in line]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == ["SL-R", "3", "33%", "0.80"]
    assert any("| SL-U | 0 | - | - |" in line for line in lines)


def test_every_part_is_shown_with_its_hours_on_one_core_and_on_two() -> None:
    lines = parts_table({"tables": [3600.0, 7200.0, 1800.0], "nothing": []}).splitlines()
    assert "| tables | 3 | 3.50 | 2.00 |" in lines  # 1 + 0.5 beside 2
    assert not any("nothing" in line for line in lines)
