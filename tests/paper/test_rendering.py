"""Tables as text: what stands in a cell, and that names cannot become markup."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from made_up import add, printed, run
from rich.console import Console

from metricgrad.evaluation.statistics import rank_methods
from metricgrad.evaluation.store import Store
from metricgrad.paper.against_printed import compare
from metricgrad.paper.printed import LOSSES, MODES, TABLE2
from metricgrad.paper.rendering import (
    Grid,
    as_markdown,
    as_rich,
    comparison_grid,
    data_grid,
    metric_label,
    ranking_grid,
    table_grid,
)
from metricgrad.paper.tables import table1, table2, table3


def shown(grid: Grid, width: int = 200) -> str:
    out = StringIO()
    Console(file=out, width=width).print(as_rich(grid))
    return out.getvalue()


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return printed(tmp_path_factory.mktemp("printed"), seeds=3, spread=0.0001)


def test_table_2_in_markdown_has_ours_the_error_and_the_printed_with_the_best_in_bold(store: Store) -> None:
    text = as_markdown(table_grid(table2(store, "paper")))
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
        lines = [line for line in as_markdown(table_grid(table)).splitlines() if line.startswith("|")]
        assert len({line.count(" | ") for line in lines}) == 1
        assert len(lines) == 2 + (30 if table.number == 2 else 10)


def test_table_3_has_a_row_of_wins(store: Store) -> None:
    text = as_markdown(table_grid(table3(store, "paper")))
    assert "| wins | 3.5 | **5.5** | 1.0 | 0.0 | **8.0** | 3.5 | **5.5** | 3.0 | **6.0** |" in text
    assert "| AUC: global-objectives |" in text


def test_the_terminal_shows_the_same_and_fits_into_eighty_columns(store: Store) -> None:
    wide = shown(table_grid(table2(store, "paper")), width=260)
    assert "0.0968 ±0.0001 (0.0968)" in wide
    narrow = shown(table_grid(table2(store)), width=80)
    assert max(map(len, narrow.splitlines())) <= 80
    assert "…" not in narrow
    assert re.search(r"ijcnn1 +SL-U +0\.0048 +0\.0378 +0\.0537", narrow)
    assert re.search(r"\(0\.0048\) +\(0\.0378\) +\(0\.0537\) .*†0\.0609.*\n", narrow)


def test_missing_cells_partial_sets_and_unlike_measures_are_marked(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("codrna", "jaccard", "sl-r"), 0.2, subset="68 % of the rows")
    text = as_markdown(table_grid(table2(store, datasets=["codrna"])))
    assert "| codrna\\* | SL-U | - (0.0107) |" in text
    assert "0.2000 †0.0426" in text
    assert "\\* codrna: 68 % of the rows." in text
    assert "† The paper measures another thing there" in text
    assert "over 1 seed (" in text


def test_names_cannot_become_markup(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("[bold]a|b*<script>", "f1", "sl-r"), 0.2)
    grid = table_grid(table2(store))
    assert "\\[bold\\]a\\|b\\*\\<script\\>" in as_markdown(grid)
    assert "[bold]a|b*<script>" in shown(grid)
    assert metric_label("no such") == "no such"


def test_comparisons_ranks_and_datasets_are_shown(store: Store) -> None:
    comparison = as_markdown(comparison_grid(compare(table2(store, "paper"))))
    assert "| SL-R | 63 | 63 | 0 | 63 | 0 |" in comparison
    assert "| all | 189 | 189 | 0 | 189 | 0 |" in comparison
    ranking = rank_methods([TABLE2[d][m] for d in TABLE2 for m in LOSSES], MODES)
    assert ranking is not None
    text = as_markdown(ranking_grid(ranking, "Ranks"))
    assert "**Ranks, over 63 cells**" in text
    assert "- Friedman: " in text
    assert "- Not told apart at 0.05: SL-S, SL-R." in text
    assert "| ijcnn1 | IJCNN | 1,000 | 156,681 | 25.00% | 9.54% | whole |" in as_markdown(data_grid(table1(store)))
