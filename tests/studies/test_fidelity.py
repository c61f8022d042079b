"""The probed gradient of a step metric, and the tables of cosines with it, say what they should."""

from __future__ import annotations

import pandas as pd
import pytest
import torch
from torch import Tensor

from metricgrad.metrics.registry import named_metric
from studies.fidelity.direction_table import direction_table, judged_sets, over_all_sizes, quantiles, reaching
from studies.fidelity.probe import (
    ScoredSet,
    cosine,
    cosines,
    followed_gradient,
    principal_directions,
    probed_halves,
)
from studies.fidelity.scored import centred_at_prevalence


def linear_set(rows: int = 600, seed: int = 0) -> tuple[ScoredSet, Tensor]:
    """Return a set that a linear model of five features scores, with weights unlike the best ones."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, 5, generator=generator)
    useful = features @ torch.tensor([1.0, 1.0, 0.0, 0.0, 0.0])
    targets = (torch.rand(rows, generator=generator) < (2 * useful - 1).sigmoid()).float()
    scores = features @ torch.tensor([1.0, 0.0, 0.5, 0.0, 0.0])
    return ScoredSet(scores, targets, torch.ones(rows), principal_directions(features)), features


def smooth_auc(scores: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Oracle: the share of pairs in the wrong order, each by a narrow logistic step."""
    positive, negative = scores[targets == 1], scores[targets == 0]
    return ((negative[None] - positive[:, None]) / 0.05).sigmoid().mean()


def test_directions_are_orthogonal_of_unit_mean_square_and_span_the_features_and_a_shift() -> None:
    one, features = linear_set()
    gram = one.directions.T @ one.directions / len(features)
    torch.testing.assert_close(gram, torch.eye(6), atol=1e-4, rtol=0)
    spanned = one.directions @ (one.directions.T @ features / len(features))
    torch.testing.assert_close(spanned, features, atol=1e-3, rtol=0)


def test_a_feature_that_repeats_another_adds_no_direction() -> None:
    features = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    assert principal_directions(torch.cat((features, features[:, :1]), 1)).shape == (50, 3)


def test_the_probed_gradient_is_that_of_a_smooth_oracle_and_its_halves_agree() -> None:
    one, _ = linear_set()
    found = cosines(
        followed_gradient(lambda *rows: smooth_auc(*(each[0] for each in rows)), one),
        probed_halves(named_metric("auc"), one),
    )
    assert found.cosine > 0.97
    assert found.ceiling > 0.97


def test_a_gradient_across_the_metric_has_no_cosine_and_one_against_it_minus_one() -> None:
    one, _ = linear_set()
    halves = probed_halves(named_metric("auc"), one)
    against = cosines(followed_gradient(lambda *rows: -smooth_auc(*(each[0] for each in rows)), one), halves)
    across = cosines(followed_gradient(lambda scores, *_: scores.mean(), one), halves)  # a shift changes no order
    assert against.cosine < -0.97
    assert abs(across.cosine) < 0.1


def test_a_metric_that_no_move_changes_has_no_direction() -> None:
    one, _ = linear_set(rows=4)
    same = ScoredSet(torch.tensor([100.0, 90.0, -90.0, -100.0]), torch.tensor([1.0, 1, 0, 0]), *[torch.ones(4)] * 2)
    still = ScoredSet(same.scores, same.targets, same.weights, one.directions)
    assert cosines(torch.ones(one.directions.shape[1]).double(), probed_halves(named_metric("auc"), still)).ceiling == 0
    assert cosine(torch.zeros(3), torch.ones(3)) == 0


def test_scores_are_shifted_so_that_as_much_weight_is_above_zero_as_is_positive() -> None:
    one, _ = linear_set()
    weights = torch.where(one.targets == 1, 0.1, 1.0)
    moved = centred_at_prevalence(ScoredSet(one.scores, one.targets, weights, one.directions))
    above, positive = (weights * (moved.scores > 0)).sum(), (weights * one.targets).sum()
    assert float(above) == pytest.approx(float(positive), abs=1)


STORED = {
    "cells": [
        {"metric": "f1", "table": "a", "model": "linear", "rows": rows}
        | {"cosines": cosines_, "ceilings": [0.9] * 6 + [0.5, 0.9], "slopes": [0.01] * 7 + [0.0001]}
        for rows, cosines_ in ((400, [0.9] * 3 + [0.8] * 3 + [-1.0] * 2), (1_200, [0.95] * 6 + [-1.0] * 2))
    ]
}


def test_sets_without_a_direction_are_not_judged() -> None:
    found = quantiles(judged_sets(STORED))
    assert found.loc["f1", 400].to_dict() == pytest.approx({"median": 0.85, "low": 0.8, "ceiling": 0.9, "sets": 6})
    assert "| `f1` | 0.85 / 0.80 (0.90) | 0.95 / 0.95 (0.90) | 12 |" in direction_table(found)


def test_a_quantile_of_few_sets_is_not_shown() -> None:
    cell = STORED["cells"][0]
    sets = judged_sets({"cells": [{**cell, **{name: cell[name][:3] for name in ("cosines", "ceilings", "slopes")}}]})
    assert over_all_sizes(sets).isna()["f1"]
    assert "| `f1` | - | 3 |" in direction_table(quantiles(sets))


def test_metrics_below_the_bar_are_not_said_to_reach_it() -> None:
    assert over_all_sizes(judged_sets(STORED))["f1"] == pytest.approx(0.8)
    assert reaching(pd.Series({"f1": 0.81, "mcc": 0.79})) == ["`f1`"]
