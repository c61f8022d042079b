"""Tasks: what is predicted, which targets are valid, and from which sets a model can learn.

Rows of a set lie on the axis `n`: scores are `(..., n)`, or with several outputs `(..., n, c)`; targets are `(..., n)`,
or with several numbers per row `(..., n, t)`; weights are `(..., n)`, and a row of weight zero is as good as absent,
which pads sets of unequal size. A loss is `(...)`.

| task | scores | targets |
|---|---|---|
| `binary` | `(..., n)` | 0 or 1 |
| `columns` | `(..., n)` | 0 or 1, then numbers of at least 0 that the metric needs: `(..., n, t)` |
| `multiclass` | `(..., n, c)` | 1 for the class of the row, else 0: `(..., n, c)`; or its index: `(..., n)` |
| `multilabel` | `(..., n, c)` | 1 for every label the row has, else 0: `(..., n, c)` |
| `ranking` | `(..., n)` | grades of at least 0; a set is a query |
| `regression` | `(..., n)` | finite numbers |
| `censored` | `(..., n)` | a finite number, then 1 if its event was seen, else 0: `(..., n, 2)` |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import one_hot


@dataclass(frozen=True)
class Task:
    """What is predicted.

    Parameters
    ----------
    name : str
        Its name.
    outputs : bool
        Whether scores have an axis of outputs, `(..., n, c)`.
    several : bool
        Whether targets have an axis of their own, `(..., n, t)`.
    expected : str
        Which targets are valid, for error messages.
    invalid : callable
        Mask of invalid targets: `(..., n)` or `(..., n, t)` -> the same shape.
    informative : callable
        `(targets, weights)` -> mask of the sets that a model can learn from: `(...)`.
    """

    name: str
    outputs: bool = field(repr=False)
    several: bool = field(repr=False)
    expected: str = field(repr=False)
    invalid: Callable[[Tensor], Tensor] = field(repr=False)
    informative: Callable[[Tensor, Tensor], Tensor] = field(repr=False)

    @property
    def axes(self) -> int:
        """How many axes the scores of one set have."""
        return 2 if self.outputs else 1

    @property
    def classes(self) -> bool:
        """Whether every row is of one class, so that a set may hold one class only."""
        return self.name in ("binary", "columns", "multiclass")

    @property
    def numbers(self) -> bool:
        """Whether targets are numbers, and scores predictions of them."""
        return self.name in ("regression", "censored")

    def coded(self, targets: Tensor, scores: Tensor) -> Tensor:
        """Return targets as a metric takes them: indices of classes, `(..., n)`, become one-hot."""
        integers = not targets.is_floating_point() and targets.dtype != torch.bool
        if self.name != "multiclass" or not integers or targets.shape != scores.shape[:-1]:
            return targets
        classes = scores.shape[-1]
        invalid = (targets < 0) | (targets >= classes)
        if bool(invalid.any()):
            raise ValueError(f"targets: expected indices of classes below {classes}, got {targets[invalid][0].item()}")
        return one_hot(targets.long(), classes).to(scores.dtype)

    def label(self, targets: Tensor) -> Tensor:
        """Return the targets without their columns, as hand-made losses take them."""
        return targets[..., 0] if self.several and not self.outputs else targets

    def rows(self, scores: Tensor) -> Tensor:
        """Return one score per row, in the shape of weights: `(..., n)`."""
        return scores[..., 0] if self.outputs else scores

    def strata(self, targets: Tensor) -> Tensor | None:
        """Return the stratum of every row for drawing sets, `(rows,)`: its label or class, if there are classes."""
        if not self.classes:
            return None
        return targets.argmax(-1).unique(return_inverse=True)[1] if self.outputs else self.label(targets)

    def rarest(self, targets: Tensor) -> int:
        """Return how many rows the rarest class has, or the rarest label; 0 where there are none."""
        if self.outputs:
            return int((targets == 1).sum(0).min())
        positive = self.label(targets) == 1
        return int(torch.minimum(positive.sum(), (~positive).sum())) if self.classes else 0


def two_classes(targets: Tensor, weights: Tensor) -> Tensor:
    """Mask of the sets with rows of both classes: `(..., n)` -> `(...)`."""
    present, positive = weights > 0, targets == 1
    return (present & positive).any(-1) & (present & ~positive).any(-1)


def _two_of_columns(targets: Tensor, weights: Tensor) -> Tensor:
    return two_classes(targets[..., 0], weights)


def _several_classes(targets: Tensor, weights: Tensor) -> Tensor:
    """Mask of the sets with rows of at least two classes: `(..., n, c)` -> `(...)`."""
    return ((targets == 1) & (weights > 0).unsqueeze(-1)).any(-2).sum(-1) > 1


def _some_label(targets: Tensor, weights: Tensor) -> Tensor:
    """Mask of the sets in which some label is present but not in all rows: `(..., n, c)` -> `(...)`."""
    present = (weights > 0).unsqueeze(-1)
    return (((targets == 1) & present).any(-2) & ((targets != 1) & present).any(-2)).any(-1)


def _unequal(targets: Tensor, weights: Tensor) -> Tensor:
    """Mask of the sets whose targets differ: `(..., n)` -> `(...)`."""
    present = weights > 0
    targets = targets if targets.is_floating_point() else targets.double()  # integers have no infinity
    highest = targets.masked_fill(~present, -torch.inf).amax(-1)
    return highest > targets.masked_fill(~present, torch.inf).amin(-1)


def _unequal_of_columns(targets: Tensor, weights: Tensor) -> Tensor:
    return _unequal(targets[..., 0], weights)


def _neither(targets: Tensor) -> Tensor:
    return (targets != 0) & (targets != 1)


def _not_columns(targets: Tensor) -> Tensor:
    invalid = _not_grades(targets)
    invalid[..., 0] = _neither(targets[..., 0])
    return invalid


def _not_one_hot(targets: Tensor) -> Tensor:
    return _neither(targets) | (targets.sum(-1, keepdim=True) != 1)


def _not_grades(targets: Tensor) -> Tensor:
    return ~(targets >= 0) | ~targets.isfinite()


def _not_finite(targets: Tensor) -> Tensor:
    return ~targets.isfinite()


def _not_censored(targets: Tensor) -> Tensor:
    invalid = _not_finite(targets)
    invalid[..., 1] = _neither(targets[..., 1])
    return invalid


BINARY = Task("binary", False, False, "0 or 1", _neither, two_classes)
COLUMNS = Task(
    "columns", False, True, "0 or 1, then numbers of at least 0 for every column", _not_columns, _two_of_columns
)
MULTICLASS = Task("multiclass", True, True, "a single 1 in every row, else 0", _not_one_hot, _several_classes)
MULTILABEL = Task("multilabel", True, True, "0 or 1", _neither, _some_label)
RANKING = Task("ranking", False, False, "grades of at least 0", _not_grades, _unequal)
REGRESSION = Task("regression", False, False, "finite numbers", _not_finite, _unequal)
CENSORED = Task(
    "censored", False, True, "a finite number, then 0 or 1 for the event", _not_censored, _unequal_of_columns
)
TASKS = {task.name: task for task in (BINARY, COLUMNS, MULTICLASS, MULTILABEL, RANKING, REGRESSION, CENSORED)}
