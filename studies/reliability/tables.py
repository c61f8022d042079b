"""A small table with every kind of column, and models of it: what files to be damaged are made from."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd

from metricgrad import Recipe, TableClassifier, save

MODELS = ("linear", "small", "mlp")
TARGET = "churn"
QUICK = Recipe(warmup=20, rounds=0, learning_rate=0.05)


def small_table(rows: int = 120, seed: int = 0) -> pd.DataFrame:
    """Return a table with an id, numbers with gaps, categories, yes or no, dates and a target of two words."""
    rng = np.random.default_rng(seed)
    number = rng.normal(40, 9, rows)
    return pd.DataFrame(
        {
            "id": [f"u{i}" for i in range(rows)],
            "age": np.where(rng.random(rows) < 0.1, np.nan, number.round(3)),
            "plan": rng.choice(["a", "b", "c"], rows),
            "vip": rng.choice(["yes", "no"], rows),
            "joined": pd.date_range("2020-01-01", periods=rows, freq="11h").strftime("%d/%m/%Y"),
            TARGET: np.where(number + rng.normal(0, 9, rows) > 42, "left", "stayed"),
        }
    )


def fitted(name: str = "linear", seed: int = 0) -> TableClassifier:
    """Return a model of the small table, trained for a moment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = TableClassifier("f1", "cross-entropy", name, QUICK, random_state=seed)
        return model.fit(small_table(seed=seed), TARGET)


def save_models(folder: Path) -> None:
    """Save a model of every kind, and rows to try it on."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        save(fitted(name), folder / name)
    small_table(5, seed=1).to_csv(folder / "data.csv", index=False)
