"""Formulas of several classes and labels against scikit-learn, on sets that Hypothesis makes up."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import logsumexp, softmax
from torch import Tensor

from metricgrad.metrics import multiclass as formulas
from metricgrad.metrics import multilabel
from metricgrad.metrics.confusion import Function, class_counts, label_counts
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.multiclass import ALIASES as CLASS_ALIASES
from metricgrad.metrics.multiclass import METRICS as CLASS_METRICS
from metricgrad.metrics.multiclass import top_k_error
from metricgrad.metrics.multilabel import ALIASES as LABEL_ALIASES
from metricgrad.metrics.multilabel import METRICS as LABEL_METRICS
from metricgrad.metrics.registry import builtin_metrics, get_metric
from metricgrad.metrics.tasks import MULTICLASS, MULTILABEL
from metricgrad.surrogate.views import VIEWS

# scikit-learn warns about sets in which classes are missing, whose value is what is compared
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:sklearn", "ignore::RuntimeWarning:sklearn")

OF_CLASS_COUNTS = ("macro_f1", "micro_f1", "weighted_f1", "mean_iou")
OF_CLASS_COUNTS += ("cohen_kappa", "quadratic_kappa", "multiclass_mcc")
CLASSES: dict[str, Function] = {
    name: partial(formulas.at_argmax, counts=getattr(formulas, f"{name}_loss")) for name in OF_CLASS_COUNTS
} | {
    "balanced_error": partial(formulas.at_argmax, counts=formulas.multiclass_balanced_error_loss),
    "top_k_error(1)": partial(formulas.top_k_error_loss, k=1),
    "top_k_error(2)": partial(formulas.top_k_error_loss, k=2),
    "macro_auc": formulas.macro_auc_loss,
}
LABELS: dict[str, Function] = {
    "label_macro_f1": partial(multilabel.at_labels, counts=formulas.macro_f1_loss),
    "label_micro_f1": partial(multilabel.at_labels, counts=formulas.micro_f1_loss),
    "hamming": partial(multilabel.at_labels, counts=multilabel.hamming_loss),
    "sample_f1": multilabel.sample_f1_loss,
    "label_ranking_average_precision": multilabel.label_ranking_average_precision_loss,
    "label_map": multilabel.label_map_loss,
}
every_formula = pytest.mark.parametrize("name", [*CLASSES, *LABELS])


class Set(NamedTuple):
    scores: np.ndarray
    targets: np.ndarray
    weights: np.ndarray | None = None
    labels: bool = False

    @property
    def formulas(self) -> dict[str, Function]:
        return LABELS if self.labels else CLASSES

    def loss(self, name: str) -> float:
        return float((CLASSES | LABELS)[name](*self.tensors()))

    def losses(self) -> dict[str, float]:
        return {name: self.loss(name) for name in self.formulas}

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None]:
        weights = None if self.weights is None else torch.tensor(self.weights)
        return torch.tensor(self.scores), torch.tensor(self.targets), weights

    def taken(self, rows: np.ndarray) -> Set:
        weights = None if self.weights is None else self.weights[rows]
        return self._replace(scores=self.scores[rows], targets=self.targets[rows], weights=weights)

    @property
    def w(self) -> np.ndarray:
        return np.ones(len(self.scores)) if self.weights is None else self.weights

    @property
    def present(self) -> Set:
        """The rows that weigh anything, their weights of about one: scikit-learn counts the others as classes."""
        rows = self.taken(self.w > 0)
        return rows._replace(weights=rows.w / rows.w.max(initial=0, where=rows.w > 0)) if len(rows.w) else rows

    @property
    def actual(self) -> np.ndarray:
        return self.targets.argmax(-1)

    @property
    def given(self) -> np.ndarray:
        return self.scores.argmax(-1)


@st.composite
def sets(draw: st.DrawFn, labels: bool | None = None, weighted: bool | None = None, classes: int | None = None) -> Set:
    """A set with ties, classes that are missing, and weights of any kind; now and then a large one."""
    labels = draw(st.booleans()) if labels is None else labels
    size = draw(st.integers(1, 2000)) if draw(st.integers(0, 19)) == 0 else draw(st.integers(1, 30))
    classes = draw(st.integers(2, 6)) if classes is None else classes
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    shape = (size, classes)
    scores = {
        "ties": lambda: rng.integers(-2, 3, shape) / 2.0,
        "few": lambda: rng.normal(size=(3, classes))[rng.integers(0, 3, size)],
        "normal": lambda: rng.normal(size=shape),
        "float32": lambda: rng.normal(size=shape).astype(np.float32).astype(np.float64),
        "extreme": lambda: rng.choice([-1, 1], shape) * 10.0 ** rng.choice([-300, -30, 0, 30, 300], shape),
    }[draw(st.sampled_from(["ties", "few", "normal", "float32", "extreme"]))]()
    if labels:
        shares = rng.choice([0.0, 0.02, 0.5, 0.9, 1.0], classes)
        targets = (rng.random(shape) < shares).astype(np.int64)
    else:
        there = rng.choice(classes, draw(st.integers(1, classes)), replace=False)
        targets = np.eye(classes, dtype=np.int64)[rng.choice(there, size, p=rng.dirichlet(np.ones(len(there))))]
    kinds = ["none"] * (weighted is not True) + ["whole", "real", "zeros", "scaled"] * (weighted is not False)
    weights = {
        "none": lambda: None,
        "whole": lambda: rng.integers(1, 6, size).astype(float),
        "real": lambda: rng.uniform(0.1, 10, size),
        "zeros": lambda: rng.integers(0, 3, size).astype(float),
        "scaled": lambda: rng.uniform(0.5, 2, size) * 10.0 ** rng.choice([-300, -9, 9, 300]),
    }[draw(st.sampled_from(kinds))]()
    return Set(scores, targets, weights, labels)


# ---- the oracles ---------------------------------------------------------------------------------------------------


def kappa(data: Set, weighting: str | None) -> float:
    """Return scikit-learn's kappa over all classes, in their places; chance where there is nothing to agree on."""
    value = sk.cohen_kappa_score(
        data.actual, data.given, labels=np.arange(data.scores.shape[1]), weights=weighting, sample_weight=data.w
    )
    return 0.0 if np.isnan(value) else value


def correlation(data: Set) -> float:
    """Return scikit-learn's; 0 where one class is all there is, of which it takes the root of a rounding error."""
    both = len(np.unique(data.actual)) > 1 and len(np.unique(data.given)) > 1
    return sk.matthews_corrcoef(data.actual, data.given, sample_weight=data.w) if both else 0.0


def within_top(data: Set, k: int) -> float:
    """Return scikit-learn's top-k accuracy, which of equals takes the highest class first: of classes the other way."""
    classes = data.scores.shape[1]
    if k >= classes:
        return 1.0
    if classes == 2:
        return sk.accuracy_score(data.actual, data.given, sample_weight=data.w)
    back = classes - 1 - data.actual
    return sk.top_k_accuracy_score(back, data.scores[:, ::-1], k=k, labels=np.arange(classes), sample_weight=data.w)


def separate_auc(data: Set) -> float:
    """Return the mean of scikit-learn's AUC of each class that is there against the rest, by its log-odds."""
    areas = []
    for k in range(data.scores.shape[1]):
        if 0 < data.targets[:, k].sum() < len(data.targets):
            others = np.sort(np.delete(data.scores, k, axis=1), axis=1)
            best = others[:, -1:]
            odds = (data.scores[:, k] - best[:, 0]) - logsumexp(others - best, axis=1)
            areas.append(sk.roc_auc_score(data.targets[:, k], odds, sample_weight=data.w))
    return float(np.mean(areas)) if areas else 0.5


def f1_of(data: Set, average: str) -> float:
    """Return scikit-learn's F1 of labels, over those that are somewhere: columns of nothing but zeros are left out."""
    called = (data.scores >= 0).astype(int)
    somewhere = (called + data.targets).any(0) if average == "macro" else np.ones(called.shape[1], bool)
    if not somewhere.any():
        return 0.0
    called, targets = called[:, somewhere], data.targets[:, somewhere]
    if called.shape[1] == 1:
        return sk.f1_score(targets[:, 0], called[:, 0], sample_weight=data.w, zero_division=0)
    return sk.f1_score(targets, called, average=average, sample_weight=data.w, zero_division=0)


def mean_ap(data: Set) -> float:
    """Return the mean of scikit-learn's average precision over the labels that some row has."""
    found = [k for k in range(data.scores.shape[1]) if data.targets[:, k].any()]
    every = [sk.average_precision_score(data.targets[:, k], data.scores[:, k], sample_weight=data.w) for k in found]
    return float(np.mean(every)) if every else 0.0


def averaged(fn: Callable[..., float], average: str) -> Callable[[Set], float]:
    return lambda data: fn(data.actual, data.given, average=average, sample_weight=data.w, zero_division=0)


ORACLES: dict[str, Callable[[Set], float]] = {
    "macro_f1": averaged(sk.f1_score, "macro"),
    "micro_f1": averaged(sk.f1_score, "micro"),
    "weighted_f1": averaged(sk.f1_score, "weighted"),
    "mean_iou": averaged(sk.jaccard_score, "macro"),
    "balanced_error": lambda data: sk.balanced_accuracy_score(data.actual, data.given, sample_weight=data.w),
    "cohen_kappa": lambda data: (1 + kappa(data, None)) / 2,
    "quadratic_kappa": lambda data: (1 + kappa(data, "quadratic")) / 2,
    "multiclass_mcc": lambda data: (1 + correlation(data)) / 2,
    "top_k_error(1)": lambda data: sk.accuracy_score(data.actual, data.given, sample_weight=data.w),
    "top_k_error(2)": lambda data: within_top(data, 2),
    "macro_auc": separate_auc,
    "label_macro_f1": lambda data: f1_of(data, "macro"),
    "label_micro_f1": lambda data: f1_of(data, "micro"),
    "sample_f1": lambda data: f1_of(data, "samples"),
    "hamming": lambda data: 1 - sk.hamming_loss(data.targets, data.scores >= 0, sample_weight=data.w),
    "label_ranking_average_precision": lambda data: sk.label_ranking_average_precision_score(
        data.targets, data.scores, sample_weight=data.w
    ),
    "label_map": mean_ap,
}


# ---- agreement with the oracles ------------------------------------------------------------------------------------


@given(data=sets())
def test_every_formula_agrees_with_scikit_learn(data: Set) -> None:
    assume(len(data.present.scores))
    # Of odds that differ by less than numbers can tell, as of 1e-30 and 1e-300 beside 1, anybody's order is right.
    clear = [name for name in data.formulas if name != "macro_auc" or np.abs(data.scores).max() < 100]
    expected = {name: 1 - ORACLES[name](data.present) for name in clear}
    assert {name: data.loss(name) for name in clear} == pytest.approx(expected, abs=1e-9)


@given(classes=st.integers(3, 6), size=st.integers(0, 60), distinct=st.integers(1, 60), seed=st.integers(0, 2**32 - 1))
def test_the_area_is_that_of_softmax_probabilities(classes: int, size: int, distinct: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    actual = np.concatenate((np.arange(classes), rng.integers(0, classes, size)))
    scores = rng.normal(size=(distinct, classes))[rng.integers(0, distinct, len(actual))]
    weights = rng.uniform(0.1, 10, len(actual))
    expected = sk.roc_auc_score(actual, softmax(scores, -1), multi_class="ovr", sample_weight=weights)
    assert Set(scores, np.eye(classes)[actual], weights).loss("macro_auc") == pytest.approx(1 - expected, abs=1e-9)


@given(data=sets(labels=False, classes=2))
def test_of_two_classes_each_is_what_its_binary_form_is(data: Set) -> None:
    rows = data.present
    assume(len(rows.w))
    assert data.loss("micro_f1") == pytest.approx(data.loss("top_k_error(1)"), abs=1e-12)
    # With two classes in two places, the square of a distance is the distance.
    assert data.loss("quadratic_kappa") == pytest.approx(data.loss("cohen_kappa"), abs=1e-9)


def test_log_odds_do_not_saturate() -> None:
    scores = torch.tensor([[50.0, 0.0, 0.0], [60.0, 0.0, 0.0], [800.0, 0.0, -800.0]], dtype=torch.float64)
    assert formulas.class_log_odds(scores)[:, 0].tolist() == pytest.approx([50 - np.log(2), 60 - np.log(2), 800.0])
    targets = torch.eye(3)[torch.tensor([1, 0, 0])]
    assert formulas.auc_loss(formulas.class_log_odds(scores)[:, 0], targets[:, 0], None) == 0


def test_equal_odds_are_equal_to_the_last_bit_whatever_the_class() -> None:
    rng = np.random.default_rng(0)
    for classes in range(2, 9):
        row = rng.integers(-2, 3, classes) / 3
        rows = torch.tensor(np.stack([rng.permutation(row) for _ in range(200)]))
        odds = formulas.class_log_odds(
            rows.mT.contiguous().mT
        )  # laid out the other way, which has other sums round otherwise
        assert len(odds.unique()) == len(rows.unique())


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4))
def test_log_odds_of_the_largest_numbers_are_never_nan(row: list[float]) -> None:
    assert not formulas.class_log_odds(torch.tensor([row], dtype=torch.float64)).isnan().any()


# ---- counts --------------------------------------------------------------------------------------------------------


def test_of_equal_scores_the_lowest_class_is_given() -> None:
    scores = torch.tensor([[1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [3.0, 3.0, 3.0]])
    counts = class_counts(scores, torch.eye(3)[[1, 1, 0]])
    assert counts.predicted.tolist() == [2, 1, 0]
    assert counts.tp.tolist() == [1, 1, 0]
    assert counts.actual.tolist() == [1, 2, 0]
    assert counts.total == 3
    assert counts.squared_distance == 1


def test_a_score_of_zero_gives_the_label() -> None:
    counts = label_counts(torch.tensor([[0.0, -1e-9], [-0.0, 1.0]]), torch.tensor([[1, 1], [0, 1]]))
    assert counts.predicted.tolist() == [2, 1]
    assert counts.tp.tolist() == [1, 1]
    assert counts.actual.tolist() == [1, 2]


def test_of_equal_scores_the_lowest_classes_are_among_the_top() -> None:
    scores, actual = torch.zeros(4, 4), torch.eye(4)
    errors = [float(formulas.top_k_error_loss(scores, actual, None, k)) for k in (1, 2, 3, 4, 5)]
    assert errors == [0.75, 0.5, 0.25, 0.0, 0.0]


@given(data=sets(labels=False, weighted=True))
def test_all_that_is_right_loses_nothing_to_the_last_bit(data: Set) -> None:
    right = data._replace(scores=data.targets * 2.0 - 1)
    assume(len(np.unique(right.present.actual)) > 1)
    assert {name: right.loss(name) for name in CLASSES} == dict.fromkeys(CLASSES, 0.0)


# ---- sets that cannot be judged lose what the documentation says ----------------------------------------------------

CHANCE = ("cohen_kappa", "quadratic_kappa", "multiclass_mcc", "macro_auc")
EMPTY = dict.fromkeys([*CLASSES, *LABELS], 1.0) | dict.fromkeys(CHANCE, 0.5)
EMPTY |= {"balanced_error": 0.75, "top_k_error(1)": 0.0, "top_k_error(2)": 0.0, "hamming": 0.0}


@every_formula
@pytest.mark.parametrize("weights", [None, torch.zeros(3, 0)])
def test_an_empty_set_loses_as_documented(name: str, weights: Tensor | None) -> None:
    loss = (CLASSES | LABELS)[name](torch.zeros(3, 0, 4), torch.zeros(3, 0, 4), weights)
    assert loss.tolist() == [EMPTY[name]] * 3


@every_formula
def test_a_set_that_weighs_nothing_loses_as_an_empty_one_does(name: str) -> None:
    assert (CLASSES | LABELS)[name](torch.randn(5, 4), torch.eye(4)[[0, 1, 2, 3, 0]], torch.zeros(5)) == EMPTY[name]


@every_formula
def test_no_sets_have_no_losses(name: str) -> None:
    assert (CLASSES | LABELS)[name](torch.zeros(0, 5, 3), torch.zeros(0, 5, 3), None).shape == (0,)


@pytest.mark.parametrize("name", CLASSES)
def test_a_set_of_one_class_that_is_given_everywhere_loses_as_documented(name: str) -> None:
    data = Set(np.eye(3)[[1] * 5], np.eye(3)[[1] * 5])
    assert data.loss(name) == (0.5 if name in CHANCE else 0.0)


@pytest.mark.parametrize("name", LABELS)
def test_a_set_without_labels_that_is_given_none_loses_as_documented(name: str) -> None:
    data = Set(np.full((5, 3), -1.0), np.zeros((5, 3)))
    assert data.loss(name) == (0.0 if name in ("hamming", "label_ranking_average_precision") else 1.0)


@every_formula
def test_a_single_class_or_label_can_be_judged(name: str) -> None:
    scores, targets = np.array([[1.0], [2.0], [-1.0]]), np.ones((3, 1))
    assert 0 <= Set(scores, targets).loss(name) <= 1


# ---- what holds for every formula -----------------------------------------------------------------------------------


@given(data=sets())
def test_every_loss_lies_between_zero_and_one(data: Set) -> None:
    assert all(0 <= loss <= 1 for loss in data.losses().values())


@given(data=sets(weighted=False), seed=st.integers(0, 2**32 - 1))
def test_a_row_given_thrice_weighs_three(data: Set, seed: int) -> None:
    times = np.random.default_rng(seed).integers(0, 4, len(data.scores))
    repeated = data.taken(np.repeat(np.arange(len(times)), times))
    assert repeated.losses() == pytest.approx(data._replace(weights=times).losses(), abs=1e-9)


@given(data=sets(), seed=st.integers(0, 2**32 - 1), size=st.integers(1, 9))
def test_padding_of_weight_zero_is_as_good_as_absent(data: Set, seed: int, size: int) -> None:
    padding = np.random.default_rng(seed).normal(size=(size, data.scores.shape[1]))
    scores = np.concatenate((padding, data.scores))
    targets = np.concatenate((np.zeros(padding.shape, int), data.targets))
    padded = data._replace(scores=scores, targets=targets, weights=np.concatenate((np.zeros(size), data.w)))
    assert padded.losses() == pytest.approx(data.losses(), abs=1e-9)


@given(data=sets(weighted=True), exponent=st.integers(-290, 290))
def test_only_ratios_of_weights_matter(data: Set, exponent: int) -> None:
    plain = data._replace(weights=data.w / max(data.w.max(), 1e-300))
    scaled = plain._replace(weights=plain.w * 10.0**exponent)
    assert scaled.losses() == pytest.approx(plain.losses(), abs=1e-9)


@given(kind=st.booleans(), data=st.data())
def test_a_batch_is_judged_as_its_sets_are_one_by_one(kind: bool, data: st.DataObject) -> None:
    many = data.draw(st.lists(sets(kind, classes=3), min_size=1, max_size=4))
    longest = max(len(one.scores) for one in many)
    scores, targets = torch.zeros(2, len(many), 1, longest, 3, dtype=torch.float64)
    weights = torch.zeros(len(many), 1, longest, dtype=torch.float64)
    for i, one in enumerate(many):
        rows = slice(len(one.scores))
        scores[i, 0, rows], targets[i, 0, rows] = torch.tensor(one.scores), torch.tensor(one.targets)
        weights[i, 0, rows] = torch.tensor(one.w)
    alone = [one.losses() for one in many]
    for name, formula in many[0].formulas.items():
        together = formula(scores, targets, weights)
        assert together.shape == (len(many), 1)
        assert together[:, 0].tolist() == pytest.approx([losses[name] for losses in alone], abs=1e-9), name


@given(data=sets(), seed=st.integers(0, 2**32 - 1))
def test_the_names_of_classes_do_not_matter_unless_they_are_ordered(data: Set, seed: int) -> None:
    # Of equal scores the lowest class is given, so that renaming classes with ties gives others.
    assume(data.labels or all(len(np.unique(row)) == len(row) for row in data.scores))
    order = np.random.default_rng(seed).permutation(data.scores.shape[1])
    renamed = data._replace(scores=data.scores[:, order], targets=data.targets[:, order])
    expected = {name: loss for name, loss in data.losses().items() if name != "quadratic_kappa"}
    assert {name: renamed.loss(name) for name in expected} == pytest.approx(expected, abs=1e-9)


@given(data=sets(labels=False))
def test_kappa_of_ordered_classes_reads_the_same_backwards(data: Set) -> None:
    assume(all(len(np.unique(row)) == len(row) for row in data.scores))
    back = data._replace(scores=data.scores[:, ::-1].copy(), targets=data.targets[:, ::-1].copy())
    assert back.loss("quadratic_kappa") == pytest.approx(data.loss("quadratic_kappa"), abs=1e-9)


@given(data=sets(), dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.float16]))
def test_any_float_type_is_judged_as_its_double(data: Set, dtype: torch.dtype) -> None:
    scores, targets, weights = data.tensors()
    limit = torch.finfo(dtype).max
    scores = scores.clamp(-limit, limit).to(dtype)
    for name, formula in data.formulas.items():
        found, expected = (formula(s, targets.bool(), weights) for s in (scores, scores.double()))
        assert float(found) == pytest.approx(float(expected), abs=1e-9), name


# ---- the metrics as records ------------------------------------------------------------------------------------------

OF_CLASSES, OF_LABELS = builtin_metrics(MULTICLASS), builtin_metrics(MULTILABEL)
EVERY = [*OF_CLASSES, *OF_LABELS]
every_metric = pytest.mark.parametrize("metric", EVERY, ids=lambda metric: metric.name)
RNG = np.random.default_rng(0)
SCORES, TARGETS = RNG.normal(size=(2, 12, 7)), np.eye(7, dtype=int)[RNG.integers(0, 7, (2, 12))]


def test_builtin_metrics_are_those_of_the_task() -> None:
    assert [metric.name for metric in OF_CLASSES] == [*(metric.name for metric in CLASS_METRICS), "top_k_error(5)"]
    assert tuple(OF_LABELS) == LABEL_METRICS


@every_metric
def test_a_metric_is_found_by_its_name_and_lies_between_zero_and_one(metric: Metric) -> None:
    assert get_metric(metric.name).name == metric.name
    for form in (metric, metric.best):
        losses = form(SCORES, TARGETS)
        assert losses.shape == (2,)
        assert ((losses >= 0) & (losses <= 1)).all()
        assert form.explanation.endswith(".")


@pytest.mark.parametrize(("alias", "name"), (CLASS_ALIASES | LABEL_ALIASES).items())
def test_other_names_are_known(alias: str, name: str) -> None:
    assert get_metric(alias).name == name


def test_every_name_is_on_the_page_about_targets() -> None:
    page = (Path(__file__).parents[2] / "docs" / "targets.md").read_text(encoding="utf-8")
    for name in (*(metric.name for metric in (*CLASS_METRICS, *LABEL_METRICS)), *CLASS_ALIASES, *LABEL_ALIASES):
        assert f"`{name}`" in page


def test_classes_may_be_given_as_numbers() -> None:
    actual = TARGETS.argmax(-1)
    for metric in OF_CLASSES:
        assert torch.equal(metric(SCORES, actual), metric(SCORES, TARGETS))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("macro_f1", lambda y, called: sk.f1_score(y, called, average="macro")),
        ("multiclass_accuracy", sk.accuracy_score),
        ("multiclass_balanced_accuracy", sk.balanced_accuracy_score),
        ("multiclass_mcc", sk.matthews_corrcoef),
        ("cohen_kappa", sk.cohen_kappa_score),
        ("quadratic_kappa", lambda y, called: sk.cohen_kappa_score(y, called, weights="quadratic")),
        ("mean_iou", lambda y, called: sk.jaccard_score(y, called, average="macro")),
    ],
)
def test_a_loss_is_shown_as_scikit_learn_knows_it(name: str, value) -> None:
    actual, metric = np.arange(60) % 3, get_metric(name)
    scores = np.random.default_rng(1).normal(size=(60, 3)) + np.eye(3)[actual]
    shown = float(metric.value(metric(scores, actual)))
    assert shown == pytest.approx(value(actual, scores.argmax(-1)), abs=1e-9)


@given(seed=st.integers(0, 2**32 - 1), rows=st.integers(1, 20), classes=st.integers(2, 5))
def test_renaming_the_classes_leaves_every_loss_as_it_is_but_of_ordered_ones(
    seed: int, rows: int, classes: int
) -> None:
    rng = np.random.default_rng(seed)
    scores, order = rng.normal(size=(rows, classes)), rng.permutation(classes)
    weights = rng.uniform(0.1, 9, rows)
    for metric in EVERY:
        if metric.name == "quadratic_kappa":
            continue
        one = metric.task == MULTICLASS
        targets = np.eye(classes)[rng.integers(0, classes, rows)] if one else rng.random((rows, classes)) < 0.4
        expected = float(metric(scores, targets, weights))
        found = float(metric(scores[:, order], targets[:, order], weights))
        assert found == pytest.approx(expected, abs=1e-9), metric.name


def test_the_order_of_ordered_classes_matters() -> None:
    actual = np.array([0, 1, 2, 2])
    near, far = np.eye(3)[[0, 1, 2, 1]], np.eye(3)[[0, 1, 2, 0]]
    kappa, quadratic = get_metric("cohen_kappa"), get_metric("quadratic_kappa")
    assert float(kappa(near, actual)) == pytest.approx(float(kappa(far, actual)), abs=0.05)
    assert float(quadratic(near, actual)) < float(quadratic(far, actual)) - 0.1


@every_metric
def test_the_best_form_loses_no_more_and_says_so(metric: Metric) -> None:
    best = metric.best
    assert (best(SCORES, TARGETS) <= metric(SCORES, TARGETS) + 1e-12).all()
    assert best.best is best
    if metric.thresholded:
        assert best.name == f"best_{metric.name}"
        assert best.explanation.endswith("at the best offsets of the set itself.")
        assert get_metric(best.name).name == best.name


@every_metric
def test_a_metric_survives_copying_and_pickling(metric: Metric) -> None:
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert other.task == metric.task
        for form, again in ((metric, other), (metric.best, other.best)):
            assert torch.equal(form(SCORES, TARGETS), again(SCORES, TARGETS))


@every_metric
def test_a_metric_is_seen_by_a_view_of_several_outputs(metric: Metric) -> None:
    assert metric.view is None or VIEWS[metric.view].outputs


def test_the_number_of_guesses_is_part_of_the_name() -> None:
    assert get_metric("top_k_error").name == "top_k_error(5)"
    assert get_metric("top-k-error@3").name == "top_k_error(3)"
    assert top_k_error(3).label == "top-3 error"
    scores, actual = np.array([[3.0, 2.0, 1.0]] * 3), [0, 1, 2]
    assert [float(top_k_error(k)(scores, actual)) for k in (1, 2, 3)] == pytest.approx([2 / 3, 1 / 3, 0])
    with pytest.raises(ValueError, match=r"k: expected an integer from 1 to 1000000, got 0"):
        top_k_error(0)


@pytest.mark.parametrize(
    ("name", "scores", "targets", "weights", "message"),
    [
        ("macro_f1", [0.1, 0.2], [0, 1], None, r"scores: expected rows and outputs, \(..., n, c\), got .*\(2,\)"),
        ("macro_f1", [[0.1, 0.2]], [2], None, "targets: expected indices of classes below 2, got 2"),
        ("macro_f1", [[0.1, 0.2]], [[0, 0]], None, "targets: expected a single 1 in every row, else 0, got 0"),
        ("hamming", [[0.1, 0.2]], [[0, 2]], None, r"targets: expected 0 or 1, got 2 at index \(0, 1\)"),
        ("hamming", [[0.1, 0.2]], [[0, 1]], [[1, 1]], r"weights: expected the shape of scores \(1,\)"),
    ],
)
def test_bad_rows_raise_an_error_that_names_argument_expectation_and_value(
    name: str, scores, targets, weights, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        get_metric(name)(scores, targets, weights)
