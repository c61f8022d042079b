"""Pages of the documentation on a narrow screen, with the style and the script of `docs/static`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

DOCS = Path(__file__).parents[1] / "docs"
NARROW, WIDE = 360, 1280
MARGIN = 16
"""Of a narrow page, on each side."""
SVGS = sorted(path for path in (DOCS / "images").glob("*.svg") if path.stem != "data-flow")
FRAME = """<!doctype html><html><head><meta name="viewport" content="width=device-width,initial-scale=1">
<style>:root {{ --color-background-primary: #fff }} body {{ margin: {margin}px }} .table-wrapper {{ overflow-x: auto }}
{style}</style><script>{script}</script></head><body><article>{content}</article></body></html>"""
TEXT = [
    "two classes and a network of many units",
    'the usual loss and the exact threshold, <code>best_threshold</code>, or <code>method="cross-entropy"</code>',
    "training for the metric saved a network 0.6 % of the loss in the mean of eight tables",
]


def table(*rows: list[str], kind: str = "") -> str:
    """Return a table as Sphinx writes it, with headings a, b, c ..."""
    heads = "".join(f"<th><p>{letter}</p></th>" for letter, _ in zip("abcdefgh", rows[0], strict=False))
    body = "".join(f"<tr>{''.join(f'<td class={kind!r}><p>{cell}</p></td>' for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="table-wrapper"><table class="docutils"><thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def page_of(browser: Browser, content: str, width: int) -> Page:
    style, script = ((DOCS / "static" / f"pictures.{kind}").read_text("utf-8") for kind in ("css", "js"))
    page = browser.new_context(viewport={"width": width, "height": 800}).new_page()
    page.set_content(FRAME.format(style=style, script=script, content=content, margin=MARGIN), wait_until="load")
    return page


def test_a_table_of_text_is_read_on_a_narrow_screen_without_scrolling(browser: Browser) -> None:
    page = page_of(browser, table([*TEXT, ""], TEXT[:1] + TEXT[::-1]), NARROW)
    cells = page.locator("td").all()
    boxes = [cell.bounding_box() for cell in cells]
    assert boxes.pop(3) is None, "an empty cell is no line"
    assert all(box is not None and box["x"] + box["width"] <= NARROW for box in boxes)
    heading = "getComputedStyle(document.querySelectorAll('td')[%d], '::before').content"
    assert [page.evaluate(heading % number) for number in range(3)] == ["none", '"b: "', '"c: "']
    assert page.locator("thead").bounding_box() is None


def test_the_first_column_of_a_table_of_numbers_stays_in_sight(browser: Browser) -> None:
    rows = [[f"dataset {number}", *["0.123 ± 0.456"] * 7] for number in range(3)]
    page = page_of(browser, table(*rows, kind="text-right"), NARROW)
    wrapper = page.locator(".table-wrapper")
    wrapper.evaluate("element => element.scrollLeft = 300")
    assert page.locator("td").first.bounding_box()["x"] == MARGIN
    assert page.locator("td").nth(1).bounding_box()["x"] < 0
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW


def test_on_a_wide_screen_tables_are_tables(browser: Browser) -> None:
    page = page_of(browser, table(TEXT, TEXT), WIDE)
    assert page.locator(".stacked").count() == 0
    assert page.locator("thead").bounding_box() is not None


@pytest.mark.parametrize(("columns", "lines"), [(6, 1), (14, 2)])
def test_a_number_and_its_error_are_on_one_line_where_there_is_room(browser: Browser, columns: int, lines: int) -> None:
    page = page_of(browser, f"<p>1<br>2</p>{table(['one', *['0.1234 ± 0.4567'] * columns], kind='text-right')}", WIDE)
    wrapper = page.locator(".table-wrapper")
    assert wrapper.evaluate("element => element.scrollWidth <= element.clientWidth")
    heights = [page.locator(f"{place} p").last.bounding_box()["height"] for place in ("td", "article >")]
    assert heights[0] / (heights[1] / 2) == pytest.approx(lines, abs=0.3)


@pytest.mark.parametrize("path", SVGS, ids=lambda path: path.stem)
def test_the_text_of_a_picture_can_be_read_on_a_narrow_screen(path: Path) -> None:
    """Matplotlib writes a text of n points as curves of 100 units that are scaled by n / 100."""
    text = path.read_text("utf-8")
    points = float(re.search(r'<svg[^>]* width="([\d.]+)pt"', text)[1])
    drawn = min(float(scale) for scale in re.findall(r"scale\(([\d.]+) -", text)) * 100
    natural, room = points * 4 / 3, NARROW - 2 * MARGIN
    kept = min(natural, 640)  # as docs/static/pictures.js has it
    shown = kept if room < 0.55 * kept else min(room, natural)
    assert drawn * 4 / 3 * shown / natural > 7.5
