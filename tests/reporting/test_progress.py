"""Progress bars: what they show, and that they pass everything on."""

from __future__ import annotations

import math
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from made_up import a_round
from rich.progress import Progress
from sklearn.base import clone
from sklearn.datasets import make_classification
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from metricgrad import MetricClassifier, Recipe
from metricgrad.metrics.registry import f1
from metricgrad.reporting import progress
from metricgrad.training.history import Round


@pytest.fixture(autouse=True)
def a_terminal(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "file" not in request.node.name:
        monkeypatch.setenv("TTY_COMPATIBLE", "1")
        monkeypatch.setenv("NO_COLOR", "1")
        monkeypatch.setenv("COLUMNS", "160")


def rounds(validation: float = 0.31) -> list[Round]:
    warm_up = [a_round("warm-up", n, 2, steps=n, loss=0.7) for n in (1, 2)]
    later = {"loss": 0.5, "gap": 0.01, "trust": 0.9, "validation": validation}
    return [*warm_up, *(a_round("rounds", n, 3, steps=2 + n, **later) for n in (1, 2, 3))]


def test_rounds_are_passed_on_and_shown_with_the_metric_people_know(capsys: pytest.CaptureFixture[str]) -> None:
    given = rounds()
    assert list(progress.shown_rounds(iter(given), f1)) == given
    shown = capsys.readouterr().err
    assert "training: warm-up" in shown
    assert "2/2" in shown
    assert "training: rounds" in shown
    assert "3/3" in shown
    assert "validation F1 0.6900" in shown


def test_rounds_that_were_not_judged_show_no_metric(capsys: pytest.CaptureFixture[str]) -> None:
    list(progress.shown_rounds(iter(rounds(math.nan)), f1, title="demo"))
    shown = capsys.readouterr().err
    assert "demo: rounds" in shown
    assert "validation" not in shown


def test_the_bar_is_put_away_when_the_reader_stops(capsys: pytest.CaptureFixture[str]) -> None:
    passing = progress.shown_rounds(iter(rounds()), f1)
    next(passing)
    passing.close()
    assert "training: warm-up" in capsys.readouterr().err
    with Progress() as another:  # rich allows one live display at a time
        another.add_task("after")


def test_every_kind_of_work_gets_a_bar(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.work_bar() as report:
        report("judging random sets", 10, 20)
        report("judging random sets", 20, 20)
        report("fitting the surrogate", 50, 3_000)
    shown = capsys.readouterr().err
    assert "judging random sets" in shown
    assert "20/20" in shown
    assert "fitting the surrogate" in shown
    assert "50/3000" in shown


def test_nothing_is_shown_in_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert len(list(progress.shown_rounds(iter(rounds()), f1))) == 5
    assert capsys.readouterr().err == ""


pytestmark = pytest.mark.filterwarnings("ignore:.*is not faithful yet")  # training is too short for that

X, Y = make_classification(600, 6, weights=[0.8], random_state=0)
QUICK = Recipe(warmup=30, rounds=10, model_steps=3, check_every=5, trust_cap=50)


def fitted(callback: Any, **how: Any) -> MetricClassifier:
    return MetricClassifier("f1", method="sl-r", model="linear", recipe=QUICK, callback=callback, **how).fit(X, Y)


def test_a_callback_sees_every_round_in_order_and_changes_nothing() -> None:
    seen: list[Round] = []
    model = fitted(seen.append)
    assert seen == model.history_ or str(seen) == str(model.history_)
    assert len(seen) == 20
    assert [done.steps for done in seen] == sorted(done.steps for done in seen)
    assert (model.decision_function(X) == fitted(None).decision_function(X)).all()


def test_the_control_of_a_round_is_still_found_by_its_old_name() -> None:
    done = Round("rounds", 1, 2, 3, 0.5, 0.1, 0.9, 0.8, 0.4, True, 0.25, 1.0)
    with pytest.warns(DeprecationWarning, match="Round.companion is deprecated: use Round.control"):
        assert done.companion == 0.25


def test_scalars_are_the_finite_numbers_of_a_round_whatever_its_fields_are() -> None:
    for done in fitted(None).history_:
        found = done.scalars()
        assert {"loss", "seconds"} <= set(found)
        assert all(type(value) is float and math.isfinite(value) for value in found.values())
        assert ("validation" in found) == math.isfinite(done.validation)
        assert ("gap" in found) == (done.phase == "rounds")


def test_tensorboard_gets_the_numbers_at_their_steps(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:

        def log(done: Round) -> None:
            for name, value in done.scalars().items():
                writer.add_scalar(f"metricgrad/{name}", value, done.steps)

        model = fitted(log)
    events = EventAccumulator(str(tmp_path)).Reload()
    kept = [(event.step, event.value) for event in events.Scalars("metricgrad/validation")]
    checked = [(done.steps, done.validation) for done in model.history_ if math.isfinite(done.validation)]
    assert len(kept) == len(checked) > 2
    for (step, value), (steps, validation) in zip(kept, checked, strict=True):
        assert step == steps
        assert value == pytest.approx(validation)


def test_a_callback_survives_clone_but_is_left_out_of_a_pickle() -> None:
    lock = threading.Lock()  # what loggers hold, and nobody can pickle

    def log(done: Round) -> None:
        with lock:
            pass

    model = fitted(log)
    assert clone(model).callback is log
    copy = pickle.loads(pickle.dumps(model))
    assert copy.callback is None
    assert (copy.predict(X) == model.predict(X)).all()
    assert model.callback is log


def test_what_a_callback_raises_is_raised() -> None:
    def fail(done: Round) -> None:
        raise ConnectionError("the logger is gone")

    with pytest.raises(ConnectionError, match="the logger is gone"):
        fitted(fail)


def test_a_callback_that_cannot_be_called_is_refused() -> None:
    with pytest.raises(TypeError, match="callback: expected a function of a Round or None, got 'tensorboard'"):
        fitted("tensorboard")
