"""What the programs of the gallery and of the pages run in: a folder of their own, and surrogates fitted quickly."""

from __future__ import annotations

from pathlib import Path

import pytest

from metricgrad.surrogate import pretraining

QUICK = pretraining.Fitting(groups=16, steps=30, sizes=(50, 100))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a cache in it; surrogates are fitted in a moment, and need not be faithful."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path / "cache"))
    for name, value in list(vars(pretraining).items()):
        if isinstance(value, pretraining.Fitting):
            monkeypatch.setattr(pretraining, name, QUICK)
    return tmp_path
