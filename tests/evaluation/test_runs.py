"""The runner: the same for `compare` and the paper's experiments, trees as LightGBM has them."""

from __future__ import annotations

import pytest
import torch
from sklearn.datasets import make_classification

from metricgrad import compare
from metricgrad.paper.datasets import load_dataset
from metricgrad.paper.experiments import Run, execute, jobs_of
from metricgrad.training.data import Rows
from metricgrad.training.recipe import get_recipe

lightgbm = pytest.importorskip("lightgbm")

X, Y = make_classification(900, 8, n_informative=3, flip_y=0.2, random_state=0)
SEED = 3


def part(places: slice, flipped: bool = False) -> Rows:
    y = 1 - Y[places] if flipped else Y[places]
    return Rows(torch.as_tensor(X[places], dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32))


TRAIN, VALIDATION, FLIPPED = part(slice(0, 400)), part(slice(400, 600)), part(slice(600, 900), flipped=True)


def test_a_comparison_and_an_experiment_of_the_paper_train_and_score_the_same_models() -> None:
    changes = (("check_every", 2), ("rounds", 4), ("trust_cap", 50), ("warmup", 6))
    methods = ("sl-r", "cross-entropy", "cost-sensitive", "lightgbm")
    data, recipe = load_dataset("breast_cancer"), get_recipe("default", **dict(changes))
    result = compare(data.X, data.y, "f1", baselines=methods[1:], model="linear", recipe=recipe, splits=2, n_jobs=1)
    runs = [Run("breast_cancer", "f1", method, 1, model="linear", changes=changes) for method in methods]
    outcomes = {run["method"]: outcome for job in jobs_of(runs) for run, outcome in execute(job)}
    for method in methods:
        assert result.of(method)[1].loss == outcomes[method]["test"]["honest"]["f1"]
