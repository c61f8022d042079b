"""Search on the true metric itself, of models with few weights."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from metricgrad.strategies.strategy import Setting, Strategy
from metricgrad.surrogate.network import Progress
from metricgrad.training.direct import MAX_SEARCHED, DirectSearch
from metricgrad.training.solver import linear_form


class Direct(Strategy):
    """Move the weights of a linear or additive model by CMA-ES on the true loss of all training rows."""

    name, learned = "direct", True

    def suits(self, setting: Setting) -> bool:
        """Return whether the model is linear in few enough columns, with one score a row, and calls are cheap."""
        metric, form = setting.metric, linear_form(setting.network)
        few = form is not None and form.head.in_features <= MAX_SEARCHED
        return setting.solved and few and not metric.task.outputs and not metric.costly

    def from_best(self, setting: Setting) -> bool:
        """Return whether the warm-up ends far away: where costs differ by side, and by a metric of uplift."""
        return setting.metric.task.numbers or setting.metric.known_later

    def losses(self, setting: Setting, progress: Progress | None = None) -> Sequence[nn.Module]:
        """Return the true metric."""
        return [DirectSearch(setting.metric, setting.recipe.form)]
