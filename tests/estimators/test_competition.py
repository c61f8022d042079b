"""Folds and competing models: what is trained, chosen, averaged and reported."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.metrics import average_precision_score, f1_score
from torch import nn

from metricgrad import MetricClassifier, Recipe, black_box
from metricgrad.estimators.candidates import Candidate, HeldOut, Judge, NumberCandidate, RuleCandidate, scale_of
from metricgrad.estimators.competition import Competition
from metricgrad.estimators.leaderboard import ranked
from metricgrad.estimators.metric_estimator import Trained
from metricgrad.metrics.constants import Units
from metricgrad.metrics.registry import f1, get_metric
from metricgrad.strategies.named import Named
from metricgrad.strategies.registry import NUMBER_STRATEGIES, STRATEGIES
from metricgrad.training.data import Rows, Scaler
from metricgrad.training.networks import MIXTURE, Scorer
from metricgrad.training.splits import folds
from metricgrad.training.trees import has_lightgbm

SHORT = Recipe(warmup=60, rounds=5, set_size=200, refine_sets=2, learning_rate=0.03, trust=-1.0, patience=None)
X, Y = make_classification(
    600, 6, n_informative=4, n_redundant=0, n_clusters_per_class=2, weights=[0.7], flip_y=0.1, random_state=0
)
X, Y = (part[np.lexsort(X.T[::-1])] for part in (X, Y))  # in the order in which equal rows are merged


class Fixed(nn.Module):
    """Scores rows by their first feature."""

    def __init__(self, noise: float, column: int = 1) -> None:
        super().__init__()
        self.noise, self.column = nn.Parameter(torch.tensor(noise)), column

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :1] + self.noise * x[:, self.column, None]


def rows_of(fold: int, n: int = 300) -> Rows:
    """Rows whose first feature is the target with some noise, and whose second is noise."""
    generator = torch.Generator().manual_seed(fold)
    y = (torch.rand(n, generator=generator) < 0.3).float()
    noise = torch.randn(n, 2, generator=generator)
    return Rows(torch.stack((y + 0.3 * noise[:, 0], noise[:, 1]), 1), y)


def entered(noises: dict[str, float], count: int = 5, limit: float | None = None, stop_at: int | None = None) -> Any:
    """Run a competition of fixed models; the fit of a certain number is interrupted."""
    candidates = [Candidate(name, SHORT, Named("cross-entropy")) for name in noises]
    calls: list[tuple[str, int]] = []

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
        calls.append((candidate.name, fold))
        return Trained(Scorer(Fixed(noises[candidate.name])), [], len(calls) == stop_at, None, f1), rows_of(fold)

    found = Competition(candidates, count, limit)
    found.run(train)
    return found, calls


def test_the_best_on_held_out_rows_is_chosen_and_one_surely_behind_is_not_trained_on() -> None:
    found, calls = entered({"worse": 3.0, "best": 0.0, "close": 0.05})
    assert found.best.name == "best"
    assert calls.count(("worse", 0)) == 1
    assert ("worse", 1) not in calls
    assert ("close", 4) in calls
    lines = {line["model"]: line for line in found.results(0.9)}
    assert lines["worse"]["note"] == "surely behind after 1 of 5 folds"
    assert lines["worse"]["behind"] > 2 * lines["worse"]["standard_error"] > 0
    assert lines["close"]["folds"] == 5
    assert found.results(0.9)[0]["model"] == "best"
    assert ranked(found.results(0.9), f1)[0] == "best by log loss was chosen: F1 0.9000 on held-out rows"


def test_the_chosen_model_comes_first_even_if_another_was_ahead_of_it_on_the_folds_of_both() -> None:
    found, _ = entered({"first": 0.05, "second": 0.0})
    found.best = found.candidates[0]  # as if it had overtaken the second on later folds
    first, second = found.results(0.9)
    assert first["model"] == "first"
    assert second["behind"] < 0 == first["behind"]


@pytest.mark.parametrize(("columns", "kept"), [(False, "sl-r"), (True, "weighted")])
def test_by_a_metric_with_columns_a_strategy_must_beat_every_simpler_one(columns: bool, kept: str) -> None:
    noises = {"proper": 1.0, "weighted": 0.08, "sl-r": 0.0}  # the last is ahead of the second by less than the noise
    metric = replace(f1, columns=("amount",)) if columns else f1
    by_name = {strategy.name: strategy for strategy in STRATEGIES}
    model = "linear"
    candidates = [Candidate(model, SHORT, by_name[name]) for name in noises]

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
        return Trained(Scorer(Fixed(noises[candidate.strategy.name])), [], False, None, metric), rows_of(fold)

    found = Competition(candidates, 2)
    found.run(train)
    behind = {line["methods"]: (line["behind"], line["standard_error"]) for line in found.results(0.9)}
    assert found.best.strategy.name == kept
    if not columns:
        assert 0 < behind["weighted"][0] < behind["weighted"][1]
        assert behind["proper"][0] > behind["proper"][1]


@pytest.mark.parametrize(("noise", "kept"), [(0.2, "sl-r"), (0.1, "proper")])
def test_by_a_metric_with_columns_one_standard_error_is_not_enough(noise: float, kept: str) -> None:
    metric, by_name = replace(f1, columns=("amount",)), {strategy.name: strategy for strategy in STRATEGIES}
    noises, model = {"proper": noise, "sl-r": 0.0}, "linear"
    candidates = [Candidate(model, SHORT, by_name[name]) for name in noises]

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
        return Trained(Scorer(Fixed(noises[candidate.strategy.name])), [], False, None, metric), rows_of(fold)

    found = Competition(candidates, 2)
    found.run(train)
    usual, learned = (each.judged() for each in candidates)
    gain, error = usual.loss(found.judge) - learned.loss(found.judge), usual.error_against(learned, found.judge)
    assert gain > error > 0
    assert found.best.strategy.name == kept


class Doubtful(RuleCandidate):
    """A rule whose decision scores are worse than the scores of its model by less than noise."""

    rule = None

    def judged(self, folds: int | None = None) -> HeldOut:
        rows = Candidate.held_out(self, folds)
        noise = torch.randn(len(rows.y), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        return rows._replace(scores=rows.scores + self.noise * noise)

    noise = 0.05


@pytest.mark.parametrize(("noise", "kept"), [(0.05, "plug-in"), (1.0, "proper")])
def test_by_a_metric_with_columns_the_usual_loss_must_beat_the_plug_in_rule(noise: float, kept: str) -> None:
    metric = replace(f1, columns=("amount",))
    by_name = {strategy.name: strategy for strategy in STRATEGIES}
    model = "linear"
    candidates = [Candidate(model, SHORT, by_name["proper"]), Doubtful(model, SHORT, by_name["plug-in"])]
    candidates[1].noise = noise

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
        return Trained(Scorer(Fixed(0.1)), [], False, None, metric), rows_of(fold)

    found = Competition(candidates, 2)
    found.run(train)
    proper, rule = (each.judged().loss(found.judge) for each in candidates)
    assert proper < rule
    assert found.best.strategy.name == kept


def numbers_of(noises: dict[str, float], folds: int) -> tuple[Competition, list[str]]:
    """Run a competition of strategies of numbers; every model is wrong by noise of its own, and by 7."""
    by_name, units, metric = {one.name: one for one in NUMBER_STRATEGIES}, Units(), get_metric("mae")
    candidates = [NumberCandidate("linear", SHORT, by_name[name], units, metric) for name in noises]
    trained: list[str] = []

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
        trained.append(candidate.strategy.name)
        x = torch.randn(300, 3, generator=torch.Generator().manual_seed(fold)).double()
        network = Scorer(Fixed(noises[candidate.strategy.name], 1 + candidate.strategy.learned))
        return Trained(network, [], False, None, metric), Rows(x, x[:, 0] + 7.0)

    found = Competition(candidates, folds, judge=Judge(metric, metric))
    found.run(train)
    return found, trained


class Moved(nn.Module):
    """Scores rows by their first feature, from another level."""

    def __init__(self, level: float) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.tensor(level, dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :1] + self.level


def test_by_a_metric_of_order_the_level_of_a_fold_does_not_matter() -> None:
    metric = get_metric("censored_concordance")
    candidate = NumberCandidate("linear", SHORT, NUMBER_STRATEGIES[0], Units(), metric)
    for fold, level in enumerate((0.0, 50.0, -50.0)):
        x = torch.randn(200, 1, generator=torch.Generator().manual_seed(fold)).double()
        y = torch.stack((x[:, 0], torch.ones(200).double()), -1)
        candidate.add(Trained(Scorer(Moved(level)), [], False, None, metric), Rows(x, y))
    judge = Judge(metric, metric)
    assert candidate.held_out().loss(judge) > 0.2
    assert candidate.judged().loss(judge) < 0.05
    assert candidate.judged(1).loss(judge) == pytest.approx(0.0, abs=1e-9)


def test_numbers_are_judged_at_their_constant_in_their_own_unit() -> None:
    found, _ = numbers_of({"mse": 0.5, "mae": 0.1}, 3)
    assert found.best.strategy.name == "mae"
    assert float(found.best.judged().scores.mean() - found.best.held_out().scores.mean()) == pytest.approx(7, abs=0.1)
    verdict = found.verdict()
    assert verdict is not None
    assert verdict.gain == pytest.approx(0.4 * np.sqrt(2 / np.pi), abs=0.03)
    assert (verdict.rows, verdict.positives, verdict.proxy) == (900, 0, "squared error")


@pytest.mark.parametrize(("noise", "kept"), [(0.087, "mae"), (0.05, "surrogate")])
def test_what_follows_a_metric_of_numbers_must_beat_the_best_loss_beyond_noise(noise: float, kept: str) -> None:
    found, _ = numbers_of({"mse": 0.5, "mae": 0.1, "huber": 0.11, "surrogate": noise}, 1)
    own, usual = found.candidates[3], found.candidates[1]
    assert own.judged().loss(found.judge) < usual.judged().loss(found.judge)
    assert found.best.strategy.name == kept


def test_the_loss_that_another_strategy_starts_from_is_trained_on_though_it_is_behind() -> None:
    _, trained = numbers_of({"mse": 2.0, "mae": 0.6, "huber": 1.0, "surrogate": 0.05}, 3)
    assert trained == ["mse", "mae", "huber", "surrogate", *2 * ["mse", "mae", "surrogate"]]


def test_what_is_behind_is_the_difference_of_the_pooled_losses() -> None:
    found, _ = entered({"best": 0.0, "close": 0.05})
    close = next(one for one in found.candidates if one is not found.best)
    pooled = [torch.cat([standard(f.scores) for f in one.folds]) for one in (close, found.best)]
    y = torch.cat([rows_of(fold).y for fold in range(5)])
    losses = [float(f1.best(scores, y)) for scores in pooled]
    line = next(line for line in found.results(0.9) if line["model"] == close.name)
    assert line["behind"] == pytest.approx(losses[0] - losses[1])


def standard(scores: torch.Tensor) -> torch.Tensor:
    return (scores - scores.mean()) / scores.std(correction=0)


def test_when_time_is_up_what_was_trained_is_used_and_what_was_not_is_named() -> None:
    found, calls = entered({"first": 0.0, "second": 3.0}, limit=-1.0)
    assert calls == [("first", 0)]
    assert found.interrupted
    assert found.best.name == "first"
    assert found.results(0.9)[1]["note"] == "not tried: training was stopped before"


@pytest.mark.parametrize(("stop_at", "trained"), [(1, [1, 0]), (2, [1, 0]), (3, [1, 1]), (4, [2, 1])])
def test_an_interrupted_model_is_used_only_if_there_is_no_other(stop_at: int, trained: list[int]) -> None:
    found, _ = entered({"first": 0.0, "second": 0.001}, stop_at=stop_at)
    assert found.interrupted
    assert [len(one.folds) for one in found.candidates] == trained
    assert found.best.folds


def test_scores_of_classes_keep_their_differences() -> None:
    scores = torch.randn(50, 3).double() * 4 + torch.tensor([0.0, 5.0, -2.0])
    centre, scale = scale_of(scores, classes=True)
    assert torch.equal(((scores - centre) / scale).argmax(-1), scores.argmax(-1))
    assert len(scale.unique()) == 1


# ---- as an estimator -----------------------------------------------------------------------------------------------


def test_a_model_of_folds_is_the_average_of_models_of_its_folds() -> None:
    model = MetricClassifier("f1", "cross-entropy", "linear", random_state=0, folds=3).fit(X, Y)
    scaler = Scaler.fit(X)
    x, total, pooled = scaler.transform(X), np.zeros(len(X)), np.zeros(len(X))
    for _, held_out in folds(Y, 3, 0):
        own = MetricClassifier("f1", "cross-entropy", "linear", standardise=False, random_state=0)
        own.fit(x, Y, validation=held_out)
        scores = own._raw_scores(x).numpy()
        centre, spread = scores[held_out].mean(), scores[held_out].std()
        total += (scores - centre) / spread / 3
        pooled[held_out] = (scores[held_out] - centre) / spread
    np.testing.assert_allclose(model.decision_function(X) + model.threshold_, total, rtol=1e-5, atol=1e-6)
    cut = max(f1_score(Y, pooled >= t) for t in pooled)
    assert 1 - model.validation_loss_ == pytest.approx(cut)
    assert f1_score(Y, pooled >= model.threshold_) == pytest.approx(cut)


@pytest.mark.parametrize("model", ["small", "additive", "linear", "tabm"])
def test_folds_say_how_many_of_them_followed_the_metric(model: str) -> None:
    fitted = MetricClassifier("average_precision", model=model, recipe=SHORT, folds=2).fit(X, Y)
    assert fitted.verdict_.folds == 2
    assert fitted.verdict_.followed == (fitted.verdict_.kept > 0)
    assert np.isfinite(fitted.verdict_.gain)
    assert fitted.results_[0]["folds"] == 2
    assert average_precision_score(Y, fitted.decision_function(X)) > 0.6
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))


@pytest.mark.skipif(not has_lightgbm(), reason="needs LightGBM")
def test_auto_chooses_the_model_with_the_best_held_out_value() -> None:
    found = MetricClassifier("auc", "cross-entropy", "auto", random_state=0).fit(X, Y)
    board = found.leaderboard()
    assert set(board["model"]) - {MIXTURE} == {"linear", "additive", "lightgbm", "tabm"}
    assert board["model"][0] == found.network_.name
    assert MIXTURE not in set(board["model"][1:])
    assert (board["behind"] >= 0).all()
    assert board["behind"][0] == 0
    assert board["folds"][0] == 5
    readable = MetricClassifier("auc", "cross-entropy", "readable", random_state=0).fit(X, Y)
    assert set(readable.leaderboard()["model"]) == {"linear", "additive"}
    terms = readable.explain().frame
    assert len(terms)


@pytest.mark.skipif(not has_lightgbm(), reason="needs LightGBM")
def test_trees_are_a_model_like_others() -> None:
    import lightgbm

    held_out = np.arange(0, 600, 4)
    model = MetricClassifier("f1", model="lightgbm", random_state=3).fit(X, Y, validation=held_out)
    assert isinstance(lightgbm.__version__, str)
    assert model.verdict_ is None
    assert model.history_ == []
    assert model.score(X, Y) > 0.85
    assert "behind" in model.leaderboard()


@pytest.mark.parametrize("metric", ["f1", "average_precision"])
def test_strategies_compete_and_the_usual_loss_stays_unless_another_is_better_than_noise(metric: str) -> None:
    model = MetricClassifier(metric, "auto", "linear", random_state=0, folds=3).fit(X, Y)
    lines = {line["methods"]: line for line in model.results_}
    assert lines.keys() == {"proper", "weighted", "hand-made", "direct", "sl-r"}
    usual, verdict = lines["proper"], model.verdict_
    assert usual["folds"] == 3  # it is never dropped: the others are compared with it
    if verdict.followed:
        chosen = model.results_[0]
        assert verdict.strategy == chosen["methods"] != "proper"
        assert usual["behind"] > 0.5 * usual["standard_error"]
        assert verdict.gain == pytest.approx(usual["behind"])
    else:
        assert model.results_[0]["methods"] == "proper"
        assert verdict.gain <= 0.5 * verdict.error
    assert (verdict.rows, verdict.positives) == (600, min(Y.sum(), 600 - Y.sum()))


def test_among_strategies_the_usual_loss_gives_the_model_that_it_gives_alone() -> None:
    together = MetricClassifier("f1", "auto", "linear", random_state=0, folds=1).fit(X, Y)
    alone = MetricClassifier("f1", "cross-entropy", "linear", random_state=0, folds=1).fit(X, Y)
    value = next(line["value"] for line in together.results_ if line["methods"] == "proper")
    assert value == pytest.approx(f1.value(alone.validation_loss_), abs=1e-12)


def test_a_network_is_tried_by_the_strategies_that_suit_it() -> None:
    model = MetricClassifier("average_precision", "auto", "small", recipe=SHORT, folds=1).fit(X, Y)
    assert {line["methods"] for line in model.results_} == {"proper", "hand-made", "sl-r"}
    assert len({one.name for one in STRATEGIES}) == len(STRATEGIES)


def test_with_few_rows_of_a_class_nothing_but_the_usual_loss_is_tried() -> None:
    few = np.flatnonzero(Y == 1)[:29]
    kept = np.concatenate((np.flatnonzero(Y == 0), few))
    model = MetricClassifier("f1", "auto", "linear").fit(X[kept], Y[kept])
    assert [line["methods"] for line in model.results_] == ["proper"]
    told = "kept cross-entropy in all 5 folds: 29 held-out rows of the rarer class are too few to choose by"
    assert str(model.verdict_) == told
    enough = np.concatenate((kept, np.flatnonzero(Y == 1)[29:30]))
    assert len(MetricClassifier("f1", "auto", "linear").fit(X[enough], Y[enough]).results_) > 1


def test_what_counts_as_few_are_the_rows_that_are_held_out() -> None:
    few = np.concatenate((np.flatnonzero(Y == 0), np.flatnonzero(Y == 1)[:140]))  # a fifth of 140 is 28
    one = MetricClassifier("f1", "auto", "linear", folds=1, random_state=0).fit(X[few], Y[few])
    assert [line["methods"] for line in one.results_] == ["proper"]
    assert "28 held-out rows of the rarer class are too few to choose by" in str(one.verdict_)
    assert len(MetricClassifier("f1", "auto", "linear", folds=5).fit(X[few], Y[few]).results_) > 1


def test_a_competition_that_was_stopped_early_chooses_no_strategy_by_few_rows() -> None:
    by_name = {strategy.name: strategy for strategy in STRATEGIES}
    candidates = [Candidate("linear", SHORT, by_name[name]) for name in ("proper", "weighted")]

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
        noise = {"proper": 0.5, "weighted": 0.0}[candidate.strategy.name]
        return Trained(Scorer(Fixed(noise)), [], fold == 1, None, f1), rows_of(fold, 60)

    found = Competition(candidates, 5, mixes=True)
    found.run(train)
    verdict = found.verdict()
    assert found.interrupted
    assert rows_of(0, 60).y.sum() < 30
    assert found.best.strategy.name == "proper"
    assert verdict is not None
    assert "held-out rows of the rarer class are too few to choose by" in str(verdict)


@pytest.mark.skipif(not has_lightgbm(), reason="needs LightGBM")
def test_the_cheapest_candidates_are_trained_first() -> None:
    order: list[tuple[str, str]] = []

    class Noting(MetricClassifier):
        def _compete(self, *rest: Any) -> Any:
            found = super()._compete(*rest)
            order.extend((one.name, one.strategy.name) for one in found.candidates)
            return found

    Noting("f1", "auto", "auto", SHORT, time_limit=0.01).fit(X, Y)
    dear = [name == "tabm" or strategy in ("direct", "sl-r") for name, strategy in order]
    assert dear == sorted(dear)
    assert order[0] == ("linear", "proper")
    assert [name for name, _ in order].index("lightgbm") < order.index(("linear", "sl-r"))
    assert {name for name, _ in order[-3:]} == {"tabm"}


def test_a_stop_in_the_warm_up_that_strategies_share_keeps_the_model_so_far() -> None:
    model = MetricClassifier("f1", "auto", "small", recipe=SHORT, callback=lambda done: done.steps >= 20).fit(X, Y)
    assert model.interrupted_
    assert [line["folds"] for line in model.results_] == [1, 0, 0]
    assert model.results_[0]["methods"] == "proper"
    assert model.predict(X).shape == Y.shape


def test_groups_are_never_both_trained_on_and_held_out() -> None:
    group = np.repeat(np.arange(60), 10)
    leak = np.column_stack((X, np.eye(60)[group]))  # a column for each group: worth nothing for an unseen one
    y = np.random.default_rng(0).integers(0, 2, 60)[group]  # the target is the group's
    for count in (1, 5):
        blind = MetricClassifier("auc", "cross-entropy", "linear", folds=count, random_state=0)
        blind.fit(leak, y, groups=group)
        assert 1 - blind.validation_loss_ < 0.75
    seen = MetricClassifier("auc", "cross-entropy", "linear", folds=5, random_state=0).fit(leak, y)
    assert 1 - seen.validation_loss_ > 0.95


def test_several_classes_can_have_folds() -> None:
    x, y = make_classification(400, 5, n_informative=4, n_redundant=0, n_classes=3, random_state=1)
    model = MetricClassifier("macro_f1", "cross-entropy", "linear", folds=3).fit(x, y)
    assert model.score(x, y) > 0.55
    assert model.threshold_.shape == (3,)


def test_a_costly_metric_and_few_rows_have_one_split() -> None:
    profit = black_box(lambda y, p: float((p * (2 * y - 1)).mean()), higher_is_better=True, labels=True, max_calls=100)
    model = MetricClassifier(profit, "cross-entropy", "readable", recipe=SHORT).fit(X, Y)
    assert model.results_[0]["folds"] == 1
    few = np.r_[0, 1, 2, np.arange(10, 60)]
    one = np.r_[1, 1, 1, np.zeros(50, int)]
    assert MetricClassifier("f1", "cross-entropy", "readable").fit(X[few], one).results_[0]["folds"] == 1


def test_the_time_limit_ends_a_competition() -> None:
    model = MetricClassifier("f1", model="auto", recipe=replace(SHORT, rounds=5_000), time_limit=0.5).fit(X, Y)
    assert model.interrupted_
    assert any(line["folds"] < 5 for line in model.results_)
    assert np.isfinite(model.decision_function(X)).all()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"folds": 0}, "folds: expected an integer of at least 1 or None, got 0"),
        ({"folds": 2.0}, "folds: expected an integer of at least 1 or None, got 2.0"),
        ({"folds": True}, "folds: expected an integer of at least 1 or None, got True"),
        ({"folds": 500}, "folds: expected at most [0-9]+, the rows of the smallest class, got 500"),
        ({"folds": 2, "threshold": "cv"}, "folds: expected 1 with threshold='cv', got 2"),
        ({"folds": 2, "warm_start": True}, "folds: expected 1 with warm_start, got 2"),
    ],
)
def test_folds_that_cannot_be_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MetricClassifier("f1", "cross-entropy", "linear", recipe=SHORT, **how).fit(X, Y)


def test_folds_with_given_validation_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="folds: expected 1 with given validation rows, got 2"):
        MetricClassifier("f1", "cross-entropy", "linear", recipe=SHORT, folds=2).fit(X, Y, validation=np.arange(100))


def test_the_card_of_a_competition_is_shown() -> None:
    model = MetricClassifier("f1", "cross-entropy", "readable", folds=2).fit(X, Y)
    assert "rows that each fold left out" in model._card()
    assert model.results_[0]["model"] in model._card()


def test_trees_that_won_are_compared_with_the_best_model_by_the_usual_loss() -> None:
    noises, proper = {"linear": 0.5, "additive": 0.2, "lightgbm": 0.0}, STRATEGIES[0]

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
        return Trained(Scorer(Fixed(noises[candidate.name])), [], False, None, f1), rows_of(fold)

    entered = [Candidate(name, SHORT, Named("cross-entropy") if name == "lightgbm" else proper) for name in noises]
    found = Competition(entered, 3)
    found.run(train)
    verdict, additive = found.verdict(), entered[1].judged()
    assert found.best.name == "lightgbm"
    assert verdict is not None
    assert str(verdict).startswith("kept lightgbm by log loss: it gained ")
    assert f"over additive by cross-entropy on {len(additive.y)} held-out rows" in str(verdict)
    common = entered[2].judged(len(entered[1].folds))
    assert verdict.gain == pytest.approx(additive.loss(found.judge) - common.loss(found.judge))
    names = ["linear by cross-entropy", "additive by cross-entropy", "lightgbm by log loss"]
    assert [each.name for each in verdict.tried] == names


def test_the_verdict_compares_with_a_strategy_that_was_not_dropped() -> None:
    noises = {"proper": 0.0, "weighted": 0.1, "sl-r": 5.0}
    by_name, model = {strategy.name: strategy for strategy in STRATEGIES}, "linear"

    def train(candidate: Candidate, fold: int, left: float | None) -> tuple[Trained, Rows]:
        return Trained(Scorer(Fixed(noises[candidate.strategy.name])), [], False, None, f1), rows_of(fold)

    found = Competition([Candidate(model, SHORT, by_name[name]) for name in noises], 3)
    found.run(train)
    verdict = found.verdict()
    assert len(found.candidates[2].folds) == 1  # surely behind
    assert verdict is not None
    assert (verdict.strategy, verdict.rows) == ("weighted", 900)


@pytest.mark.parametrize(
    ("method", "metric", "columns"),
    [
        ("weighted", "f1", None),
        ("hand-made", "average_precision", None),
        ("plug-in", "value_at_capacity(0.1, amount)", "amount"),
        ("cost-weighted", "value_at_capacity(0.1, amount)", "amount"),
    ],
)
def test_a_strategy_can_be_asked_for_by_name(method: str, metric: str, columns: str | None) -> None:
    x, y = make_classification(600, 5, weights=[0.8], random_state=0)
    amounts = {columns: np.random.default_rng(0).uniform(1, 9, len(y))} if columns else None
    model = MetricClassifier(metric, method, "linear", random_state=0).fit(x, y, columns=amounts)
    board = model.leaderboard()
    assert board["methods"].tolist() == [method, "proper"]
    assert board["folds"].tolist() == [1, 1]


def test_a_strategy_that_does_not_suit_is_refused() -> None:
    x, y = make_classification(200, 5, random_state=0)
    with pytest.raises(ValueError, match=r"method: expected one that suits 'f1' and the model, got 'plug-in'"):
        MetricClassifier("f1", "plug-in", "linear").fit(x, y)
    with pytest.raises(ValueError, match=r"method: expected one of .*, got 'weighted'"):
        MetricClassifier("macro_f1", "weighted", "linear").fit(x, y)
