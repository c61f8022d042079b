"""The examples run as a newcomer would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # the gallery trains its models as a reader would

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("plot_*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_prints_results_on_unseen_rows(example: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "METRICGRAD_CACHE": str(tmp_path), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(example)], capture_output=True, text=True, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stderr
    values = [float(v) for v in re.findall(r"([\d.]+)(?: a customer)? on unseen rows", done.stdout)]
    assert len(values) == 2, done.stdout
    assert all(0 < value < 1.5 for value in values)
