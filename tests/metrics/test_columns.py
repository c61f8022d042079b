"""Metrics with columns: money of each row, a capacity, groups and bounds, against brute force in plain Python."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from metricgrad import best_threshold, black_box, get_metric
from metricgrad.metrics.bounds import subject_to
from metricgrad.metrics.columns import PARAMETRIC
from metricgrad.metrics.groups import over_groups
from metricgrad.metrics.registry import Metric, builtin_metrics, f1, listed_metrics, precision, recall
from metricgrad.metrics.tasks import BINARY, COLUMNS

Array = np.ndarray


@dataclass
class Rows:
    """One set: scores with ties, labels, weights, two amounts and a group."""

    s: Array
    y: Array
    w: Array
    amount: Array
    other: Array
    sex: Array

    def targets(self, columns: tuple[str, ...]) -> torch.Tensor:
        y = torch.from_numpy(self.y).double()
        return torch.stack([y, *(torch.from_numpy(getattr(self, n)).double() for n in columns)], -1) if columns else y

    def loss(self, metric: Metric, scores: Array | None = None) -> float:
        scores = self.s if scores is None else scores
        return float(metric(torch.from_numpy(scores), self.targets(metric.columns), torch.from_numpy(self.w)))

    def value(self, metric: Metric) -> float:
        return float(metric.value(self.loss(metric)))

    def called_at_thresholds(self) -> list[Array]:
        cuts = [np.inf, *np.unique(self.s)[::-1]]
        return [self.s >= cut for cut in cuts]


@st.composite
def rows(draw: st.DrawFn, max_size: int = 24) -> Rows:
    size, seed = draw(st.integers(2, max_size)), draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    levels = draw(st.sampled_from([2, 5, 1000]))
    y = rng.random(size) < draw(st.sampled_from([0.1, 0.5, 0.9]))
    w = [np.ones(size), rng.integers(0, 4, size).astype(float), rng.uniform(0.5, 2, size)][draw(st.integers(0, 2))]
    w[rng.integers(size)] = 1.0
    amounts = np.round(np.exp(rng.normal(0, 1.5, size)), 3), rng.integers(0, 9, size).astype(float)
    return Rows(
        rng.integers(-levels, levels, size) / 2, y.astype(int), w, *amounts, rng.integers(0, 3, size).astype(float)
    )


def counts(r: Rows, called: Array) -> dict[str, Array]:
    y = r.y == 1
    return {"tp": called & y, "fp": called & ~y, "fn": ~called & y, "tn": ~called & ~y}


def per_row(r: Rows, values: Array) -> float:
    return float((r.w * values).sum() / r.w.sum())


def profit(r: Rows, called: Array) -> float:
    c = counts(r, called)
    return per_row(r, r.amount * c["tp"]) - 5 * per_row(r, c["fp"])


def cost(r: Rows, called: Array) -> float:
    c = counts(r, called)
    return per_row(r, r.amount * c["fn"] + r.other * c["fp"])


def big_hits(r: Rows, called: Array) -> float:
    c = counts(r, called)
    return per_row(r, c["tp"] * (r.amount > 2)) - 0.1 * per_row(r, called) ** 2


def campaign(r: Rows, called: Array) -> float:
    return per_row(r, np.where(called, r.amount * r.y - r.other, 0))


def saved(r: Rows, called: Array) -> float:
    def spent(calls: Array) -> float:
        return float((r.w * np.where(calls, np.where(r.y == 1, 1, r.other), np.where(r.y == 1, r.amount, 0))).sum())

    base = min(spent(np.zeros_like(called)), spent(np.ones_like(called)))
    return 1 - spent(called) / base if base > 0 else 0.0


def recall_of(r: Rows, called: Array, part: Array) -> float:
    wanted = r.w * r.y * part
    return float((wanted * called).sum() / wanted.sum()) if wanted.any() else 0.0


def judged_groups(r: Rows) -> list[Array]:
    parts = [r.sex == code for code in np.unique(r.sex)]
    both = [part for part in parts if len(set(r.y[part & (r.w > 0)])) == 2]
    return both or [np.ones(len(r.y), bool)]


def worst_recall(r: Rows, called: Array) -> float:
    return min(recall_of(r, called, part) for part in judged_groups(r))


def recall_gap(r: Rows, called: Array) -> float:
    found = [recall_of(r, called, part) for part in judged_groups(r)]
    return max(found) - min(found)


def plain_f1(r: Rows, called: Array) -> float:
    found = (r.w * called * r.y).sum()
    return float(2 * found / ((r.w * called).sum() + (r.w * r.y).sum())) if found else 0.0


def fair_f1(r: Rows, called: Array) -> float:
    return plain_f1(r, called) - 0.5 * recall_gap(r, called)


def bound_f1(r: Rows, called: Array) -> float:
    missed = recall_gap(r, called) - 0.2  # both have the range 1
    return plain_f1(r, called) - (1 + 10 * missed if missed > 1e-9 else 0)


BRUTE: dict[str, Callable[[Rows, Array], float]] = {
    "sum(amount * tp) - 5 * fp": profit,
    "sum(amount * fn + other * fp)": cost,
    "sum(tp * (amount > 2)) - 0.1 * (tp + fp)**2": big_hits,
    "expected_profit(amount, other)": campaign,
    "savings(other, amount, 1)": saved,
    "min over sex of recall": worst_recall,
    "group_min(recall, sex)": worst_recall,
    "gap over sex of recall": recall_gap,
    "equal_opportunity_gap(sex)": recall_gap,
    "f1 - 0.5 * equal_opportunity_gap(sex)": fair_f1,
    "f1 subject to gap over sex of recall <= 0.2": bound_f1,
}


@pytest.mark.parametrize("text", BRUTE)
@settings(max_examples=12)
@given(r=rows())
def test_at_zero_and_at_the_best_threshold_it_agrees_with_brute_force(text: str, r: Rows) -> None:
    metric, brute = get_metric(text), BRUTE[text]
    assert r.value(metric) == pytest.approx(brute(r, r.s >= 0), abs=1e-9)
    values = [brute(r, called) for called in r.called_at_thresholds()]
    best = max(values) if metric.higher_is_better else min(values)
    assert r.value(metric.best) == pytest.approx(best, abs=1e-9)
    threshold = best_threshold(metric, r.s, r.targets(metric.columns), r.w)
    assert brute(r, r.s >= threshold) == pytest.approx(best, abs=1e-9)


def taken(r: Rows, share: float, part: Array | None = None) -> Array:
    """Return how much of every row is in the top share, walking down groups of ties."""
    w = r.w if part is None else r.w * part
    left, inside = share * w.sum(), np.zeros(len(r.s))
    for score in np.unique(r.s)[::-1]:
        tied = r.s == score
        weight = w[tied].sum()
        inside[tied] = min(left / weight, 1) if weight > 0 else 0
        left = max(left - weight, 0)
    return inside


@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
@settings(max_examples=20)
@given(r=rows())
def test_what_is_caught_at_a_capacity_agrees_with_walking_down_the_ranking(share: float, r: Rows) -> None:
    inside, worth = taken(r, share), r.w * r.y * r.amount
    whole = worth.sum()
    caught = float((worth * inside).sum() / whole) if whole else 0.0
    assert r.value(get_metric(f"value_at_capacity({share}, amount)")) == pytest.approx(caught, abs=1e-9)
    written = get_metric(f"top({share}): sum(amount * tp)")
    assert r.value(written) == pytest.approx(float((worth * inside).sum() / r.w.sum()), abs=1e-9)
    assert written.best is written
    missed = get_metric(f"top({share}): sum(amount * fn)")
    assert r.value(missed) == pytest.approx(float((worth * (1 - inside)).sum() / r.w.sum()), abs=1e-9)


@settings(max_examples=30)
@given(r=rows())
def test_the_top_of_all_rows_and_the_top_of_every_group_differ(r: Rows) -> None:
    inside, groups = taken(r, 0.4), judged_groups(r)

    def found(part: Array, inside: Array) -> float:
        worth = r.w * r.y * part
        return float((worth * inside).sum() / worth.sum()) if worth.sum() else 0.0

    of_all = min(found(part, inside) for part in groups)
    of_each = min(found(part, taken(r, 0.4, part)) for part in groups)
    assert r.value(get_metric("min over sex of top(0.4): recall")) == pytest.approx(of_each, abs=1e-9)
    assert r.value(get_metric("top(0.4): min over sex of recall")) == pytest.approx(of_all, abs=1e-9)


@given(r=rows(), share=st.sampled_from([0.1, 0.25, 0.5]))
def test_the_threshold_of_a_capacity_calls_no_more_rows_and_as_many_as_ties_allow(r: Rows, share: float) -> None:
    metric = get_metric(f"value_at_capacity({share}, amount)")
    called = r.s >= best_threshold(metric, r.s, r.targets(metric.columns), r.w)
    room = share * r.w.sum() + 1e-9
    assert r.w[called].sum() <= room
    more = r.s[~called & (r.w > 0)]
    if len(more):
        assert r.w[r.s >= more.max()].sum() > room


@pytest.mark.parametrize("text", [*BRUTE, "value_at_capacity(0.3, amount)", "top(0.3): sum(amount * tp) - fp"])
@settings(max_examples=6)
@given(many=st.lists(rows(), min_size=2, max_size=3), seed=st.integers(0, 99))
def test_batches_order_padding_and_the_scale_of_weights_do_not_matter(text: str, many: list[Rows], seed: int) -> None:
    rng, size = np.random.default_rng(seed), max(len(r.s) for r in many)
    for form in dict.fromkeys((get_metric(text), get_metric(text).best)):
        alone, scores, targets, weights = [], [], [], []
        for r in many:
            alone.append(r.loss(form))
            order = rng.permutation(size)
            pad = size - len(r.s)
            scores.append(np.append(r.s, rng.normal(size=pad))[order])
            weights.append(np.append(r.w * 2.0 ** rng.integers(-300, 300), np.zeros(pad))[order])
            full = r.targets(form.columns or ("amount",)).numpy()
            targets.append(np.concatenate((full, np.ones((pad, full.shape[1]))))[order])
        stacked = np.stack(targets)
        together = form(np.stack(scores), stacked if form.columns else stacked[..., 0], np.stack(weights))
        assert together.tolist() == pytest.approx(alone, abs=1e-9)


def test_a_metric_in_columns_is_a_metric_like_the_others() -> None:
    metric = get_metric("sum(amount * tp) - 5 * fp")
    assert (metric.columns, metric.groups, metric.task) == (("amount",), (), COLUMNS)
    assert all((metric.higher_is_better, metric.thresholded, metric.decides, metric.takes_weights))
    assert metric.label == metric.name == "sum(amount * tp) - 5 * fp"
    assert get_metric("min over sex of recall").groups == ("sex",)
    assert get_metric("min over sex of sum(amount * tp)").columns == ("amount", "sex")
    assert get_metric("value_at_capacity(0.02, Amount)").columns == ("Amount",)
    assert get_metric("f1 subject to recall >= 0.5").task is BINARY
    assert get_metric("top(0.02): recall").decides
    assert not get_metric("top(0.02): recall").thresholded
    assert pickle.loads(pickle.dumps(metric)).decided_loss == metric.decided_loss


@pytest.mark.parametrize(
    ("text", "higher"),
    [
        ("sum(amount * tp) - 5 * fp", True),
        ("sum(amount * tp) - 5 * (tp + fp)", True),
        ("10 * tp - sum(cost * (tp + fp))", True),
        ("sum(c_fn * fn + c_fp * fp)", False),
        ("top(0.02): sum(amount * tp)", True),
        ("top(0.02): sum(amount * fn)", False),
        ("max over sex of error_rate", False),
        ("gap over sex of recall", False),
        ("min over sex of sum(amount * tp) / sum(amount * (tp + fn))", True),
        ("f1 - equal_opportunity_gap(sex)", True),
        ("error_rate subject to recall >= 0.5", False),
        ("savings(c_fp, c_fn)", True),
        ("group_min(error_rate, sex)", False),
    ],
)
def test_which_way_is_better_is_known(text: str, higher: bool) -> None:
    assert get_metric(text).higher_is_better is higher


@pytest.mark.parametrize("text", ["savings()", *BRUTE, "value_at_capacity(0.5, amount)", "top(0.1): recall"])
def test_the_name_of_a_metric_gives_the_metric_again(text: str) -> None:
    metric = get_metric(text)
    again = get_metric(metric.name)
    assert (again.name, again.columns, again.known_as) == (metric.name, metric.columns, metric.known_as)


def test_the_best_form_of_a_family_has_a_name() -> None:
    assert get_metric("best_savings(c_fp,c_fn)").label == "best savings(c_fp,c_fn)"


def test_a_metric_of_groups_may_have_settings_and_commas() -> None:
    nested = get_metric("group_min(f_beta(0.5), sex)")
    assert (nested.name, nested.columns) == ("group_min(f_beta(0.5),sex)", ("sex",))
    assert get_metric("group_min(pr_auc(0.5,1), sex)").name == "group_min(pr_auc(0.5,1),sex)"


def test_the_best_form_of_a_group_has_a_threshold_of_its_own() -> None:
    s, y, sex = [2.0, 1.0, -1.0, -2.0], [1, 0, 1, 0], [0.0, 0.0, 1.0, 1.0]
    targets = np.column_stack((y, sex))
    assert float(get_metric("min over sex of f1").best(s, targets)) == pytest.approx(1 / 3)
    assert float(get_metric("min over sex of best_f1")(s, targets)) == 0


def test_families_are_listed_with_the_other_metrics() -> None:
    assert {make.__name__ for make in PARAMETRIC} == {m.name.partition("(")[0] for m in builtin_metrics(COLUMNS)}
    assert {metric.name for metric in builtin_metrics(COLUMNS)} <= set(listed_metrics())
    assert not any(metric.columns for metric in builtin_metrics())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("amount * tp", "columns belong inside sum"),
        ("sum(amount * tp) - 5 * shop", "got 'shop' in"),
        ("sum(amount.mean() * tp)", "got 'amount.mean\\(\\)' in"),
        ("sum(__import__('os') * tp)", "got "),
        ("sum(amount, tp)", "expected 1 argument of sum"),
        ("sum(1 < amount < 2)", "expected one of == != < <= > >="),
        ("sum(amount[0] * tp)", "expected numbers, columns"),
        ("sum(amount ** 99 * tp)", "expected integer powers"),
        ("sum(tp if amount else fp)", "expected numbers, columns"),
        ("top(2): recall", "share: expected a number above 0 and at most 1"),
        ("top(0.1): auc", "expected one that depends on which rows are called, got 'auc'"),
        ("min over sex of macro_f1", "expected one of two classes"),
        ("min over sex of nothing", "unknown name 'nothing'"),
        ("sum(amount)", "does not separate sets"),
        ("savings(-1, amount)", "fp: expected the name of a column, or a number of at least 0, got '-1'"),
        ("value_at_capacity(0.1, 7)", "column: expected the name of a column, got '7'"),
        ("value_at_capacity(0.1, a, b)", "expected at most 2 setting"),
        ("recall subject to precision >= 1e999", "expected a finite number"),
    ],
)
def test_what_is_no_metric_is_refused_with_the_reason(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_metric(text)


def test_settings_in_python_are_checked() -> None:
    with pytest.raises(ValueError, match="at_least, at_most: expected one of the two"):
        subject_to(f1, precision)
    with pytest.raises(ValueError, match="summary: expected one of min, max, mean, gap, got 'sum'"):
        over_groups("sum", "sex", recall)
    with pytest.raises(TypeError, match="expected a Metric, as get_metric returns it, got 'f1'"):
        subject_to("f1", precision, at_least=0.5)  # type: ignore[arg-type]
    of_labels = black_box(lambda y, p: float((y == p).mean()), higher_is_better=True, labels=True, name="same")
    with pytest.raises(ValueError, match="no callable of labels, got 'same'"):
        subject_to(of_labels, precision, at_least=0.5)


def test_a_column_of_too_many_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="column 'sex': expected at most 50 groups, got 60"):
        get_metric("min over sex of recall")(np.arange(60.0), np.column_stack((np.arange(60) % 2, np.arange(60))))
