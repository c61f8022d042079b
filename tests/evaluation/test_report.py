"""The page of a comparison: its content, and in a real browser that it draws, answers, and requests nothing."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from browsing import in_browser, opened
from playwright.sync_api import Browser, Page
from sklearn.datasets import make_classification

from metricgrad import ComparisonResult, Recipe, compare
from metricgrad.evaluation.diagnostics import SHARES
from metricgrad.evaluation.report import charts, methods_table
from metricgrad.reporting.html import STATIC
from metricgrad.reporting.plots import MAX_TIPS

EVIL = "<script>alert(1)</script>"
EVIL_LABEL = "</script><img src=x onerror=alert(2)>"
QUICK = Recipe(warmup=60, rounds=20, check_every=5, trust_cap=50)


@pytest.fixture(scope="module")
def result() -> ComparisonResult:
    X, y = make_classification(400, 5, weights=[0.7], random_state=0)
    frame = pd.DataFrame(X, columns=[EVIL, *"abcd"])
    target = np.where(y == 1, EVIL_LABEL, "no")
    return compare(frame, target, model="linear", recipe=QUICK, splits=3, n_jobs=1, name=EVIL, positive=EVIL_LABEL)


@pytest.fixture(scope="module")
def file(result: ComparisonResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("comparison") / "deep" / "index.html"
    result.write_page(path, f"metricgrad compare {EVIL}")
    return path


@pytest.fixture(scope="module")
def drawn() -> str:
    return "#chart-fidelity svg .dots use"


def test_a_page_is_replaced_whole(result: ComparisonResult, tmp_path: Path) -> None:
    page = tmp_path / "index.html"
    page.write_text("old")
    with page.open() as reader:
        result.write_page(page)
        assert reader.read() == "old"
    assert page.read_text().startswith("<!doctype html>")
    assert [path.name for path in tmp_path.iterdir()] == ["index.html"]


# ---- charts and tables ---------------------------------------------------------------------------------------------


def series(svg: str, kind: str) -> list[str]:
    """Return the names of the series that a chart has marks of a kind of."""
    return [mark.get("data-series") for mark in ET.fromstring(svg).findall(f".//g[@class='{kind}']")]


def test_charts_have_every_split_of_every_method_and_their_mean(result: ComparisonResult) -> None:
    drawn = charts(result)
    names = [result.label(method) for method in result.methods]
    assert set(drawn) == {"metric", "ahead", "roc", "precision", "threshold", "training", "calibration", "fidelity"}
    for name in ("roc", "precision", "threshold", "calibration"):
        assert series(drawn[name], "mean") == names
        assert sorted(series(drawn[name], "run")) == sorted(3 * names)
    assert series(drawn["metric"], "dots") == series(drawn["threshold"], "dots") == names
    assert series(drawn["ahead"], "span") == names[1:]


def test_a_strip_of_a_chart_has_the_mean_of_every_method_there(result: ComparisonResult) -> None:
    strips = [mark.find("title").text for mark in ET.fromstring(charts(result)["roc"]).findall(".//g[@class='strip']")]
    assert len(strips) == MAX_TIPS
    where, *values = strips[15].split("\n")
    at = np.abs(SHARES - float(where.removeprefix("false-alarm rate "))).argmin()
    for method, line in zip(result.methods, values, strict=True):
        mean = np.mean([trial.diagnosis.roc[at] for trial in result.of(method)])
        assert line == f"{result.label(method)}: {mean:.3f}"


def test_the_table_of_methods_has_values_of_the_metric_and_the_interval(result: ComparisonResult) -> None:
    rows = methods_table(result).rows
    assert [row[0].text for row in rows] == [result.label(method) for method in result.methods]
    for method, row in zip(result.methods[1:], rows[1:], strict=True):
        assert row[1].value == pytest.approx(result.values(method).mean())
        assert row[4].value == pytest.approx(result.intervals[method].low)
    assert sum(row[1].best for row in rows) == 1


def test_the_page_is_light_and_its_scripts_are_short(file: Path) -> None:
    assert file.stat().st_size < 1_000_000
    scripts = [script for script in STATIC.glob("*.js") if script.stem != "player"]  # only Figure 2 of the paper has it
    assert sum(len(script.read_text(encoding="utf-8").splitlines()) for script in scripts) < 140


def test_an_error_rate_and_a_ranking_have_pages_too(tmp_path: Path) -> None:
    X, y = make_classification(300, 5, weights=[0.7], random_state=0)
    how: dict[str, Any] = {"model": "linear", "recipe": QUICK, "splits": 2, "n_jobs": 1}
    for metric, said in (("error_rate", "lower is better"), ("auc", "no threshold matters")):
        found = compare(X, y, metric, method="focal", baselines=["cross-entropy"], **how)
        found.write_page(tmp_path / "page.html")
        text = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert said in text
        assert 'id="chart-fidelity"' not in text
        assert "corrected resampled t" in text


# ---- in a browser --------------------------------------------------------------------------------------------------


@in_browser
def test_the_verdict_and_every_chart_are_there(page: Page, result: ComparisonResult) -> None:
    assert page.locator(".verdict").inner_text() == result.verdict[:1].upper() + result.verdict[1:] + "."
    assert page.locator("[data-chart] svg").count() == 8
    for name in ("roc", "precision", "calibration"):
        assert page.locator(f"#chart-{name} .mean").count() == 5
        assert page.locator(f"#chart-{name} .run").count() == 15
    assert page.locator("#chart-threshold .dots use").count() == 15
    assert page.locator("#chart-ahead .span").count() == 4
    assert page.locator("#chart-fidelity .dots use").count() == 3 * 48
    assert page.locator("#chart-training .mean").count() == 2 * 4 + 1  # one has a surrogate, so a gap
    assert page.locator("table.confusion").count() == 5
    assert page.locator("#chart-roc text", has_text="false-alarm rate").is_visible()


@in_browser
def test_unticking_a_method_takes_it_from_every_chart(page: Page) -> None:
    page.locator("[data-picks]").get_by_role("checkbox", name="LightGBM").uncheck()
    for name in ("metric", "ahead", "roc", "precision", "calibration", "threshold"):
        for mark in page.locator(f"#chart-{name} [data-series='LightGBM']").all():
            assert not mark.is_visible()
    assert page.locator("#chart-roc .mean:visible").count() == 4
    assert page.locator("#chart-metric .row[data-series='focal loss']").first.is_visible()
    page.locator("[data-picks]").get_by_role("checkbox", name="LightGBM").check()
    assert page.locator("#chart-roc .mean:visible").count() == 5


@in_browser
def test_pointing_at_a_chart_or_the_arrow_keys_show_values(page: Page, result: ComparisonResult) -> None:
    chart, tip = page.locator("#chart-roc svg"), page.locator("#chart-roc .tip")
    assert tip.is_hidden()
    chart.focus()
    for _ in range(50):
        page.keyboard.press("ArrowRight")
    assert tip.is_visible()
    assert tip.inner_text().split("\n") == [
        "false-alarm rate 1",
        *(f"{result.label(method)}: 1.000" for method in result.methods),
    ]
    page.keyboard.press("Tab")
    assert tip.is_hidden()
    page.locator("#chart-precision svg").hover()
    assert "metricgrad: " in page.locator("#chart-precision .tip").inner_text()
    box = page.locator("#chart-precision .tip").bounding_box()
    area = page.locator("#chart-precision").bounding_box()
    assert box is not None
    assert area is not None
    assert area["x"] <= box["x"] <= box["x"] + box["width"] <= area["x"] + area["width"]


@in_browser
def test_the_table_of_methods_sorts_by_its_numbers(page: Page, result: ComparisonResult) -> None:
    page.locator("#methods thead th", has_text="F1").get_by_role("button").click()
    seen = page.eval_on_selector_all("#methods tbody tr", "rows => rows.map(r => Number(r.cells[1].dataset.value))")
    assert seen == pytest.approx(sorted(result.values(method).mean() for method in result.methods))


@in_browser
def test_names_of_data_columns_and_labels_are_text(page: Page) -> None:
    assert page.locator("script").count() == 1
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
def test_text_of_charts_can_be_read_on_a_phone(browser: Browser, file: Path, drawn: str) -> None:
    page, _ = opened(browser, file, drawn, viewport={"width": 360, "height": 800})
    heights = page.locator(".plot text").evaluate_all("all => all.map(text => text.getBoundingClientRect().height)")
    assert min(heights) > 9
    page.context.close()


@in_browser
def test_the_dark_is_dark_in_charts_too_and_nothing_but_choosing_needs_a_script(
    browser: Browser, file: Path, drawn: str
) -> None:
    page, _ = opened(browser, file, drawn, color_scheme="dark")
    lights = {}
    for part, style in (("body", "backgroundColor"), ("#chart-roc .mean path", "stroke"), ("#chart-roc text", "fill")):
        colour = page.locator(part).first.evaluate(f"node => getComputedStyle(node).{style}")
        lights[part] = sum(int(value) for value in colour[4:-1].split(","))
    assert lights.pop("body") < 100
    assert min(lights.values()) > 400
    page.context.close()
    page = browser.new_context(java_script_enabled=False).new_page()
    page.goto(file.as_uri())
    assert page.locator("#methods tbody tr").count() == 5
    assert page.locator("#chart-roc .mean").count() == 5
    assert "metricgrad: " in page.locator("#chart-roc .strip title").first.inner_html()
    page.context.close()
