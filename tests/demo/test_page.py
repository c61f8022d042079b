"""The page of the demonstration is whole in itself, says what came, and fits phones and dark screens."""

from __future__ import annotations

import html
import io
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from browsing import in_browser, opened
from playwright.sync_api import Browser
from short_demo import short_demo

from metricgrad.demo import charts
from metricgrad.demo.page import DOCS, PAGES, costs_table, write_demo
from metricgrad.demo.trial import METHODS, OURS, SQUARED, DemoResult
from metricgrad.reporting.tables import as_rich
from metricgrad.reporting.terminal import Screen


@pytest.fixture(scope="module")
def result() -> DemoResult:
    return short_demo()


@pytest.fixture(scope="module")
def out(result: DemoResult, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("demo") / "new" / "out"
    files = write_demo(result, folder, "metricgrad demo --seed 3")
    assert sorted(files) == sorted(folder.iterdir())
    return folder


def test_the_page_has_verdict_table_and_a_chart_a_column_and_needs_nothing_else(out: Path, result: DemoResult) -> None:
    page = html.unescape((out / "index.html").read_text("utf-8"))
    assert result.verdict in page.replace("\u00a0", " ")
    assert page.count("<svg") == 3 + len(charts.COLUMNS)
    assert "://" not in page
    for link in re.findall(r'href="([^"#][^"]*)"', page):
        assert (out / link).is_file(), link
    assert {Path(link).name for link in re.findall(r'href="([^"#][^"]*)"', page)} == set(PAGES)
    for method in METHODS:
        assert f"{result.costs(method).mean():.1f}" in page
    ids = re.findall(r"\bid=[\"']([^\"']+)", page.split("<script>")[0])
    assert len(ids) == len(set(ids))


def test_what_the_page_says_of_the_study_is_in_the_study(out: Path) -> None:
    page, study, tried = (
        path.read_text("utf-8") for path in (out / "index.html", DOCS / "numbers.md", DOCS / "demo.md")
    )
    assert "21.4 ± 0.9 % saved" in page
    assert "saved over squared error with its constant: linear model 21.4 ± 0.9 %; network 11.7" in study
    assert "14.6 ± 1.5 % were saved" in page
    assert "2.6 ± 1.2 % over the best usual loss" in page
    assert re.search(r"\| additive \| working and free days \|.* 14\.6 ± 1\.5 \| 2\.6 ± 1\.2 \|\n", tried)
    assert "cost 44.9 an hour" in page
    assert re.search(r"\| bikes, cost \|(?: [\d.]+ ± [\d.]+ \|){2} 44\.9\d ± ", study)


def test_the_best_cost_is_bold_and_the_table_fits_a_terminal(result: DemoResult) -> None:
    table = costs_table(result)
    means = {method: result.costs(method).mean() for method in METHODS}
    bold = {row[0].text for row in table.rows if row[1].best}
    assert bold == {method for method, mean in means.items() if mean == min(means.values())}
    console = Screen(width=80, record=True, file=io.StringIO())
    console.print(as_rich(table))
    assert len(console.export_text().splitlines()) == 3 + len(METHODS)  # no cell is folded


def test_files_hold_the_numbers_and_every_prediction(out: Path, result: DemoResult) -> None:
    record = json.loads((out / "demo.json").read_text("utf-8"))
    assert record["verdict"] == result.verdict
    frame = pd.read_csv(out / "predictions.csv")
    assert frame["hour"].tolist() == list(range(len(result.bikes.y)))
    np.testing.assert_array_equal(frame["bikes"], result.bikes.y)
    short = (frame["bikes"] - frame[OURS]).clip(lower=0)
    over = (frame[OURS] - frame["bikes"]).clip(lower=0)
    assert (5 * short + over + 10 * (short > 0)).mean() == pytest.approx(record["curves"][OURS][25], rel=1e-3)


def test_shapes_are_means_of_the_models_at_the_places_of_the_first(result: DemoResult) -> None:
    models = {method: result.explained(method) for method in (SQUARED, OURS)}
    figure = charts.plot_column("weather", models)
    line = figure.axes[0].get_lines()[-1]
    own = [one.frame.query("feature == 'weather'")["contribution"].to_numpy() for one in models[OURS]]
    np.testing.assert_allclose(line.get_ydata(), np.mean(own, 0))
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == ["clear", "cloudy", "wet"]


@in_browser
@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_nothing_goes_wrong(browser: Browser, out: Path, width: int, scheme: str) -> None:
    options = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    page, wrong = opened(browser, out / "index.html", ".plot svg", **options)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    marks = f'#chart-curves [data-series="{SQUARED}"]'
    page.locator(f'[data-picks] input[value="{SQUARED}"]').first.uncheck()
    assert all(page.locator(marks).nth(i).is_hidden() for i in range(page.locator(marks).count()))
    page.locator("#chart-curves svg").focus()
    page.keyboard.press("ArrowRight")
    assert (
        "added" in page.locator("#chart-curves .tip").inner_text()
        or OURS in page.locator("#chart-curves .tip").inner_text()
    )
    assert wrong == []
