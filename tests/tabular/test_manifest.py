"""Plain data of a stranger's: every value is what it should be, or is refused by its place."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.tabular.manifest import Field, parsed, read_file, shortened

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
KINDS: dict[str, tuple[Callable[[Field], Any], Callable[[Any], bool]]] = {
    "text": (Field.text, lambda value: isinstance(value, str) and bool(value.encode() or not value)),
    "flag": (Field.flag, lambda value: isinstance(value, bool)),
    "count": (Field.count, lambda value: type(value) is int and 0 <= value < 2**63),
    "number": (Field.number, lambda value: type(value) is float and math.isfinite(value)),
    "number or NaN": (Field.number_or_nan, lambda value: type(value) is float and not math.isinf(value)),
    "items": (lambda field: field.items(2), lambda value: isinstance(value, list) and len(value) <= 2),
    "field": (lambda field: field["a"], lambda value: isinstance(value, Field)),
    "choice": (lambda field: field.one_of(["a", "b"]), lambda value: value in ("a", "b")),
}


@given(json_values, st.sampled_from(sorted(KINDS)))
def test_a_value_is_what_it_should_be_or_is_refused_by_its_place(value: Any, kind: str) -> None:
    read, fits = KINDS[kind]
    found, said = None, ""
    try:
        found = read(Field(value, "here"))
    except ValueError as error:
        said = str(error)
    assert fits(found) if not said else re.match("here: expected .+, got .{1,700}$", said)


@given(json_values)
def test_any_value_is_written_in_a_few_words_of_one_line(value: Any) -> None:
    assert len(shortened(value)) < 700
    assert len(shortened(value).splitlines()) == 1


def test_places_are_named_as_they_are_reached() -> None:
    field = Field({"a": [{"b": 3}]})["a"].items()[0]["b"]
    assert field.place == "a[0].b"
    with pytest.raises(ValueError, match=r"^a\[0\].b: expected text of at most 2 characters of Unicode, got 'abc'$"):
        Field("abc", field.place).text(2)
    with pytest.raises(ValueError, match=r"^expected a field 'b', got an object of 1$"):
        Field({"a": 1})["b"]


@given(st.binary(max_size=60))
def test_bytes_are_json_or_a_value_error(content: bytes) -> None:
    found, said = Field(None), ""
    try:
        found = parsed(content)
    except ValueError as error:
        said = str(error)
    if said:
        assert said.startswith("expected JSON, got ")
    else:
        assert json.dumps(found.value) == json.dumps(json.loads(content.decode()))


def test_a_file_is_read_up_to_its_limit(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"1234")
    assert read_file(file, 4) == b"1234"
    with pytest.raises(ValueError, match="expected at most 3 bytes, got 4"):
        read_file(file, 3)
    with pytest.raises(FileNotFoundError):
        read_file(tmp_path / "nowhere", 3)
