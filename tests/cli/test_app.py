"""The command: what it shows, and how it fails; through the console script and in this process."""

from __future__ import annotations

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import metricgrad
from metricgrad.cli.app import app, error_line
from metricgrad.metrics.registry import MODULES, WELL_KNOWN, built_in, listed_metrics
from metricgrad.paper import datasets
from metricgrad.surrogate import bundling
from metricgrad.surrogate import pretrained as bundle

SCRIPT = Path(sys.executable).with_name("metricgrad")
TINY = ["--families", "4", "--steps", "2"]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("METRICGRAD_DATA", raising=False)


@pytest.fixture
def weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder in place of the bundled one."""
    monkeypatch.setattr(bundle, "WEIGHTS_FOLDER", tmp_path)
    return tmp_path


def script(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True, env={**os.environ, **environment})


def loaded_by(*arguments: str) -> set[str]:
    """Return the names of the modules a command imports."""
    run = f"app({arguments!r}, standalone_mode=False)"
    code = f"import sys; from metricgrad.cli.app import app; {run}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def table_line(output: str, name: str) -> str:
    return next(line for line in output.splitlines() if re.search(rf"\b{name}\b", line))


# ---- help and version ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [["--help"], ["universal", "--help"], ["universal", "fit", "-h"], ["--version"]])
def test_help_and_version_import_nothing_heavy(arguments: list[str]) -> None:
    heavy = {"torch", "numpy", "pandas", "sklearn", "scipy", "pyarrow", "matplotlib"}
    assert not loaded_by(*arguments) & heavy


def test_help_answers_well_under_a_second() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = script("--help")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0
    assert all(command in done.stdout for command in ("data", "metrics", "universal"))
    # Time on the processor, not on the wall: other processes must not make this fail.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.8


def test_the_version_is_that_of_the_package() -> None:
    done = script("--version")
    assert (done.returncode, done.stdout) == (0, f"metricgrad {metricgrad.__version__}\n")


def test_no_command_at_all_shows_the_help() -> None:
    assert "Usage: metricgrad" in CliRunner().invoke(app, []).output


# ---- data ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that holds a made-up part of skin and a file that is not a9a."""
    found = tmp_path / "data"
    found.mkdir()
    rows = np.arange(300, dtype=np.float32)
    pd.DataFrame({"B": rows, "G": rows, "R": rows, "target": (rows % 3 == 0).astype(np.int8)}).to_parquet(
        found / "skin.parquet"
    )
    (found / "a9a.parquet").write_text("not a table")
    return found


def test_data_shows_ours_beside_the_papers(folder: Path) -> None:
    done = CliRunner().invoke(app, ["data", "--data-dir", str(folder)])
    assert done.exit_code == 0
    assert "300 / 245,057" in table_line(done.stdout, "skin")
    assert "33.33% / 79.19%" in table_line(done.stdout, "skin")
    assert "- / 5,000,000" in table_line(done.stdout, "susy")
    assert "1,797 / -" in table_line(done.stdout, "digits8")
    assert all(name in done.stdout for name in datasets.names())


def test_data_says_what_is_partial_unverified_missing_or_unreadable(folder: Path) -> None:
    done = script("data", METRICGRAD_DATA=str(folder), COLUMNS="200")
    assert done.returncode == 0
    assert "subset, unverified" in table_line(done.stdout, "skin")
    assert "skin: a subset, 0.12 % of the rows" in done.stdout
    assert "missing" in table_line(done.stdout, "santander")
    assert "get train.csv from https://www.kaggle.com/" in done.stdout
    assert "unreadable" in table_line(done.stdout, "a9a")
    assert str(folder / "a9a.parquet") in done.stdout
    assert "unverified" not in table_line(done.stdout, "digits8")


def test_data_fits_a_screen_of_80_columns(folder: Path) -> None:
    done = script("data", METRICGRAD_DATA=str(folder), COLUMNS="80")
    table = [line for line in done.stdout.splitlines() if line.startswith(("│", "┃"))]
    assert max(map(len, table)) <= 80
    assert not any("…" in line for line in table)


def test_data_needs_no_torch() -> None:
    assert "torch" not in loaded_by("data")


# ---- metrics -------------------------------------------------------------------------------------------------------


def test_metrics_lists_every_metric_with_its_explanation() -> None:
    done = CliRunner().invoke(app, ["metrics"])
    assert done.exit_code == 0
    for name, metric in listed_metrics().items():
        line = next(line for line in done.stdout.splitlines() if line.startswith(f"{name} "))
        assert f"{metric.label}, {'higher' if metric.higher_is_better else 'lower'} is better" in line
        cut = "the offsets matter" if metric.task.outputs else "the threshold matters"
        assert (cut in line) == metric.thresholded
        assert line.endswith(f"of {metric.task.name}") == (metric.task.name != "binary")
        assert metric.explanation in done.stdout
    assert all(
        f"{alias} = {name}" in done.stdout
        for alias, name in built_in(*MODULES).aliases.items()
        if alias not in WELL_KNOWN
    )


def test_accuracy_is_listed_as_a_metric_of_its_own_and_not_as_another_name_of_an_error() -> None:
    shown = CliRunner().invoke(app, ["metrics"]).stdout
    lines = shown.splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("accuracy "))
    assert lines[place].split(None, 1)[1] == "accuracy, higher is better; the threshold matters"
    assert lines[place + 1].strip() == "Share of rows classified correctly; the loss is the error rate."
    assert "accuracy = error_rate" not in shown
    assert "balanced_accuracy = balanced_error" not in shown


# ---- universal surrogates ------------------------------------------------------------------------------------------


def test_a_surrogate_is_fitted_and_saved_with_its_record(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["universal", "fit", "mcr", "--out", str(tmp_path / "new"), "--seed", "3", *TINY])
    assert done.exit_code == 0, done.output
    index = bundle.bundled_index(tmp_path / "new")
    assert list(index) == ["error_rate"]
    assert index["error_rate"]["fitting"].items() >= {"groups": 4, "steps": 2, "seed": 3}.items()
    gap = index["error_rate"]["held_out_sets_of_400"]["gap"]
    assert f"error_rate: gap {gap:.4f}, Spearman" in done.stdout
    assert (tmp_path / "new" / index["error_rate"]["file"]).exists()


def test_all_means_every_bundled_surrogate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(bundling, "fit_bundled", lambda names, *_, **__: asked.extend(names) or iter(()))
    assert CliRunner().invoke(app, ["universal", "fit", "--all", "--out", str(tmp_path)]).exit_code == 0
    assert asked == bundle.bundled_names()


def test_the_bundled_surrogates_are_listed(weights: Path) -> None:
    entry = {
        "held_out_sets_of_400": {"gap": 0.01234, "spearman": 0.98765, "ceiling": 0.99},
        "fitting": {"groups": 1000, "steps": 2000},
    }
    bundle.save_surrogate(bundle.Surrogate(), weights / "best_f1.safetensors", {"metric": "best_f1", **entry})
    done = CliRunner().invoke(app, ["universal", "list"])
    assert done.exit_code == 0
    assert all(value in table_line(done.stdout, "best_f1") for value in ("0.0123", "0.9877", "0.9900", "0.9976"))
    assert "low" not in done.stdout


def test_a_surrogate_that_hardly_follows_its_metric_is_marked(weights: Path) -> None:
    fitting = {"groups": 1000, "steps": 2000}
    fidelities = {
        "auc": {"gap": 0.1, "spearman": 0.79},
        "best_precision": {"gap": 0.1, "spearman": 0.65, "ceiling": 0.8},  # 0.81 of what is possible
        "f1": {"gap": 0.1, "spearman": float("nan")},
        "mcc": {"gap": 0.1, "spearman": 0.81},
    }
    index = {name: {"held_out_sets_of_400": held_out, "fitting": fitting} for name, held_out in fidelities.items()}
    for name, entry in index.items():
        bundle.save_surrogate(bundle.Surrogate(), weights / f"{name}.safetensors", {"metric": name, **entry})
    shown = CliRunner().invoke(app, ["universal", "list"]).stdout
    marked = [name for name in fidelities if "low" in table_line(shown, name)]
    assert marked == ["auc", "f1"]
    assert "low: a fidelity below 0.8" in shown


# ---- what goes wrong -----------------------------------------------------------------------------------------------


def said(arguments: list[str]) -> str:
    """Run a command that must fail with one line on stderr and exit code 2, and return what it said."""
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("metricgrad: error: ")
    assert done.stderr.count("\n") == 1
    return done.stderr


def test_a_missing_folder_is_one_line_from_the_script_too() -> None:
    done = script("data", METRICGRAD_DATA="/no/such/folder")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "metricgrad: error: METRICGRAD_DATA must be a folder of Parquet files, got '/no/such/folder', which is none\n"
    )


def test_an_unknown_metric_is_answered_with_the_near_ones() -> None:
    assert "unknown name 'recal'; did you mean recall" in said(["universal", "fit", "recal"])


@pytest.mark.parametrize("arguments", [[], ["auc", "--all"]])
def test_either_names_or_all_are_wanted(arguments: list[str]) -> None:
    assert "expected at least one metric or --all, and not both" in said(["universal", "fit", *arguments])


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = str(tmp_path / "file" / "out")
    assert f"{out}: Not a directory" in said(["universal", "fit", "auc", "--out", out])


def test_a_constant_metric_has_no_surrogate(tmp_path: Path) -> None:
    assert "'best_recall' is constant" in said(["universal", "fit", "best_recall", "--out", str(tmp_path), *TINY])


def test_an_empty_bundle_is_named(weights: Path) -> None:
    assert f"{weights}: expected bundled surrogates, got none" in said(["universal", "list"])


@pytest.mark.parametrize(
    "error", [ValueError("a:\n  b"), TypeError("a: b"), FileNotFoundError("a: b"), OSError("a: b")]
)
def test_errors_become_one_line_and_exit_code_2(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "table1", raiser(error))
    assert said(["data"]) == "metricgrad: error: a: b\n"


def test_a_traceback_is_shown_if_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "table1", raiser(ValueError("x")))
    done = CliRunner().invoke(app, ["--traceback", "data"])
    assert done.exit_code == 2
    assert "Traceback" in done.stderr
    assert done.stderr.endswith("metricgrad: error: x\n")


def test_a_mistake_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "table1", raiser(RuntimeError("a bug")))
    assert isinstance(CliRunner().invoke(app, ["data"]).exception, RuntimeError)


def test_an_error_without_words_is_named() -> None:
    assert error_line(ValueError()) == "ValueError"


@pytest.mark.parametrize(
    "arguments",
    [["oops"], ["--oops"], ["data", "oops"], ["universal", "fit", "auc", "--seed", "x"], ["universal", "no"]],
)
def test_unknown_commands_and_options_exit_with_2(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("metricgrad: error: ")
    assert done.stderr.count("\n") == 1


def heed_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_ctrl_c_is_one_line_and_exit_code_130(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [SCRIPT, "universal", "fit", "auc", "--out", out, "--families", "1000000"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    # Whoever runs the tests in the background ignores Ctrl-C, and so would the command.
    with subprocess.Popen(command, **pipes, preexec_fn=heed_ctrl_c) as running:
        while not out.exists():  # it is made just before fitting begins
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(signal.SIGINT)
        try:
            printed, errors = running.communicate(timeout=60)
        finally:
            running.kill()
    assert (running.returncode, printed, errors) == (130, "", "metricgrad: interrupted\n")


def test_output_that_nobody_reads_to_the_end_is_no_error() -> None:
    done = subprocess.run(f"{SCRIPT} data | true", shell=True, capture_output=True, text=True)
    assert done.stderr == ""


def raiser(error: Exception):  # type: ignore[no-untyped-def]
    """Return a function that raises."""

    def function(*_: object, **__: object) -> None:
        raise error

    return function


@pytest.mark.parametrize("words", [["demo", "--seed", "-1"], ["data", "--nope"], ["nope"]])
def test_wrong_words_on_the_command_line_are_one_line_and_exit_code_2(words: list[str]) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert len(done.output.strip().splitlines()) == 1
    assert done.output.startswith("metricgrad: error: ")
