"""Metrics over groups of rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from metricgrad.metrics.binary import recall
from metricgrad.metrics.decided import Decided, loss_of
from metricgrad.metrics.decided_metric import check_judged, column_setting, decided_metric
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.money import TopLoss

MAX_GROUPS = 50
"""Values of a column of groups; each is judged by itself."""
GROUP_SUMMARIES = ("min", "max", "mean", "gap")
"""What is shown of the values of all groups; the gap is the highest less the lowest."""


@dataclass(frozen=True)
class GroupLoss:
    """A summary of the values of a metric in every group of rows, as a loss.

    Groups without rows of both classes do not count: most metrics cannot judge them. Where none counts, all rows are
    judged as one group.
    """

    summary: str
    column: str
    metric: Metric

    def __call__(self, decided: Decided) -> Tensor:
        """Return the loss of every set."""
        codes = decided.columns[self.column]
        found = codes[decided.weights > 0].unique()
        if len(found) > MAX_GROUPS:
            raise ValueError(f"column {self.column!r}: expected at most {MAX_GROUPS} groups, got {len(found)}")
        values, counted = [self._value(decided)], [decided.cut.spread(torch.zeros_like(codes[..., 0]))]
        for code in found:
            group = decided.within(codes == code)
            present = group.weights > 0
            both = (present & group.labels).any(-1) & (present & ~group.labels).any(-1)
            values.append(self._value(group))
            counted.append(decided.cut.spread(both.to(codes)))
        return self._loss(torch.stack(values), torch.stack(counted) > 0)

    def _value(self, decided: Decided) -> Tensor:
        value: Tensor = self.metric.value(loss_of(self.metric, decided))
        return value

    def _loss(self, values: Tensor, counted: Tensor) -> Tensor:
        """Return the loss of values of all rows and of every group, `(1 + groups, ...)`, some of which count."""
        counted[0] = ~counted.any(0)
        lowest = values.masked_fill(~counted, torch.inf).amin(0)
        highest = values.masked_fill(~counted, -torch.inf).amax(0)
        if self.summary == "gap":
            return highest - lowest
        mean = values.masked_fill(~counted, 0).sum(0) / counted.sum(0)
        value = {"min": lowest, "max": highest, "mean": mean}[self.summary]
        at_zero, at_one = self.metric.known_as
        return (value - at_zero) / (at_one - at_zero)


def over_groups(summary: str, column: str, metric: Metric, name: str | None = None) -> Metric:
    """Return the least, greatest or mean value of a metric over groups of rows, or the gap between them."""
    if summary not in GROUP_SUMMARIES:
        raise ValueError(f"summary: expected one of {', '.join(GROUP_SUMMARIES)}, got {summary!r}")
    column = column_setting(column)
    check_judged(metric)
    if metric.groups:
        raise ValueError(f"metric: expected one without groups of its own, got {metric.name!r}")
    name = name or f"{summary} over {column} of {metric.name}"
    gap, columns = summary == "gap", tuple(dict.fromkeys((*metric.columns, column)))
    span = abs(metric.known_as[0] - metric.known_as[1])
    told = {"min": "Lowest", "max": "Highest", "mean": "Mean", "gap": "Highest less lowest"}[summary]
    return decided_metric(
        name,
        GroupLoss(summary, column, metric),
        columns,
        explanation=f"{told} {metric.label} of the groups by {column}.",
        known_as=(0, 1) if gap else metric.known_as,
        bounded=metric.bounded and (not gap or span <= 1),
        thresholded=metric.thresholded,
        groups=tuple(dict.fromkeys((*metric.groups, column))),
        decision=metric.decision if isinstance(metric.decided_loss, TopLoss) else None,
    )


def group_min(metric: Metric = recall, column: str = "group") -> Metric:
    """Value of a metric in the group where it is worst.

    Parameters
    ----------
    metric : Metric
        One of two classes; one that depends on a threshold has the same threshold in all groups.
    column : str
        The groups.

    Returns
    -------
    Metric

    Examples
    --------
    >>> metric = group_min(recall, "sex")
    >>> metric.shown(metric([1.0, 1.0, 1.0, -1.0, -1.0, -1.0], [[1, 0], [1, 0], [0, 0], [0, 1], [1, 1], [1, 1]]))
    'group_min(recall,sex) 0.0000'
    """
    check_judged(metric)
    summary = "min" if metric.higher_is_better else "max"
    name = f"group_min({metric.name},{column_setting(column)})"
    return over_groups(summary, column, metric, name)


def equal_opportunity_gap(column: str = "group") -> Metric:
    """Difference between the highest and the lowest recall of the groups; 0 if all positives have the same chance.

    It is reached by calling nothing, so it makes a metric only together with another: `"f1 subject to
    equal_opportunity_gap(sex) <= 0.05"`, or `"f1 - equal_opportunity_gap(sex)"`.

    Parameters
    ----------
    column : str
        The groups.

    Returns
    -------
    Metric

    Examples
    --------
    >>> gap = equal_opportunity_gap("sex")
    >>> gap.shown(gap([1.0, 1.0, 1.0, -1.0, 1.0, -1.0], [[1, 0], [1, 0], [0, 0], [0, 1], [1, 1], [1, 1]]))
    'equal_opportunity_gap(sex) 0.5000'
    """
    return over_groups("gap", column, recall, f"equal_opportunity_gap({column_setting(column)})")
