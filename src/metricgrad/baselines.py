"""Hand-made losses, each a plain module called as `loss(scores, targets, weights=None)`, `(..., n)` -> scalar."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F


class CrossEntropy(nn.Module):
    """Weighted mean of the logistic loss: the usual stand-in for the error rate."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows of all sets together."""
        loss = F.binary_cross_entropy_with_logits(scores, targets.to(scores.dtype), reduction="none")
        return loss.mean() if weights is None else (loss * weights).sum() / weights.sum()


BASELINES: dict[str, Callable[[], nn.Module]] = {"cross-entropy": CrossEntropy}
