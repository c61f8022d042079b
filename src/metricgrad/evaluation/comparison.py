"""`compare`: a method against its rivals on a user's own table, over repeated splits."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse
from sklearn.utils import check_array

from metricgrad.estimators.metric_estimator import DTYPES, METHODS, make_loss
from metricgrad.evaluation.comparison_result import ComparisonResult
from metricgrad.evaluation.grid import JobsFailed, run_grid
from metricgrad.evaluation.runs import Problem, Trial, run_split
from metricgrad.evaluation.trees import NAME as TREES
from metricgrad.evaluation.trees import can_grow
from metricgrad.losses.binary import BASELINES
from metricgrad.metrics.registry import get_metric
from metricgrad.reporting.progress import work_bar
from metricgrad.tabular.leaks import leaking
from metricgrad.tabular.schema import Schema, infer_columns
from metricgrad.tabular.table_classifier import as_frame
from metricgrad.tabular.target import check_column, infer_target
from metricgrad.training.recipe import Recipe, get_recipe

RIVALS = ("cross-entropy", "balanced", "focal", TREES)
"""Whom a method has to beat: cross-entropy above all, then class weights, the focal loss, and trees."""
SPLITS = 6
"""Splits by default: more narrow the interval little, for all of them share their rows."""
LEAST = 10
"""Rows of each class that a comparison needs."""


def compare(
    X: Any,
    y: Any,
    metric: Any = "f1",
    *,
    method: str = "sl-r",
    rivals: Sequence[str] | None = None,
    model: Any = "mlp",
    recipe: Recipe | str = "default",
    groups: Any = None,
    splits: int = SPLITS,
    test: float = 0.2,
    validation: float = 0.2,
    positive: Any = None,
    ignore: Collection[str] = (),
    random_state: int = 0,
    n_jobs: int | None = None,
    name: str = "data",
    verbose: bool = False,
) -> ComparisonResult:
    """Train a method and its rivals on repeated splits of a table, and say whether it is better.

    Every split has training, validation and test rows. Columns are prepared on training rows; checkpoints, thresholds
    and numbers of trees are chosen on validation rows; test rows are looked at once. Splits overlap, so that intervals
    are those of the corrected resampled t (Nadeau and Bengio 2003).

    Parameters
    ----------
    X : DataFrame of pandas or polars, array or sparse matrix of shape (rows, features)
        Features; the columns of a frame may be numbers, categories, dates or yes and no, with gaps.
    y : str or array-like of shape (rows,)
        The labels, two of them, or the name of the column of a frame that holds them.
    metric : str, Metric, torchmetrics object, scorer or callable
        What models are judged by.
    method : str
        The method to judge: a mode of `MetricClassifier` or a baseline.
    rivals : sequence of str, optional
        Whom it has to beat, the first above all. By default cross-entropy, class weights, the focal loss and, if
        LightGBM is installed, trees; all with an exact threshold.
    model, recipe : any
        Of all networks: see `MetricClassifier`.
    groups : str or array-like, optional
        What each row belongs to: a column of a frame, or values. No group is in two parts of a split.
    splits : int
        How often the rows are split anew; at least two.
    test, validation : float
        Share of test rows, and of validation rows among the others.
    positive : label, optional
        The positive one. If not given: yes of yes and no, the larger of two numbers, the rarer of two words.
    ignore : collection of str
        Columns of a frame to leave out.
    random_state : int
        Seed of the first split; the others count up from it.
    n_jobs : int, optional
        Splits at a time, one process each; None is one a core.
    name : str
        How to call the data.
    verbose : bool
        Show a progress bar.

    Returns
    -------
    ComparisonResult

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from metricgrad import Recipe, compare
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> short = Recipe(warmup=30, rounds=10, trust_cap=50)
    >>> found = compare(X, y, rivals=["cross-entropy"], model="linear", recipe=short, splits=2, n_jobs=1)
    >>> found.values("cross-entropy").shape
    (2,)
    """
    known, how = get_metric(metric), get_recipe(recipe)
    _check_numbers(splits, test, validation, random_state)
    methods, remarks = _methods(method, rivals)
    features, cells, grouped, schema = _columns(X, y, groups, ignore)
    target, said = infer_target(cells, str(cells.name), positive)
    targets = target.classes(cells)
    there = np.flatnonzero(np.isfinite(targets))
    if len(there) < len(targets):
        remarks = (f"left out, for they have no target: {len(targets) - len(there):,} rows", *remarks)
    features, targets = features.iloc[there] if schema else features[there], targets[there].astype(np.int8)
    fewest = int(min(targets.sum(), len(targets) - targets.sum()))
    if fewest < LEAST:
        raise ValueError(f"y: expected at least {LEAST} rows of each class to compare methods, got {fewest}")
    if schema:
        leaks = leaking(features, schema.used, targets.astype(float))
        told = (f"{name!r} alone tells the target (AUC {auc:.4f}): was it filled in later?" for name, auc in leaks)
        remarks = (*schema.describe(), *told, *remarks)
    own = None if grouped is None else pd.factorize(grouped.iloc[there])[0]
    problem = Problem(features, targets, own, schema, known, how, model, methods, test, validation)
    trials = _trials(problem, range(random_state, random_state + splits), n_jobs, verbose)
    return ComparisonResult(
        known,
        methods,
        trials,
        (target.negative, target.positive),
        len(targets),
        len(schema.used) if schema else features.shape[1],
        int(targets.sum()),
        test,
        validation,
        model if isinstance(model, str) else type(model).__name__,
        how.name,
        name,
        (said, *remarks),
    )


def _trials(problem: Problem, seeds: range, n_jobs: int | None, verbose: bool) -> tuple[Trial, ...]:
    """Do all splits, some at a time, and return the trials of all in their order."""
    found: dict[int, list[Trial]] = {}
    with work_bar() if verbose else nullcontext() as report:
        for method in (m for m in problem.methods if m in METHODS):
            make_loss(method, problem.metric, problem.recipe, report)  # what is fitted first is fitted once, and cached
        if report:
            report("splits", 0, len(seeds))
        try:
            for seed, trials in run_grid(seeds, partial(run_split, problem), n_jobs=n_jobs):
                found[seed] = trials
                if report:
                    report("splits", len(found), len(seeds))
        except JobsFailed as error:
            raise ValueError(f"compare: a split failed: {error.failures[0].reason}") from error
    return tuple(trial for seed in seeds for trial in found[seed])


def _check_numbers(splits: Any, test: Any, validation: Any, random_state: Any) -> None:
    for name, count, least in (("splits", splits, 2), ("random_state", random_state, 0)):
        if type(count) is not int or count < least:
            raise ValueError(f"{name}: expected a whole number of at least {least}, got {count!r}")
    for name, share in (("test", test), ("validation", validation)):
        if not isinstance(share, float) or not 0 < share < 1:
            raise ValueError(f"{name}: expected a number between 0 and 1, got {share!r}")


def _methods(method: str, rivals: Sequence[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the method and its rivals, and what there is to say about one that is left out."""
    wanted = [rival for rival in RIVALS if rival != method] if rivals is None else list(rivals)
    left_out = rivals is None and TREES in wanted and not can_grow()
    if left_out:
        wanted.remove(TREES)
    allowed = (*METHODS, *BASELINES, TREES)
    for name, given in (("method", method), *(("rivals", rival) for rival in wanted)):
        if given not in allowed:
            raise ValueError(f"{name}: expected one of {', '.join(allowed)}, got {given!r}")
    if not wanted or len({method, *wanted}) < len(wanted) + 1:
        raise ValueError(f"rivals: expected at least one, each once and not {method!r} itself, got {wanted!r}")
    said = "LightGBM is left out, for it is not installed: pip install metricgrad[trees]"
    return (method, *wanted), (said,) if left_out else ()


def _columns(
    X: Any, y: Any, groups: Any, ignore: Collection[str]
) -> tuple[Any, pd.Series[Any], pd.Series[Any] | None, Schema | None]:
    """Return features, target, groups and, of a frame, what its columns are."""
    plain = isinstance(X, (np.ndarray, list, tuple)) or scipy.sparse.issparse(X)
    frame = None if plain else as_frame(X)
    for argument, given in (("target", y), ("group", groups)):
        if isinstance(given, str):
            check_column(given, [] if frame is None else list(frame.columns), argument)
    features = check_array(X, accept_sparse="csr", dtype=DTYPES, input_name="X") if frame is None else frame
    named = [given for given in (y, groups) if isinstance(given, str)]
    cells = {name: _cells(given, features, name) for name, given in (("y", y), ("groups", groups)) if given is not None}
    if frame is None:
        return features, cells["y"], cells.get("groups"), None
    frame = frame.drop(columns=named)
    return frame, cells["y"], cells.get("groups"), infer_columns(frame, ignore)


def _cells(given: Any, features: Any, name: str) -> pd.Series[Any]:
    """Return a column by name, or values of one's own, one a row."""
    label = getattr(given, "name", None) or name
    cells: pd.Series[Any] = features[given] if isinstance(given, str) else pd.Series(np.asarray(given), name=label)
    if len(cells) != features.shape[0]:
        raise ValueError(f"{name}: expected one for each of {features.shape[0]:,} rows, got {len(cells):,}")
    return cells
