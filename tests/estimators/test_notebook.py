"""Manners in a notebook, in a real kernel: bars, cards and figures show by themselves, and nothing is asked for."""

from __future__ import annotations

import re
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow  # starts a notebook kernel

CELLS = [
    "import warnings; warnings.simplefilter('error'); warnings.filterwarnings('ignore', '.*is not faithful yet')\n"
    "import numpy as np, torch; torch.set_num_threads(1)\n"
    "from sklearn.datasets import make_classification\n"
    "from metricgrad import MetricClassifier, Recipe, compare\n"
    "X, y = make_classification(400, 5, weights=[0.7], random_state=0)\n"
    "quick = Recipe(warmup=60, rounds=20, check_every=5, trust_cap=50)",
    "MetricClassifier(model='linear', recipe=quick, verbose=True).fit(X, y)",
    "how = dict(model='linear', recipe=quick, splits=2, n_jobs=1, verbose=True)\n"
    "found = compare(X, y, baselines=['cross-entropy'], **how)\n"
    "found",
    "found.plot_roc()",
    "import polars as pl\n"
    "frame = pl.DataFrame(X, schema=list('abcde'))\n"
    "model = MetricClassifier(model='linear', recipe=quick).fit(frame, y)\n"
    "print(list(model.feature_names_in_), (model.predict(frame) == model.predict(frame.to_pandas())).all())",
]


@pytest.fixture(scope="module")
def cells() -> list[Any]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    return notebook.cells


def shown(cell: Any, kind: str) -> list[str]:
    return [output["data"][kind] for output in cell["outputs"] if kind in output.get("data", {})]


def test_a_bar_is_shown_without_widgets_and_ends_full(cells: list[Any]) -> None:
    bars = [text for text in shown(cells[1], "text/html") if "<progress" in text]
    assert len(bars) == 1
    done, most = map(int, re.findall(r'value="(\d+)" max="(\d+)"', bars[0])[0])
    assert done == most > 5  # models of five folds
    assert "validation F1" in bars[0]


def test_nothing_is_written_beside_it(cells: list[Any]) -> None:
    for cell in cells[:4]:
        assert [output for output in cell["outputs"] if output["output_type"] == "stream"] == []


def test_a_fitted_model_and_a_contest_show_their_cards(cells: list[Any]) -> None:
    assert any("metricgrad-card" in text and "on validation rows" in text for text in shown(cells[1], "text/html"))
    (card,) = (text for text in shown(cells[2], "text/html") if "metricgrad-card" in text)
    assert "cross-entropy" in card
    assert not any("<progress" in text for text in shown(cells[2], "text/html"))


def test_a_figure_shows_as_a_picture_without_pyplot(cells: list[Any]) -> None:
    (picture,) = shown(cells[3], "image/png")
    assert len(picture) > 10_000


def test_polars_frames_keep_their_names(cells: list[Any]) -> None:
    assert cells[4]["outputs"][0]["text"] == "['a', 'b', 'c', 'd', 'e'] True\n"
