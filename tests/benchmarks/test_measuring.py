"""What the benchmarks share: turns, ratios, claims and the store."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from benchmarks.speed import measuring


def test_contestants_take_turns_every_second_lap_backwards() -> None:
    order: list[str] = []
    found = measuring.in_turns({name: lambda name=name: order.append(name) for name in "abc"}, 3)
    assert "".join(order) == "abc" + "abc" + "cba" + "abc"  # the first lap does not count
    assert {name: len(times) for name, times in found.items()} == {"a": 3, "b": 3, "c": 3}


def test_a_contestant_may_time_itself() -> None:
    found = measuring.in_turns({"a": lambda: 2.5, "b": lambda: 5}, 2, timed=measuring.self_timed, warm=False)
    assert found == {"a": [2.5, 2.5], "b": [5.0, 5.0]}


def test_a_ratio_is_that_of_neighbours_with_its_quartiles() -> None:
    above, below = [2.0, 40.0, 9.0, 8.0, 1.0], [1.0, 10.0, 3.0, 1.0, 1.0]
    each = [a / b for a, b in zip(above, below, strict=True)]
    found = measuring.ratio(above, below)
    assert found["ratio"] == median(each)
    quartiles = np.quantile(each, [0.25, 0.75])
    assert [found["quartile_low"], found["quartile_high"]] == pytest.approx(quartiles)
    assert measuring.spread([3.0]) == {"ratio": 3.0, "quartile_low": 3.0, "quartile_high": 3.0}


@pytest.mark.parametrize(("ratio", "least", "most"), [(2.0, True, True), (2.1, True, False), (1.9, False, True)])
def test_a_claim_holds_up_to_its_bar(ratio: float, least: bool, most: bool) -> None:
    found = measuring.spread([ratio])
    assert measuring.claim("x", found, at_least=2.0)["met"] is least
    assert measuring.claim("x", found, at_most=2.0)["met"] is most


def test_a_claim_has_one_bar() -> None:
    with pytest.raises(ValueError, match="expected one of at_most and at_least, got 1 and 2"):
        measuring.claim("x", measuring.spread([1.0]), at_most=1, at_least=2)
    with pytest.raises(ValueError, match="got None and None"):
        measuring.claim("x", measuring.spread([1.0]))


def test_what_is_stored_says_how_it_came_and_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["speed.py", "--rows", "10 000"])
    claims = [measuring.claim(f"bar {bar}", measuring.spread([1.5]), at_most=bar) for bar in (1, 2)]
    assert measuring.store("speed", claims, tmp_path, rows=10) == 1
    record = measuring.stored("speed", tmp_path)
    assert record["command"] == "python -m benchmarks.speed.speed --rows '10 000'"
    assert record["claims"] == claims
    assert record["rows"] == 10
    assert {"metricgrad", "commit", "date", "torch"} <= record["made_by"].keys()
    assert record["machine"]["cpus"] >= 1
    assert "at most 2" in capsys.readouterr().out
