"""The ensemble network with piecewise-linear encoding: its members, its encoding, how it is trained and kept."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from torch.nn import functional as F

from metricgrad import MetricClassifier, MetricRanker, Recipe, TableClassifier, get_metric, load, save
from metricgrad.losses.default import proxy_for
from metricgrad.metrics.tasks import BINARY
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.tabular.batch_predict import export
from metricgrad.training.additive import Additive
from metricgrad.training.data import Rows
from metricgrad.training.ensemble import members_of, present_scores, scores_in_both_modes
from metricgrad.training.networks import Scorer, build_model, kind_of
from metricgrad.training.recipe import RECIPES, recipe_for, stored_recipe
from metricgrad.training.selection import Selection, scores_of
from metricgrad.training.steps import objectives
from metricgrad.training.tabm import SHAPE, TabM
from metricgrad.training.trainer import train

SHORT = Recipe(rounds=1, model_steps=2, warmup=4, set_size=40, trust=-1.0, check_every=1, early_stopping=True)
SHAPES = st.tuples(st.integers(1, 60), st.integers(1, 4))
WIDE = st.one_of(st.floats(-100, 100, width=16), st.integers(-3, 3).map(float))
TABLES = SHAPES.flatmap(lambda shape: arrays(np.float32, shape, elements=WIDE))


def table(rows: int = 300, seed: int = 0) -> np.ndarray:
    """Numbers, a column of two values, a constant one, and one of few values."""
    rng = np.random.default_rng(seed)
    columns = [rng.normal(size=(rows, 2)), rng.integers(0, 2, (rows, 1)), np.full((rows, 1), 0.5)]
    return np.hstack([*columns, rng.integers(0, 4, (rows, 1))]).astype(np.float32)


def prepared(x: np.ndarray, outputs: int | None = None, seed: int = 0) -> Scorer:
    model = build_model("tabm", x.shape[1], seed, outputs)
    model.prepare(torch.from_numpy(x))
    return model.eval()


def body(model: Scorer) -> TabM:
    assert isinstance(model.body, TabM)
    return model.body


def labels(x: np.ndarray) -> np.ndarray:
    return (x[:, 0] * x[:, 1] > 0).astype(int)


# ---- scores --------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_members_are_plain_networks_and_the_score_is_their_mean() -> None:
    x = torch.from_numpy(table()).double()
    model = prepared(table()).double()
    model.train()(x)  # statistics of the batch norms
    own, inputs, each = body(model.eval()), body(model).inputs(x), []
    for member in range(SHAPE["members"]):
        latent, units = inputs * own.scale[member], slice(member * SHAPE["width"], (member + 1) * SHAPE["width"])
        for layer, norm in zip(own.hidden, own.norms, strict=True):
            statistics = norm.running_mean[units], norm.running_var[units], norm.weight[units], norm.bias[units]
            latent = F.batch_norm(layer(latent), *statistics, eps=norm.eps).relu()
        each.append(latent @ own.head[member, :, 0] + own.bias[member, 0, 0])
    torch.testing.assert_close(own.member_scores(x)[..., 0], torch.stack(each))
    torch.testing.assert_close(model(x), torch.stack(each).mean(0))
    assert torch.stack(each).std(0).min() > 0


def test_in_training_mode_every_member_has_a_score_and_dropout() -> None:
    x, model = torch.from_numpy(table()), prepared(table()).train()
    first, second = model(x), model(x)
    assert first.shape == (300, SHAPE["members"])
    assert not torch.equal(first, second)
    assert prepared(table(), outputs=3).train()(x.view(3, 100, 5)).shape == (3, 100, 3, SHAPE["members"])
    assert prepared(table(), outputs=3)(x).shape == (300, 3)


@settings(max_examples=25)
@given(TABLES)
@torch.no_grad()
def test_ramps_are_those_of_an_additive_model(x: np.ndarray) -> None:
    additive = Additive(x.shape[1]).double()
    additive.prepare(torch.from_numpy(x))
    own = body(prepared(x).double())
    ramps, others = own.encode(torch.from_numpy(x).double())
    columns = additive.design(torch.from_numpy(x).double()) + additive.encoding.mean
    assert len(own.embedded) + len(own.single) == x.shape[1]
    ours = torch.cat([ramps[row][:, own.slope[row] > 0] for row in range(len(ramps))] or [columns[:, :0]], 1)
    torch.testing.assert_close(ours, columns[:, x.shape[1] :], atol=1e-3, rtol=1e-3)  # knots in single precision
    torch.testing.assert_close(others, columns[:, own.single], atol=1e-6, rtol=1e-5)
    assert bool(own.member_scores(torch.from_numpy(x).double()).isfinite().all())


@torch.no_grad()
def test_inputs_have_mean_zero_but_for_the_shift() -> None:
    own = body(prepared(table()).double())
    own.shift.zero_()
    torch.testing.assert_close(
        own.inputs(torch.from_numpy(table()).double()).mean(0),
        torch.zeros(own.scale.shape[1]).double(),
        atol=1e-6,
        rtol=0,
    )


@torch.no_grad()
def test_an_embedding_starts_as_a_linear_function_of_the_feature() -> None:
    own = body(prepared(table()).double())
    first = int(own.embedded[0])
    values = torch.linspace(-1, 1, 9).double()
    rows = torch.zeros(9, 5).double()
    rows[:, first] = values
    embedded = own.inputs(rows)[:, : SHAPE["dimension"]]
    slopes = embedded.diff(dim=0) / values.diff().unsqueeze(1)
    torch.testing.assert_close(slopes, slopes[:1].expand_as(slopes))
    assert float(slopes[0].abs().max()) > 0.3
    assert own.embedding.shape[1] > 2


@torch.no_grad()
def test_units_of_a_set_have_mean_zero_and_variance_one_before_the_activation() -> None:
    model, seen = prepared(table()).train(), []
    for norm in body(model).norms:
        norm.register_forward_hook(lambda _, before, after: seen.append(after))
    model(torch.from_numpy(100 * table()))
    for latent in seen:
        torch.testing.assert_close(latent.mean(0), torch.zeros(latent.shape[1]), atol=1e-4, rtol=0)
        spread = latent.std(0, unbiased=False)
        torch.testing.assert_close(spread, torch.ones_like(spread), atol=0.02, rtol=0)


@torch.no_grad()
def test_in_double_a_row_scores_the_same_whatever_rows_lie_beside_it() -> None:
    x = torch.from_numpy(table(3_000)).double()
    model, order = prepared(table(3_000)).double(), torch.randperm(3_000)
    whole = model(x)
    torch.testing.assert_close(model(x[order]), whole[order], atol=1e-13, rtol=1e-13)
    torch.testing.assert_close(torch.cat([model(row) for row in x[:20].split(1)]), whole[:20], atol=1e-13, rtol=1e-13)


@pytest.mark.parametrize("x", [table()[:1], np.zeros((30, 2), np.float32), table()[:, 2:3]], ids=["row", "0", "binary"])
@torch.no_grad()
def test_one_row_and_columns_that_need_no_ramps_are_scored(x: np.ndarray) -> None:
    model = prepared(x)
    assert len(body(model).embedded) == 0
    assert bool(model(torch.from_numpy(x)).isfinite().all())
    missing = torch.full((1, x.shape[1]), torch.nan)
    torch.testing.assert_close(model(missing), model(torch.zeros_like(missing)))


def test_weights_follow_the_seed_and_leave_the_generator_alone() -> None:
    before = torch.get_rng_state()
    first, same, other = (body(prepared(table(), seed=seed)) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    for name, value in first.state_dict().items():
        assert torch.equal(value, same.state_dict()[name])
    assert not torch.equal(first.scale, other.scale)
    assert set(first.scale.flatten().tolist()) == {-1.0, 1.0}


# ---- training ------------------------------------------------------------------------------------------------------


def test_every_member_has_a_loss_of_its_own_and_a_gradient() -> None:
    x, model = torch.from_numpy(table()), prepared(table())
    y, w = torch.from_numpy(labels(table())).float(), torch.rand(300)
    members = members_of(model, 2)
    scores = present_scores(members, x[None], w[None])
    assert scores.shape == (2, 1, 300, SHAPE["members"])
    proxy = proxy_for(BINARY)
    value, other = objectives([proxy, proxy], scores, y[None], w[None], several=members.several)
    each = F.binary_cross_entropy_with_logits(scores[0, 0], y[:, None].expand(-1, SHAPE["members"]), reduction="none")
    torch.testing.assert_close(value, ((each * w[:, None]).sum(0) / w.sum()).mean())
    torch.testing.assert_close(value, other)
    value.backward()
    for name in ("scale", "head"):
        gradient = getattr(body(model), name).grad.flatten(1)
        assert bool((gradient.abs().sum(1) > 0).all()), name


def test_a_surrogate_takes_the_mean_score() -> None:
    scores, y, w = torch.randn(1, 2, 30, 4, requires_grad=True), (torch.rand(2, 30) > 0.5).float(), torch.ones(2, 30)
    loss = SurrogateLoss("f1", frozen=True)
    (value,) = objectives([loss], scores, y, w, 0.0, several=True)
    torch.testing.assert_close(value, loss(scores[0].mean(-1), y, w))
    (anchored,) = objectives([loss], scores, y, w, 0.5, several=True)
    each = torch.stack([proxy_for(BINARY)(scores[0, ..., member], y, w) for member in range(4)])
    torch.testing.assert_close(anchored, value + 0.5 * each.mean())


def test_rows_without_weight_have_the_score_zero() -> None:
    w = torch.ones(2, 10)
    w[1, 7:] = 0
    scores = present_scores(members_of(prepared(table()), 1), torch.from_numpy(table(20)).view(2, 10, 5), w)
    assert bool((scores[0, 1, 7:] == 0).all())
    assert bool((scores[0][w > 0] != 0).all())


def test_both_modes_have_one_score_a_row() -> None:
    still, live = scores_in_both_modes(prepared(table()), torch.from_numpy(table()).view(3, 100, 5))
    assert still.shape == live.shape == (3, 100)


def test_weight_decay_shrinks_weights_that_have_no_gradient() -> None:
    x = torch.cat((torch.from_numpy(table()), torch.zeros(300, 1)), 1)
    rows = Rows(x, torch.from_numpy(labels(table())).float(), None)
    ends = []
    for decay in (0.0, 0.5):
        model = build_model("linear", 6)
        before = float(model.body.weight[0, 5].detach())
        recipe = replace(SHORT, rounds=0, weight_decay=decay, learning_rate=0.1)
        list(train(model, proxy_for(BINARY), rows, recipe))
        ends.append(float(model.body.weight[0, 5].detach()) / before)
    assert ends == pytest.approx([1.0, 0.95**4])


def test_early_stopping_keeps_the_model_of_the_least_cross_entropy() -> None:
    x = table(600)
    y = torch.from_numpy(labels(x)).float()
    y[::4] = 1 - y[::4]
    training, validation = (Rows(torch.from_numpy(x[part]), y[part], None) for part in (slice(100), slice(100, None)))
    kept = {}
    for early in (True, False):
        recipe = replace(SHORT, warmup=30, rounds=0, patience=None, learning_rate=0.02, early_stopping=early)
        selection = Selection(validation, get_metric("average_precision"), recipe)
        model, seen = prepared(x), []
        torch.manual_seed(0)
        for _ in train(model, proxy_for(BINARY), training, recipe, selection=selection):
            scores = scores_of(model, validation.x)
            seen.append((float(proxy_for(BINARY)(scores, validation.y)), selection.history[-1].validation))
        end = scores_of(model, validation.x)
        kept[early] = (
            float(proxy_for(BINARY)(end, validation.y)),
            float(get_metric("average_precision")(end, validation.y)),
        )
        assert kept[early][0 if early else 1] == pytest.approx(min(pair[0 if early else 1] for pair in seen), abs=1e-6)
    assert kept[True][0] < kept[False][0]


def test_the_recipe_is_its_own_and_old_ones_are_read_as_before() -> None:
    assert kind_of("tabm") == "tabm"
    assert recipe_for("default", "tabm") == RECIPES["tabm"]
    assert RECIPES["tabm"].early_stopping
    assert RECIPES["tabm"].weight_decay > 0
    stored = {name: value for name, value in RECIPES["paper"].content.items() if name not in SHORT_OF_OLD}
    assert stored_recipe({"name": "paper", **stored}) == RECIPES["paper"]


SHORT_OF_OLD = ("weight_decay", "early_stopping")


# ---- being kept, and the estimators --------------------------------------------------------------------------------


@pytest.mark.parametrize("copied", [deepcopy, lambda model: pickle.loads(pickle.dumps(model))], ids=["copy", "pickle"])
@torch.no_grad()
def test_copies_score_as_the_model_does_to_the_bit(copied) -> None:  # type: ignore[no-untyped-def]
    x, model = torch.from_numpy(table()), prepared(table(), outputs=2)
    assert torch.equal(copied(model)(x), model(x))


def test_a_saved_model_loads_to_the_bit_and_can_be_exported(tmp_path: Path) -> None:
    frame = pd.DataFrame(table(), columns=list("abcde")).assign(target=labels(table()))
    model = TableClassifier("f1", model="tabm", recipe=SHORT).fit(frame, "target")
    loaded = load(save(model, tmp_path / "model"))
    assert loaded.model_.network_.name == "tabm"
    np.testing.assert_array_equal(loaded.decision_function(frame), model.decision_function(frame))
    program = torch.export.load(export(model, tmp_path / "model.pt2")).module()
    features = torch.as_tensor(np.asarray(model.pipeline_[0].transform(frame.drop(columns="target")), np.float32))
    np.testing.assert_allclose(program(features).detach(), model.decision_function(frame), atol=1e-9)


def test_buffers_that_do_not_belong_together_are_refused() -> None:
    own = body(prepared(table()))
    own.single = own.single + 9
    with pytest.raises(ValueError, match="embedded, single: expected features below 5, got others"):
        own.check()


@torch.no_grad()
def test_no_sum_exceeds_the_bound() -> None:
    x, model = torch.from_numpy(table()).double(), prepared(table()).double()
    model.train()(x)
    own = body(model.eval())
    bound = own.largest(x.abs().amax(0))
    assert float(own.member_scores(x).abs().max()) <= float(bound.max())
    assert float(own.largest(torch.full((5,), 1e6).double()).max()) > float(bound.max())


def test_estimators_take_it_by_name() -> None:
    x, y = table(), labels(table())
    several = MetricClassifier("macro_f1", "cross-entropy", "tabm", SHORT).fit(x, y + (x[:, 4] > 2))
    assert several.decision_function(x).shape == (300, 3)
    queries = np.repeat(np.arange(30), 10)
    ranker = MetricRanker("ndcg", "lambdarank", "tabm", replace(SHORT, sets=2)).fit(x, y, qid=queries)
    assert np.isfinite(ranker.predict(x)).all()
