"""
Your own PyTorch loop
=====================

`SurrogateLoss` is an `nn.Module`: call it on raw scores and targets, `backward` through it, and let it `refine` itself
now and then. Here a small network is trained for average precision, first by cross-entropy, then by the surrogate.
"""

import torch
from torch import nn

from metricgrad import SurrogateLoss, get_metric

torch.manual_seed(0)
average_precision = get_metric("average_precision")


def draw(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Rare positives in two clouds, one of them inside the negatives."""
    y = (torch.rand(rows) < 0.06).float()
    x = torch.randn(rows, 8)
    x[y == 1] += torch.where(torch.rand(int(y.sum()), 1) < 0.5, 1.5, -1.0) * torch.tensor([1, 1, 0.5, 0, 0, 0, 0, 0])
    return x, y


x_train, y_train = draw(20_000)
x_test, y_test = draw(20_000)
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1))


def shown(when: str) -> None:
    with torch.no_grad():
        print(f"{when:>22}: {average_precision.shown(average_precision(model(x_test)[:, 0], y_test))} on unseen rows")


optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
cross_entropy = nn.BCEWithLogitsLoss()
for _ in range(600):
    rows = torch.randint(len(y_train), (500,))
    optimizer.zero_grad()
    cross_entropy(model(x_train[rows])[:, 0], y_train[rows]).backward()
    optimizer.step()
shown("after cross-entropy")

optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loss = SurrogateLoss("average_precision")
for step in range(600):
    rows = torch.randint(len(y_train), (500,))
    scores = model(x_train[rows])[:, 0]
    if step % 3 == 0:
        loss.refine(scores, y_train[rows])  # Eq. 5: keep the surrogate true
    optimizer.zero_grad()
    loss(scores, y_train[rows]).backward()  # Eq. 4: follow it
    optimizer.step()
shown("after the surrogate")
print(f"the surrogate is off by {loss.gap:.3f} on average")
