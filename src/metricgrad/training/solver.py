"""Models that are linear in fixed columns: cross-entropy to its minimum, then the surrogate, on all rows, by L-BFGS.

A linear or an additive model needs no mini-batches: its columns are computed once, and an evaluation of the loss on all
rows is one product of a matrix and a vector. Rounds are those of Algorithm 1, with L-BFGS iterations as model steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor, nn

from metricgrad.losses.default import proxy_for
from metricgrad.metrics.tasks import Task
from metricgrad.training.data import ROWS_AT_ONCE, Rows
from metricgrad.training.networks import Scorer

RIDGES = (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""Ridge penalties tried, on weights of standardised columns beside the mean loss of a row; the strongest first."""
MAX_WORSE_RIDGES = 2
"""Penalties in a row without a lower loss on validation rows after which no weaker one is tried."""
MAX_ITERATIONS = 300
"""Of L-BFGS for one ridge penalty."""
MAX_WHITENED = 2_000
"""Columns up to which the start is searched in coordinates that take their correlations into account."""
TOLERANCE, WHITENED_TOLERANCE = 1e-9, 1e-7
"""Relative gain of an iteration at which L-BFGS ends; in such coordinates a smaller one is lost in rounding."""
LEAST_SHIFT = 1e-9
"""Of the diagonal of the products of columns, as a share of its largest entry."""
MAX_CELLS = 10_000_000
"""Cells of the columns of the rows that are solved for; of a larger table a part is drawn, rare classes first."""


class LinearForm(NamedTuple):
    """A model as fixed columns and a linear layer on them.

    `penalty` is the relative ridge penalty of every column, `(columns,)`; `bounds`, `(columns, 2)`, the range of its
    weight, if it is limited.
    """

    design: Callable[[Tensor], Tensor]
    head: nn.Linear
    penalty: Tensor | None = None
    bounds: Tensor | None = None


def linear_form(model: nn.Module) -> LinearForm | None:
    """Return the linear form of a model, None if it has none."""
    body = model.body if isinstance(model, Scorer) else model
    if isinstance(body, nn.Linear):
        return LinearForm(lambda x: x, body)
    head, design = getattr(body, "head", None), getattr(body, "design", None)
    if isinstance(head, nn.Linear) and callable(design):
        return LinearForm(design, head, getattr(body, "penalty", None), getattr(body, "bounds", None))
    return None


class Problem:
    """A linear form on some rows: its columns, computed once, and the weights to be found, as one vector.

    Parameters
    ----------
    form : LinearForm
        The model, whose linear layer always holds the weights found last.
    rows : Rows
        All training rows; of a table too large, a part is drawn.
    task, weighted : Task, bool
        Of the metric, and whether it takes weights.
    seed : int
        Of the part.
    like : Problem, optional
        The problem of a copy of the model on the same rows, whose columns are shared.
    """

    def __init__(
        self,
        form: LinearForm,
        rows: Rows,
        task: Task,
        weighted: bool = True,
        seed: int = 0,
        like: Problem | None = None,
    ) -> None:
        self.form, self.proxy = form, proxy_for(task)
        self.single = not task.outputs
        self.held_out: Tensor | None = None  # the columns of the validation rows
        if like is None:
            most = max(MAX_CELLS // max(form.head.in_features, 1), 1_000)
            self.rows = part_of(rows, most, task.strata(rows.y) if weighted else None, seed)
            self.columns = self.design(self.rows.x)
            self.gram = self._gram()
        else:
            self.rows, self.columns, self.gram, self.held_out = like.rows, like.columns, like.gram, like.held_out
        penalty = torch.ones(form.head.in_features) if form.penalty is None else form.penalty.float()
        self.penalty = penalty.expand_as(form.head.weight)
        self.ridge = 0.0

    def design(self, x: Tensor) -> Tensor:
        """Return the columns of some rows: `(n, features)` -> `(n, columns)`, each in one piece of memory.

        Products with a vector, on either side, are faster than those with a matrix whose rows are in one piece.
        """
        columns = [self.form.design(part).float().mT for part in x.split(ROWS_AT_ONCE)]
        return (columns[0].contiguous() if len(columns) == 1 else torch.cat(columns, 1)).mT

    def keeps(self, x: Tensor) -> bool:
        """Whether it pays to keep the columns of rows that are scored again and again: others than the features."""
        return self.form.head.in_features > x.shape[1] and len(x) * self.form.head.in_features <= MAX_CELLS

    @torch.no_grad()
    def validation_scores(self, x: Tensor) -> Tensor:
        """Return the scores of validation rows, always the same ones, by the weights as they are."""
        if self.held_out is None:
            self.held_out = self.design(x)
        scores: Tensor = self.form.head(self.held_out.to(self.form.head.weight.dtype))
        return scores[:, 0] if self.single else scores

    @property
    def model(self) -> Scorer:
        """The linear layer as a model of the columns, for steps of mini-batches; its weights are those of the model."""
        outputs = None if self.single else self.form.head.out_features
        return Scorer(self.form.head, "linear", self.form.head.in_features, outputs)

    @property
    def in_columns(self) -> Rows:
        """The rows, with columns in place of features, for steps of mini-batches."""
        return self.rows._replace(x=self.columns.contiguous())

    @torch.no_grad()
    def scores(self) -> Tensor:
        """Return the scores of the rows by the weights as they are: `(rows,)` or `(rows, outputs)`."""
        scores: Tensor = self._scored(self.form.head.weight.float(), self.form.head.bias.float())
        return scores

    def _scored(self, weight: Tensor, bias: Tensor) -> Tensor:
        scores = torch.addmm(bias, self.columns, weight.mT)
        return scores[:, 0] if self.single else scores

    def shrinkage(self, weight: Tensor) -> Tensor:
        """Return the ridge penalty of weights, `(outputs, columns)`."""
        return 0.5 * self.ridge * (self.penalty * weight.square()).sum()

    def proper(self, scores: Tensor, weight: Tensor) -> Tensor:
        """Return the proxy of the task with the ridge penalty: what the start minimises."""
        value: Tensor = self.proxy(scores.double(), self.rows.y, self.rows.w)
        return value + self.shrinkage(weight)

    def path(self) -> Iterator[float]:
        """Minimise the proxy for every ridge penalty, the strongest first, and yield the value at each minimum."""
        for self.ridge in RIDGES:
            yield self.minimise(self.proper, MAX_ITERATIONS, self.basis)

    @property
    def basis(self) -> Tensor | None:
        """Coordinates in which the proxy is nearly as steep in every direction; None if there are none."""
        return None if self.gram is None else self._basis(self.gram)

    def _gram(self) -> Tensor | None:
        """Return the mean products of columns, `(columns, columns)`; None where they are many, or weights bounded."""
        if self.form.bounds is not None or self.columns.shape[1] > MAX_WHITENED:
            return None
        products = (self.columns.mT @ self.columns).double() / len(self.columns)
        return products if bool(products.isfinite().all()) else None

    def _basis(self, gram: Tensor) -> Tensor:
        """Return coordinates, `(columns, columns)`, by the products of columns: weights are `basis @ them`."""
        unit = torch.eye(len(gram), dtype=gram.dtype)
        steepness = gram / 4 + torch.diag(self.ridge * self.penalty[0].double())
        shift = LEAST_SHIFT * gram.diagonal().max().clamp(min=1)
        factor, failed = torch.linalg.cholesky_ex(steepness + shift * unit)
        while failed:  # columns depend on each other, and rounding of their products made a direction negative
            shift *= 10
            factor, failed = torch.linalg.cholesky_ex(steepness + shift * unit)
        basis: Tensor = torch.linalg.solve_triangular(factor.mT, unit, upper=True)
        return basis

    def search_basis(self, ridge: float) -> Tensor:
        """Return coordinates, `(columns, columns)`, for a search of weights, with a ridge of at least some strength."""
        if self.gram is None:
            return torch.diag(1 / self.columns.std(0, correction=0).clamp(min=1e-3)).double()
        own, self.ridge = self.ridge, max(self.ridge, ridge)
        basis, self.ridge = self._basis(self.gram), own
        return basis

    def bounded(self, weight: Tensor) -> Tensor:
        """Return weights, `(outputs, columns)`, within their bounds."""
        bounds = self.form.bounds
        return weight if bounds is None else weight.clamp(*bounds.to(weight.dtype).unbind(1))

    @property
    def weights(self) -> tuple[Tensor, Tensor]:
        """Copies of weight and bias."""
        return self.form.head.weight.detach().clone(), self.form.head.bias.detach().clone()

    @weights.setter
    def weights(self, values: tuple[Tensor, Tensor]) -> None:
        with torch.no_grad():
            self.form.head.weight.copy_(values[0])
            self.form.head.bias.copy_(values[1])

    def minimise(
        self, objective: Callable[[Tensor, Tensor], Tensor], iterations: int, basis: Tensor | None = None
    ) -> float:
        """Lower `objective(scores, weight)` from the weights as they are, by some iterations of L-BFGS.

        Returns the value reached. Bounds are kept exactly. With a basis, `(columns, columns)`, coordinates in it are
        searched instead of weights.
        """
        weight, bias = self.form.head.weight, self.form.head.bias
        shape, split = weight.shape, weight.numel()

        def value_and_gradient(flat: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
            parameters = torch.from_numpy(flat).float().requires_grad_()
            with torch.enable_grad():
                own = parameters[:split].view(shape)
                own = own if basis is None else own @ change
                value = objective(self._scored(own, parameters[split:]), own)
                (gradient,) = torch.autograd.grad(value, parameters)
            return float(value.detach()), gradient.double().numpy()

        first = weight.detach().double()
        if basis is not None:
            change = basis.mT.float()
            first = torch.linalg.solve_triangular(basis, first.mT, upper=True).mT
        start = torch.cat((first.flatten(), bias.detach().double())).numpy()
        tolerance = TOLERANCE if basis is None else WHITENED_TOLERANCE
        found = minimize(
            value_and_gradient,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=self._bounds(len(bias)),
            options={
                "maxiter": iterations,
                "maxfun": 2 * iterations + 10,
                "maxcor": 20,
                "ftol": tolerance,
                "gtol": 1e-6,
            },
        )
        if np.isfinite(found.x).all():
            flat = torch.from_numpy(found.x)
            first = flat[:split].view(shape)
            self.weights = first if basis is None else first @ basis.mT, flat[split:]
        return float(found.fun)

    def _bounds(self, outputs: int) -> list[tuple[float | None, float | None]] | None:
        if self.form.bounds is None:
            return None
        each = [(float(low), float(high)) for low, high in self.form.bounds]
        return each * outputs + [(None, None)] * outputs


class Given(nn.Module):
    """Stands in for a model whose scores are known: `(..., 1)` -> `(...)`; several outputs stay as they are."""

    def forward(self, scores: Tensor) -> Tensor:
        """Return the scores."""
        return scores.squeeze(-1) if scores.shape[-1] == 1 else scores


def part_of(rows: Rows, most: int, strata: Tensor | None, seed: int) -> Rows:
    """Return rows to solve for: all, or of too many a part in which every class has up to an equal share.

    Weights make up for what is left out; without strata, rows are drawn as they come.
    """
    count = len(rows.y)
    if count <= most:
        return Rows(rows.x[:], rows.y, rows.w)
    small = torch.int32 if count < 2**31 else torch.int64  # one for every row: they weigh as much as a feature
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed), dtype=small)
    if strata is None:
        chosen, weights = order[:most].long().sort().values, torch.ones(most)
    else:
        alike = strata.int()[order]
        sizes = alike.bincount()
        quota = _quota(sizes, most)
        parts = [order[alike == kind][: int(size)].long() for kind, size in enumerate(quota)]
        chosen = torch.cat(parts).sort().values
        weights = (sizes / quota.clamp(min=1))[strata[chosen].long()].float()
    if rows.w is not None:
        weights = weights * rows.w[chosen]
    kept = None if strata is None and rows.w is None else weights / weights.mean()
    return Rows(rows.x[chosen], rows.y[chosen], kept)


def _quota(sizes: Tensor, most: int) -> Tensor:
    """Return how many rows of each class to keep, `most` in all: small classes whole, large ones an equal share."""
    quota, left, classes = torch.zeros_like(sizes), most, len(sizes)
    for rank, kind in enumerate(sizes.argsort()):
        quota[kind] = min(int(sizes[kind]), left // (classes - rank))
        left -= int(quota[kind])
    return quota
