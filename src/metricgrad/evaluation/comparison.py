"""`compare`: a method against baselines on a user's own table, over repeated splits."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array

from metricgrad.estimators.metric_columns import learn_columns
from metricgrad.estimators.metric_estimator import FLOAT_DTYPES
from metricgrad.evaluation.comparison_result import ComparisonResult, Trial
from metricgrad.evaluation.diagnostics import diagnose
from metricgrad.evaluation.grid import JobsFailed, run_grid
from metricgrad.evaluation.runs import CONTROL, TrainedMethod, split_table, train_methods
from metricgrad.losses.binary import BASELINES
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.reporting.progress import work_bar
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.tabular.leaks import leaking_columns
from metricgrad.tabular.metric_cells import metric_cells, metric_columns
from metricgrad.tabular.schema import Schema, as_frame, infer_columns
from metricgrad.tabular.target import check_column
from metricgrad.tabular.target_inference import infer_target
from metricgrad.training.data import Parts
from metricgrad.training.loader import SetLoader, may_weigh
from metricgrad.training.methods import METHODS, make_loss
from metricgrad.training.networks import TREES, kind_of
from metricgrad.training.recipe import Recipe, recipe_for
from metricgrad.training.selection import exact_scores
from metricgrad.training.trees import has_lightgbm

Array = NDArray[Any]
DEFAULT_BASELINES = (CONTROL, "balanced", "focal", TREES)
"""What a method has to beat: cross-entropy above all, then class weights, the focal loss, and trees."""
DEFAULT_SPLITS = 6
"""More splits narrow the interval little, because all of them share their rows."""
MIN_COMPARED_ROWS_PER_CLASS = 10
FIDELITY_SETS = 48
"""Fresh sets of validation rows on which a surrogate is finally compared with its metric."""


def compare(
    X: Any,
    y: Any,
    metric: Any = "f1",
    *,
    method: str = "sl-r",
    baselines: Sequence[str] | None = None,
    model: Any = "mlp",
    recipe: Recipe | str = "default",
    groups: Any = None,
    columns: Mapping[str, Any] | None = None,
    column_features: bool = False,
    splits: int = DEFAULT_SPLITS,
    test: float = 0.2,
    validation: float = 0.2,
    positive: Any = None,
    ignore: Collection[str] = (),
    random_state: int = 0,
    n_jobs: int | None = None,
    name: str = "data",
    verbose: bool = False,
    rivals: Sequence[str] | None = None,
) -> ComparisonResult:
    """Train a method and baselines on repeated splits of a table, and test whether the method is better.

    Every split has training, validation and test rows. Columns are encoded on training rows; checkpoints, thresholds
    and numbers of trees are chosen on validation rows; test rows are used once. Splits overlap, so intervals are those
    of the corrected resampled t (Nadeau and Bengio 2003).

    Parameters
    ----------
    X : DataFrame of pandas or polars, array or sparse matrix of shape (rows, features)
        Features; the columns of a data frame may be numbers, categories, dates or yes and no, with missing values.
    y : str or array-like of shape (rows,)
        The labels, two of them, or the name of the column of a data frame that holds them.
    metric : str, Metric, torchmetrics object, scorer or callable
        What models are judged by.
    method : str
        The method to judge: a mode of `MetricClassifier` or a baseline.
    baselines : sequence of str, optional
        What it has to beat, the first above all. By default cross-entropy, class weights, the focal loss and, if
        LightGBM is installed, trees; all with an exact threshold.
    model, recipe : any
        Of all networks: see `MetricClassifier`.
    groups : str or array-like, optional
        The group of each row: a column of a data frame, or values. No group is in two parts of a split.
    columns : mapping of str to str or array-like, optional
        What each name in the metric stands for: a column of a data frame, by default that of its name, or values.
    column_features : bool
        Whether columns of a data frame that the metric needs are features too.
    splits : int
        Number of random splits; at least two.
    test, validation : float
        Share of test rows, and of validation rows among the others.
    positive : label, optional
        The positive label. By default: yes of yes and no, the larger of two numbers, the rarer of two words.
    ignore : collection of str
        Columns of a data frame to leave out.
    random_state : int
        Seed of the first split; the others count up from it.
    n_jobs : int, optional
        Splits at a time, one process each; None is one per core.
    name : str
        Name of the data in the report.
    verbose : bool
        Show a progress bar.
    rivals : sequence of str, optional
        Deprecated name of `baselines`.

    Returns
    -------
    ComparisonResult

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from metricgrad import Recipe, compare
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> short = Recipe(warmup=30, rounds=10, trust_cap=50)
    >>> found = compare(X, y, baselines=["cross-entropy"], model="linear", recipe=short, splits=2, n_jobs=1)
    >>> found.values("cross-entropy").shape
    (2,)
    """
    if rivals is not None:
        warnings.warn("compare: the argument 'rivals' is deprecated: use 'baselines'", DeprecationWarning, stacklevel=2)
        baselines = rivals
    judge, how = get_metric(metric), recipe_for(recipe, kind_of(model))
    _check_numbers(splits, test, validation, random_state)
    methods, left_out = _methods(method, baselines)
    features, known = _without_metric_columns(X, judge, columns, column_features)
    table = _read_table(features, y, groups, ignore, positive)
    judge, _, of_metric = learn_columns(
        {name: np.asarray(cells)[table.labelled] for name, cells in known.items()}, judge, table.targets
    )
    table = table._replace(columns=of_metric)
    plan = ComparisonPlan(table, judge, how, model, methods, test, validation)
    trials = _trials(plan, range(random_state, random_state + splits), n_jobs, verbose)
    return ComparisonResult(
        metric=judge,
        methods=methods,
        trials=trials,
        classes=table.classes,
        rows=len(table.targets),
        features=len(table.schema.used) if table.schema else table.X.shape[1],
        positives=int(table.targets.sum()),
        test=test,
        validation=validation,
        model=model if isinstance(model, str) else type(model).__name__,
        recipe=how.name,
        name=name,
        remarks=(*table.remarks, *left_out),
    )


# ---- one split -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ComparisonPlan:
    """What is compared, and how: the same in every split. `validation` is a share of the rows not in test."""

    table: UserTable
    metric: Metric
    recipe: Recipe
    model: Any
    methods: tuple[str, ...]
    test: float
    validation: float


def run_split(plan: ComparisonPlan, seed: int) -> list[Trial]:
    """Train every method on one split and judge each on its test rows."""
    parts = split_table(
        plan.table.X,
        plan.table.targets,
        seed,
        standardise=plan.recipe.standardise,
        test=plan.test,
        validation=plan.validation,
        groups=plan.table.groups,
        schema=plan.table.schema,
        columns=plan.table.columns,
    )
    trained = train_methods(parts, [(method, plan.metric) for method in plan.methods], plan.recipe, plan.model, seed)
    return [_judge(one, parts, plan.recipe, seed) for one in trained]


def _judge(one: TrainedMethod, parts: Parts, recipe: Recipe, seed: int) -> Trial:
    """Choose the threshold on the validation rows, and look at the test rows."""
    metric, threshold = one.metric, 0.0
    if metric.decides and recipe.form != "zero":
        threshold = best_threshold(getattr(one.loss, "judge", metric), one.scores.validation, parts.validation.y)
    diagnosis = diagnose(metric, one.scores.test, parts.test.y, threshold)
    followed = one.verdict is None or one.verdict.followed
    fidelity = _fidelity_pairs(one, parts, recipe, seed)
    return Trial(seed, one.method, threshold, one.seconds, diagnosis, followed, one.history, fidelity)


@torch.no_grad()
def _fidelity_pairs(one: TrainedMethod, parts: Parts, recipe: Recipe, seed: int) -> Array | None:
    """Return true and surrogate losses of fresh sets of validation rows, `(2, sets)`; None without a surrogate."""
    loss, model = one.loss, one.model
    if model is None or not isinstance(loss, SurrogateLoss):
        return None
    weighted = may_weigh([one.metric], parts.validation)
    sets = SetLoader(parts.validation, recipe, seed, weighted, one.metric.task)
    scores, y, w = sets.scored(lambda x: exact_scores(model, x).float(), FIDELITY_SETS, recipe.noise, "trust")
    w = torch.ones_like(scores) if w is None else w
    return torch.stack((loss.true(scores, y, w), loss.surrogate(scores, y, w))).double().numpy()


def _trials(plan: ComparisonPlan, seeds: range, n_jobs: int | None, verbose: bool) -> tuple[Trial, ...]:
    """Run all splits, some at a time, and return their trials in the order of the seeds."""
    found: dict[int, list[Trial]] = {}
    with work_bar() if verbose else nullcontext() as report:
        for method in (m for m in plan.methods if m in METHODS):
            make_loss(method, plan.metric, plan.recipe, report)  # a surrogate that must be pretrained is cached first
        if report:
            report("splits", 0, len(seeds))
        try:
            for seed, trials in run_grid(seeds, partial(run_split, plan), n_jobs=n_jobs):
                found[seed] = trials
                if report:
                    report("splits", len(found), len(seeds))
        except JobsFailed as error:
            raise ValueError(f"compare: a split failed: {error.failures[0].reason}") from error
    return tuple(trial for seed in seeds for trial in found[seed])


# ---- checking what is given ----------------------------------------------------------------------------------------


def _check_numbers(splits: Any, test: Any, validation: Any, random_state: Any) -> None:
    for name, count, least in (("splits", splits, 2), ("random_state", random_state, 0)):
        if type(count) is not int or count < least:
            raise ValueError(f"{name}: expected an integer of at least {least}, got {count!r}")
    for name, share in (("test", test), ("validation", validation)):
        if not isinstance(share, float) or not 0 < share < 1:
            raise ValueError(f"{name}: expected a number between 0 and 1, got {share!r}")


def _methods(method: str, baselines: Sequence[str] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the method and its baselines, and a remark if one of them is left out."""
    wanted = [name for name in DEFAULT_BASELINES if name != method] if baselines is None else list(baselines)
    left_out = baselines is None and TREES in wanted and not has_lightgbm()
    if left_out:
        wanted.remove(TREES)
    allowed = (*METHODS, *BASELINES, TREES)
    for argument, given in (("method", method), *(("baselines", name) for name in wanted)):
        if given not in allowed:
            raise ValueError(f"{argument}: expected one of {', '.join(allowed)}, got {given!r}")
    if not wanted or len({method, *wanted}) < len(wanted) + 1:
        raise ValueError(f"baselines: expected at least one, each once and not {method!r} itself, got {wanted!r}")
    remark = "LightGBM is left out because it is not installed: pip install metricgrad[trees]"
    return (method, *wanted), (remark,) if left_out else ()


class UserTable(NamedTuple):
    """The rows that have a target: features, targets of 0 or 1, groups, columns, labels, and remarks on them.

    `labelled` are their numbers among all rows, `columns` what the metric needs of them, `(rows, columns)`.
    """

    X: Any
    targets: Array
    groups: Array | None
    schema: Schema | None
    classes: tuple[Any, Any]
    remarks: tuple[str, ...]
    labelled: Array
    columns: Array | None = None


def _read_table(X: Any, y: Any, groups: Any, ignore: Collection[str], positive: Any) -> UserTable:
    """Check a table, and infer the columns of a data frame and the positive label."""
    features, cells, grouped, schema = _columns(X, y, groups, ignore)
    target, remark = infer_target(cells, str(cells.name), positive)
    targets = target.classes(cells)
    labelled = np.flatnonzero(np.isfinite(targets))
    dropped = len(targets) - len(labelled)
    features, targets = features.iloc[labelled] if schema else features[labelled], targets[labelled].astype(np.int8)
    fewest = int(min(targets.sum(), len(targets) - targets.sum()))
    if fewest < MIN_COMPARED_ROWS_PER_CLASS:
        raise ValueError(
            f"y: expected at least {MIN_COMPARED_ROWS_PER_CLASS} rows of each class to compare methods, got {fewest}"
        )
    remarks = [remark]
    if schema:
        remarks += schema.describe()
        for column, auc in leaking_columns(features, schema.used, targets.astype(float)):
            remarks.append(f"{column!r} alone predicts the target (AUC {auc:.4f}): was it filled in later?")
    if dropped:
        remarks.append(f"left out because they have no target: {dropped:,} rows")
    numbers = None if grouped is None else pd.factorize(grouped.iloc[labelled])[0]
    classes = (target.negative, target.positive)
    return UserTable(features, targets, numbers, schema, classes, tuple(remarks), labelled)


def _without_metric_columns(
    X: Any, metric: Metric, columns: Mapping[str, Any] | None, column_features: bool
) -> tuple[Any, dict[str, Any]]:
    """Return the features, and the cells that the metric needs of all rows; these are no features unless asked for."""
    if not metric.columns and not columns:
        return X, {}
    if isinstance(X, (np.ndarray, list, tuple)) or scipy.sparse.issparse(X):
        return X, dict(columns or {})
    frame = as_frame(X)
    known = metric_columns(metric.columns, columns, frame)
    own = [each for each in known.values() if isinstance(each, str)]
    cells = metric_cells(known, metric.groups, frame, slice(None))
    return frame if column_features else frame.drop(columns=list(dict.fromkeys(own))), cells


def _columns(
    X: Any, y: Any, groups: Any, ignore: Collection[str]
) -> tuple[Any, pd.Series[Any], pd.Series[Any] | None, Schema | None]:
    """Return features, target, groups and, for a data frame, the schema of its columns."""
    plain = isinstance(X, (np.ndarray, list, tuple)) or scipy.sparse.issparse(X)
    frame = None if plain else as_frame(X)
    for argument, given in (("target", y), ("group", groups)):
        if isinstance(given, str):
            check_column(given, [] if frame is None else list(frame.columns), argument)
    features = check_array(X, accept_sparse="csr", dtype=FLOAT_DTYPES, input_name="X") if frame is None else frame
    target = _aligned_cells(y, features, "y")
    grouped = None if groups is None else _aligned_cells(groups, features, "groups")
    if frame is None:
        return features, target, grouped, None
    frame = frame.drop(columns=[given for given in (y, groups) if isinstance(given, str)])
    return frame, target, grouped, infer_columns(frame, ignore)


def _aligned_cells(given: Any, features: Any, name: str) -> pd.Series[Any]:
    """Return a column by its name, or the values given, one per row."""
    label = getattr(given, "name", None) or name
    cells: pd.Series[Any] = features[given] if isinstance(given, str) else pd.Series(np.asarray(given), name=label)
    if len(cells) != features.shape[0]:
        raise ValueError(f"{name}: expected one for each of {features.shape[0]:,} rows, got {len(cells):,}")
    return cells
