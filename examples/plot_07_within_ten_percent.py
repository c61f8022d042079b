"""
Prices within ten percent
=========================

A price model is judged by how many prices it predicts within ten percent: a large error counts no more than a small one
outside that band. Squared error of log prices is dominated by the large errors, and the metric itself has no gradient.
Here a linear model of log prices is trained on squared error first, and then either on squared error or on the
surrogate of ``within(0.1)``.
"""

from copy import deepcopy

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from metricgrad import SurrogateLoss, get_metric

within = get_metric("within(0.1)")


def flats(rows: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw features and prices: most follow the market, one in four is far off."""
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, 6, generator=draw)
    market = 0.3 * x[:, 0] + 0.15 * x[:, 1] - 0.1 * x[:, 2] + 0.07 * torch.randn(rows, generator=draw)
    odd = (torch.rand(rows, generator=draw) < 0.25) * torch.empty(rows).exponential_(1.5, generator=draw)
    return x, (market + odd * x[:, 3].tanh()).exp()


class SquaredError(nn.Module):
    """Mean squared error of log prices."""

    def forward(self, prices: Tensor, paid: Tensor) -> Tensor:
        """Return the mean over all rows."""
        return (prices.log() - paid.log()).square().mean()


def follow(model: nn.Module, loss: nn.Module, seed: int, steps: int) -> None:
    """Train for some steps on four sets of 250 rows each; a surrogate is refined every second step."""
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


def predictions(seed: int, steps: int = 300) -> tuple[Tensor, dict[str, Tensor]]:
    """Return unseen prices, and what the model of each loss predicts for them."""
    torch.manual_seed(seed)
    start, losses = nn.Linear(6, 1), {"squared error": SquaredError(), "surrogate": SurrogateLoss(within)}
    follow(start, SquaredError(), seed, steps)
    unseen, paid = flats(20_000, seed + 1_000_000)
    found = {}
    for name, loss in losses.items():
        model = deepcopy(start)
        follow(model, loss, seed, steps)
        with torch.no_grad():
            found[name] = model(unseen)[:, 0].exp()
    return paid, found


def compare(seed: int, steps: int = 300) -> dict[str, float]:
    """Return the share of unseen prices within ten percent, by each loss."""
    paid, found = predictions(seed, steps)
    return {name: float(within.value(within(prices, paid))) for name, prices in found.items()}


if __name__ == "__main__":
    paid, found = predictions(0)
    for name, prices in found.items():
        print(f"{name:>14}: within ten percent {within.value(within(prices, paid)):.4f} on unseen rows")

    figure = Figure(figsize=(7, 3.5), layout="constrained")
    axes = figure.subplots()
    axes.axvspan(-0.1, 0.1, color="0.9")
    for name, prices in found.items():
        axes.hist((prices / paid - 1).numpy(), bins=80, range=(-0.5, 0.5), histtype="step", label=name)
    axes.set(xlabel="relative error; ten percent is shaded", ylabel="unseen prices")
    legend = axes.legend(frameon=False)
