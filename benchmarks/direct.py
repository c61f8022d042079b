"""Algorithm 1 the direct way, as the paper's pseudo-code reads: the contestant that `rounds.py` measures against.

One forward a batch, scikit-learn's metric a batch, stock Adam and a clipped gradient. Nothing is shared, batched or
fused, and nothing of metricgrad's trainer is used; its models and surrogates are called as any module is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


@dataclass
class Direct:
    """A model and a surrogate of the AUC loss, trained in turn."""

    model: nn.Module
    surrogate: nn.Module
    rate: float = 1e-5
    clip: float = 1e-5
    model_steps: int = 3
    surrogate_steps: int = 10

    def __post_init__(self) -> None:
        self.of_model = torch.optim.Adam(self.model.parameters(), self.rate)
        self.of_surrogate = torch.optim.Adam(self.surrogate.parameters(), self.rate)

    def round(self, refining: Iterator[Batch], following: Iterator[Batch]) -> None:
        """Take one round: the surrogate first, as in the authors' program."""
        for _ in range(self.surrogate_steps):
            x, y = next(refining)
            self.model.eval()
            with torch.no_grad():
                true = 1 - roc_auc_score(y.numpy(), self.model(x).numpy())
            self.model.train()
            with torch.no_grad():
                scores = self.model(x)
            self.surrogate.train().requires_grad_(True)
            self.of_surrogate.zero_grad()
            (self.surrogate(scores, y) - true).abs().backward()
            self._clip(self.surrogate)
            self.of_surrogate.step()
            self.surrogate.eval().requires_grad_(False)
        for _ in range(self.model_steps):
            x, y = next(following)
            self.model.train()
            self.of_model.zero_grad()
            self.surrogate(self.model(x), y).backward()
            self._clip(self.model)
            self.of_model.step()

    def _clip(self, module: nn.Module) -> None:
        gradients = [p.grad for p in module.parameters() if p.grad is not None]
        total = torch.stack([gradient.norm() for gradient in gradients]).norm()
        for gradient in gradients:
            gradient *= min(1.0, self.clip / float(total))


def stratified(x: Tensor, y: Tensor, size: int, generator: torch.Generator) -> Iterator[Batch]:
    """Yield batches, half of them positive."""
    positives, negatives = (y == 1).nonzero()[:, 0], (y != 1).nonzero()[:, 0]
    while True:
        rows = torch.cat([p[torch.randint(len(p), (size // 2,), generator=generator)] for p in (positives, negatives)])
        yield x[rows], y[rows]
