"""Weights: equal to the bit after a round trip, and only the expected ones."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from metricgrad.tabular.stored_model import packed, read_weights, unpacked

EXPECTED = {
    "a": torch.empty(2, 3, dtype=torch.float64, device="meta"),
    "b": torch.empty((), dtype=torch.int64, device="meta"),
}
TENSORS = {"a": torch.arange(6, dtype=torch.float64).view(2, 3) / 7, "b": torch.tensor(9)}
HEADER = {
    "a": {"dtype": "F64", "shape": [2, 3], "data_offsets": [0, 48]},
    "b": {"dtype": "I64", "shape": [], "data_offsets": [48, 56]},
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "weights").write_bytes(packed(TENSORS))
    return tmp_path / "weights"


def test_tensors_come_back_to_the_bit(file: Path) -> None:
    found = unpacked(read_weights(file, EXPECTED), EXPECTED)
    assert set(found) == {"a", "b"}
    assert all(torch.equal(found[name], TENSORS[name]) for name in TENSORS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c": {"dtype": "F64", "shape": [0], "data_offsets": [56, 56]}}, "expected 2 tensors, got another named 'c'"),
        ({"a": {**HEADER["a"], "shape": [3, 2]}}, r"a: expected the shape \[2, 3\], got \[3, 2\]"),
        ({"a": {**HEADER["a"], "shape": [2**62, 2**62]}}, r"a: expected the shape \[2, 3\], got \[4611"),
        ({"a": {**HEADER["a"], "dtype": "F32"}}, "a.dtype: expected one of 'F64', got 'F32'"),
        ({"a": {**HEADER["a"], "shape": None}}, r"a: expected the shape \[2, 3\], got null"),
        ({"a": []}, "a: expected an object, got a list of 0"),
    ],
)
def test_a_header_that_says_anything_else_is_refused(file: Path, change: dict[str, object], message: str) -> None:
    header = json.dumps({**HEADER, **change}).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(56))
    with pytest.raises(ValueError, match=message):
        read_weights(file, EXPECTED)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files_are_a_value_error_or_finite(file: Path, data: st.DataObject) -> None:
    whole = packed(TENSORS)
    changed = bytearray(whole)
    changed[data.draw(st.integers(0, len(whole) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file.write_bytes(bytes(changed))
    try:
        found = unpacked(read_weights(file, EXPECTED), EXPECTED)
    except ValueError:
        return
    assert all(found[name].shape == TENSORS[name].shape for name in TENSORS)
    assert bool(found["a"].isfinite().all())
