"""Surrogates of metrics that are not bundled: fitted when first needed, with progress shown, and kept in a cache."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from contextlib import nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import platformdirs
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as packed_tensors
from torch import Tensor

from metricgrad.files import write_whole
from metricgrad.metrics.metric import Metric
from metricgrad.metrics.tasks import BINARY, COLUMNS
from metricgrad.reporting.progress import work_bar
from metricgrad.surrogate.config import CONFIGS, SurrogateConfig, config_for
from metricgrad.surrogate.emulators import (
    CountEmulator,
    ScoreEmulator,
    called_sets,
    calls_to_fit,
    fit_emulator,
    new_emulator,
)
from metricgrad.surrogate.network import Progress, Surrogate
from metricgrad.surrogate.pretrained import bundled_surrogate, open_surrogate, packed_surrogate, unpacked_surrogate
from metricgrad.surrogate.pretraining import PAPER_FITTING, fit_universal, fitting_for, sample_losses
from metricgrad.surrogate.synthetic import PaperSets, RandomSets, sets_for


def universal_for(
    metric: Metric,
    config: SurrogateConfig | str | None = None,
    progress: Progress | None = None,
    known: Tensor | None = None,
) -> Surrogate:
    """Return the universal surrogate of a metric: bundled, or from the cache, or fitted now and cached.

    A metric that is not built in is identified by its losses on a few random sets. The paper's config is fitted to the
    paper's random sets. A black box of scores that was called already, for an emulator that does not fit, is fitted to
    these known losses.
    """
    bundled = bundled_surrogate(metric, config)
    if bundled is not None:
        return bundled
    sets: RandomSets
    before = metric.calls
    losses = sample_losses(metric) if known is None else known.tolist()
    if config == "paper":
        config, sets, fitting, known = CONFIGS["paper"], PaperSets(), PAPER_FITTING, None
    else:
        config = config_for(metric) if config in (None, "default") else config
        attention = config == "attention" or config == CONFIGS["attention"]
        sets, fitting = sets_for(metric), fitting_for(metric, (metric.calls - before) / len(losses), attention)
    path = _cache() / f"{fingerprint(metric, config, sets, fitting, losses=losses)}.safetensors"
    with suppress(OSError, ValueError):  # absent, unreadable or damaged: then it is fitted
        return open_surrogate(path)
    called = None if known is None else (called_sets(metric), known)
    with work_bar() if progress is None else nullcontext(progress) as report:
        fitted = fit_universal(metric, sets, config, fitting, report, from_relatives=True, known=called)
    content = packed_surrogate(fitted)
    _keep_in_cache(path, content)
    return unpacked_surrogate(content, path.name)  # in half precision, as it will come from the cache


def emulator_for(metric: Metric, progress: Progress | None = None) -> CountEmulator | ScoreEmulator | None:
    """Return the emulator of a black box of two classes, fitted now or before; None for any other metric.

    One that is not accurate, because the metric depends on the order of rows or on other data, still holds the losses
    of the calls that it was fitted to.
    """
    tasks = (BINARY,) if metric.thresholded else (BINARY, COLUMNS)  # labels and columns are no function of counts
    if not metric.costly or metric.counts is not None or metric.task not in tasks:
        return None
    path = _cache() / f"emulator-{fingerprint(metric, calls_to_fit(metric))}.safetensors"
    emulator = new_emulator(metric)
    try:
        emulator.process.load(load_file(path))
    except (OSError, SafetensorError):  # absent or damaged: then it is fitted
        with work_bar() if progress is None else nullcontext(progress) as report:
            emulator = fit_emulator(metric, progress=report)
        _keep_in_cache(path, packed_tensors(emulator.process.state_dict()))
    return emulator


def _cache() -> Path:
    folder = os.environ.get("METRICGRAD_CACHE") or platformdirs.user_cache_dir("metricgrad")
    return Path(folder) / "universal"


def _keep_in_cache(path: Path, content: bytes) -> None:
    """Write a file of the cache; if it cannot be written, warn, because the surrogate is usable all the same."""
    try:
        write_whole(path, content)
    except OSError as error:
        _warn_of_cache(str(path.parent), error.strerror or str(error))


@lru_cache(maxsize=16)  # once for each folder and reason
def _warn_of_cache(folder: str, reason: str) -> None:
    warnings.warn(
        f"the cache {folder} cannot be written ({reason}), so the surrogate will be fitted again the next time; "
        "METRICGRAD_CACHE can name another folder",
        stacklevel=2,
    )


def fingerprint(metric: Metric, *settings: Any, losses: list[float] | None = None) -> str:
    """Identify a metric by its losses on sets of several sizes, computed unless given, and by how it is fitted."""
    content = [sample_losses(metric) if losses is None else losses, metric.bounded, metric.thresholded, repr(settings)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]
