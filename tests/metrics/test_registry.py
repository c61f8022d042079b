from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.metrics.registry import (
    MODULES,
    PAPER,
    SUGGESTIONS,
    Metric,
    auc,
    built_in,
    builtin_metrics,
    eer,
    error_rate,
    f1,
    f_beta,
    get_metric,
    listed_metrics,
    mcc,
    partial_auc,
    precision_at,
    recall_at_precision,
)

FORMS = [form for metric in builtin_metrics() for form in dict.fromkeys((metric, metric.best))]
every_form = pytest.mark.parametrize("metric", FORMS, ids=lambda metric: metric.name)
SCORES, TARGETS = torch.tensor([0.3, -0.2, 1.5, -1.0]), torch.tensor([1, 1, 0, 0])


# ---- sets that cannot be judged lose what the documentation says ----------------------------------------------------

CHANCE = {"auc", "eer", "partial_auc(0.05)", "mcc", "best_mcc"}


@every_form
@pytest.mark.parametrize("weights", [None, torch.zeros(3, 0)])
def test_an_empty_set_loses_as_documented(metric: Metric, weights: torch.Tensor | None) -> None:
    loss = metric(torch.zeros(3, 0), torch.zeros(3, 0), weights)
    expected = {"error_rate": 0.0, "best_error_rate": 0.0, "balanced_error": 0.5, "best_balanced_error": 0.5}
    assert loss.tolist() == [expected.get(metric.name, 0.5 if metric.name in CHANCE else 1.0)] * 3


@every_form
def test_a_set_that_weighs_nothing_loses_as_an_empty_one_does(metric: Metric) -> None:
    assert metric(SCORES, TARGETS, torch.zeros(4)) == metric(torch.zeros(0), torch.zeros(0))


@every_form
def test_no_sets_have_no_losses(metric: Metric) -> None:
    assert metric(torch.zeros(0, 5), torch.zeros(0, 5)).shape == (0,)


@every_form
def test_a_set_without_positives_loses_as_documented(metric: Metric) -> None:
    loss = float(metric(SCORES, torch.zeros(4)))
    expected = {"error_rate": 0.5, "balanced_error": 0.5, "best_error_rate": 0.0, "best_balanced_error": 0.0}
    assert loss == expected.get(metric.name, 0.5 if metric.name in CHANCE else 1.0)


@every_form
def test_a_set_without_negatives_loses_as_documented(metric: Metric) -> None:
    loss = float(metric(SCORES, torch.ones(4)))
    half_found = {"error_rate": 0.5, "balanced_error": 0.5, "recall": 0.5, "f1": 1 / 3, "jaccard": 0.5}
    half_found |= {"f_beta(2)": 1 - 5 * 2 / (5 * 2 + 4 * 2), "ks": 1.0}
    assert loss == pytest.approx(half_found.get(metric.name, 0.5 if metric.name in CHANCE else 0.0))


@every_form
@pytest.mark.parametrize("score", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("target", [0, 1])
def test_a_set_of_one_row_has_a_loss(metric: Metric, score: float, target: int) -> None:
    assert 0 <= float(metric([score], [target])) <= 1


@every_form
def test_a_perfect_ranking_around_zero_loses_nothing(metric: Metric) -> None:
    assert float(metric([2.0, 1.0, -1.0, -2.0], [1, 1, 0, 0])) == 0


def test_equal_scores_rank_as_chance_does() -> None:
    assert auc(torch.zeros(10), torch.arange(10) % 2) == 0.5
    assert partial_auc(0.3)(torch.zeros(10, dtype=torch.float64), torch.arange(10) % 2) == pytest.approx(0.5)


def test_eer_takes_the_smaller_mean_of_two_points_equally_near() -> None:
    # The ROC points (miss rate, false-alarm rate): (1, 0), (1, 1/2), (0, 1/2), (0, 1); two of them lie 1/2 apart.
    assert eer([4.0, 3.0, 2.0], [0, 1, 0]) == 0.25


@every_form
@pytest.mark.parametrize("light", [0, 1, 2])
def test_losses_of_perfect_and_of_reversed_rankings_stay_in_their_range(metric: Metric, light: int) -> None:
    """However the weights round: those of the light class, if there is one, are nearly nothing."""
    generator = torch.Generator().manual_seed(0)
    targets = (torch.rand(2_000, 9, generator=generator) < 0.5).double()
    targets[:, 0], targets[:, 1] = 1, 0
    weights = torch.rand(2_000, 9, generator=generator, dtype=torch.float64)
    weights = torch.where(targets == light, 1e-20 * weights, weights)
    noise = 0.1 * torch.rand(2_000, 9, generator=generator, dtype=torch.float64)
    for scores in (2 * targets - 1 + noise, 1 - 2 * targets + noise):
        losses = metric(scores, targets, weights)
        assert float(losses.min()) >= 0
        assert float(losses.max()) <= 1


@every_form
@pytest.mark.parametrize("part", [1, 3, 8])
def test_a_curve_in_parts_loses_what_the_whole_loses(
    metric: Metric, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(-4, 5, (40, 20), generator=generator).double()
    targets = (torch.rand(40, 20, generator=generator) < torch.rand(40, 1, generator=generator)).double()
    whole = metric(scores, targets)
    monkeypatch.setattr("metricgrad.metrics.confusion.ROWS_PER_PART", part)
    torch.testing.assert_close(metric(scores, targets), whole, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("exponent", range(154, 162))
def test_mcc_stays_in_its_range_where_products_of_weights_are_nearly_nothing(exponent: int) -> None:
    light = torch.arange(1, 10, 0.1, dtype=torch.float64) * 10.0**-exponent
    weights = torch.stack((torch.ones_like(light), light), -1)
    right, wrong = torch.tensor([1.0, -1.0]), torch.tensor([-1.0, 1.0])
    targets = torch.tensor([1, 0])
    assert bool((mcc(right.expand(90, 2), targets.expand(90, 2), weights) >= 0).all())
    assert bool((mcc(wrong.expand(90, 2), targets.expand(90, 2), weights) <= 1).all())


# ---- input people hold ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "hold",
    [
        list,
        tuple,
        np.array,
        torch.tensor,
        lambda rows: pd.Series(rows, index=range(10, 10 + len(rows))),
        lambda rows: np.array(rows[::-1])[::-1],
        lambda rows: np.array(rows).astype(np.array(rows).dtype.newbyteorder()),
    ],
    ids=["list", "tuple", "array", "tensor", "series", "reversed", "byteswapped"],
)
def test_rows_may_come_in_anything_that_holds_numbers(hold) -> None:
    loss = f1(hold([0.3, -0.2, 1.5, -1.0]), hold([1, 1, 0, 0]), hold([1.0, 2.0, 3.0, 4.0]))
    assert float(loss) == pytest.approx(float(f1(SCORES, TARGETS, torch.tensor([1.0, 2.0, 3.0, 4.0]))))


def test_read_only_arrays_are_taken_without_a_warning() -> None:
    scores = np.array([0.3, -0.2])
    scores.setflags(write=False)
    assert f1(scores, [1, 0]) == 0


def test_whole_scores_are_ranked_exactly() -> None:
    assert auc([2**30 + 1, 2**30], [1, 0]) == 0
    assert auc(np.array([2, 1], dtype=np.uint8), np.array([True, False])) == 0


def test_targets_and_weights_spread_over_leading_axes() -> None:
    scores = torch.randn(3, 2, 7, generator=torch.Generator().manual_seed(0))
    targets, weights = torch.tensor([1, 0, 1, 0, 0, 1, 0]), torch.arange(7.0)
    assert torch.equal(auc(scores, targets, weights), auc(scores, targets.expand(3, 2, 7), weights.expand(3, 2, 7)))


def test_scores_that_require_a_gradient_are_judged_without_one() -> None:
    assert not auc(SCORES.clone().requires_grad_(), TARGETS).requires_grad


@every_form
def test_the_rows_given_are_left_as_they_were(metric: Metric) -> None:
    scores, targets, weights = SCORES.double(), TARGETS.clone(), torch.arange(4.0)
    metric(scores, targets, weights)
    assert torch.equal(scores, SCORES.double())
    assert torch.equal(targets, TARGETS)
    assert torch.equal(weights, torch.arange(4.0))


# ---- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scores", "targets", "weights", "error", "message"),
    [
        ([0.1, 0.2], [1], None, ValueError, r"targets: expected the shape of scores \(2,\), .* got \(1,\)"),
        ([0.1, 0.2], [[1], [0]], None, ValueError, r"targets: expected the shape of scores \(2,\), .* got \(2, 1\)"),
        ([[0.1], [0.2]], [[1, 0]], None, ValueError, r"targets: expected the shape of scores \(2, 1\), .* \(1, 2\)"),
        ([0.1, 0.2], 1, None, ValueError, r"targets: expected the shape of scores \(2,\), .* got \(\)"),
        ([0.1, 0.2], [1, 0], [1.0, 1, 1], ValueError, r"weights: expected the shape of scores \(2,\), .* got \(3,\)"),
        (0.1, 1, None, ValueError, "scores: expected at least one axis, .* got a single number"),
        ([0.1, 0.2], [1, 2], None, ValueError, "targets: expected 0 or 1, got 2 at index 1"),
        ([0.1, 0.2], [-1, 1], None, ValueError, "targets: expected 0 or 1, got -1 at index 0"),
        ([0.1, 0.2], [0.5, 1], None, ValueError, "targets: expected 0 or 1, got 0.5 at index 0"),
        ([0.1, 0.2], [1, np.nan], None, ValueError, "targets: expected 0 or 1, got nan at index 1"),
        ([0.1, np.nan], [1, 0], None, ValueError, "scores: expected finite numbers, got nan at index 1"),
        ([[0.1, -np.inf]], [1, 0], None, ValueError, r"scores: expected finite numbers, got -inf at index \(0, 1\)"),
        ([0.1, 0.2], [1, 0], [1, -2], ValueError, "weights: expected finite numbers of at least 0, got -2 at index 1"),
        ([0.1, 0.2], [1, 0], [np.nan, 1], ValueError, "weights: expected finite .* got nan at index 0"),
        ([0.1, 0.2], [1, 0], [1, np.inf], ValueError, "weights: expected finite .* got inf at index 1"),
        (["a", "b"], [1, 0], None, TypeError, "scores: expected real numbers, got <U1 from list"),
        ([0.1, 0.2], ["yes", "no"], None, TypeError, "targets: expected real numbers, got <U3 from list"),
        ([0.1, 0.2], [1, None], None, TypeError, "targets: expected real numbers, got object from list"),
        (None, [1, 0], None, TypeError, "scores: expected real numbers, got object from NoneType"),
        ([1j, 2j], [1, 0], None, TypeError, "scores: expected real numbers, got complex128"),
        (torch.tensor([1j]), [1], None, TypeError, "scores: expected real numbers, got torch.complex64"),
        ([[0.1, 0.2], [0.3]], [1, 0], None, ValueError, "scores: expected sets of equal length, got a ragged list"),
    ],
)
def test_bad_rows_raise_an_error_that_names_argument_expectation_and_value(
    scores, targets, weights, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        f1(scores, targets, weights)


@pytest.mark.parametrize("bad", [0, -1, float("nan"), "many", None, 1e9])
@pytest.mark.parametrize(
    ("family", "argument"),
    [
        (f_beta, "beta"),
        (partial_auc, "max_fpr"),
        (precision_at, "fraction"),
        (recall_at_precision, "precision"),
    ],
)
def test_a_setting_out_of_range_raises_an_error_that_quotes_it(family, argument: str, bad: object) -> None:
    with pytest.raises(ValueError, match=rf"{argument}: expected a number above 0 and at most .*, got {bad!r}"):
        family(bad)


# ---- names ----------------------------------------------------------------------------------------------------------


@every_form
def test_a_metric_is_found_by_its_own_name(metric: Metric) -> None:
    assert get_metric(metric.name).name == metric.name
    assert torch.equal(get_metric(metric.name)(SCORES, TARGETS), metric(SCORES, TARGETS))


@pytest.mark.parametrize("metric", [f_beta(1e-5), f_beta(1 / 3), partial_auc(0.123456789), precision_at(1e-7)])
def test_a_family_is_found_again_at_exactly_its_setting(metric: Metric) -> None:
    assert get_metric(metric.name).name == metric.name


def test_no_two_modules_have_a_metric_or_alias_of_the_same_name() -> None:
    """The order in which modules are looked through must not matter."""
    names = [name for module in MODULES for name in {name for part in built_in(module) for name in part}]
    assert len(names) == len(set(names))
    assert {"f1", "f_beta", "ndcg", "hamming", "rmse", "savings", "mcr"} <= set(names)


def test_every_alias_stands_for_a_metric_of_its_own_module() -> None:
    for module in MODULES:
        plain, parametric, aliases = built_in(module)
        assert all(name in plain or name.partition("(")[0] in parametric for name in aliases.values())


@pytest.mark.parametrize(("alias", "name"), built_in(*MODULES).aliases.items())
def test_aliases_of_the_paper_and_of_other_libraries_are_known(alias: str, name: str) -> None:
    assert get_metric(alias).name == name


def test_the_seven_losses_of_the_paper_are_built_in() -> None:
    assert len({get_metric(name).name for name in PAPER}) == 7


@pytest.mark.parametrize("name", ["F1", " f1 ", "best-F1", "Average Precision".replace(" ", "_"), "f-beta(2)"])
def test_names_are_read_kindly(name: str) -> None:
    assert isinstance(get_metric(name), Metric)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("f2", r"metric: unknown name 'f2'; did you mean f_beta\(2\)\?"),
        ("averge_precision", "metric: unknown name 'averge_precision'; did you mean average_precision"),
        ("f1(3)", r"metric: unknown name 'f1\(3\)'; did you mean f1"),
        ("zzz", "metric: unknown name 'zzz'; known: auc, eer, .*recall_at_precision"),
        ("", "metric: unknown name ''; known: auc"),
        ("f_beta(x)", "beta: expected a number above 0 and at most 1e[+]06, got 'x'"),
    ],
)
def test_an_unknown_name_gets_the_near_ones(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        get_metric(name)


def test_something_that_is_no_name_is_a_type_error() -> None:
    with pytest.raises(TypeError, match=r"metric: expected a name, a Metric, .* or a callable, got 3"):
        get_metric(3)


# ---- the record -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "loss", "shown"),
    [
        (f1, 0.31, "F1 0.6900"),
        (mcc, 0.25, "MCC 0.5000"),
        (error_rate, 0.1, "error rate 0.1000"),
        (auc, 0.0, "AUC 1.0000"),
    ],
)
def test_a_loss_is_shown_as_people_know_it(metric: Metric, loss: float, shown: str) -> None:
    assert metric.shown(loss) == shown
    assert metric.shown(torch.tensor(loss)) == shown


def test_a_metric_says_whether_people_want_it_high() -> None:
    low = ["eer", "error_rate", "balanced_error", "fnr_at_fpr(0.05)"]
    assert [m.name for m in builtin_metrics() if not m.higher_is_better] == low


def test_a_metric_may_have_two_settings() -> None:
    assert get_metric("PR-AUC(0.5, 0.75)").name == "pr_auc(0.5,0.75)"
    assert get_metric("pr_auc(0)").name == "pr_auc(0,1)"
    assert get_metric("pr_auc").name == "average_precision"
    with pytest.raises(ValueError, match=r"lo: expected less than hi, 0.5, got 0.5"):
        get_metric("pr_auc(0.5,0.5)")
    with pytest.raises(ValueError, match=r"metric: expected at most 1 setting of 'f_beta', got '1,2'"):
        get_metric("f_beta(1,2)")


def test_every_metric_has_an_explanation_of_one_line() -> None:
    for metric in FORMS:
        assert metric.explanation.endswith(".")
        assert "\n" not in metric.explanation


def test_a_metric_without_a_threshold_is_its_own_best_form() -> None:
    assert auc.best is auc
    best = f1.best
    assert best.best is best


def test_a_thresholded_metric_that_cannot_be_searched_says_so() -> None:
    bare = Metric("bare", f1.function, "bare", thresholded=True)
    with pytest.raises(ValueError, match="metric: 'bare' has no best-threshold form"):
        bare.best  # noqa: B018


@every_form
def test_a_metric_survives_copying_and_pickling(metric: Metric) -> None:
    for other in (copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert repr(other) == repr(metric)
        assert torch.equal(other(SCORES, TARGETS), metric(SCORES, TARGETS))


def test_a_metric_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        f1.name = "mine"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("f1_score", "f1"),
        ("roc_auc_score", "auc"),
        ("accuracy_score", "accuracy"),
        ("average_precision_score", "average_precision"),
        ("matthews_corrcoef", "mcc"),
        ("jaccard_score", "jaccard"),
        ("balanced_accuracy_score", "balanced_accuracy"),
        ("fbeta_score", "f_beta"),
        ("AUROC", "auc"),
        ("ndcg_score", "ndcg"),
        ("zero_one_loss", "error_rate"),
    ],
)
def test_a_name_of_scikit_learn_or_torchmetrics_suggests_ours(theirs: str, ours: str) -> None:
    with pytest.raises(ValueError, match=rf"metric: unknown name '{theirs}'; did you mean {ours}\?"):
        get_metric(theirs)


def test_every_suggestion_is_a_name_that_works_and_no_name_that_works_is_only_suggested() -> None:
    for theirs, ours in SUGGESTIONS.items():
        assert get_metric(ours).label
        with pytest.raises(ValueError, match="did you mean"):
            get_metric(theirs)


@pytest.mark.parametrize("name", ["log_loss", "neg_log_loss", "neg_brier_score", "cross_entropy"])
def test_a_metric_with_a_gradient_is_said_to_need_none_of_ours(name: str) -> None:
    with pytest.raises(ValueError, match=f"metric: unknown name '{name}'; it has a gradient, .*: train on it directly"):
        get_metric(name)


@pytest.mark.parametrize("name", ["best_" * 2_000 + "f1", "x" * 10**6, "f_beta(" + "9" * 1_000 + ")"])
def test_a_name_that_is_too_long_is_refused_without_repeating_it(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^metric: expected a text of at most 1,000 characters, got {len(name):,}$"):
        get_metric(name)


def test_a_name_of_the_longest_length_is_still_looked_up() -> None:
    with pytest.raises(ValueError, match="metric: unknown name"):
        get_metric("x" * 1_000)
    assert get_metric("best_" * 199 + "f1").name == "best_f1"


@given(name=st.text(alphabet="abcdefghijklmnopqrstuvwxyz_0123456789()", max_size=30))
def test_any_name_is_a_metric_or_an_error_that_quotes_it(name: str) -> None:
    wanted = re.sub("^(best_)+", "", name)
    try:
        found, said = get_metric(name), ""
    except ValueError as error:
        found, said = None, str(error)
    assert isinstance(found, Metric) or f"metric: unknown name {wanted!r}; " in said or "expected a" in said


@pytest.mark.parametrize(
    "name", ["accuracy", "balanced_accuracy", "multiclass_accuracy", "multiclass_balanced_accuracy"]
)
def test_accuracies_are_listed_as_people_know_them(name: str) -> None:
    metric = listed_metrics()[name]
    assert metric.higher_is_better
    assert metric.label == name.removeprefix("multiclass_").replace("_", " ")
    assert "wrong" not in metric.explanation


def test_every_listed_name_finds_the_metric_listed() -> None:
    listed = listed_metrics()
    for name, metric in listed.items():
        assert (get_metric(name).label, get_metric(name).known_as) == (metric.label, metric.known_as)
    assert {metric.name for metric in builtin_metrics(None)} <= set(listed)


def test_accuracy_is_the_error_rate_known_the_other_way_round() -> None:
    accuracy = get_metric("accuracy")
    scores, targets = torch.tensor([1.0, -1.0, 1.0, 1.0]), torch.tensor([1, 0, 0, 1])
    assert accuracy.higher_is_better
    assert accuracy.shown(accuracy(scores, targets)) == "accuracy 0.7500"
    assert get_metric("balanced_accuracy").higher_is_better
