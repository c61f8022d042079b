"""The parts of a report: accessible tables whose cells sort, and known problems where they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from made_up import add, run, small

from metricgrad.evaluation.records import Setting, read_records
from metricgrad.evaluation.store import Store
from metricgrad.paper.sections import (
    against_printed,
    datasets_table,
    how_it_was_made,
    result_table,
    seconds_table,
)
from metricgrad.paper.tables import table1, table2, table3

SETTING = Setting("mlp", "default")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return small(tmp_path)


def test_every_table_has_a_caption_and_headings_with_scopes(store: Store) -> None:
    records = read_records(store)
    made = [
        datasets_table(table1(records)),
        result_table(table2(records, "paper", SETTING), "t2"),
        result_table(table3(records, "paper", SETTING), "t3"),
        against_printed(table2(records, "paper", SETTING)),
        seconds_table(records, "t"),
    ]
    for text in made:
        assert text.count("<caption>") == text.count("<table") >= 1
        assert all('scope="' in heading for heading in re.findall(r"<th\b[^>]*>", text))


def test_a_cell_has_ours_its_error_and_the_printed_with_a_verdict(store: Store) -> None:
    text = result_table(table2(store, "paper", SETTING), "t2")
    cell = re.search(r'<tr data-dataset="a9a" data-method="sl-u".*?(<td data-value="0.0977.*?</td>)', text)
    assert cell is not None
    assert 'title="2 seeds; within noise against the paper&#x27;s"' in cell[1]
    assert '<strong>0.0978</strong><span class="se"> ±0.0010</span>' in cell[1]
    assert '<span aria-hidden="true">≈</span> 0.0968' in cell[1]


def test_subsets_known_problems_and_missing_cells_are_marked(store: Store) -> None:
    text = result_table(table2(store, "paper", SETTING), "t2")
    assert "Cod-RNA<small>68 % of the rows</small>" in text
    assert re.search(r">CC-Fraud<sup><span class=\"sr\"> note </span>\d</sup></th>", text)
    assert re.search(r">Jaccard<sup><span class=\"sr\"> note </span>1,\d</sup></th>", text)
    assert "Means over 2 seeds. The models are those that followed their loss" in text
    assert "known problems of the printed table</summary>" in text
    assert '<span class="tag">ours too</span> The threshold is the best' in text
    assert re.search(r'<td data-value="" class="cell" title="not run" data-metric="eer">–', text)


def test_names_are_escaped_everywhere(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    evil = '"><script>x</script>'
    add(store, run(evil, "f1", "sl-r"), 0.2, subset=evil, command=evil)
    records = read_records(store)
    text = datasets_table(table1(records)) + result_table(table2(records), "t") + seconds_table(records, evil)
    assert "<script" not in text + how_it_was_made(records, evil)


def test_seconds_are_means_over_the_runs_of_a_dataset_and_method(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    for seed, seconds in enumerate((10, 20)):
        add(store, run("a9a", "f1", "sl-r", seed), 0.2, seconds=seconds)
    add(store, run("susy", "f1", "pairwise"), 0.2, seconds=None)
    text = seconds_table(read_records(store), "t")
    assert '<td data-value="15">15.0</td><td data-value="">–</td>' in text


def test_how_it_was_made_names_commands_seeds_settings_and_versions(store: Store) -> None:
    text = how_it_was_made(read_records(store), "metricgrad report x")
    assert "metricgrad reproduce table2 --metric auc\n" in text
    assert "metricgrad report x</code>" in text
    assert "<dd>0, 1</dd>" in text
    assert "mlp, recipe default; mlp, recipe default with rounds = 5" in text
    assert "numpy 2." in text


def test_a_table_of_other_datasets_is_not_compared(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("digits8", "f1", "sl-r"), 0.2)
    assert against_printed(table2(store)) == ""
