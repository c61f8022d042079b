"""Where the surrogate of a loss starts: bundled, fitted to random sets and cached, from random weights, or a file."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from metricgrad.metrics.metric import Metric
from metricgrad.surrogate.config import SurrogateConfig, config_for
from metricgrad.surrogate.network import Progress, Surrogate
from metricgrad.surrogate.pretrained import bundled_surrogate, open_surrogate


def starting_surrogate(
    metric: Metric,
    start: str | Path | Surrogate,
    config: SurrogateConfig | str | None,
    progress: Progress | None = None,
    known: Tensor | None = None,
) -> Surrogate:
    """Return the surrogate that a loss of a metric starts from.

    Parameters
    ----------
    metric : Metric
        The metric in the form trained on.
    start, config, progress
        As for `SurrogateLoss`.
    known : Tensor, optional
        What calls of a black box have returned so far, if any.

    Returns
    -------
    Surrogate
        The one given, if `start` is a surrogate; otherwise a new one.
    """
    if isinstance(start, Surrogate):
        return start
    if config == "attention" and metric.thresholded:
        raise ValueError("config: expected 'default' for a metric at threshold zero, got 'attention'")
    if start == "universal":
        bundled = bundled_surrogate(metric, config)
        if bundled is not None:
            return bundled
        from metricgrad.surrogate.cache import universal_for  # fitting needs modules that a bundled metric does not

        return universal_for(metric, config, progress, known)
    if start == "scratch":
        return Surrogate(config_for(metric) if config in (None, "default") else config)
    if not Path(start).is_file():
        raise FileNotFoundError(f"start: expected 'universal', 'scratch' or a surrogate file, got {str(start)!r}")
    return open_surrogate(Path(start))
