"""The trainer gives the results that were stored before it was rewritten, whatever the model, recipe and method."""

from __future__ import annotations

import json

import pytest
from stored_runs import FILE, RUNS, outcome


@pytest.mark.slow  # trains twelve runs
@pytest.mark.parametrize("name", RUNS)
def test_a_run_ends_at_its_stored_result(name: str) -> None:
    stored, found = json.loads(FILE.read_text())[name], outcome(name)
    assert found.keys() == stored.keys()
    for what, numbers in found.items():
        assert numbers == pytest.approx(stored[what], rel=1e-6, abs=1e-6, nan_ok=True)
