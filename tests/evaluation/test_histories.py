"""Histories for a page: few points, the right ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from made_up import ROUNDS, add, run, small

from metricgrad.evaluation import histories
from metricgrad.evaluation.histories import thin_histories
from metricgrad.evaluation.records import read_records
from metricgrad.evaluation.store import Store


def thinned(store: Store) -> dict[str, Any]:
    records = read_records(store)
    return thin_histories(records, list(dict.fromkeys(record.setting for record in records)))


def test_short_histories_are_kept_whole_and_steps_that_are_alike_once(tmp_path: Path) -> None:
    kept = thinned(small(tmp_path))
    assert kept["grids"] == [[75 * (i + 1) for i in range(ROUNDS)]]
    assert {run["g"] for run in kept["runs"]} == {0}
    assert {len(run[key]) for run in kept["runs"] for key in "vlq"} == {ROUNDS}
    assert {run["s"] for run in kept["runs"]} == {0, 1}


def test_long_histories_are_thinned_to_what_a_page_can_carry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "NUMBERS", 12 * 3 * 10)
    store = small(tmp_path)
    kept = thinned(store)
    [steps] = kept["grids"]
    assert len(steps) == histories.LEAST
    assert (steps[0], steps[-1]) == (75, 75 * ROUNDS)


def test_the_best_checkpoint_is_kept_and_unchecked_rounds_are_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    history = {
        "steps": [1, 2, 3, 4, 5],
        "validation": [None, 0.5, None, 0.123456, 0.4],
        "loss": [9, 1, 9, 2, 3],
        "gap": [None] * 5,
    }
    add(store, run("a9a", "f1", "sl-r"), 0.2, history=history)
    kept = thinned(store)
    assert kept["grids"] == [[2, 4, 5]]
    [one] = kept["runs"]
    assert (one["v"], one["l"], one["q"], one["b"]) == ([0.5, 0.1235, 0.4], [1, 2, 3], [None] * 3, [4, 0.12346])


def test_second_runs_and_runs_without_a_history_are_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("a9a", "f1", "sl-r", replicate=1), 0.2)
    add(store, run("a9a", "f1", "sl-r"), 0.2, history=None)
    never = {"steps": [1, 2], "validation": [None, None], "loss": [0.2, 0.1]}
    add(store, run("a9a", "f1", "sl-s"), 0.2, history=never)
    [one] = thinned(store)["runs"]
    assert (one["k"], one["v"], one["l"], one["q"], one["b"]) == ("sl-s", [None] * 2, [0.2, 0.1], [None] * 2, None)
