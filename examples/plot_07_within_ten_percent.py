"""
Prices within ten percent
=========================

A valuer is judged by how many prices come within ten percent of what was paid: a miss by far counts as much as a near
one. Squared error of log prices chases the far ones, and the metric itself has no gradient. Here a linear model of log
prices starts by squared error, and goes on by it, or by the surrogate of ``within(0.1)``.
"""

from copy import deepcopy

import torch
from torch import Tensor, nn

from metricgrad import SurrogateLoss, get_metric

within = get_metric("within(0.1)")


def flats(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw features and prices: most follow the market, one in four was sold in a hurry, or for love."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 6, generator=draw)
    market = 0.3 * x[:, 0] + 0.15 * x[:, 1] - 0.1 * x[:, 2] + 0.07 * torch.randn(rows, generator=draw)
    odd = (torch.rand(rows, generator=draw) < 0.25) * torch.empty(rows).exponential_(1.5, generator=draw)
    return x, (market + odd * x[:, 3].tanh()).exp()


class SquaredError(nn.Module):
    """Of log prices."""

    def forward(self, prices: Tensor, paid: Tensor) -> Tensor:
        """Return the mean of all rows."""
        return (prices.log() - paid.log()).square().mean()


def follow(model: nn.Module, loss: nn.Module, seed: int, steps: int) -> None:
    """Take some steps on four sets of 250 rows each; a surrogate is refined at every second."""
    x, y = flats(4_000, seed)
    draw = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    pace = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        rows = torch.randint(len(y), (4, 250), generator=draw)
        prices = model(x[rows])[..., 0].exp()
        if step % 2 == 0 and isinstance(loss, SurrogateLoss):
            loss.refine(prices, y[rows])
        optimizer.zero_grad()
        loss(prices, y[rows]).backward()
        optimizer.step()
        pace.step()


def compare(seed: int, steps: int = 300) -> dict[str, float]:
    """Return the share of unseen prices within ten percent, by each loss."""
    torch.manual_seed(seed)
    start, losses = nn.Linear(6, 1), {"squared error": SquaredError(), "surrogate": SurrogateLoss(within)}
    follow(start, SquaredError(), seed, steps)
    unseen, paid = flats(20_000, seed + 1_000_000)
    found = {}
    for name, loss in losses.items():
        model = deepcopy(start)
        follow(model, loss, seed, steps)
        with torch.no_grad():
            found[name] = float(within.value(within(model(unseen)[:, 0].exp(), paid)))
    return found


if __name__ == "__main__":
    for name, value in compare(0).items():
        print(f"{name:>14}: within ten percent {value:.4f} on unseen rows")
