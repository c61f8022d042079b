"""Metrics made of a loss of decided rows, and checks of what such metrics are made from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from metricgrad.metrics.decided import DecidedLoss, loss_at_zero, lowest_loss
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.tasks import BINARY, COLUMNS


def decided_metric(
    name: str,
    loss: DecidedLoss,
    columns: tuple[str, ...],
    *,
    explanation: str,
    known_as: tuple[float, float],
    label: str | None = None,
    bounded: bool = False,
    thresholded: bool = True,
    groups: tuple[str, ...] = (),
    decision: Callable[[Any], Tensor] | None = None,
) -> Metric:
    """Make a metric of a loss of decided rows."""
    return Metric(
        name,
        partial(loss_at_zero, loss=loss, columns=columns),
        label or name,
        explanation,
        known_as,
        thresholded,
        bounded=bounded,
        task=COLUMNS if columns else BINARY,
        columns=columns,
        groups=groups,
        decision=decision,
        decided_loss=loss,
        best_function=partial(lowest_loss, loss=loss, columns=columns) if thresholded else None,
    )


def column_setting(value: Any) -> str:
    """Return the name of a column, or raise an error that quotes it."""
    if not isinstance(value, str) or not value.strip().isidentifier():
        raise ValueError(f"column: expected the name of a column, got {value!r}")
    return value.strip()


def check_judged(metric: Metric) -> None:
    """Raise an error unless a metric can be judged on decided rows."""
    if not isinstance(metric, Metric):
        raise TypeError(f"metric: expected a Metric, as get_metric returns it, got {metric!r}")
    counted = metric.decided_loss is not None or metric.counts is not None or not metric.thresholded
    if metric.task not in (BINARY, COLUMNS) or not counted:
        raise ValueError(
            f"metric: expected one of two classes that is no callable of labels, got {metric.name!r}; write it as an "
            "expression over tp, fp, fn and tn"
        )
