from __future__ import annotations

import pytest
import torch
from torch import Tensor

from metricgrad.metrics.registry import auc
from metricgrad.surrogate.synthetic import BroadSets, PaperSets, Sets


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def imbalanced(rows: int, every: int = 10) -> Tensor:
    return (torch.arange(rows) % every == 0).float()


# ---- random sets -----------------------------------------------------------------------------------------------------


def test_the_sets_of_the_paper_are_bernoulli_and_normal() -> None:
    scores, targets, weights = PaperSets()(100, 8, 200, seeded())
    assert scores.shape == targets.shape == weights.shape == (800, 200)
    assert float(targets.mean()) == pytest.approx(0.5, abs=0.005)
    assert float(scores.mean()) == pytest.approx(0, abs=0.01)
    assert float(scores.std()) == pytest.approx(1, abs=0.01)
    assert float(scores[targets == 1].mean() - scores[targets == 0].mean()) == pytest.approx(0, abs=0.02)
    assert torch.equal(weights, torch.ones(800, 200))


def test_the_sets_of_the_paper_take_other_settings() -> None:
    scores, targets, _ = PaperSets(p=0.1, mu=3.0, sigma=0.5)(100, 8, 200, seeded())
    assert float(targets.mean()) == pytest.approx(0.1, abs=0.005)
    assert float(scores.mean()) == pytest.approx(3, abs=0.01)
    assert float(scores.std()) == pytest.approx(0.5, abs=0.01)
    assert set(targets.unique().tolist()) == {0.0, 1.0}


GROUPS, GROUP_SIZE, SIZE = 600, 8, 400


@pytest.fixture(scope="module")
def broad() -> Sets:
    return BroadSets()(GROUPS, GROUP_SIZE, SIZE, seeded())


def of_families(values: Tensor) -> Tensor:
    return values.view(GROUPS, GROUP_SIZE, *values.shape[1:])


def prevalence(sets: Sets) -> Tensor:
    return (sets.weights * sets.targets).sum(-1) / sets.weights.sum(-1)


def test_broad_sets_are_finite_and_hold_both_classes(broad: Sets) -> None:
    assert all(column.shape == (GROUPS * GROUP_SIZE, SIZE) for column in broad)
    assert all(bool(column.isfinite().all()) for column in broad)
    assert set(broad.targets.unique().tolist()) == {0.0, 1.0}
    assert bool((broad.weights > 0).all())
    found = broad.targets.sum(-1)
    assert 1 <= int(found.min()) <= int(found.max()) < SIZE


def test_broad_sets_span_rare_and_common_positives(broad: Sets) -> None:
    shares = of_families(prevalence(broad)).mean(-1)
    assert float(shares.quantile(0.05)) < 0.005
    assert float(shares.quantile(0.5)) == pytest.approx(0.06, abs=0.03)
    assert 0.6 < float(shares.quantile(0.95)) < 0.95
    narrow = prevalence(BroadSets(rarest=0.2, common=0.3)(100, GROUP_SIZE, SIZE, seeded()))
    assert float(narrow.median()) == pytest.approx(0.27, abs=0.04)


def test_broad_sets_span_useless_and_perfect_rankings(broad: Sets) -> None:
    losses = auc(*broad)
    assert float(losses.min()) == 0
    assert float((losses < 0.02).float().mean()) > 0.1
    assert float((losses > 0.4).float().mean()) > 0.05
    assert float(losses.max()) > 0.6


def test_sets_of_a_group_share_one_distribution(broad: Sets) -> None:
    for values in (auc(*broad), broad.targets.mean(-1), broad.scores.median(-1).values):
        grouped = of_families(values)
        within, between = grouped.var(-1).median(), grouped.mean(-1).var()
        assert float(within) < 0.1 * float(between)


def test_every_second_set_is_a_perturbed_copy_of_the_one_before(broad: Sets) -> None:
    scores, targets, weights = (column.view(-1, 2, SIZE) for column in broad)
    assert torch.equal(targets[:, 0], targets[:, 1])
    torch.testing.assert_close(weights[:, 0], weights[:, 1])
    assert not bool((scores[:, 0] == scores[:, 1]).all(-1).all())
    # The copy is nearer to its original than the next set of the group, which is independent; ranks: tails are heavy.
    ranks = broad.scores.argsort(-1).argsort(-1).double().view(-1, 4, SIZE)
    copied = (ranks[:, 0] - ranks[:, 1]).abs().mean(-1)
    independent = (ranks[:, 0] - ranks[:, 2]).abs().mean(-1)
    assert float((copied < independent).double().mean()) > 0.95
    moved = of_families((scores[:, 0] - scores[:, 1]).abs().median(-1).values.repeat_interleave(2))
    assert float(moved.quantile(0.9) / moved.quantile(0.1)) > 10


def test_weights_restore_the_prevalence_that_a_group_shares(broad: Sets) -> None:
    targets, weights = of_families(broad.targets), of_families(broad.weights)
    plain = (weights == 1).flatten(1).all(-1)
    restored = torch.tensor([len(row.unique()) == 2 for row in weights[:, 0]])
    assert float(plain.float().mean()) == pytest.approx(0.4 * 0.85, abs=0.06)
    assert float(restored.float().mean()) == pytest.approx(0.6 * 0.85, abs=0.06)
    shares = of_families(prevalence(broad))[restored]
    torch.testing.assert_close(shares, shares[:, :1].expand_as(shares))
    drawn = targets[restored].mean(-1)
    assert float(drawn.min()) > 0.03
    assert float(drawn.max()) < 0.75
    assert float((drawn - shares).abs().mean()) > 0.1


def test_some_rows_weigh_differently_of_themselves(broad: Sets) -> None:
    spread = torch.tensor([len(row.unique()) > 2 for row in broad.weights[::GROUP_SIZE]])
    assert float(spread.float().mean()) == pytest.approx(0.15, abs=0.05)


def test_some_sets_have_ties(broad: Sets) -> None:
    tied = torch.tensor([len(row.unique()) < SIZE // 2 for row in broad.scores[::GROUP_SIZE]])
    assert 0.01 < float(tied.float().mean()) < 0.15


def test_unweighted_broad_sets_weigh_one() -> None:
    sets = BroadSets(weighted=False)(200, GROUP_SIZE, 100, seeded())
    assert torch.equal(sets.weights, torch.ones(200 * GROUP_SIZE, 100))
    assert float(prevalence(sets).median()) < 0.1


@pytest.mark.parametrize("make", [BroadSets(), PaperSets()])
def test_random_sets_depend_on_their_generator_alone(make: BroadSets | PaperSets) -> None:
    before = torch.get_rng_state()
    one, two, other = (make(3, 8, 50, seeded(seed)) for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert not torch.equal(one.scores, other.scores)


def test_sets_of_a_group_come_in_pairs() -> None:
    with pytest.raises(ValueError, match="group_size: expected an even number, because sets come in pairs, got 3"):
        BroadSets()(2, 3, 50, seeded())
