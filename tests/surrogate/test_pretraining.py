from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.metrics.callable import black_box
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.surrogate.config import CONFIGS, SurrogateConfig, config_for
from metricgrad.surrogate.fidelity import measure_fidelity
from metricgrad.surrogate.network import Surrogate, new_surrogate
from metricgrad.surrogate.pretraining import Fitting, fit_universal
from metricgrad.surrogate.synthetic import GROUP_SIZE, BroadSets, PaperSets, Sets

pytestmark = pytest.mark.slow  # fits surrogates

SMALL = Fitting(groups=160, steps=250, batch=16, learning_rate=5e-3, sizes=(100,))
TINY = Fitting(groups=20, steps=60, sizes=(50, 80))


@cache
def fitted_a_little(name: str) -> Surrogate:
    """Return a surrogate that several tests look at and none changes."""
    return fit_universal(get_metric(name), fitting=SMALL)


def unseen(size: int = 100) -> Sets:
    return BroadSets()(40, GROUP_SIZE, size, torch.Generator().manual_seed(99))


def profit(y_true: np.ndarray, y_score: np.ndarray) -> float:
    called = y_score >= np.quantile(y_score, 0.8)
    return float(300 * y_true[called].sum() - 20 * called.sum())


def never_a_number(scores: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    return torch.full(scores.shape[:-1], math.nan)


def seven(scores: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    return scores.mean(-1).sigmoid() + 7


# ---- fitting ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["auc", "best_f1", "f1"])
def test_a_little_fitting_learns_a_metric(name: str) -> None:
    metric = get_metric(name)
    unfitted = measure_fidelity(new_surrogate(config_for(metric), 0), metric, unseen())
    fitted = measure_fidelity(fitted_a_little(name), metric, unseen())
    assert fitted["spearman"] > 0.9
    assert fitted["spearman"] > abs(unfitted["spearman"])
    assert fitted["gap"] < 0.3 * unfitted["gap"]


def test_what_is_learned_on_sets_of_one_size_holds_for_others() -> None:
    found = measure_fidelity(fitted_a_little("auc"), get_metric("auc"), unseen(size=500))
    assert found["spearman"] > 0.9


def test_the_construction_of_the_paper_learns_from_the_sets_of_the_paper() -> None:
    metric, sets = get_metric("error_rate"), PaperSets()
    fitting = Fitting(steps=300, learning_rate=1e-2, relational=0.0, sizes=(100,))
    surrogate = fit_universal(metric, sets, "paper", fitting)
    held_out = sets(40, GROUP_SIZE, 100, torch.Generator().manual_seed(99))
    unfitted = measure_fidelity(new_surrogate("paper", 0).eval(), metric, held_out)
    fitted = measure_fidelity(surrogate, metric, held_out)
    assert surrogate.config == CONFIGS["paper"]
    assert fitted["spearman"] > 0.6
    assert fitted["gap"] < 0.3 * unfitted["gap"]


@pytest.mark.parametrize("config", [None, "paper"])
def test_the_same_seed_fits_the_same_surrogate_and_the_global_generator_stays_as_it_was(config) -> None:
    metric, before = get_metric("auc"), torch.get_rng_state()
    one, two, other = (
        fit_universal(metric, config=config, fitting=Fitting(20, 60, sizes=(50,), seed=seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(torch.get_rng_state(), before)
    sets = unseen()
    assert torch.equal(one(*sets), two(*sets))
    assert not torch.equal(one(*sets), other(*sets))
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), two.state_dict().values(), strict=True))


def test_a_fitted_surrogate_is_ready_to_judge() -> None:
    assert not fit_universal(get_metric("auc"), config="paper", fitting=TINY).training


@pytest.mark.parametrize("config", [None, "paper"])
def test_a_metric_without_a_known_range_is_learned_in_its_own_units(config: str | None) -> None:
    metric = black_box(profit, higher_is_better=True)
    fitting = Fitting(groups=60, steps=200, batch=16, learning_rate=1e-2, relational=0.0, sizes=(50,))
    surrogate = fit_universal(metric, BroadSets(weighted=False), config, fitting)
    held_out = BroadSets(weighted=False)(20, GROUP_SIZE, 50, torch.Generator().manual_seed(99))
    true = metric(*held_out)
    assert float(surrogate.high - surrogate.low) > 1000
    assert measure_fidelity(surrogate, metric, held_out)["gap"] < 0.8 * float((true - true.median()).abs().mean())


def test_a_metric_that_looks_at_zero_keeps_it_in_sight() -> None:
    assert config_for(get_metric("f1")) == SurrogateConfig(standardise="scale")
    assert config_for(get_metric("best_f1")) == SurrogateConfig(standardise="shift")
    assert config_for(get_metric("auc")) == SurrogateConfig(standardise="shift")
    assert config_for(black_box(profit, higher_is_better=False)).link == "linear"
    assert config_for(black_box(profit, higher_is_better=False, value_range=(-1000, 10_000))).link == "sigmoid"


def test_a_black_box_without_weights_is_never_given_any() -> None:
    seen = []

    def share_on_top(y_true: np.ndarray, y_score: np.ndarray) -> float:
        seen.append(len(y_true))
        return float(y_true[np.argsort(y_score)[-5:]].mean())

    fit_universal(black_box(share_on_top, higher_is_better=False, value_range=(0, 1)), fitting=TINY)
    assert len(seen) == TINY.groups * GROUP_SIZE
    assert set(seen) == set(TINY.sizes)


@pytest.mark.parametrize("config", [None, "paper"])
def test_progress_is_told_until_all_is_done(config: str | None) -> None:
    reported: dict[str, list[tuple[int, int]]] = {}
    fit_universal(
        get_metric("auc"),
        config=config,
        fitting=TINY,
        progress=lambda what, done, total: reported.setdefault(what, []).append((done, total)),
    )
    assert reported.pop("fitting the surrogate") == [(50, 60), (60, 60)]
    assert reported == ({} if config else {"computing losses of random sets": [(16, 20), (20, 20)]})


@pytest.mark.parametrize("config", [None, "paper"])
@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (get_metric("recall").best, r"metric: 'best_recall' is constant \(0 on every random set\)"),
        (
            black_box(lambda y, s: 41, higher_is_better=False, name="always"),
            r"metric: 'always' is constant \(41 on every random set\)",
        ),
        (
            black_box(lambda y, s: math.nan, higher_is_better=False, name="blank"),
            "metric 'blank': expected one finite number, got nan",
        ),
        (
            black_box(lambda y, s: 1 / 0, higher_is_better=False, name="broken"),
            "metric 'broken' failed on .* ZeroDivisionError",
        ),
        (Metric("none", never_a_number, "none"), "metric: expected a loss from 0 to 1 from 'none', got nan"),
        (Metric("none", never_a_number, "none", bounded=False), "metric: expected a finite loss from 'none', got nan"),
        (Metric("seven", seven, "seven"), "metric: expected a loss from 0 to 1 from 'seven', got 7"),
    ],
)
def test_a_metric_that_cannot_be_learned_is_refused(metric: Metric, message: str, config) -> None:
    with pytest.raises(ValueError, match=message):
        fit_universal(metric, BroadSets(weighted=False), config, TINY)


# ---- fidelity --------------------------------------------------------------------------------------------------------


def test_fidelity_is_gap_rank_correlation_and_what_there_is_to_tell_apart() -> None:
    sets = unseen()
    metric = get_metric("auc")

    class Halved(Surrogate):
        def forward(self, *sets: torch.Tensor) -> torch.Tensor:
            return metric(*sets) / 2

    measured = measure_fidelity(Halved(), metric, sets)
    assert measured["spearman"] == pytest.approx(1)
    assert measured["gap"] == pytest.approx(float(metric(*sets).mean()) / 2)
    assert measured["spread"] == pytest.approx(float(metric(*sets).std(correction=0)))


@given(losses=st.lists(st.integers(0, 3), min_size=2, max_size=40).filter(lambda losses: len(set(losses)) > 1))
def test_the_ceiling_is_what_a_surrogate_reaches_that_only_breaks_ties(losses: list[int]) -> None:
    true = torch.tensor(losses, dtype=torch.float64) / 4

    class Tied(Surrogate):
        def forward(self, scores: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
            return scores[:, 0]

    metric = Metric("reported", lambda scores, targets, weights: scores[:, 0].mul(4).floor() / 4, "reported")
    broken = true + torch.arange(len(true)) / 1000
    sets = Sets(
        broken[:, None].expand(-1, 2), torch.tensor([[0.0, 1.0]]).expand(len(true), 2), torch.ones(len(true), 2)
    )
    measured = measure_fidelity(Tied(), metric, sets)
    assert measured["spearman"] == pytest.approx(measured["ceiling"])
    assert (measured["ceiling"] == pytest.approx(1)) == (len(set(losses)) == len(losses))


@pytest.mark.parametrize("sets", [0, 1, 5])
def test_there_is_no_correlation_where_all_sets_are_alike(sets: int) -> None:
    scores = torch.linspace(-1, 1, 20).expand(sets, 20)
    measured = measure_fidelity(
        Surrogate(), get_metric("auc"), Sets(scores, (scores > 0).float(), torch.ones(sets, 20))
    )
    assert math.isnan(measured["spearman"])
    assert math.isnan(measured["gap"]) == (sets == 0)
