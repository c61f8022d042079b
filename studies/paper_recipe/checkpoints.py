"""Trainings that resume from a checkpoint, and unfinished ones as results."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from metricgrad.evaluation.store import Store
from metricgrad.files import write_whole
from studies import pages


def resumed(
    state: Path,
    trained: Any,
    generator: torch.Generator,
    *,
    advance: Callable[[Any], None],
    judge: Callable[[Any], dict[str, Any]],
    unit: str,
    total: int,
    check_every: int,
    compiled: bool,
) -> dict[str, Any]:
    """Advance what is trained from its last checkpoint to the end, and return its checks and the time of all of it."""
    checks, number, spent = [], 0, 0.0
    if state.exists():  # written by this program
        trained, number, spent, checks, own, general = pickle.loads(state.read_bytes())
        generator.set_state(own)
        torch.set_rng_state(general)
    begun = time.perf_counter() - spent
    if compiled:
        trained.compile()
    while number < total:
        advance(trained)
        number += 1
        if number % check_every == 0 or number == total:
            checks.append({unit: number, **judge(trained)})
            known = generator.get_state(), torch.get_rng_state()
            write_whole(state, pickle.dumps((trained, number, time.perf_counter() - begun, checks, *known)))
    return {"checks": checks, "seconds": time.perf_counter() - begun}


def store_unfinished(store: Store, states: Iterable[tuple[Mapping[str, Any], Path]], length: str) -> None:
    """Store unfinished trainings as the shorter runs that they are so far; the field `length` of a run is its length.

    Rates are constant and a check draws no random numbers, so that a shorter run is the start of a longer one.
    """
    known = store.keys()
    for run, state in states:
        if state.exists():  # written by `resumed`
            _, number, spent, checks, *_ = pickle.loads(state.read_bytes())
            shorter = {**run, length: number}
            if store.key(shorter) not in known:
                store.add(shorter, {"seconds": spent, "checks": checks, "command": pages.command()})
