"""Pages of one file: nothing ends early, nothing is fetched, one script runs."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest

from metricgrad.reporting.markup import FOLDER, embedded, page, select, tag

EVIL = "</script><!--<script>alert(1)</script>\u2028&"


def test_json_in_a_page_cannot_end_its_element_and_reads_as_it_was() -> None:
    text = embedded({EVIL: [1, None, EVIL]})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {EVIL: [1, None, EVIL]}
    with pytest.raises(ValueError, match="Out of range float"):
        embedded(float("nan"))


def test_attributes_are_escaped_and_those_without_a_value_left_out() -> None:
    assert tag("a", "x", title='"<>', href=None, hidden=False) == '<a title="&quot;&lt;&gt;">x</a>'
    assert tag("select", name="n", aria_label="l") == '<select name="n" aria-label="l"></select>'
    assert "&lt;b&gt;" in select("n", "<b>", {"<i>": "<b>"})


def test_a_page_allows_its_own_script_and_no_other() -> None:
    text = page("<t>", "", scripts=("draw.js", "sort.js"), data=EVIL)
    code = text.rpartition("<script>")[2].removesuffix("</script></body></html>\n")
    for file in ("draw.js", "sort.js"):
        assert (FOLDER / file).read_text(encoding="utf-8") in code
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in text
    assert text.count("<script") == 2
    assert "<title>&lt;t&gt;</title>" in text


def test_a_page_without_a_script_allows_none() -> None:
    assert "script" not in page("t", "body").split("<style>")[0]


@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.iterdir()))
def test_our_files_load_nothing_from_elsewhere_and_can_be_inlined(file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")
    assert set(re.findall(r"\w+://[^\"'\s)]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert not re.search(r"</(script|style)|@import|url\(|innerHTML|document\.write|\beval\b|fetch\(", text)
