"""The paper's tables in a terminal, a document and a page: the content of cells, and names that stay text."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from made_up import add, printed, run, small
from rich.console import Console

from metricgrad.evaluation.records import Setting, read_records
from metricgrad.evaluation.statistics import rank_methods
from metricgrad.evaluation.store import Store
from metricgrad.paper.layouts import (
    datasets_table,
    metric_label,
    ranking_table,
    result_table,
    seconds_table,
    tally_page_table,
    tally_table,
)
from metricgrad.paper.printed import LOSSES, MODES, TABLE2
from metricgrad.paper.tables import table1, table2, table3
from metricgrad.reporting.tables import ResultTable, as_html, as_markdown, as_rich


def shown(table: ResultTable, width: int = 200) -> str:
    out = StringIO()
    Console(file=out, width=width).print(as_rich(table))
    return out.getvalue()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return printed(tmp_path_factory.mktemp("printed"), seeds=3, spread=0.0001)


def test_table_2_in_markdown_has_ours_the_error_and_the_printed_with_the_best_in_bold(store: Store) -> None:
    text = as_markdown(result_table(table2(store, "paper")))
    assert text.startswith("**Table 2, protocol paper, mlp, recipe default**\n\n| dataset | mode | AUC |")
    assert "| a9a | SL-U | **0.0968** ±0.0001 (0.0968) |" in text
    assert "\n|  | SL-R | 0.0983 ±0.0001 (0.0983) |" in text
    assert "| mean rank | SL-U |" in text
    assert "over 3 seeds" in text
    assert "over the 9 datasets" in text
    assert "- Both: The threshold is the best of 100 percentiles" in text
    assert "- The paper: One run" in text


def test_every_row_of_markdown_has_as_many_cells_as_the_heading(store: Store) -> None:
    for table in (table2(store), table3(store)):
        lines = [line for line in as_markdown(result_table(table)).splitlines() if line.startswith("|")]
        assert len({line.count(" | ") for line in lines}) == 1
        assert len(lines) == 2 + (30 if table.number == 2 else 10)


def test_table_3_has_a_row_of_wins(store: Store) -> None:
    text = as_markdown(result_table(table3(store, "paper")))
    assert "| wins | 3.5 | **5.5** | 1.0 | 0.0 | **8.0** | 3.5 | **5.5** | 3.0 | **6.0** |" in text
    assert "| AUC: global-objectives |" in text


def test_the_terminal_shows_the_same_and_fits_into_eighty_columns(store: Store) -> None:
    wide = shown(result_table(table2(store, "paper")), width=260)
    assert "0.0968 ±0.0001 (0.0968)" in wide
    narrow = shown(result_table(table2(store)), width=80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" not in narrow
    assert re.search(r"ijcnn1 +SL-U +0\.0048 +0\.0378 +0\.0537", narrow)
    assert re.search(r"\(0\.0048\) +\(0\.0378\) +\(0\.0537\) .*†0\.0609.*\n", narrow)


def test_missing_cells_partial_sets_and_unlike_measures_are_marked(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("codrna", "jaccard", "sl-r"), 0.2, subset="68 % of the rows")
    text = as_markdown(result_table(table2(store, datasets=["codrna"])))
    assert "| codrna\\* | SL-U | - (0.0107) |" in text
    assert "0.2000 †0.0426" in text
    assert "\\* codrna: 68 % of the rows." in text
    assert "† The paper measures another thing there" in text
    assert "over 1 seed (" in text


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("[bold]a|b*<script>", "f1", "sl-r"), 0.2)
    table = result_table(table2(store))
    assert "\\[bold\\]a\\|b\\*\\<script\\>" in as_markdown(table)
    assert "[bold]a|b*<script>" in shown(table)
    assert metric_label("no such") == "no such"


def test_comparisons_ranks_and_datasets_are_shown(store: Store) -> None:
    comparison = as_markdown(tally_table(table2(store, "paper")))
    assert "| SL-R | 63 | 63 | 0 | 63 | 0 |" in comparison
    assert "| all | 189 | 189 | 0 | 189 | 0 |" in comparison
    ranking = rank_methods([TABLE2[d][m] for d in TABLE2 for m in LOSSES], MODES)
    assert ranking is not None
    text = as_markdown(ranking_table(ranking, "Ranks"))
    assert "**Ranks, over 63 cells**" in text
    assert "- Friedman: " in text
    assert "- Not significantly different at 0.05: SL-S, SL-R." in text
    assert "| ijcnn1 | IJCNN | 1,000 | 156,681 | 25.00% | 9.54% | whole |" in as_markdown(datasets_table(table1(store)))


# ---- pages ---------------------------------------------------------------------------------------------------------

SETTING = Setting("mlp", "default")


@pytest.fixture
def few(tmp_path: Path) -> Store:
    return small(tmp_path)


def page_table(store: Store, protocol: str = "paper") -> str:
    return str(as_html(result_table(table2(store, protocol, SETTING), page=True), id="t2"))


def test_every_table_has_a_caption_and_headings_with_scopes(few: Store) -> None:
    records = read_records(few)
    tables = [
        datasets_table(table1(records), page=True),
        result_table(table2(records, "paper", SETTING), page=True),
        result_table(table3(records, "paper", SETTING), page=True),
        tally_page_table(table2(records, "paper", SETTING), "method"),
        seconds_table(records, "t"),
    ]
    for text in map(as_html, tables):
        assert text.count("<caption>") == text.count("<table") == 1
        assert all('scope="' in heading for heading in re.findall(r"<th\b[^>]*>", text))


def test_a_cell_has_ours_its_error_and_the_printed_with_a_verdict(few: Store) -> None:
    text = page_table(few)
    cell = re.search(r'<tr data-dataset="a9a" data-method="sl-u".*?(<td data-value="0.0977.*?</td>)', text, re.DOTALL)
    assert cell is not None
    assert 'title="2 seeds; within noise against the paper&#39;s"' in cell[1]
    assert '<strong>0.0978</strong><span class="se"> ±0.0010</span>' in cell[1]
    assert '<span class="beside within-noise"><span class="sr">paper: </span>≈ 0.0968</span>' in cell[1]


def test_subsets_known_problems_and_missing_cells_are_marked(few: Store) -> None:
    text = page_table(few)
    assert "Cod-RNA<small>68 % of the rows</small>" in text
    assert re.search(r">CC-Fraud<sup><span class=\"sr\"> note </span>\d</sup></th>", text)
    assert re.search(r">Jaccard<sup><span class=\"sr\"> note </span>1,\d</sup></th>", text)
    assert re.search(r'<td data-value="" class="cell" title="not run" data-metric="eer">–', text)


def test_rows_and_columns_have_what_filters_look_for(few: Store) -> None:
    text = page_table(few)
    assert '<tr data-dataset="susy" data-method="sl-s" data-words="susy sl-s">' in text
    assert text.count('data-metric="f1"') == 1 + 9 * 3 + 3
    assert re.search(r"<tfoot>\s*<tr data-method=\"sl-u\"><th scope=\"row\" class=\"name\">mean rank</th>", text)


def test_names_are_escaped_in_every_table_of_a_page(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    evil = '"><script>x</script>'
    add(store, run(evil, "f1", "sl-r"), 0.2, subset=evil, command=evil)
    records = read_records(store)
    tables = (datasets_table(table1(records), page=True), result_table(table2(records), page=True))
    text = "".join(map(as_html, (*tables, seconds_table(records, evil))))
    assert "<script" not in text
    assert text.count("&lt;script&gt;x&lt;/script&gt;") >= 5


def test_seconds_are_means_over_the_runs_of_a_dataset_and_method(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    for seed, seconds in enumerate((10, 20)):
        add(store, run("a9a", "f1", "sl-r", seed), 0.2, seconds=seconds)
    add(store, run("susy", "f1", "pairwise"), 0.2, seconds=None)
    text = as_html(seconds_table(read_records(store), "t"))
    assert '<td data-value="15">15.0</td><td data-value="">–</td>' in text
