"""Two processes do what one does that has the sets of both, and stay the same to the bit."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import ranks
import torch
from torch import Tensor

from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.surrogate.network import new_surrogate

pytestmark = pytest.mark.slow  # starts two processes, once for all tests

FOLLOWED = {
    f"{name}, {'gathered' if gather else 'own sets'}": partial(ranks.of_rank, name=name, gather=gather)
    for name in ranks.LOSSES
    for gather in (False, True)
}
SINGLE = (
    ranks.inside_the_module,
    ranks.from_scratch,
    ranks.alone,
    ranks.unequal,
    ranks.of_unequal_rows,
    ranks.several_classes,
    ranks.black_boxed,
    ranks.errors,
    ranks.own_trainer,
    ranks.resumed,
)
Results = list[dict[str, Any]]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return ranks.on_ranks(tmp_path_factory.mktemp("ranks") / "of", FOLLOWED | {work.__name__: work for work in SINGLE})


def both(step: int, join: bool) -> tuple[Tensor, Tensor]:
    parts = [ranks.drawn(step, rank) for rank in range(ranks.RANKS)]
    x, y = (torch.cat(tensors, 1 if join else 0) for tensors in zip(*parts, strict=True))
    return x, y


def assert_close(one: Any, other: Any, **tolerance: float) -> None:
    torch.testing.assert_close(one, other, equal_nan=True, **tolerance)


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    return max(float((one[name] - other[name]).abs().max()) for name in one)


@pytest.mark.parametrize(
    "name", [*FOLLOWED, "inside_the_module", "from_scratch", "several_classes", "resumed", "black_boxed"]
)
def test_all_ranks_end_with_the_same_surrogate_moments_and_model(results: Results, name: str) -> None:
    first, second = (result[name] for result in results)
    for part in ("surrogate", "moments", "model", "numbers"):
        assert_close(first[part], second[part], rtol=0, atol=0)


def test_without_sync_they_drift_apart(results: Results) -> None:
    first, second = (result["alone"] for result in results)
    assert_close(first["model"], second["model"], rtol=0, atol=0)
    assert largest_difference(first["surrogate"], second["surrogate"]) > 0.001


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("name", ranks.LOSSES)
def test_together_they_do_what_one_process_with_all_rows_does(results: Results, name: str, gather: bool) -> None:
    model = ranks.Scores()
    expected = ranks.followed(ranks.LOSSES[name](), model, lambda step: both(step, gather), steps=2)
    found = results[0][f"{name}, {'gathered' if gather else 'own sets'}"]
    assert_close(found["model"], expected["model"], rtol=0, atol=2e-5)
    assert_close(found["surrogate"], expected["surrogate"], rtol=0, atol=2e-4)
    assert_close(found["numbers"], expected["numbers"], rtol=0, atol=2e-4)
    if gather:
        assert found["value"] == pytest.approx(expected["value"], abs=2e-4)
    untrained = dict(ranks.LOSSES[name]().surrogate.state_dict())
    assert largest_difference(expected["surrogate"], untrained) > 0.001


def test_sets_of_unequal_number_and_size_count_like_any(results: Results) -> None:
    loss = SurrogateLoss("f1")
    parts = [ranks.drawn(0, rank, sets=2 + rank, rows=50 + 30 * rank) for rank in range(2)]
    scores, targets, weights = torch.zeros(5, 80), torch.zeros(5, 80), torch.zeros(5, 80)
    for place, (x, y) in zip((slice(0, 2), slice(2, 5)), parts, strict=True):
        rows = y.shape[1]
        scores[place, :rows], targets[place, :rows], weights[place, :rows] = x[..., 0], y, 1
    targets[0, :50], targets[2] = 1, 1 - targets[2]
    with pytest.warns(UserWarning, match="left out 1 of 5"):
        gap = loss.refine(scores, targets, weights)
    for result in results:
        found = result["unequal"]
        assert_close(found["surrogate"], dict(loss.surrogate.state_dict()), rtol=0, atol=1e-6)
        assert found["numbers"] == pytest.approx({"running_gap": gap, "skipped": 1, "gap": gap}, abs=1e-6)
    assert [len(result["unequal"]["warned"]) for result in results] == [1, 0]


def test_the_gradient_of_sets_that_span_ranks_is_that_of_own_rows_times_the_number_of_ranks(results: Results) -> None:
    parts = [ranks.drawn(0, rank, rows=(40, 70)[rank]) for rank in range(2)]
    scores = torch.cat([x[..., 0].bfloat16() for x, _ in parts], 1).requires_grad_()
    weights = torch.cat((torch.ones(ranks.SETS, 40), parts[1][0][..., 1].abs()), 1)
    value = SurrogateLoss("auc")(scores, torch.cat([y for _, y in parts], 1), weights)
    value.backward()
    for result, own in zip(results, scores.grad.split([40, 70], 1), strict=True):
        assert_close(result["of_unequal_rows"]["value"], value.detach())
        assert_close(result["of_unequal_rows"]["gradient"], 2 * own)


def test_sets_of_several_classes_may_span_ranks(results: Results) -> None:
    generators = [torch.Generator().manual_seed(rank) for rank in range(2)]
    parts = [(torch.randn(2, 40, 3, generator=g), torch.randint(3, (2, 40), generator=g)) for g in generators]
    scores, targets = (torch.cat(tensors, 1) for tensors in zip(*parts, strict=True))
    loss = SurrogateLoss("macro_f1")
    loss.refine(scores, targets)
    value = loss(scores.requires_grad_(), targets)
    value.backward()
    for result, own in zip(results, scores.grad.split(40, 1), strict=True):
        assert_close(result["several_classes"]["value"], value.detach())
        assert_close(result["several_classes"]["gradient"], 2 * own)


def test_a_function_of_a_user_is_called_on_the_first_rank_on_the_sets_of_all(results: Results) -> None:
    assert [result["black_boxed"]["calls"] > 0 for result in results] == [True, False]
    loss = results[0]["black_boxed"]
    untrained = dict(new_surrogate("default", 0).state_dict())
    assert largest_difference(loss["surrogate"], untrained) > 0.001


def test_if_one_rank_fails_all_do(results: Results) -> None:
    for rank, result in enumerate(results):
        failed, *uneven, dtypes = result["errors"]
        assert ("an error there" if rank else "no disk") in failed
        assert all(error.endswith("since gather=True joins them, got [2, 3]") for error in uneven)
        assert "expected the same outputs and dtypes on every rank, got [[4, 4, 4], [8, 4, 8]] bytes" in dtypes


def test_our_own_loop_trains_in_one_process_without_waiting_for_others(results: Results) -> None:
    assert all(result["own_trainer"] for result in results)


def test_a_gathering_loss_must_be_in_sync() -> None:
    with pytest.raises(ValueError, match="gather: expected False with sync=False, got True"):
        SurrogateLoss("f1", sync=False, gather=True)


def test_in_one_process_gathering_changes_nothing() -> None:
    def trained(gather: bool) -> dict[str, Any]:
        return ranks.followed(SurrogateLoss("f1", gather=gather), ranks.Scores(), lambda step: ranks.drawn(step, 0))

    assert_close(trained(True), trained(False), rtol=0, atol=0)
