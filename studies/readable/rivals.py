"""Readable models of others, aimed at log loss: EBM, optimal bins and logistic regression."""

from __future__ import annotations

import warnings
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegressionCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from metricgrad.training.splits import Split, split

Array = NDArray[np.float64]
BAGS, HELD_OUT = 14, 0.15
"""Of EBM, by its defaults."""
STRENGTHS = 10
"""Ridge penalties that logistic regression tries."""


class Judged(NamedTuple):
    """Scores of test rows, and those rows, with their scores, that a threshold is chosen on; none if it is chosen."""

    test: Array
    tuning: Array | None = None
    tuning_rows: NDArray[np.int64] | None = None


def ebm(X: Array, y: Array, parts: Split, seed: int, interactions: Any) -> Judged:
    """Fit EBM to training and validation rows.

    Each of its 14 bags holds some rows out, to stop early; a row's score for the threshold is the mean of the bags
    that held it out.
    """
    from interpret.glassbox import ExplainableBoostingClassifier

    known = np.sort(np.concatenate((parts.train, parts.validation)))
    bags = bags_of(y[known], seed)
    model = ExplainableBoostingClassifier(interactions=interactions, outer_bags=BAGS, n_jobs=1, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[known], y[known], bags=bags)
        by_bag = np.stack([_of_bag(model, bag).decision_function(X[known]) for bag in range(BAGS)], 1)
        test = model.decision_function(X[parts.test])
    scores, held_out = out_of_bag(by_bag, bags)
    return Judged(test, scores, known[held_out])


def bags_of(y: Array, seed: int) -> NDArray[np.int8]:
    """Return 1 where a row is in a bag and -1 where the bag holds it out, `(rows, bags)`, classes in proportion."""
    bags = np.ones((len(y), BAGS), np.int8)
    for bag in range(BAGS):
        bags[split(y, 1_000 * seed + bag, test=HELD_OUT, validation=0).test, bag] = -1
    return bags


def out_of_bag(by_bag: Array, bags: NDArray[np.int8]) -> tuple[Array, NDArray[np.bool_]]:
    """Return the mean score of the bags that held a row out, of all rows that any did, and which rows these are."""
    out = bags < 0
    some = out.any(1)
    return (by_bag * out).sum(1)[some] / out.sum(1)[some], some


def _of_bag(model: Any, bag: int) -> Any:
    """Return one of the models that EBM is the average of."""
    one = copy(model)
    one.term_scores_ = [scores[bag] for scores in model.bagged_scores_]
    one.intercept_ = model.bagged_intercept_[bag : bag + 1]
    return one


def logistic_regression(X: Array, y: Array, parts: Split, seed: int) -> Judged:
    """Fit logistic regression to training rows, its ridge penalty by their cross-validated log loss."""
    model = make_pipeline(StandardScaler(), _regression(seed))
    return _fitted(model, X, y, parts)


def optimal_bins(X: Array, y: Array, parts: Split, seed: int) -> Judged:
    """Fit logistic regression on the weight of evidence of optimal bins (optbinning with its defaults)."""
    from optbinning import BinningProcess

    names = [f"x{number}" for number in range(X.shape[1])]
    return _fitted(make_pipeline(_Bins(BinningProcess(names)), StandardScaler(), _regression(seed)), X, y, parts)


class _Bins:
    """A binning process as a step of a pipeline."""

    def __init__(self, process: Any) -> None:
        self.process = process

    def fit(self, X: Array, y: Array) -> _Bins:
        self.process.fit(X, y)
        return self

    def fit_transform(self, X: Array, y: Array) -> Array:
        return self.fit(X, y).transform(X)

    def transform(self, X: Array) -> Array:
        return np.asarray(self.process.transform(X, metric="woe"), float)


def _regression(seed: int) -> LogisticRegressionCV:
    return LogisticRegressionCV(Cs=STRENGTHS, cv=5, scoring="neg_log_loss", max_iter=1_000, random_state=seed)


def _fitted(model: Pipeline, X: Array, y: Array, parts: Split) -> Judged:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[parts.train], y[parts.train])
        test, tuning = (model.decision_function(X[rows]) for rows in (parts.test, parts.validation))
    return Judged(test, tuning, parts.validation)
