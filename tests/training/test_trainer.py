"""Algorithm 1 beside the paper: the order and number of its steps, its start, its selection, its end."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from metricgrad.losses.binary import CrossEntropy
from metricgrad.metrics.callable import black_box
from metricgrad.metrics.registry import auc, f1
from metricgrad.surrogate.adam import Adam
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows
from metricgrad.training.ensemble import ModuleEnsemble, present_scores
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import train

QUICK = Recipe(
    warmup=6, rounds=4, surrogate_steps=2, set_size=50, refine_sets=4, trust=-1.0, check_every=1, model_steps=3
)
State = dict[str, Tensor]


def table(n: int = 300, seed: int = 0, hard: float = 1.0) -> Rows:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=generator)
    y = (x[:, 0] - x[:, 1] + hard * torch.randn(n, generator=generator) > 1).float()
    return Rows(x, y)


TRAINING, VALIDATION = table(), table(seed=1)


def state_of(model: nn.Module) -> State:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a: State, b: State) -> bool:
    return all(torch.equal(a[name], b[name]) for name in a)


def trained(loss: nn.Module, recipe: Recipe, rows: Rows = TRAINING, model: str = "linear", **how: Any) -> nn.Module:
    network = build_model(model, 5, seed=0)
    torch.manual_seed(0)
    for _ in train(network, loss, rows, recipe, **how):
        pass
    return network


class Recorder(SurrogateLoss):
    """A surrogate loss that notes what it was called with."""

    def __init__(self, metric: Any = "auc", **how: Any) -> None:
        super().__init__(metric, "scratch", **how)
        self.recorded: list[str] = []
        self.refined: list[dict[str, Any]] = []

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        self.recorded.append("model")
        self.weights = weights
        return super().forward(scores, targets, weights)

    def refine(self, scores: Tensor, targets: Tensor, *rest: Any, **more: Any) -> float:
        self.recorded.append("surrogate")
        self.refined.append({"scores": scores, "targets": targets, "rest": rest, **more})
        return super().refine(scores, targets, *rest, **more)


class Harmful(nn.Module):
    """Sends the model away from the targets."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        return -CrossEntropy()(scores, targets, weights)


class Nothing(nn.Module):
    """Sends the model nowhere."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        return 0 * scores.sum()


class Watched(nn.Module):
    """A linear model with dropout that notes the mode it was called in."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Dropout(0.5), nn.Linear(5, 1))
        self.modes: list[bool] = []

    def forward(self, x: Tensor) -> Tensor:
        self.modes.append(self.training)
        return self.body(x)[..., 0]


@contextmanager
def watching_steps() -> Iterator[list[tuple[float, float]]]:
    """Note the learning rate and the norm of the gradient at every step of an optimiser of a model or a surrogate."""
    seen: list[tuple[float, float]] = []
    step = Adam.step

    def noted(self: Adam, gradients: Sequence[Tensor]) -> None:
        seen.append((self.learning_rate, float(torch.cat([each.flatten() for each in gradients]).norm())))
        step(self, gradients)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Adam, "step", noted)
        yield seen


# ---- the steps of a round ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "a_round"),
    [("model", ["model"] * 3 + ["surrogate"]), ("surrogate", ["surrogate"] + ["model"] * 3)],
)
def test_a_round_takes_its_steps_in_the_order_of_the_paper_or_of_the_program(first: str, a_round: list[str]) -> None:
    loss = Recorder()
    trained(loss, replace(QUICK, first=first))
    assert loss.recorded == a_round * QUICK.rounds


@pytest.mark.parametrize("k_alpha", [1, 4])
@pytest.mark.parametrize("k_beta", [0, 1, 5])
def test_the_surrogate_takes_k_beta_steps_for_k_alpha_of_the_model(k_alpha: int, k_beta: int) -> None:
    loss = Recorder()
    with watching_steps() as steps:
        trained(loss, replace(QUICK, warmup=0, model_steps=k_alpha, surrogate_steps=k_beta))
    assert loss.recorded.count("model") == k_alpha * QUICK.rounds
    assert len(steps) == (k_alpha + k_beta) * QUICK.rounds


def test_every_step_of_the_surrogate_gets_sets_of_its_own() -> None:
    loss = Recorder()
    trained(loss, QUICK)
    shapes = {tuple(call["scores"].shape) for call in loss.refined}
    assert shapes == {(QUICK.surrogate_steps * QUICK.refine_sets, QUICK.set_size)}


def test_rounds_are_numbered_within_their_phase() -> None:
    network = build_model("linear", 5)
    recipe = replace(QUICK, warmup=7)
    rounds = list(train(network, Recorder(), TRAINING, recipe, selection=Selection(VALIDATION, auc, recipe)))
    places = [(done.phase, done.number, done.of) for done in rounds]
    assert places == [("warm-up", n, 7) for n in (3, 6, 7)] + [("rounds", n, 4) for n in (1, 2, 3, 4)]
    assert all(math.isfinite(done.validation) for done in rounds)
    assert all(a.seconds <= b.seconds for a, b in pairwise(rounds))
    assert all(0 < done.gap < 1 for done in rounds[3:])


def test_validation_rows_are_looked_at_as_often_as_asked_and_at_the_end() -> None:
    recipe = replace(QUICK, warmup=0, rounds=7, check_every=3)
    rounds = train(
        build_model("linear", 5), CrossEntropy(), TRAINING, recipe, selection=Selection(VALIDATION, auc, recipe)
    )
    assert [done.number for done in rounds if math.isfinite(done.validation)] == [3, 6, 7]


@pytest.mark.parametrize("trust", [0.9, -0.5])
def test_a_frozen_surrogate_is_never_refined(trust: float) -> None:
    torch.manual_seed(0)
    loss = Recorder(frozen=True)
    before = state_of(loss.surrogate)
    with pytest.warns(UserWarning, match=r"surrogate of AUC is not faithful yet: .* cosine .* was -?0\.\d+, below"):
        trained(loss, replace(QUICK, trust=trust))
    assert "surrogate" not in loss.recorded
    assert same(before, loss.surrogate.state_dict())


# ---- how the model steps -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [CrossEntropy(), Harmful(), Nothing(), SurrogateLoss("auc", frozen=True)])
def test_every_loss_is_given_the_same_warm_up(loss: nn.Module) -> None:
    start = trained(CrossEntropy(), replace(QUICK, rounds=0), model="mlp")
    network = build_model("mlp", 5, seed=0)
    torch.manual_seed(0)
    rounds = train(network, loss, TRAINING, QUICK)
    for done in rounds:
        if done.number == done.of:
            break
    assert same(state_of(start), state_of(network))


def test_the_rate_is_constant_up_to_the_plateau_and_falls_to_zero_afterwards() -> None:
    with watching_steps() as steps:
        trained(CrossEntropy(), replace(QUICK, warmup=30, rounds=10))
    rates = [rate for rate, _ in steps]
    assert len(rates) == 60
    assert set(rates[:30]) == {QUICK.learning_rate}
    assert rates[30:] == sorted(rates[30:], reverse=True)
    assert rates[-1] < 0.01 * QUICK.learning_rate


def test_the_warm_up_ends_at_a_plateau_of_the_validation_loss() -> None:
    recipe = replace(QUICK, warmup=3_000, rounds=2, learning_rate=0.3, patience=2)
    selection = Selection(VALIDATION, auc, recipe)
    trained(CrossEntropy(), recipe, selection=selection)
    warm = [done for done in selection.history if done.phase == "warm-up"]
    assert 2 < len(warm) < 1_000
    assert len([done for done in selection.history if done.phase == "rounds"]) == 2


def test_rounds_at_a_constant_rate_end_when_no_check_has_gained_for_as_long_as_patience_allows() -> None:
    recipe = replace(QUICK, warmup=3_000, rounds=400, learning_rate=0.3, schedule="constant", patience=3)
    selection = Selection(VALIDATION, auc, recipe)
    trained(CrossEntropy(), recipe, selection=selection)
    rounds = [done for done in selection.history if done.phase == "rounds"]
    assert 3 <= len(rounds) < 400
    assert not any(done.best for done in rounds[-3:])
    assert len(rounds) == 3 or rounds[-4].best


def test_a_cosine_schedule_falls_to_zero_and_starts_again_after_the_warm_up() -> None:
    with watching_steps() as steps:
        trained(CrossEntropy(), replace(QUICK, warmup=30, rounds=10, schedule="cosine"))
    rates = [rate for rate, _ in steps]
    assert len(rates) == 60
    for phase in (rates[:30], rates[30:]):
        assert phase[0] == QUICK.learning_rate
        assert phase == sorted(phase, reverse=True)
        assert phase[-1] < 0.01 * QUICK.learning_rate


def test_a_constant_schedule_is_constant() -> None:
    with watching_steps() as steps:
        trained(CrossEntropy(), replace(QUICK, schedule="constant"))
    assert {rate for rate, _ in steps} == {QUICK.learning_rate}


def test_gradients_are_clipped_if_asked_for() -> None:
    for clip, largest in ((None, math.inf), (1e-3, 1.0001e-3)):
        with watching_steps() as steps:
            trained(CrossEntropy(), replace(QUICK, clip=clip))
        norms = [norm for _, norm in steps]
        assert max(norms) <= largest
        assert (max(norms) > 0.01) == (clip is None)


class Silent(SurrogateLoss):
    """A surrogate that has nothing to say."""

    def __init__(self) -> None:
        super().__init__("f1", "scratch", frozen=True)

    def forward(self, scores: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
        return 0 * scores.sum()


def test_an_anchor_mixes_cross_entropy_into_a_surrogate() -> None:
    recipe = replace(QUICK, warmup=0, anchor=0.0)
    anchored = trained(Silent(), replace(recipe, anchor=1.0))
    assert same(state_of(anchored), state_of(trained(CrossEntropy(), recipe)))
    assert same(state_of(trained(Silent(), recipe)), state_of(build_model("linear", 5, seed=0)))


@pytest.mark.parametrize("loss", [CrossEntropy, Nothing])
def test_other_losses_are_followed_as_they_are(loss: Any) -> None:
    anchored = trained(loss(), replace(QUICK, anchor=5.0))
    assert same(state_of(anchored), state_of(trained(loss(), replace(QUICK, anchor=0.0))))


def test_every_loss_is_followed_on_the_same_sets() -> None:
    seen: dict[str, list[torch.Tensor]] = {}

    class Seeing(SurrogateLoss):
        def forward(self, scores: Any, targets: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
            seen.setdefault("learns" if not self.frozen else "frozen", []).append(targets)
            return super().forward(scores, targets, weights)

    for frozen in (True, False):
        trained(Seeing("f1", frozen=frozen), replace(QUICK, positive_share=None))
    assert len(seen["frozen"]) == QUICK.rounds * QUICK.model_steps
    assert all(torch.equal(one, two) for one, two in zip(seen["learns"], seen["frozen"], strict=True))


# ---- how the surrogate steps ---------------------------------------------------------------------------------------


def refined_with(mode: str, **changes: Any) -> tuple[Recorder, Watched]:
    loss, network = Recorder(), Watched()
    recipe = replace(QUICK, warmup=0, rounds=1, first="surrogate", model_steps=1, refine_mode=mode, **changes)
    list(train(network, loss, TRAINING, recipe))
    return loss, network


def test_the_mode_of_the_model_while_refining_is_as_asked() -> None:
    # Before and after is a look at how true the surrogate is, and before the last a step of the model itself.
    assert refined_with("eval")[1].modes[1:-2] == [False]
    assert refined_with("train")[1].modes[1:-2] == [True, True]
    assert refined_with("both")[1].modes[1:-2] == [False, True, False, True]


def test_the_program_judges_evaluation_mode_but_shows_the_surrogate_training_mode() -> None:
    loss, _ = refined_with("both", noise=0.0)
    for call in loss.refined:
        assert call["judged"].shape == call["scores"].shape
        assert not torch.equal(call["judged"], call["scores"])
    for call in refined_with("train")[0].refined:
        assert torch.equal(call["judged"], call["scores"])


def test_noise_moves_the_refined_scores_by_less_than_its_share_of_their_spread() -> None:
    rows = Rows(TRAINING.x[:50], TRAINING.y[:50])
    recipe = replace(QUICK, warmup=0, rounds=1, first="surrogate", refine_sets=32)
    start = build_model("linear", 5, seed=0)
    with torch.no_grad():
        exact = start(rows.x)
    for noise in (0.0, 0.3):
        loss = Recorder()
        trained(loss, replace(recipe, noise=noise), rows)
        moved = (loss.refined[0]["scores"] - exact).std(-1) / exact.std()
        assert float(moved.max()) <= 1.5 * noise + 1e-6
        assert (float(moved.max()) > 0.1) == bool(noise)
        assert (float(moved.std()) > 0.02) == bool(noise)


# ---- trust ---------------------------------------------------------------------------------------------------------


def test_a_surrogate_from_scratch_is_refined_until_it_can_be_trusted() -> None:
    torch.manual_seed(0)
    loss = Recorder("average_precision")
    recipe = replace(QUICK, trust=0.8, trust_cap=2_000, surrogate_steps=0, rounds=1, noise=0.3)
    *_, last = train(build_model("linear", 5), loss, TRAINING, recipe)
    taken = sum(call["rest"][1] for call in loss.refined)
    assert 0 < taken < 2_000
    assert taken % 50 == 0
    assert loss.recorded[-3:] == ["model"] * 3
    assert last.trust > 0.6


def test_a_bar_out_of_reach_is_given_up_at_the_cap_with_a_warning() -> None:
    loss = Recorder()
    recipe = replace(QUICK, trust=1.0, trust_cap=70, surrogate_steps=0)
    with pytest.warns(UserWarning, match=r"surrogate of AUC is not faithful yet: .* after 70 steps, below 1\.00"):
        trained(loss, recipe)
    assert [call["rest"][1] for call in loss.refined] == [50, 20]


def test_every_look_at_trust_is_a_round_so_that_refining_can_be_stopped() -> None:
    recipe = replace(QUICK, trust=1.0, trust_cap=1_000_000, surrogate_steps=0)
    rounds = train(build_model("linear", 5), Recorder(), TRAINING, recipe)
    seen = [next(done for done in rounds if done.phase == "refining"), next(rounds)]
    rounds.close()
    assert [(done.number, done.of, done.steps) for done in seen] == [(50, 1_000_000, 6), (100, 1_000_000, 6)]
    assert all(done.trust < 1 and done.gap > 0 and math.isnan(done.loss) for done in seen)
    assert seen[0].seconds < seen[1].seconds


def test_a_faithful_surrogate_needs_no_refining_before_the_first_round() -> None:
    loss = SurrogateLoss("auc")
    list(train(build_model("linear", 5), loss, TRAINING, replace(QUICK, trust=0.8, rounds=0)))
    assert math.isnan(loss.gap)


def test_sets_that_are_all_alike_ask_for_no_trust() -> None:
    loss = Recorder()
    trained(loss, replace(QUICK, set_size=300, noise=0.0, trust=0.99, surrogate_steps=0))
    assert "surrogate" not in loss.recorded


def test_what_pads_a_set_scores_zero_and_stays_out_of_batch_statistics() -> None:
    x, w = torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)), torch.ones(2, 4)
    x[1, 2:], w[1, 2:] = 1e6, 0.0
    rows = x.reshape(8, 3)[:6]
    model, alone = (nn.Sequential(nn.BatchNorm1d(3), nn.Flatten(1), Sum()) for _ in range(2))
    (scores,) = present_scores(ModuleEnsemble([model]), x, w)
    torch.testing.assert_close(scores.reshape(8)[:6], alone(rows))
    assert scores[1, 2:].tolist() == [0, 0]
    assert same(model.state_dict(), alone.state_dict())


class Sum(nn.Module):
    """The sum of features."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(-1)


# ---- the selection -------------------------------------------------------------------------------------------------


def test_a_harmful_loss_ends_exactly_at_the_cross_entropy_start() -> None:
    recipe = replace(QUICK, warmup=60, rounds=30, learning_rate=0.02, check_every=100)
    start = trained(
        CrossEntropy(), replace(recipe, rounds=0), model="mlp", selection=Selection(VALIDATION, auc, recipe)
    )
    guarded = trained(Harmful(), recipe, model="mlp", selection=Selection(VALIDATION, auc, recipe))
    assert same(state_of(guarded), state_of(start))
    assert not same(state_of(trained(Harmful(), recipe, model="mlp")), state_of(start))


def test_without_a_warm_up_a_harmful_loss_leaves_a_good_model_as_it_came() -> None:
    good = trained(CrossEntropy(), replace(QUICK, warmup=200, rounds=0, learning_rate=0.02))
    before = state_of(good)
    recipe = replace(QUICK, warmup=0, learning_rate=1.0)
    rounds = train(good, Harmful(), TRAINING, recipe, selection=Selection(VALIDATION, auc, recipe))
    assert not any(done.best for done in rounds)
    assert same(before, state_of(good))


def test_a_good_loss_ends_at_the_best_round() -> None:
    recipe = replace(QUICK, rounds=40, learning_rate=0.02)
    network, states = build_model("linear", 5), []
    for done in train(network, CrossEntropy(), TRAINING, recipe, selection=Selection(VALIDATION, auc, recipe)):
        states.append((done.validation, done.best, state_of(network)))
    least = min(value for value, *_ in states)
    best = [state for value, chosen, state in states if chosen][-1]
    assert least == float(auc(network(VALIDATION.x).detach(), VALIDATION.y))
    assert same(best, state_of(network))


def test_closing_the_generator_early_restores_the_best() -> None:
    recipe = replace(QUICK, warmup=60, rounds=30, learning_rate=0.02, check_every=20)
    network = build_model("mlp", 5)
    rounds, best = train(network, Harmful(), TRAINING, recipe, selection=Selection(VALIDATION, auc, recipe)), None
    for done in rounds:
        best = state_of(network) if done.best else best
        if done.phase == "rounds" and done.number == 10:
            break
    assert not same(best, state_of(network))
    rounds.close()
    assert same(best, state_of(network))


def test_the_best_is_chosen_at_zero_if_the_recipe_trains_at_zero() -> None:
    network = build_model("linear", 5)
    for form, metric in (("zero", f1), ("best", f1.best)):
        recipe = replace(QUICK, form=form, rounds=0)
        *_, last = train(network, CrossEntropy(), TRAINING, recipe, selection=Selection(VALIDATION, f1, recipe))
        assert last.validation == float(metric(network(VALIDATION.x).detach(), VALIDATION.y))


def test_the_model_is_left_in_evaluation_mode() -> None:
    assert not trained(CrossEntropy(), QUICK, model="mlp").training
    assert not trained(CrossEntropy(), replace(QUICK, warmup=0, rounds=0), model="mlp").training


def test_a_loss_that_is_not_finite_is_an_error_and_the_best_model_is_kept() -> None:
    class Broken(nn.Module):
        def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
            return scores.sum() * math.nan

    network = build_model("linear", 5)
    rounds = train(network, Broken(), TRAINING, replace(QUICK, warmup=3), selection=Selection(VALIDATION, auc, QUICK))
    next(rounds)
    start = state_of(network)
    with pytest.raises(ValueError, match="loss: expected finite numbers while training, got nan"):
        next(rounds)
    assert same(start, state_of(network))


def test_a_model_with_nothing_to_learn_is_an_error() -> None:
    with pytest.raises(ValueError, match="model: expected a module with parameters to train, got Flatten"):
        next(train(nn.Flatten(0), CrossEntropy(), TRAINING, QUICK))


def test_a_control_that_breaks_is_not_kept_and_does_not_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Breaks(CrossEntropy):
        calls = 0

        def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
            Breaks.calls += scores.requires_grad  # not those of validation rows
            return super().forward(scores, targets, weights) * (math.nan if Breaks.calls > QUICK.warmup + 4 else 1)

    monkeypatch.setattr("metricgrad.training.trainer.proxy_for", lambda task: Breaks())
    selection, recipe = Selection(VALIDATION, auc, QUICK), replace(QUICK, anchor=0.0)
    network = trained(SurrogateLoss("auc"), recipe, selection=selection)
    assert [math.isnan(done.control) for done in selection.history if done.phase == "rounds"] == [
        False,
        True,
        True,
        True,
    ]
    assert all(bool(weights.isfinite().all()) for weights in network.parameters())


# ---- sets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 20, 50])
def test_data_no_larger_than_a_set_is_used_whole(n: int) -> None:
    rows = Rows(TRAINING.x[:n], torch.arange(n) % 2.0, torch.rand(n))
    loss = Recorder()
    trained(loss, QUICK, rows)
    for call in loss.refined:
        assert torch.equal(call["targets"], rows.y.expand_as(call["targets"]))
    assert torch.equal(loss.weights, rows.w.expand(1, n))


def test_larger_data_is_drawn_in_sets_whose_weights_restore_the_prevalence() -> None:
    rare = Rows(TRAINING.x, (torch.arange(300) < 15).float())
    loss = Recorder()
    trained(loss, QUICK, rare)
    targets, weights = loss.refined[0]["targets"], loss.refined[0]["rest"][0]
    assert set(targets.sum(-1).tolist()) == {12.0}  # a quarter of 50, rounded
    assert (weights * targets).sum(-1) / weights.sum(-1) == pytest.approx(torch.full((8,), 0.05))


def test_a_metric_that_takes_no_weights_gets_sets_as_they_come() -> None:
    def hits(y_true: Any, y_score: Any) -> float:
        return float(y_true[y_score >= 0].mean()) if (y_score >= 0).any() else 0.0

    loss = Recorder(black_box(hits, higher_is_better=True, value_range=(0, 1)))
    trained(loss, QUICK)
    assert len(set(loss.refined[0]["targets"].sum(-1).tolist())) > 1
    assert bool((loss.refined[0]["rest"][0] == 1).all())


def test_where_a_class_is_rare_a_metric_that_takes_no_weights_gets_stratified_sets() -> None:
    shares = []

    def hits(y_true: Any, y_score: Any) -> float:
        shares.append(float(y_true.mean()))
        return float(y_true[y_score >= 0].mean()) if (y_score >= 0).any() else 0.0

    rare = Rows(TRAINING.x, (torch.arange(300) < 6).float())
    loss = Recorder(black_box(hits, higher_is_better=True, value_range=(0, 1)))
    trained(loss, QUICK, rare)
    assert set(loss.refined[0]["targets"].sum(-1).tolist()) == {12.0}
    assert shares == pytest.approx([0.02] * len(shares), abs=0.001)  # by repeating rows


# ---- reproducibility -----------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_model_to_the_bit() -> None:
    def run(seed: int) -> State:
        torch.manual_seed(0)
        loss = SurrogateLoss("f1", "scratch")
        return state_of(trained(loss, QUICK, model="mlp", selection=Selection(VALIDATION, f1, QUICK), seed=seed))

    assert same(run(3), run(3))
    assert not same(run(3), run(4))
