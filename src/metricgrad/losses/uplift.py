"""The hand-made loss of uplift: cross-entropy of the class transformation."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from metricgrad.losses.binary import CrossEntropy, row_mean


class ClassTransformation(CrossEntropy):
    """Cross-entropy of another class: treated rows that respond, and untreated ones that do not.

    Both arms count the same, so that the probability of that class is (1 + uplift) / 2 (Jaskowski and Jaroszewicz,
    2012). Targets are `(..., n, t)`, the treatment in one of the columns after the label.
    """

    def __init__(self, column: int = 1) -> None:
        super().__init__()
        self.column = column

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows of all sets together; without an arm it is that of the other."""
        treated = targets[..., self.column] == 1
        wanted = ((targets[..., 0] == 1) == treated).to(scores.dtype)
        weights = torch.ones_like(scores) if weights is None else weights.expand_as(scores)
        given, control = ((weights * arm).sum().clamp(min=1e-12) for arm in (treated, ~treated))
        loss = F.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
        return row_mean(loss, weights / torch.where(treated, given, control))
