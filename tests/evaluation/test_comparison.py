"""Comparisons on a user's own table: honest splits, exact thresholds, the same answer whatever the rows come in."""

from __future__ import annotations

import sys
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse
from sklearn.datasets import make_classification
from sklearn.metrics import accuracy_score, f1_score
from sklearn.preprocessing import StandardScaler

from metricgrad import ComparisonResult, Recipe, black_box, compare
from metricgrad.evaluation.runs import split_table
from metricgrad.training.splits import split

X, Y = make_classification(500, 6, n_informative=4, weights=[0.75], flip_y=0.05, random_state=0)
QUICK: dict[str, Any] = {
    "model": "linear",
    "recipe": Recipe(warmup=30, rounds=6, check_every=5, trust_cap=50),
    "splits": 2,
    "n_jobs": 1,
}


def frame() -> pd.DataFrame:
    """A table with gaps, categories and a target of words."""
    found = pd.DataFrame(X, columns=[f"x{i}" for i in range(6)])
    found.loc[::7, "x0"] = np.nan
    found["plan"] = np.where(X[:, 1] > 0, "gold", "basic")
    found["churn"] = np.where(Y == 1, "yes", "no")
    return found


@pytest.fixture(scope="module")
def result() -> ComparisonResult:
    return compare(frame(), "churn", "f1", **QUICK)


def test_every_method_is_tried_once_on_every_split(result: ComparisonResult) -> None:
    assert result.methods == ("sl-r", "cross-entropy", "balanced", "focal", "lightgbm")
    assert [(t.split, t.method) for t in result.trials] == [(s, m) for s in (0, 1) for m in result.methods]
    assert result.classes == ("no", "yes")
    assert (result.rows, result.features, result.positives) == (500, 7, int(Y.sum()))
    for trial in result.trials:
        assert int(sum(trial.diagnosis.confusion)) == len(split(Y, trial.split).test)
        assert bool(trial.history) == (trial.method != "lightgbm")
        assert (trial.fidelity is not None) == (trial.method == "sl-r")


def test_trees_are_lightgbms_own_cut_where_validation_rows_are_best() -> None:
    found = compare(X, Y, "f1", method="lightgbm", baselines=["cross-entropy"], **QUICK)
    for trial in found.of("lightgbm"):
        parts = split(Y, trial.split)
        scaler = StandardScaler().fit(X[parts.train])
        train, kept, test = (
            scaler.transform(X[rows]).astype(np.float32) for rows in (parts.train, parts.validation, parts.test)
        )
        trees = lightgbm.LGBMClassifier(
            n_estimators=2000, learning_rate=0.05, n_jobs=1, random_state=trial.split, verbosity=-1
        )
        stop = lightgbm.early_stopping(100, verbose=False)
        trees.fit(train, Y[parts.train], eval_X=kept, eval_y=Y[parts.validation], callbacks=[stop])
        kept, test = (trees.predict(rows, raw_score=True) for rows in (kept, test))
        best = max(f1_score(Y[parts.validation], kept >= cut) for cut in kept)
        assert f1_score(Y[parts.validation], kept >= trial.threshold) == pytest.approx(best)
        assert 1 - trial.loss == pytest.approx(f1_score(Y[parts.test], test >= trial.threshold))


def test_test_rows_have_no_say_in_training_thresholds_or_preparation() -> None:
    table = frame()
    before = compare(table, "churn", "f1", baselines=["cross-entropy"], **QUICK)
    test = split(Y, 0).test
    table.loc[test, "x1"] = 1e6
    table.loc[test, "plan"] = "never seen before"
    after = compare(table, "churn", "f1", baselines=["cross-entropy"], **QUICK)
    for one, other in zip(before.trials, after.trials, strict=True):
        same = one.threshold == other.threshold and [r.loss for r in one.history] == [r.loss for r in other.history]
        assert same == (one.split == 0)


def test_pandas_polars_and_arrays_agree() -> None:
    table = pd.DataFrame(X, columns=[f"x{i}" for i in range(6)]).assign(y=Y)
    how = {**QUICK, "baselines": ["cross-entropy"], "method": "focal"}
    found = [
        compare(table, "y", **how),
        compare(pl.from_pandas(table), "y", **how),
        compare(table.drop(columns="y"), table["y"], **how),
        compare(X, Y, **how),
        compare(scipy.sparse.csr_matrix(X), Y, **{**how, "recipe": Recipe(warmup=30, rounds=6, standardise=False)}),
    ]
    for other in found[1:3]:
        np.testing.assert_array_equal(found[0].values("focal"), other.values("focal"))
    np.testing.assert_allclose(found[0].values("focal"), found[3].values("focal"), atol=0.05)
    assert found[4].features == 6


def test_groups_stay_in_one_part() -> None:
    groups = np.arange(500) // 5
    by_group = split_table(groups[:, None].astype(float), Y, 0, standardise=False, groups=groups)
    owners = [set(rows.x[:, 0].tolist()) for rows in by_group]
    assert sum(map(len, owners)) == len(set(groups))
    assert [len(rows.y) for rows in by_group] == [320, 80, 100]
    table = frame().assign(customer=groups)
    found = compare(table, "churn", groups="customer", method="focal", baselines=["cross-entropy"], **QUICK)
    assert found.features == 7


@pytest.mark.slow  # starts worker processes
def test_processes_agree_with_one_and_take_a_metric_of_ones_own() -> None:
    metric = black_box(lambda y, called: accuracy_score(y, called), higher_is_better=True, labels=True)
    how = {**QUICK, "method": "focal", "baselines": ["cross-entropy"]}
    one, two = (compare(X, Y, metric, **{**how, "n_jobs": jobs}) for jobs in (1, 2))
    pd.testing.assert_frame_equal(one.table().drop(columns="seconds"), two.table().drop(columns="seconds"))


def test_a_baseline_with_a_setting_is_tuned_on_validation_rows() -> None:
    found = compare(X, Y, baselines=["cost-sensitive"], **QUICK)
    least = [min(r.validation for r in trial.history if r.validation == r.validation) for trial in found.trials]
    assert len(least) == 4
    plain = compare(X, Y, baselines=["cross-entropy"], **QUICK)
    tuned = [x for x, trial in zip(least, found.trials, strict=True) if trial.method == "cost-sensitive"]
    known = [min(r.validation for r in t.history if r.validation == r.validation) for t in plain.of("cross-entropy")]
    assert all(one <= other + 1e-6 for one, other in zip(tuned, known, strict=True))


def test_results_are_tables_and_figures(result: ComparisonResult) -> None:
    table, summary = result.table(), result.summary()
    assert list(table["f1"]) == [pytest.approx(1 - trial.loss) for trial in result.trials]
    assert list(summary.index) == ["metricgrad", "cross-entropy", "class weights", "focal loss", "LightGBM"]
    np.testing.assert_allclose(summary["F1"], [result.values(m).mean() for m in result.methods])
    for name in ("metric", "roc", "precision_recall", "threshold", "calibration", "convergence"):
        picture = getattr(result, f"plot_{name}")()
        assert picture._repr_png_().startswith(b"\x89PNG")
    assert result.verdict in result._repr_html_()
    with pytest.raises(ValueError, match="split: expected one of 0, 1, got 7"):
        result.plot_convergence(7)


def test_without_lightgbm_trees_are_left_out_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    found = compare(X, Y, **QUICK)
    assert "lightgbm" not in found.methods
    assert found.remarks[-1] == "LightGBM is left out because it is not installed: pip install metricgrad[trees]"
    with pytest.raises(ValueError, match=r"needs LightGBM: pip install metricgrad\[trees\]"):
        compare(X, Y, baselines=["lightgbm"], **QUICK)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"splits": 1}, "splits: expected an integer of at least 2, got 1"),
        ({"test": 1.0}, "test: expected a number between 0 and 1, got 1.0"),
        ({"random_state": -1}, "random_state: expected an integer of at least 0, got -1"),
        ({"model": "auto"}, r"model: expected one of mlp, .*, got .auto.; several models compete in a fit, not here"),
        ({"model": "forest"}, r"model: expected one of mlp, .* a factory, got .forest.$"),
        ({"method": "magic"}, "method: expected one of sl-r, .*, got 'magic'"),
        ({"baselines": ["magic"]}, "baselines: expected one of sl-r, .*, got 'magic'"),
        ({"baselines": ["sl-r"]}, "baselines: expected at least one, each once and not 'sl-r' itself"),
        ({"y": Y[:9]}, "target: expected one for each of 500 rows, got 9"),
        ({"y": "churn"}, "target: expected the name of a column, got 'churn'"),
        ({"y": np.arange(500) < 4}, "y: expected at least 10 rows of each class to compare methods, got 4"),
        ({"y": np.arange(500) % 3}, "target: expected two classes in 'target', got 3"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, Any], message: str) -> None:
    given = {"X": X, "y": Y, **QUICK, **change}
    with pytest.raises(ValueError, match=message):
        compare(**given)


def test_the_former_name_of_baselines_still_works_with_a_warning() -> None:
    how = {**QUICK, "method": "focal"}
    with pytest.warns(DeprecationWarning, match="compare: the argument 'rivals' is deprecated: use 'baselines'"):
        found = compare(X, Y, rivals=["cross-entropy"], **how)
    assert found.methods == ("focal", "cross-entropy")
