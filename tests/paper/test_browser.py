"""The report in a real browser: it sorts, filters, draws, and never asks for anything."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from browsing import PATIENCE, in_browser, opened
from made_up import add, run, small
from playwright.sync_api import Browser, Locator, Page

from metricgrad.evaluation.records import Setting
from metricgrad.paper import report
from metricgrad.paper.figures import figure2
from metricgrad.paper.player import write_player
from metricgrad.paper.tables import table2

pytestmark = in_browser
EVIL = "<script>alert(1)</script>"
EVIL_METHOD = "</script><img src=x onerror=alert(2)>"
TABLE = "#table2-honest-0"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    store = small(folder)
    add(store, run(EVIL, "f1", EVIL_METHOD), 0.2, subset=EVIL, command=EVIL)
    add(store, run(EVIL, "f1", "sl-r"), 0.3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "FIGURE2_ROUNDS", (0, 1, 3))
        report.write_report(store, folder / "index.html")
    return folder


@pytest.fixture(scope="module")
def file(folder: Path) -> Path:
    return folder / "index.html"


@pytest.fixture(scope="module")
def drawn() -> str:
    return "#training .chosen:not([hidden]) svg .mean"


def column(page: Page, table: str, number: int) -> list[str]:
    """Return the values, or the texts, of the rows of a table that can be seen."""
    script = "(rows, n) => rows.filter(r => !r.hidden).map(r => r.cells[n].dataset.value ?? r.cells[n].textContent)"
    return page.eval_on_selector_all(f"{table} tbody tr", script, number)


# ---- tables --------------------------------------------------------------------------------------------------------


def test_a_click_sorts_by_numbers_both_ways_and_missing_ones_come_last(page: Page, folder: Path) -> None:
    heading = page.locator(f"{TABLE} thead th", has_text="AUC")
    means = table2(folder, "honest", Setting("mlp", "default")).frame["mean"]
    there = sorted(means.xs("auc", level="metric").dropna())
    for direction, expected in (("ascending", there), ("descending", there[::-1])):
        heading.get_by_role("button").click()
        assert heading.get_attribute("aria-sort") == direction
        values = column(page, TABLE, 2)
        assert [float(value) for value in values[: len(there)]] == pytest.approx(expected)
        assert set(values[len(there) :]) == {""}
    assert page.locator(f'{TABLE} th[aria-sort="none"]').count() == 9  # the column of what was kept is one


def test_numbers_are_sorted_as_numbers_not_as_text(page: Page) -> None:
    page.locator("#table1 thead th", has_text="the paper's").first.get_by_role("button").click()
    assert column(page, "#table1", 3) == ["48842", "488565", "5000000", "", ""]


def test_the_keyboard_sorts_by_name_and_back(page: Page) -> None:
    button = page.locator(f"{TABLE} thead th", has_text="mode").get_by_role("button")
    button.focus()
    page.keyboard.press("Enter")
    assert column(page, TABLE, 1)[0] == "SL-R"
    page.keyboard.press("Space")
    assert column(page, TABLE, 1)[0] == "SL-U"
    outline = button.evaluate("b => getComputedStyle(b).outlineStyle")
    assert outline == "solid"


def test_rank_rows_stay_below_whatever_is_sorted(page: Page) -> None:
    page.locator(f"{TABLE} thead th", has_text="F1").get_by_role("button").click()
    assert page.locator(f"{TABLE} tfoot tr").count() == 3
    assert page.locator(f"{TABLE} tfoot th").first.inner_text() == "mean rank"


def test_words_and_selects_filter_rows_and_columns(page: Page) -> None:
    whole = len(column(page, TABLE, 0))
    page.fill("#filter-text", "susy")
    assert column(page, TABLE, 1) == ["SL-U", "SL-R", "SL-S"]
    assert page.locator("#shown").inner_text().startswith("4 of ")
    page.select_option("#filter-method", "sl-s")
    assert column(page, TABLE, 1) == ["SL-S"]
    page.select_option("#filter-metric", "f1")
    seen = page.locator(f"{TABLE} thead th:visible").evaluate_all("all => all.map(th => th.dataset.metric ?? '')")
    assert seen == ["", "", "f1", ""]
    page.click("#clear")
    assert len(column(page, TABLE, 0)) == whole
    page.select_option("#filter-dataset", "codrna")
    assert set(column(page, TABLE, 0)) == {"Cod-RNA68 % of the rows"}


def test_protocols_and_settings_are_shown_one_at_a_time(page: Page) -> None:
    assert page.locator("[data-protocol='paper']:visible").count() == 0
    page.select_option("#filter-protocol", "paper")
    assert page.locator("#table2-paper-0").is_visible()
    assert not page.locator(TABLE).is_visible()
    page.select_option("#filter-protocol", "")
    assert page.locator(TABLE).is_visible()
    page.select_option("#filter-setting", "1")
    assert page.locator("#table2-honest-1").is_visible()
    assert not page.locator(TABLE).is_visible()


# ---- plots ---------------------------------------------------------------------------------------------------------


def chart(page: Page) -> Locator:
    """Return the chart of training that is shown, which is the only one."""
    shown = page.locator("#training .chosen:visible svg")
    assert shown.count() == 1
    return shown


def test_one_chart_of_training_is_shown_and_changes_with_what_is_chosen(page: Page) -> None:
    def drawn() -> str | None:
        return chart(page).locator(".mean[data-series='SL-R'] path").first.get_attribute("d")

    first = drawn()
    assert first is not None
    assert chart(page).locator(".run").count() == 2 * 5
    page.select_option("#training-dataset", "susy")
    second = drawn()
    page.select_option("#training-metric", "f1")
    third = drawn()
    assert len({first, second, third}) == 3
    page.get_by_role("checkbox", name="SL-R").uncheck()
    assert not chart(page).locator(".mean[data-series='SL-R']").first.is_visible()
    assert chart(page).locator(".mean[data-series='SL-S']").first.is_visible()
    assert "Susy" in (chart(page).get_attribute("aria-label") or "")
    page.select_option("#training-setting", "1")
    assert page.locator("[data-nothing]").is_visible()


def test_pointing_at_the_chart_shows_values(page: Page) -> None:
    tip = page.locator("#training .chosen:visible .tip")
    assert tip.is_hidden()
    chart(page).hover()
    assert tip.is_visible()
    step, *values = tip.inner_text().split("\n")
    assert step.startswith("step ")
    assert re.fullmatch(r"SL-U: 0\.\d{4}, loss 0\.\d{4}, gap 0\.\d{4}", values[0])
    page.mouse.move(0, 0)
    assert tip.is_hidden()
    chart(page).focus()
    page.keyboard.press("ArrowRight")
    assert tip.is_visible()
    assert not tip.inner_text().startswith(step)


def test_figures_of_the_paper_are_drawn(page: Page) -> None:
    surfaces, panels = page.locator("#figures .grids").all()
    assert surfaces.locator("svg image").count() == 5
    assert all((box.bounding_box() or {"width": 0})["width"] > 100 for box in surfaces.locator("svg image").all())
    assert "F1 loss" in surfaces.inner_text()
    assert panels.locator("svg").count() == 4
    assert "round 3: alpha = " in panels.inner_text()
    assert "surrogate" in panels.inner_text()


# ---- Figure 2 to play with -----------------------------------------------------------------------------------------


def said(page: Page) -> tuple[float, ...]:
    """Return round, alpha, cut, error rate and surrogate as the player states them."""
    return tuple(float(number) for number in re.findall(r"\d+\.?\d*", page.locator("#player output").inner_text()))


def test_the_player_steps_through_the_rounds_of_figure_2(page: Page) -> None:
    arrays = figure2((0, 1, 2, 3))
    curve = page.locator("#player .learned path")
    first = curve.get_attribute("d")
    assert said(page)[:2] == (0, pytest.approx(arrays.alpha[0], abs=0.005))
    page.get_by_role("button", name="Round on").click()
    assert said(page)[0] == 1
    assert curve.get_attribute("d") != first
    page.locator("#player [name=round]").focus()
    page.keyboard.press("End")
    assert said(page)[:2] == (3, pytest.approx(arrays.alpha[3], abs=0.005))
    page.get_by_role("button", name="Round back").click()
    assert said(page)[0] == 2
    page.get_by_role("button", name="Play").click()
    page.get_by_role("button", name="Play").wait_for()  # it says Stop until the last round
    assert said(page)[0] == 3


def test_moving_alpha_moves_the_cut_and_reads_both_losses(page: Page) -> None:
    arrays = figure2((0,))
    where = {name: page.locator(f"#player .{name}").bounding_box() for name in ("cut", "yours", "here")}
    page.locator("#player [name=alpha]").fill("0.9")
    number, alpha, cut, true, surrogate = said(page)
    assert (number, alpha, cut) == (0, 0.9, 1.11)
    rows = (0.9 * arrays.x - 1 > 0) != (arrays.y == 1)
    assert true == pytest.approx(rows.mean(), abs=0.02)  # between two points of the curve
    assert surrogate == pytest.approx(np.interp(0.9, arrays.alphas, arrays.surrogate[0]), abs=0.01)
    moved = {name: page.locator(f"#player .{name}").bounding_box() for name in where}
    assert moved["cut"]["x"] < where["cut"]["x"] - 5
    assert moved["yours"]["x"] > where["yours"]["x"] + 5
    assert moved["here"]["x"] == where["here"]["x"]


def test_the_player_has_a_page_of_its_own_for_phones_in_the_dark(browser: Browser, tmp_path: Path) -> None:
    write_player(tmp_path / "figure2.html", figure2((0, 2)))
    page, wrong = opened(
        browser, tmp_path / "figure2.html", "output", viewport={"width": 360, "height": 800}, color_scheme="dark"
    )
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    sizes = page.locator("#player svg text").evaluate_all("all => all.map(t => t.getBoundingClientRect().height)")
    assert min(sizes) >= 10
    edges = page.locator("#player svg text").evaluate_all("all => all.map(t => t.getBoundingClientRect().right)")
    assert max(edges) <= 350
    page.context.close()
    assert wrong == []


# ---- everywhere ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [360, 1280])
def test_the_page_never_scrolls_sideways(browser: Browser, file: Path, drawn: str, width: int) -> None:
    page, wrong = opened(browser, file, drawn, viewport={"width": width, "height": 800})
    page.select_option("#filter-protocol", "")
    page.eval_on_selector_all("details", "all => all.forEach(d => { d.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()
    assert wrong == []


def test_the_dark_is_dark(browser: Browser, file: Path, drawn: str) -> None:
    lights = {}
    for scheme in ("light", "dark"):
        page, _ = opened(browser, file, drawn, color_scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
        lights[scheme] = sum(int(part) for part in colour[4:-1].split(","))
        page.context.close()
    assert lights["light"] > 700
    assert lights["dark"] < 100


def test_names_from_records_are_text_and_never_run(page: Page) -> None:
    assert page.locator("script").count() == 1
    assert page.locator("img").count() == 0
    assert EVIL in column(page, "#table1", 0)
    page.select_option("#training-dataset", EVIL)
    page.select_option("#training-metric", "f1")
    chart(page).hover()
    assert EVIL_METHOD in page.locator("#training .chosen:visible .tip").inner_text()
    page.get_by_role("checkbox", name=EVIL_METHOD).uncheck()
    assert chart(page).locator(".mean:visible").count() > 0
    assert EVIL in page.locator("#made pre").inner_text()


def test_tables_and_charts_can_be_read_without_scripts(browser: Browser, file: Path) -> None:
    page = browser.new_context(java_script_enabled=False).new_page()
    page.set_default_timeout(PATIENCE)
    page.goto(file.as_uri())
    assert page.locator("table").count() > 10
    assert page.locator("#training svg:visible").count() == 11
    page.context.close()
