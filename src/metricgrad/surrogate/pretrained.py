"""Surrogates in files: those bundled for the built-in metrics, one file each, which also holds how it was fitted.

A file is a safetensors file in half precision. Its metadata hold the config, a checksum of the tensors and, if bundled,
a record of the fitting. Nothing in a file is ever executed.
"""

from __future__ import annotations

import hashlib
import json
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as tensors_in
from safetensors.torch import save as packed_tensors
from torch import Tensor

from metricgrad.metrics.metric import Metric
from metricgrad.metrics.registry import builtin_metrics, named_metric
from metricgrad.metrics.tasks import MULTICLASS, MULTILABEL, RANKING
from metricgrad.surrogate.config import SurrogateConfig, config_for
from metricgrad.surrogate.network import Surrogate

WEIGHTS_FOLDER = Path(__file__).parent / "weights"
ATTENTION_FOLDER = WEIGHTS_FOLDER / "attention"
"""Surrogates with attention, of metrics at one threshold that a set chooses itself: used if asked for."""
EXTRA_SETTINGS = ("fnr_at_fpr(0.01)",)
"""Metrics with a setting other than the default that are bundled too."""
NOT_BUNDLED = ("best_recall", "top_k_error(5)", "mrr")
BUNDLED_TASKS = (MULTICLASS, MULTILABEL, RANKING)
"""Tasks beside that of two classes whose metrics are bundled, as they are trained: at no offsets."""
MIN_FAITHFULNESS = 0.8
"""Below which a bundled surrogate is marked in the list, and warned of where it is used."""


# ---- what is bundled -----------------------------------------------------------------------------------------------


def load_universal(name: str) -> Surrogate:
    """Load a bundled surrogate, verified by its checksum.

    Parameters
    ----------
    name : str
        Name of its metric: `"f1"` at threshold zero, `"best_f1"` at the best threshold of each set.

    Returns
    -------
    Surrogate
        In evaluation mode; `SurrogateLoss(metric, start=surrogate)` trains with it.

    Examples
    --------
    >>> load_universal("best_f1").config.view
    'rows'
    """
    try:
        path = bundled_path(named_metric(name).name)
    except ValueError:
        path = None
    if path is None or not path.is_file():
        known = ", ".join(bundled_index())
        raise ValueError(f"metric: no bundled surrogate for {name!r}; there is one for {known}")
    return open_surrogate(path)


def bundled_surrogate(metric: Metric, config: SurrogateConfig | str | None = None) -> Surrogate | None:
    """Return the bundled surrogate of a metric, or None if there is none of this config; reads one file."""
    if config not in (None, "default", "attention", config_for(metric)) or not is_builtin(metric):
        return None
    path = bundled_path(metric.name, config)
    if not path.is_file():
        return None
    content = path.read_bytes()
    found = faithfulness(json.loads(_metadata(content)["record"]))
    if not found >= MIN_FAITHFULNESS:
        warnings.warn(
            f"the bundled surrogate of {metric.label} hardly follows it: Spearman correlation {found:.2f} on random "
            f"sets, below {MIN_FAITHFULNESS}; training with it may not improve the metric",
            stacklevel=4,
        )
    return unpacked_surrogate(content, path.name)


def bundled_path(name: str, config: SurrogateConfig | str | None = None) -> Path:
    """Return where the surrogate of a built-in metric is bundled, if it is."""
    return (ATTENTION_FOLDER if config == "attention" else WEIGHTS_FOLDER) / file_name(name)


def file_name(name: str) -> str:
    """Return the file name of the surrogate of a built-in metric.

    >>> file_name("precision_at(0.02)")
    'precision_at_0.02.safetensors'
    """
    return f"{name.replace('(', '_').replace(',', '_').replace(')', '')}.safetensors"


def bundled_index(folder: Path | None = None) -> dict[str, dict[str, Any]]:
    """Return the record of every bundled surrogate by the name of its metric; reads the headers of all files."""
    folder = WEIGHTS_FOLDER if folder is None else folder
    records = [read_record(path) for path in folder.glob("*.safetensors")]
    if not records:
        raise FileNotFoundError(f"{folder}: expected bundled surrogates, got none")
    return {record["metric"]: record for record in sorted(records, key=lambda record: str(record["metric"]))}


def read_record(path: Path) -> dict[str, Any]:
    """Return what the file of a bundled surrogate says about it; reads its header only."""
    with path.open("rb") as file:
        start = file.read(8)
        metadata = _metadata(start + file.read(int.from_bytes(start, "little")))
    return {"file": path.name, "config": json.loads(metadata["config"]), **json.loads(metadata["record"])}


def bundled_digest(metric: Metric, config: str, form: str) -> str:
    """Return a short digest of the bundled surrogate that a metric starts from, empty if there is none."""
    path = bundled_path(metric.trained(form).name, config)
    if config == "paper" or not is_builtin(metric) or not path.is_file():
        return ""
    return str(read_record(path)["sha256"])[:16]


def bundled_names() -> list[str]:
    """Return the forms of the built-in metrics that get a surrogate, which are those that are trained.

    The best recall is always 0, so it gets none. Neither does the top-k error, which is 0 where there are no more than
    k classes, the reciprocal rank, which one document decides and a surrogate hardly follows, nor metrics of numbers,
    whose g is learned.
    """
    metrics = [*builtin_metrics(), *map(named_metric, EXTRA_SETTINGS)]
    forms = [form for metric in metrics for form in dict.fromkeys((metric.name, metric.best.name))]
    others = [metric.name for task in BUNDLED_TASKS for metric in builtin_metrics(task)]
    return [name for name in (*forms, *others) if name not in NOT_BUNDLED]


def faithfulness(record: Mapping[str, Any]) -> float:
    """Return how well a bundled surrogate orders unseen sets as its metric does.

    It is the Spearman correlation divided by the highest possible one: sets of equal loss have no order.

    >>> round(faithfulness({"held_out_sets_of_400": {"spearman": 0.6, "ceiling": 0.75}}), 2)
    0.8
    """
    held_out = record["held_out_sets_of_400"]
    return float(held_out["spearman"] / held_out.get("ceiling", 1.0))


def is_builtin(metric: Metric) -> bool:
    """Whether a metric is a built-in one, and not another of the same name."""
    try:
        return _same_function(metric.function, named_metric(metric.name).function)
    except ValueError:
        return False


def _same_function(one: Any, other: Any) -> bool:
    """Whether two functions are the same, `partial` ones by what they hold."""
    if not (isinstance(one, partial) and isinstance(other, partial)):
        return bool(one == other)
    return (
        one.func is other.func
        and one.keywords.keys() == other.keywords.keys()
        and all(_same_function(one.keywords[key], other.keywords[key]) for key in one.keywords)
    )


# ---- files ---------------------------------------------------------------------------------------------------------


def open_surrogate(path: Path) -> Surrogate:
    """Load a surrogate from a file, of 0.1.0 too."""
    if not path.is_file():
        raise FileNotFoundError(f"{path.name}: expected a surrogate file, got nothing at {str(path)!r}")
    return unpacked_surrogate(path.read_bytes(), path.name)


def save_surrogate(surrogate: Surrogate, path: Path, record: Mapping[str, Any] | None = None) -> None:
    """Save a surrogate in half precision, with a record of how it was fitted."""
    from metricgrad.files import write_whole  # only here: reading needs nothing of it

    write_whole(path, packed_surrogate(surrogate, record))


def packed_surrogate(surrogate: Surrogate, record: Mapping[str, Any] | None = None) -> bytes:
    """Return the content of a surrogate's file."""
    state = {name: _halved(tensor).contiguous() for name, tensor in surrogate.state_dict().items()}
    metadata = {"config": json.dumps(surrogate.config.as_dict()), "sha256": tensors_digest(packed_tensors(state))}
    if record is not None:
        metadata["record"] = json.dumps({"sha256": metadata["sha256"], **record})
    content: bytes = packed_tensors(state, metadata)
    return content


def unpacked_surrogate(content: bytes, name: str) -> Surrogate:
    """Return the surrogate of a file's content; errors are about the file of this name."""
    try:
        metadata = _metadata(content)
        config = SurrogateConfig.from_dict(json.loads(metadata.get("config") or metadata["construction"]))
        state = {key: tensor.to(torch.float32) for key, tensor in tensors_in(content).items()}
        with torch.random.fork_rng(devices=[]):  # the initial weights are replaced, and must not change the user's seed
            surrogate = Surrogate(config)
        surrogate.load_state_dict(state)
    except (SafetensorError, AttributeError, KeyError, TypeError, ValueError, RuntimeError, RecursionError) as error:
        raise ValueError(f"{name}: expected a surrogate saved by metricgrad, got {error}") from error
    expected = metadata.get("sha256")
    if expected is not None and (got := tensors_digest(content)) != expected:
        raise ValueError(f"{name}: expected SHA-256 {expected}, got {got}; reinstall metricgrad, or fit it again")
    return surrogate.eval()


def tensors_digest(content: bytes) -> str:
    """Return the SHA-256 of the tensors in the content of a safetensors file, which follow its header."""
    return hashlib.sha256(content[8 + int.from_bytes(content[:8], "little") :]).hexdigest()


def _metadata(content: bytes) -> dict[str, str]:
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    metadata: dict[str, str] = header["__metadata__"]
    return metadata


def _halved(tensor: Tensor) -> Tensor:
    half = tensor.half()
    return half if tensor.ndim and bool(half.isfinite().all()) else tensor
