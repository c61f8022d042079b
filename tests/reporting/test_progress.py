"""Progress bars: what they show, and that they pass everything on."""

from __future__ import annotations

import math

import pytest
from made_up import a_round
from rich.progress import Progress

from metricgrad.metrics.registry import f1
from metricgrad.reporting import progress
from metricgrad.training.trainer import Round


@pytest.fixture(autouse=True)
def a_terminal(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "file" not in request.node.name:
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "160")


def rounds(validation: float = 0.31) -> list[Round]:
    warm_up = [a_round("warm-up", n, 2, steps=n, loss=0.7) for n in (1, 2)]
    later = {"loss": 0.5, "gap": 0.01, "trust": 0.9, "validation": validation}
    return [*warm_up, *(a_round("rounds", n, 3, steps=2 + n, **later) for n in (1, 2, 3))]


def test_rounds_are_passed_on_and_shown_with_the_metric_people_know(capsys: pytest.CaptureFixture[str]) -> None:
    given = rounds()
    assert list(progress.shown_rounds(iter(given), f1)) == given
    shown = capsys.readouterr().err
    assert "training: warm-up" in shown
    assert "2/2" in shown
    assert "training: rounds" in shown
    assert "3/3" in shown
    assert "validation F1 0.6900" in shown


def test_rounds_that_were_not_judged_show_no_metric(capsys: pytest.CaptureFixture[str]) -> None:
    list(progress.shown_rounds(iter(rounds(math.nan)), f1, title="demo"))
    shown = capsys.readouterr().err
    assert "demo: rounds" in shown
    assert "validation" not in shown


def test_the_bar_is_put_away_when_the_reader_stops(capsys: pytest.CaptureFixture[str]) -> None:
    passing = progress.shown_rounds(iter(rounds()), f1)
    next(passing)
    passing.close()
    assert "training: warm-up" in capsys.readouterr().err
    with Progress() as another:  # rich allows one live display at a time
        another.add_task("after")


def test_every_kind_of_work_gets_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.work_bar() as report:
        report("judging random sets", 10, 20)
        report("judging random sets", 20, 20)
        report("fitting the surrogate", 50, 3_000)
    shown = capsys.readouterr().err
    assert "judging random sets" in shown
    assert "20/20" in shown
    assert "fitting the surrogate" in shown
    assert "50/3000" in shown


def test_nothing_is_shown_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(progress.shown_rounds(iter(rounds()), f1))) == 5
    assert capsys.readouterr().err == ""
