"""The default loss of every task: the smooth loss that is usually trained with where the metric has no gradient.

Every model starts from it, and a learned loss has to beat it on validation rows.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad.losses.binary import CrossEntropy, row_mean
from metricgrad.losses.ranking import LambdaRank
from metricgrad.metrics.tasks import COLUMNS, Task


class LabelCrossEntropy(CrossEntropy):
    """Cross-entropy of labels with further columns, which only the metric uses."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows: scores `(..., n)`, targets `(..., n, t)`."""
        return super().forward(scores, targets[..., 0], weights)


class LossOfLabels(nn.Module):
    """A hand-made loss of labels with further columns, which only the metric uses."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows: scores `(..., n)`, targets `(..., n, t)`."""
        loss: Tensor = self.loss(scores, targets[..., 0], weights)
        return loss


class SoftmaxCrossEntropy(nn.Module):
    """Weighted mean of minus the log-probability of the class of each row."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows: `(..., n, c)` -> scalar."""
        return row_mean(-(scores.log_softmax(-1) * targets.to(scores.dtype)).sum(-1), weights)


class LabelwiseCrossEntropy(nn.Module):
    """Weighted mean over rows of the logistic loss, averaged over labels."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows: `(..., n, c)` -> scalar."""
        each = F.binary_cross_entropy_with_logits(scores, targets.to(scores.dtype), reduction="none")
        return row_mean(each.mean(-1), weights)


class SquaredError(nn.Module):
    """Weighted mean of squared errors."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows: `(..., n)` -> scalar."""
        return row_mean((scores - targets).square(), weights)


class SquaredErrorOfEvents(nn.Module):
    """Weighted mean of the squared errors of rows whose event was seen; 0 where there are none."""

    def forward(self, scores: Tensor, targets: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the loss of all rows: scores `(..., n)`, targets `(..., n, 2)`."""
        events = targets[..., 1].to(scores.dtype)
        counted = events if weights is None else weights * events
        return (counted * (scores - targets[..., 0]).square()).sum() / counted.sum().clamp(min=1e-12)


PROXIES: dict[str, Callable[[], nn.Module]] = {
    "binary": CrossEntropy,
    "columns": LabelCrossEntropy,
    "multiclass": SoftmaxCrossEntropy,
    "multilabel": LabelwiseCrossEntropy,
    "ranking": LambdaRank,
    "regression": SquaredError,
    "censored": SquaredErrorOfEvents,
}

PROXY_NAMES = {"ranking": "LambdaRank", "regression": "squared error", "censored": "squared error"}
"""Names of the default losses that are not a cross-entropy."""


def proxy_for(task: Task) -> nn.Module:
    """Return the default loss of a task."""
    return PROXIES[task.name]()


def of_labels(loss: nn.Module, task: Task) -> nn.Module:
    """Return a hand-made loss of two classes for targets that may have columns."""
    return LossOfLabels(loss) if task == COLUMNS else loss


def proxy_name(task: Task) -> str:
    """Return the name of the default loss of a task."""
    return PROXY_NAMES.get(task.name, "cross-entropy")
