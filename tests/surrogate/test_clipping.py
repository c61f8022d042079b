from __future__ import annotations

import torch
from torch import nn

from metricgrad.surrogate.clipping import clip_gradients


def test_clipping_is_exact_however_small_the_norm() -> None:
    module = nn.Linear(3, 1, bias=False)
    module.weight.grad = torch.tensor([[3e-5, 0.0, 4e-5]])
    clip_gradients(module, 1e-5)
    torch.testing.assert_close(module.weight.grad, torch.tensor([[0.6e-5, 0.0, 0.8e-5]]), rtol=1e-6, atol=0)
    clip_gradients(module, 1e-4)
    torch.testing.assert_close(module.weight.grad, torch.tensor([[0.6e-5, 0.0, 0.8e-5]]), rtol=1e-6, atol=0)
