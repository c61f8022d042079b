"""The plug-in rule: the model of the usual loss, decided by its probability and the columns of the metric."""

from __future__ import annotations

from metricgrad.strategies.strategy import Setting, Strategy


class PlugIn(Strategy):
    """Train nothing: of the model of the usual loss, find the decision score that is best by the metric.

    Such as probability times amount, least expected cost, or an offset by group (`training/plug_in.py`).
    """

    name, by_trees, nothing = "plug-in", True, True

    def suits(self, setting: Setting) -> bool:
        """Return whether the metric must know something else of the rows than their class, which is known in time."""
        metric = setting.metric
        return bool(metric.columns) and metric.task.name == "columns" and not (metric.costly or metric.known_later)
