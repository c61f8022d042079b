"""Membranes of neurons under an electron microscope (ISBI 2012): a small U-Net, judged picture by picture.

The 30 slices of a stack, at half their resolution. Neighbours are alike, so the parts of a split are blocks of slices.
A set is a picture; the membrane is the positive class, a fifth of the pixels. The two metrics are the IoU of a picture,
and the F1 of its boundaries within a pixel: pixels are called, the edges of both masks are found, and those that
have an edge of the other nearby are counted. That depends on where pixels lie, which scores and targets do not show.
"""

from __future__ import annotations

import os
from functools import lru_cache
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from metricgrad import SurrogateLoss, black_box, get_metric, load_universal
from metricgrad.losses.binary import CrossEntropy, LovaszHinge, SoftF1
from studies.deep.losses import Batch, Learned, Objective, plain
from studies.deep.problem import Plan, Values

METRICS = ("iou", "boundary")
SLICES, VALIDATION, TEST = 30, 6, 8
CROP, CROPS = 80, 4
TOLERANCE = 1
"""Pixels within which an edge counts as found."""
CUTS = {"iou": 17, "boundary": 9}
"""Thresholds tried on validation pictures, from -1 to 1 standard deviations of the scores."""
BOUNDARY: dict[str, Any] = {"higher_is_better": True, "labels": True, "value_range": (0, 1), "max_calls": 10**7}
jaccard = get_metric("jaccard")


@lru_cache(maxsize=1)
def stack() -> tuple[Tensor, Tensor]:
    """Return pictures and masks of membranes, `(30, 256, 256)`."""
    with np.load(Path(os.environ["METRICGRAD_DATA"]) / "extra" / "isbi2012_membrane.npz") as data:
        image, inside = (torch.from_numpy(data[name]).float() for name in ("image", "mask"))
    image, membrane = (F.avg_pool2d(each.unsqueeze(1), 2).squeeze(1) for each in (image, 1 - inside))
    return (image - image.mean()) / image.std(), (membrane >= 0.5).float()


def edges(masks: Tensor) -> Tensor:
    """Return the pixels of masks `(..., side, side)` that have a neighbour outside; 0 or 1, as the masks."""
    flat = masks.reshape(-1, 1, *masks.shape[-2:])
    inner = 1 - F.max_pool2d(1 - flat, 3, stride=1, padding=1)  # what lies beyond the picture is no neighbour
    return (flat - inner).view_as(masks)


def nearby(points: Tensor, reach: int) -> Tensor:
    """Return the pixels within a square around some: `(..., side, side)`."""
    flat = points.reshape(-1, 1, *points.shape[-2:])
    return F.max_pool2d(flat, 2 * reach + 1, stride=1, padding=reach).view_as(points)


def boundary_f1(truth: Tensor, called: Tensor) -> Tensor:
    """Return the F1 of edges that have an edge of the other mask within a pixel: `(..., side, side)` -> `(...)`."""
    true, found = edges(truth), edges(called)
    precision = _share(found, nearby(true, TOLERANCE))
    recall = _share(true, nearby(found, TOLERANCE))
    return 2 * precision * recall / (precision + recall).clamp(min=1e-12)


def _share(points: Tensor, among: Tensor) -> Tensor:
    return (points * among).sum((-2, -1)) / points.sum((-2, -1)).clamp(min=1)


def boundary_of_rows(y_true: Any, y_pred: Any) -> float:
    """Return the F1 of boundaries of the pixels of a square picture, row by row; a plain function for `black_box`."""
    side = isqrt(len(y_true))
    truth, called = (torch.from_numpy(np.asarray(each, np.float32)).view(side, side) for each in (y_true, y_pred))
    return float(boundary_f1(truth, called))


class UNet(nn.Module):
    """Two halvings, and back, with the finer features beside the coarser ones: `(k, 1, h, w)` -> `(k, h * w)`."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down = nn.ModuleList([_block(1, width), _block(width, 2 * width), _block(2 * width, 4 * width)])
        self.up = nn.ModuleList([_block(6 * width, 2 * width), _block(3 * width, width)])
        self.last = nn.Conv2d(width, 1, 1)

    def forward(self, pictures: Tensor) -> Tensor:
        """Return a score for every pixel."""
        fine = self.down[0](pictures)
        middle = self.down[1](F.max_pool2d(fine, 2))
        coarse = self.down[2](F.max_pool2d(middle, 2))
        middle = self.up[0](torch.cat((F.interpolate(coarse, scale_factor=2), middle), 1))
        fine = self.up[1](torch.cat((F.interpolate(middle, scale_factor=2), fine), 1))
        scores: Tensor = self.last(fine).flatten(1)
        return scores


def _block(before: int, after: int) -> nn.Module:
    layers = [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers)


class Membranes:
    """One split of the stack: blocks of slices, each seed begins at another slice."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        images, masks = stack()
        order = (torch.arange(SLICES) + 10 * seed) % SLICES
        sizes = (TEST, VALIDATION, SLICES - TEST - VALIDATION)
        self.test, self.validation, (images, masks) = ((images[rows], masks[rows]) for rows in order.split(sizes))
        self.train = torch.stack((images, masks), 1)

    def network(self) -> nn.Module:
        """Return a U-Net."""
        torch.manual_seed(self.seed)
        return UNet().to(memory_format=torch.channels_last)

    def batch(self, generator: torch.Generator) -> Batch:
        """Draw crops of pictures, turned and mirrored at random."""
        some = []
        for picture in torch.randint(len(self.train), (CROPS,), generator=generator).tolist():
            top, left = torch.randint(self.train.shape[-1] - CROP + 1, (2,), generator=generator).tolist()
            turns, mirrored = torch.randint(4, (2,), generator=generator).tolist()
            crop = self.train[picture, :, top : top + CROP, left : left + CROP].rot90(turns, (1, 2))
            some.append(crop.flip(2) if mirrored % 2 else crop)
        return batch_of(torch.stack(some))

    def scores(self, model: nn.Module, batch: Batch) -> Tensor:
        """Return the scores of all pixels, `(crops, n)`."""
        scores: Tensor = model(batch.inputs)
        return scores

    @torch.no_grad()
    def validated(self, model: nn.Module) -> Values:
        """Return every metric on the validation pictures, at its best threshold there."""
        return {metric: max(by_cut.values()) for metric, by_cut in self._by_cut(model).items()}

    @torch.no_grad()
    def tested(self, model: nn.Module) -> Values:
        """Return every metric on the test pictures, at the best threshold of the validation pictures."""
        images, masks = self.test
        scores = pixel_scores(model, images)
        cuts = {metric: max(by_cut, key=by_cut.__getitem__) for metric, by_cut in self._by_cut(model).items()}
        return {metric: mean_of(metric, scores - cut, masks) for metric, cut in cuts.items()}

    def _by_cut(self, model: nn.Module) -> dict[str, dict[float, float]]:
        images, masks = self.validation
        scores = pixel_scores(model, images)
        spread = float(scores.std())
        return {
            metric: {cut: mean_of(metric, scores - cut, masks) for cut in np.linspace(-spread, spread, many).tolist()}
            for metric, many in CUTS.items()
        }

    @torch.no_grad()
    def held_out(self, model: nn.Module) -> tuple[Tensor, Batch]:
        """Return the crops of the validation pictures, four of each."""
        batch = self._crops()
        return model(batch.inputs), batch

    def _crops(self) -> Batch:
        images, masks = self.validation
        corners = [(top, left) for top in (0, 160) for left in (0, 160)]
        parts = torch.stack((images, masks), 1)
        return batch_of(torch.cat([parts[..., top : top + CROP, left : left + CROP] for top, left in corners]))

    def reach(self, model: nn.Module, objective: Objective) -> Values:
        """Return where the gradient of a loss lies: near the decision, and on pixels that are surely wrong.

        Shares of the sum of its absolute values over validation crops; a pixel is near the decision, or not, by a
        quarter of the spread of the scores.
        """
        scores, batch = self.held_out(model)
        leaf = scores.clone().requires_grad_()
        loss = objective.followed if isinstance(objective, Learned) else objective
        (gradient,) = torch.autograd.grad(loss(leaf, batch), leaf)
        size = gradient.abs() / gradient.abs().sum()
        near, wrong = scores.abs() < scores.std() / 4, (scores >= 0) != (batch.targets == 1)
        right_way = (gradient < 0) == (batch.targets == 1)
        return {
            "near": float(size[near].sum()),
            "wrong": float(size[wrong].sum()),
            "surely wrong": float(size[wrong & ~near].sum()),
            "towards": float(size[right_way].sum()),
            "pixels near": float(near.float().mean()),
            "pixels wrong": float(wrong.float().mean()),
            "pixels surely wrong": float((wrong & ~near).float().mean()),
        }


def batch_of(crops: Tensor) -> Batch:
    """Return crops with their masks, `(k, 2, side, side)`, as a batch: each is a set of pixels."""
    image, mask = crops.unbind(1)
    return Batch(image.unsqueeze(1), mask.flatten(1))


def pixel_scores(model: nn.Module, images: Tensor) -> Tensor:
    """Return the scores of pictures, one at a time: `(k, side, side)` -> the same."""
    return torch.cat([model(image[None, None]) for image in images]).view_as(images)


def mean_of(metric: str, scores: Tensor, masks: Tensor) -> float:
    """Return the mean of a metric over pictures, at threshold zero."""
    if metric == "iou":
        return float(1 - jaccard(scores.flatten(1), masks.flatten(1)).mean())
    return float(boundary_f1(masks, (scores >= 0).float()).mean())


def learned(seed: int, form: str = "zero", **how: float) -> Learned:
    """Follow the surrogate of IoU."""
    loss = SurrogateLoss("jaccard", form=form, learning_rate=3e-4, relational=0.3)
    return Learned(loss, seed=seed, **how)


def of_boundaries(seed: int) -> Learned:
    """Follow a surrogate of the F1 of boundaries that begins as that of the F1 of pixels."""
    metric = black_box(boundary_of_rows, **BOUNDARY)
    loss = SurrogateLoss(metric, load_universal("f1"), form="zero", relational=0.3)
    return Learned(loss, seed=seed, prefit=100)


PLAN = Plan(
    Membranes,
    {
        "cross-entropy": lambda problem, seed: plain(CrossEntropy()),
        "soft-dice": lambda problem, seed: plain(SoftF1()),
        "lovasz-hinge": lambda problem, seed: plain(LovaszHinge()),
        "surrogate-iou": lambda problem, seed: learned(seed),
        "surrogate-boundary": lambda problem, seed: of_boundaries(seed),
        "iou-best-cut": lambda problem, seed: learned(seed, form="best"),
        "iou-noise": lambda problem, seed: learned(seed, smear=0.5),
        "iou-anchor": lambda problem, seed: learned(seed, anchor=0.5),
    },
    early=100,
    late=400,
    steps=100,
    warmup_rate=3e-3,
    extra=("iou-best-cut", "iou-noise", "iou-anchor"),
    rates=(1e-3, 3e-3, 1e-2),
)
