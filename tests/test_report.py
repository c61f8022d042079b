"""Pages are whole in themselves, and nothing in a name can become markup."""

from __future__ import annotations

from pathlib import Path

from metricgrad.report import write_demo_page


def test_the_best_value_of_each_metric_is_bold_whichever_way_is_better(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    write_demo_page(page, "t", {"a": {"f1": 0.1, "eer": 0.2}, "b": {"f1": 0.3, "eer": 0.1}}, {})
    text = page.read_text()
    assert "<td><strong>0.9000</strong></td><td>0.7000</td>" in text
    assert "<td>0.2000</td><td><strong>0.1000</strong></td>" in text


def test_all_text_is_escaped(tmp_path: Path) -> None:
    picture = tmp_path / "p.png"
    picture.write_bytes(b"\x89PNG")
    page = tmp_path / "page.html"
    evil = "<script>alert('x')</script>\""
    write_demo_page(page, evil, {evil: {"f1": 0.1}}, {evil: picture})
    text = page.read_text()
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 5
    assert 'alt="&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&quot;"' in text
