"""Plain functions as metrics: of numbers or of classes, and with the columns that they ask for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sklearn.metrics as sk

from metricgrad import black_box, get_metric
from metricgrad.metrics.plain_functions import NUMBER_FUNCTIONS, as_numbers


@pytest.mark.parametrize("name", NUMBER_FUNCTIONS)
def test_functions_of_scikit_learn_for_numbers_are_metrics_of_numbers(name: str) -> None:
    rng = np.random.default_rng(0)
    y, predicted = rng.uniform(1, 2, 50), rng.uniform(1, 2, 50)
    by_name, by_function = get_metric(f"sklearn.metrics.{name}"), get_metric(getattr(sk, name))
    for metric in (by_name, by_function):
        assert metric.task.name == "regression"
        assert metric.higher_is_better is (sk.mean_absolute_error(y, y) < 1 and name.endswith("_score"))
        assert float(metric.value(metric(predicted, y))) == pytest.approx(getattr(sk, name)(y, predicted), rel=1e-5)


def test_a_function_of_ones_own_may_be_of_classes_or_of_numbers() -> None:
    def median(y_true, y_pred):
        return float(np.median(abs(y_true - y_pred)))

    metric = black_box(median, higher_is_better=False, labels=True, max_calls=700)
    found = as_numbers(metric)
    assert (found.task.name, found.higher_is_better, found.budget.max_calls) == ("regression", False, 700)
    assert float(found([1.5, 2.5, 9.0], [1.0, 1.0, 1.0])) == pytest.approx(1.5)
    for other in (get_metric("f1"), get_metric("mae"), found):
        assert as_numbers(other) is other
    assert as_numbers(get_metric(sk.hamming_loss)).task.name == "binary"
    assert as_numbers(get_metric(sk.make_scorer(sk.f1_score))).task.name == "binary"


def test_a_function_in_a_file_is_tried_on_numbers_where_classes_do_not_say_which_way_is_better(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def med(y, p):\n    return float(sorted(abs(y - p))[len(y) // 2])\n")
    metric = get_metric(f"{tmp_path / 'own.py'}:med", allow_files=True)
    assert (metric.task.name, metric.higher_is_better) == ("regression", False)


def test_arguments_without_a_default_are_columns(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "def profit(y_true, y_pred, amount, *, cost, power=1, sample_weight=None):\n"
        "    return float((amount * y_true * y_pred - cost * y_pred).mean())\n\n\n"
        "def flat(y_true, y_pred, amount):\n    return 1.0\n"
    )
    metric = get_metric(f"{tmp_path / 'own.py'}:profit", allow_files=True)
    assert (metric.columns, metric.higher_is_better) == (("amount", "cost"), True)
    targets = np.column_stack(([1, 0, 1], [9.0, 9, 9], [1.0, 2, 3]))
    assert float(metric.value(metric([1.0, 1.0, -1.0], targets))) == pytest.approx((9 - 1 - 2) / 3)
    with pytest.raises(ValueError, match="does not separate sets predicted correctly"):
        get_metric(f"{tmp_path / 'own.py'}:flat", allow_files=True)

    def mine(y_true, y_pred, amount):
        return 0.0

    with pytest.raises(ValueError, match=r"black_box\(mine, higher_is_better=True, columns=\('amount',\)\)"):
        get_metric(mine)
