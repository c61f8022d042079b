"""The search of offsets, against trying everything."""

from __future__ import annotations

import pickle
import sys
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from torch import Tensor

from metricgrad.metrics.class_offsets import TRIALS, OutputSets
from metricgrad.metrics.registry import builtin_metrics, get_metric
from metricgrad.metrics.tasks import MULTICLASS, MULTILABEL
from metricgrad.metrics.thresholds import offset_search

DECIDED = {
    labels: [m.name for m in builtin_metrics(task) if m.thresholded]
    for labels, task in ((False, MULTICLASS), (True, MULTILABEL))
}
EXACT = {labels: [name for name in names if get_metric(name).counts] for labels, names in DECIDED.items()}
HUGE = sys.float_info.max


class Case(NamedTuple):
    """A metric and a set for it, `(n, c)`."""

    name: str
    scores: Tensor
    targets: Tensor
    weights: Tensor | None

    @property
    def labels(self) -> bool:
        return get_metric(self.name).task == MULTILABEL

    def loss(self, offsets: Tensor) -> float:
        return float(get_metric(self.name)(self.scores + offsets, self.targets, self.weights))

    def found(self) -> Tensor:
        return offset_search(get_metric(self.name)).search(self.scores, self.targets, self.weights)[0]

    def steps_of(self, offsets: Tensor, k: int) -> list[Tensor]:
        """Every decision that another offset of class k could make: between any two values at which a row changes."""
        shifted = self.scores + offsets
        others = [torch.zeros(len(shifted))] if self.labels else [shifted[:, j] for j in range(3) if j != k]
        ties = torch.cat([other - self.scores[:, k] for other in others]).unique()
        values = torch.cat((ties[:1] - 1, (ties[1:] + ties[:-1]) / 2, ties[-1:] + 1))
        return [torch.cat((offsets[:k], value[None], offsets[k + 1 :])) for value in values]


@st.composite
def cases(draw: st.DrawFn, names: dict[bool, list[str]], size: int = 8, fine: bool = False) -> Case:
    """A small set of three classes, whose scores are quarters, which add up exactly, or fine and thus without ties."""
    labels = draw(st.booleans())
    n, rng = draw(st.integers(1, size)), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = torch.tensor(rng.normal(size=(n, 3)) if fine else rng.integers(-8, 9, (n, 3)) / 4)
    targets = torch.tensor(rng.random((n, 3)) < 0.4 if labels else np.eye(3)[rng.integers(0, 3, n)]).long()
    weights = draw(st.sampled_from([None, torch.tensor(rng.integers(0, 4, n)), torch.tensor(rng.uniform(0.1, 9, n))]))
    return Case(draw(st.sampled_from(names[labels])), scores, targets, weights)


# ---- one class at a time --------------------------------------------------------------------------------------------


@given(case=cases({False: EXACT[False], True: DECIDED[True]}), quarters=st.lists(st.integers(-8, 8), min_size=3))
def test_no_other_offset_of_a_class_loses_less(case: Case, quarters: list[int]) -> None:
    offsets, decision = torch.tensor(quarters[:3]) / 4.0, offset_search(get_metric(case.name))
    one = OutputSets(case.scores[None], case.targets[None], None if case.weights is None else case.weights[None])
    for k in range(3):
        value, promised = decision.best_step(one, offsets.double()[None], torch.tensor([[k]]))
        found = case.loss(torch.cat((offsets[:k], value[0], offsets[k + 1 :])))
        assert found == pytest.approx(min(case.loss(step) for step in case.steps_of(offsets, k)), abs=1e-9)
        assert found == pytest.approx(float(promised), abs=1e-9)


@given(case=cases(DECIDED))
def test_an_offset_is_never_where_a_row_would_tie(case: Case) -> None:
    decision = offset_search(get_metric(case.name))
    one = OutputSets(case.scores[None], case.targets[None], None)
    for k in range(3):
        value, _ = decision.best_step(one, torch.zeros(1, 3, dtype=torch.float64), torch.tensor([[k]]))
        rest = [j for j in range(3) if j != k]
        others = torch.zeros(len(case.scores)) if case.labels else case.scores[:, rest].amax(-1)
        assert not (case.scores[:, k] + value[0] == others).any()


def test_an_offset_is_in_the_middle_of_its_gap_and_as_near_as_any() -> None:
    # The second class is beaten by 2, 1 and 0.5 in rows of which the last two are its own: giving it these two is best.
    scores = torch.tensor([[2.0, 0.0], [2.0, 1.0], [1.0, 0.5], [3.0, 0.0]], dtype=torch.float64)
    offsets = Case("macro_f1", scores, torch.eye(2)[[0, 1, 1, 0]], None).found()
    assert offsets.tolist() == [-0.75, 0.75]
    labels = Case("hamming", torch.tensor([[-3.0], [-1.0], [-2.0]]).double(), torch.tensor([[0], [1], [1]]), None)
    assert labels.found().tolist() == [2.5]


# ---- all classes in turn -------------------------------------------------------------------------------------------


@given(case=cases({False: EXACT[False], True: DECIDED[True]}, fine=True))
def test_in_the_end_no_single_offset_can_be_changed_for_the_better(case: Case) -> None:
    offsets = case.found()
    lost = case.loss(offsets)
    for k in range(3):
        assert lost <= min(case.loss(step) for step in case.steps_of(offsets, k)) + 1e-9


rows = st.tuples(*3 * [st.sampled_from([0.0, 1.0, -1.0, 5e-324, 1e-300, 1e300, HUGE, -HUGE]) | st.floats(-1e6, 1e6)])


@given(rows=st.lists(rows, min_size=1, max_size=9), seed=st.integers(0, 99), labels=st.booleans(), data=st.data())
@example(rows=[(HUGE, -HUGE, 0.0), (-HUGE, HUGE, 0.0)], seed=1, labels=False, data=None)
def test_it_is_never_worse_than_no_offsets(rows: list, seed: int, labels: bool, data: st.DataObject | None) -> None:
    scores, rng = torch.tensor(rows, dtype=torch.float64), np.random.default_rng(seed)
    targets = torch.tensor(rng.random(scores.shape) < 0.4 if labels else np.eye(3)[rng.integers(0, 3, len(rows))])
    for name in DECIDED[labels] if data is None else [data.draw(st.sampled_from(DECIDED[labels]))]:
        case = Case(name, scores, targets.long(), None)
        offsets = case.found()
        assert offsets.isfinite().all()
        assert case.loss(offsets) <= case.loss(torch.zeros(3))


@given(case=cases({False: DECIDED[False], True: ["hamming"]}))
def test_offsets_of_classes_have_a_mean_of_zero(case: Case) -> None:
    assume(not case.labels)
    assert float(case.found().mean()) == pytest.approx(0, abs=1e-12)


@given(case=cases(DECIDED, size=40, fine=True), seed=st.integers(0, 2**32 - 1))
def test_renaming_the_classes_renames_the_offsets(case: Case, seed: int) -> None:
    assume(case.name != "quadratic_kappa")
    heavy = torch.ones(len(case.scores)) if case.weights is None else case.weights
    weights = (heavy[:, None] * case.targets).sum(0)
    assume(len(weights.unique()) == 3)  # the rarest class comes first; of equals the lowest, whose name matters
    order = torch.tensor(np.random.default_rng(seed).permutation(3))
    renamed = case._replace(scores=case.scores[:, order], targets=case.targets[:, order])
    assert torch.allclose(renamed.found(), case.found()[order], atol=1e-9)


@given(case=cases(DECIDED, size=20, fine=True), seed=st.integers(0, 2**32 - 1), more=st.integers(1, 5))
def test_rows_of_weight_zero_do_not_choose(case: Case, seed: int, more: int) -> None:
    heavy = torch.ones(len(case.scores)) if case.weights is None else case.weights
    assume(bool((heavy > 0).any()))
    present = case._replace(
        scores=case.scores[heavy > 0], targets=case.targets[heavy > 0], weights=heavy[heavy > 0].double()
    )
    rng = np.random.default_rng(seed)
    padded = case._replace(
        scores=torch.cat((present.scores, torch.tensor(rng.normal(size=(more, 3)) * 9))),
        targets=torch.cat((present.targets, torch.eye(3).long()[torch.tensor(rng.integers(0, 3, more))])),
        weights=torch.cat((present.weights, torch.zeros(more))),
    )
    assert torch.allclose(padded.found(), present.found(), atol=1e-9)


@pytest.mark.parametrize("labels", [False, True])
def test_sets_are_searched_each_by_itself(labels: bool) -> None:
    rng = np.random.default_rng(3)
    scores, weights = torch.tensor(rng.normal(size=(2, 3, 12, 4))), torch.tensor(rng.uniform(0.1, 9, (2, 3, 12)))
    targets = rng.random(scores.shape) < 0.4 if labels else np.eye(4)[rng.integers(0, 4, (2, 3, 12))]
    for name in DECIDED[labels]:
        decision = offset_search(get_metric(name))
        offsets, losses = decision.search(scores, torch.tensor(targets), weights)
        assert offsets.shape == (2, 3, 4)
        assert losses.shape == (2, 3)
        for i in np.ndindex(2, 3):
            alone, lost = decision.search(scores[i], torch.tensor(targets)[i], weights[i])
            assert torch.allclose(offsets[i], alone)
            assert torch.allclose(losses[i], lost)


@pytest.mark.parametrize("name", [*DECIDED[False], *DECIDED[True]])
def test_sets_without_rows_have_no_offsets(name: str) -> None:
    decision, empty = offset_search(get_metric(name)), torch.zeros(2, 0, 3)
    offsets, losses = decision.search(empty, empty)
    assert offsets.tolist() == [[0.0] * 3] * 2
    assert torch.equal(losses, decision.function(empty, empty, None))


def test_many_rows_are_tried_at_quantiles_where_there_are_no_counts() -> None:
    rng = np.random.default_rng(0)
    targets = torch.tensor(rng.random((1000, 3)) < [0.05, 0.2, 0.5]).long()
    scores = torch.tensor(rng.normal(size=(1000, 3))) + 2 * targets - 3
    case, tried = Case("sample_f1", scores, targets, None), []
    metric = get_metric("sample_f1")

    def counted(scores: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
        tried.append(scores.shape[1] if scores.ndim == 4 else 1)
        return metric.function(scores, targets, weights)

    offsets, losses = type(offset_search(metric))(counted, labels=True).search(scores, targets)
    assert max(tried) == TRIALS
    assert float(losses) < 0.7 * case.loss(torch.zeros(3))
    assert float(losses) == pytest.approx(case.loss(offsets))


def test_a_search_survives_pickling() -> None:
    decision = offset_search(get_metric("macro_f1"))
    assert pickle.loads(pickle.dumps(decision)).lowest_loss(torch.eye(3), torch.eye(3)) == 0
