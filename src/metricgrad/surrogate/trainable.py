"""A surrogate that can be trained: its Adam, its running gap, and what is done where its output does not fit.

The output is stretched over the losses of a metric without a known range, brought to the level of a black box on the
first sets of a model, and rescaled where it is saturated far from the metric.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from metricgrad.metrics.metric import Metric
from metricgrad.surrogate.network import Surrogate

if TYPE_CHECKING:
    from typing_extensions import Self

    from metricgrad.surrogate.adam import Adam

DEAD_GAP = 0.05
"""Gap, as a share of the range of losses, from which on a saturated surrogate is rescaled."""
DEAD_REFININGS = 20
"""Refinings in a row at which it is saturated before that: far from the sets it was fitted to, it may still learn."""


class TrainableSurrogate(nn.Module):
    """The part of a loss that holds the surrogate and changes it, given the metric's losses of pooled sets.

    Parameters
    ----------
    frozen : bool
        Never change it.
    learning_rate : float
        Of its Adam.
    clip : float, optional
        Largest norm of the gradient in a step.
    relational : float
        How much the differences between sets count beside the paper's L1.
    """

    metric: Metric
    surrogate: Surrogate
    running_gap: Tensor

    def __init__(self, *, frozen: bool, learning_rate: float, clip: float | None, relational: float) -> None:
        super().__init__()
        self.frozen, self.clip, self.relational = frozen, clip, relational
        self.learning_rate = learning_rate
        self.revived = self._saturated = 0
        self._to_straighten = False
        self.register_buffer("running_gap", torch.tensor(float("nan")))
        self._optimizer: Adam | None = None

    @property
    def optimizer(self) -> Adam | None:
        """The Adam of `refine`, if not frozen; built when first needed."""
        if self._optimizer is None and not self.frozen:
            from metricgrad.surrogate.adam import Adam

            self._optimizer = Adam(self.surrogate.parameters(), self.learning_rate)
        return self._optimizer

    @property
    def gap(self) -> float:
        """Running mean of `|true - surrogate|`."""
        return float(self.running_gap)

    def _count_gap(self, gap: float) -> None:
        before = self.gap
        self.running_gap.fill_(gap if math.isnan(before) else 0.9 * before + 0.1 * gap)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the loss; its surrogate stays in evaluation mode except inside `refine`."""
        super().train(mode)
        self.surrogate.eval()
        return self

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Move the state of the optimiser along with the parameters."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if self._optimizer:
            self._optimizer.load_state_dict(self._optimizer.state_dict())
        return self

    def _step(self, distance: Tensor, learned: list[nn.Parameter]) -> None:
        """Step Adam down a distance of the parameters that are learned.

        Parameters never hold a gradient: where the loss is part of a user's module, the user's own optimizer and
        clipping must not see any.
        """
        self._move(torch.autograd.grad(distance, learned))

    def _move(self, gradients: Sequence[Tensor]) -> None:
        """Step Adam against the gradients of all parameters, clipped."""
        assert self.optimizer is not None
        if self.clip is not None:
            from metricgrad.surrogate.clipping import scale_down

            scale_down(gradients, self.clip)
        self.optimizer.step(gradients)

    def _stretch(self, true: Tensor) -> None:
        """Stretch the output of a surrogate from scratch over the losses seen, if the metric has no known range."""
        if self.metric.bounded:
            return
        untouched = self.running_gap.isnan() & (self.surrogate.low == 0) & (self.surrogate.high == 1)
        if bool(untouched):
            low, high = true.min(), true.max()
            self.surrogate.low.copy_(low)
            self.surrogate.high.copy_(torch.where(high > low, high, low + 1))

    def _recalibrate(self, pooled: Tensor, true: Tensor) -> None:
        """Bring the surrogate to the level of the metric, if on the first sets of a model it does not follow it."""
        judged = self.surrogate.judge(pooled)
        if len(true) > 1 and float((judged - true).abs().mean()) > 2 * float((true - true.mean()).abs().mean()):
            self.surrogate.calibrate(pooled, true)

    @torch.no_grad()
    def _revive(self, pool: Callable[[], Tensor], true: Tensor, gap: float) -> None:
        """Rescale a surrogate whose output is saturated far from the metric, where it would learn no more.

        If that happens again, its output function becomes a line, which cannot saturate.
        """
        few = len(true) < 2
        if self._to_straighten and not few:
            self._to_straighten = False
            self.surrogate.make_linear(pool(), true)
            self._optimizer = None  # its moments belong to the old output
            return
        near = few or not gap > DEAD_GAP * float(self.surrogate.high - self.surrogate.low)
        if near or not self.surrogate.is_saturated(pooled := pool()):
            self._saturated = 0
            return
        self._saturated += 1
        if self._saturated < DEAD_REFININGS:
            return
        self.revived, self._saturated = self.revived + 1, 0
        if self.revived > 1:
            self.surrogate.make_linear(pooled, true)
        else:
            self.surrogate.calibrate(pooled, true)
        self._optimizer = None  # its moments belong to the old output
        what = "its output function is a line from now on" if self.revived > 1 else "its output was rescaled"
        warnings.warn(
            f"refine: the surrogate of {self.metric.label} was saturated, {gap:.2f} from the metric on average; {what}",
            stacklevel=4,
        )

    def straighten(self) -> None:
        """At the next `refine`, replace the output function by a line, at the level of the metric on the sets there.

        A line cannot saturate, and reaches losses beyond the range that the surrogate was fitted to.
        """
        if self.frozen:
            raise RuntimeError("straighten: expected a surrogate that is not frozen, got one made with frozen=True")
        self._to_straighten = True


@contextmanager
def learning(surrogate: Surrogate) -> Iterator[list[nn.Parameter]]:
    """Put a surrogate into training mode and yield its parameters; otherwise it learns neither these nor statistics."""
    parameters = list(surrogate.parameters())  # walking through all modules costs as much as some steps of arithmetic
    try:
        _set_learning(surrogate, parameters, True)
        yield parameters
    finally:
        _set_learning(surrogate, parameters, False)


def _set_learning(surrogate: Surrogate, parameters: list[nn.Parameter], mode: bool) -> None:
    for parameter in parameters:
        parameter.requires_grad_(mode)
    if not surrogate.fixed_pool:  # only a learned g has layers with a mode, batch norm
        surrogate.train(mode)
