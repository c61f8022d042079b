"""
Segmentation: every image is a set of pixels
============================================

A small convolutional network finds cells in noisy images and is judged by IoU, image by image, so that a small cell
counts as much as a large one. The pixels of an image are a set: scores are ``(images, pixels)``, and
``SurrogateLoss("jaccard", form="zero")`` takes them like any other rows. Cross-entropy takes the same number of steps
from the same start. Over five seeds (see the page on black boxes) the two are about equally good, and the Lovasz hinge,
which was designed for IoU, is better than both.
"""

from copy import deepcopy

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from metricgrad import SurrogateLoss, get_metric
from metricgrad.losses.binary import CrossEntropy, LovaszHinge, SoftF1

SIDE = 32
jaccard = get_metric("jaccard")
LOSSES = {
    "cross-entropy": CrossEntropy,
    "soft Dice": SoftF1,
    "Lovasz hinge": LovaszHinge,
    "surrogate": lambda: SurrogateLoss("jaccard", form="zero", learning_rate=3e-4, relational=0.3),
}


def pictures(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw pictures `(count, 1, side, side)` of one to three cells, some tiny, some faint, and their masks."""
    draw = torch.Generator().manual_seed(seed)
    axis = torch.arange(SIDE).float()
    shape = (count, 3, 1, 1)
    x, y = (torch.rand(shape, generator=draw) * SIDE for _ in range(2))
    radius = 1.5 + 6 * torch.rand(shape, generator=draw) ** 2
    radius[:, 1:] *= (torch.rand((count, 2, 1, 1), generator=draw) < 0.4).float()
    inside = (axis - x).square() + (axis[:, None] - y).square() <= radius.square()
    faint = 0.6 + 0.8 * torch.rand(shape, generator=draw)
    light = (inside * faint).amax(1, keepdim=True) + 0.9 * torch.randn((count, 1, SIDE, SIDE), generator=draw)
    return light, inside.any(1, keepdim=True).float()


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = [nn.Conv2d(1, 8, 5, padding=2), nn.GELU(), nn.Conv2d(8, 8, 5, padding=2), nn.GELU()]
    return nn.Sequential(*layers, nn.Conv2d(8, 1, 1), nn.Flatten())


def follow(model: nn.Module, loss: nn.Module, seed: int, steps: int) -> None:
    """Train for some steps on 16 pictures each with a cosine schedule; a surrogate is refined every third step."""
    images, masks = pictures(600, seed)
    masks, draw = masks.flatten(1), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    pace = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for step in range(steps):
        rows = torch.randint(len(images), (16,), generator=draw)
        scores = model(images[rows])
        if step % 3 == 0 and isinstance(loss, SurrogateLoss):
            loss.refine(scores, masks[rows])
        optimizer.zero_grad()
        loss(scores, masks[rows]).backward()
        optimizer.step()
        pace.step()


@torch.no_grad()
def iou(model: nn.Module, seed: int) -> float:
    """Return the mean IoU of unseen pictures at the best threshold of other pictures."""
    (known, masks), (unseen, truth) = pictures(200, seed + 1_000_000), pictures(1_000, seed + 2_000_000)
    scores = model(known)
    cut = min(scores.std() * torch.linspace(-1, 1, 41), key=lambda cut: jaccard(scores - cut, masks.flatten(1)).mean())
    return float(1 - jaccard(model(unseen) - cut, truth.flatten(1)).mean())


def trained(start: nn.Module, name: str, seed: int, steps: int) -> nn.Module:
    """Return a copy of a model, trained further on a loss."""
    model = deepcopy(start)
    follow(model, LOSSES[name](), seed, steps)
    return model


def compare(seed: int, steps: int = 400) -> dict[str, float]:
    """Start from cross-entropy, continue with every loss, and return the IoU of each."""
    start = network(seed)
    follow(start, CrossEntropy(), seed, steps)
    return {name: iou(trained(start, name, seed, steps), seed) for name in LOSSES}


if __name__ == "__main__":
    start = network(0)
    follow(start, CrossEntropy(), 0, 150)
    for name in ("cross-entropy", "surrogate"):
        model = trained(start, name, 0, 150)
        print(f"{name:>14}: IoU {iou(model, 0):.4f} on unseen rows of pixels")

    images, masks = pictures(6, 5)
    figure = Figure(figsize=(8, 4), layout="constrained")
    calls = model(images).detach().view_as(masks) >= 0
    for column, seen in zip(figure.subplots(3, 6).T, torch.cat((images, masks, calls), 1), strict=True):
        for axes, picture in zip(column, seen, strict=True):
            axes.imshow(picture.numpy(), cmap="gray")
            axes.set_axis_off()
