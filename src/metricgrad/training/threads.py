"""Threads of torch: one while work is too small to share, and afterwards as many as before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn

MIN_WORK_FOR_THREADS = 30_000_000
"""Multiplications in a step from which on a second thread is worth having (`benchmarks/speed/threads.py`)."""
COUNTED_LAYERS = (nn.Linear, nn.BatchNorm1d, nn.LayerNorm)
"""Layers that use every parameter once a row, so that the work of a row is their number."""


_lock = threading.Lock()
_inside = threading.local()
"""Of each Python thread: whether it is inside `one_thread` already."""
_state = {"inside": 0, "before": 1}
"""How many Python threads are inside `one_thread`, and how many threads torch had before the first entered."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread, so that results do not depend on how many there are; afterwards as many as before.

    Several Python threads may enter and leave in any order: torch keeps one number for the process and one for each.
    """
    if getattr(_inside, "now", False):
        yield
        return
    with _lock:
        if not _state["inside"]:
            _state["before"] = torch.get_num_threads()
        _state["inside"] += 1
        torch.set_num_threads(1)
    _inside.now = True
    try:
        yield
    finally:
        _inside.now = False
        with _lock:
            _state["inside"] -= 1
            torch.set_num_threads(_state["before"])


def threads_for(model: nn.Module, rows: int) -> AbstractContextManager[None]:
    """Return a context for training steps of some rows: one thread if they are small, else whatever the user set."""
    return one_thread() if work_of(model, rows) < MIN_WORK_FOR_THREADS else nullcontext()


def work_of(model: nn.Module, rows: int) -> float:
    """Return the multiplications of a pass over some rows; infinite if it has layers of other kinds."""
    leaves = [layer for layer in model.modules() if next(layer.parameters(recurse=False), None) is not None]
    if not all(isinstance(layer, COUNTED_LAYERS) for layer in leaves):
        return float("inf")
    return float(rows * sum(p.numel() for p in model.parameters()))
