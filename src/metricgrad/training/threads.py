"""Threads of torch: one for work too small to share, for as long as it takes, and then as many as before."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn

WORTH = 30_000_000
"""Multiplications in a step from which on a second thread is worth having (`benchmarks/speed/threads.py`)."""
COUNTED = (nn.Linear, nn.BatchNorm1d, nn.LayerNorm)
"""Layers that use every parameter once a row, so that the work of a row is their number."""


class _Inside(threading.local):
    """Whether this thread is inside `one_thread` already."""

    now = False


class _Count:
    """How many threads are inside `one_thread`, and how many torch had before the first came."""

    lock = threading.Lock()
    inside = 0
    before = 1


_inside = _Inside()


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch use one thread: cores are for others, and results do not depend on how many there are.

    Afterwards torch has as many as before, also where several Python threads come and go: torch keeps one number for
    the process and one for each of them.
    """
    if _inside.now:
        yield
        return
    with _Count.lock:
        if not _Count.inside:
            _Count.before = torch.get_num_threads()
        _Count.inside += 1
        torch.set_num_threads(1)
    _inside.now = True
    try:
        yield
    finally:
        _inside.now = False
        with _Count.lock:
            _Count.inside -= 1
            torch.set_num_threads(_Count.before)


def threads_for(model: nn.Module, rows: int) -> AbstractContextManager[None]:
    """Return a context for training steps of some rows: one thread if they are small, else whatever the user set."""
    return one_thread() if work_of(model, rows) < WORTH else nullcontext()


def work_of(model: nn.Module, rows: int) -> float:
    """Return the multiplications of a pass over some rows; infinite if the model has layers it cannot be told of."""
    leaves = [layer for layer in model.modules() if next(layer.parameters(recurse=False), None) is not None]
    if not all(isinstance(layer, COUNTED) for layer in leaves):
        return float("inf")
    return float(rows * sum(p.numel() for p in model.parameters()))
