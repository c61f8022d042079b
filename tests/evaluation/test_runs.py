"""The runner: the same for `compare` and the paper's experiments, trees as LightGBM has them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss

from metricgrad import compare
from metricgrad.evaluation.runs import grow_trees
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


def best_trees(rows: Rows) -> tuple[lightgbm.Booster, int]:
    """Grow 250 trees without stopping, and count those after which the cross-entropy of some rows is least."""
    how = {"objective": "binary", "learning_rate": 0.05, "num_threads": 1, "seed": SEED, "verbosity": -1}
    trees = lightgbm.train(how, lightgbm.Dataset(TRAIN.x.numpy(), TRAIN.y.numpy()), num_boost_round=250)
    shares = [trees.predict(rows.x.numpy(), num_iteration=count) for count in range(1, 251)]
    return trees, 1 + int(np.argmin([log_loss(rows.y.numpy(), share) for share in shares]))


def test_there_are_as_many_trees_as_lose_least_on_the_validation_rows_and_test_rows_have_no_say() -> None:
    trees, count = best_trees(VALIDATION)
    _, misled = best_trees(FLIPPED)
    assert 1 < count < 150  # growing stops 100 trees later: within the 250
    assert misled == 1
    found = grow_trees(TRAIN, VALIDATION, FLIPPED.x, SEED)
    for scores, rows in ((found.validation, VALIDATION), (found.test, FLIPPED)):
        expected = trees.predict(rows.x.numpy(), raw_score=True, num_iteration=count)
        np.testing.assert_allclose(scores.numpy(), expected, rtol=1e-12)


def test_a_comparison_and_an_experiment_of_the_paper_train_and_score_the_same_models() -> None:
    changes = (("check_every", 2), ("rounds", 4), ("trust_cap", 50), ("warmup", 6))
    methods = ("sl-r", "cross-entropy", "cost-sensitive", "lightgbm")
    data, recipe = load_dataset("breast_cancer"), get_recipe("default", **dict(changes))
    result = compare(data.X, data.y, "f1", baselines=methods[1:], model="linear", recipe=recipe, splits=2, n_jobs=1)
    runs = [Run("breast_cancer", "f1", method, 1, model="linear", changes=changes) for method in methods]
    outcomes = {run["method"]: outcome for job in jobs_of(runs) for run, outcome in execute(job)}
    for method in methods:
        assert result.of(method)[1].loss == outcomes[method]["test"]["honest"]["f1"]
