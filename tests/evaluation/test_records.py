"""Records: the newest of each run, whatever else is in the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_up import add, run

from metricgrad.evaluation.records import Setting, open_store, read_records, settings
from metricgrad.evaluation.store import Store
from metricgrad.paper.report import write_report
from metricgrad.paper.tables import table2


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
    with pytest.warns(UserWarning, match="skipped 3 of 5 lines"):
        assert [record.dataset for record in read_records(store)] == ["a9a"]


MALFORMED = [
    ({"seed": None}, {}, "seed, 'None'"),
    ({"seed": "0"}, {}, "seed, '0'"),
    ({"dataset": 3}, {}, "dataset, '3'"),
    ({"model": ["mlp"]}, {}, "model"),
    ({"rows": "many"}, {}, "rows"),
    ({"content": [1]}, {}, "content"),
    ({}, {"test": 0.3}, "test, '0.3'"),
    ({}, {"test": {"honest": 0.3}}, "test"),
    ({}, {"test": {"honest": {"f1": "low"}}}, "test"),
    ({}, {"rows": [1, 2]}, "rows"),
    ({}, {"seconds": "12"}, "seconds, '12'"),
    ({}, {"history": {"steps": 3}}, "history"),
    ({}, {"history": {"steps": ["x"]}}, "history"),
    ({}, {"positive_share": "half"}, "positive_share"),
    ({}, {"subset": {}}, "subset"),
    ({}, {"verdict": True}, "verdict"),
]


@pytest.mark.parametrize(("named", "outcome", "said"), MALFORMED)
def test_a_malformed_record_is_skipped_with_a_warning(named: dict, outcome: dict, said: str, tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("a9a", "f1", "sl-r"), 0.2)
    store.add({**run("a9a", "f1", "sl-s"), **named}, {"test": {"honest": {"f1": 0.1}}, **outcome})
    with pytest.warns(UserWarning, match=f"skipped 1 malformed records, the first for its {said}"):
        assert [record.method for record in read_records(store)] == ["sl-r"]


def test_a_report_is_written_of_what_is_left_without_malformed_records(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("a9a", "f1", "sl-r"), 0.2)
    for number, (named, outcome, _) in enumerate(MALFORMED):
        run_of = {**run("a9a", "f1", "sl-s", seed=number), **named}
        store.add(run_of, {"test": {"honest": {"f1": 0.1}}, **outcome})
    with pytest.warns(UserWarning, match=f"skipped {len(MALFORMED)} malformed records"):
        assert write_report(store, tmp_path / "page.html", figures=False) == 1


def test_runs_by_two_contents_of_a_recipe_under_one_name_have_two_settings(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("a9a", "f1", "sl-r"), 0.2)
    add(store, run("a9a", "f1", "sl-r", changes={"anchor": 0.3}), 0.4)
    unknown = {k: v for k, v in run("a9a", "f1", "sl-r").items() if k != "content"}
    add(store, {**unknown, "changes": {"rounds": 7}}, 0.6)
    assert [setting.title for setting in settings(store)] == [
        "mlp, recipe default",
        "mlp, recipe default with anchor = 0.3",
        "mlp, recipe default with content = unknown, rounds = 7",
    ]
    with pytest.raises(ValueError, match="setting: expected one of those that were stored"):
        table2(store)


def test_a_field_that_a_stored_recipe_does_not_have_yet_has_its_neutral_default(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    older = run("a9a", "f1", "sl-r")
    del older["content"]["baseline_steps"]
    add(store, older, 0.2)
    assert settings(store) == [Setting("mlp", "default")]


def test_the_model_that_followed_the_loss_has_losses_of_its_own(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    other = {"test": {"honest": {"f1": 0.4}}, "validation_loss": 0.4}
    add(store, run("a9a", "f1", "sl-r"), 0.2, verdict={"followed": False}, followed=other)
    add(store, run("a9a", "f1", "sl-s"), 0.2, verdict={"followed": True}, followed=None)
    store.add(run("a9a", "f1", "sl-u"), {"test": {"honest": {"f1": 0.2}}, "verdict": {"followed": False}})
    kept, same, older = read_records(store)
    assert (kept.loss("honest", "f1"), kept.loss("honest", "f1", followed=True)) == (0.2, 0.4)
    assert (same.loss("honest", "f1"), same.loss("honest", "f1", followed=True)) == (0.2, 0.2)
    assert [record.knows_followed for record in (kept, same, older)] == [True, True, False]


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
    with pytest.raises(ValueError, match=r"expected a folder that holds runs\.jsonl or runs\.parquet, got '.*'"):
        read_records(tmp_path)
    with pytest.raises(ValueError, match="got 'no/such/folder'"):
        read_records("no/such/folder")
