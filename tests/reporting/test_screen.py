"""The console: text is nothing but text, and a style is one that was asked for."""

from __future__ import annotations

import io

import pytest
from rich.table import Table
from rich.text import Text

from metricgrad.reporting import progress
from metricgrad.reporting.screen import Screen

HOSTILE = "[bold]b[/bold] [link=http://x]y[/link] :smile: \x1b]0;owned\x07\x9b31m\n\u202e"
SHOWN = r"[bold]b[/bold] [link=http://x]y[/link] :smile: \x1b]0;owned\x07\x9b31m\n\u202e"


def shown(*what: object) -> str:
    file = io.StringIO()
    Screen(file=file, width=200, force_terminal=True).print(*what)
    return file.getvalue()


def test_markup_emoji_and_control_characters_in_a_table_are_shown() -> None:
    table = Table(title=HOSTILE, caption=HOSTILE)
    table.add_column(HOSTILE)
    table.add_row(HOSTILE)
    text = shown(table)
    assert text.count(SHOWN) == 4
    assert not {"\x07", "\x9b", "\u202e"} & set(text)
    assert "\x1b]" not in text


def test_a_string_alone_is_shown_and_a_style_asked_for_is_given() -> None:
    assert SHOWN in shown(HOSTILE)
    assert "\x1b[1mbold" in shown(Text("bold", "bold"))


def test_bars_show_what_they_stand_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "240")
    with progress.work_bar() as report:
        report(HOSTILE, 10, 20)
    text = capsys.readouterr().err
    assert SHOWN in text
    assert "\x07" not in text
    assert "\x1b]" not in text
