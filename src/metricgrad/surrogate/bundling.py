"""Fitting and saving the surrogates that come with the package, each with a record of how it was made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import torch

from metricgrad._version import __version__
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.registry import named_metric
from metricgrad.surrogate.config import CONFIGS, config_for
from metricgrad.surrogate.fidelity import measure_fidelity
from metricgrad.surrogate.network import Progress, Surrogate, new_surrogate
from metricgrad.surrogate.pretrained import WEIGHTS_FOLDER, file_name, open_surrogate, read_record, save_surrogate
from metricgrad.surrogate.pretraining import THOROUGH, Fitting, draw_corpus, fit_to_corpus, sample_losses
from metricgrad.surrogate.synthetic import GROUP_SIZE, sets_for

THOROUGH_ATTENTION = Fitting(groups=6_000, steps=8_000, batch=16, learning_rate=5e-3)
"""With attention: its few weights are shared by all thresholds."""
THOROUGH_OUTPUTS = Fitting(groups=1_600, steps=6_000, batch=16, sizes=(100, 200, 400, 800))
"""For several outputs, each of which is a set of its own."""
THOROUGH_SAMPLES = Fitting(groups=480, steps=4_000, batch=4, sizes=(50, 100, 150))
"""For labels row by row, each row of which is a set of its own."""
THOROUGH_RANKING = Fitting(groups=4_000, steps=5_000, batch=32, sizes=(8, 16, 32, 64, 128))


def thorough_for(metric: Metric, attention: bool = False) -> Fitting:
    """Return how the surrogate of a metric is fitted before it is bundled."""
    if attention:
        return THOROUGH_ATTENTION
    if metric.view == "samples":
        return THOROUGH_SAMPLES
    if metric.task.outputs:
        return THOROUGH_OUTPUTS
    return THOROUGH_RANKING if metric.task.name == "ranking" else THOROUGH


def fit_bundled(
    names: list[str],
    folder: Path = WEIGHTS_FOLDER,
    fitting: Fitting | None = None,
    progress: Progress | None = None,
    attention: bool = False,
    **changes: Any,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fit and save surrogates of built-in metrics, yielding each record; those of one config share random sets.

    They are fitted as given, or as suits their task, with some fields of `Fitting` changed; with attention if asked.
    """
    metrics = [named_metric(name) for name in names]
    for metric in metrics:
        sample_losses(metric)  # refuses a constant metric before any work
    configs = {metric.name: CONFIGS["attention"] if attention else config_for(metric) for metric in metrics}
    for config in dict.fromkeys(configs.values()):
        group = [metric for metric in metrics if configs[metric.name] == config]
        how = replace(fitting or thorough_for(group[0], attention), **changes)
        corpus = draw_corpus(group, new_surrogate(config, how.seed), sets_for(group[0]), how, progress)
        for number, metric in enumerate(group):
            surrogate = new_surrogate(config, how.seed)
            fit_to_corpus(surrogate, corpus.pooled, corpus.of(number), how, metric, progress)
            yield metric.name, _save_with_record(metric, surrogate, folder, how)


def _save_with_record(metric: Metric, surrogate: Surrogate, folder: Path, fitting: Fitting) -> dict[str, Any]:
    path = folder / file_name(metric.name)
    save_surrogate(surrogate, path)
    groups = 100 if metric.view == "samples" else 500
    unseen = sets_for(metric)(groups, GROUP_SIZE, 400, torch.Generator().manual_seed(fitting.seed + 1_000_000))
    options = _changed_options(metric, fitting, surrogate.config.attention)
    record = {
        "metric": metric.name,
        "fitting": asdict(fitting),
        "held_out_sets_of_400": measure_fidelity(open_surrogate(path), metric, unseen),
        "command": f"metricgrad universal fit '{metric.name}' --seed {fitting.seed}{options}",
        "version": __version__,
        "date": datetime.now(timezone.utc).date().isoformat(),
    }
    save_surrogate(surrogate, path, record)
    return read_record(path)


def _changed_options(metric: Metric, fitting: Fitting, attention: bool) -> str:
    """Return the settings that differ from the defaults as options of the command."""
    usual = thorough_for(metric, attention)
    options = {"groups": (fitting.groups, usual.groups), "steps": (fitting.steps, usual.steps)}
    changed = [f" --{name} {value}" for name, (value, default) in options.items() if value != default]
    return "".join([" --attention"] * attention + changed)
