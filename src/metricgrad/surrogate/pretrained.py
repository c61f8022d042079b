"""Surrogates on disk: bundled for the built-in metrics, cached for black boxes; verified, never executed."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import asdict
from datetime import datetime, timezone
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import platformdirs
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load as load_state
from safetensors.torch import load_file, save
from torch import Tensor

from metricgrad._version import __version__
from metricgrad.metrics.registry import Metric, builtin_metrics, get_metric
from metricgrad.metrics.tasks import BINARY
from metricgrad.reporting.atomic import write_whole
from metricgrad.reporting.progress import work_bar
from metricgrad.surrogate.count_emulator import ASKED, CHECKED, LearnedCounts, fit_counts, in_counts
from metricgrad.surrogate.network import CONFIGS, Surrogate, SurrogateConfig
from metricgrad.surrogate.pretraining import (
    KIN,
    PAPER_FITTING,
    THOROUGH,
    Fitting,
    Progress,
    config_for,
    draw_corpus,
    fidelity,
    fit_to_corpus,
    fit_universal,
    fitting_for,
    new_surrogate,
)
from metricgrad.surrogate.synthetic import BroadSets, PaperSets, RandomSets
from metricgrad.surrogate.task_sets import sets_for

WEIGHTS = Path(__file__).parent / "weights"
MIN_FAITHFULNESS = 0.8
"""Below which a bundled surrogate is marked, and warned of where it is used."""


@lru_cache(maxsize=1)
def bundled_index() -> dict[str, Any]:
    """Return what is known of every bundled surrogate, by the name of its metric."""
    index: dict[str, Any] = json.loads((WEIGHTS / "index.json").read_text(encoding="utf-8"))
    return index


def load_universal(name: str) -> Surrogate:
    """Load a bundled surrogate by the name of its metric (`"best_f1"`), verified against its SHA-256."""
    index = bundled_index()
    if name not in index:
        with suppress(ValueError):  # an alias
            name = get_metric(name).name
    if name not in index:
        raise ValueError(f"metric: no bundled surrogate for {name!r}; there is one for {', '.join(sorted(index))}")
    return open_surrogate(WEIGHTS / index[name]["file"], index[name]["sha256"])


def bundled_digest(metric: Metric, config: str, form: str) -> str:
    """Return a short digest of the bundled surrogate that a metric starts from, nothing if there is none."""
    name = metric.trained(form).name
    known = bundled_index().get(name, {}) if config == "default" and is_builtin(metric) else {}
    return str(known.get("sha256", ""))[:16]


def faithfulness(entry: Mapping[str, Any]) -> float:
    """Return how far a bundled surrogate orders unseen sets as its metric does, from the entry of the index.

    It is the Spearman correlation over the highest one possible: sets that lose exactly the same have no order.

    >>> round(faithfulness({"held_out_sets_of_400": {"spearman": 0.6, "ceiling": 0.75}}), 2)
    0.8
    """
    held_out = entry["held_out_sets_of_400"]
    return float(held_out["spearman"] / held_out.get("ceiling", 1.0))


def _warn_of_low_fidelity(metric: Metric) -> None:
    found = faithfulness(bundled_index()[metric.name])
    if not found >= MIN_FAITHFULNESS:
        warnings.warn(
            f"the bundled surrogate of {metric.label} hardly follows it: Spearman correlation {found:.2f} on random "
            f"sets, below {MIN_FAITHFULNESS}; what it is trained for may not improve",
            stacklevel=5,
        )


def open_surrogate(path: Path, sha256: str | None = None) -> Surrogate:
    """Load a surrogate from a safetensors file; nothing in the file is ever executed."""
    if not path.is_file():
        raise FileNotFoundError(f"{path.name}: expected a surrogate file, got nothing at {str(path)!r}")
    if sha256 is not None and (got := hashlib.sha256(path.read_bytes()).hexdigest()) != sha256:
        raise ValueError(f"{path.name}: expected SHA-256 {sha256}, got {got}; reinstall metricgrad")
    try:
        with safe_open(path, framework="pt") as file:
            known = file.metadata()
            config = SurrogateConfig.from_dict(json.loads(known.get("config") or known["construction"]))  # 0.1.0
            state = {name: file.get_tensor(name).to(torch.float32) for name in file.keys()}  # noqa: SIM118
        surrogate = new_surrogate(config, seed=0)
        surrogate.load_state_dict(state)
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path.name}: expected a surrogate saved by metricgrad, got {error}") from error
    return surrogate.eval()


def save_surrogate(surrogate: Surrogate, path: Path) -> str:
    """Save a surrogate in half precision; write beside and rename; return the SHA-256 of the file."""
    content = _packed(surrogate)
    write_whole(path, content)
    return hashlib.sha256(content).hexdigest()


def _packed(surrogate: Surrogate) -> bytes:
    state = {name: _halved(tensor).contiguous() for name, tensor in surrogate.state_dict().items()}
    return save(state, metadata={"config": json.dumps(surrogate.config.as_dict())})


def _halved(tensor: Tensor) -> Tensor:
    half = tensor.half()
    return half if tensor.ndim and bool(half.isfinite().all()) else tensor


def _keep_in_cache(path: Path, content: bytes) -> None:
    """Write a file of the cache; one that cannot be written is warned of, and what was fitted is used all the same."""
    try:
        write_whole(path, content)
    except OSError as error:
        _warn_of_cache(str(path.parent), error.strerror or str(error))


@lru_cache(maxsize=16)  # once for each folder and reason
def _warn_of_cache(folder: str, reason: str) -> None:
    warnings.warn(
        f"the cache {folder} cannot be written ({reason}), so what was fitted is not kept for the next time; "
        "METRICGRAD_CACHE can name another folder",
        stacklevel=2,
    )


def universal_for(
    metric: Metric, config: SurrogateConfig | str | None = None, progress: Progress | None = None
) -> Surrogate:
    """Return the universal surrogate of a metric: bundled, or from the cache, or fitted now and cached.

    A metric that is not built in is known by what it does: its losses on a few random sets make its fingerprint. The
    paper's config is fitted to the paper's random sets.
    """
    usual = config_for(metric)
    sets: RandomSets
    if config == "paper":
        config, sets, fitting = CONFIGS["paper"], PaperSets(), PAPER_FITTING
    else:
        config = usual if config in (None, "default") else config
        sets, fitting = sets_for(metric), fitting_for(metric)
    if config == usual and is_builtin(metric) and metric.name in bundled_index():
        _warn_of_low_fidelity(metric)
        return load_universal(metric.name)
    path = _cache() / f"{_fingerprint(metric, config, sets, fitting)}.safetensors"
    with suppress(OSError, ValueError):  # not there yet, not readable, or damaged: then it is fitted
        return open_surrogate(path)
    with work_bar() if progress is None else nullcontext(progress) as report:
        surrogate = fit_universal(metric, sets, config, fitting, report)
    content = _packed(surrogate)
    _keep_in_cache(path, content)
    # What was fitted is used as it comes from the cache, in half precision, whether it could be kept there or not.
    kept = new_surrogate(surrogate.config, seed=0)
    kept.load_state_dict({name: tensor.to(torch.float32) for name, tensor in load_state(content).items()})
    return kept.eval()


def cheap_form(metric: Metric) -> Metric:
    """Return a black box of labels as it was learned from its counts, now or before; any other metric as it is.

    At its best threshold it would cost many calls a set. One that cannot be learned so, for it minds the order of rows
    or what else they hold, stays as it is.
    """
    if not (metric.costly and metric.thresholded and metric.counts is None and metric.task == BINARY):
        return metric
    path = _cache() / f"counts-{_fingerprint(metric, ASKED, CHECKED)}.safetensors"
    learned = LearnedCounts(metric.bounded).requires_grad_(False)
    try:
        learned.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError):  # not there yet, or damaged: then it is learned
        learned = fit_counts(metric)
        _keep_in_cache(path, save(learned.state_dict()))
    return in_counts(metric, learned) if learned.learned else metric


def _cache() -> Path:
    folder = os.environ.get("METRICGRAD_CACHE") or platformdirs.user_cache_dir("metricgrad")
    return Path(folder) / "universal"


def _fingerprint(metric: Metric, *how: Any) -> str:
    """Name a metric by what it does to sets of several sizes, and how it is fitted."""
    generator, sets = torch.Generator().manual_seed(0), sets_for(metric)
    losses = torch.cat([metric(*sets(1, KIN, size, generator)).double() for size in (50, 100, 400, 1000, 2000)])
    if float(losses.max() - losses.min()) <= 1e-9 * float(losses.abs().max()):
        raise ValueError(
            f"metric: {metric.name!r} is constant ({float(losses[0]):g} on every random set); nothing to learn. A "
            "metric that some threshold always satisfies, such as recall, has to be trained with form='zero'"
        )
    made_of = [losses.tolist(), metric.bounded, metric.thresholded, repr(how)]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:32]


def is_builtin(metric: Metric) -> bool:
    """Whether a metric is ours, and not another of the same name."""
    try:
        return _alike(metric.function, get_metric(metric.name).function)
    except ValueError:
        return False


def _alike(one: Any, other: Any) -> bool:
    """Whether two functions are the same, `partial` ones by what they hold."""
    if not (isinstance(one, partial) and isinstance(other, partial)):
        return bool(one == other)
    return (
        one.func is other.func
        and one.keywords.keys() == other.keywords.keys()
        and all(_alike(one.keywords[key], other.keywords[key]) for key in one.keywords)
    )


# ---- fitting what is bundled ---------------------------------------------------------------------------------------


def bundled_names() -> list[str]:
    """Return the forms of the built-in metrics that get a surrogate; the best recall is always 0, so it gets none."""
    forms = [form for metric in builtin_metrics() for form in dict.fromkeys((metric.name, metric.best.name))]
    return [name for name in forms if name != "best_recall"]


def fit_bundled(
    names: list[str], folder: Path = WEIGHTS, fitting: Fitting = THOROUGH, progress: Progress | None = None
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Fit, save and index surrogates of built-in metrics, yielding each as it is done; kin share their random sets."""
    metrics = [get_metric(name) for name in names]
    _read_index(folder)
    for metric in metrics:
        _fingerprint(metric)  # a metric with nothing to learn is refused before any work
    for config in dict.fromkeys(config_for(metric) for metric in metrics):
        alike = [metric for metric in metrics if config_for(metric) == config]
        corpus = draw_corpus(alike, new_surrogate(config, fitting.seed), BroadSets(), fitting, progress)
        for metric, true in zip(alike, corpus.true.unbind(-1), strict=True):
            surrogate = new_surrogate(config, fitting.seed)
            fit_to_corpus(surrogate, corpus.pooled, true, fitting, metric, progress)
            yield metric.name, _keep(metric, surrogate, folder, fitting)


def _keep(metric: Metric, surrogate: Surrogate, folder: Path, fitting: Fitting) -> dict[str, Any]:
    path = folder / f"{metric.name.replace('(', '_').replace(')', '')}.safetensors"
    digest = save_surrogate(surrogate, path)
    kept = open_surrogate(path, digest)
    unseen = BroadSets()(500, KIN, 400, torch.Generator().manual_seed(fitting.seed + 1_000_000))
    entry = {
        "file": path.name,
        "sha256": digest,
        "config": surrogate.config.as_dict(),
        "fitting": asdict(fitting),
        "held_out_sets_of_400": fidelity(kept, metric, unseen),
        "command": f"metricgrad universal fit '{metric.name}' --seed {fitting.seed}{_changed(fitting)}",
        "version": __version__,
        "date": datetime.now(timezone.utc).date().isoformat(),
    }
    index = {**_read_index(folder), metric.name: entry}
    write_whole(folder / "index.json", (json.dumps(dict(sorted(index.items())), indent=1) + "\n").encode())
    bundled_index.cache_clear()
    return entry


def _read_index(folder: Path) -> dict[str, Any]:
    path = folder / "index.json"
    try:
        index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{path}: expected an index of surrogates in JSON, got {error}") from error
    return index


def _changed(fitting: Fitting) -> str:
    """Write what differs from the usual fitting, as options of the command."""
    wanted = {"families": fitting.families, "steps": fitting.steps}
    usual = {"families": THOROUGH.families, "steps": THOROUGH.steps}
    return "".join(f" --{name} {value}" for name, value in wanted.items() if value != usual[name])
