"""Ours against the printed: counted by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_up import add, printed, run

from metricgrad.evaluation.store import Store
from metricgrad.paper.against_printed import NOISE, OTHER_NOISE, Tally, compare, verdict
from metricgrad.paper.printed import MODES, TABLE2
from metricgrad.paper.tables import table2, table3


@pytest.mark.parametrize("mode", MODES)
def test_the_noise_of_a_mode_is_how_far_two_printed_runs_lie_apart(mode: str) -> None:
    apart = np.mean([abs(row["error_rate"][mode] - row["jaccard"][mode]) for row in TABLE2.values()])
    assert pytest.approx(apart, abs=6e-4 if mode == "sl-u" else 6e-5) == NOISE[mode]
    assert NOISE["sl-r"] == OTHER_NOISE


@pytest.mark.parametrize(
    ("ours", "error", "expected"),
    [
        (0.1502, None, "within noise"),
        (0.1511, None, "within noise"),
        (0.1513, None, "worse"),
        (0.1513, 0.0001, "within noise"),
        (0.1491, None, "better"),
        (0.1480, 0.0007, "within noise"),
        (0.1480, 0.0005, "better"),
    ],
)
def test_a_difference_of_two_standard_errors_and_the_noise_is_noise(
    ours: float, error: float | None, expected: str
) -> None:
    assert verdict("sl-r", ours, error, 0.1502) == expected


def test_the_printed_tables_agree_with_themselves(tmp_path: Path) -> None:
    store = printed(tmp_path)
    assert compare(table2(store, "paper")).overall == Tally(189, 189, 0, 189, 0)
    assert compare(table3(store, "paper")).overall == Tally(81, 81, 0, 81, 0)
    assert compare(table2(store, "honest")).overall == Tally(162, 162, 0, 162, 0)


def test_cells_are_counted_by_method_and_dataset(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("a9a", "auc", "sl-r"), 0.0900)  # printed 0.0983
    add(store, run("a9a", "f1", "sl-r"), 0.31344)  # printed 0.3134: the same in four digits
    add(store, run("susy", "f1", "sl-r"), 0.2400)  # printed 0.2289
    add(store, run("susy", "f1", "sl-u"), 0.2600)  # printed 0.2507, noisy
    add(store, run("digits8", "f1", "sl-u"), 0.1)  # not printed
    comparison = compare(table2(store))
    assert comparison.by("method") == {"sl-r": Tally(3, 2, 1, 1, 1), "sl-u": Tally(1, 0, 0, 1, 0)}
    assert comparison.by("dataset") == {"a9a": Tally(2, 2, 1, 1, 0), "susy": Tally(2, 0, 0, 1, 1)}
    assert comparison.overall == Tally(4, 2, 1, 2, 1)
