"""The usual loss, in which every row weighs what deciding it wrongly costs by a metric with columns."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from metricgrad.losses.default import proxy_for
from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.surrogate.network import Progress
from metricgrad.training.data import Rows
from metricgrad.training.row_gains import error_costs


class CostWeighted(Strategy):
    """Follow weighted cross-entropy: the model is accurate where the money is."""

    name, by_trees = "cost-weighted", True

    def suits(self, setting: Setting) -> bool:
        """Return whether the metric has columns that rows can be decided by, and its calls are cheap."""
        metric = setting.metric
        return bool(metric.columns) and metric.task.name == "columns" and not (metric.costly or metric.known_later)

    def rows(self, setting: Setting) -> Rows | None:
        """Return the rows weighted by the cost of an error, by the metric near the model of the usual loss."""
        if setting.known is None:
            return None
        rows, scores = setting.known.rows, setting.known.usual(setting.known.rows.x)
        costs = error_costs(setting.metric, scores.numpy(), rows.y, rows.w, form=setting.recipe.form)
        if costs is None:
            return None
        weights = torch.from_numpy(costs).float()
        return rows._replace(w=weights if rows.w is None else weights * rows.w)

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the usual loss."""
        return [proxy_for(setting.metric.task)]
