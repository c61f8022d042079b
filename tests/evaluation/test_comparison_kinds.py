"""compare with several classes, labels, numbers and rankings, with weights, and with splits by time."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from metricgrad import MetricClassifier, MetricRanker, MetricRegressor, Recipe, compare
from metricgrad.cli.app import app
from metricgrad.evaluation.choices import choices_frame
from metricgrad.evaluation.comparison_result import Trial
from metricgrad.evaluation.user_table import time_split
from metricgrad.tabular.encoding import Preparation
from metricgrad.tabular.schema import infer_columns
from metricgrad.training.history import Verdict, in_words
from metricgrad.training.splits import split

N = 400
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3)).round(3)
VALUE = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.4 * RNG.normal(size=N)
FRAME = pd.DataFrame(X, columns=list("abc")).assign(
    day=pd.date_range("2024", periods=N).strftime("%Y-%m-%d"),
    w=np.where(np.arange(N) % 2, 3.0, 1.0),
    kind=np.array(["low", "middle", "high"])[np.digitize(VALUE, [-0.3, 0.9])],
    up=np.where(VALUE > 0.5, "yes", "no"),
    right=(X[:, 2] + 0.5 * RNG.normal(size=N) > 0).astype(int),
    price=np.exp(VALUE).round(4),
)
SHORT = Recipe(warmup=30, rounds=5, trust_cap=50, learning_rate=0.05)


def only(*names: str) -> pd.DataFrame:
    return FRAME[["a", "b", "c", *names]]


def test_several_classes_and_labels_are_compared_and_drawn(tmp_path: Path) -> None:
    for y, names, metric in (("kind", ["kind"], "accuracy"), (["up", "right"], ["up", "right"], "label_macro_f1")):
        found = compare(only(*names), y, metric, model="linear", recipe=SHORT, splits=2, n_jobs=1)
        assert found.methods == ("sl-r", "cross-entropy")
        assert (found.values("cross-entropy") > 0.5).all()
        found.write_page(tmp_path / "page.html")
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert "Metric by method" in page
        assert 'id="curves"' not in page
        with pytest.raises(ValueError, match="metric: expected one of two classes for curves, got"):
            found.plot_roc()


def test_what_fit_does_can_be_compared_and_its_trial_is_what_it_says_of_the_test_rows() -> None:
    frame, how = only("right", "w"), {"model": "linear", "recipe": SHORT, "splits": 2, "n_jobs": 1}
    found = compare(frame, "right", "f1", method="auto", baselines=["cross-entropy"], sample_weight="w", **how)
    y, weights = FRAME["right"].to_numpy(), FRAME["w"].to_numpy()
    parts = split(y, 1)
    known = np.concatenate((parts.train, parts.validation))
    model = MetricClassifier("f1", model="linear", recipe=SHORT, random_state=1)
    features = Preparation(infer_columns(frame[["a", "b", "c"]])).fit(frame.iloc[parts.train]).transform(frame)
    model.fit(features[known], y[known], weights[known])
    assert found.methods == ("auto", "cross-entropy")
    value = model.score(features[parts.test], y[parts.test], weights[parts.test])
    assert found.values("auto")[1] == pytest.approx(value)
    verdict, choice = model.verdict_, found.choices().iloc[1]
    kept = in_words(verdict.strategy) if verdict.followed else "cross-entropy"
    assert (choice["split"], choice["method"], choice["kept"]) == (1, "auto", kept)
    assert abs(choice["gain"]) == pytest.approx(abs(verdict.gain))
    assert (choice["gain"] > 0) == ((verdict.gain > 0) == verdict.followed)
    assert (choice["rows"], choice["positives"]) == (verdict.rows, verdict.positives)
    costs = found.costs()
    assert list(costs["name"][costs["split"] == 1]) == [each.name for each in verdict.tried]
    assert (costs["seconds"] > 0).any()


def test_what_was_chosen_is_on_the_page_and_only_where_strategies_competed(tmp_path: Path) -> None:
    frame = FRAME[["a", "b", "right"]]
    how: dict[str, Any] = {"model": "linear", "splits": 2, "n_jobs": 1, "baselines": ["cross-entropy"]}
    found = compare(frame, "right", "f1", method="auto", **how)
    found.write_page(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    places = [page.index(f'<section id="{part}">') for part in ("metric", "chosen", "curves")]
    assert places == sorted(places)
    for trial in found.of("auto"):
        assert trial.verdict is not None
        assert ", ".join(map(str, trial.verdict.tried)) in page
        assert f">{trial.verdict.rows:,}<" in page
    assert re.search(r"linear by direct search \d+\.\d s and \d,\d{3} calls", page)
    plain = compare(frame, "right", "f1", method="focal", recipe=SHORT, **how)
    assert plain.choices().empty
    assert plain.costs().empty
    plain.write_page(tmp_path / "plain.html")
    assert "What was chosen" not in (tmp_path / "plain.html").read_text(encoding="utf-8")


def test_a_choice_of_the_usual_loss_shows_the_best_other_behind_it() -> None:
    verdict = Verdict(False, 0.01, 0.02, strategy="direct", unit=2.0, rows=90, positives=9)
    few = Verdict(False, float("nan"), float("nan"), note="9 rows are too few")
    trials = [Trial(seed, "auto", 0.0, 1.0, None, verdict=each) for seed, each in ((3, verdict), (4, few))]
    first, second = choices_frame(trials).to_dict("records")
    assert (first["kept"], first["compared_with"]) == ("cross-entropy", "direct search")
    assert (first["gain"], first["standard_error"]) == pytest.approx((-0.02, 0.04))
    assert (second["kept"], second["note"]) == ("cross-entropy", "9 rows are too few")
    assert np.isnan(second["gain"])


def test_what_fit_does_can_be_compared_of_several_classes_and_by_groups_columns_and_time(tmp_path: Path) -> None:
    how: dict[str, Any] = {"method": "auto", "baselines": ["cross-entropy"], "model": "linear", "recipe": SHORT}
    how |= {"splits": 2, "n_jobs": 1}
    classes = compare(only("kind"), "kind", "macro_f1", **how)
    profit = compare(only("right", "price"), "right", "sum(price * tp) - 0.5 * sum(price * fp)", **how)
    grouped = compare(only("right"), "right", "f1", groups=np.arange(N) // 4, **how)
    timed = compare(only("right", "day"), "right", "f1", times="day", **how)
    for found in (classes, profit, grouped, timed):
        assert np.isfinite(found.values("auto")).all()
        assert found.values("auto").shape == (2,)
        found.write_page(tmp_path / "page.html")
        assert "auto" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_numbers_are_compared_by_the_regressor_and_by_trees_with_a_constant() -> None:
    how: dict[str, Any] = {"baselines": ["mse", "lightgbm"], "model": "linear", "splits": 2, "n_jobs": 1}
    found = compare(only("price"), "price", "mape", method="usual", **how)
    assert found.values("usual").shape == (2,)
    assert (found.values("lightgbm") < 1).all()
    assert found.classes == ()
    with pytest.raises(ValueError, match=r"baselines: expected one of auto, usual, .*, got 'focal'"):
        compare(only("price"), "price", "mape", baselines=["focal"])


def test_a_trial_of_numbers_is_what_the_regressor_says_of_the_test_rows() -> None:
    data, y = FRAME[["a", "b", "c"]].to_numpy(), FRAME["price"].to_numpy()
    found = compare(data, y, "mae", method="mse", baselines=["usual"], model="linear", splits=2, n_jobs=1)
    parts = split(np.zeros(N), 1, 0.2, 0.2)
    known = np.concatenate((parts.train, parts.validation))
    model = MetricRegressor("mae", "mse", "linear", random_state=1)
    model.fit(data[known], y[known], validation=np.arange(len(parts.train), len(known)))
    expected = np.abs(model.predict(data[parts.test]) - y[parts.test]).mean()
    assert found.values("mse")[1] == pytest.approx(expected)


def queries(rows: int = 240, size: int = 12) -> pd.DataFrame:
    """Documents of queries, graded by their first feature with some noise."""
    rng = np.random.default_rng(1)
    data = pd.DataFrame(rng.normal(size=(rows, 3)).round(3), columns=list("abc"))
    grade = (data["a"] + 0.5 * rng.normal(size=rows)).round().clip(0, 3).astype(int)
    return data.assign(grade=grade, query=[f"q{number}" for number in rng.permutation(rows) % (rows // size)])


def test_rankings_are_compared_by_whole_queries(tmp_path: Path) -> None:
    data = queries()
    how: dict[str, Any] = {"groups": "query", "model": "linear", "recipe": SHORT, "splits": 2, "n_jobs": 1}
    found = compare(data, "grade", "ndcg(10)", method="listnet", baselines=["lambdarank", "lightgbm"], **how)
    assert found.methods == ("listnet", "lambdarank", "lightgbm")
    assert (found.values("lambdarank") > 0.8).all()
    parts = split(np.zeros(240), 1, 0.2, 0.2, pd.factorize(data["query"])[0])
    known = np.concatenate((parts.train, parts.validation))
    features, grades = data[["a", "b", "c"]].to_numpy(np.float32), data["grade"].to_numpy()
    names = data["query"].to_numpy()
    model = MetricRanker("ndcg(10)", "listnet", "linear", SHORT, random_state=1)
    model.fit(features[known], grades[known], qid=names[known], validation=np.arange(len(parts.train), len(known)))
    expected = model.score(features[parts.test], grades[parts.test], qid=names[parts.test])
    assert found.values("listnet")[1] == pytest.approx(expected, abs=0.02)  # columns of a frame are encoded
    found.write_page(tmp_path / "page.html")
    assert "Metric by method" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_rankings_need_queries_and_grades() -> None:
    data = queries()
    with pytest.raises(ValueError, match="groups: expected the query of each row for 'ndcg"):
        compare(data, "grade", "ndcg(10)")
    with pytest.raises(ValueError, match=r"y: expected grades 0, 1, 2 \.\.\. for 'ndcg\(10\)', .*, got 1.5"):
        compare(data.assign(grade=data["grade"] + 0.5), "grade", "ndcg(10)", groups="query")
    with pytest.raises(ValueError, match="sample_weight: expected none for 'ndcg"):
        compare(data.assign(w=2.0), "grade", "ndcg(10)", groups="query", sample_weight="w")
    with pytest.raises(ValueError, match=r"baselines: expected one of sl-r, .*, got 'focal'"):
        compare(data, "grade", "ndcg(10)", groups="query", baselines=["focal"])


def test_the_command_compares_rankings(tmp_path: Path) -> None:
    queries().to_csv(tmp_path / "q.csv", index=False)
    given = ["--target", "grade", "--group", "query", "--metric", "ndcg(5)", "--method", "ranknet", "--model", "linear"]
    short = ["--baselines", "lambdarank", "--splits", "2", "--jobs", "1", "--recipe", "queries,warmup=20,rounds=5"]
    done = CliRunner().invoke(app, ["compare", str(tmp_path / "q.csv"), *given, *short, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "index.html").exists()
    trials = pd.read_csv(tmp_path / "out" / "trials.csv")
    assert set(trials["method"]) == {"ranknet", "lambdarank"}


def test_weights_count_in_the_metric_of_the_test_rows() -> None:
    how: dict[str, Any] = {"method": "balanced", "baselines": ["cross-entropy"], "model": "linear", "recipe": SHORT}
    frame = only("up", "w")
    plain = compare(frame.drop(columns="w"), "up", "f1", n_jobs=1, splits=2, **how)
    same = compare(frame.assign(w=2.0), "up", "f1", sample_weight="w", n_jobs=1, splits=2, **how)
    np.testing.assert_allclose(same.values("cross-entropy"), plain.values("cross-entropy"), atol=1e-6)
    other = compare(frame, "up", "f1", sample_weight="w", n_jobs=1, splits=2, **how)
    assert not np.allclose(other.values("cross-entropy"), plain.values("cross-entropy"))


def test_splits_by_time_train_on_earlier_rows_only() -> None:
    times = RNG.permutation(np.repeat(np.arange(50.0), 4))
    tested = []
    for number in range(3):
        parts = time_split(times, number, 3, 0.2)
        assert times[parts.train].max() < times[parts.validation].min()
        assert times[parts.validation].max() < times[parts.test].min()
        tested.append(parts.test)
    assert len(np.unique(np.concatenate(tested))) == sum(map(len, tested)) == 100
    with pytest.raises(ValueError, match="times: expected enough different times for 5 splits, got 3"):
        time_split(np.repeat(np.arange(3.0), 9), 3, 5, 0.2)
    with pytest.raises(ValueError, match="times: expected none with groups"):
        compare(FRAME, "up", times="day", groups="w")


def test_the_command_takes_times_weights_and_several_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    FRAME.to_csv("data.csv", index=False)
    ignore = [word for name in ("up", "right", "price") for word in ("--ignore", name)]
    quick = ["--model", "linear", "--recipe", "warmup=30,rounds=5,trust_cap=50", "--splits", "2", "--jobs", "1"]
    words = ["compare", "data.csv", "--target", "kind", "--metric", "macro_f1", "--time-column", "day"]
    done = CliRunner().invoke(app, [*words, "--weight-column", "w", *ignore, *quick])
    assert done.exit_code == 0, done.output
    assert "target kind: 3 classes, of 400 rows" in done.stdout
    trials = pd.read_csv(tmp_path / "metricgrad-compare" / "trials.csv")
    assert trials.groupby("method").size().to_dict() == {"cross-entropy": 2, "sl-r": 2}
