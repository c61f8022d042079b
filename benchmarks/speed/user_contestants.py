"""What a user would run on a table of two classes: each is fitted on training rows and returns a judge of test rows.

Whoever needs a threshold chooses it exactly, for F1, on a fifth of the training rows that it does not learn from, as
`MetricClassifier` does. Fitting, choosing and whatever is standardised are all part of the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.speed.measuring import wide
from metricgrad import MetricClassifier, best_threshold
from metricgrad.paper.experiments import prepared
from metricgrad.training.networks import MODELS, build_model

TREES, LOGISTIC, LIBAUC = "LightGBM, 200 trees", "LogisticRegression + threshold", "LibAUC, AUCM + PESG"
OLD_RECIPE, OLD_RECIPE_MODELS = "F1 by the recipe of 0.1", ("linear", "mlp")
"""What times are compared with: as many steps as version 0.1 took, by the code of today."""
WIDE = "mlp, ten times wider"
LIBAUC_STEPS, LIBAUC_ROWS = 1_500, 128
"""Steps and rows of a batch of LibAUC: some ten passes over the table."""


class Data(NamedTuple):
    """Training and test rows."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


Fit = Callable[[Data], float]
"""Fits on training rows and returns the metric on test rows."""


def made_up(rows: int = 20_000, features: int = 30, classes: int = 2, seed: int = 0) -> Data:
    """Return a synthetic table that a linear model cannot fit, one row in ten positive, and as many test rows."""
    share = [0.9] if classes == 2 else None
    X, y = make_classification(
        2 * rows, features, n_informative=10, n_classes=classes, weights=share, class_sep=0.7, random_state=seed
    )
    X = X.astype(np.float32)
    return Data(X[:rows], y[:rows], X[rows:], y[rows:])


def real(rows: int = 20_000) -> Data:
    """Return rows of ijcnn1."""
    parts = prepared("ijcnn1", 0, standardise=True)
    some = torch.randperm(len(parts.train.y), generator=torch.Generator().manual_seed(0))[:rows]
    columns = parts.train.x[some], parts.train.y[some], parts.test.x, parts.test.y
    return Data(*(column.numpy() for column in columns))


def f1_at_threshold(data: Data, fit: Callable[[np.ndarray, np.ndarray], Callable[[np.ndarray], np.ndarray]]) -> float:
    """Fit on four fifths, choose the threshold on the others, and return F1 on test rows."""
    X, X_kept, y, y_kept = train_test_split(data.X, data.y, test_size=0.2, stratify=data.y, random_state=0)
    scores = fit(X, y)
    cut = best_threshold("f1", scores(X_kept), y_kept)
    return float(f1_score(data.y_test, scores(data.X_test) >= float(cut)))


def trees(data: Data) -> float:
    """Fit LightGBM."""
    from lightgbm import LGBMClassifier

    def fit(X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        model = LGBMClassifier(n_estimators=200, n_jobs=1, verbosity=-1, random_state=0).fit(X, y)
        return lambda rows: np.asarray(model.booster_.predict(rows, raw_score=True, num_threads=1))

    return f1_at_threshold(data, fit)


def logistic(data: Data) -> float:
    """Fit a logistic regression to standardised features."""

    def fit(X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X, y).decision_function

    return f1_at_threshold(data, fit)


def libauc(data: Data) -> float:
    """Train the paper's network on the AUCM loss of LibAUC, in a loop as its documentation has it."""
    from libauc.losses import AUCMLoss
    from libauc.optimizers import PESG

    def fit(X: np.ndarray, y: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        torch.manual_seed(0)
        scale, loss = StandardScaler().fit(X), AUCMLoss()
        x, targets = torch.from_numpy(scale.transform(X)).float(), torch.from_numpy(y).float()
        model = build_model("mlp", x.shape[1]).train()
        optimizer = PESG(model.parameters(), loss_fn=loss, lr=0.1, momentum=0.9, epoch_decay=2e-3, verbose=False)
        for _ in range(LIBAUC_STEPS):
            some = torch.randint(len(targets), (LIBAUC_ROWS,))
            optimizer.zero_grad()
            loss(model(x[some]).sigmoid(), targets[some]).backward()
            optimizer.step()
        model.eval()

        def scores(rows: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                return np.asarray(model(torch.from_numpy(scale.transform(rows)).float()))

        return scores

    return f1_at_threshold(data, fit)


def ours(model: Any, method: str = "sl-r", metric: Any = "f1", recipe: str = "default", seed: int = 0) -> Fit:
    """Fit a `MetricClassifier`; its own `score` is the metric."""

    def fit(data: Data) -> float:
        found = MetricClassifier(metric, method, model, recipe, random_state=seed).fit(data.X, data.y)
        return float(found.score(data.X_test, data.y_test))

    return fit


def binary_contestants() -> tuple[dict[str, Fit], dict[str, str]]:
    """Return all that can be run here, and why the others are missing."""
    found: dict[str, Fit] = {TREES: trees, LOGISTIC: logistic, LIBAUC: libauc}
    missing = {}
    for name, package in ((TREES, "lightgbm"), (LIBAUC, "libauc")):
        try:
            __import__(package)
        except ImportError as error:
            missing[name] = str(error)
            del found[name]
    models = {**{name: name for name in ("linear", "additive", "small", "mlp") if name in MODELS}, WIDE: wide(10)}
    for name, model in models.items():
        found[f"cross-entropy: {name}"] = ours(model, "cross-entropy")
        found[f"F1: {name}"] = ours(model)
    for name in OLD_RECIPE_MODELS:
        found[f"{OLD_RECIPE}: {name}"] = ours(name, recipe="default-0.1")
    return found, missing
