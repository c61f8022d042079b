"""Universal surrogates: a metric learned from random sets, once, independent of the data to come (Eq. 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from metricgrad.metrics.metric import Metric
from metricgrad.surrogate.adam import Adam
from metricgrad.surrogate.config import SurrogateConfig, config_for, renamed_keyword
from metricgrad.surrogate.network import Progress, Surrogate, meta_loss, new_surrogate
from metricgrad.surrogate.relatives import nearest_relative, start_at
from metricgrad.surrogate.synthetic import GROUP_SIZE, RandomSets, Sets, sets_for


class ConstantMetric(ValueError):
    """A metric is the same on all sets, so that nothing can be learned of it."""


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
ON_DEMAND = Fitting(groups=400, steps=1_000, learning_rate=1e-3)
"""For any other metric of two classes: from the weights of its nearest relative."""
ON_DEMAND_ATTENTION = Fitting(groups=400, steps=1_000, batch=16, learning_rate=2e-3)
ON_DEMAND_OUTPUTS = Fitting(groups=200, steps=1_000, batch=16, learning_rate=1e-3, sizes=(100, 200, 400))
ON_DEMAND_REGRESSION = Fitting(steps=3_000, sizes=(50, 100, 200, 400))
ON_DEMAND_RANKING = Fitting(groups=400, steps=1_000, batch=32, learning_rate=1e-3, sizes=(8, 16, 32, 64, 128))
HELD_OUT, LOOK_EVERY, PATIENCE = 5, 25, 8
"""One of so many groups is held out; steps between looks at them, and looks without improvement before stopping."""
CALLS_SHARE = 0.4
"""Share of the calls of a black box that its surrogate is fitted to before training."""
PAPER_FITTING = Fitting(steps=3_000, learning_rate=1e-3, relational=0.0, sizes=(100,))
"""For the paper's config, whose g is learned too: sixteen new sets of 100 rows per step."""


class Corpus(NamedTuple):
    """Random sets, pooled, and their true losses: `(groups, 8, q)` and `(groups, 8, metrics)`.

    Unordered sets of a view stay separate, `(groups, 8, m, q)`, so that there is a part for every m.
    """

    pooled: list[Tensor]
    true: list[Tensor]

    def of(self, metric: int) -> list[Tensor]:
        """Return the losses of one metric, part by part: `(groups, 8)`."""
        return [part[..., metric] for part in self.true]


def fit_universal(
    metric: Metric,
    sets: RandomSets | None = None,
    config: SurrogateConfig | str | None = None,
    fitting: Fitting = THOROUGH,
    progress: Progress | None = None,
    *,
    from_relatives: bool = False,
    known: tuple[Iterable[Sets], Tensor] | None = None,
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
    from_relatives : bool
        Whether to start from the bundled surrogate that correlates best with the metric, instead of random weights;
        the fitting is then shorter.
    known : tuple, optional
        Sets whose losses are known already, group by group, and these losses: it is fitted to them and no others.
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
    if surrogate.fixed_pool:
        corpus = (
            _known_corpus(surrogate, *known) if known else draw_corpus([metric], surrogate, sets, fitting, progress)
        )
        relative = nearest_relative(surrogate.config, corpus.pooled, corpus.of(0)) if from_relatives else None
        if relative is None:
            fit_to_corpus(surrogate, corpus.pooled, corpus.of(0), fitting, metric, progress)
        else:
            start_at(surrogate, relative)
            adapt_to_corpus(surrogate, corpus.pooled, corpus.of(0), fitting, metric, progress)
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
    pooled: dict[tuple[int, ...], list[Tensor]] = {}
    true: dict[tuple[int, ...], list[Tensor]] = {}
    for done, drawn in _drawn_groups(sets, fitting, per_draw=16):
        with torch.no_grad():
            part = surrogate.pool(*drawn).unflatten(0, (-1, GROUP_SIZE))
        losses = torch.stack([metric(*drawn) for metric in metrics], -1).view(-1, GROUP_SIZE, len(metrics))
        pooled.setdefault(part.shape[2:], []).append(part)
        true.setdefault(part.shape[2:], []).append(losses)
        if progress:
            progress("computing losses of random sets", done, fitting.groups)
    return Corpus([torch.cat(parts) for parts in pooled.values()], [torch.cat(parts) for parts in true.values()])


@torch.no_grad()
def _known_corpus(surrogate: Surrogate, sets: Iterable[Sets], losses: Tensor) -> Corpus:
    pooled = torch.stack([surrogate.pool(*group) for group in sets])
    return Corpus([pooled], [losses.view(-1, GROUP_SIZE, 1).to(pooled.dtype)])


def _drawn_groups(sets: RandomSets, fitting: Fitting, per_draw: int) -> Iterator[tuple[int, Sets]]:
    generator = torch.Generator().manual_seed(fitting.seed)
    for turn, done in enumerate(range(0, fitting.groups, per_draw)):
        count = min(per_draw, fitting.groups - done)
        yield done + count, sets(count, GROUP_SIZE, fitting.sizes[turn % len(fitting.sizes)], generator)


def fit_to_corpus(
    surrogate: Surrogate,
    pooled: list[Tensor],
    true: list[Tensor],
    fitting: Fitting,
    metric: Metric,
    progress: Progress | None = None,
) -> None:
    """Fit h to parts of pooled sets, `(groups, 8, q)` each, and their true losses, `(groups, 8)`."""
    (low, high), true = _scaled(metric, true)
    sizes = torch.tensor([float(len(part)) for part in true])
    generator = torch.Generator().manual_seed(fitting.seed)
    for _ in _schedule(surrogate, fitting, progress):
        chosen = int(sizes.multinomial(1, generator=generator)) if len(true) > 1 else 0
        rows = torch.randint(len(true[chosen]), (fitting.batch,), generator=generator)
        judged = surrogate.judge(pooled[chosen][rows])
        meta_loss(judged, true[chosen][rows], fitting.relational).backward()
    surrogate.low.fill_(low)
    surrogate.high.fill_(high)


def adapt_to_corpus(
    surrogate: Surrogate,
    pooled: list[Tensor],
    true: list[Tensor],
    fitting: Fitting,
    metric: Metric,
    progress: Progress | None = None,
) -> None:
    """Fit a surrogate that starts at a relative; a fifth of the groups is held out and chooses when to stop."""
    (low, high), true = _scaled(metric, true)
    held = [max(len(part) // HELD_OUT, 1) if len(part) > 1 else 0 for part in true]
    kept = [(p[n:], t[n:]) for p, t, n in zip(pooled, true, held, strict=True)]
    unseen = [(p[:n], t[:n]) for p, t, n in zip(pooled, true, held, strict=True) if n]
    calibrated, wanted = max(kept, key=lambda part: len(part[1]))
    surrogate.calibrate(calibrated.flatten(0, 1), wanted.flatten())
    sizes = torch.tensor([float(len(part)) for _, part in kept])
    generator = torch.Generator().manual_seed(fitting.seed)
    least, best, since = _distance(surrogate, unseen, fitting), deepcopy(surrogate.state_dict()), 0
    for step in _schedule(surrogate, fitting, progress):
        sets, losses = kept[int(sizes.multinomial(1, generator=generator)) if len(kept) > 1 else 0]
        rows = torch.randint(len(losses), (min(fitting.batch, len(losses)),), generator=generator)
        meta_loss(surrogate.judge(sets[rows]), losses[rows], fitting.relational).backward()
        if step % LOOK_EVERY == LOOK_EVERY - 1:
            distance, since = _distance(surrogate, unseen, fitting), since + 1
            if distance < least:
                least, best, since = distance, deepcopy(surrogate.state_dict()), 0
            if since == PATIENCE:
                break
    surrogate.load_state_dict(best)
    surrogate.low.fill_(low)
    surrogate.high.fill_(high)


@torch.no_grad()
def _distance(surrogate: Surrogate, parts: list[tuple[Tensor, Tensor]], fitting: Fitting) -> float:
    """Return the mean distance over parts of a corpus."""
    distances = [meta_loss(surrogate.judge(sets), true, fitting.relational) for sets, true in parts]
    return float(torch.stack(distances).mean()) if distances else math.inf


def _scaled(metric: Metric, true: list[Tensor]) -> tuple[tuple[float, float], list[Tensor]]:
    """Return the range of a surrogate's output, and parts of true losses in units of it."""
    low, high = _range(metric, torch.cat(true))
    return (low, high), [(part - low) / (high - low) for part in true]


def _range(metric: Metric, true: Tensor) -> tuple[float, float]:
    """Return the lowest and the highest output of a surrogate, or raise an error if the metric is constant."""
    metric.check_losses(true)
    low, high = float(true.min()), float(true.max())
    if high - low < 1e-6:
        raise ConstantMetric(f"metric: {metric.name!r} is constant ({low:g} on every random set); nothing to learn")
    return (0.0, 1.0) if metric.bounded else (low, high)


def fitting_for(metric: Metric, calls_per_set: float = 0, attention: bool = False) -> Fitting:
    """Return how the surrogate of a metric is fitted on demand: to a share of the calls that a run may take."""
    of_numbers = dict.fromkeys(("regression", "censored"), ON_DEMAND_REGRESSION)
    by_task = {"ranking": ON_DEMAND_RANKING, **of_numbers}
    of_two_classes = ON_DEMAND_ATTENTION if attention else ON_DEMAND
    fitting = ON_DEMAND_OUTPUTS if metric.task.outputs else by_task.get(metric.task.name, of_two_classes)
    if not calls_per_set or metric.budget is None:
        return fitting
    sets = CALLS_SHARE * metric.budget.max_calls / calls_per_set
    if metric.task.name == "regression":  # two groups of new sets a step
        return replace(fitting, steps=min(fitting.steps, max(int(sets) // (2 * GROUP_SIZE), 1)))
    return replace(fitting, groups=min(fitting.groups, max(int(sets) // GROUP_SIZE, 2)))


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
    optimizer = Adam(surrogate.parameters(), fitting.learning_rate, fused=False)  # as bundled ones were fitted
    for step in range(fitting.steps):
        pace = min(1, (step + 1) / 300) * (1 + math.cos(math.pi * step / fitting.steps)) / 2
        optimizer.learning_rate = fitting.learning_rate * pace
        surrogate.zero_grad()
        yield step
        optimizer.step([parameter.grad for parameter in optimizer.parameters])
        if progress and (step % 50 == 49 or step + 1 == fitting.steps):
            progress("fitting the surrogate", step + 1, fitting.steps)


def sample_losses(metric: Metric) -> list[float]:
    """Return the losses of a metric on a few random sets of several sizes; raise a ValueError if it is constant."""
    generator, sets = torch.Generator().manual_seed(0), sets_for(metric)
    sizes = (50, 400) if metric.costly else (50, 100, 400, 1000, 2000)
    losses = torch.cat([metric(*sets(1, GROUP_SIZE, size, generator)).double() for size in sizes])
    constant = float(losses.max() - losses.min()) <= 1e-9 * float(losses.abs().max())
    if constant and not metric.costly:  # a few calls decide nothing
        raise ValueError(
            f"metric: {metric.name!r} is constant ({float(losses[0]):g} on every random set); nothing to learn. A "
            "metric that some threshold always satisfies, such as recall, needs a share of rows to call, "
            "'top(0.1): recall', a bound, 'recall subject to precision >= 0.4', or form='zero'"
        )
    values: list[float] = losses.tolist()
    return values
