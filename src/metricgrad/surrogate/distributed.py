"""A surrogate loss in several processes of `torch.distributed`: the sets of all ranks, and one surrogate for all.

The first rank refines on the sets of all, as one process would that has them all, and the others take over its state.
Nothing can drift apart, whatever the metric and the machines, and a black box is called on the first rank only. All
ranks must call these functions together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor


class Part(NamedTuple):
    """What one rank has: `sets` of `rows` rows each, as scores, targets, weights ... of shape (sets, rows, ...)."""

    sets: int
    rows: int
    tensors: list[Tensor]


def join_rows(tensors: Sequence[Tensor], axes: int) -> list[Tensor]:
    """Return sets that span all ranks, the same on every rank: `(..., n)` -> `(..., sum of n)`.

    The gradient of the scores flows to the part of this rank. It is multiplied by the number of ranks, because
    `DistributedDataParallel` divides by it: the model gets the gradient that one process with all rows would give it.

    Parameters
    ----------
    tensors : sequence of Tensor of shape (..., n) or (..., n, c)
        Scores of this rank, then what else belongs to their rows.
    axes : int
        How many axes the scores of one set have.

    Returns
    -------
    list of Tensor
        As given, with the rows of all ranks, by rank.
    """
    leading = tensors[0].shape[: tensors[0].ndim - axes]
    parts = _exchanged(tensors, len(leading))
    counts = [part.sets for part in parts]
    if len(set(counts)) > 1:
        raise ValueError(f"scores: expected as many sets on every rank, since gather=True joins them, got {counts}")
    found = [[tensor[:, : part.rows] for tensor in part.tensors] for part in parts]
    if tensors[0].requires_grad:
        found[dist.get_rank()][0] = _times(tensors[0], len(parts)).reshape(found[dist.get_rank()][0].shape)
    joined = [torch.cat(tensor, 1) for tensor in zip(*found, strict=True)]
    return [tensor.reshape(*leading, *tensor.shape[1:]) for tensor in joined]


def stack_sets(tensors: Sequence[Tensor], axes: int) -> list[Tensor]:
    """Return the sets of all ranks side by side, without gradients: `(..., n)` -> `(sum of k, largest n)`.

    Shorter sets repeat their last row, at weight zero; weights are the third of the tensors.
    """
    parts = _exchanged(tensors, tensors[0].ndim - axes)
    for part in parts:
        part.tensors[2][:, part.rows :] = 0
    return [torch.cat(tensor) for tensor in zip(*(part.tensors for part in parts), strict=True)]


def on_first_rank(work: Callable[[], Sequence[float]], device: torch.device, numbers: int) -> list[float]:
    """Do some work on the first rank, and return on every rank the numbers that it returned; if it fails, all do."""
    report, error = [0.0] * numbers, None
    if dist.get_rank() == 0:
        try:
            report = [float(number) for number in work()]
        except Exception as raised:
            error = raised
    shared = torch.tensor([float(error is not None), *report], dtype=torch.float64, device=device)
    dist.broadcast(shared, 0)
    failed, *found = shared.tolist()
    if error is not None:
        raise error
    if failed:
        raise RuntimeError("refine: expected the first rank, which refines for all, to succeed, got an error there")
    return found


def take_over(tensors: Sequence[Tensor]) -> None:
    """Copy the tensors of the first rank into those of every other, in place."""
    packed = _packed(tensors)
    dist.broadcast(packed, 0)
    with torch.no_grad():
        for tensor, known in zip(tensors, _unpacked(packed, tensors), strict=True):
            tensor.copy_(known)


def _exchanged(tensors: Sequence[Tensor], leading: int) -> list[Part]:
    """Return what every rank has, by rank; sets and rows are padded to the largest number of any rank."""
    own = [tensor.detach().reshape(-1, *tensor.shape[leading:]) for tensor in tensors]
    widths = [tensor.shape[2:].numel() * tensor.element_size() for tensor in own]
    header = torch.tensor([*own[0].shape[:2], *widths], device=own[0].device)
    sizes = torch.stack(_everyones(header))
    if bool((sizes[:, 2:] != sizes[0, 2:]).any()):
        got = sizes[:, 2:].tolist()
        raise ValueError(
            f"scores, targets, weights: expected the same outputs and dtypes on every rank, got {got} bytes"
        )
    most = sizes[:, :2].amax(0).tolist()
    padded = [_padded(tensor, *most) for tensor in own]
    received = [_unpacked(packed, padded) for packed in _everyones(_packed(padded))]
    counts = sizes[:, :2].tolist()
    return [Part(sets, rows, [t[:sets] for t in known]) for (sets, rows), known in zip(counts, received, strict=True)]


def _everyones(own: Tensor) -> list[Tensor]:
    """Return a tensor of every rank, by rank; all have the same shape."""
    found = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(found, own)
    return found


def _padded(tensor: Tensor, sets: int, rows: int) -> Tensor:
    """Return sets with more rows, copies of the last one, and with more sets: `(k, n, ...)` -> `(sets, rows, ...)`."""
    if tensor.shape[:2] == (sets, rows):
        return tensor
    if not tensor.shape[0] or not tensor.shape[1]:
        return tensor.new_zeros(sets, rows, *tensor.shape[2:])
    places = [torch.arange(most, device=tensor.device) for most in (sets, rows)]
    for axis, place in enumerate(places):
        tensor = tensor.index_select(axis, place.clamp(max=tensor.shape[axis] - 1))
    return tensor


def _times(scores: Tensor, factor: float) -> Tensor:
    """Return scores whose gradient is multiplied."""
    scores = scores.view_as(scores)
    scores.register_hook(lambda gradient: factor * gradient)
    return scores


def _packed(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors of any type as bytes, to send them at once: every backend knows bytes."""
    return torch.cat([tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in tensors])


def _unpacked(packed: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Return tensors of the types and shapes of others from bytes."""
    parts = packed.split([tensor.numel() * tensor.element_size() for tensor in like])
    return [part.clone().view(known.dtype).view(known.shape) for part, known in zip(parts, like, strict=True)]
