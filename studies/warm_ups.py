"""Warm-ups that fits of the same rows for several metrics share: they follow the usual loss, which is that of any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any
from unittest.mock import patch

import torch

from metricgrad.estimators.fold_training import FoldTraining
from metricgrad.metrics.registry import Metric
from metricgrad.training.jobs import Start
from metricgrad.training.selection import Selection
from metricgrad.training.trainer import TrainingRun

WarmUps = dict[bytes, tuple[Start, list[Any]]]
"""Starts by the rows that a fold holds out; of one table and one model."""


@contextmanager
def shared_warm_ups(metrics: Sequence[Metric], known: WarmUps | None = None) -> Iterator[None]:
    """Let fits of one table by one model share the warm-up of each fold, which is watched for all metrics at once."""
    found = {} if known is None else known

    def warm_up(fold: FoldTraining, strategy: Any, how: Any) -> None:
        key = fold.kept.y.numpy().tobytes() + fold.kept.x.numpy().tobytes()
        if key not in found:
            torch.manual_seed(how.seed)
            selections = [Selection(fold.kept, metric, how.recipe) for metric in metrics]
            run = TrainingRun(deepcopy(fold.network), fold.rows, how.recipe, selections, how.seed)
            history = list(run.warm_up())
            found[key] = Start.of(run)._replace(seconds=0.0), history
        fold.start, fold.warm_up = found[key]

    with patch.object(FoldTraining, "_warm_up", warm_up):
        yield
