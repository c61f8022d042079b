"""The thirty tables of Abdelhamid and Desai (2024), which several studies read from METRICGRAD_DATA/rt30."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad import MetricClassifier
from metricgrad.training.splits import split


class UserSplit(NamedTuple):
    """Rows that a user has, some of which are for validation, and rows that are judged once."""

    X: NDArray[Any]
    y: NDArray[Any]
    validation: NDArray[Any]
    test_X: NDArray[Any]
    test_y: NDArray[Any]


def thirty_tables() -> dict[str, Path]:
    """Return the files of the tables by name."""
    return {path.stem: path for path in sorted((Path(os.environ["METRICGRAD_DATA"]) / "rt30").glob("*.parquet"))}


@lru_cache(maxsize=1)
def table(name: str) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return features and targets of a table."""
    frame = pd.read_parquet(thirty_tables()[name])
    return frame.drop(columns=["target", "fold"]).to_numpy(float), frame["target"].to_numpy()


def user_split(name: str, seed: int) -> UserSplit:
    """Split a table as a user would: a fifth to test, and of the others a fifth for validation, as a mask."""
    X, y = table(name)
    parts = split(y, seed)
    mine = np.sort(np.concatenate((parts.train, parts.validation)))
    return UserSplit(X[mine], y[mine], np.isin(mine, parts.validation), X[parts.test], y[parts.test])


def fitted(rows: UserSplit, model: Any, seed: int) -> MetricClassifier:
    """Fit a model by cross-entropy as a user would, with the threshold that is best for F1 on the validation rows.

    By cross-entropy only the threshold depends on the metric.
    """
    classifier = MetricClassifier("f1", "cross-entropy", model, random_state=seed)
    return classifier.fit(rows.X, rows.y, validation=rows.validation)
