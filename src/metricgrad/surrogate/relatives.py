"""Where a surrogate of an unknown metric starts: at the bundled one whose metric is most like it on the first calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from metricgrad.surrogate.config import SurrogateConfig
from metricgrad.surrogate.network import Surrogate
from metricgrad.surrogate.pretrained import ATTENTION_FOLDER, WEIGHTS_FOLDER, open_surrogate, read_record

MIN_CORRELATION = 0.3
"""Below which a relative is no better a start than random weights."""
MAX_SETS = 800
"""Sets on which relatives are compared."""


class Relative(NamedTuple):
    """A bundled surrogate, the ordered part of a set that it is to see, and its correlation with the metric."""

    name: str
    surrogate: Surrogate
    part: int
    correlation: float


def nearest_relative(config: SurrogateConfig, pooled: list[Tensor], true: list[Tensor]) -> Relative | None:
    """Return the bundled surrogate that correlates best with true losses of pooled sets, or None if none does."""
    pooled = [part.flatten(0, 1)[:MAX_SETS] for part in pooled]
    wanted = _ranks(torch.cat([part.flatten()[:MAX_SETS] for part in true]))
    best: Relative | None = None
    for name, surrogate in _bundled_like(config):
        for part in range(config.parts if config.parts != surrogate.config.parts else 1):
            with torch.no_grad():
                judged = torch.cat([surrogate.judge(_seen_part(sets, surrogate, part)) for sets in pooled])
            correlation = float((wanted * _ranks(judged)).mean())
            if correlation >= MIN_CORRELATION and (best is None or correlation > best.correlation):
                best = Relative(name, surrogate, part, correlation)
    return best


def start_at(surrogate: Surrogate, relative: Relative) -> None:
    """Give a surrogate the weights of a relative; it ignores the parts of a set that the relative does not see."""
    state = relative.surrogate.state_dict()
    width = state["h.0.weight"].shape[1]
    weights = torch.zeros_like(surrogate.state_dict()["h.0.weight"])
    weights[:, relative.part * width : (relative.part + 1) * width] = state["h.0.weight"]
    surrogate.load_state_dict({**state, "h.0.weight": weights})


def _bundled_like(config: SurrogateConfig) -> Iterator[tuple[str, Surrogate]]:
    """Yield the bundled surrogates built alike, whatever their output function; by each column there is a plain set."""
    wanted = replace(config, link="sigmoid")
    if config.view == "weightings":
        wanted = replace(wanted, view="rows", parts=1)
    folder = ATTENTION_FOLDER if config.attention else WEIGHTS_FOLDER
    for path in sorted(folder.glob("*.safetensors")):
        record = read_record(path)
        if SurrogateConfig.from_dict(record["config"]) == wanted:
            yield str(record["metric"]), open_surrogate(path)


def _seen_part(pooled: Tensor, surrogate: Surrogate, part: int) -> Tensor:
    """Return the features of one ordered part of pooled sets."""
    if surrogate.view.parts == "unordered" or surrogate.config.attention:
        return pooled
    width = surrogate.state_dict()["h.0.weight"].shape[1]
    return pooled[..., part * width : (part + 1) * width]


def _ranks(values: Tensor) -> Tensor:
    """Return ranks, centred and scaled, ties sharing theirs: the mean product of two is Spearman's correlation."""
    _, group, ties = values.double().unique(return_inverse=True, return_counts=True)
    ends = ties.cumsum(0).double()
    ranks: Tensor = (ends - ties / 2)[group]
    return (ranks - ranks.mean()) / ranks.std(correction=0).clamp(min=1e-12)
