"""A threshold by cross-validation: chosen on rows that no model has seen, as the paper says."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from metricgrad.estimators.metric_estimator import Array, Trained, scores_in_double
from metricgrad.metrics.registry import Metric
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.training.data import Rows, TrainingData
from metricgrad.training.networks import Scorer
from metricgrad.training.splits import folds, split

FOLDS = 5


def cross_validated(
    trained: Callable[[TrainingData, Array, Rows], Trained],
    rescaled: Callable[[Array], TrainingData],
    network: Scorer,
    table: TrainingData,
    metric: Metric,
    seed: int,
    share: float,
) -> float | None:
    """Choose where a network is cut: by standardised scores of five others, each of its own held-out fold.

    Parameters
    ----------
    trained : callable
        `(table, numbers of training rows, validation rows)` -> a model trained as the network was.
    rescaled : callable
        `(numbers of training rows)` -> the table, scaled by them.
    network : Scorer
        What the threshold is for.
    table : TrainingData
        All rows, scaled as the network takes them.
    metric : Metric
        What the threshold is best for.
    seed, share : int, float
        Of the folds, and how much of the others is kept for validation.

    Returns
    -------
    float or None
        None if the user stopped one of them.
    """
    scores, order = [], []
    for training, held_out in folds(table.targets, FOLDS, seed):
        inner = split(table.targets[training], seed, test=0.0, validation=share)
        own = rescaled(training[inner.train])
        other = trained(own, training[inner.train], own.rows(training[inner.validation]))
        if other.interrupted:
            return None
        unseen = scores_in_double(other.network, own.rows(held_out).x)
        scores.append((unseen - unseen.mean()) / unseen.std(correction=0).clamp(min=1e-12))
        order.append(held_out)
    pooled = table.rows(np.concatenate(order))
    cut = best_threshold(metric, torch.cat(scores), pooled.y, pooled.w)
    scored = scores_in_double(network, table.rows(np.arange(len(table.targets))).x)
    return float(scored.mean() + cut * scored.std(correction=0))


def check_folds(targets: Array) -> None:
    """Raise an error if there are too few rows to cross-validate."""
    sizes = np.bincount(targets)
    if sizes.min() < 2 or sizes.sum() < FOLDS:
        raise ValueError(
            f"threshold: expected at least 2 rows of each class and {FOLDS} in all for 'cv', got {sizes.tolist()}"
        )
