"""The command demo: what it prints and writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from short_demo import short_demo
from typer.testing import CliRunner

from metricgrad.cli.app import app
from metricgrad.demo import trial


def test_it_prints_the_table_and_the_verdict_and_writes_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, seeds = short_demo(), []
    monkeypatch.setattr(trial, "run_demo", lambda seed, report: seeds.append(seed) or result)
    done = CliRunner().invoke(app, ["demo", "--seed", "3", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert seeds == [3]
    said = " ".join(done.output.split())
    assert result.verdict in said
    for method in trial.METHODS:
        assert f"{method} {result.costs(method).mean():.1f}" in said
    assert (tmp_path / "out" / "index.html").is_file()
    assert str(tmp_path / "out" / "index.html") in done.output.replace("\n", "")


def test_a_folder_that_cannot_be_made_is_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "run_demo", lambda *_, **__: pytest.fail("it has begun to train"))
    (tmp_path / "file").write_text("")
    done = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "file" / "out")])
    assert done.exit_code == 2
    assert len(done.output.strip().splitlines()) == 1
