"""Universal surrogates: a metric learned from random sets, once, independent of the data to come (Eq. 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from metricgrad._version import __version__
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.registry import named_metric
from metricgrad.surrogate.fidelity import measure_fidelity
from metricgrad.surrogate.network import (
    Progress,
    Surrogate,
    SurrogateConfig,
    config_for,
    meta_loss,
    new_surrogate,
    renamed_keyword,
)
from metricgrad.surrogate.pretrained import WEIGHTS_FOLDER, file_name, open_surrogate, read_record, save_surrogate
from metricgrad.surrogate.synthetic import GROUP_SIZE, BroadSets, RandomSets, Sets, sets_for


@dataclass(frozen=True)
class Fitting:
    """How a universal surrogate is fitted: to the losses of `groups` times 8 sets, computed once."""

    groups: int = 32_000
    steps: int = 20_000
    batch: int = 64
    learning_rate: float = 2e-3
    relational: float = 0.3
    sizes: tuple[int, ...] = (50, 100, 200, 400, 400, 800, 2000)
    seed: int = 0


THOROUGH = Fitting()
ON_DEMAND = Fitting(groups=1_000, steps=3_000)
"""For black boxes: 8,000 calls of the metric."""
ON_DEMAND_OUTPUTS = Fitting(steps=1_500, sizes=(100, 200, 400))
"""For several outputs, of which no corpus is kept: sixteen new sets per step."""
ON_DEMAND_REGRESSION = Fitting(steps=3_000, sizes=(50, 100, 200, 400))
ON_DEMAND_RANKING = Fitting(groups=4_000, steps=4_000, sizes=(8, 16, 32, 64, 128))
PAPER_FITTING = Fitting(steps=3_000, learning_rate=1e-3, relational=0.0, sizes=(100,))
"""For the paper's config, whose g is learned too: sixteen new sets of 100 rows per step."""


class Corpus(NamedTuple):
    """Random sets, pooled, and their true losses: `(groups, 8, q)` and `(groups, 8, metrics)`."""

    pooled: Tensor
    true: Tensor


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
        The metric to approximate, in the form to train on (`get_metric("best_f1")`).
    sets : callable, optional
        The source of random sets; by default broad ones of the metric's task.
    config : SurrogateConfig or {"default", "paper"}, optional
        How the surrogate is built; by default `config_for(metric)`.
    fitting : Fitting
        How many sets and steps.
    progress : callable, optional
        Called as `progress(what, done, total)`.
    construction : SurrogateConfig or {"default", "paper"}, optional
        Deprecated name of `config`.

    Returns
    -------
    Surrogate
    """
    sets = sets_for(metric) if sets is None else sets
    config = renamed_keyword(construction, config)
    if config is None:
        config = config_for(metric)
    surrogate = new_surrogate(config, fitting.seed)
    if surrogate.fixed_pool and surrogate.view.parts != "unordered":
        corpus = draw_corpus([metric], surrogate, sets, fitting, progress)
        fit_to_corpus(surrogate, corpus.pooled, corpus.true[..., 0], fitting, metric, progress)
    else:
        _fit_to_fresh_sets(surrogate, metric, sets, fitting, progress)
    return surrogate.eval()


def draw_corpus(
    metrics: list[Metric],
    surrogate: Surrogate,
    sets: RandomSets,
    fitting: Fitting,
    progress: Progress | None = None,
) -> Corpus:
    """Draw random sets once, pool each and compute the loss of every metric."""
    pooled, true = [], []
    for done, drawn in _drawn_groups(sets, fitting, per_draw=16):
        with torch.no_grad():
            pooled.append(surrogate.pool(*drawn).unflatten(0, (-1, GROUP_SIZE)))
        true.append(torch.stack([metric(*drawn) for metric in metrics], -1).view(-1, GROUP_SIZE, len(metrics)))
        if progress:
            progress("computing losses of random sets", done, fitting.groups)
    return Corpus(torch.cat(pooled), torch.cat(true))


def _drawn_groups(sets: RandomSets, fitting: Fitting, per_draw: int) -> Iterator[tuple[int, Sets]]:
    generator = torch.Generator().manual_seed(fitting.seed)
    for turn, done in enumerate(range(0, fitting.groups, per_draw)):
        count = min(per_draw, fitting.groups - done)
        yield done + count, sets(count, GROUP_SIZE, fitting.sizes[turn % len(fitting.sizes)], generator)


def fit_to_corpus(
    surrogate: Surrogate,
    pooled: Tensor,
    true: Tensor,
    fitting: Fitting,
    metric: Metric,
    progress: Progress | None = None,
) -> None:
    """Fit h to pooled sets, `(groups, 8, q)`, and their true losses, `(groups, 8)`."""
    low, high = _range(metric, true)
    true = (true - low) / (high - low)
    generator = torch.Generator().manual_seed(fitting.seed)
    for _ in _schedule(surrogate, fitting, progress):
        rows = torch.randint(len(true), (fitting.batch,), generator=generator)
        meta_loss(surrogate.judge(pooled[rows]), true[rows], fitting.relational).backward()
    surrogate.low.fill_(low)
    surrogate.high.fill_(high)


def _range(metric: Metric, true: Tensor) -> tuple[float, float]:
    """Return the lowest and the highest output of a surrogate, or raise an error if the metric is constant."""
    metric.check_losses(true)
    low, high = float(true.min()), float(true.max())
    if high - low < 1e-6:
        raise ValueError(f"metric: {metric.name!r} is constant ({low:g} on every random set); nothing to learn")
    return (0.0, 1.0) if metric.bounded else (low, high)


def fitting_for(metric: Metric) -> Fitting:
    """Return how the surrogate of a metric is fitted on demand."""
    if metric.task.outputs:
        return ON_DEMAND_OUTPUTS
    return {"ranking": ON_DEMAND_RANKING, "regression": ON_DEMAND_REGRESSION}.get(metric.task.name, ON_DEMAND)


def _fit_to_fresh_sets(
    surrogate: Surrogate, metric: Metric, sets: RandomSets, fitting: Fitting, progress: Progress | None
) -> None:
    first = sets(2, GROUP_SIZE, fitting.sizes[0], torch.Generator().manual_seed(fitting.seed))
    low, high = _range(metric, metric(*first))
    surrogate.low.fill_(low)
    surrogate.high.fill_(high)
    generator = torch.Generator().manual_seed(fitting.seed)
    for step in _schedule(surrogate, fitting, progress):
        drawn = sets(2, GROUP_SIZE, fitting.sizes[step % len(fitting.sizes)], generator)
        true = metric(*drawn).view(-1, GROUP_SIZE)
        smooth = surrogate(*drawn).view(-1, GROUP_SIZE)
        meta_loss(smooth / (high - low), true / (high - low), fitting.relational).backward()


def _schedule(surrogate: Surrogate, fitting: Fitting, progress: Progress | None) -> Iterator[int]:
    """Yield steps and follow each by a step of Adam, with a short warm-up and a cosine decay to zero."""
    optimizer = torch.optim.Adam(surrogate.parameters(), fitting.learning_rate)
    for step in range(fitting.steps):
        pace = min(1, (step + 1) / 300) * (1 + math.cos(math.pi * step / fitting.steps)) / 2
        optimizer.param_groups[0]["lr"] = fitting.learning_rate * pace
        optimizer.zero_grad()
        yield step
        optimizer.step()
        if progress and (step % 50 == 49 or step + 1 == fitting.steps):
            progress("fitting the surrogate", step + 1, fitting.steps)


def sample_losses(metric: Metric) -> list[float]:
    """Return the losses of a metric on a few random sets of several sizes; raise a ValueError if it is constant."""
    generator, sets = torch.Generator().manual_seed(0), sets_for(metric)
    sizes = (50, 100, 400, 1000, 2000)
    losses = torch.cat([metric(*sets(1, GROUP_SIZE, size, generator)).double() for size in sizes])
    if float(losses.max() - losses.min()) <= 1e-9 * float(losses.abs().max()):
        raise ValueError(
            f"metric: {metric.name!r} is constant ({float(losses[0]):g} on every random set); nothing to learn. A "
            "metric that some threshold always satisfies, such as recall, has to be trained with form='zero'"
        )
    values: list[float] = losses.tolist()
    return values


# ---- fitting what is bundled ---------------------------------------------------------------------------------------


def fit_bundled(
    names: list[str], folder: Path = WEIGHTS_FOLDER, fitting: Fitting = THOROUGH, progress: Progress | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fit and save surrogates of built-in metrics, yielding each record; those of one config share random sets."""
    metrics = [named_metric(name) for name in names]
    for metric in metrics:
        sample_losses(metric)  # refuses a constant metric before any work
    for config in dict.fromkeys(config_for(metric) for metric in metrics):
        group = [metric for metric in metrics if config_for(metric) == config]
        corpus = draw_corpus(group, new_surrogate(config, fitting.seed), BroadSets(), fitting, progress)
        for metric, true in zip(group, corpus.true.unbind(-1), strict=True):
            surrogate = new_surrogate(config, fitting.seed)
            fit_to_corpus(surrogate, corpus.pooled, true, fitting, metric, progress)
            yield metric.name, _save_with_record(metric, surrogate, folder, fitting)


def _save_with_record(metric: Metric, surrogate: Surrogate, folder: Path, fitting: Fitting) -> dict[str, Any]:
    path = folder / file_name(metric.name)
    save_surrogate(surrogate, path)
    unseen = BroadSets()(500, GROUP_SIZE, 400, torch.Generator().manual_seed(fitting.seed + 1_000_000))
    record = {
        "metric": metric.name,
        "fitting": asdict(fitting),
        "held_out_sets_of_400": measure_fidelity(open_surrogate(path), metric, unseen),
        "command": f"metricgrad universal fit '{metric.name}' --seed {fitting.seed}{_changed_options(fitting)}",
        "version": __version__,
        "date": datetime.now(timezone.utc).date().isoformat(),
    }
    save_surrogate(surrogate, path, record)
    return read_record(path)


def _changed_options(fitting: Fitting) -> str:
    """Return the settings that differ from the defaults as options of the command."""
    options = {"groups": (fitting.groups, THOROUGH.groups), "steps": (fitting.steps, THOROUGH.steps)}
    return "".join(f" --{name} {value}" for name, (value, default) in options.items() if value != default)
