"""Explanations add up to the score, show all rows, and have bands of the right width."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from recipes import READABLE
from sklearn.linear_model import LogisticRegression

from metricgrad import MetricClassifier, additive

RNG = np.random.default_rng(0)
X = pd.DataFrame({"age": RNG.normal(40, 10, 600), "flag": RNG.integers(0, 2, 600), "size": RNG.exponential(size=600)})
Y = ((X["age"] - 40) ** 2 / 100 + X["flag"] + RNG.normal(size=600) > 1.5).astype(int)


def fitted(model: Any) -> MetricClassifier:
    return MetricClassifier("f1", "cross-entropy", model, READABLE).fit(X, Y)


MODELS = {
    name: fitted(model) for name, model in {"linear": "linear", "additive": additive(monotone={"size": 1})}.items()
}


def read(model: MetricClassifier, rows: bool) -> Any:
    return model.explain(X, Y) if rows else model.explain()


@pytest.mark.parametrize("rows", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_contributions_add_up_to_the_score(name: str, rows: bool) -> None:
    found = read(MODELS[name], rows)
    total = np.full(len(X), found.base)
    inside = np.ones(len(X), bool)
    for feature, own in found.frame.groupby("feature", sort=False):
        places, values = own["place"].to_numpy(), X[feature].to_numpy(float)
        total += np.interp(values, places, own["contribution"])
        inside &= (values >= places.min()) & (values <= places.max())
    keep = inside if name == "linear" else np.ones(len(X), bool)  # a line goes on beyond what is shown
    assert keep.mean() > 0.7
    np.testing.assert_allclose(total[keep], MODELS[name].decision_function(X)[keep], atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_every_feature_has_all_rows(name: str) -> None:
    frame = MODELS[name].explain(X, Y).frame
    np.testing.assert_allclose(frame.groupby("feature")["share"].sum(), 1)
    assert list(frame.columns) == ["feature", "level", "place", "contribution", "low", "high", "share"]
    assert (frame["low"] <= frame["high"]).all()


def test_the_band_of_a_line_is_that_of_a_bootstrap() -> None:
    x = (X - X.mean()) / X.std()
    plain = LogisticRegression(C=1e4).fit(x, Y)
    model = MetricClassifier("f1", "cross-entropy", "linear", replace(READABLE, warmup=0, rounds=0)).fit(X, Y)
    model.network_.body.weight.data[0] = torch.as_tensor(plain.coef_[0] * model.scale_ / X.std().to_numpy())
    shift = plain.intercept_[0] + plain.coef_[0] @ ((model.centre_ - X.mean()) / X.std())
    model.network_.body.bias.data[0] = float(shift)
    draws = [LogisticRegression(C=1e4).fit(x.iloc[at], Y.iloc[at]).coef_[0] for at in RNG.integers(0, 600, (60, 600))]
    frame = model.explain(X, Y).frame
    for number, feature in enumerate(X):
        own = frame[frame["feature"] == feature]
        width = (
            (own["high"] - own["low"]).iloc[-1] / abs(own["place"].iloc[-1] - model.centre_[number]) * X[feature].std()
        )
        expected = 2 * 1.645 * np.std([draw[number] for draw in draws])
        assert width == pytest.approx(expected, rel=0.4)


def test_a_monotone_shape_rises() -> None:
    frame = MODELS["additive"].explain().frame
    assert (np.diff(frame.loc[frame["feature"] == "size", "contribution"]) >= 0).all()


@pytest.mark.parametrize("name", MODELS)
def test_figures_and_pages_are_drawn(name: str) -> None:
    found = MODELS[name].explain(X, Y)
    assert set(found.figures()) == set(X.columns) == set(found.importance.index)
    page = found.page("<b>")
    assert "<b>" not in page.split("<h1>")[1][:40]
    assert page.count("<svg") == 3
    assert "<svg" in found._repr_html_()
    assert "base" in repr(found)
    with pytest.raises(ValueError, match="feature: expected one of age, flag, size, got 'weight'"):
        found.figure("weight")


def test_other_models_have_no_terms() -> None:
    with pytest.raises(ValueError, match="model: expected a linear or additive one, got Sequential"):
        fitted("small").explain()
    three = np.arange(600) % 3
    with pytest.raises(ValueError, match="explain: expected a model of two classes, got one of 3 outputs"):
        MetricClassifier("macro_f1", "cross-entropy", "linear", READABLE).fit(X, three).explain()
    assert not hasattr(fitted("small"), "get_feature_names_out")
    assert not hasattr(MetricClassifier(model="linear"), "get_feature_names_out")


@pytest.mark.parametrize("name", MODELS)
def test_terms_have_the_names_of_the_features(name: str) -> None:
    model = MODELS[name]
    assert model.feature_names_in_.tolist() == model.get_feature_names_out().tolist() == ["age", "flag", "size"]
    assert model.get_feature_names_out(["age", "flag", "size"]).tolist() == list(
        model.explain().frame["feature"].unique()
    )
    with pytest.raises(ValueError, match="input_features is not equal to feature_names_in_"):
        model.get_feature_names_out(["a", "b", "c"])


def test_pairs_have_a_level_for_every_cell() -> None:
    model = fitted(additive(interactions=1))
    frame = model.explain(X, Y).frame
    pairs = frame[frame["feature"].str.contains(" x ")]
    assert len(pairs) >= 4
    assert pairs["feature"].nunique() == 1
    assert model.get_feature_names_out().tolist() == list(frame["feature"].unique())
    with pytest.raises(ValueError, match="scorecard: expected a model without interactions"):
        model.scorecard()
