"""The command that makes the paper's tables again: what it plans, how it goes on after a kill, what it shows."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from metricgrad.cli.app import app
from metricgrad.evaluation.records import settings
from metricgrad.evaluation.store import Store
from metricgrad.paper.experiments import Run
from metricgrad.paper.reproduce import carry_out, draw, make_plan
from metricgrad.training.recipe import Recipe, get_recipe

pytestmark = pytest.mark.slow  # trains, stores and draws as the command does

TINY = ["--datasets", "breast_cancer", "--steps", "12", "--seeds", "2", "--jobs", "1"]


def run_cli(*words: str) -> Any:
    return CliRunner().invoke(app, ["reproduce", *words])


# ---- the plan ------------------------------------------------------------------------------------------------------


def test_a_budget_is_rounds_and_seeds() -> None:
    plan = make_plan("table2", datasets=["digits8"], budget="quick")
    assert len(plan.runs) == 2 * 21
    assert plan.runs[0].how.rounds < 1_000
    assert make_plan("table2", datasets=["digits8"], budget="standard").runs[0].changes == ()
    paper = make_plan("table2", datasets=["digits8"], budget="paper").runs[0]
    assert (paper.recipe, paper.changes, paper.how) == ("paper", (), get_recipe("paper"))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"rounds": 7}, {"rounds": 7, "warmup": 2_000}),
        ({"steps": 60}, {"rounds": 7, "warmup": 30}),
        ({"steps": 60, "recipe": "paper"}, {"rounds": 20, "warmup": 0}),
    ],
)
def test_rounds_or_steps_take_the_place_of_the_budgets(asked: dict[str, Any], found: dict[str, int]) -> None:
    how = make_plan("table3", datasets=["digits8"], budget="standard", **asked).runs[0].how
    assert {name: getattr(how, name) for name in found} == found


def test_all_is_both_tables_each_run_once() -> None:
    one, two, both = (set(make_plan(t, datasets=["digits8"]).runs) for t in ("table2", "table3", "all"))
    assert both == one | two
    assert one & two
    assert make_plan("figure1").runs == ()


def test_the_papers_datasets_that_are_not_here_are_left_out_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METRICGRAD_DATA", str(tmp_path))
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path))
    plan = make_plan("figure1")
    assert plan.datasets == ()
    assert len(plan.absent) == 9


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table9"], "target: expected one of table1, .*all, got 'table9'"),
        (["table2", "--protocol", "mine"], "protocol: expected one of paper, honest, both, got 'mine'"),
        (["table2", "--budget", "huge"], "budget: expected one of quick, standard, paper, got 'huge'"),
        (["table2", "--recipe", "soup"], "recipe: expected one of default, paper, got 'soup'"),
        (["table2", "--model", "tree"], "model: expected one of mlp, small, plain, linear, additive, tabm, got 'tree'"),
        (["table2", "--datasets", "mnist"], "datasets: expected some of .*digits8.*, got 'mnist'"),
        (["table2", "--datasets", "digits8", "--methods", "svm"], "methods: expected some of .*, got 'svm'"),
        (["table2", "--datasets", "digits8", "--methods", "focal"], "methods: expected some of sl-u, .*got 'focal'"),
        (
            ["table2", "--datasets", "digits8", "--methods", "sl-r,cross-entropy"],
            "methods: expected some of sl-u, sl-r, sl-s, with the metrics asked for, got 'cross-entropy'",
        ),
        (
            ["table3", "--datasets", "digits8", "--metrics", "f1", "--methods", "sl-r,pairwise"],
            "methods: expected some of .*, got 'pairwise'",
        ),
        (["table3", "--datasets", "digits8", "--metrics", "f1,eer"], "metrics: expected some of .*, got 'eer'"),
        (["table2", "--datasets", "digits8", "--metrics", "f7"], "f7"),
        (["table2", "--datasets", "digits8", "--rounds", "3", "--steps", "3"], "steps: expected either rounds or"),
        (["table2", "--datasets", "digits8", "--engine", "spark"], "engine: expected one of .*, got 'spark'"),
    ],
)
def test_what_is_wrong_is_one_line(words: list[str], message: str, tmp_path: Path) -> None:
    found = run_cli(*words, "--results", str(tmp_path))
    assert found.exit_code == 2
    assert len(found.stderr.strip().splitlines()) == 1
    assert re.search(message, found.stderr)


# ---- carrying it out -----------------------------------------------------------------------------------------------


def test_what_is_stored_is_not_run_again(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    part = make_plan("table2", datasets=["breast_cancer"], metrics=["auc"], steps=12, seeds=1)
    assert list(carry_out(part, store, command="x", n_jobs=1)) == [(0, 3), (3, 3)]
    whole = make_plan("table2", datasets=["breast_cancer"], metrics=["auc", "f1"], steps=12, seeds=1)
    assert list(carry_out(whole, store, command="y", n_jobs=1)) == [(3, 6), (6, 6)]
    assert [record["command"] for record in store] == ["x"] * 3 + ["y"] * 3
    assert list(carry_out(whole, store, command="z", n_jobs=1)) == [(6, 6)]
    assert all(record["made_by"]["metricgrad"] for record in store)


@pytest.mark.slow  # draws a whole report
def test_the_command_shows_the_table_and_writes_a_page(tmp_path: Path) -> None:
    out = str(tmp_path / "results")
    found = run_cli("table3", *TINY, "--metrics", "auc,f1", "--protocol", "both", "--results", out)
    assert found.exit_code == 0, found.output
    assert "Table 3, protocol paper" in found.stdout
    assert "Table 3, protocol honest" in found.stdout
    assert "breast_cancer" in found.stdout
    assert (tmp_path / "results" / "index.html").stat().st_size > 10_000
    frame = Store(tmp_path / "results" / "runs.jsonl").frame()
    assert set(frame["run.seed"]) == {0, 1}
    assert set(frame["run.content.rounds"]) == {1}


@pytest.mark.slow  # starts the command again after every kill
def test_killed_at_any_point_the_same_command_goes_on_and_loses_only_what_was_in_flight(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "metricgrad", "reproduce", "table2", *TINY, "--seeds", "4", "--metrics", "auc,f1"]
    words += ["--results", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    first = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    store = Store(tmp_path / "runs.jsonl")
    limit = time.monotonic() + 120
    while first.poll() is None and time.monotonic() < limit and not list(store):
        time.sleep(0.02)
    first.send_signal(signal.SIGKILL)
    first.wait()
    kept = list(store)
    assert 0 < len(kept) < 24
    subprocess.run(words, check=True, capture_output=True, env=environment, timeout=300)
    records = list(store)
    assert records[: len(kept)] == kept
    keys = [store.key(record["run"]) for record in records]
    assert len(keys) == len(set(keys)) == 24


@pytest.mark.parametrize("figure", ["figure1", "figure2", "figure3"])
def test_a_figure_is_a_picture_and_arrays(figure: str, tmp_path: Path) -> None:
    files = draw(figure, tmp_path, "breast_cancer", "auc", Recipe(rounds=3, check_every=1))
    kinds = ("png", "svg", "npz", "html") if figure == "figure2" else ("png", "svg", "npz")
    assert [file.name for file in files] == [f"{figure}.{kind}" for kind in kinds]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in files[1].read_bytes()
    with np.load(files[2], allow_pickle=False) as arrays:
        assert len(arrays.files) > 1


def test_table_1_needs_no_runs(tmp_path: Path) -> None:
    found = run_cli("table1", "--results", str(tmp_path / "none"))
    assert found.exit_code == 0
    assert "Table 1" in found.stdout
    assert not (tmp_path / "none").exists()


def test_a_stored_run_is_found_again_however_it_was_written(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    run = Run("a9a", "f1", "sl-r", 0, changes=(("rounds", 3),))
    store.add(run.as_dict(), {})
    assert store.keys() == {store.key(json.loads(json.dumps(run.as_dict())))}


def test_a_job_that_fails_loses_no_other_and_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a9a.parquet").write_bytes(b"not a table")
    monkeypatch.setenv("METRICGRAD_DATA", str(tmp_path))
    words = ["--metrics", "auc", "--seeds", "1", "--steps", "12", "--jobs", "1", "--results", str(tmp_path)]
    found = run_cli("table2", "--datasets", "a9a,breast_cancer", *words)
    assert found.exit_code == 2
    assert "1 of 2 jobs failed" in found.stderr
    assert "a9a" in found.stderr
    assert set(Store(tmp_path / "runs.jsonl").frame()["run.dataset"]) == {"breast_cancer"}


@pytest.mark.filterwarnings("ignore:.*is not faithful yet")
def test_a_run_stored_by_another_recipe_of_the_same_name_is_run_again(tmp_path: Path) -> None:
    plan = make_plan("table2", datasets=["breast_cancer"], metrics=["auc"], methods=["sl-u"], rounds=2, seeds=1)
    store, (run,) = Store(tmp_path / "runs.jsonl"), plan.runs
    older = run.as_dict()
    older["content"] = {**older["content"], "anchor": 0.3}
    store.add(older, {"test": {"honest": {"auc": 0.5}}})
    assert list(carry_out(plan, store, command="x", n_jobs=1)) == [(0, 1), (1, 1)]
    assert list(carry_out(plan, store, command="x", n_jobs=1)) == [(1, 1)]
    assert len({setting.title for setting in settings(store)}) == 2
