"""Boosted trees, the rival of another family of models: LightGBM, as many trees as validation rows ask for."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple

import torch
from torch import Tensor

from metricgrad.training.data import Rows

NAME = "lightgbm"
"""What the method is called."""
MOST, PATIENCE = 2_000, 100
"""Trees at most, and trees without a gain on validation rows after which growing stops."""


class Scores(NamedTuple):
    """Raw scores of the validation rows and of the test rows, each `(rows,)`."""

    validation: Tensor
    test: Tensor


def can_grow() -> bool:
    """Say whether LightGBM is installed."""
    return importlib.util.find_spec("lightgbm") is not None


def grow_trees(rows: Rows, validation: Rows, test: Tensor, seed: int) -> Scores:
    """Grow trees by cross-entropy on some rows, stop by that of the validation rows, and score both other parts."""
    if not can_grow():
        raise ImportError(f"method: {NAME!r} needs LightGBM: pip install metricgrad[trees]")
    import lightgbm

    train, kept = (lightgbm.Dataset(part.x.numpy(), part.y.numpy()) for part in (rows, validation))
    how = {"objective": "binary", "learning_rate": 0.05, "num_threads": 1, "seed": seed, "verbosity": -1}
    stop = lightgbm.early_stopping(PATIENCE, verbose=False)
    trees = lightgbm.train(how, train, num_boost_round=MOST, valid_sets=[kept], callbacks=[stop])
    return Scores(*(torch.as_tensor(trees.predict(x.numpy(), raw_score=True)) for x in (validation.x, test)))
