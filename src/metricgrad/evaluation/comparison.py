"""`compare`: a method against baselines on a user's own table, over repeated splits."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from metricgrad.estimators.competing import competes
from metricgrad.estimators.metric_columns import learn_columns
from metricgrad.evaluation.comparison_result import ComparisonResult, Trial
from metricgrad.evaluation.diagnostics import diagnose
from metricgrad.evaluation.grid import JobsFailed, run_grid
from metricgrad.evaluation.runs import CONTROL, TrainedMethod, train_methods
from metricgrad.evaluation.user_table import (
    Given,
    UserTable,
    is_plain,
    metric_of_target,
    positives_of,
    read_user_table,
    without_metric_columns,
)
from metricgrad.losses.binary import BASELINES
from metricgrad.metrics.held_share import held_at_share
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.metrics.thresholds import best_offsets, best_threshold
from metricgrad.reporting.progress import work_bar
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.tabular.encoding import Preparation
from metricgrad.tabular.schema import as_frame
from metricgrad.tabular.target import ClassTarget
from metricgrad.training.data import Parts, TrainingData
from metricgrad.training.loader import SetLoader, may_weigh
from metricgrad.training.methods import AUTO, METHODS, make_loss
from metricgrad.training.networks import MODELS, TREES, kind_of
from metricgrad.training.recipe import Recipe, get_recipe, recipe_for
from metricgrad.training.selection import exact_scores
from metricgrad.training.splits import Split
from metricgrad.training.trees import has_lightgbm

Array = NDArray[Any]
DEFAULT_BASELINES = (CONTROL, "balanced", "focal", TREES)
"""What a method has to beat: cross-entropy above all, then class weights, the focal loss, and trees."""
DEFAULT_SPLITS = 6
"""More splits narrow the interval little, because all of them share their rows."""
FIDELITY_SETS = 48
"""Fresh sets of validation rows on which a surrogate is finally compared with its metric."""


def compare(
    X: Any,
    y: Any,
    metric: Any = "f1",
    *,
    method: str | None = None,
    baselines: Sequence[str] | None = None,
    model: Any = "mlp",
    recipe: Recipe | str = "default",
    groups: Any = None,
    times: Any = None,
    sample_weight: Any = None,
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
    y : str, list of str or array-like of shape (rows,) or (rows, labels)
        The target, or the name of the column of a data frame that holds it: two classes, several, several labels (a
        column each), numbers, or grades of the documents of queries, as the metric is for.
    metric : str, Metric, torchmetrics object, scorer or callable
        What models are judged by.
    method : str, optional
        The method to judge: a mode of `MetricClassifier`, by default `"sl-r"`, or a baseline; `"auto"` is what its
        `fit` does by default, strategies that compete on folds. Of numbers a method of `MetricRegressor`, by default
        `"auto"`.
    baselines : sequence of str, optional
        What it has to beat, the first above all. By default cross-entropy, class weights, the focal loss and, if
        LightGBM is installed, trees; all with an exact threshold. Of several classes or labels cross-entropy, with the
        best offsets; of numbers squared error, the usual losses and trees, each with its best constant; of rankings
        LambdaRank, ListNet, RankNet and trees.
    model, recipe : any
        Of all networks: see `MetricClassifier`.
    groups : str or array-like, optional
        The group of each row: a column of a data frame, or values. No group is in two parts of a split. Of rankings
        the query.
    times : str or array-like, optional
        The time of each row: a column of a data frame, or dates or numbers. Every split then trains on earlier rows and
        tests on the next later ones, blocks of the later half of the rows; `test` has no meaning.
    sample_weight : str or array-like, optional
        How much each row counts, in training and in the metric.
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
    judge = get_metric(metric)
    queries = judge.task.name == "ranking" and recipe == "default"
    how = get_recipe("queries") if queries else recipe_for(recipe, kind_of(model))
    _check_numbers(splits, test, validation, random_state)
    _check_model(model)
    frame = X if is_plain(X) else as_frame(X)
    features, known = without_metric_columns(frame, judge, columns, column_features)
    judge = metric_of_target(judge, y, features, positive)
    methods, left_out = _methods(method, baselines, judge)
    table = read_user_table(features, Given(y, groups, times, sample_weight), judge, ignore, positive)
    if table.weights is not None and not judge.takes_weights:
        raise ValueError(f"sample_weight: expected none because the metric {judge.name!r} takes none, got some")
    judge, _, of_metric = learn_columns(
        {name: np.asarray(cells)[table.labelled] for name, cells in known.items()}, judge, table.targets
    )
    table = table._replace(columns=of_metric)
    judge = judge if how.form == "zero" else held_at_share(judge, table.targets, of_metric, table.weights)
    plan = ComparisonPlan(table, judge, how, model, methods, test, validation, random_state, splits)
    trials = _trials(plan, range(random_state, random_state + splits), n_jobs, verbose)
    return ComparisonResult(
        metric=judge,
        methods=methods,
        trials=trials,
        classes=tuple(getattr(table.target, "labels", ())),
        rows=len(table.targets),
        features=len(table.schema.used) if table.schema else table.X.shape[1],
        positives=positives_of(table),
        test=plan.test_share,
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
    first: int
    splits: int

    def split(self, seed: int) -> Split:
        """Return the rows of a split, by its seed."""
        return self.table.split(seed, seed - self.first, self.splits, self.test, self.validation)

    @property
    def test_share(self) -> float:
        """The share of the rows of a split that are test rows: as asked for, or by time the mean over splits."""
        if self.table.times is None:
            return self.test
        parts = [self.split(self.first + number) for number in range(self.splits)]
        return float(np.mean([len(p.test) / (len(p.test) + len(p.train) + len(p.validation)) for p in parts]))


def run_split(plan: ComparisonPlan, seed: int) -> list[Trial]:
    """Train every method on one split and judge each on its test rows."""
    table, places = plan.table, plan.split(seed)
    X = table.X
    if table.schema is not None:
        X = Preparation(table.schema).fit(X.iloc[places.train]).transform(X)
    how: dict[str, Any] = {"metric": plan.metric, "methods": plan.methods, "model": plan.model, "seed": seed}
    if plan.metric.task.name == "ranking":
        from metricgrad.evaluation.ranking_runs import run_rankings

        assert table.groups is not None
        return run_rankings(X, table.targets, table.groups, places, recipe=plan.recipe, **how)
    if table.target.kind == "numbers":
        from metricgrad.evaluation.number_runs import run_numbers

        return run_numbers(X, table.targets, table.weights, table.columns, places, recipe=plan.recipe, **how)
    classes = len(table.target.labels) if isinstance(table.target, ClassTarget) else 0
    data = TrainingData(X, table.targets, table.weights, classes, table.columns)
    parts = data.split(places, plan.recipe.standardise)
    single = [(method, plan.metric) for method in plan.methods if method != AUTO]
    trained = train_methods(parts, single, plan.recipe, plan.model, seed)
    trials = {one.method: _judge(one, parts, plan.recipe, seed) for one in trained}
    if AUTO in plan.methods:
        from metricgrad.evaluation.competition_runs import run_competition

        kind = {"metric": plan.metric, "model": plan.model, "recipe": plan.recipe, "seed": seed}
        trials[AUTO] = run_competition(X, table, places, **kind)
    return [trials[method] for method in plan.methods]


def _judge(one: TrainedMethod, parts: Parts, recipe: Recipe, seed: int) -> Trial:
    """Choose the threshold, or the offsets, on the validation rows, and look at the test rows."""
    metric, threshold, kept, test = one.metric, 0.0, parts.validation, parts.test
    followed = one.verdict is None or one.verdict.followed
    fidelity = _fidelity_pairs(one, parts, recipe, seed)
    rest = (followed, one.history, fidelity)
    judge = getattr(one.loss, "judge", metric)
    decides = recipe.form != "zero"
    if metric.task.outputs:
        offsets: Any = best_offsets(judge, one.scores.validation, kept.y, kept.w) if decides else 0.0
        loss = float(metric(one.scores.test + offsets, test.y, test.w))
        return Trial(seed, one.method, float("nan"), one.seconds, None, *rest, test_loss=loss)
    if metric.decides and decides:
        threshold = best_threshold(judge, one.scores.validation, kept.y, kept.w)
    diagnosis = diagnose(metric, one.scores.test, test.y, threshold, test.w)
    return Trial(seed, one.method, threshold, one.seconds, diagnosis, *rest)


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


def _check_model(model: Any) -> None:
    if isinstance(model, str) and model not in MODELS:
        several = "; several models compete in a fit, not here" if competes(model) else ""
        raise ValueError(f"model: expected one of {', '.join(MODELS)}, a module or a factory, got {model!r}{several}")


def _methods(
    method: str | None, baselines: Sequence[str] | None, metric: Metric
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the method and its baselines, and a remark if one of them is left out."""
    allowed: tuple[str, ...] = (*METHODS, AUTO, *BASELINES, TREES)
    usual: tuple[str, ...] = DEFAULT_BASELINES
    default = "sl-r"
    if metric.task.outputs:
        allowed, usual = (*METHODS, AUTO, CONTROL), (CONTROL,)
    if metric.task.numbers:
        from metricgrad.evaluation.number_runs import NUMBER_BASELINES, NUMBER_METHODS

        allowed, usual, default = NUMBER_METHODS, NUMBER_BASELINES, "auto"
    if metric.task.name == "ranking":
        from metricgrad.evaluation.ranking_runs import RANKING_BASELINES, RANKING_METHODS

        allowed, usual = RANKING_METHODS, RANKING_BASELINES
    method = default if method is None else method
    wanted = [name for name in usual if name != method] if baselines is None else list(baselines)
    left_out = baselines is None and TREES in wanted and not has_lightgbm()
    if left_out:
        wanted.remove(TREES)
    for argument, given in (("method", method), *(("baselines", name) for name in wanted)):
        if given not in allowed:
            raise ValueError(f"{argument}: expected one of {', '.join(allowed)}, got {given!r}")
    if not wanted or len({method, *wanted}) < len(wanted) + 1:
        raise ValueError(f"baselines: expected at least one, each once and not {method!r} itself, got {wanted!r}")
    remark = "LightGBM is left out because it is not installed: pip install metricgrad[trees]"
    return (method, *wanted), (remark,) if left_out else ()
