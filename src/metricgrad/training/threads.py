"""How many threads torch and the BLAS of numpy and scipy have while a model is trained."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from threadpoolctl import threadpool_limits
from torch import nn

MIN_WORK_FOR_THREADS = 30_000_000
"""Multiplications in a step from which on a second thread is worth having (`benchmarks/speed/threads.py`)."""
COUNTED_LAYERS = (nn.Linear, nn.BatchNorm1d, nn.LayerNorm)
"""Layers that use every parameter once a row, so that the work of a row is their number."""


@dataclass
class _Limit:
    """The limit of this process: how many Python threads asked for it, and what there was before the first did."""

    users: int = 0
    torch_threads: int = 1
    blas: threadpool_limits | None = None


_limit, _lock = _Limit(), threading.Lock()
_inside = threading.local()
"""Of each Python thread: whether it is inside `one_thread` already."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch and BLAS use one thread; afterwards as many as before.

    Results of torch then do not depend on how many there are. BLAS waits for its threads by spinning: where other
    programs use the cores, small products by two threads take several times the processor time of one. Several Python
    threads may enter and leave in any order: torch keeps one number for the process and one for each.
    """
    if getattr(_inside, "now", False):
        yield
        return
    with _lock:
        if not _limit.users:
            _limit.torch_threads, _limit.blas = torch.get_num_threads(), threadpool_limits(1, user_api="blas")
        _limit.users += 1
        torch.set_num_threads(1)
    _inside.now = True
    try:
        yield
    finally:
        _inside.now = False
        with _lock:
            _limit.users -= 1
            torch.set_num_threads(_limit.torch_threads)
            if not _limit.users and _limit.blas is not None:
                _limit.blas.restore_original_limits()


def threads_for(models: Iterable[nn.Module], rows: int) -> AbstractContextManager[None]:
    """Return a context for training steps of some rows: one thread if they are small, else whatever the user set.

    An ensemble network has one thread, whatever its work: its weights then do not depend on the number of cores, and
    where other programs use these, a second thread takes a multiple of the time (`benchmarks/speed/threads.py`).
    """
    small = all(getattr(model, "several", False) or work_of(model, rows) < MIN_WORK_FOR_THREADS for model in models)
    return one_thread() if small else nullcontext()


def work_of(model: nn.Module, rows: int) -> float:
    """Return the multiplications of a pass over some rows; infinite if it has layers of other kinds."""
    leaves = [layer for layer in model.modules() if next(layer.parameters(recurse=False), None) is not None]
    if not all(isinstance(layer, COUNTED_LAYERS) for layer in leaves):
        return float("inf")
    return float(rows * sum(p.numel() for p in model.parameters()))
