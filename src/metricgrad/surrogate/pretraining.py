"""Universal surrogates: a metric learned from random sets, once, whatever the data will be (Eq. 3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.stats import rankdata, spearmanr
from torch import Tensor

from metricgrad.metrics.registry import Metric
from metricgrad.surrogate.network import Surrogate, SurrogateConfig, meta_loss, renamed_keyword
from metricgrad.surrogate.synthetic import RandomSets, Sets
from metricgrad.surrogate.task_sets import sets_for
from metricgrad.surrogate.views import LEVELS, OF_TASK

KIN = 8
Progress = Callable[[str, int, int], None]
"""Called as `progress(what, done, total)`."""


@dataclass(frozen=True)
class Fitting:
    """How a universal surrogate is fitted: `families` times 8 sets are judged once by the metric, then learned."""

    families: int = 32_000
    steps: int = 20_000
    batch: int = 64
    learning_rate: float = 2e-3
    relational: float = 0.3
    sizes: tuple[int, ...] = (50, 100, 200, 400, 400, 800, 2000)
    seed: int = 0


THOROUGH = Fitting()
ON_DEMAND = Fitting(families=1_000, steps=3_000)
"""For black boxes: 8,000 calls of the metric."""
OF_OUTPUTS = Fitting(steps=1_500, sizes=(100, 200, 400))
"""For several outputs, of which no corpus is kept: sixteen fresh sets a step."""
OF_NUMBERS = Fitting(steps=3_000, sizes=(50, 100, 200, 400))
OF_QUERIES = Fitting(families=4_000, steps=4_000, sizes=(8, 16, 32, 64, 128))
PAPER_FITTING = Fitting(steps=3_000, learning_rate=1e-3, relational=0.0, sizes=(100,))
"""For the paper's config, whose g is learned too: sixteen fresh sets of 100 a step."""


class Corpus(NamedTuple):
    """Random sets, pooled, and their true losses: `(families, 8, q)` and `(families, 8, metrics)`."""

    pooled: Tensor
    true: Tensor


def config_for(metric: Metric) -> SurrogateConfig:
    """Return how a surrogate of this metric is built: one that looks at zero must not lose it by centring.

    For numbers there is no ROC curve to look at, so that g is learned.
    """
    view, link = metric.view or OF_TASK[metric.task.name], "sigmoid" if metric.bounded else "linear"
    if metric.task.name == "regression":
        return SurrogateConfig("none", (64, 64), 0, (64,), link=link, view=view)
    parts = {"columns": 1 + len(metric.columns), "ranking": LEVELS}.get(metric.task.name, 1)
    teeth = 32 if metric.task.outputs else 64  # a set for every output is as much as it has to see
    standardise = "scale" if metric.thresholded else "top" if metric.top_rows else "shift"
    return SurrogateConfig(standardise, teeth=teeth, link=link, view=view, parts=parts)


def fit_universal(
    metric: Metric,
    sets: RandomSets | None = None,
    config: SurrogateConfig | str | None = None,
    fitting: Fitting = THOROUGH,
    progress: Progress | None = None,
    *,
    construction: SurrogateConfig | str | None = None,
) -> Surrogate:
    """Fit a surrogate to a metric on random sets (Eq. 3).

    Parameters
    ----------
    metric : Metric
        What to imitate, in the form to train on (`get_metric("best_f1")`).
    sets : callable, optional
        Where random sets come from; broad ones of the metric's task by default.
    config : SurrogateConfig or {"default", "paper"}, optional
        How the surrogate is built; by default as suits the metric.
    fitting : Fitting
        How many sets and steps.
    progress : callable, optional
        Called as `progress(what, done, total)`.

    Returns
    -------
    Surrogate
    """
    sets = sets_for(metric) if sets is None else sets
    config = renamed_keyword(construction, config)
    if config is None:
        config = config_for(metric)
    surrogate = new_surrogate(config, fitting.seed)
    if surrogate.fixed_pool and surrogate.view.parts != "alike":
        corpus = draw_corpus([metric], surrogate, sets, fitting, progress)
        fit_to_corpus(surrogate, corpus.pooled, corpus.true[..., 0], fitting, metric, progress)
    else:
        _fit_to_fresh_sets(surrogate, metric, sets, fitting, progress)
    return surrogate.eval()


def new_surrogate(config: SurrogateConfig | str, seed: int) -> Surrogate:
    """Return an unfitted surrogate whose weights depend on the seed alone, leaving the global generator as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Surrogate(config)


def draw_corpus(
    metrics: list[Metric],
    surrogate: Surrogate,
    sets: RandomSets,
    fitting: Fitting,
    progress: Progress | None = None,
) -> Corpus:
    """Draw random sets once, pool each and have every metric judge it."""
    pooled, true = [], []
    for done, drawn in _families(sets, fitting, per_draw=16):
        with torch.no_grad():
            pooled.append(surrogate.pool(*drawn).unflatten(0, (-1, KIN)))
        true.append(torch.stack([metric(*drawn) for metric in metrics], -1).view(-1, KIN, len(metrics)))
        if progress:
            progress("judging random sets", done, fitting.families)
    return Corpus(torch.cat(pooled), torch.cat(true))


def _families(sets: RandomSets, fitting: Fitting, per_draw: int) -> Iterator[tuple[int, Sets]]:
    generator = torch.Generator().manual_seed(fitting.seed)
    for turn, done in enumerate(range(0, fitting.families, per_draw)):
        count = min(per_draw, fitting.families - done)
        yield done + count, sets(count, KIN, fitting.sizes[turn % len(fitting.sizes)], generator)


def fit_to_corpus(
    surrogate: Surrogate,
    pooled: Tensor,
    true: Tensor,
    fitting: Fitting,
    metric: Metric,
    progress: Progress | None = None,
) -> None:
    """Fit h to pooled sets, `(families, 8, q)`, and their true losses, `(families, 8)`."""
    low, high = _range(metric, true)
    true = (true - low) / (high - low)
    generator = torch.Generator().manual_seed(fitting.seed)
    for _ in _schedule(surrogate, fitting, progress):
        rows = torch.randint(len(true), (fitting.batch,), generator=generator)
        meta_loss(surrogate.judge(pooled[rows]), true[rows], fitting.relational).backward()
    surrogate.low.fill_(low)
    surrogate.high.fill_(high)


def _range(metric: Metric, true: Tensor) -> tuple[float, float]:
    """Return the lowest and the highest loss a surrogate has to give, or say why there is nothing to learn."""
    check_losses(metric, true)
    low, high = float(true.min()), float(true.max())
    if high - low < 1e-6:
        raise ValueError(f"metric: {metric.name!r} is constant ({low:g} on every random set); nothing to learn")
    return (0.0, 1.0) if metric.bounded else (low, high)


def check_losses(metric: Metric, losses: Tensor) -> None:
    """Raise an error if a metric gave what is not a loss: no finite number, or one outside the bounds it claims."""
    right = (losses >= -1e-6) & (losses <= 1 + 1e-6) if metric.bounded else losses.isfinite()
    if not bool(right.all()):
        expected = "a loss from 0 to 1" if metric.bounded else "a finite loss"
        raise ValueError(f"metric: expected {expected} from {metric.name!r}, got {losses[~right][0].item()}")


def fitting_for(metric: Metric) -> Fitting:
    """Return how a surrogate is fitted where it is first needed."""
    if metric.task.outputs:
        return OF_OUTPUTS
    return {"ranking": OF_QUERIES, "regression": OF_NUMBERS}.get(metric.task.name, ON_DEMAND)


def _fit_to_fresh_sets(
    surrogate: Surrogate, metric: Metric, sets: RandomSets, fitting: Fitting, progress: Progress | None
) -> None:
    low, high = _range(metric, metric(*sets(2, KIN, fitting.sizes[0], torch.Generator().manual_seed(fitting.seed))))
    surrogate.low.fill_(low)
    surrogate.high.fill_(high)
    generator = torch.Generator().manual_seed(fitting.seed)
    for step in _schedule(surrogate, fitting, progress):
        drawn = sets(2, KIN, fitting.sizes[step % len(fitting.sizes)], generator)
        true = metric(*drawn).view(-1, KIN)
        smooth = surrogate(*drawn).view(-1, KIN)
        meta_loss(smooth / (high - low), true / (high - low), fitting.relational).backward()


def _schedule(surrogate: Surrogate, fitting: Fitting, progress: Progress | None) -> Iterator[int]:
    """Step Adam after every turn of the caller's loop, with a short warm-up and a cosine to zero."""
    optimizer = torch.optim.Adam(surrogate.parameters(), fitting.learning_rate)
    for step in range(fitting.steps):
        pace = min(1, (step + 1) / 300) * (1 + math.cos(math.pi * step / fitting.steps)) / 2
        optimizer.param_groups[0]["lr"] = fitting.learning_rate * pace
        optimizer.zero_grad()
        yield step
        optimizer.step()
        if progress and (step % 50 == 49 or step + 1 == fitting.steps):
            progress("fitting the surrogate", step + 1, fitting.steps)


@torch.no_grad()
def fidelity(surrogate: Surrogate, metric: Metric, sets: Sets) -> dict[str, float]:
    """Return mean gap, Spearman correlation (NaN where all sets are alike) and the spread of the true losses.

    Where many sets lose exactly the same, no surrogate without ties correlates fully: `ceiling` is the highest Spearman
    correlation that one can have.
    """
    parts = zip(*(column.split(256) for column in sets), strict=True)  # thousands of sets at once would fill the memory
    true, smooth = metric(*sets).cpu().numpy(), torch.cat([surrogate(*part) for part in parts]).cpu().numpy()
    alike = len(true) < 2 or not (np.ptp(true) and np.ptp(smooth))
    return {
        "gap": float(np.abs(true - smooth).mean()) if len(true) else math.nan,
        "spearman": math.nan if alike else float(spearmanr(true, smooth).statistic),
        "spread": float(true.std()) if len(true) else math.nan,
        "ceiling": math.nan if alike else float(rankdata(true).std() / np.arange(len(true)).std()),
    }
