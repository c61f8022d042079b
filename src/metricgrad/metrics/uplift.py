"""The Qini coefficient: whether the rows that a treatment helps most are ranked first.

It needs rows of which some, chosen at random, were treated: their column is 1 for a treated row, else 0, and is known
only after the decision, so that no model or rule may use it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from metricgrad.metrics.confusion import ratio
from metricgrad.metrics.decided import Decided
from metricgrad.metrics.decided_metric import column_setting, decided_metric
from metricgrad.metrics.metric import Metric


@dataclass(frozen=True)
class QiniLoss:
    """(1 - Qini coefficient) / 2, by Radcliffe's curve; 0.5 where no row is treated, or none is not."""

    column: str

    def __call__(self, decided: Decided) -> Tensor:
        """Return the loss of every set."""
        codes = decided.columns[self.column]
        if bool((codes > 1).any()):
            raise ValueError(f"column {self.column!r}: expected 0 or 1 in every row, got {codes.max():g}")
        curve, treated, positive = decided.at_every_threshold(), codes == 1, decided.labels
        given, control = (curve.cut.divided(decided.weights * arm)[0] for arm in (treated, ~treated))
        helped, anyway = (curve.cut.divided(decided.weights * (arm & positive))[0] for arm in (treated, ~treated))
        gain, rows = helped - anyway * ratio(given, control), given + control
        area = (rows.diff() * (gain[..., 1:] + gain[..., :-1])).sum(-1) / 2
        all_rows, whole = rows[..., -1], gain[..., -1]
        first, last = helped[..., -1], anyway[..., -1]
        # The highest curve: treated rows that respond come first, rows that respond without treatment last.
        highest = first * (all_rows - (first + last) / 2) + last * whole / 2
        random = all_rows * whole / 2
        value = ratio(area - random, highest - random)
        compared = (given[..., -1] > 0) & (control[..., -1] > 0)
        return decided.cut.spread((1 - torch.where(compared, value, 0.0)) / 2)


def qini(column: str = "treatment") -> Metric:
    """Qini coefficient: how much more a ranking gains by treating its first rows than treating at random does.

    The area between the curve of additional responses, by the number of rows treated, and the straight line of random
    treatment, over that of the highest curve there can be; 0 is chance. Ties are one step of the curve.

    Parameters
    ----------
    column : str
        1 for treated rows and 0 for others, chosen at random.

    Returns
    -------
    Metric

    Examples
    --------
    >>> metric = qini("mailed")
    >>> metric.shown(metric([2.0, 2.0, 1.0, 1.0], [[1, 1], [0, 0], [0, 1], [1, 0]]))
    'Qini 0.6667'
    """
    column = column_setting(column)
    explanation = f"Area between the curve of what treating by {column} gains and that of chance, over the largest."
    found = decided_metric(
        f"qini({column})",
        QiniLoss(column),
        (column,),
        label="Qini",
        explanation=explanation,
        known_as=(1.0, -1.0),
        thresholded=False,
        groups=(column,),
    )
    return replace(found, known_later=True)
