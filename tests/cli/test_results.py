"""`metricgrad results`: records packed as Parquet and back, by the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from metricgrad.cli.app import app
from metricgrad.evaluation.store import Store


def said(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["results", *map(str, arguments)])
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one.jsonl", "deep/runs.jsonl"):
        for seed in range(3):
            Store(tmp_path / name).add({"seed": seed}, {"loss": 0.1 * seed})
    return tmp_path


def test_every_file_of_a_folder_is_packed_and_unpacked(folder: Path) -> None:
    lines = (folder / "one.jsonl").read_bytes()
    assert f"{folder / 'deep' / 'runs.parquet'}: 3 records" in said("pack", folder)
    assert len(list(folder.rglob("*.parquet"))) == 2
    assert f"{folder / 'one.jsonl'}: 3 records" in said("unpack", folder)
    assert list(folder.rglob("*.parquet")) == []
    assert (folder / "one.jsonl").read_bytes() == lines


def test_single_files_are_named_by_either_suffix(folder: Path) -> None:
    said("pack", folder / "one.jsonl", folder / "deep" / "runs.jsonl")
    said("unpack", folder / "one.parquet")
    assert [path.name for path in folder.rglob("*.parquet")] == ["runs.parquet"]


def test_what_cannot_be_packed_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    assert "expected a folder with .jsonl files, got none" in said("pack", tmp_path, code=2)
    assert "expected a file of records, got none" in said("pack", tmp_path / "no.jsonl", code=2)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    assert "bad.parquet: expected a Parquet file of records" in said("unpack", tmp_path, code=2)
