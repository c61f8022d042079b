"""The commands explain and scorecard write what the model says, as files."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricgrad import Recipe, TableClassifier, save
from metricgrad.cli.app import app

RNG = np.random.default_rng(0)
TABLE = pd.DataFrame({"age": RNG.normal(40, 9, 300), "plan": RNG.choice(["a", "b"], 300)})
TABLE["churn"] = np.where((TABLE["age"] > 45) ^ (TABLE["plan"] == "a") & (RNG.random(300) < 0.7), "yes", "no")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("readable")
    TABLE.to_csv(home / "train.csv", index=False)
    recipe = Recipe(warmup=60, rounds=0, set_size=200, learning_rate=0.1)
    save(TableClassifier("f1", "cross-entropy", "additive", recipe).fit(TABLE, "churn"), home / "model")
    return home


@pytest.mark.parametrize("data", [False, True])
def test_explain_writes_a_page(folder: Path, data: bool) -> None:
    out = folder / "page.html"
    extra = ["--data", str(folder / "train.csv")] if data else []
    done = CliRunner().invoke(app, ["explain", str(folder / "model"), "--out", str(out), *extra])
    assert done.exit_code == 0, done.output
    assert "age" in done.output
    assert out.read_text().count("<svg") == 2


@pytest.mark.parametrize("data", [False, True])
def test_scorecard_writes_a_card_a_query_and_code_that_agree(folder: Path, data: bool) -> None:
    card, sql, code = (folder / name for name in ("card.csv", "card.sql", "card.py"))
    extra = ["--data", str(folder / "train.csv")] if data else []
    arguments = ["scorecard", str(folder / "model"), "--out", str(card), "--sql", str(sql), "--python", str(code)]
    done = CliRunner().invoke(app, [*arguments, "--points", "9", *extra])
    assert done.exit_code == 0, done.output
    assert ("before rounding" in done.output) == data
    frame = pd.read_csv(card)
    assert frame["points"].iloc[:-1].between(0, 9).all()
    with sqlite3.connect(":memory:") as base:
        TABLE.to_sql("data", base, index=False)
        found = pd.read_sql(sql.read_text(), base)
    scope: dict[str, object] = {}
    exec(code.read_text(), scope)
    points = [scope["points"](row) for row in TABLE.to_dict("records")]  # type: ignore[operator]
    assert found["points"].tolist() == points
    assert found["positive"].tolist() == [total >= frame["points"].iloc[-1] for total in points]


def test_a_card_may_be_markdown(folder: Path) -> None:
    out = folder / "card.md"
    assert CliRunner().invoke(app, ["scorecard", str(folder / "model"), "--out", str(out)]).exit_code == 0
    assert out.read_text().startswith("| feature | level | points |")


def test_a_model_that_cannot_be_read_is_refused_in_one_line(folder: Path) -> None:
    recipe = Recipe(warmup=5, rounds=0, set_size=200)
    save(TableClassifier("f1", "cross-entropy", "small", recipe).fit(TABLE, "churn"), folder / "small")
    done = CliRunner().invoke(app, ["explain", str(folder / "small")])
    assert done.exit_code == 2
    assert "model: expected a linear or additive one, got Sequential" in done.output
