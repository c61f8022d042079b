"""Several classes, labels, numbers and rankings from one table, in the class, in the folder and by command."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from safetensors.torch import save as packed
from sklearn.metrics import f1_score, matthews_corrcoef, mean_absolute_error, ndcg_score
from typer.testing import CliRunner

from metricgrad import Recipe, TableClassifier, TableRanker, TableRegressor, load, save
from metricgrad.cli.app import app
from metricgrad.tabular.cells import TableError
from metricgrad.tabular.persistence import STATE, WEIGHTS
from metricgrad.tabular.table_model import TableModel
from metricgrad.tabular.target_inference import infer_classes, infer_numbers

N = 400
QUICK = Recipe(warmup=40, rounds=0, learning_rate=0.05)
SHORT = ["--recipe", "warmup=40,rounds=0,learning_rate=0.05", "--model", "linear"]


def table(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    size, colour = rng.normal(50, 10, N).round(1), rng.choice(["red", "blue"], N)
    value = size + 15 * (colour == "red") + rng.normal(0, 4, N)
    return pd.DataFrame(
        {
            "id": [f"k{i}" for i in range(N)],
            "size": np.where(rng.random(N) < 0.05, np.nan, size),
            "colour": colour,
            "query": np.arange(N) // 10,
            "grade": np.digitize(value, [50, 65]),
            "class": np.array(["=small", "middle", "large"])[np.digitize(value, [50, 65])],
            "dear": np.where(value > 60, "yes", "no"),
            "big": (size > 55).astype(int),
            "price": [f"${each:,.2f}" for each in np.exp(value / 10)],
        }
    )


FRAME, UNSEEN = table(), table(1)
FEATURES = ["size", "colour"]
OTHERS = ["query", "grade", "class", "dear", "big", "price"]


def made(kind: str) -> TableModel:
    """Return a fitted model of a kind."""
    ignore = [name for name in OTHERS if name != "query"]
    how: dict[str, Any] = {"model": "linear", "recipe": QUICK}
    if kind == "classes":
        frame, model = FRAME[[*FEATURES, "class"]], TableClassifier("macro_f1", "cross-entropy", folds=1, **how)
        return model.fit(frame, "class")
    if kind == "labels":
        frame, model = FRAME[[*FEATURES, "dear", "big"]], TableClassifier("sample_f1", "cross-entropy", folds=1, **how)
        return model.fit(frame, ["dear", "big"])
    if kind == "numbers":
        return TableRegressor("within(0.1)", "usual", ignore=ignore[:-1], **how).fit(
            FRAME.drop(columns="query"), "price"
        )
    return TableRanker("ndcg(5)", "listnet", ignore=[n for n in ignore if n != "grade"], **how).fit(
        FRAME, "grade", groups="query"
    )


KINDS = ("classes", "labels", "numbers", "grades")


@pytest.fixture(scope="module")
def models() -> dict[str, TableModel]:
    return {kind: made(kind) for kind in KINDS}


# ---- what is learned -----------------------------------------------------------------------------------------------


def test_several_classes_are_learned_and_scored_as_scikit_learn_would(models: dict[str, TableModel]) -> None:
    model = models["classes"]
    assert isinstance(model, TableClassifier)
    assert model.classes_.tolist() == ["=small", "large", "middle"]
    assert model.notes_[0].startswith("target class: 3 classes, of 400 rows ")
    assert model.decision_function(UNSEEN).shape == (N, 3)
    expected = f1_score(UNSEEN["class"], model.predict(UNSEEN), average="macro")
    assert model.score(UNSEEN) == pytest.approx(expected)
    assert expected > 0.7
    with pytest.raises(ValueError, match="model: expected one of two classes, got one of classes: class"):
        model.explain()


def test_labels_are_columns_of_their_own_words(models: dict[str, TableModel]) -> None:
    found = models["labels"].predict(UNSEEN)
    truth = np.column_stack(((UNSEEN["dear"] == "yes"), UNSEEN["big"] == 1)).astype(int)
    given = np.column_stack(((found[:, 0] == "yes"), found[:, 1] == 1)).astype(int)
    assert set(found[:, 0]) == {"yes", "no"}
    assert set(found[:, 1]) == {0, 1}
    expected = f1_score(truth, given, average="samples", zero_division=0)
    assert models["labels"].score(UNSEEN) == pytest.approx(expected)


def test_numbers_are_read_as_they_are_written(models: dict[str, TableModel]) -> None:
    model = models["numbers"]
    truth = UNSEEN["price"].str.replace(r"[$,]", "", regex=True).astype(float).to_numpy()
    found = model.predict(UNSEEN)
    within = (np.abs(found - truth) <= 0.1 * truth).mean()
    assert model.score(UNSEEN) == pytest.approx(within)
    assert mean_absolute_error(truth, found) < mean_absolute_error(truth, np.full(N, np.median(truth)))
    assert model.target_.form == "decimal point, $"


def test_rankings_are_judged_query_by_query(models: dict[str, TableModel]) -> None:
    scores = models["grades"].predict(UNSEEN)
    some = [np.flatnonzero(UNSEEN["query"] == query) for query in range(N // 10)]
    informative = [rows for rows in some if np.ptp(UNSEEN["grade"].to_numpy()[rows])]
    gains = [ndcg_score([2.0 ** UNSEEN["grade"].to_numpy()[r] - 1], [scores[r]], k=5) for r in informative]
    assert models["grades"].score(UNSEEN) == pytest.approx(np.mean(gains), abs=1e-6)
    with pytest.raises(TableError, match="group: expected the query of each row"):
        TableRanker("ndcg(5)").fit(FRAME, "grade")


def test_models_of_numbers_compete_where_none_is_named() -> None:
    frame = FRAME[[*FEATURES, "price"]].assign(price=np.arange(N) % 7)
    model = TableRegressor("mae", "mse", "readable", QUICK).fit(frame, "price")
    assert re.match(r"(linear|additive) by squared error was chosen: MAE [\d.]+ on held-out rows", model.notes_[-2])
    assert re.match(r"(linear|additive) by squared error: behind by", model.notes_[-1])


# ---- what a target may be ------------------------------------------------------------------------------------------


def test_classes_that_are_numbers_are_in_their_order() -> None:
    target, line = infer_classes(pd.Series([10, 2, 1, 10, None]), "g")
    assert target.labels == (1, 2, 10)
    np.testing.assert_array_equal(target.read([pd.Series(["10", None, "1"])]), [2, np.nan, 0])
    assert line == "target g: 3 classes, of 4 rows '10' 2 to '1' 1; few of '1', so it is hardly learned"
    with pytest.raises(TableError, match="target: expected one of 1, 2, 10 in 'g', got '3'"):
        target.read([pd.Series([3])])


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (["a", 2.0], "target: expected numbers in 'y', because the metric is one of numbers, got 'a'; for classes"),
        ([None, None], "target: expected numbers that differ in 'y', got only missing cells"),
        ([3, 3, 3], "target: expected numbers that differ in 'y', got 3 only"),
    ],
)
def test_a_target_that_is_no_number_is_named(cells: list[Any], message: str) -> None:
    with pytest.raises(TableError, match=re.escape(message)):
        infer_numbers(pd.Series(cells, dtype=object), "y")


# ---- the folder ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_model_predicts_as_the_saved_one_to_the_bit(
    models: dict[str, TableModel], kind: str, tmp_path: Path
) -> None:
    before = models[kind]
    after = load(save(before, tmp_path / "model"))
    assert type(after) is type(before)
    np.testing.assert_array_equal(after.predict(UNSEEN), before.predict(UNSEEN))
    assert after.score(UNSEEN) == before.score(UNSEEN)
    assert after.target_ == before.target_
    assert repr(after.model_.verdict_) == repr(before.model_.verdict_)
    assert (tmp_path / "model" / "README.md").read_text().startswith("# A model of ")
    after.data_["rows"] = 1
    assert load(save(after, tmp_path / "model")).data_ == {"rows": 1}


def change(folder: Path, path: list[Any], value: Any) -> None:
    state = json.loads((folder / STATE).read_text())
    inner = state
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    (folder / STATE).write_text(json.dumps(state))


ATTACKS: list[tuple[str, list[Any], Any, str]] = [
    ("classes", ["target", "kind"], "os.system", r"target.kind: expected one of 'two classes', "),
    ("classes", ["target", "labels"], ["a", "a", "b"], r"target.labels: expected two labels at least, each once"),
    ("classes", ["target", "labels"], ["a", " ", "b"], r"target.labels: expected two labels at least, each once"),
    ("classes", ["target", "labels"], ["a"] * 1_001, r"target.labels: expected a list of at most 1,000"),
    ("classes", ["target", "labels"], ["a", "b"], r"model.threshold: expected a list of at most 2"),
    ("classes", ["target", "labels"], list("abcd"), r"model.threshold: expected 4 numbers, one for each class"),
    ("classes", ["model", "threshold"], 0.5, r"model.threshold: expected a list of at most 3, got 0.5"),
    ("classes", ["model", "threshold", 1], 1e301, r"network: expected weights with which every score is finite"),
    ("classes", ["model", "threshold", 1], None, r"model.threshold\[1\]: expected a finite number, got null"),
    ("classes", ["target", "kind"], "numbers", r"target: expected a field 'form'"),
    ("labels", ["target", "targets"], [], r"target.targets: expected two columns at least, each once"),
    ("labels", ["target", "targets", 0, "name"], "big", r"target.targets: expected two columns at least, each once"),
    ("labels", ["target", "targets", 0, "positive"], "no", r"targets\[0\].positive: expected a label other than"),
    ("numbers", ["target", "form"], "eval", r"target.form: expected a number format"),
    ("numbers", ["model", "units", "scale"], 0, r"model.units.scale: expected a positive number, got 0"),
    ("numbers", ["model", "units", "log"], 1, r"model.units.log: expected true or false, got 1"),
    ("numbers", ["model", "units", "centre"], float("nan"), r"model.units.centre: expected a finite number, got nan"),
    ("numbers", ["model", "correction", "kind"], "pickle", r"model.correction.kind: expected one of 'none', 'shift'"),
    ("numbers", ["model", "correction"], {"kind": "shift", "shift": 1, "factor": 1e308}, r"prediction is finite"),
    ("numbers", ["model", "correction"], {"kind": "isotonic", "shift": 0, "factor": 1}, r"knots of an isotonic map"),
    (
        "numbers",
        ["model", "correction"],
        {"kind": "isotonic", "shift": 0, "factor": 1, "knots": 10**6 + 1},
        r"correction.knots: expected from 1 to 1,000,000 knots",
    ),
    (
        "numbers",
        ["model", "correction"],
        {"kind": "isotonic", "shift": 0, "factor": 1, "knots": 3},
        r"weights.safetensors: expected",
    ),
    ("numbers", ["model", "verdict", "tried"], {}, r"model.verdict.tried: expected a list of at most 1,000, got"),
    ("numbers", ["model", "verdict", "tried"], [{}] * 1_001, r"model.verdict.tried: expected a list of at most 1,000"),
    ("numbers", ["model", "verdict", "tried"], [{"name": 3}], r"model.verdict.tried\[0\]: expected a field 'calls'"),
    ("numbers", ["model", "verdict", "tried", 0, "name"], "x" * 1_001, r"tried\[0\].name: expected text of at most"),
    ("numbers", ["model", "verdict", "tried", 0, "calls"], -1, r"tried\[0\].calls: expected an integer of at least 0"),
    ("numbers", ["model", "verdict", "tried", 0, "seconds"], None, r"tried\[0\].seconds: expected a finite number"),
    ("numbers", ["model", "verdict", "strategy"], [], r"model.verdict.strategy: expected text, got a list of 0"),
    ("grades", ["group"], None, r"group: expected text, got null"),
]


@pytest.mark.parametrize(("kind", "path", "value", "message"), ATTACKS, ids=range(len(ATTACKS)))
def test_forged_content_is_refused_by_its_place(
    models: dict[str, TableModel], kind: str, path: list[Any], value: Any, message: str, tmp_path: Path
) -> None:
    folder = save(models[kind], tmp_path / "model")
    change(folder, path, value)
    with pytest.raises(ValueError, match=message) as raised:
        load(folder)
    assert str(raised.value).startswith(str(folder))


def test_an_isotonic_map_is_stored_as_an_array_and_must_rise(models: dict[str, TableModel], tmp_path: Path) -> None:
    from metricgrad.metrics.constants import Correction

    model = load(save(models["numbers"], tmp_path / "model"))
    knots = np.array([[1.0, 2.0, 3.0], [1.0, 1.5, 9.0]])
    model.model_.correction_ = Correction("isotonic", shift=0.25, knots=knots)
    folder = save(model, tmp_path / "model")
    np.testing.assert_array_equal(load(folder).predict(UNSEEN), model.predict(UNSEEN))
    weights = load_file(folder / WEIGHTS)
    np.testing.assert_array_equal(weights["knots"], knots)
    content = packed(weights | {"knots": torch.from_numpy(knots[:, ::-1].copy())})
    (folder / WEIGHTS).write_bytes(content)
    change(folder, ["weights_sha256"], hashlib.sha256(content).hexdigest())
    with pytest.raises(ValueError, match="knots: expected predictions and what they become, both rising"):
        load(folder)


def test_numbers_of_folds_are_averaged_saved_and_loaded(tmp_path: Path) -> None:
    frame = FRAME[[*FEATURES, "price"]]
    for kind in ("small", "additive"):
        model = TableRegressor("within(0.1)", "mse", kind, QUICK, folds=2).fit(frame, "price", groups=FRAME["query"])
        loaded = load(save(model, tmp_path / kind))
        assert loaded.model_.network_.folds == (2 if kind == "small" else 1)
        np.testing.assert_array_equal(loaded.predict(UNSEEN), model.predict(UNSEEN))
        assert str(loaded.model_.verdict_) == str(model.model_.verdict_)
        assert loaded.model_.units_ == model.model_.units_
        assert "squared error" in (tmp_path / kind / "README.md").read_text("utf-8")
    with pytest.raises(TableError, match="folds: expected 1 with times, because the latest rows are held out, got 2"):
        TableRegressor("mae", "mse", "linear", QUICK, folds=2).fit(frame, "price", times=np.arange(N))


# ---- the commands --------------------------------------------------------------------------------------------------


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("data.csv", index=False)
    UNSEEN.to_csv("new.csv", index=False)
    return tmp_path


CASES: dict[str, tuple[list[str], list[str], list[str], str]] = {
    "classes": (
        ["--target", "class", "--metric", "macro_f1", "--method", "cross-entropy", "--folds", "1"],
        ["query", "grade", "dear", "big", "price"],
        ["row", "id", "label", "score (=small)", "score (large)", "score (middle)"],
        "macro_f1",
    ),
    "labels": (
        ["--target", "dear,big", "--metric", "label_macro_f1", "--method", "cross-entropy", "--folds", "1"],
        ["query", "grade", "class", "price"],
        ["row", "id", "label (dear)", "label (big)", "score (dear)", "score (big)"],
        "label_macro_f1",
    ),
    "numbers": (
        ["--target", "price", "--metric", "within(0.1)", "--method", "usual"],
        ["query", "grade", "class", "dear", "big"],
        ["row", "id", "prediction"],
        "within(0.1)",
    ),
    "grades": (
        ["--target", "grade", "--metric", "ndcg(5)", "--group", "query", "--method", "listnet"],
        ["class", "dear", "big", "price"],
        ["row", "id", "score"],
        "ndcg(5)",
    ),
}


@pytest.mark.parametrize("kind", CASES)
def test_the_commands_reach_every_kind_of_target(here: Path, kind: str) -> None:
    options, ignored, columns, metric = CASES[kind]
    ignore = [word for name in ignored for word in ("--ignore", name)]
    done = run("fit", "data.csv", "--out", "model", *options, *ignore, *SHORT)
    assert done.exit_code == 0, done.output
    assert "The model is in model: metricgrad predict model DATA" in done.stdout
    scored = run("predict", "model", "new.csv", "--out", "scores.csv")
    assert scored.exit_code == 0, scored.output
    assert "not used" not in scored.output
    written = pd.read_csv("scores.csv")
    assert list(written.columns) == columns
    loaded = load("model")
    if kind == "classes":
        truth = loaded.predict(UNSEEN)
        np.testing.assert_array_equal(written["label"], np.where(truth == "=small", "'=small", truth))
    if kind == "numbers":
        np.testing.assert_allclose(written["prediction"], loaded.predict(UNSEEN))
    explained = run("explain", "model", "--data", "data.csv")
    if kind == "numbers":
        assert explained.exit_code == 0, explained.output
        assert "explanation.html" in explained.stdout
        assert "weights: expected none with a model of numbers" in run("explain", "model", "--weights", "id").stderr
    else:
        assert explained.exit_code == 2
        assert f"model: expected a model of two classes or numbers, got one of {kind}" in explained.stderr
    assert f"model: expected a model of two classes, got one of {kind}" in run("scorecard", "model").stderr
    judged = json.loads(run("evaluate", "model", "new.csv", "--json").stdout)
    assert judged["rows"] == N
    value = loaded.score(UNSEEN)
    assert judged["metrics"][metric] == pytest.approx(abs(value), abs=1e-9)
    if kind == "classes":
        more = json.loads(run("evaluate", "model", "new.csv", "--metric", "mcc", "--json").stdout)["metrics"]
        assert more["multiclass_mcc"] == pytest.approx(matthews_corrcoef(UNSEEN["class"], loaded.predict(UNSEEN)))
    assert f"{judged['metrics'][metric]:.4f}" in run("evaluate", "model", "new.csv").stdout


def test_classes_are_exported_with_their_offsets_and_numbers_are_refused(
    models: dict[str, TableModel], tmp_path: Path
) -> None:
    from metricgrad.tabular.batch_predict import export

    model = models["classes"]
    program = torch.export.load(export(model, tmp_path / "model.pt2")).module()
    features = torch.from_numpy(model.pipeline_[0].transform(UNSEEN))
    np.testing.assert_allclose(program(features).detach().numpy(), model.decision_function(UNSEEN), atol=1e-9)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="model: expected one of classes or rankings, got one of numbers, 'price'"):
        export(models["numbers"], tmp_path / "numbers.pt2")
