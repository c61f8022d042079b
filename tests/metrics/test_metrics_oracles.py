"""Every built-in metric against scikit-learn, exact fractions or brute force, on sets that Hypothesis makes up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
import sklearn.metrics as sk
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from torch import Tensor

from metricgrad.metrics.registry import Metric, auc, builtin_metrics, eer, get_metric
from metricgrad.metrics.thresholds import best_threshold

# scikit-learn warns about sets of one class, whose value is what is compared
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:sklearn")


class Set(NamedTuple):
    scores: np.ndarray
    targets: np.ndarray
    weights: np.ndarray | None

    def tensors(self, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor | None]:
        weights = None if self.weights is None else torch.tensor(self.weights)
        return torch.tensor(self.scores, dtype=dtype), torch.tensor(self.targets), weights

    def taken(self, rows: np.ndarray) -> Set:
        return Set(self.scores[rows], self.targets[rows], None if self.weights is None else self.weights[rows])

    @property
    def w(self) -> np.ndarray:
        return np.ones(len(self.scores)) if self.weights is None else self.weights

    @property
    def judgeable(self) -> bool:
        return all((self.w * (self.targets == t)).sum() > 0 for t in (0, 1))


@st.composite
def sets(draw: st.DrawFn, max_size: int = 40, weighted: bool | None = None, large: bool = True) -> Set:
    """A set whose hand-picked rows shrink well, or a large one from a seed; with ties, and with weights of any kind."""
    size = draw(st.integers(1, max_size))
    if large and draw(st.integers(0, 19)) == 0:
        size = draw(st.integers(1, 2000))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = draw(st.sampled_from(["ties", "few", "normal", "float32", "extreme"]))
    scores = {
        "ties": lambda: rng.integers(-2, 3, size) / 2.0,
        "few": lambda: rng.normal(size=3)[rng.integers(0, 3, size)],
        "normal": lambda: rng.normal(size=size),
        "float32": lambda: rng.normal(size=size).astype(np.float32).astype(np.float64),
        "extreme": lambda: rng.choice([-1, 1], size) * 10.0 ** rng.choice([-300, -30, 0, 30, 300], size),
    }[kind]()
    share = draw(st.sampled_from([0.0, 0.02, 0.1, 0.5, 0.9, 1.0]))
    targets = (rng.random(size) < share).astype(np.int64)
    kinds = ["none"] * (weighted is not True) + ["whole", "real", "zeros", "scaled"] * (weighted is not False)
    weights = {
        "none": lambda: None,
        "whole": lambda: rng.integers(1, 6, size).astype(float),
        "real": lambda: rng.uniform(0.1, 10, size),
        "zeros": lambda: rng.integers(0, 3, size).astype(float),
        "scaled": lambda: rng.uniform(0.5, 2, size) * 10.0 ** rng.choice([-300, -9, 9, 300]),
    }[draw(st.sampled_from(kinds))]()
    return Set(scores, targets, weights)


FORMS = {m.name: m for plain in builtin_metrics() for m in (plain, plain.best)}
for name in ("f_beta(0.5)", "f_beta(3)", "partial_auc(0.3)", "partial_auc(1)", "precision_at(0.25)", "precision_at(1)"):
    FORMS |= {m.name: m for m in (get_metric(name), get_metric(name).best)}
for name in ("recall_at_precision(0.5)", "recall_at_precision(1)", "precision_at_recall(0.5)", "fnr_at_fpr(0.3)"):
    FORMS[name] = get_metric(name)
for name in ("pr_auc(0,1)", "pr_auc(0.2,0.7)"):
    FORMS[name] = get_metric(name)
# ---- the oracles ---------------------------------------------------------------------------------------------------

Oracle = Callable[[np.ndarray, np.ndarray, np.ndarray], float]


def correlation(y: np.ndarray, called: np.ndarray, w: np.ndarray) -> float:
    """Return scikit-learn's; 0 where one class is all there is, of which it takes the root of a rounding error."""
    both = len(np.unique(y)) > 1 and len(np.unique(called)) > 1
    return sk.matthews_corrcoef(y, called, sample_weight=w) if both else 0.0


LABELLED: dict[str, Oracle] = {
    "error_rate": lambda y, called, w: 1 - sk.accuracy_score(y, called, sample_weight=w),
    "f1": lambda y, called, w: 1 - sk.f1_score(y, called, sample_weight=w, zero_division=0),
    "mcc": lambda y, called, w: (1 - correlation(y, called, w)) / 2,
    "jaccard": lambda y, called, w: 1 - sk.jaccard_score(y, called, sample_weight=w, zero_division=0),
    "balanced_error": lambda y, called, w: 1 - sk.balanced_accuracy_score(y, called, sample_weight=w),
    "precision": lambda y, called, w: 1 - sk.precision_score(y, called, sample_weight=w, zero_division=0),
    "recall": lambda y, called, w: 1 - sk.recall_score(y, called, sample_weight=w, zero_division=0),
    "f_beta(0.5)": lambda y, called, w: 1 - sk.fbeta_score(y, called, beta=0.5, sample_weight=w, zero_division=0),
    "f_beta(2)": lambda y, called, w: 1 - sk.fbeta_score(y, called, beta=2, sample_weight=w, zero_division=0),
    "f_beta(3)": lambda y, called, w: 1 - sk.fbeta_score(y, called, beta=3, sample_weight=w, zero_division=0),
}


def comfortable(weights: np.ndarray) -> np.ndarray:
    """Scale weights to one, which no metric may notice, for scikit-learn's products overflow."""
    return weights / weights.max() if weights.max() > 0 else weights


def precision_within(y: np.ndarray, s: np.ndarray, w: np.ndarray, fraction: float) -> float:
    """Walk down the ranking until the fraction is full, taking of a group of ties what fits, at its own precision."""
    room = top = fraction * w.sum()
    found = 0.0
    for score in np.unique(s)[::-1]:
        group = s == score
        taken = min(room, w[group].sum())
        if taken > 0:
            found += taken * (w * y)[group].sum() / w[group].sum()
            room -= taken
    return found / top if top > 0 else 0.0


def recall_while_precise(y: np.ndarray, s: np.ndarray, w: np.ndarray, precision: float) -> float:
    """Try every threshold, as scikit-learn's precision_recall_curve does but knowing weights of zero."""
    best = 0.0
    for called in (s >= score for score in np.unique(s)):
        tp, all_called = (w * y)[called].sum(), w[called].sum()
        if all_called > 0 and tp / all_called >= precision - 1e-12:
            best = max(best, tp / (w * y).sum() if tp else 0.0)
    return best


def nearest_rates(data: Set, slack: Fraction) -> list[Fraction]:
    """Mean miss and false-alarm rates, in fractions, of the ROC points where both are nearest, up to the slack."""
    weights = [Fraction(w) for w in data.w]
    positives = sum((w for w, t in zip(weights, data.targets, strict=True) if t), Fraction())
    negatives = sum(weights, Fraction()) - positives
    step: dict[float, list[Fraction]] = {}
    for score, target, weight in zip(data.scores, data.targets, weights, strict=True):
        step.setdefault(float(score), [Fraction(), Fraction()])[int(target)] += weight
    fnr, fpr, points = Fraction(1), Fraction(0), [(Fraction(1), Fraction(0))]
    for score in sorted(step, reverse=True):
        fnr, fpr = fnr - step[score][1] / positives, fpr + step[score][0] / negatives
        points.append((fnr, fpr))
    nearest = min(abs(a - b) for a, b in points)
    return [(a + b) / 2 for a, b in points if abs(a - b) <= nearest + slack]


# ---- agreement with the oracles ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", LABELLED)
@given(data=sets())
def test_at_threshold_zero_it_agrees_with_scikit_learn(name: str, data: Set) -> None:
    present = data.taken(
        data.w > 0
    )  # scikit-learn refuses weights of zero only, and counts their class in some metrics
    assume(len(present.scores))
    expected = LABELLED[name](present.targets, (present.scores >= 0).astype(int), comfortable(present.w))
    assert float(get_metric(name)(*data.tensors())) == pytest.approx(expected, abs=1e-9)


@given(data=sets(max_size=60, large=False))
def test_the_best_form_agrees_with_brute_force_over_all_midpoints(data: Set) -> None:
    levels = np.unique(data.scores)
    cuts = np.array([-np.inf, *(low / 2 + high / 2 for low, high in pairwise(levels)), np.inf])
    sides = np.where(data.scores > cuts[:, None], 1.0, -1.0)
    for name in LABELLED:
        losses = get_metric(name)(sides, data.targets, data.weights)
        assert float(get_metric(name).best(*data.tensors())) == pytest.approx(float(losses.min()), abs=1e-7), name


@pytest.mark.parametrize("max_fpr", [0.05, 0.3, 1.0, None])
@given(data=sets())
def test_auc_and_partial_auc_agree_with_scikit_learn(max_fpr: float | None, data: Set) -> None:
    assume(data.judgeable)
    metric = auc if max_fpr is None else get_metric(f"partial_auc({max_fpr})")
    expected = 1 - sk.roc_auc_score(
        data.targets, data.scores, sample_weight=comfortable(data.w), max_fpr=None if max_fpr == 1 else max_fpr
    )
    assert float(metric(*data.tensors())) == pytest.approx(expected, abs=1e-9)


@given(data=sets())
def test_average_precision_agrees_with_scikit_learn(data: Set) -> None:
    assume(data.judgeable)
    expected = 1 - sk.average_precision_score(data.targets, data.scores, sample_weight=comfortable(data.w))
    assert float(get_metric("ap")(*data.tensors())) == pytest.approx(expected, abs=1e-9)


@given(data=sets(weighted=False))
def test_eer_of_rows_that_count_once_is_the_definition_in_exact_fractions(data: Set) -> None:
    assume(data.judgeable)
    assert float(eer(*data.tensors())) == pytest.approx(float(min(nearest_rates(data, Fraction(0)))), abs=1e-12)


@given(data=sets(weighted=True, large=False))
def test_eer_of_weighted_rows_is_the_rate_of_a_nearest_point(data: Set) -> None:
    assume(data.judgeable)
    rates = np.array([float(rate) for rate in nearest_rates(data, Fraction(1, 10**9))])
    assert np.abs(float(eer(*data.tensors())) - rates).min() < 1e-9


@pytest.mark.parametrize("fraction", [0.02, 0.25, 1.0])
@given(data=sets())
def test_precision_at_a_fraction_agrees_with_walking_down_the_ranking(fraction: float, data: Set) -> None:
    expected = 1 - precision_within(data.targets, data.scores, comfortable(data.w), fraction)
    assert float(get_metric(f"precision_at({fraction})")(*data.tensors())) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("precision", [0.5, 0.9, 1.0])
@given(data=sets())
def test_recall_at_a_precision_agrees_with_trying_every_threshold(precision: float, data: Set) -> None:
    expected = 1 - recall_while_precise(data.targets, data.scores, comfortable(data.w), precision)
    assert float(get_metric(f"recall_at_precision({precision})")(*data.tensors())) == pytest.approx(expected, abs=1e-9)


def rates_of_thresholds(data: Set) -> list[tuple[Fraction, Fraction, Fraction]]:
    """Recall, false-alarm rate and precision of every threshold, in fractions, that which calls nothing included."""
    weights = [Fraction(w) for w in data.w]
    of_class = [sum((w for w, t in zip(weights, data.targets, strict=True) if t == k), Fraction()) for k in (0, 1)]
    points = []
    for cut in [np.inf, *np.unique(data.scores)[::-1]]:
        called = [Fraction(), Fraction()]
        for score, target, weight in zip(data.scores, data.targets, weights, strict=True):
            called[int(target)] += weight if score >= cut else 0
        fpr, recall = (part / whole if whole else Fraction() for part, whole in zip(called, of_class, strict=True))
        points.append((recall, fpr, called[1] / sum(called) if sum(called) else Fraction()))
    return points


SLACK = Fraction(1, 10**10)


@pytest.mark.parametrize("least", [0.5, 0.9, 1.0])
@given(data=sets(large=False))
def test_precision_at_a_recall_agrees_with_trying_every_threshold(least: float, data: Set) -> None:
    reached = [p for recall, _, p in rates_of_thresholds(data) if recall >= Fraction(least) - SLACK]
    expected = 1 - float(max(reached, default=0))
    assert float(get_metric(f"precision_at_recall({least})")(*data.tensors())) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("most", [0.01, 0.05, 0.3])
@given(data=sets(large=False))
def test_misses_at_a_false_alarm_rate_agree_with_trying_every_threshold(most: float, data: Set) -> None:
    expected = 1 - float(max(recall for recall, fpr, _ in rates_of_thresholds(data) if fpr <= Fraction(most) + SLACK))
    assert float(get_metric(f"fnr_at_fpr({most})")(*data.tensors())) == pytest.approx(expected, abs=1e-9)


@given(data=sets())
def test_ks_agrees_with_the_roc_curve_of_scikit_learn(data: Set) -> None:
    assume(data.judgeable)
    fpr, tpr, _ = sk.roc_curve(data.targets, data.scores, sample_weight=comfortable(data.w), drop_intermediate=False)
    assert float(get_metric("ks")(*data.tensors())) == pytest.approx(1 - float((tpr - fpr).max()), abs=1e-9)


@given(data=sets(weighted=False))
def test_ks_agrees_with_scipy(data: Set) -> None:
    assume(data.judgeable)
    positive, negative = (data.scores[data.targets == k] for k in (1, 0))
    expected = 1 - ks_2samp(positive, negative, alternative="less", method="asymp").statistic
    assert float(get_metric("ks")(*data.tensors())) == pytest.approx(expected, abs=1e-9)


@given(data=sets())
def test_the_area_over_all_recalls_is_the_average_precision_of_scikit_learn(data: Set) -> None:
    assume(data.judgeable)
    expected = 1 - sk.average_precision_score(data.targets, data.scores, sample_weight=comfortable(data.w))
    assert float(get_metric("pr_auc(0,1)")(*data.tensors())) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("lo", "hi"), [(0.95, 1.0), (0.2, 0.7), (0.0, 0.5)])
@given(data=sets(large=False))
def test_the_area_over_a_range_of_recalls_is_the_mean_of_the_steps_in_it(lo: float, hi: float, data: Set) -> None:
    assume((data.w * data.targets).sum() > 0)
    area, before = Fraction(), Fraction()
    for recall, _, precision in rates_of_thresholds(data):
        area += max(min(recall, Fraction(hi)) - max(before, Fraction(lo)), Fraction()) * precision
        before = recall
    expected = 1 - float(area / (Fraction(hi) - Fraction(lo)))
    assert float(get_metric(f"pr_auc({lo},{hi})")(*data.tensors())) == pytest.approx(expected, abs=1e-8)


@given(data=sets(large=False))
def test_areas_over_neighbouring_ranges_add_up(data: Set) -> None:
    low, high, whole = (get_metric(f"pr_auc({span})")(*data.tensors()) for span in ("0,0.25", "0.25,1", "0,1"))
    assert 0.25 * float(low) + 0.75 * float(high) == pytest.approx(float(whole), abs=1e-9)


@pytest.mark.parametrize("name", ["recall_at_precision(0.5)", "precision_at_recall(0.8)", "fnr_at_fpr(0.3)", "ks"])
@given(data=sets(large=False))
def test_the_threshold_that_belongs_to_a_metric_reaches_its_value(name: str, data: Set) -> None:
    metric = get_metric(name)
    loss = float(metric(*data.tensors()))
    called = data.scores >= best_threshold(metric, *data.tensors())
    w, y = comfortable(data.w), data.targets == 1
    recall, fpr, precision = (
        w[called & part].sum() / whole if (whole := w[rows].sum()) else 0.0
        for part, rows in ((y, y), (~y, ~y), (y, called))
    )
    reached = {
        "recall_at_precision(0.5)": 1 - recall if precision >= 0.5 - 1e-9 else 1.0,
        "precision_at_recall(0.8)": 1 - precision if recall >= 0.8 - 1e-9 else 1.0,
        "fnr_at_fpr(0.3)": 1 - recall if fpr <= 0.3 + 1e-9 else 1.0,
        "ks": 1 - recall + fpr if data.judgeable else 1.0,
    }[name]
    assert reached == pytest.approx(loss, abs=1e-9)


# ---- what holds for every metric -----------------------------------------------------------------------------------


def assert_all_agree(one: Set, other: Set, metrics: Iterable[Metric] = FORMS.values()) -> None:
    for metric in metrics:
        found, expected = float(metric(*one.tensors())), float(metric(*other.tensors()))
        assert found == pytest.approx(expected, abs=1e-9), metric.name


@given(data=sets(), dtype=st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16]))
def test_every_loss_lies_between_zero_and_one_in_any_float_type(data: Set, dtype: torch.dtype) -> None:
    limit = torch.finfo(dtype).max
    scores, targets, weights = data.tensors()
    scores = scores.clamp(-limit, limit).to(dtype)
    for metric in FORMS.values():
        loss = metric(scores, targets, weights)
        assert loss.shape == ()
        assert loss.dtype == dtype
        assert 0 <= float(loss) <= 1, metric.name


@given(data=sets(), seed=st.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(data: Set, seed: int) -> None:
    assert_all_agree(data.taken(np.random.default_rng(seed).permutation(len(data.scores))), data)


@given(data=sets(weighted=False), seed=st.integers(0, 2**32 - 1))
def test_a_row_given_thrice_weighs_three(data: Set, seed: int) -> None:
    times = np.random.default_rng(seed).integers(0, 4, len(data.scores))
    assert_all_agree(data.taken(np.repeat(np.arange(len(times)), times)), data._replace(weights=times))


@given(data=sets(), padding=sets(weighted=False, large=False))
def test_padding_of_weight_zero_is_as_good_as_absent(data: Set, padding: Set) -> None:
    scores = np.concatenate((padding.scores, data.scores))
    targets = np.concatenate((padding.targets, data.targets))
    assert_all_agree(Set(scores, targets, np.concatenate((np.zeros(len(padding.scores)), data.w))), data)


@given(data=sets(weighted=True), exponent=st.integers(-290, 290))
def test_only_ratios_of_weights_matter(data: Set, exponent: int) -> None:
    plain = data._replace(weights=comfortable(data.w))
    assert_all_agree(plain._replace(weights=plain.w * 10.0**exponent), plain)


@given(many=st.lists(sets(large=False), min_size=1, max_size=4))
def test_a_batch_is_judged_as_its_sets_are_one_by_one(many: list[Set]) -> None:
    longest = max(len(data.scores) for data in many)
    scores, targets, weights = torch.zeros(3, len(many), 1, longest, dtype=torch.float64)
    for i, data in enumerate(many):
        rows = slice(len(data.scores))
        scores[i, 0, rows], targets[i, 0, rows] = torch.tensor(data.scores), torch.tensor(data.targets)
        weights[i, 0, rows] = torch.tensor(data.w)
    for metric in FORMS.values():
        together = metric(scores, targets, weights)
        assert together.shape == (len(many), 1)
        alone = [float(metric(*data.tensors())) for data in many]
        assert together[:, 0].tolist() == pytest.approx(alone, abs=1e-9), metric.name


@given(data=sets())
def test_single_precision_agrees_with_double(data: Set) -> None:
    scores, targets, weights = data.tensors()
    single = scores.clamp(-3e38, 3e38).float()
    for metric in FORMS.values():
        expected = float(metric(single.double(), targets, weights))
        assert float(metric(single, targets, weights)) == pytest.approx(expected, abs=1e-6), metric.name


@given(data=sets())
def test_only_the_ranking_of_scores_matters_where_no_threshold_does(data: Set) -> None:
    ranks = np.unique(data.scores, return_inverse=True)[1]
    assert_all_agree(data._replace(scores=ranks**3 - 7.5), data, [m for m in FORMS.values() if not m.thresholded])


@given(data=sets())
def test_the_best_threshold_loses_no_more_than_zero(data: Set) -> None:
    for metric in FORMS.values():
        assert float(metric.best(*data.tensors())) <= float(metric(*data.tensors())) + 1e-9, metric.name
