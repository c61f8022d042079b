"""Files of every kind and in every state; pandas and Python's csv are the oracles."""

from __future__ import annotations

import csv
import gzip
import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metricgrad.reading import MISSING, TableError, read_chunks, read_table

FRAME = pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y, z", 'quo"te'], "c": [0.5, None, -2.25]})
TEXT = pd.DataFrame({"a": ["1", "2", "3"], "b": FRAME["b"], "c": ["0.5", None, "-2.25"]}, dtype="str")
words = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0\ufeff"), max_size=8)
names = st.lists(words.filter(lambda name: name.strip() == name and name), min_size=2, max_size=4, unique=True)


def written(tmp_path: Path, content: bytes, name: str = "data.csv") -> Path:
    path = tmp_path / name
    path.write_bytes(content)
    return path


def as_csv(separator: str = ",", encoding: str = "utf-8") -> bytes:
    return FRAME.to_csv(index=False, sep=separator).encode(encoding)


# ---- formats -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separator", [",", "\t", ";", "|"])
@pytest.mark.parametrize("pack", ["plain", "gzip", "zip"])
def test_text_is_read_whatever_parts_its_cells_and_whatever_it_is_packed_in(
    tmp_path: Path, separator: str, pack: str
) -> None:
    content = as_csv(separator)
    if pack == "gzip":
        content = gzip.compress(content)
    elif pack == "zip":
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("folder/", "")
            archive.writestr("folder/data.csv", content)
            archive.writestr("__MACOSX/data.csv", "x")
        content = packed.getvalue()
    pd.testing.assert_frame_equal(read_table(written(tmp_path, content, "no-ending")), TEXT)


@pytest.mark.parametrize("kind", ["parquet", "feather"])
@pytest.mark.parametrize("packed", [False, True])
def test_parquet_and_feather_keep_their_types(tmp_path: Path, kind: str, packed: bool) -> None:
    path = tmp_path / "data"
    getattr(FRAME, f"to_{kind}")(path)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    pd.testing.assert_frame_equal(read_table(path), FRAME)


def test_standard_input_is_read_by_the_name_of_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stdin:
        buffer = io.BytesIO(as_csv())

    monkeypatch.setattr(sys, "stdin", Stdin)
    pd.testing.assert_frame_equal(read_table("-"), TEXT)


@given(names, st.lists(st.lists(words, min_size=4, max_size=4), min_size=1, max_size=6), st.integers(1, 3))
def test_any_text_comes_back_as_it_was_written_whole_or_in_chunks(
    tmp_path_factory: pytest.TempPathFactory, header: list[str], rows: list[list[str]], chunk: int
) -> None:
    path = tmp_path_factory.mktemp("csv") / "data.csv"
    cells = [row[: len(header)] for row in rows]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([header, *cells])
    frame = read_table(path)
    assert list(frame.columns) == header
    expected = [[None if cell in MISSING else cell for cell in row] for row in cells]
    assert frame.astype(object).where(frame.notna(), None).to_numpy().tolist() == expected
    parts = list(read_chunks(path, chunk))
    assert all(len(part) <= chunk for part in parts)
    pd.testing.assert_frame_equal(pd.concat(parts, ignore_index=True), frame)


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_chunks_are_the_table_in_parts(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "data"
    frame = pd.DataFrame({"n": np.arange(1000), "t": [f"t{i}" for i in range(1000)]})
    frame.to_csv(path, index=False) if kind == "csv" else getattr(frame, f"to_{kind}")(path)
    parts = list(read_chunks(path, rows=300))
    assert [len(part) for part in parts] == [300, 300, 300, 100]
    assert [int(n) for part in parts for n in part["n"]] == list(range(1000))


# ---- encodings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "latin-1", "utf-16"])
def test_a_text_file_is_read_in_the_encoding_it_is_in(tmp_path: Path, encoding: str) -> None:
    content = "größe,città\n1,è\n2,ü\n".encode(encoding)
    frame = read_table(written(tmp_path, content))
    assert list(frame.columns) == ["größe", "città"]
    assert frame["città"].tolist() == ["è", "ü"]


def test_one_wrong_byte_far_down_makes_a_file_latin_1(tmp_path: Path) -> None:
    content = b"a,b\n" + b"1,x\n" * 100_000 + b"2,\xe9\n"
    assert read_table(written(tmp_path, content))["b"].iloc[-1] == "é"


# ---- bad files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "expected a table, got an empty file"),
        (b"\n\n  \n", "expected at least one row, got a header only"),
        (b"\n\n", "expected a header, got none"),
        (b"a,b\n", "expected at least one row, got a header only"),
        (b"a,b\n1,2\n3\n", r"row 3: expected 2 cells, as the header has, got 1: '3'"),
        (b"a,b\n1,2\n3,4,5\n", r"row 3: expected 2 cells, as the header has, got 3: '3,4,5'"),
        (b"a,b,a\n1,2,3\n", "expected every column name once, got 'a' more than once"),
        (b"PAR1 and then nothing", "expected a table, got"),
        (b"ARROW1 and then nothing", "expected a table, got"),
        (gzip.compress(b"a,b\n1,2\n")[:-6], "expected a whole gzip or zip file"),
        (b"PK\x03\x04 and then nothing", "expected a whole gzip or zip file"),
    ],
)
def test_a_bad_file_is_named_with_what_is_wrong_with_it(tmp_path: Path, content: bytes, message: str) -> None:
    path = written(tmp_path, content)
    with pytest.raises(TableError, match=message) as raised:
        read_table(path)
    assert str(path) in str(raised.value)


def test_an_archive_of_two_files_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "two.zip", "w") as archive:
        archive.writestr("a.csv", "a\n1\n")
        archive.writestr("b.csv", "a\n1\n")
    with pytest.raises(TableError, match="expected one file in the archive, got 2"):
        read_table(tmp_path / "two.zip")


def test_a_file_that_is_not_there_is_the_systems_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_table(tmp_path / "none.csv")


@given(st.binary(max_size=300))
def test_any_bytes_are_a_table_or_a_table_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("bytes") / "data"
    path.write_bytes(content)
    try:
        rows = len(read_table(path))
    except TableError:
        rows = 1  # refused as it should be; any other error fails
    assert rows > 0


def test_row_labels_of_pandas_get_a_name(tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "data.csv")
    assert list(read_table(tmp_path / "data.csv").columns) == ["unnamed_1", "a", "b", "c"]


def test_ten_thousand_columns_are_read(tmp_path: Path) -> None:
    header = ",".join(f"column {i}" for i in range(10_000))
    row = ",".join(str(i) for i in range(10_000))
    frame = read_table(written(tmp_path, f"{header}\n{row}\n{row}\n".encode()))
    assert frame.shape == (2, 10_000)
    assert frame.iloc[1, 9_999] == "9999"
