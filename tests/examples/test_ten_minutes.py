"""The notebook of ten minutes: it runs as it is written, on fewer days, and is kept with all that it shows."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat import NotebookNode

ROOT = Path(__file__).parents[2]
MAKER = runpy.run_path(str(ROOT / "docs" / "make_notebook.py"))
PROGRAM = MAKER["PROGRAM"].read_text("utf-8")


@pytest.fixture(scope="module")
def kept() -> NotebookNode:
    return nbformat.read(MAKER["NOTEBOOK"], as_version=4)


def text_of(cell: Any) -> str:
    """All text that a cell shows."""
    return "".join(output.get("text", "") + output.get("data", {}).get("text/plain", "") for output in cell.outputs)


def pictures_of(notebook: NotebookNode) -> list[str]:
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]


@pytest.mark.slow  # starts a kernel and trains several models
def test_it_runs_on_a_sixth_of_the_days_and_shows_what_it_promises(tmp_path: Path) -> None:
    assert "\nDAYS_BETWEEN = 1 " in PROGRAM
    notebook = MAKER["executed"](PROGRAM.replace("\nDAYS_BETWEEN = 1 ", "\nDAYS_BETWEEN = 6 "))
    said = {cell.source.splitlines()[-1]: text_of(cell) for cell in notebook.cells if cell.cell_type == "code"}
    assert said["print(model.verdict_)"].startswith("kept ")
    assert "behind" in next(text for source, text in said.items() if source.startswith("model.leaderboard()"))
    costs = [float(value) for text in said.values() for value in re.findall(r"an hour costs ([\d.]+)", text)]
    assert len(costs) == 2
    assert all(0 < value < 500 for value in costs)
    (scores,) = (text for source, text in said.items() if source.startswith("pd.DataFrame(table)"))
    assert all(0.3 < float(value) <= 1 for value in re.findall(r" (\d\.\d+)", scores))
    assert len(re.findall(r" (\d\.\d+)", scores)) == 4
    assert len(pictures_of(notebook)) == 3
    assert not [o for cell in notebook.cells for o in cell.get("outputs", ()) if o.get("name") == "stderr"]


def test_it_is_kept_as_it_was_run_by_the_program_of_today(kept: NotebookNode) -> None:
    written = [(cell.cell_type, cell.source) for cell in MAKER["cells_of"](PROGRAM)]
    assert [(cell.cell_type, cell.source) for cell in kept.cells] == written
    code = [cell for cell in kept.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    made = kept.metadata["made_by"]
    assert {"metricgrad", "commit", "date", "command", "seed"} <= made.keys()
    assert not made["commit"].endswith("-dirty")


def test_it_is_small_and_holds_nothing_of_a_machine(kept: NotebookNode) -> None:
    text = nbformat.writes(kept)
    assert len(text) < 400_000
    assert not re.search(r"/(home|Users|root|work|tmp)/", text)


def test_the_page_shows_what_is_kept(kept: NotebookNode) -> None:
    page, pictures = MAKER["page_of"](kept)
    assert MAKER["PAGE"].read_text("utf-8") == page
    images = ROOT / "docs" / "images"
    assert {path.name for path in images.glob("ten-minutes-*.png")} == pictures.keys()
    assert all((images / name).read_bytes() == picture for name, picture in pictures.items())
