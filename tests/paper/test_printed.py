"""The printed tables: whole, consistent where they are, and known to be not where they are not."""

from __future__ import annotations

import numpy as np
import pytest

from metricgrad.evaluation.statistics import mean_ranks, wins
from metricgrad.losses.binary import BASELINES
from metricgrad.metrics import registry as metrics
from metricgrad.paper.printed import (
    BASELINE_NOISE,
    FOOTNOTES,
    LOSSES,
    MODES,
    PRINTED_NOISE,
    PRINTED_RANKS,
    PRINTED_WINS,
    TABLE1,
    TABLE2,
    TABLE3,
    TABLE3_METHODS,
    column,
    footnotes,
    verdict,
)

DATASETS = ["a9a", "ccfraud", "codrna", "covtype", "ijcnn1", "porto", "santander", "skin", "susy"]


def differences(one: tuple[str, str], other: tuple[str, str]) -> np.ndarray:
    """Return |one - other| in every row of Table 2, each a loss and a mode."""
    return np.abs([row[one[0]][one[1]] - row[other[0]][other[1]] for row in TABLE2.values()])


# ---- the data ------------------------------------------------------------------------------------------------------


def test_the_tables_hold_nine_datasets_by_our_names() -> None:
    assert list(TABLE1) == list(TABLE2) == list(TABLE3) == DATASETS


def test_table_2_holds_seven_losses_of_three_modes_in_our_order() -> None:
    assert LOSSES == metrics.PAPER
    assert all(list(row) == list(LOSSES) for row in TABLE2.values())
    assert all(set(cell) == set(MODES) for row in TABLE2.values() for cell in row.values())


def test_table_3_compares_methods_we_have() -> None:
    assert all(list(row) == list(TABLE3_METHODS) for row in TABLE3.values())
    assert all(tuple(cell) == TABLE3_METHODS[loss] for row in TABLE3.values() for loss, cell in row.items())
    assert {method for methods in TABLE3_METHODS.values() for method in methods} - {"sl-r"} <= set(BASELINES)


def test_table_1_splits_every_dataset_into_80_and_20_percent() -> None:
    for row in TABLE1.values():
        assert row.test / (row.train + row.test) == pytest.approx(0.2, abs=1e-4)
    assert TABLE1["susy"].train == 4_000_000
    assert TABLE1["ccfraud"].positive_share == 0.0015


@pytest.mark.parametrize(
    ("dataset", "loss", "mode", "printed"),
    [
        ("a9a", "auc", "sl-u", 0.0968),
        ("ccfraud", "f1", "sl-s", 0.9970),
        ("ijcnn1", "error_rate", "sl-r", 0.0161),
        ("skin", "mcc", "sl-r", 0.0031),
        ("susy", "jaccard", "sl-s", 0.2050),
    ],
)
def test_cells_of_table_2_are_as_printed(dataset: str, loss: str, mode: str, printed: float) -> None:
    assert TABLE2[dataset][loss][mode] == printed


@pytest.mark.parametrize(
    ("dataset", "loss", "method", "printed"),
    [
        ("a9a", "error_rate", "cross-entropy", 0.1520),
        ("ijcnn1", "auc", "global-objectives", 0.0258),
        ("skin", "auc", "pairwise", 0.0364),
        ("susy", "jaccard", "lovasz-softmax", 0.2022),
        ("santander", "f1", "cost-sensitive", 0.4990),
    ],
)
def test_cells_of_table_3_are_as_printed(dataset: str, loss: str, method: str, printed: float) -> None:
    assert TABLE3[dataset][loss][method] == printed


def test_the_refined_surrogate_is_printed_the_same_in_both_tables() -> None:
    for dataset, row in TABLE3.items():
        for loss, cell in row.items():
            assert cell["sl-r"] == TABLE2[dataset][loss]["sl-r"]


# ---- what follows from it ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["eer", "error_rate", "mcc", "jaccard"])
def test_the_universal_surrogate_is_last_in_every_row_of_four_losses(loss: str) -> None:
    assert mean_ranks(column(TABLE2, loss))["sl-u"] == 3.0
    assert PRINTED_RANKS[loss]["sl-u"] in (2.89, 2.78)


def test_printed_ranks_do_not_follow_from_the_cells() -> None:
    computed = {loss: mean_ranks(column(TABLE2, loss)) for loss in LOSSES}
    wrong = [loss for loss in LOSSES if any(abs(computed[loss][m] - PRINTED_RANKS[loss][m]) > 0.006 for m in MODES)]
    assert {"eer", "error_rate", "mcc", "jaccard"} <= set(wrong)


def test_printed_wins_follow_from_the_cells() -> None:
    assert {loss: wins(column(TABLE3, loss)) for loss in TABLE3_METHODS} == {
        loss: dict(row) for loss, row in PRINTED_WINS.items()
    }


def test_the_noise_of_the_tables_is_the_difference_of_two_runs_of_one_loss() -> None:
    noise = {mode: differences(("error_rate", mode), ("jaccard", mode)) for mode in MODES}
    assert round(noise["sl-r"].mean(), 4) == 0.0010
    assert round(noise["sl-s"].mean(), 4) == 0.0009
    assert round(noise["sl-u"].mean(), 3) == 0.058
    assert round(noise["sl-u"].max(), 2) == 0.21


def test_refined_and_from_scratch_differ_by_less_than_the_noise() -> None:
    assert round(differences(("error_rate", "sl-r"), ("error_rate", "sl-s")).mean(), 4) == 0.0008


def test_ranks_of_a_row_add_up_and_ties_share_them() -> None:
    assert mean_ranks([{"a": 0.1, "b": 0.1, "c": 0.3}]) == {"a": 1.5, "b": 1.5, "c": 3.0}
    assert sum(mean_ranks(column(TABLE2, "auc")).values()) == pytest.approx(6)


def test_wins_add_up_to_the_number_of_rows_and_are_shared_in_a_tie() -> None:
    assert wins([{"a": 0.1, "b": 0.1}, {"b": 0.2, "a": 0.4}]) == {"a": 0.5, "b": 1.5}
    assert sum(wins(column(TABLE3, "auc")).values()) == pytest.approx(9)


def test_rows_that_cannot_be_compared_are_refused() -> None:
    with pytest.raises(ValueError, match="rows: expected at least one row of losses, got none"):
        mean_ranks([])
    with pytest.raises(ValueError, match="rows: expected the methods a, b in every row, got a, c"):
        wins([{"a": 0.1, "b": 0.2}, {"a": 0.1, "c": 0.2}])


# ---- against ours ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_the_noise_of_a_mode_is_how_far_two_printed_runs_lie_apart(mode: str) -> None:
    apart = np.mean([abs(row["error_rate"][mode] - row["jaccard"][mode]) for row in TABLE2.values()])
    assert pytest.approx(apart, abs=6e-4 if mode == "sl-u" else 6e-5) == PRINTED_NOISE[mode]
    assert PRINTED_NOISE["sl-r"] == BASELINE_NOISE


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


# ---- footnotes -----------------------------------------------------------------------------------------------------


def names(*cell: object) -> set[str]:
    return {note.name for note in footnotes(*cell)}


def test_a_cell_has_the_footnotes_that_concern_it() -> None:
    assert names(2, "ccfraud", "f1", "sl-u") == {"test-threshold", "floor", "ranks", "slip"}
    assert "floor" not in names(2, "a9a", "f1", "sl-r")
    assert "test-threshold" not in names(2, "a9a", "auc", "sl-r")
    assert "accuracy" in names(3, "a9a", "jaccard", "lovasz-softmax")
    assert names(3, "ijcnn1", "auc", "pairwise") == {"twins", "under-trained"}
    assert "under-trained" not in names(3, "ijcnn1", "auc", "sl-r")
    assert names(1, "ijcnn1") == {"twins"}
    assert names(1, "a9a") == set()


def test_every_footnote_is_of_some_cell_and_names_only_what_exists() -> None:
    for note in FOOTNOTES:
        assert set(note.datasets) <= set(DATASETS)
        assert set(note.losses) <= set(LOSSES)
        assert set(note.methods) <= {*MODES, *BASELINES}
        assert set(note.tables) <= {1, 2, 3}
    assert len({note.name for note in FOOTNOTES}) == len(FOOTNOTES)
