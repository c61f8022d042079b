"""The study of networks in a loop of one's own: its losses, metrics, choices, and the page of what is stored."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import ndimage
from sklearn.metrics import average_precision_score
from torch import Tensor, nn

from metricgrad import SurrogateLoss
from metricgrad.evaluation.store import Store
from metricgrad.losses.binary import CrossEntropy
from metricgrad.losses.pairs import SmoothAveragePrecision
from studies.deep import cells, membranes, page, run, spam
from studies.deep.losses import Batch, Learned, LibAUCAP, plain
from studies.deep.problem import Stratified


def rows(seed: int, count: int = 60) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    targets = (torch.rand(count, generator=generator) < 0.3).float()
    return torch.randn(count, generator=generator) + targets, targets


# ---- losses --------------------------------------------------------------------------------------------------------


def test_narrow_sigmoids_give_average_precision() -> None:
    scores, targets = rows(0)
    weights = torch.where(targets == 1, 0.5, 2.0)
    loss = SmoothAveragePrecision(1e-5)
    assert float(1 - loss(scores, targets)) == pytest.approx(average_precision_score(targets, scores), abs=1e-4)
    oracle = average_precision_score(targets, scores, sample_weight=weights)
    assert float(1 - loss(scores, targets, weights)) == pytest.approx(oracle, abs=1e-4)
    both = loss(torch.stack((scores, scores)), torch.stack((targets, targets)))
    assert float(both) == pytest.approx(float(loss(scores, targets)))


def test_the_gradient_of_libaucs_loss_is_that_of_the_ratio_of_pair_losses() -> None:
    scores, targets = rows(1, 30)
    index = torch.arange(30)
    leaf = scores.clone().requires_grad_()
    (own,) = torch.autograd.grad(LibAUCAP(30, gamma=1.0)(leaf, targets, None, index), leaf)
    pairs = (1.0 - (leaf[targets == 1][:, None] - leaf[None])).clamp(min=0) ** 2
    ratio = -(pairs * targets).sum(1) / pairs.sum(1)
    (oracle,) = torch.autograd.grad(ratio.mean(), leaf)
    torch.testing.assert_close(own, oracle)


def test_the_gradient_of_libaucs_loss_is_that_of_libauc_itself() -> None:
    theirs = pytest.importorskip("libauc.losses.auc", exc_type=ImportError).APLoss(data_len=90, device="cpu")
    ours = LibAUCAP(90)
    for seed in range(3):  # the running means of the two go on from step to step
        scores, targets = rows(seed)
        index = torch.randperm(90, generator=torch.Generator().manual_seed(seed))[:60]
        leaf, other = (scores.clone().requires_grad_() for _ in range(2))
        ours(leaf, targets, None, index).backward()
        theirs(other[:, None], targets[:, None], index).backward()
        assert leaf.grad is not None
        assert float(leaf.grad.abs().max()) > 0.001
        torch.testing.assert_close(leaf.grad, other.grad)


def test_weights_count_as_repeated_rows_in_libaucs_loss() -> None:
    scores, targets = rows(2, 20)
    index, twice = torch.arange(20), torch.where(targets == 1, 1, 2)
    leaf = scores.requires_grad_()
    weighted = LibAUCAP(20)(leaf, targets, twice.float(), index)
    many = (each.repeat_interleave(twice) for each in (leaf, targets))
    repeated = LibAUCAP(20)(*many, None, index.repeat_interleave(twice))
    gradients = [torch.autograd.grad(loss, leaf)[0] for loss in (weighted, repeated)]
    assert float(gradients[0].abs().max()) > 0.001
    torch.testing.assert_close(*gradients)


def test_running_means_of_a_row_take_over_a_share_of_the_newest() -> None:
    scores, targets = rows(3, 20)
    loss, index = LibAUCAP(50, gamma=0.25), torch.arange(20) + 30
    loss(scores, targets, None, index)
    first = loss.u_all.clone()
    loss(scores, targets, None, index)
    positive = index[targets == 1]
    torch.testing.assert_close(loss.u_all[positive], 1.75 * first[positive])
    assert not loss.u_all[:30].any()


def test_a_surrogate_is_refined_in_a_step_and_left_alone_where_it_is_only_followed() -> None:
    scores, targets = rows(4)
    leaf, batch = scores[None].requires_grad_(), Batch(scores, targets[None], torch.ones(1, 60))
    learned = Learned(SurrogateLoss("average_precision"), copies=3)
    before = learned.loss.surrogate.last.weight.clone()
    followed = learned.followed(leaf, batch)
    assert torch.equal(learned.loss.surrogate.last.weight, before)
    assert learned(leaf, batch).requires_grad
    assert not torch.equal(learned.loss.surrogate.last.weight, before)
    anchored = Learned(SurrogateLoss("average_precision"), anchor=0.5)
    added = 0.5 * CrossEntropy()(leaf, batch.targets, batch.weights)
    torch.testing.assert_close(anchored.followed(leaf, batch), followed + added)


def test_sets_of_few_positives_are_weighted_as_the_data() -> None:
    targets = torch.zeros(1_000)
    targets[:20] = 1
    drawn, own, weights = Stratified(targets, 100, 10).draw(torch.Generator().manual_seed(0))
    assert own.sum() == 10
    assert len(set(drawn[:10].tolist())) == 10
    assert torch.equal(targets[drawn], own)
    assert float((weights * own).sum() / weights.sum()) == pytest.approx(0.02)
    assert float(weights.sum()) == pytest.approx(100)


# ---- membranes and messages ----------------------------------------------------------------------------------------


def discs(seed: int) -> Tensor:
    smooth = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=(48, 48)), 3)
    return torch.from_numpy(smooth > 0).float()


def test_the_f1_of_boundaries_is_that_of_distances_between_edges() -> None:
    truth, called = discs(0), discs(1)

    def edge(mask: Tensor) -> np.ndarray:
        inside = mask.numpy().astype(bool)
        return inside & ~ndimage.binary_erosion(inside, np.ones((3, 3)), border_value=1)

    def share(points: np.ndarray, others: np.ndarray) -> float:
        distance = ndimage.distance_transform_cdt(~others, "chessboard")
        return float((distance[points] <= membranes.TOLERANCE).mean())

    precision, recall = share(edge(called), edge(truth)), share(edge(truth), edge(called))
    oracle = 2 * precision * recall / (precision + recall)
    assert 0.1 < oracle < 0.9
    assert float(membranes.boundary_f1(truth, called)) == pytest.approx(oracle)
    assert membranes.boundary_of_rows(truth.flatten(), called.flatten()) == pytest.approx(oracle)
    both = membranes.boundary_f1(torch.stack((truth, truth)), torch.stack((called, truth)))
    assert both.tolist() == pytest.approx([oracle, 1.0])


def test_messages_are_the_mean_of_their_tokens_without_padding() -> None:
    torch.manual_seed(0)
    bag, rows = spam.Bag(4), torch.tensor([[5, 7, 7, 0, 0], [9, 0, 0, 0, 0]])
    table = bag.bag.weight
    torch.testing.assert_close(bag(rows), torch.stack(((table[5] + 2 * table[7]) / 3, table[9])))


def test_tokens_are_words_and_groups_of_letters_whatever_the_case() -> None:
    assert spam.tokens("WIN now") == spam.tokens("win  now")
    assert spam.tokens("win now") != spam.tokens("now win")
    assert len(spam.tokens("ab")) == 1 + 2  # the word, " ab" and "ab "
    assert min(spam.tokens("any text at all, 100 %")) > 0


# ---- choices -------------------------------------------------------------------------------------------------------


class Line:
    """A model of one weight, which is its own value on validation rows; test rows say the opposite."""

    def network(self) -> nn.Module:
        return nn.Linear(1, 1, bias=False)

    def validated(self, model: nn.Module) -> dict[str, float]:
        weight = next(model.parameters()).item()
        return {"up": weight, "down": -weight}

    def tested(self, model: nn.Module) -> dict[str, float]:
        weight = next(model.parameters()).item()
        return {"up": -weight, "down": weight, "up:note": 10 * weight}

    def batch(self, generator: torch.Generator) -> Batch:
        return Batch(torch.ones(2, 1), torch.tensor([[1.0, 0.0]]))

    def scores(self, model: nn.Module, batch: Batch) -> Tensor:
        return (model(batch.inputs)[:, 0] * torch.tensor([1.0, 0.0]))[None]


def looked_at(weights: list[float]) -> run.Best:
    best, model = run.Best(), Line().network()
    for step, weight in enumerate(weights):
        with torch.no_grad():
            model.weight.fill_(weight)
        best.look(10 * step, model, Line().validated(model))
    return best


def test_rate_and_checkpoint_are_chosen_on_validation_rows_alone() -> None:
    found = run.judged(Line(), {"0.1": looked_at([0.0, 0.5, 0.2]), "0.3": looked_at([0.0, 0.25, -1.0])})
    up, down = found["chosen"]["up"], found["chosen"]["down"]
    assert (up["rate"], up["step"], up["validation"], up["test"], up["note"]) == ("0.1", 10, 0.5, -0.5, 5.0)
    assert (down["rate"], down["step"], down["test"]) == ("0.3", 20, -1.0)
    assert found["curves"]["0.1"]["up"] == pytest.approx([0.0, 0.5, 0.2])


def test_a_model_is_looked_at_before_every_step_and_after_the_last() -> None:
    torch.manual_seed(0)
    problem, seen = Line(), []
    model = problem.network()
    sets = torch.Generator().manual_seed(0)
    run.follow(
        problem, model, plain(CrossEntropy()), 0.1, sets, 3, lambda step: seen.append((step, model.weight.item()))
    )
    assert [step for step, _ in seen] == [0, 1, 2, 3]
    weights = [weight for _, weight in seen]
    assert weights == sorted(weights)  # cross-entropy raises the score of the positive
    assert weights[3] - weights[2] < weights[1] - weights[0]  # along a cosine


def test_jobs_of_a_seed_are_together_and_begin_with_the_warm_up() -> None:
    planned = run.jobs("spam", [3, 4], ["focal"], ["early", "late"])
    assert [job["seed"] for job in planned] == [3, 3, 3, 4, 4, 4]
    assert [(job["loss"], job["start"]) for job in planned[:3]] == [
        ("cross-entropy", "none"),
        ("focal", "early"),
        ("focal", "late"),
    ]


# ---- what is shown -------------------------------------------------------------------------------------------------

CELL = cells.Cell("spam", "m", "spam, M", "surrogate-ap")


def job(seed: int, loss: str, start: str, validation: float, test: float) -> dict[str, object]:
    return {
        "run": {"task": "spam", "seed": seed, "loss": loss, "start": start},
        "chosen": {"m": {"rate": "0.1", "step": 0, "validation": validation, "test": test}},
    }


def test_the_start_is_chosen_on_validation_rows() -> None:
    jobs = [job(0, "focal", "early", 0.5, 0.1), job(0, "focal", "late", 0.4, 0.9), job(1, "focal", "early", 0.1, 0.2)]
    found = cells.by_start(cells.frame_of([*jobs, job(1, "focal", "late", 0.2, 0.3)]), CELL, "focal")
    assert found["chosen"].tolist() == [0.1, 0.3]
    assert found["late"].tolist() == [0.9, 0.3]


def test_seeds_for_trying_things_out_are_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path / "deep.jsonl")
    for seed in (4, cells.FIRST_PILOT):
        one = job(seed, "focal", "early", 0.5, 0.5)
        store.add(one["run"], {"chosen": one["chosen"]})
    assert [record["run"]["seed"] for record in cells.records_of(store.path)] == [4]


def test_differences_are_paired_by_seed() -> None:
    gap = cells.difference(pd.Series([0.3, 0.5, 0.4]), pd.Series([0.2, 0.5, 0.2]))
    assert (gap.mean, gap.error) == pytest.approx((0.1, 0.1 / 3**0.5))
    assert (gap.ahead, gap.seeds, gap.word) == (2, 3, "ahead")
    assert cells.difference(pd.Series([0.1, 0.2]), pd.Series([0.2, 0.1])).word == "level"
    assert cells.difference(pd.Series([0.1, 0.1]), pd.Series([0.2, 0.3])).word == "behind"


def test_the_best_rival_is_a_hand_made_loss() -> None:
    jobs = [job(0, "focal", "early", 0.5, 0.6), job(0, "surrogate-ap", "early", 0.5, 0.9)]
    frame = cells.frame_of([*jobs, job(0, "cross-entropy", "early", 0.5, 0.5)])
    assert cells.best_rival(frame, CELL) == "focal"


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.page() == page.PAGE.read_text("utf-8")


def test_every_loss_of_a_task_has_been_run_from_both_starts_on_all_its_seeds() -> None:
    frame = cells.frame_of(cells.records_of())
    for task, seeds in (("fashion", 5), ("membranes", 3), ("spam", 5)):
        plan = run.PLANS[task]
        own = frame[(frame["task"] == task) & ~frame["loss"].isin(plan.extra) & (frame["start"] != "none")]
        counts = own.groupby(["loss", "start", "metric"])["seed"].nunique()
        assert set(counts) == {seeds}
        assert set(own["loss"]) == set(plan.losses) - set(plan.extra)


def test_what_was_kept_is_the_best_of_three_rates_on_validation_rows() -> None:
    for record in cells.records_of():
        if record["run"]["start"] != "none":
            assert len(record["curves"]) == 3
            for metric, chosen in record["chosen"].items():
                best = max(max(curves[metric]) for curves in record["curves"].values())
                assert chosen["validation"] == pytest.approx(best)
