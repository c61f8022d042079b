"""Runs as data: which there are, which go together, and what is kept of each."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from metricgrad.losses.binary import COSTS, CostSensitive
from metricgrad.paper.experiments import BUDGETS, Run, dataset_rows, execute, jobs_of, prepared, run_of, table_runs
from metricgrad.paper.printed import LOSSES, MODES
from metricgrad.surrogate.pretrained import bundled_index
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import RECIPES, get_recipe
from metricgrad.training.selection import Selection
from metricgrad.training.splits import split
from metricgrad.training.trainer import train

SHORT = (("check_every", 2), ("rounds", 4), ("trust_cap", 50), ("warmup", 6))


def short(metric: str, method: str, **changes: object) -> Run:
    return replace(Run("breast_cancer", metric, method, 0, changes=SHORT), **changes)  # type: ignore[arg-type]


def outcomes(*runs: Run) -> list[dict]:
    return [outcome for job in jobs_of(runs) for _, outcome in execute(job)]


# ---- what to run ---------------------------------------------------------------------------------------------------


def test_table_2_is_three_modes_for_seven_losses() -> None:
    runs = table_runs(["table2"], ["honest"], datasets=["a9a", "skin"], seeds=range(3))
    assert len(set(runs)) == len(runs) == 3 * 2 * 7 * 3
    assert {(run.metric, run.method) for run in runs} == {(loss, mode) for loss in LOSSES for mode in MODES}


def test_both_protocols_share_their_runs_but_for_the_column_that_measures_another_thing() -> None:
    runs = table_runs(["table2"], ["honest", "paper"], datasets=["a9a"], seeds=[0])
    extra = set(runs) - set(table_runs(["table2"], ["honest"], datasets=["a9a"], seeds=[0]))
    assert {(run.metric, run.method, run.replicate) for run in extra} == {("error_rate", mode, 1) for mode in MODES}


@pytest.mark.parametrize(
    ("protocol", "metric", "trained", "replicate"),
    [("paper", "jaccard", "error_rate", 1), ("paper", "f1", "f1", 0), ("honest", "jac", "jaccard", 0)],
)
def test_the_run_behind_a_cell(protocol: str, metric: str, trained: str, replicate: int) -> None:
    run = run_of(protocol, "a9a", metric, "sl-r", 4)
    assert (run.metric, run.replicate, run.seed) == (trained, replicate, 4)


def test_table_3_sets_the_refined_surrogate_against_the_papers_baselines() -> None:
    runs = table_runs(["table3"], ["honest"], datasets=["a9a"], seeds=[0])
    assert {(run.metric, run.method) for run in runs if run.method != "sl-r"} == {
        ("error_rate", "cross-entropy"),
        ("auc", "pairwise"),
        ("auc", "global-objectives"),
        ("jaccard", "lovasz-softmax"),
        ("f1", "cost-sensitive"),
    }
    assert {run.metric for run in runs if run.method == "sl-r"} == {"error_rate", "auc", "jaccard", "f1"}


def test_a_table_can_be_asked_for_in_part() -> None:
    runs = table_runs(
        ["table2"], ["honest"], datasets=["a9a"], seeds=[1], metrics=["ap"], methods=["sl-u"], model="linear"
    )
    assert runs == [Run("a9a", "average_precision", "sl-u", 1, model="linear")]


def test_an_unknown_method_is_named() -> None:
    with pytest.raises(ValueError, match=r"methods: expected some of sl-u, .*, got 'svm'"):
        table_runs(["table2"], ["honest"], datasets=["a9a"], seeds=[0], methods=["svm"])


def test_runs_that_differ_in_metric_and_method_only_are_one_job() -> None:
    one, two, other = short("f1", "sl-r"), short("auc", "pairwise"), short("f1", "sl-r", seed=1)
    assert jobs_of([other, one, two]) == [(one, two), (other,)]
    assert len(jobs_of([one, short("error_rate", "sl-r", replicate=1)])) == 2


def test_without_a_warm_up_to_share_every_training_is_a_job() -> None:
    methods = ("sl-r", "sl-u", "pairwise")
    runs = [short(m, by, recipe="paper", changes=()) for by in methods for m in ("f1", "auc")]
    assert jobs_of(runs) == [(runs[0],), (runs[1],), (runs[2],), (runs[3],), (runs[4], runs[5])]


def test_trees_are_a_job_of_their_own() -> None:
    assert len(jobs_of([short("f1", "lightgbm"), short("auc", "lightgbm"), short("f1", "sl-r")])) == 2


def test_a_run_is_identified_by_the_content_of_its_recipe_not_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run("digits8", "f1", "sl-r", 0)
    before = Store.key(run.as_dict())
    assert Store.key(json.loads(json.dumps(run.as_dict()))) == before
    monkeypatch.setitem(RECIPES, "default", get_recipe("default", anchor=0.3))
    assert Store.key(run.as_dict()) != before
    assert run.as_dict()["recipe"] == "default"
    assert run.as_dict()["content"]["anchor"] == 0.3


def test_a_run_is_identified_by_its_data_and_by_the_surrogate_it_starts_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METRICGRAD_DATA", str(tmp_path))
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path / "none"))
    (tmp_path / "skin.parquet").write_bytes(b"one")
    first = Run("skin", "f1", "sl-r", 0).as_dict()
    (tmp_path / "skin.parquet").write_bytes(b"another")
    second = Run("skin", "f1", "sl-r", 0).as_dict()
    assert first["data"] != second["data"]
    assert first["surrogate"] == bundled_index()["best_f1"]["sha256"][:16]
    assert Run("skin", "f1", "sl-r", 0, changes=(("form", "zero"),)).as_dict()["surrogate"] != first["surrogate"]
    assert "surrogate" not in Run("skin", "f1", "sl-s", 0).as_dict()


def test_baselines_get_the_steps_and_the_rate_of_the_paper_by_its_recipe_alone() -> None:
    baseline, surrogate = (Run("a9a", "auc", method, 0, recipe="paper").how for method in ("pairwise", "sl-r"))
    assert (baseline.steps, baseline.learning_rate, baseline.clip) == (1_000_000, 1e-4, None)
    assert (surrogate.steps, surrogate.learning_rate, surrogate.clip) == (900_000, 1e-5, 1e-5)
    short = Run("a9a", "auc", "pairwise", 0, recipe="paper", changes=tuple(BUDGETS["quick"]["paper"].items())).how
    assert (short.steps, short.learning_rate) == (3_000, 1e-4)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("recipe", ["default", "paper"])
def test_every_budget_changes_every_recipe_into_a_valid_one(budget: str, recipe: str) -> None:
    rounds = get_recipe(recipe, **BUDGETS[budget][recipe]).rounds
    assert rounds == 300_000 if budget == "paper" else rounds < 300_000


# ---- what is kept --------------------------------------------------------------------------------------------------


def test_features_are_scaled_on_the_training_rows_alone() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    places = split(1 - y, 3)
    parts = prepared("breast_cancer", 3, standardise=True)
    scaler = StandardScaler().fit(X[places.train].astype(np.float32))
    for name in ("train", "validation", "test"):
        rows = getattr(parts, name)
        np.testing.assert_allclose(rows.x.numpy(), scaler.transform(X[getattr(places, name)]), atol=1e-3)
        np.testing.assert_array_equal(rows.y.numpy(), 1 - y[getattr(places, name)])
    raw = prepared("breast_cancer", 3, standardise=False)
    np.testing.assert_array_equal(raw.train.x.numpy(), X[places.train].astype(np.float32))


def test_a_run_keeps_every_metric_under_every_protocol_and_its_history() -> None:
    (outcome,) = outcomes(short("f1", "sl-r"))
    assert set(outcome["test"]) == {"honest", "paper"}
    for losses in outcome["test"].values():
        assert set(losses) == set(LOSSES)
        assert all(0 <= loss <= 1 for loss in losses.values())
    assert outcome["test"]["paper"]["jaccard"] == outcome["test"]["paper"]["error_rate"]
    assert outcome["test"]["honest"]["auc"] == outcome["test"]["paper"]["auc"]
    assert outcome["rows"] == {"train": 365, "validation": 91, "test": 113}
    assert outcome["subset"] is None
    assert outcome["positive_share"] == pytest.approx(212 / 569)
    history = outcome["history"]
    assert history["steps"] == [6, 14, 22]
    assert {len(column) for column in history.values()} == {3}
    seen = [*history["validation"], *(loss for loss in history["control"] if loss == loss)]
    assert len(seen) == 5  # the control is looked at where the surrogate is
    start, *rounds = history["validation"]
    kept = min(rounds) if outcome["verdict"]["followed"] else min(start, *seen[3:])
    assert outcome["validation_loss"] == pytest.approx(kept, rel=1e-4)
    json.dumps(outcome)


@pytest.mark.filterwarnings("ignore:.*is not faithful yet")
@pytest.mark.parametrize("model", ["linear", "small"])
def test_a_run_ends_at_the_same_bits_whichever_runs_are_trained_beside_it(model: str) -> None:
    beside = [("cross-entropy", "f1"), ("sl-r", "auc"), ("cost-sensitive", "f1"), ("sl-u", "mcc"), ("sl-s", "auc")]
    runs = [short(metric, method, model=model) for method, metric in beside]
    others = outcomes(*runs[::-1])[::-1]
    for run, other in zip(runs, others, strict=True):
        (alone,) = outcomes(run)
        for name in ("test", "followed", "validation_loss", "history", "verdict"):
            assert repr(alone[name]) == repr(other[name]), (run.method, name)


@pytest.mark.filterwarnings("ignore:.*is not faithful yet")
def test_a_run_keeps_the_losses_of_the_model_that_followed_its_loss() -> None:
    (kept,) = outcomes(short("f1", "sl-r", changes=(*SHORT, ("learning_rate", 0.03), ("margin", 1e6))))
    assert kept["verdict"]["followed"] is False
    assert kept["followed"]["test"].keys() == kept["test"].keys()
    assert kept["followed"] != {name: kept[name] for name in kept["followed"]}
    steps, losses = kept["history"]["steps"], kept["history"]["validation"]
    after = min(loss for count, loss in zip(steps, losses, strict=True) if count > 6)  # not in the warm-up
    assert kept["followed"]["validation_loss"] == pytest.approx(after, abs=1e-4)
    (plain,) = outcomes(short("f1", "cross-entropy"))
    assert plain["followed"] is None


def test_a_run_of_the_papers_recipe_is_trained_on_raw_features() -> None:
    (outcome,) = outcomes(short("auc", "sl-s", recipe="paper", changes=(("check_every", 1), ("rounds", 2))))
    assert outcome["history"]["steps"] == [3, 6]
    assert 0 <= outcome["test"]["paper"]["auc"] <= 1


def test_how_far_a_surrogate_can_be_trusted_is_kept_instead_of_warned_of() -> None:
    changes = (("check_every", 1), ("rounds", 2), ("trust", 1.0), ("trust_cap", 1), ("warmup", 1))
    (outcome,) = outcomes(short("auc", "sl-s", dataset="digits8", changes=changes))
    assert -1 <= outcome["history"]["trust"][-1] < 1


def test_the_cost_of_the_reduction_is_chosen_on_validation_rows() -> None:
    changes = (("check_every", 1), ("learning_rate", 0.05), ("rounds", 10), ("warmup", 1))
    run = Run("digits8", "f1", "cost-sensitive", 0, model="linear", changes=changes)
    (chosen,) = outcomes(run)
    parts, model = prepared("digits8", 0, standardise=True), build_model("linear", 64, 0)
    least = {}
    for cost in COSTS:
        selection = Selection(parts.validation, get_metric("f1"), run.how)
        rounds = list(train(deepcopy(model), CostSensitive(cost), parts.train, run.how, selection=selection, seed=0))
        least[cost] = min(done.validation for done in rounds if done.validation == done.validation)
    assert chosen["validation_loss"] == pytest.approx(min(least.values()))
    assert least[chosen["setting"]] == pytest.approx(min(least.values()))
    assert len(set(least.values())) > 1


def test_a_replicate_has_the_same_rows_and_another_model() -> None:
    run = short("error_rate", "sl-u", dataset="digits8")
    one, two = outcomes(run, replace(run, replicate=1))
    assert one["test"]["honest"]["auc"] != two["test"]["honest"]["auc"]
    assert one["rows"] == two["rows"]


def test_a_limit_of_rows_keeps_the_classes_in_proportion_and_says_so() -> None:
    (outcome,) = outcomes(short("auc", "cross-entropy", rows=200, model="linear"))
    assert outcome["rows"] == {"train": 128, "validation": 32, "test": 40}
    assert outcome["positive_share"] == pytest.approx(212 / 569, abs=0.003)
    assert outcome["subset"] == "200 rows drawn from all"
    assert "rows" in short("auc", "sl-r", rows=200).as_dict()
    assert "rows" not in short("auc", "sl-r").as_dict()


def test_which_rows_are_drawn_depends_on_the_seed_and_on_nothing_else() -> None:
    whole = load_breast_cancer().data.astype(np.float32)
    number = {row.tobytes(): place for place, row in enumerate(whole)}
    drawn = []
    for seed in (0, 1, 0):
        rows = dataset_rows("breast_cancer", seed, rows=200).X
        drawn.append([number[row.tobytes()] for row in np.asarray(rows, dtype=np.float32)])
        assert len(set(drawn[-1])) == len(drawn[-1]) == 200
    assert drawn[0] == drawn[2]
    # Of 200 rows out of 569, about 200 * 200 / 569 = 70 are in both of two independent draws.
    assert 40 < len(set(drawn[0]) & set(drawn[1])) < 100


def test_trees_stop_on_validation_rows_even_if_test_rows_say_the_opposite(monkeypatch: pytest.MonkeyPatch) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    parts = prepared("breast_cancer", 0, standardise=True)
    parts = parts._replace(test=parts.test._replace(y=1 - parts.test.y))
    auc, count = {}, {}
    for name, judge in (("validation", parts.validation), ("test", parts.test)):
        train = lightgbm.Dataset(parts.train.x.numpy(), parts.train.y.numpy())
        kept = lightgbm.Dataset(judge.x.numpy(), judge.y.numpy())
        how = {"objective": "binary", "learning_rate": 0.05, "num_threads": 1, "seed": 0, "verbosity": -1}
        stop = lightgbm.early_stopping(100, verbose=False)
        trees = lightgbm.train(how, train, 2_000, valid_sets=[kept], callbacks=[stop])
        count[name] = trees.best_iteration
        auc[name] = roc_auc_score(parts.test.y, trees.predict(parts.test.x.numpy()))
    assert count["test"] < count["validation"]
    assert auc["test"] != auc["validation"]
    monkeypatch.setattr("metricgrad.paper.experiments.split_table", lambda *_, **__: parts)
    (outcome,) = outcomes(short("auc", "lightgbm"))
    assert 1 - outcome["test"]["honest"]["auc"] == pytest.approx(auc["validation"], abs=1e-9)


def test_trees_are_grown_once_for_all_metrics_and_rank_as_lightgbm_does() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    runs = [short(metric, "lightgbm") for metric in ("auc", "f1")]
    one, two = outcomes(*runs)
    assert one["test"] == two["test"]
    parts = prepared("breast_cancer", 0, standardise=True)
    trees = lightgbm.LGBMClassifier(learning_rate=0.05, n_jobs=1, verbose=-1).fit(parts.train.x, parts.train.y)
    plain = 1 - roc_auc_score(parts.test.y, trees.predict_proba(parts.test.x)[:, 1])
    assert one["test"]["honest"]["auc"] == pytest.approx(plain, abs=0.02)
