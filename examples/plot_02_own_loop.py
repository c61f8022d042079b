"""
Your own PyTorch loop
=====================

``SurrogateLoss`` is an ``nn.Module``: call it on raw scores and targets, call ``backward`` on the result, and
``refine`` it every few steps. Here a small network is trained for average precision, first on cross-entropy, then on
the surrogate.
"""

import torch
from matplotlib.figure import Figure
from sklearn.metrics import precision_recall_curve
from torch import nn

from metricgrad import SurrogateLoss, get_metric

torch.manual_seed(0)
average_precision = get_metric("average_precision")


def draw(rows: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Draw rare positives in two clusters, one of them inside the negatives."""
    y = (torch.rand(rows) < 0.06).float()
    x = torch.randn(rows, 8)
    x[y == 1] += torch.where(torch.rand(int(y.sum()), 1) < 0.5, 1.5, -1.0) * torch.tensor([1, 1, 0.5, 0, 0, 0, 0, 0])
    return x, y


x_train, y_train = draw(20_000)
x_test, y_test = draw(20_000)
model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1))


curves = {}


def show(when: str) -> None:
    with torch.no_grad():
        scores = model(x_test)[:, 0]
    print(f"{when:>22}: {average_precision.shown(average_precision(scores, y_test))} on unseen rows")
    curves[when] = precision_recall_curve(y_test, scores)


optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
cross_entropy = nn.BCEWithLogitsLoss()
for _ in range(600):
    rows = torch.randint(len(y_train), (500,))
    optimizer.zero_grad()
    cross_entropy(model(x_train[rows])[:, 0], y_train[rows]).backward()
    optimizer.step()
show("after cross-entropy")

optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
loss = SurrogateLoss("average_precision")
for step in range(600):
    rows = torch.randint(len(y_train), (500,))
    scores = model(x_train[rows])[:, 0]
    if step % 3 == 0:
        loss.refine(scores, y_train[rows])  # Eq. 5: keep the surrogate close to the metric
    optimizer.zero_grad()
    loss(scores, y_train[rows]).backward()  # Eq. 4: train the model on it
    optimizer.step()
show("after the surrogate")
print(f"mean |true - surrogate| on refined sets: {loss.gap:.3f}")

# %%
# Precision and recall on the unseen rows; average precision is the area below.
figure = Figure(figsize=(7, 3.5), layout="constrained")
axes = figure.subplots()
for when, (precision, recall, _) in curves.items():
    axes.plot(recall[:-1], precision[:-1], label=when)
axes.set(xlabel="recall", ylabel="precision", ylim=(0, 1))
legend = axes.legend(frameon=False)
