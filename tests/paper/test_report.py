"""Pages are whole in themselves, and nothing in a name can become markup."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from made_up import add, run, small
from typer.testing import CliRunner

from metricgrad.cli.app import app
from metricgrad.evaluation.records import read_records
from metricgrad.evaluation.store import Store
from metricgrad.paper.report import series_numbers, stored_history, training_charts, write_report


def test_a_page_is_replaced_whole_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    store = small(tmp_path / "results")
    report = tmp_path / "results" / "index.html"
    report.write_text("old")
    with report.open() as reader:  # who reads the old page goes on reading it: its file is not written into
        write_report(store, report, figures=False)
        assert reader.read() == "old"
    assert report.read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in report.parent.iterdir()) == ["index.html", "runs.jsonl"]


# ---- the report ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    out = tmp_path_factory.mktemp("report") / "new" / "page.html"
    assert write_report(small(tmp_path_factory.mktemp("results")), out, figures=False) == 79
    return out.read_text()


def test_a_report_has_every_part_with_ids_that_are_unique(page: str) -> None:
    ids = re.findall(r"\bid=[\"']([^\"']+)", page.split("<script>")[0])
    assert len(ids) == len(set(ids))
    for link in re.findall(r'href="#(\w+)"', page):
        assert link in ids
    assert {"data", "tables", "printed", "ranks", "training", "seconds", "made"} <= set(ids)
    for protocol in ("honest", "paper"):
        assert {f"table2-{protocol}-0", f"table3-{protocol}-0", f"table2-{protocol}-1"} <= set(ids)


def test_settings_have_tables_of_their_own_the_largest_first(page: str) -> None:
    captions = re.findall(r"<caption><span>(Table 2,[^<]+)", page)
    default, quick = "mlp, recipe default", "mlp, recipe default with rounds = 5"
    assert captions == [f"Table 2, protocol {p}, {s}" for s in (default, quick) for p in ("honest", "paper")]


def test_the_headline_says_how_ours_stands_to_the_printed(page: str) -> None:
    assert "<dt>models trained</dt><dd>79</dd>" in page
    assert re.search(r"Table 2: at or below the printed loss in \d+ of 27 cells", page)
    assert "worse in 0. 9 of these cells are of datasets held only in part." in page
    assert re.search(r"Mean ranks over 9 cells: SL-", page)


def test_every_dataset_and_metric_of_a_setting_has_a_chart_of_its_training(page: str) -> None:
    found = re.findall(r'data-choice-setting="(\d)" data-choice-dataset="(\w+)" data-choice-metric="(\w+)"', page)
    every = {("0", dataset, metric) for dataset in ("a9a", "codrna", "susy") for metric in ("auc", "error_rate", "f1")}
    assert set(found) == every | {("1", "a9a", "f1")}
    assert len(found) == 10
    assert page.count('aria-label="Training on ') == 10
    assert "Least true validation loss: SL-U" in page


def test_second_runs_and_runs_without_a_history_are_not_drawn_and_odd_values_are_missing(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("a9a", "f1", "sl-r", replicate=1), 0.2)
    add(store, run("a9a", "f1", "sl-r"), 0.2, history=None)
    never = {"steps": [1, 2], "validation": [None, None], "loss": [0.2, float("inf")]}
    add(store, run("a9a", "f1", "sl-s"), 0.2, history=never)
    records = read_records(store)
    [chart] = training_charts(records, [records[0].setting], {"SL-S": 0})
    assert re.findall(r'class="mean" data-series="([\w-]+)"', chart["svg"]) == ["SL-S"]
    frame = stored_history(never)
    assert frame["loss"].tolist()[0] == 0.2
    assert frame.isna().sum().to_dict() == {"steps": 0, "validation": 2, "loss": 1, "gap": 2}


def test_curves_of_many_runs_have_few_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = read_records(small(tmp_path))
    settings = list(dict.fromkeys(record.setting for record in records))
    numbers = series_numbers(record.method for record in records)
    whole = sum(len(chart["svg"]) for chart in training_charts(records, settings, numbers))
    monkeypatch.setattr("metricgrad.paper.report.PAGE_POINTS", 1)
    assert sum(len(chart["svg"]) for chart in training_charts(records, settings, numbers)) < whole
    assert (numbers["SL-R"], numbers["cross-entropy"]) == (0, 3)
    assert len(set(numbers.values())) == len(numbers)


def test_how_it_was_made_names_commands_seeds_settings_and_versions(page: str) -> None:
    assert "metricgrad reproduce table2 --metric auc\n" in page
    assert re.search(r"metricgrad report results\d*</code>", page)
    assert re.search(r"<dt>Seeds</dt><dd>\s*0, 1\s*</dd>", page)
    assert "mlp, recipe default; mlp, recipe default with rounds = 5" in page
    assert "numpy 2." in page


def test_tables_say_which_models_they_show_and_what_is_known_to_be_wrong(page: str) -> None:
    assert "Means over 2 seeds. The models are those that followed their loss" in page
    assert "known problems of the printed table</summary>" in page
    assert '<span class="tag">ours too</span> The threshold is the best' in page


def test_tables_of_other_datasets_are_not_compared(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("digits8", "f1", "sl-r"), 0.2)
    write_report(store, tmp_path / "page.html", figures=False)
    assert "against the printed, by" not in (tmp_path / "page.html").read_text()


def test_a_report_refers_to_nothing_outside(page: str) -> None:
    assert not re.findall(r"\w+://[^\"'\s)]+", page)
    assert not re.search(r"<(link|img|iframe|object|embed)\b", page)


def test_one_run_of_a_dataset_that_is_not_the_papers_makes_a_report_too(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("digits8", "f1", "soft-f1"), 0.1)
    assert write_report(tmp_path, tmp_path / "page.html", figures=False) == 1
    assert "digits" in (tmp_path / "page.html").read_text()
    assert store.path.exists()


def test_the_command_writes_the_page_into_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add(Store(tmp_path / "runs.jsonl"), run("a9a", "f1", "sl-r"), 0.1)
    monkeypatch.setattr("metricgrad.paper.report.FIGURE2_ROUNDS", (0, 1))
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert done.output.replace("\n", "") == f"1 runs are in {tmp_path}: open {tmp_path / 'index.html'}."
    assert (tmp_path / "index.html").stat().st_size < 1_000_000


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, "results: expected a folder that holds runs.jsonl or runs.parquet, got"),
        (lambda folder: folder.mkdir(), "results: expected a folder that holds runs.jsonl or runs.parquet, got"),
        (
            lambda folder: (folder.mkdir(), (folder / "runs.jsonl").touch()),
            "results: expected records of trained models",
        ),
    ],
    ids=["missing", "empty", "no-records"],
)
def test_a_folder_without_results_is_one_line_and_exit_code_2(
    tmp_path: Path, make: Callable[[Path], None], said: str
) -> None:
    folder = tmp_path / "results"
    make(folder)
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 2
    assert done.output.startswith(f"metricgrad: error: {said}")
    assert done.output.count("\n") == 1
    assert not (folder / "index.html").exists()
