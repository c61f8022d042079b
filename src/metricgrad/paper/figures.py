"""The figures of the paper: the arrays behind them, and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.paper.experiments import prepared
from metricgrad.paper.protocols import get_protocol
from metricgrad.reporting.plots import INK, LINE, PALETTE, SOFT, Picture, plain
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Parts, chunks
from metricgrad.training.methods import make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe, get_recipe
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import train

Array = NDArray[Any]
TRUE, LEARNED, NEGATIVE, POSITIVE = PALETTE[0], PALETTE[1], PALETTE[3], PALETTE[6]
"""Colours of the losses, and of rows of both classes."""
FIGURE1 = ("auc", "average_precision", "error_rate", "eer", "f1")
"""The five losses whose surfaces the paper draws."""


@dataclass(frozen=True)
class Figure1:
    """Loss surfaces: the shifts of two predictions, and every loss on the grid of both, `(shifts, shifts)`."""

    shifts: Array
    losses: dict[str, Array]


def figure1(points: int = 121, reach: float = 3.0, seed: int = 0) -> Figure1:
    """Shift two predictions of a random set of ten, one of a negative and one of a positive, and return all losses.

    Rows of a surface shift the negative, columns the positive; scores are cut at zero.
    """
    generator = torch.Generator().manual_seed(seed)
    scores, targets = torch.randn(10, generator=generator), (torch.arange(10) % 2).float()
    shifts = torch.linspace(-reach, reach, points)
    sets = scores.repeat(points, points, 1)
    sets[..., 0] += shifts[:, None]
    sets[..., 1] += shifts
    return Figure1(shifts.numpy(), {name: get_metric(name)(sets, targets).numpy() for name in FIGURE1})


@dataclass(frozen=True)
class Figure2:
    """The one-parameter example: the data, and true and surrogate loss over all alpha after some rounds."""

    x: Array
    y: Array
    alphas: Array
    true: Array
    rounds: tuple[int, ...]
    alpha: Array
    surrogate: Array


def figure2(rounds: tuple[int, ...] = (0, 10, 40, 120), seed: int = 0) -> Figure2:
    """Run the paper's minimal example: the model `alpha * x - 1`, started at 0.3, learns the error rate at zero.

    At each of the given rounds the current alpha and the surrogate loss over the range of alpha are kept: the surrogate
    is accurate near the current alpha, which follows its gradient.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        y = (torch.arange(200) % 2).float()
        x = torch.randn(200) * 0.5 + torch.where(y == 1, 2.4, 1.0)
        alphas = torch.linspace(0.05, 1.5, 300)
        model = nn.Parameter(torch.tensor(0.3))
        optimizer = torch.optim.Adam([model], 0.01)
        loss = SurrogateLoss("error_rate", "scratch", form="zero", learning_rate=3e-3)
        kept: list[tuple[float, Tensor]] = []
        _refine_near(loss, model, x, y, 100)
        for done in range(max(rounds) + 1):
            if done in rounds:
                kept.append((model.item(), _landscape(loss, alphas, x, y)))
            optimizer.zero_grad()
            loss(model * x - 1, y).backward()
            optimizer.step()
            _refine_near(loss, model, x, y, 10)
    true = get_metric("error_rate")(alphas[:, None] * x - 1, y)
    alpha, surrogate = np.array([a for a, _ in kept]), torch.stack([s for _, s in kept]).numpy()
    return Figure2(x.numpy(), y.numpy(), alphas.numpy(), true.numpy(), tuple(sorted(rounds)), alpha, surrogate)


def _refine_near(loss: SurrogateLoss, model: Tensor, x: Tensor, y: Tensor, steps: int) -> None:
    """Refine on half of the rows at a time, scored by models near the current one."""
    rows = torch.stack([torch.randperm(len(x))[: len(x) // 2] for _ in range(8 * steps)])
    near = model.detach() * (1 + 0.1 * torch.randn(8 * steps, 1))
    loss.refine(near * x[rows] - 1, y[rows], steps=steps)


@torch.no_grad()
def _landscape(loss: SurrogateLoss, alphas: Tensor, x: Tensor, y: Tensor) -> Tensor:
    losses: Tensor = loss.surrogate(alphas[:, None] * x - 1, y.expand(len(alphas), -1))
    return losses


FIGURE3 = ("sl-s", "sl-r")
"""The two starts of a surrogate whose convergence the paper compares."""


@dataclass(frozen=True)
class Figure3:
    """Convergence of SL-S and SL-R, by method: surrogate loss and gap of every round, true test loss at every check.

    `steps` are the model steps at the end of each round, `checks` those of the test losses, the start included.
    """

    dataset: str
    metric: str
    steps: Array
    surrogate: dict[str, Array]
    gap: dict[str, Array]
    checks: Array
    test: dict[str, Array]


def figure3(
    dataset: str = "digits8", metric: str = "f1", recipe: Recipe | str = "default", *, model: Any = "mlp", seed: int = 0
) -> Figure3:
    """Train one model with a surrogate from scratch and one with a refined universal one, and record both.

    The paper shows this for several losses on ijcnn1; the default is a dataset that needs no file. Warm-up, anchor and
    refining before the first round are off, as in the paper: they would hide the convergence from the start. Test rows
    are scored during training for the figure only, at the best threshold of the validation rows, or at zero if the
    recipe's form is `zero`: nothing is chosen by them.
    """
    recipe, chosen = get_recipe(recipe, warmup=0, anchor=0.0, trust=-1.0), get_metric(metric)
    if not recipe.rounds:
        raise ValueError("recipe: expected at least one round to show, got none")
    parts = prepared(dataset, seed, recipe.standardise)
    with torch.random.fork_rng(devices=[]):
        courses = {method: _course(method, chosen, recipe, parts, model, seed) for method in FIGURE3}
    steps, checks = next((course.steps, course.checks) for course in courses.values())
    return Figure3(
        dataset,
        chosen.name,
        steps,
        {method: course.surrogate for method, course in courses.items()},
        {method: course.gap for method, course in courses.items()},
        checks,
        {method: course.test for method, course in courses.items()},
    )


class _Course(NamedTuple):
    """One method: model steps, surrogate loss and gap of every round, steps and test loss of every check."""

    steps: Array
    surrogate: Array
    gap: Array
    checks: Array
    test: Array


def _course(method: str, metric: Metric, recipe: Recipe, parts: Parts, spec: Any, seed: int) -> _Course:
    model = build_model(spec, parts.train.x.shape[1], seed)
    model.prepare(parts.train.x, parts.train.w, parts.train.y)
    torch.manual_seed(seed)
    loss = make_loss(method, metric, recipe)
    rounds, checks = [], [(0, _test_loss(model, metric, recipe, parts))]
    torch.manual_seed(seed)
    for done in train(
        model, loss, parts.train, recipe, selection=Selection(parts.validation, metric, recipe), seed=seed
    ):
        if done.phase != "refining":
            rounds.append((done.steps, done.loss, done.gap))
        if done.validation == done.validation:
            checks.append((done.steps, _test_loss(model, metric, recipe, parts)))
    return _Course(*map(np.array, (*zip(*rounds, strict=True), *zip(*checks, strict=True))))


@torch.no_grad()
def _test_loss(model: nn.Module, metric: Metric, recipe: Recipe, parts: Parts) -> float:
    """Return the true loss of the test rows, at zero or at the best threshold of the validation rows."""
    model.eval()
    validation, test = (
        torch.cat([model(rows.x[some]) for some in chunks(len(rows.x))]) for rows in (parts.validation, parts.test)
    )
    if recipe.form == "zero":
        return float(metric(test, parts.test.y))
    return get_protocol("honest").score(metric, validation, parts.validation.y, test, parts.test.y)


def save_arrays(figure: Figure1 | Figure2 | Figure3, path: str | Path) -> None:
    """Save the arrays of a figure as a NumPy archive, `.npz`, which loads without pickle.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "figure1.npz"
    >>> save_arrays(figure1(points=5), path)
    >>> sorted(np.load(path))[:2]
    ['losses.auc', 'losses.average_precision']
    """
    arrays: dict[str, Array] = {}
    for field in fields(figure):
        value = getattr(figure, field.name)
        if isinstance(value, Mapping):
            arrays |= {f"{field.name}.{name}": np.asarray(part) for name, part in value.items()}
        else:
            arrays[field.name] = np.asarray(value)
    np.savez(path, **arrays)  # type: ignore[arg-type]


# ---- drawn: whole or, for pages, panel by panel --------------------------------------------------------------------


def plot_figure1(arrays: Figure1) -> Picture:
    """Plot the paper's Figure 1: surfaces of the losses over two perturbed predictions."""
    figure = Picture(figsize=(3.2 * len(arrays.losses), 3.4), layout="constrained")
    negative, positive = np.meshgrid(arrays.shifts, arrays.shifts, indexing="ij")
    for i, (name, surface) in enumerate(arrays.losses.items(), 1):
        with mpl.rc_context({"grid.color": LINE}):  # axes of three dimensions take it when they are made
            axes: Any = figure.add_subplot(1, len(arrays.losses), i, projection="3d")
        axes.plot_surface(
            negative, positive, surface, cmap="viridis", rstride=1, cstride=1, lw=0, antialiased=False, rasterized=True
        )
        axes.set_title(f"{get_metric(name).label} loss", fontsize=10, fontweight="bold", color=INK)
        axes.set(xlabel="negative", ylabel="positive")
        for axis in (axes.xaxis, axes.yaxis, axes.zaxis):
            axis.label.set(color=SOFT, fontsize=9)
            axis.set_pane_color((0, 0, 0, 0))
            axis.line.set_color(LINE)
        axes.tick_params(labelsize=8, colors=SOFT)
    return figure


def figure1_panels(arrays: Figure1) -> Iterator[tuple[str, Picture]]:
    """Yield every surface of Figure 1 with its metric."""
    for name, surface in arrays.losses.items():
        yield name, plot_figure1(replace(arrays, losses={name: surface}))


def plot_figure2(arrays: Figure2) -> Picture:
    """Plot the paper's Figure 2 as a strip: the data, then true and surrogate loss over alpha, round by round."""
    figure = Picture(figsize=(3.1 * (1 + len(arrays.rounds)), 2.9), layout="constrained")
    data, *panels = figure.subplots(1, 1 + len(arrays.rounds))
    draw_data(data, arrays)
    for i, axes in enumerate(panels):
        _draw_round(axes, arrays, i)
    panels[0].set_ylabel("error rate")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def figure2_panels(arrays: Figure2) -> Iterator[Picture]:
    """Yield the data of Figure 2, then every round."""
    for i in range(-1, len(arrays.rounds)):
        figure = Picture(figsize=(4, 2.9), layout="constrained")
        axes = figure.subplots()
        if i < 0:
            draw_data(axes, arrays)
        else:
            _draw_round(axes, arrays, i)
            axes.legend(frameon=False, fontsize=9, labelcolor=SOFT, loc="upper right")
        yield figure


def draw_data(axes: Any, arrays: Figure2, title: str = "Data and learned cut") -> Any:
    """Draw the rows of Figure 2, jittered, and the cut at the last 1 / alpha; return the cut."""
    plain(axes, title, "x")
    height = np.random.default_rng(0).uniform(-0.35, 0.35, len(arrays.x))
    for label, colour in ((0, NEGATIVE), (1, POSITIVE)):
        own = arrays.y == label
        axes.scatter(arrays.x[own], label + height[own], s=9, color=colour, alpha=0.6, lw=0)
    cut = axes.axvline(1 / arrays.alpha[-1], color=INK, ls="--", lw=1)
    axes.set(yticks=[0, 1], yticklabels=["y = 0", "y = 1"])
    return cut


def _draw_round(axes: Any, arrays: Figure2, i: int) -> None:
    """Draw true and surrogate loss over alpha after one round, and where alpha is."""
    plain(axes, f"round {arrays.rounds[i]}: alpha = {arrays.alpha[i]:.2f}", "alpha")
    axes.plot(arrays.alphas, arrays.true, color=TRUE, lw=1.4, label="true")
    axes.plot(arrays.alphas, arrays.surrogate[i], color=LEARNED, lw=1.4, label="surrogate")
    axes.axvline(arrays.alpha[i], color=INK, ls="--", lw=1)
    axes.set(ylim=(-0.02, 0.62))


def plot_figure3(arrays: Figure3) -> Picture:
    """Plot the paper's Figure 3: surrogate loss, gap and true test loss against model steps, SL-S beside SL-R."""
    metric = get_metric(arrays.metric)
    panels = (
        ("surrogate loss, training sets", arrays.steps, arrays.surrogate),
        ("gap to the true loss, training sets", arrays.steps, arrays.gap),
        ("true loss, test rows", arrays.checks, arrays.test),
    )
    figure = Picture(figsize=(12, 3.3), layout="constrained")
    figure.suptitle(f"{metric.label} loss on {arrays.dataset}", fontsize=10)
    for axes, (title, steps, curves) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        plain(axes, title, "model steps")
        for (method, values), colour in zip(curves.items(), (TRUE, LEARNED), strict=True):
            axes.plot(steps, values, color=colour, label=method.upper(), lw=1.2)
        axes.set(ylim=(0, None))
    figure.axes[0].legend(frameon=False)
    return figure
