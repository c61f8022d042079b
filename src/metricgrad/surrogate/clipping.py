"""Clipping of gradients to a norm, exactly."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn


def clip_gradients(module: nn.Module, norm: float) -> None:
    """Scale the gradients of a module down to a norm."""
    scale_down([p.grad for p in module.parameters() if p.grad is not None], norm)


def scale_down(gradients: Sequence[Tensor], norm: float) -> None:
    """Scale gradients down to a norm, exactly: torch adds 1e-6 to it, a tenth of the clip of the paper."""
    total = nn.utils.get_total_norm(gradients)
    share = norm / total.clamp(min=norm)
    for gradient in gradients:
        gradient.mul_(share)
