"""The command compare: a file in, a sentence, a table, a page and every number out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from typer.testing import CliRunner

from metricgrad.cli.app import app
from metricgrad.evaluation.statistics import corrected_interval

SCRIPT = Path(sys.executable).with_name("metricgrad")
QUICK = ["--model", "linear", "--recipe", "warmup=30,rounds=6,trust_cap=50", "--splits", "2", "--jobs", "1"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    X, y = make_classification(400, 5, weights=[0.7], random_state=0)
    frame = pd.DataFrame(X, columns=list("abcde")).assign(plan=np.where(X[:, 0] > 0, "x", "y"))
    frame.assign(churn=np.where(y == 1, "yes", "no")).to_csv(tmp_path / "churn.csv", index=False)
    return tmp_path


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "120", "PYTHONWARNINGS": "error"}
    return subprocess.run([SCRIPT, "compare", *words], cwd=folder, env=environment, capture_output=True, text=True)


def test_a_file_ends_in_a_verdict_a_page_and_every_number(table: Path) -> None:
    done = run(
        table, "churn.csv", "--target", "churn", "--metric", "mcc", "--baselines", "cross-entropy,lightgbm", *QUICK
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("target churn: 'yes' is positive")
    assert lines[-1] == "The page and every number are in metricgrad-compare: open metricgrad-compare/index.html."
    trials = pd.read_csv(table / "metricgrad-compare" / "trials.csv").pivot(
        index="split", columns="method", values="mcc"
    )
    found = corrected_interval(trials["sl-r"] - trials["cross-entropy"], 0.25)
    assert ("no reliable difference" in lines[-2]) == (not found.reliable)
    assert f"{found.mean:+.3f} MCC" in lines[-2]
    page = (table / "metricgrad-compare" / "index.html").read_text(encoding="utf-8")
    assert "metricgrad compare churn.csv --target churn --metric mcc" in page
    assert "MCC on churn.csv: was it worth it?" in page


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["churn.csv", "--target", "chrun"],
            "target: expected the name of a column, got 'chrun'; did you mean 'churn'?",
        ),
        (["churn.csv", "--target", "churn", "--baselines", "magic"], "baselines: expected one of"),
        (["churn.csv", "--target", "churn", "--metric", "f11"], "f11"),
        (["none.csv", "--target", "churn"], "none.csv"),
    ],
)
def test_bad_input_is_one_line(table: Path, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table)
    done = CliRunner().invoke(app, ["compare", *words])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (table / "metricgrad-compare").exists()


def test_the_former_name_of_the_option_still_works(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(table)
    done = CliRunner().invoke(app, ["compare", "churn.csv", "--target", "churn", "--rivals", "magic"])
    assert done.exit_code == 2
    assert done.stderr.splitlines()[0] == "--rivals is deprecated: use --baselines"
    assert "baselines: expected one of" in done.stderr
    assert "--rivals" not in CliRunner().invoke(app, ["compare", "--help"]).stdout
