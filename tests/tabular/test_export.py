"""The exported program scores as the model does, on any number of rows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

from metricgrad import Recipe, TableClassifier, save
from metricgrad.cli.app import app
from metricgrad.tabular.export import NAMES

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": RNG.normal(40, 9, 80), "plan": RNG.choice(["a", "b"], 80), "left": ["yes", "no"] * 40})


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_an_exported_program_scores_as_the_model_does(tmp_path: Path) -> None:
    model = TableClassifier("f1", "cross-entropy", "mlp", Recipe(warmup=9, rounds=0)).fit(FRAME, "left")
    save(model, tmp_path / "model")
    done = CliRunner().invoke(app, ["export", str(tmp_path / "model"), "--out", str(tmp_path / "left.pt2")])
    assert done.exit_code == 0, done.output
    assert "3 features" in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["left.pt2", "model"]
    inside = {NAMES: ""}
    program = torch.export.load(tmp_path / "left.pt2", extra_files=inside).module()
    assert json.loads(inside[NAMES]) == ["age", "plan = a", "plan = b"]
    for rows in (1, 3, 80):
        features = model.pipeline_[0].transform(FRAME.head(rows))
        scores = program(torch.from_numpy(features)).detach().numpy()
        np.testing.assert_allclose(scores, model.decision_function(FRAME.head(rows)), atol=1e-9)
