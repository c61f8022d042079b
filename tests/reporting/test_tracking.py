"""Rounds reach whoever keeps track of them, as plain numbers."""

from __future__ import annotations

import math
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

from metricgrad import MetricClassifier, Recipe, scalars
from metricgrad.training.trainer import Round

pytestmark = pytest.mark.filterwarnings("ignore:.*is not faithful yet")  # training is too short for that

X, Y = make_classification(600, 6, weights=[0.8], random_state=0)
QUICK = Recipe(warmup=30, rounds=10, check_every=5, trust_cap=50)


def fitted(callback: Any, **how: Any) -> MetricClassifier:
    return MetricClassifier("f1", model="linear", recipe=QUICK, callback=callback, **how).fit(X, Y)


def test_a_callback_sees_every_round_in_order_and_changes_nothing() -> None:
    seen: list[Round] = []
    model = fitted(seen.append)
    assert seen == model.history_ or str(seen) == str(model.history_)
    assert len(seen) == 20
    assert [done.steps for done in seen] == sorted(done.steps for done in seen)
    assert (model.decision_function(X) == fitted(None).decision_function(X)).all()


def test_scalars_are_the_finite_numbers_of_a_round_whatever_its_fields_are() -> None:
    for done in fitted(None).history_:
        found = scalars(done)
        assert {"loss", "seconds"} <= set(found)
        assert all(type(value) is float and math.isfinite(value) for value in found.values())
        assert ("validation" in found) == math.isfinite(done.validation)
        assert ("gap" in found) == (done.phase == "rounds")


def test_tensorboard_gets_the_numbers_at_their_steps(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:

        def log(done: Round) -> None:
            for name, value in scalars(done).items():
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
