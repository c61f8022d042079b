"""The store of results: nothing added is lost, whoever else writes and whatever is killed."""

from __future__ import annotations

import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest

from metricgrad import provenance as made
from metricgrad.evaluation.store import Store
from metricgrad.provenance import provenance

RUN = {"dataset": "a9a", "metric": "f1", "seed": 3}


def add_some(path: Path, writer: int) -> None:
    for seed in range(50):
        Store(path).add({"writer": writer, "seed": seed}, {"loss": 0.5, "history": list(range(500))})


def test_a_record_comes_back_with_what_made_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep" / "runs.jsonl")
    store.add(RUN, {"loss": 0.25})
    (record,) = store
    assert record["run"] == RUN
    assert record["loss"] == 0.25
    assert set(record["made_by"]) == {"metricgrad", "commit", "date", "python", "torch", "numpy", "scikit-learn"}
    assert record["made_by"] == provenance()


def test_a_run_is_found_by_all_its_fields_and_the_newest_counts(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    store.add(RUN, {"loss": 0.25})
    store.add(RUN, {"loss": 0.2})
    found = store.find(RUN)
    assert found is not None
    assert found["loss"] == 0.2
    assert store.find({**RUN, "seed": 4}) is None


def test_a_store_that_is_not_there_is_empty(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    assert list(store) == []
    assert store.find(RUN) is None
    assert store.frame().empty


def test_a_line_cut_short_by_a_kill_is_skipped_and_costs_no_other(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    store.add(RUN, {"loss": 0.25})
    with store.path.open("a") as file:
        file.write('{"run": {"dataset": "cov')
    store.add({**RUN, "seed": 4}, {"loss": 0.3})
    with pytest.warns(UserWarning, match=r"runs\.jsonl: skipped 1 of 3 lines that are not records, .* line 2;"):
        assert [record["loss"] for record in store] == [0.25, 0.3]


@pytest.mark.parametrize(
    "line", [b"12", b"null", b'"text"', b"[1]", b"{}", b'{"run": 3}', b"\xff\xfe", b"{" * 3_000, b"[" * 100_000]
)
def test_a_line_that_is_not_a_record_is_skipped_by_every_reader_which_says_so(line: bytes, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    store.add(RUN, {"loss": 0.25})
    with store.path.open("ab") as file:
        file.write(line + b"\n\n")
    store.add({**RUN, "seed": 4}, {"loss": 0.3})
    for read, expected in (
        (lambda: [record["loss"] for record in store], [0.25, 0.3]),
        (lambda: len(store.keys()), 2),
        (lambda: store.find(RUN)["loss"], 0.25),
        (lambda: list(store.frame()["loss"]), [0.25, 0.3]),
    ):
        with pytest.warns(UserWarning, match="skipped 1 of 4 lines"):
            assert read() == expected


@pytest.mark.parametrize(
    ("script", "commit"), [("sleep 60", ""), ("exit 3", ""), ("printf 'v1\\377'", "v1\ufffd"), (None, "")]
)
def test_a_git_that_hangs_fails_or_is_not_there_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, commit: str
) -> None:
    (tmp_path / "bin").mkdir()
    if script is not None:
        (tmp_path / "bin" / "git").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}" + ("" if script is None else ":/usr/bin:/bin"))
    monkeypatch.setattr(made, "GIT_SECONDS", 0.3)
    provenance.cache_clear()
    try:
        store = Store(tmp_path / "runs.jsonl")
        store.add(RUN, {"loss": 0.25})
        (record,) = store
        assert record["made_by"]["commit"] == commit
    finally:
        provenance.cache_clear()


def test_two_writers_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    start = multiprocessing.get_context("spawn")
    writers = [start.Process(target=add_some, args=(path, writer)) for writer in (1, 2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    lines = path.read_text().splitlines()
    kept = [(json.loads(line)["run"]["writer"], json.loads(line)["run"]["seed"]) for line in lines]
    assert sorted(kept) == [(writer, seed) for writer in (1, 2) for seed in range(50)]


def test_numbers_json_cannot_hold_become_null(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    store.add({"rate": np.float32(0.5)}, {"history": [(np.int64(1), float("nan")), (2, float("inf"))]})
    assert "NaN" not in store.path.read_text()
    (record,) = store
    assert record["history"] == [[1, None], [2, None]]
    assert store.find({"rate": 0.5}) is not None


def test_records_are_a_table_for_pandas(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    store.add(RUN, {"loss": 0.25})
    frame = store.frame()
    assert frame.loc[0, "run.metric"] == "f1"
    assert frame.loc[0, "loss"] == 0.25


# ---- packed records ------------------------------------------------------------------------------------------------


def seeds(store: Store) -> list[int]:
    return [record["run"]["seed"] for record in store]


def filled(path: Path, numbers: range) -> Store:
    store = Store(path)
    for seed in numbers:
        store.add({**RUN, "seed": seed}, {"loss": seed / 7, "history": [0.1, None]})
    return store


def test_packed_and_new_records_are_read_together_oldest_first(tmp_path: Path) -> None:
    store = filled(tmp_path / "runs.jsonl", range(3))
    assert store.pack() == 3
    assert store.path.read_bytes() == b""
    store.add({**RUN, "seed": 1}, {"loss": 9.0})
    assert seeds(store) == [0, 1, 2, 1]
    found = store.find({**RUN, "seed": 1})
    assert found is not None
    assert found["loss"] == 9.0
    assert Store(store.packed).path == store.path
    assert store.pack() == 4
    assert seeds(store) == [0, 1, 2, 1]


def test_packing_and_unpacking_gives_the_same_lines(tmp_path: Path) -> None:
    store = filled(tmp_path / "runs.jsonl", range(5))
    lines = store.path.read_bytes()
    assert store.pack() == store.unpack() == 5
    assert store.path.read_bytes() == lines
    assert not store.packed.exists()


def test_packing_again_changes_nothing(tmp_path: Path) -> None:
    store = filled(tmp_path / "runs.jsonl", range(2))
    store.pack()
    packed = store.packed.read_bytes()
    assert store.pack() == 2
    store.path.unlink()  # as in a fresh clone
    assert store.pack() == 2
    assert store.packed.read_bytes() == packed
    assert seeds(store) == [0, 1]


def test_a_kill_between_packing_and_emptying_the_lines_gives_no_record_twice(tmp_path: Path) -> None:
    store = filled(tmp_path / "runs.jsonl", range(3))
    lines = store.path.read_bytes()
    store.pack()
    store.path.write_bytes(lines)
    store.add({**RUN, "seed": 3}, {"loss": 0.0})
    assert seeds(store) == [0, 1, 2, 3]
    assert store.pack() == 4
    assert seeds(store) == [0, 1, 2, 3]


def test_a_kill_while_unpacking_loses_and_repeats_nothing(tmp_path: Path) -> None:
    store = filled(tmp_path / "runs.jsonl", range(3))
    first, *_ = store.path.read_bytes().splitlines()
    store.pack()
    store.path.write_bytes(first + b'\n{"run": {"se')
    with pytest.warns(UserWarning, match="skipped 1 of 2 lines"):
        assert seeds(store) == [0, 1, 2]
    with pytest.warns(UserWarning, match="skipped 1 of 2 lines"):
        assert store.unpack() == 3
    assert seeds(store) == [0, 1, 2]


def test_damaged_lines_are_dropped_with_a_warning_when_packing(tmp_path: Path) -> None:
    store = filled(tmp_path / "runs.jsonl", range(2))
    with store.path.open("ab") as file:
        file.write(b'{"run": {"seed": 2')
    with pytest.warns(UserWarning, match="skipped 1 of 3 lines"):
        assert store.pack() == 2
    assert seeds(store) == [0, 1]


def test_lines_of_something_else_are_not_packed(tmp_path: Path) -> None:
    store = Store(tmp_path / "log.jsonl")
    store.path.write_text('{"mutant": 1}\n')
    with (
        pytest.warns(UserWarning, match="skipped 1 of 1"),
        pytest.raises(ValueError, match=r"log\.jsonl: expected lines of records, got none"),
    ):
        store.pack()
    assert store.path.read_text() == '{"mutant": 1}\n'


def test_a_damaged_packed_file_is_one_clear_error_and_is_not_overwritten(tmp_path: Path) -> None:
    store = filled(tmp_path / "runs.jsonl", range(2))
    store.packed.write_bytes(b"PAR1 and no more")
    for use in (lambda: list(store), store.pack, store.unpack, lambda: store.find(RUN)):
        with pytest.raises(ValueError, match=r"runs\.parquet: expected a Parquet file of records"):
            use()
    assert store.packed.read_bytes() == b"PAR1 and no more"
    assert len(store.path.read_bytes().splitlines()) == 2


def test_what_is_not_there_cannot_be_packed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="expected a file of records, got none"):
        Store(tmp_path / "runs.jsonl").pack()
    with pytest.raises(ValueError, match="expected a Parquet file of records, got none"):
        Store(tmp_path / "runs.jsonl").unpack()
    assert list(tmp_path.iterdir()) == []


def test_a_writer_loses_nothing_while_another_process_packs(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    filled(path, range(100, 101))
    writer = multiprocessing.get_context("spawn").Process(target=add_some, args=(path, 1))
    writer.start()
    while writer.is_alive():
        Store(path).pack()
    writer.join()
    assert sorted(seeds(Store(path))) == [*range(50), 100]


def test_fields_of_recipes_are_read_by_their_present_names(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    run = {"content": {"companion": True, "rounds": 3}, "changes": {"companion": False}}
    store.add(run, {})
    store.pack()
    added = {"start": "steps", "patience": None, "weight_decay": 0.0, "early_stopping": False}  # stored without them
    today = {
        "content": {**added, "control": True, "rounds": 3},
        "changes": {"control": False},
    }
    assert [record["run"] for record in store] == [today]
    assert store.find(today) is not None
    assert store.keys() == {store.key(today)}
    assert store.unpack() == 1
    assert '"companion": true' in store.path.read_text()  # what is stored stays as it was
