"""Algorithm 1 for many readings side by side.

All readings of a dataset, a metric and a seed see the same sets and the same dropout, so that they differ by nothing
else; their networks lie along a leading axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.func import grad

from metricgrad.training.dropout import dropout_masks
from metricgrad.training.networks import PAPER_WIDTHS
from studies.paper_recipe.networks import Models, Surrogates
from studies.paper_recipe.readings import DROPOUT, Reading
from studies.paper_recipe.stack import Statistics, column

STEPS = ("_scored", "_refine_once", "_follow")
"""The methods of `SideBySide` that take nearly all of its time."""


class SideBySide:
    """Algorithm 1 for m members: the surrogate first, then the model, as in the authors' program."""

    def __init__(
        self,
        models: Models,
        surrogates: Surrogates,
        metric: Callable[[Tensor, Tensor], Tensor],
        readings: Sequence[Reading],
    ) -> None:
        self.models, self.surrogates, self.metric = models, surrogates, metric
        self.true_noisy = column(r.true_on == "noisy" for r in readings).unsqueeze(2)
        self.shown_clean = column(r.shown == "clean" for r in readings).unsqueeze(2)
        self.gap = torch.full((len(readings),), float("nan"))

    def round(self, refining: tuple[Tensor, Tensor], following: tuple[Tensor, Tensor]) -> None:
        """Take a round on sets `(steps, n, features)` and their targets `(steps, n)`."""
        self._refine(*refining)
        for x, y in zip(*following, strict=True):
            self._follow(x, y, drawn_masks(1, len(x)))

    def compile(self) -> None:
        """Compile the steps, which takes a minute; a round then takes half the time."""
        for name in STEPS:
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in STEPS}

    def _refine(self, x: Tensor, y: Tensor) -> None:
        clean, noisy = self._scored(x, drawn_masks(*x.shape[:2]))
        judged = torch.where(self.true_noisy > 0, noisy, clean)
        shown = torch.where(self.shown_clean > 0, clean, noisy)
        true = self.metric(judged.double(), y.expand(len(judged), *y.shape)).float()
        gaps = [self._refine_once(shown[:, step], true[:, step], y[step]) for step in range(len(x))]
        self.gap = torch.stack(gaps).mean(0)

    @torch.no_grad()
    def _scored(self, x: Tensor, masks: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return scores of sets in evaluation and in training mode, `(m, steps, n)` each."""
        clean, noisy, seen = self.models.both(x, masks)
        self.models.move_norms(seen, x.shape[1])
        return clean, noisy

    def _refine_once(self, shown: Tensor, true: Tensor, y: Tensor) -> Tensor:
        """Move the surrogates towards the true losses of a set, and return their gaps, `(m,)`."""

        def error(flat: Tensor) -> tuple[Tensor, tuple[Tensor, Statistics]]:
            losses, statistics = self.surrogates.losses(flat, shown, y, refining=True)
            gaps = (losses - true).abs()
            return gaps.sum(), (gaps, statistics)

        gradient, (gaps, statistics) = grad(error, has_aux=True)(self.surrogates.stack.flat)
        self.surrogates.norm.move(statistics, len(y))
        self.surrogates.stack.move(gradient)
        return gaps

    def _follow(self, x: Tensor, y: Tensor, masks: Sequence[Tensor]) -> None:
        """Move the models along their surrogates on a set."""

        def followed(flat: Tensor) -> tuple[Tensor, list[Statistics]]:
            scores, seen = self.models.live(flat, x.unsqueeze(0), masks)
            return self.surrogates.losses(self.surrogates.stack.flat, scores[:, 0], y, refining=False)[0].sum(), seen

        gradient, seen = grad(followed, has_aux=True)(self.models.stack.flat)
        self.models.move_norms(seen, len(y))
        self.models.stack.move(gradient)


def drawn_masks(batches: int, rows: int, times: int = 1) -> list[Tensor]:
    """Draw the dropout of every layer, which all members share: `(times, batches * rows * width)` each."""
    return dropout_masks(DROPOUT, [batches * rows * width for width in PAPER_WIDTHS], times, torch.float32)
