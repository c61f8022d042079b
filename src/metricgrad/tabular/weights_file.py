"""The weights of a model folder: tensors of known names and shapes, checked by the header before any is made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from metricgrad.tabular.manifest import Field, parsed, read_file

Expected = Mapping[str, Tensor]
"""Tensors by name, of which only shape and type count; they may be on torch's device `meta`, without memory."""
TYPES = {torch.float64: "F64", torch.int64: "I64"}
LENGTH = 8
"""Bytes that say how long the header is."""
HEADER = 1 << 16
"""Bytes a header of some tens of tensors may have."""


def packed(tensors: Mapping[str, Tensor]) -> bytes:
    """Return tensors as the content of a safetensors file."""
    return bytes(save({name: tensor.detach().contiguous() for name, tensor in tensors.items()}))


def read_weights(path: Path, expected: Expected) -> bytes:
    """Read a file no larger than the tensors that are expected, whose header names them and no others."""
    data = sum(tensor.numel() * tensor.element_size() for tensor in expected.values())
    content = read_file(path, LENGTH + HEADER + data)
    header = int.from_bytes(content[:LENGTH], "little")
    if header > HEADER or len(content) != LENGTH + header + data:
        raise ValueError(
            f"expected {data:,} bytes of tensors after a header of at most {HEADER:,}, "
            f"got {len(content):,} bytes with a header of {header:,}"
        )
    _check_header(parsed(content[LENGTH : LENGTH + header]), expected)
    return content


def _check_header(header: Field, expected: Expected) -> None:
    for name, tensor in expected.items():
        entry = header[name]
        shape = list(tensor.shape)
        if entry["shape"].value != shape:
            shown = json.dumps(entry["shape"].value)[:100]
            raise ValueError(f"{name}: expected the shape {shape}, got {shown}")
        entry["dtype"].one_of([TYPES[tensor.dtype]])
    others = [name for name in header.value if name not in (*expected, "__metadata__")]
    if others:
        raise ValueError(f"expected {len(expected)} tensors, got another named {others[0][:60]!r}")


def unpacked(content: bytes, expected: Expected) -> dict[str, Tensor]:
    """Return the tensors of a file that `read_weights` has read; all of their values are finite."""
    try:
        tensors: dict[str, Tensor] = load(content)
    except SafetensorError as error:
        raise ValueError(f"expected a safetensors file, got {error}") from error
    for name in expected:
        if not bool(tensors[name].isfinite().all()):
            raise ValueError(f"{name}: expected finite numbers, got others")
    return tensors
