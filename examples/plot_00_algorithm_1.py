"""
Algorithm 1 in one screen
=========================

The paper written down directly: a model follows a surrogate of the AUC loss (Eq. 4), and the surrogate follows the true
loss, which has no gradient (Eq. 5). One batch a step, stock Adam, scikit-learn's metric. metricgrad's trainer does the
same mathematics, faster, for every metric and model; a test holds the two equal to nine digits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


@dataclass
class AlgorithmOne:
    """A model and a surrogate of the AUC loss, trained in turn."""

    model: nn.Module  # rows (n, features) -> scores (n,)
    surrogate: nn.Module  # scores and targets (n,) -> loss
    rate: float = 1e-5
    clip: float = 1e-5
    model_steps: int = 3  # K_alpha
    surrogate_steps: int = 10  # K_beta

    def __post_init__(self) -> None:
        self.of_model = torch.optim.Adam(self.model.parameters(), self.rate)
        self.of_surrogate = torch.optim.Adam(self.surrogate.parameters(), self.rate)

    def round(self, refining: Iterator[Batch], following: Iterator[Batch]) -> None:
        """Take one round: the surrogate first, as in the authors' program."""
        for _ in range(self.surrogate_steps):  # lines 8-12
            x, y = next(refining)
            with torch.no_grad():
                true = 1 - roc_auc_score(y.numpy(), self.model.eval()(x).numpy())
                scores = self.model.train()(x)
            self.surrogate.train().requires_grad_(True)
            self.of_surrogate.zero_grad()
            (self.surrogate(scores, y) - true).abs().backward()  # Eq. 5
            self._clip(self.surrogate)
            self.of_surrogate.step()
            self.surrogate.eval().requires_grad_(False)
        for _ in range(self.model_steps):  # lines 3-7
            x, y = next(following)
            self.of_model.zero_grad()
            self.surrogate(self.model.train()(x), y).backward()  # Eq. 4
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


# %%
# An eight among ten digits, the network of the paper, a surrogate that was fitted to random sets, and 100 rounds of
# larger steps than the 300,000 of the paper.

if __name__ == "__main__":
    import matplotlib.pyplot as plt
    from sklearn.datasets import load_digits

    from metricgrad import SurrogateLoss
    from metricgrad.training.networks import build_model

    torch.set_num_threads(1)  # the steps are too small to share
    torch.manual_seed(0)
    digits = load_digits()
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target == 8).float()
    test = torch.arange(len(y)) % 3 == 0
    paper = AlgorithmOne(build_model("mlp", 64), SurrogateLoss("auc").surrogate, rate=1e-3, clip=1.0)
    batches = [stratified(x[~test], y[~test], 100, torch.Generator().manual_seed(seed)) for seed in (0, 1)]
    curve = []
    for _ in range(100):
        paper.round(*batches)
        with torch.no_grad():
            scores = paper.model.eval()(x[test])
            surrogate = 1 - float(paper.surrogate(scores, y[test]))
        curve.append((roc_auc_score(y[test], scores), surrogate))
    for when, (auc, _) in (("first", curve[0]), ("last", curve[-1])):
        print(f"after the {when:>5} round: AUC {auc:.3f} on unseen rows")
    for values, label in zip(zip(*curve, strict=True), ("true", "as the surrogate has it"), strict=True):
        plt.plot(values, label=label)
    plt.xlabel("round")
    plt.ylabel("AUC on unseen rows")
    plt.legend()
    plt.show()
