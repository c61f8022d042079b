"""Records: the newest of each run, whatever else is in the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from made_up import add, run
from metricgrad.records import Setting, open_store, read_records, settings
from metricgrad.results import Store


def test_the_newest_record_of_a_run_counts(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    for loss in (0.3, 0.2):
        add(store, run("a9a", "f1", "sl-r"), loss)
    add(store, run("a9a", "f1", "sl-r", replicate=1), 0.4)
    assert [(r.replicate, r.loss("honest", "f1")) for r in read_records(tmp_path)] == [(0, 0.2), (1, 0.4)]


def test_records_of_other_things_and_broken_lines_are_passed_over(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    store.add({"benchmark": "speed"}, {"seconds": 1})
    add(store, run("a9a", "f1", "sl-r"), 0.2)
    with store.path.open("a") as file:
        file.write('[1, 2]\n"text"\n{"run": {"dataset": "a9a"')
    assert [record.dataset for record in read_records(store)] == ["a9a"]


def test_a_loss_that_is_missing_or_no_number_is_none(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("a9a", "f1", "sl-r"), float("nan"))
    [record] = read_records(store)
    assert record.loss("honest", "f1") is None
    assert record.loss("honest", "auc") is None
    assert record.loss("other", "f1") is None


def test_settings_are_told_apart_by_model_recipe_and_changes(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    for more in ({}, {"model": "linear"}, {"recipe": "paper"}, {"changes": {"rounds": 20, "first": "surrogate"}}):
        add(store, run("a9a", "f1", "sl-r", **more), 0.2)
    found = settings(store)
    assert len(found) == 4
    assert found[0] == Setting("mlp", "default")
    assert found[3].title == 'mlp, recipe default with first = "surrogate", rounds = 20'


def test_runs_on_fewer_rows_are_runs_of_their_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    for loss, more in ((0.1, {}), (0.2, {"rows": 2_000}), (0.3, {"rows": 6_000})):
        add(store, run("a9a", "f1", "sl-r", **more), loss)
    found = {r.setting.rows: (r.loss("honest", "f1"), r.setting.title) for r in read_records(store)}
    assert found == {
        0: (0.1, "mlp, recipe default"),
        2_000: (0.2, "mlp, recipe default, at most 2,000 rows"),
        6_000: (0.3, "mlp, recipe default, at most 6,000 rows"),
    }


def test_a_folder_a_file_and_a_store_are_the_same(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("a9a", "f1", "sl-r"), 0.2)
    assert open_store(tmp_path).path == open_store(str(store.path)).path == open_store(store).path


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"results: expected a folder that holds runs\.jsonl, got '.*'"):
        read_records(tmp_path)
    with pytest.raises(ValueError, match="got 'no/such/folder'"):
        read_records("no/such/folder")
