"""The examples run and print what they promise; `make docs` runs them with their surrogates fitted to the end."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from matplotlib import pyplot

pytestmark = pytest.mark.slow  # the gallery trains its models as a reader would

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("plot_*.py"))


@pytest.mark.filterwarnings("ignore:the surrogate of .* is not faithful yet:UserWarning")
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_and_prints_results_on_unseen_rows(
    example: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pyplot, "show", lambda: pyplot.close("all"))
    runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    values = [float(v) for v in re.findall(r"([\d.]+)(?: a customer)? on unseen rows", printed)]
    assert len(values) == 2, printed
    assert all(0 < value < 1.5 for value in values)
