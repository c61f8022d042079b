"""The command demo: what it trains, writes and prints."""

from __future__ import annotations

import html
import re
from pathlib import Path

import joblib
import numpy as np
import pytest
from browsing import in_browser, opened
from playwright.sync_api import Browser
from typer.testing import CliRunner

from metricgrad.cli import paper as demo
from metricgrad.cli.app import app
from metricgrad.metrics.registry import PAPER
from metricgrad.paper.datasets import load_dataset
from metricgrad.training.recipe import Recipe

TINY = Recipe(warmup=30, rounds=5, trust=-1.0)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    out = tmp_path_factory.mktemp("demo") / "out"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo.run_demo, "__defaults__", ("f1", 0, TINY, False))
        done = CliRunner().invoke(app, ["demo", "--out", str(out)])
    assert done.exit_code == 0, done.output
    return out, done.output


def test_the_table_has_both_methods_and_the_seven_losses(shown: tuple[Path, str]) -> None:
    _, output = shown
    assert "cross-entropy" in output
    assert "metricgrad" in output
    for label in ("F1", "AUC", "EER", "AP", "error rate", "MCC", "Jaccard"):
        assert re.search(rf"│ {label}[^│]*│ +[\d.]+ │ +[\d.]+ │", output), label


def test_both_the_page_and_the_terminal_say_which_model_was_kept(shown: tuple[Path, str]) -> None:
    out, output = shown
    verdict = f"metricgrad {joblib.load(out / 'model.joblib').verdict_}."
    assert verdict in " ".join(output.split())
    assert verdict in html.unescape((out / "index.html").read_text())


def test_the_saved_model_predicts_labels(shown: tuple[Path, str]) -> None:
    out, _ = shown
    data = load_dataset("digits8")
    labels = joblib.load(out / "model.joblib").predict(data.X)
    assert set(np.unique(labels)) <= {0, 1}
    assert labels.shape == data.y.shape


def test_pictures_and_page_are_written_and_the_page_needs_nothing_else(shown: tuple[Path, str]) -> None:
    out, output = shown
    assert str(out) in output.replace("\n", "")
    for picture in ("convergence.png", "figure2.png"):
        assert (out / picture).read_bytes().startswith(b"\x89PNG")
    page = (out / "index.html").read_text()
    assert page.count("data:image/png;base64,") == 2
    assert "://" not in page
    assert page.count("<tr>") == 1 + len(PAPER)


@in_browser
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_never_scrolls_sideways(browser: Browser, shown: tuple[Path, str], width: int) -> None:
    page, wrong = opened(browser, shown[0] / "index.html", "figure img", viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert wrong == []


def test_both_methods_get_the_same_split_steps_and_warm_up(tmp_path: Path) -> None:
    runs = list(demo.demo_runs(load_dataset("digits8"), "f1", 0, TINY, verbose=False))
    assert [run.method for run in runs] == ["cross-entropy", "sl-r"]
    warm = [[r.loss for r in run.model.history_ if r.phase == "warm-up"] for run in runs]
    assert warm[0] == warm[1]
    assert len({len(run.model.history_) for run in runs}) == 1


def test_an_unknown_metric_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["demo", "--metric", "f2score", "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "unknown name 'f2score'" in done.output
    assert not (tmp_path / "out").exists()
