"""The page of a contest: what it says, and in a real browser that it draws, answers, and never asks for anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browsing import in_browser, opened
from playwright.sync_api import Browser, Page
from sklearn.datasets import make_classification

from metricgrad import ComparisonResult, Recipe, compare, write_comparison
from metricgrad.evaluation.charts import chart_data

EVIL = "<script>alert(1)</script>"
EVIL_LABEL = "</script><img src=x onerror=alert(2)>"
QUICK = Recipe(warmup=60, rounds=20, check_every=5, trust_cap=50)


@pytest.fixture(scope="module")
def contest() -> ComparisonResult:
    X, y = make_classification(400, 5, weights=[0.7], random_state=0)
    frame = pd.DataFrame(X, columns=[EVIL, *"abcd"])
    target = np.where(y == 1, EVIL_LABEL, "no")
    return compare(frame, target, model="linear", recipe=QUICK, splits=3, n_jobs=1, name=EVIL, positive=EVIL_LABEL)


@pytest.fixture(scope="module")
def file(contest: ComparisonResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contest") / "deep" / "index.html"
    write_comparison(contest, path, f"metricgrad compare {EVIL}")
    return path


@pytest.fixture(scope="module")
def drawn() -> str:
    return "#chart-fidelity svg circle"


def test_a_page_is_replaced_whole(contest: ComparisonResult, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text("old")
    with page.open() as reader:
        write_comparison(contest, page)
        assert reader.read() == "old"
    assert page.read_text().startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


# ---- data ----------------------------------------------------------------------------------------------------------


def test_charts_carry_the_curves_of_every_split_and_their_mean(contest: ComparisonResult) -> None:
    charts = chart_data(contest)["charts"]
    assert list(charts) == ["metric", "ahead", "roc", "precision", "threshold", "calibration", "fidelity"]
    for name, of in (("roc", "roc"), ("precision", "precision")):
        for entry in charts[name]["of"]:
            lines = [getattr(trial.diagnosis, of) for trial in contest.of(entry["k"])]
            np.testing.assert_allclose(entry["mean"]["y"], np.mean(lines, axis=0), atol=1e-4)
            assert len(entry["lines"]) == 3
    spans = {entry["k"]: entry for entry in charts["ahead"]["of"]}
    assert spans["lightgbm"]["low"] == pytest.approx(contest.intervals["lightgbm"].low)
    assert len(charts["threshold"]["dots"]) == 15


def test_training_is_shown_as_the_metric_people_know(contest: ComparisonResult) -> None:
    data = chart_data(contest)
    run = next(run for run in data["runs"] if run["k"] == "cross-entropy" and run["seed"] == 0)
    losses = [r.validation for r in contest.of("cross-entropy")[0].history if r.validation == r.validation]
    np.testing.assert_allclose(run["v"], 1 - np.array(losses), atol=1e-3)
    assert run["b"][1] == pytest.approx(1 - min(losses), abs=1e-3)


def test_an_error_rate_and_a_ranking_have_pages_too(tmp_path: Path) -> None:
    X, y = make_classification(300, 5, weights=[0.7], random_state=0)
    how: dict[str, Any] = {"model": "linear", "recipe": QUICK, "splits": 2, "n_jobs": 1}
    for metric, said in (("error_rate", "lower is better"), ("auc", "no threshold matters")):
        found = compare(X, y, metric, method="focal", baselines=["cross-entropy"], **how)
        write_comparison(found, tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert said in text
        assert "id='chart-fidelity'" not in text
        assert "corrected resampled t" in text


# ---- in a browser --------------------------------------------------------------------------------------------------


@in_browser
def test_the_verdict_and_every_chart_are_there(page: Page, contest: ComparisonResult) -> None:
    assert page.locator(".verdict").inner_text() == contest.verdict[:1].upper() + contest.verdict[1:] + "."
    assert page.locator("[data-chart]").count() == 7
    for name, marks in (("roc", "path.mean"), ("precision", "path.mean"), ("calibration", "path.mean")):
        assert page.locator(f"#chart-{name} {marks}").count() == 5
        assert page.locator(f"#chart-{name} path.split").count() == 15
    assert page.locator("#chart-threshold circle.dot").count() == 15
    assert page.locator("#chart-ahead line.span").count() == 4
    assert page.locator("#chart-fidelity circle").count() == 3 * 48
    assert page.locator("#convergence-plot path.mean").count() == 3 * 4
    assert page.locator("table.confusion").count() == 5


@in_browser
def test_unticking_a_method_takes_it_from_every_chart(page: Page) -> None:
    page.locator("[data-picks]").get_by_role("checkbox", name="LightGBM").uncheck()
    for name in ("roc", "precision", "calibration"):
        assert page.locator(f"#chart-{name} path.mean").count() == 4
    assert page.locator("#chart-metric line.mean").count() == 4
    assert page.locator("#chart-threshold circle.dot[data-method='lightgbm']").count() == 0
    assert page.locator("[data-picks] input:focus").get_attribute("value") == "lightgbm"


@in_browser
def test_pointing_at_a_curve_or_the_arrow_keys_show_values(page: Page, contest: ComparisonResult) -> None:
    chart, tip = page.locator("#chart-roc svg"), page.locator("#chart-roc .tip")
    assert tip.is_hidden()
    chart.focus()
    for _ in range(50):
        page.keyboard.press("ArrowRight")
    assert tip.is_visible()
    assert tip.locator("td").all_inner_texts() == ["1.000"] * 5
    page.keyboard.press("Tab")
    assert tip.is_hidden()
    page.locator("#chart-precision svg").hover()
    assert "metricgrad" in page.locator("#chart-precision .tip").inner_text()


@in_browser
def test_the_table_of_methods_sorts_by_its_numbers(page: Page, contest: ComparisonResult) -> None:
    page.locator("#methods thead th", has_text="F1").get_by_role("button").click()
    seen = page.eval_on_selector_all("#methods tbody tr", "rows => rows.map(r => Number(r.cells[1].dataset.value))")
    assert seen == pytest.approx(sorted(contest.values(method).mean() for method in contest.methods))


@in_browser
def test_names_of_data_columns_and_labels_are_text(page: Page) -> None:
    assert page.locator("script").count() == 2
    assert page.locator("img").count() == 0
    assert EVIL in page.locator("h1").inner_text()
    assert EVIL_LABEL in page.locator("table.confusion").first.inner_text()
    assert EVIL in page.locator("#made pre").inner_text()
    assert EVIL in page.locator("#made li", has_text="numbers").inner_text()


@in_browser
@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_never_scrolls_sideways(browser: Browser, file: Path, drawn: str, width: int) -> None:
    page, wrong = opened(browser, file, drawn, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()
    assert wrong == []


@in_browser
def test_the_dark_is_dark_and_tables_need_no_script(browser: Browser, file: Path, drawn: str) -> None:
    page, _ = opened(browser, file, drawn, color_scheme="dark")
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(int(part) for part in colour[4:-1].split(",")) < 100
    page.context.close()
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(file.as_uri())
    assert page.locator("#methods tbody tr").count() == 5
    assert "needs JavaScript" in page.locator("#curves").inner_text()
    page.context.close()
