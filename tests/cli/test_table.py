"""The commands fit, predict and evaluate: from a file to a model to predictions, and one line for every error."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score, roc_auc_score
from typer.testing import CliRunner, Result

from metricgrad import load
from metricgrad.cli.app import app
from metricgrad.cli.options import recipe_of
from metricgrad.training.recipe import get_recipe

N = 200
QUICK = ["--model", "linear", "--method", "cross-entropy", "--recipe", "warmup=30,rounds=0,learning_rate=0.05"]
RNG = np.random.default_rng(0)


def table(n: int = N) -> pd.DataFrame:
    age = RNG.normal(40, 9, n).round(1)
    plan = RNG.choice(["basic", "pro"], n)
    churn = np.where(age / 9 + 2 * (plan == "pro") + RNG.normal(size=n) > 6, "yes", "no")
    return pd.DataFrame({"user_id": [f"u{i}" for i in range(n)], "age": age, "plan": plan, "churn": churn})


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table().to_csv("churn.csv", index=False)
    return tmp_path


# ---- what works ----------------------------------------------------------------------------------------------------


def test_from_a_file_to_a_model_to_predictions_to_a_verdict(here: Path) -> None:
    done = run("fit", "churn.csv", "--target", "churn", "--metric", "f1", "--out", "model", *QUICK)
    assert done.exit_code == 0, done.output
    for line in (
        "target churn: 'yes' is positive (it means yes)",
        "numbers: age",
        "categories: plan",
        "dropped, unique values, like an id: user_id",
        "on the validation rows, which also chose the model, the checkpoint and the threshold",
        "tried: linear by cross-entropy 0.",
        "The model is in model: metricgrad predict model DATA",
    ):
        assert line in done.stdout
    new = table()
    new[["plan", "age", "user_id", "churn"]].to_parquet("new.parquet")
    scored = run("predict", "model", "new.parquet", "--out", "scores.csv")
    assert scored.exit_code == 0
    assert "200 rows scored, in scores.csv" in scored.stderr
    written = pd.read_csv("scores.csv")
    np.testing.assert_array_equal(written["label"], load("model").predict(new))
    judged = json.loads(run("evaluate", "model", "new.parquet", "--json").stdout)
    assert judged["metrics"]["f1"] == pytest.approx(f1_score(new["churn"], written["label"], pos_label="yes"))
    assert judged["metrics"]["auc"] == pytest.approx(roc_auc_score(new["churn"] == "yes", written["score"]))
    assert judged["rows"] == judged["tp"] + judged["fp"] + judged["fn"] + judged["tn"] == N
    shown = run("evaluate", "model", "new.parquet").stdout
    assert f"{judged['metrics']['f1']:.4f}" in shown
    assert f"tp {judged['tp']}, fp {judged['fp']}" in shown


def test_fit_and_evaluate_say_whether_a_bound_holds(here: Path) -> None:
    done = run("fit", "churn.csv", "--target", "churn", "--metric", "recall subject to precision >= 0.3",
               "--out", "model", *QUICK)  # fmt: skip
    assert "bound precision >= 0.3 kept: " in done.stdout
    assert "bound precision >= 0.3 kept: " in run("evaluate", "model", "churn.csv").stdout
    other = ("evaluate", "model", "churn.csv", "--metric", "f1 subject to precision <= 0.1")
    judged = json.loads(run(*other, "--json").stdout)
    precision = judged["tp"] / (judged["tp"] + judged["fp"])
    assert judged["bounds"]["precision <= 0.1"] == {"value": pytest.approx(precision), "kept": False}
    assert f"bound precision <= 0.1 missed: {precision:.4f} on these rows" in run(*other).stdout


def test_models_compete_unless_one_is_asked_for_and_readable_ones_can_be_explained(here: Path) -> None:
    done = run("fit", "churn.csv", "--target", "churn", "--out", "model", "--readable", "--method", "cross-entropy")
    assert done.exit_code == 0, done.output
    assert re.search(r"(linear|additive) by cross-entropy was chosen: F1 0\.\d{4} on held-out rows", done.stdout)
    assert re.search(
        r"(linear|additive) by cross-entropy: behind by \d\.\d{4} \(standard error \d\.\d{4}\)", done.stdout
    )
    assert "on the rows that each fold left out, which also chose the model" in done.stdout
    assert run("explain", "model", "--out", "page.html").exit_code == 0
    refused = run("fit", "churn.csv", "--target", "churn", "--readable", "--model", "mlp")
    assert refused.exit_code == 2
    assert "--readable: expected no --model with it, got 'mlp'" in " ".join(refused.output.split())


def test_standard_input_and_output_do_as_well(here: Path) -> None:
    assert run("fit", "churn.csv", "--target", "churn", "--out", "model", *QUICK).exit_code == 0
    content = (here / "churn.csv").read_bytes()
    done = CliRunner().invoke(app, ["predict", "model", "-"], input=content)
    assert done.stdout.splitlines()[0] == "row,user_id,score,label"
    assert len(done.stdout.splitlines()) == N + 1


def test_splits_weights_positive_and_ignore_are_options(here: Path) -> None:
    frame = table().assign(home=np.arange(N) % 20, day=pd.date_range("2020", periods=N).astype(str), w=2)
    frame.to_csv("churn.csv", index=False)
    chosen = ["--positive", "no", "--ignore", "age", "--weights", "w", "--group", "home"]
    done = run("fit", "churn.csv", "--target", "churn", "--out", "model", *chosen, *QUICK)
    assert done.exit_code == 0, done.output
    assert load("model").classes_.tolist() == ["yes", "no"]
    assert list(load("model").feature_names_in_) == ["plan", "day"]
    assert run("fit", "churn.csv", "--target", "churn", "--out", "model", "--time", "day", *QUICK).exit_code == 0
    assert "day" not in load("model").feature_names_in_
    assert run("evaluate", "model", "churn.csv", "--weights", "w").exit_code == 0
    other = run("evaluate", "model", "churn.csv", "--metric", "within(0.1)")
    assert other.exit_code == 2
    assert "expected one of two classes, as the model is, got 'within(0.1)', one of regression" in other.stderr


def test_a_metric_may_be_an_expression_scikit_learns_or_a_function_in_a_file(here: Path) -> None:
    (here / "mine.py").write_text(
        "def gain(y_true, y_pred):\n    return float((9 * y_true * y_pred - y_pred).sum())\n\n"
        "gain.higher_is_better = True\n"
    )
    for metric in ("1 - (5*tp - fp)/(5*(tp+fn))", "sklearn.metrics.f1_score", "mine.py:gain"):
        done = run("fit", "churn.csv", "--target", "churn", "--metric", metric, "--out", "model", *QUICK)
        assert done.exit_code == 0, done.output
        assert load("model").metric == metric
    refused = run("evaluate", "model", "churn.csv")
    assert refused.exit_code == 2
    assert "metric: expected one that needs no code run, got 'mine.py:gain'" in refused.stderr
    judged = json.loads(run("evaluate", "model", "churn.csv", "--metric", "mine.py:gain", "--json").stdout)
    assert judged["metrics"]["mine.py:gain"] == 9 * judged["tp"] - judged["tp"] - judged["fp"]


def test_functions_of_numbers_and_of_columns_are_known_by_the_target_and_by_their_arguments(here: Path) -> None:
    (here / "mine.py").write_text(
        "import numpy as np\n\n\ndef med(y_true, y_pred):\n    return float(np.median(abs(y_true - y_pred)))\n\n\n"
        "def profit(y_true, y_pred, amount):\n    return float((amount * y_true * y_pred - 5 * y_pred).sum())\n"
    )
    frame = table().assign(spent=RNG.lognormal(3, 1, N).round(2), worth=RNG.lognormal(3, 1, N).round(2))
    frame.to_csv("churn.csv", index=False)
    usual = ("--model", "linear", "--folds", "1", "--out", "model")
    for metric in ("mine.py:med", "sklearn.metrics.median_absolute_error"):
        done = run("fit", "churn.csv", "--target", "spent", "--metric", metric, "--method", "usual", *usual)
        assert done.exit_code == 0, done.output
        assert load("model").target_.kind == "numbers"
        judged = json.loads(run("evaluate", "model", "churn.csv", "--metric", metric, "--json").stdout)
        known = judged["metrics"][
            metric.removeprefix("sklearn.metrics.") if metric not in judged["metrics"] else metric
        ]
        assert known == pytest.approx(np.median(np.abs(load("model").predict(frame) - frame["spent"])))
    asked = ("--target", "churn", "--metric", "mine.py:profit", "--column", "amount=worth")
    done = run("fit", "churn.csv", *asked, "--method", "cross-entropy", *usual)
    assert done.exit_code == 0, done.output
    assert load("model").metric_columns_ == {"amount": "worth"}


def test_a_leak_is_warned_of_in_one_line(here: Path) -> None:
    frame = table()
    frame.assign(closed=np.where(frame["churn"] == "yes", "2020-01-01", "")).to_csv("churn.csv", index=False)
    done = run("fit", "churn.csv", "--target", "churn", "--out", "model", *QUICK)
    assert done.exit_code == 0
    assert done.stderr.startswith("metricgrad: warning: 'closed' alone predicts the target (AUC 1.0000)")
    assert len(done.stderr.splitlines()) == 1


def test_the_time_limit_keeps_the_best_until_then(here: Path) -> None:
    long = ["--model", "linear", "--recipe", "warmup=1000000", "--time-limit", "0.001"]
    done = run("fit", "churn.csv", "--target", "churn", "--out", "model", *long)
    assert done.exit_code == 0, done.output
    assert "training was stopped early; the best model so far is kept" in done.stdout
    assert load("model").model_.interrupted_


@pytest.mark.slow  # runs the command in a process of its own
def test_ctrl_c_keeps_the_best_so_far(here: Path) -> None:
    code = "from metricgrad.cli.app import app; app()"
    long = [
        "--model",
        "linear",
        "--method",
        "cross-entropy",
        "--recipe",
        "start=steps,warmup=100000000,patience=none,check_every=1",
    ]
    arguments = [sys.executable, "-c", code, "fit", "churn.csv", "--target", "churn", "--out", "model", *long]
    how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    how["env"] = {**os.environ, "PYTHONUNBUFFERED": "1"}
    how["preexec_fn"] = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell may have had it ignored
    with subprocess.Popen(arguments, **how) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if line.startswith("dropped"):  # the last note before training
                break
        time.sleep(3)
        process.send_signal(signal.SIGINT)
        rest, errors = process.stdout.read(), process.stderr.read()
    assert process.returncode == 0, errors
    assert "fit: stopped by the user; the best model so far is kept" in errors
    assert "The model is in model" in rest
    assert load(here / "model").model_.interrupted_


# ---- what is wrong -------------------------------------------------------------------------------------------------


FINE = "a,churn\n" + "1,yes\n2,no\n" * 9
LONE = "expected at least 2 rows of each class in 'churn', got 1 of 'yes'"
BAD = {
    "target not there": (
        "a,churn\n1,yes\n2,no\n",
        "target: expected the name of a column, got 'left'",
        ["--target", "left"],
    ),
    "constant": (
        "a,churn,vip\n" + "1,no,y\n2,no,n\n" * 9,
        "got one only, 'no'; columns of two classes: 'a', 'vip'",
        [],
    ),
    "many classes": (
        "a,churn\n" + "".join(f"{i % 2},{i}\n" for i in range(30)),
        "got 30: .*columns of two classes: 'a'",
        [],
    ),
    "only missing": ("a,churn\n1,\n2,\n", "got only missing cells", []),
    "three rows": ("a,churn\n1,no\n2,no\n3,yes\n", LONE, []),
    "one positive": ("a,churn\n5,yes\n" + "1,no\n2,no\n" * 30, LONE, []),
    "nothing to learn from": (
        "a,b,churn\n" + "".join(f",row-{i},{'yes' if i % 2 else 'no'}\n" for i in range(30)),
        "expected a column to learn from, got none: dropped, no values: a; dropped, unique values, like an id: b",
        [],
    ),
    "twice the name": ("a,a,churn\n1,2,yes\n", "expected unique column names, got 'a' more than once", []),
    "ragged": ("a,churn\n1,yes\n2,no,3\n", "row 3: expected 2 cells, as the header has, got 3", []),
    "empty": ("", "expected a table, got an empty file", []),
    "header only": ("a,churn\n", "expected at least one row, got a header only", []),
    "unknown metric": ("a,churn\n1,yes\n", "metric: unknown name 'f11'; did you mean f1", ["--metric", "f11"]),
    "code as a metric": ("a,churn\n1,yes\n", "metric: expected numbers, tp fp fn tn", ["--metric", "exit(tp)"]),
    "unknown recipe": ("a,churn\n1,yes\n", "recipe: expected", ["--recipe", "slow"]),
    "unknown model": ("", "model: expected one of auto, readable, mlp, small, plain, linear", ["--model", "huge"]),
    "unknown positive": (FINE, "positive: expected one of", ["--positive", "maybe"]),
    "unknown column": (FINE, "ignore: expected names of columns, got b", ["--ignore", "b"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line_and_exit_code_2_and_nothing_is_written(here: Path, case: str) -> None:
    content, message, options = BAD[case]
    (here / "bad.csv").write_text(content)
    done = run("fit", "bad.csv", "--target", "churn", "--out", "model", *QUICK, *options)
    assert done.exit_code == 2
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("metricgrad: error: ")
    assert re.search(message, done.stderr), done.stderr
    assert sorted(os.listdir(here)) == ["bad.csv", "churn.csv"]


@pytest.mark.parametrize("command", ["fit", "predict", "evaluate"])
def test_a_file_that_is_not_there_is_named(here: Path, command: str) -> None:
    assert run("fit", "churn.csv", "--target", "churn", "--out", "model", *QUICK).exit_code == 0
    words = ["none.csv", "--target", "churn"] if command == "fit" else ["model", "none.csv"]
    done = run(command, *words)
    assert (done.exit_code, done.stderr) == (2, "metricgrad: error: none.csv: No such file or directory\n")
    if command != "fit":
        assert run(command, "nowhere", "churn.csv").exit_code == 2


def test_an_output_that_cannot_be_written_is_refused_before_training(here: Path) -> None:
    (here / "file").write_text("mine")
    (here / "folder").mkdir()
    (here / "folder" / "thesis.doc").write_text("mine")
    slow = ["--recipe", "warmup=1000000000"]
    for out, message in (
        ("file", "out: expected a folder, got the file"),
        ("folder", "which holds 'thesis.doc'"),
        ("file/model", "File exists"),
        (".", "which holds"),
    ):
        done = run("fit", "churn.csv", "--target", "churn", "--out", out, *slow)
        assert done.exit_code == 2
        assert message in done.stderr
    assert (here / "folder" / "thesis.doc").read_text() == "mine"


def test_a_metric_that_the_target_is_not_for_is_refused_before_training(here: Path) -> None:
    endless = ["--recipe", "warmup=1000000000"]
    for target, metric, message in (
        ("churn", "label_map", "target: expected columns of labels, two at least for 'label_map'"),
        ("churn", "ndcg", "group: expected the query of each row, because the metric is one of rankings, got none"),
        ("churn", "within(0.1)", "target: expected numbers in 'churn', because the metric is one of numbers, got"),
        ("age", "f1", "choose a metric of numbers, such as mae or within(0.1)"),
        ("age", "macro_f1", "target: expected at most 100 classes in 'age', got"),
        ("age,churn", "f1", "got 2; for several labels choose a metric of labels, such as sample_f1"),
        ("age,chrun", "f1", "target: expected the name of a column, got 'chrun'; did you mean 'churn'?"),
    ):
        done = run("fit", "churn.csv", "--target", target, "--metric", metric, "--out", "model", *endless)
        assert done.exit_code == 2
        assert message in done.stderr
    positive = run("fit", "churn.csv", "--target", "age", "--metric", "mae", "--positive", "yes", "--out", "model")
    assert positive.exit_code == 2
    assert "--positive: expected none with mae, a metric of regression, got 'yes'" in " ".join(positive.output.split())
    assert sorted(os.listdir(here)) == ["churn.csv"]


def test_a_model_whose_folder_was_taken_while_it_trained_is_saved_beside_it(here: Path) -> None:
    (here / "mine.py").write_text(
        "from pathlib import Path\n"
        "def gain(y_true, y_pred):\n"
        "    Path('model').mkdir(exist_ok=True)\n"
        "    Path('model/thesis.doc').write_text('years of work')\n"
        "    return float((9 * y_true * y_pred - y_pred).sum())\n"
        "gain.higher_is_better = True\n"
    )
    (here / "model").mkdir()
    done = run("fit", "churn.csv", "--target", "churn", "--metric", "mine.py:gain", "--out", "model/deep", *QUICK)
    assert done.exit_code == 0, done.output
    (here / "model" / "thesis.doc").unlink()
    shutil.rmtree(here / "model" / "deep")
    done = run("fit", "churn.csv", "--target", "churn", "--metric", "mine.py:gain", "--out", "model", *QUICK)
    assert done.exit_code == 2
    assert "model could not be written (out: expected a new folder or a model folder, " in done.stderr
    assert "which holds 'thesis.doc'); the model was saved in " in done.stderr
    kept = re.search(r"saved in (\S+) instead", done.stderr)
    assert kept is not None
    assert Path(kept[1]).parent == here
    assert run("predict", kept[1], "churn.csv", "--out", "scores.csv").exit_code == 0
    assert (here / "model" / "thesis.doc").read_text() == "years of work"


@pytest.mark.slow  # runs the command in a process of its own
def test_a_kill_while_a_model_is_replaced_leaves_one_that_predicts_and_the_next_fit_clears_up(here: Path) -> None:
    first = ["fit", "churn.csv", "--target", "churn", "--out", "model", *QUICK]
    assert run(*first).exit_code == 0
    code = (
        "import os, signal\nfrom pathlib import Path\nfrom metricgrad.cli.app import app\nrenamed = Path.rename\n"
        "def rename(self, other):\n    renamed(self, other)\n    os.kill(os.getpid(), signal.SIGKILL)\n"
        "Path.rename = rename\napp()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *first, "--metric", "mcc"], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    assert not (here / "model").exists()
    assert run("predict", "model", "churn.csv", "--out", "scores.csv").exit_code == 0
    assert load("model").metric == "mcc"
    assert len(os.listdir(here)) == 4
    assert run(*first).exit_code == 0
    assert sorted(os.listdir(here)) == ["churn.csv", "model", "scores.csv"]


@pytest.mark.parametrize("encoding", ["utf-8-sig", "latin-1", "utf-16"])
def test_encodings_are_recognised(here: Path, encoding: str) -> None:
    table().rename(columns={"plan": "città"}).to_csv("churn.csv", index=False, encoding=encoding)
    assert run("fit", "churn.csv", "--target", "churn", "--out", "model", *QUICK).exit_code == 0
    assert "città" in load("model").feature_names_in_


def test_names_of_any_kind_go_all_the_way(here: Path) -> None:
    strange = 'a, "b"\n<script>alert(1)</script> =1+1'
    table().rename(columns={"plan": strange, "user_id": "=id"}).to_csv("churn.csv", index=False)
    done = run("fit", "churn.csv", "--target", "churn", "--out", "model", *QUICK)
    assert done.exit_code == 0
    assert 'categories: \'a, "b"\\n<script>' in done.stdout
    assert "<script>" not in (here / "model" / "README.md").read_text()
    assert run("predict", "model", "churn.csv").stdout.startswith("row,'=id,score,label\n1,u0,")


@pytest.mark.slow  # looks at every column
def test_three_thousand_columns_are_fitted(here: Path) -> None:
    values = RNG.integers(0, 9, (40, 3_000))
    frame = pd.DataFrame(values, columns=[f"c{i}" for i in range(3_000)]).assign(churn=["yes", "no"] * 20)
    frame.to_csv("wide.csv", index=False)
    done = run("fit", "wide.csv", "--target", "churn", "--out", "model", *QUICK)
    assert done.exit_code == 0, done.output
    assert "numbers: c0, c1, c2, c3, c4, c5, c6, c7 and 2,992 more" in done.stdout


def test_a_recipe_is_a_name_changes_or_both() -> None:
    assert recipe_of("default", "mlp") == get_recipe("default")
    assert recipe_of("default", "additive") == get_recipe("linear")
    assert recipe_of("paper, rounds=7", "mlp") == get_recipe("paper", rounds=7)
    assert recipe_of("anchor=0.5,standardise=false,clip=none", "mlp") == get_recipe(
        "default", anchor=0.5, standardise=False, clip=None
    )
    with pytest.raises(ValueError, match="recipe: expected fields of Recipe, got speed"):
        recipe_of("speed=3", "mlp")
