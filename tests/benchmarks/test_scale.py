"""What the benchmarks of scale and of what a user runs compute, apart from times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score

from benchmarks.speed import scale
from benchmarks.speed.measuring import made_up_table
from benchmarks.speed.user import Counted, profit
from benchmarks.speed.user_contestants import Data, f1_at_threshold


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0])
def test_the_slope_of_a_power_is_its_exponent(exponent: float) -> None:
    values = np.array([5.0, 20.0, 80.0])
    assert scale.slope(values, 3 * values**exponent) == pytest.approx(exponent)


def test_slopes_and_the_picture_come_from_the_same_cases() -> None:
    cases = [
        {"varied": varied, "model": "linear", "value": value, "seconds": 0.1 * value}
        for varied, values in scale.GROWTH.items()
        for value in values
    ]
    found = scale.slopes(cases)
    assert [one["slope"] for one in found] == pytest.approx([1, 1, 1])
    panels = scale.draw({"cases": cases, "slopes": found}).axes
    assert [panel.get_xlabel() for panel in panels] == list(scale.GROWTH)
    assert [text.get_text() for text in panels[0].get_legend().get_texts()] == ["linear, slope 1.00"]


def test_a_table_is_read_from_parquet_as_it_was_made(tmp_path: Path) -> None:
    scale.write_parquet(tmp_path / "table.parquet", 3_000, 4)
    X, y = scale.read_parquet(tmp_path / "table.parquet")
    expected_X, expected_y = made_up_table(3_000, 4, scale.POSITIVES)
    np.testing.assert_array_equal(X, expected_X)
    np.testing.assert_array_equal(y, expected_y)


def test_contestants_are_judged_at_a_threshold_that_test_rows_did_not_choose() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((400, 1)), rng.integers(0, 2, 400)
    seen = []

    def fit(rows: np.ndarray, labels: np.ndarray):  # type: ignore[no-untyped-def]
        seen.append(len(rows))
        return lambda some: some[:, 0]

    data = Data(X + y[:, None], y, np.array([[-9.0], [9.0]]), np.array([0, 1]))
    assert f1_at_threshold(data, fit) == f1_score([0, 1], [0, 1])
    assert seen == [320]


def test_calls_are_counted() -> None:
    counted = Counted(profit)
    assert counted(np.array([1, 0, 0]), np.array([1, 1, 0])) == pytest.approx(7 / 8)
    assert counted.calls == 1
    assert counted.seconds >= 0


def test_the_command_has_the_bars_of_an_array() -> None:
    table = {"bytes": 1e9, "read_seconds": 2.0}
    ways = {
        "array": {**table, "seconds": 6.0, "peak_bytes": 1.6e9},
        "fit": {**table, "seconds": 22.0, "peak_bytes": 2e9},
        "predict": {"rows": 300_000, "seconds": 1.0},
    }
    found = scale.claims_of({"large": {"rows": 5_000_000, "features": 50, **ways}})
    assert [one["ratio"] for one in found] == pytest.approx([3, 1, 11, 1.4, 300_000])
    assert [one["met"] for one in found] == [True, True, False, False, True]
