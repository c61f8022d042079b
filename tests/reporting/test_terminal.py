"""Text on a terminal: whatever it comes from, it is shown and never obeyed."""

from __future__ import annotations

import io
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner, Result

from metricgrad.cli.app import app
from metricgrad.reporting import progress
from metricgrad.reporting.terminal import Screen, echo, visible

QUICK = ["--model", "linear", "--method", "cross-entropy", "--recipe", "warmup=9,rounds=0,learning_rate=0.05"]
HOSTILE = "a\x1b]0;owned\x07\x1b[2J\x9b31m\u202eb\u2066\u2028[bold]c[link=x]d"
SHOWN = r"a\x1b]0;owned\x07\x1b[2J\x9b31m\u202eb\u2066\u2028[bold]c[link=x]d"


@given(st.text(st.characters(), max_size=20))
def test_nothing_steers_a_terminal_and_everything_else_is_shown_as_it_is(text: str) -> None:
    shown = visible(text)
    assert not [c for c in shown if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")]
    assert not [c for c in shown if unicodedata.bidirectional(c) in ("LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "PDI")]
    shown.encode("utf-8")
    if text.isprintable():
        assert shown == text


def test_words_of_every_language_and_emoji_are_shown_as_they_are() -> None:
    for text in ("città", "日本語", "نمی\u200cخواهم", "👩\u200d💻", "a\xa0b"):
        assert visible(text) == text


def test_a_line_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    echo("a\nb", "c")
    echo("d\re", err=True)
    said = capsys.readouterr()
    assert (said.out, said.err) == ("a\\nb\nc\n", "d\\re\n")


# ---- commands ------------------------------------------------------------------------------------------------------


def steering(text: str) -> set[str]:
    return {c for c in text if unicodedata.category(c) in ("Cc", "Cf", "Zl", "Zp") and c != "\n"}


def run(*arguments: object) -> Result:
    done = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert not steering(done.stdout), (arguments, done.stdout)
    assert not steering(done.stderr), (arguments, done.stderr)
    return done


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            HOSTILE: rng.normal(size=80),
            f"id{HOSTILE}": [f"{HOSTILE}{number}" for number in range(80)],
            f"plan{HOSTILE}": rng.choice([f"p{HOSTILE}", f"q{HOSTILE}"], 80),
            f"late{HOSTILE}": [f"closed{HOSTILE}", None] * 40,
            f"left{HOSTILE}": [f"yes{HOSTILE}", f"no{HOSTILE}"] * 40,
        }
    )
    frame.to_parquet(f"data{HOSTILE}.parquet")
    Path(f"mine{HOSTILE}.py").write_text(
        "def gain(y_true, y_pred):\n    return float((9 * y_true * y_pred - y_pred).sum())\n"
        f"gain.higher_is_better = True\ngain.__name__ = {HOSTILE!r}\n"
    )
    return tmp_path


def test_names_labels_and_paths_do_not_steer_the_terminal(here: Path) -> None:
    data, out, target = f"data{HOSTILE}.parquet", f"model{HOSTILE}", f"left{HOSTILE}"
    done = run("fit", data, "--target", target, "--out", out, *QUICK)
    assert done.exit_code == 0, done.output
    assert f"target left{SHOWN}: 'yes{SHOWN}' is positive" in done.stdout
    assert f"The model is in model{SHOWN}: metricgrad predict" in done.stdout
    assert "alone predicts the target" in done.stderr
    card = (here / out / "README.md").read_text("utf-8")
    assert r"A model of lefta\\x1b\]0;owned\\x07" in card
    assert not steering(card)
    scored = run("predict", out, data, "--out", f"scores{HOSTILE}.csv")
    assert f"80 rows scored, in scores{SHOWN}" in scored.stderr
    judged = run("evaluate", out, data, "--metric", f"mine{HOSTILE}.py:gain")
    assert judged.exit_code == 0, judged.output
    assert SHOWN in judged.stdout
    assert run("evaluate", out, data, "--json").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ["fit", f"data{HOSTILE}.parquet", "--target", f"nobody{HOSTILE}"],
        ["fit", f"nowhere{HOSTILE}.csv", "--target", "x"],
        ["fit", "data.parquet", "--target", "x", "--metric", f"f1{HOSTILE}"],
        ["fit", "data.parquet", "--target", "x", "--recipe", f"slow{HOSTILE}"],
        ["predict", f"nowhere{HOSTILE}", "data.parquet"],
        ["--traceback", "predict", f"nowhere{HOSTILE}", "data.parquet"],
        ["evaluate", f"nowhere{HOSTILE}", "data.parquet"],
        ["report", f"nowhere{HOSTILE}"],
        ["fit", f"--wrong{HOSTILE}"],
        [f"wrong{HOSTILE}"],
        ["reproduce", f"table{HOSTILE}"],
        ["compare", f"data{HOSTILE}.parquet", "--target", f"nobody{HOSTILE}"],
    ],
)
def test_errors_do_not_steer_the_terminal(here: Path, words: list[str]) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert r"a\x1b]0;owned\x07" in done.stderr.replace(r"\\", "\\")


def test_a_strangers_folder_does_not_steer_the_terminal(here: Path) -> None:
    (here / "model").mkdir()
    (here / "model" / "model.json").write_text('{"format": "\\u001b]0;owned\\u0007"}')
    done = run("predict", "model", f"data{HOSTILE}.parquet")
    assert done.stderr.startswith("metricgrad: error: model/model.json: format: expected 1")


MARKUP = "[bold]b[/bold] [link=http://x]y[/link] :smile: \x1b]0;owned\x07\x9b31m\n\u202e"
LITERAL = r"[bold]b[/bold] [link=http://x]y[/link] :smile: \x1b]0;owned\x07\x9b31m\n\u202e"


def printed(*what: object) -> str:
    file = io.StringIO()
    Screen(file=file, width=200, force_terminal=True).print(*what)
    return file.getvalue()


def test_markup_emoji_and_control_characters_in_a_table_are_shown() -> None:
    table = Table(title=MARKUP, caption=MARKUP)
    table.add_column(MARKUP)
    table.add_row(MARKUP)
    text = printed(table)
    assert text.count(LITERAL) == 4
    assert not {"\x07", "\x9b", "\u202e"} & set(text)
    assert "\x1b]" not in text


def test_a_string_alone_is_shown_and_a_style_asked_for_is_given() -> None:
    assert LITERAL in printed(MARKUP)
    assert "\x1b[1mbold" in printed(Text("bold", "bold"))


def test_bars_show_what_they_stand_for(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "240")
    with progress.work_bar() as report:
        report(MARKUP, 10, 20)
    text = capsys.readouterr().err
    assert LITERAL in text
    assert "\x07" not in text
    assert "\x1b]" not in text
