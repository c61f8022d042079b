"""HTML: everything is escaped, a page fetches nothing and runs one script, cards show true facts."""

from __future__ import annotations

import base64
import hashlib
import math
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from markupsafe import Markup
from sklearn.datasets import make_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from metricgrad import MetricClassifier, Recipe, black_box
from metricgrad.reporting.html import ENVIRONMENT, STATIC, TEMPLATES, card, progress_bar, render, render_page, sparkline
from metricgrad.reporting.tables import ResultTable, Shown, as_html, result_frame

EVIL = "</script><!--<script>alert(1)</script>\u2028&\"'"


def small_page(title: str, **more: object) -> str:
    given = {"of": "classes", "base": 0.0, "drawn": "", "head": [], "rows": [], **more}
    return render_page("explanation.html", title, **given)


def test_autoescape_is_on_for_every_template() -> None:
    assert ENVIRONMENT.autoescape is True
    for file in TEMPLATES.iterdir():
        text = file.read_text(encoding="utf-8")
        assert "safe" not in re.findall(r"\|\s*(\w+)", text), file.name
        assert "autoescape" not in text, file.name
    assert ENVIRONMENT.from_string("<b title='{{ x }}'>{{ x }}</b>").render(x=EVIL).count("<") == 2


def test_a_name_that_a_template_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        render("progress.html", label="x")


def test_text_is_escaped_wherever_it_stands_and_markup_is_kept() -> None:
    shown = Shown(EVIL, small=EVIL, note=EVIL, title=EVIL, tone=EVIL, error=EVIL, beside=EVIL, verdict=EVIL)
    frame = result_frame([[shown, shown]], [(EVIL, EVIL), ("b", "")])
    table = ResultTable(EVIL, frame, row_attributes=[{"data-x": EVIL}])
    text = as_html(table, id=EVIL, lead=EVIL, classes=EVIL) + progress_bar(EVIL, 1, 2, EVIL)
    assert "<script" not in text
    assert "<!--" not in text
    assert not re.search(r"=\"[^\"]*'[^\"]*\"", text)
    page = small_page(EVIL, drawn=Markup("<b>kept</b>"), head=[EVIL], rows=[[EVIL, EVIL]])
    assert "<b>kept</b>" in page
    assert "<script" not in page


def test_a_page_allows_its_own_script_and_no_other() -> None:
    text = small_page("<t>", scripts=("page.js", "sort.js"))
    code = text.rpartition("<script>")[2].partition("</script>")[0]
    for file in ("page.js", "sort.js"):
        assert (STATIC / file).read_text(encoding="utf-8") in code
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in text
    assert text.count("<script") == 1
    assert "<title>&lt;t&gt;</title>" in text


def test_a_page_without_a_script_allows_none() -> None:
    assert "script" not in small_page("t")


@pytest.mark.parametrize("file", sorted(path.name for path in STATIC.iterdir()))
def test_our_files_load_nothing_from_elsewhere_and_can_be_inlined(file: str) -> None:
    text = (STATIC / file).read_text(encoding="utf-8")
    assert not re.findall(r"\w+://[^\"'\s)]+", text)
    assert not re.search(r"</(script|style)|@import|url\(|innerHTML|document\.write|\beval\b|fetch\(", text)


pytestmark = pytest.mark.filterwarnings("ignore:.*is not faithful yet")  # training is too short for that

SCRIPT = "<script>alert(1)</script>"
X, Y = make_classification(600, 6, weights=[0.8], random_state=0)
QUICK = Recipe(warmup=30, rounds=10, model_steps=3, check_every=5, trust_cap=50)


class Tags(HTMLParser):
    """Writes down every element and all text."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.text = ""
        self.feed(markup)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=30))
def test_texts_of_a_card_and_a_table_stay_text(headline: str, name: str, fact: str) -> None:
    shown = Tags(card(headline, {name: fact}, head=[name], rows=[[fact, headline]]))
    allowed = {"style", "div", "p", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th", "td"}
    assert set(shown.names) <= allowed
    assert shown.names.count("td") == 1


@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(allow_infinity=True, allow_nan=True)), max_size=20))
def test_a_sparkline_stays_in_its_box_whatever_the_points(points: list[tuple[float, float]]) -> None:
    drawn = sparkline(points, None, "")
    known = [point for point in points if math.isfinite(point[1])]
    assert bool(drawn) == (len(known) > 1)
    numbers = [float(number) for number in re.findall(r"[ML]([\d.-]+) ([\d.-]+)", drawn) for number in number]
    assert all(0 <= x <= 320 for x in numbers[::2])
    assert all(0 <= y <= 56 for y in numbers[1::2])


def test_a_fitted_model_shows_its_metric_threshold_and_checkpoint() -> None:
    model = MetricClassifier("f1", method="sl-r", model="linear", recipe=QUICK)
    assert "metricgrad-card" not in model._repr_html_()
    model.fit(X, Y)
    for shown in (model._repr_html_(), model._repr_mimebundle_()["text/html"]):
        text = Tags(shown).text
        assert f"F1 {1 - model.validation_loss_:.4f} on validation rows" in text
        assert f"{model.threshold_:.4g}" in text
        assert re.search(r"step \d+ of 60 \((warm-up|rounds)\)", text)
        assert shown.count("<circle") == 1
    assert model._repr_mimebundle_()["text/plain"] == repr(model)


def test_names_of_a_metric_and_a_label_are_text_in_a_notebook() -> None:
    def profit(y_true: np.ndarray, y_score: np.ndarray) -> float:
        return float(((y_score > 0) == y_true).mean())

    profit.__name__ = SCRIPT
    metric = black_box(profit, higher_is_better=True)
    model = MetricClassifier(metric, method="cross-entropy", model="linear", recipe=QUICK).fit(X, Y)
    plain = MetricClassifier("f1")._repr_html_().count("<script")
    for shown in (model._repr_html_(), make_pipeline(StandardScaler(), model)._repr_html_()):
        assert SCRIPT not in shown
        assert shown.count("<script") <= plain


@pytest.mark.parametrize("evil", [SCRIPT, "</style><img src=x onerror=alert(1)>"])
def test_a_card_of_evil_names_runs_nothing(evil: str) -> None:
    names = Tags(
        card(evil, {evil: evil}, head=[evil], rows=[[evil, evil]], drawn=sparkline([(0, 1), (1, 2)], (0, 1), evil))
    ).names
    assert "script" not in names
    assert "img" not in names
