"""The demonstration judges every hour once, by models that have not seen its day, and counts costs rightly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from short_demo import REPORTS, short_demo

from metricgrad.demo import trial
from metricgrad.demo.trial import BEST_USUAL, METHODS, OURS, SQUARED, DemoResult, Trial, run_demo


@pytest.fixture(scope="module")
def result() -> DemoResult:
    return short_demo()


def cost(predictions: np.ndarray, bikes: np.ndarray) -> float:
    short, over = np.maximum(bikes - predictions, 0), np.maximum(predictions - bikes, 0)
    return float((5 * short + over + 10 * (short > 0)).mean())


def test_every_hour_is_judged_once_and_no_day_in_two_splits(result: DemoResult) -> None:
    assert sorted(result.hours) == list(range(len(result.bikes.y)))
    days = [set(result.bikes.day[own.hours]) for own in result.trials]
    assert not days[0] & days[1]


def test_the_cost_is_five_short_one_over_and_ten_if_short(result: DemoResult) -> None:
    for method in METHODS:
        own = [cost(one.predictions[method], result.bikes.y[one.hours]) for one in result.trials]
        np.testing.assert_allclose(result.costs(method), own)
        curves = result.curves()
        at = curves["shift"].index(0.0)
        every = cost(result.predictions(method), result.bikes.y[result.hours])
        assert curves[method][at] == pytest.approx(every, abs=1e-3)
        moved = cost(result.predictions(method) + 40, result.bikes.y[result.hours])
        assert curves[method][-1] == pytest.approx(moved, abs=1e-3)


def test_predictions_are_those_of_the_models_and_each_has_its_own_constant(result: DemoResult) -> None:
    for one in result.trials:
        assert one.models[SQUARED].results_[0]["methods"] == "mse"
        assert one.models[BEST_USUAL].results_[0]["methods"] not in ("surrogate", "direct")
        for method, model in one.models.items():
            np.testing.assert_array_equal(one.predictions[method], model.predict(result.bikes.X.iloc[one.hours]))
        losses = [one.models[method].results_[0]["value"] for method in (OURS, BEST_USUAL, SQUARED)]
        assert losses == sorted(losses)  # on validation rows, at the best constant


def test_the_interval_is_the_corrected_one(result: DemoResult) -> None:
    saved = 1 - result.costs(OURS) / result.costs(SQUARED)
    half = stats.t.ppf(0.975, 1) * saved.std(ddof=1) * np.sqrt(1 / 2 + 1)  # as many test rows as others
    found = result.saved(SQUARED)
    np.testing.assert_allclose(
        (found.mean, found.low, found.high), (saved.mean(), saved.mean() - half, saved.mean() + half)
    )


def made_up(ours: float, squared: float, usual: float) -> DemoResult:
    """A result of four splits of two hours in which every bike is one over; costs then are what predictions say."""
    bikes = trial.load_bikes()
    values = dict(zip(METHODS, (ours, squared, usual), strict=True))
    trials = [
        Trial(
            np.array([2 * i, 2 * i + 1]),
            {m: bikes.y[2 * i : 2 * i + 2] + value * (1 + 0.01 * i) for m, value in values.items()},
            {},
        )
        for i in range(4)
    ]
    return DemoResult(trial.get_metric(trial.METRIC), bikes, trials, 0, 1.0)


def test_the_verdict_says_what_came_whichever_way() -> None:
    won = made_up(8, 10, 9).verdict
    assert "costs 20.0 % less than by squared error" in won
    assert "it saves 11.1 % (11.1 to 11.1 %), ahead in 4 of 4 splits." in won
    lost = made_up(10, 10, 9)
    noisy = replace(
        lost,
        trials=[
            replace(one, predictions={**one.predictions, OURS: one.predictions[OURS] + (-1) ** i})
            for i, one in enumerate(lost.trials)
        ],
    )
    assert noisy.verdict.startswith("No reliable difference to squared error with its best constant: ")
    assert made_up(8, 10, 7).verdict.endswith("it saves −14.3 % (−14.3 to −14.3 %), ahead in 0 of 4 splits.")


def test_progress_only_rises_and_ends_full(result: DemoResult) -> None:
    done = [number for _, number, _ in REPORTS]
    assert done == sorted(done)
    assert REPORTS[-1] == ("models", 2 * trial.LOSSES, 2 * trial.LOSSES)
    assert len(set(done)) >= 2 * (trial.LOSSES - 1)


def test_ctrl_c_ends_it_at_once(monkeypatch: pytest.MonkeyPatch, result: DemoResult) -> None:
    def stop(what: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_demo(0, result.bikes, splits=2, report=stop)


def test_the_record_is_plain_data_and_says_how_it_was_made(result: DemoResult) -> None:
    record = result.record("metricgrad demo --seed 3")
    assert (record["command"], record["seed"]) == ("metricgrad demo --seed 3", 3)
    assert record["hours"] == len(result.bikes.y)
    assert {"metricgrad", "date", "commit"} <= set(record["made_by"])
    for method in METHODS:
        errors = result.errors(method)
        assert record["short"][method] == pytest.approx((errors < 0).mean(), abs=1e-5)
        assert record["over"][method] == pytest.approx(errors[errors > 0].sum() / len(errors), abs=1e-3)
        assert len(record["followed"][method]) == 2
