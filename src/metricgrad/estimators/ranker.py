"""MetricRanker: a scikit-learn estimator that orders the documents of queries, trained for the metric of the order."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted, column_or_1d

from metricgrad.estimators.held_out import Joined, is_table, joined
from metricgrad.estimators.metric_estimator import (
    Array,
    How,
    MetricEstimator,
    check_fit,
    scores_in_double,
    seed_of,
)
from metricgrad.losses.ranking import QUERY_LOSSES
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.metrics.tasks import RANKING
from metricgrad.reporting.progress import work_bar
from metricgrad.training.data import Rows, Scaler, check_weights, members, merge_duplicates, queries_of
from metricgrad.training.history import Round
from metricgrad.training.methods import METHODS, make_loss
from metricgrad.training.networks import build_model
from metricgrad.training.recipe import Recipe, get_recipe
from metricgrad.training.selection import loss_of
from metricgrad.training.splits import Indices, split, split_at

MAX_COUNT = 1_000
"""How often a document may be there."""


class _Judged(NamedTuple):
    """Grades of all rows, and the queries, without rows of weight zero."""

    grades: Array
    queries: list[Indices]

    def rows(self, chosen: list[Indices], x: Array) -> Rows:
        """Return some queries as tensors, given standardised features."""
        places = np.concatenate(chosen)
        sizes = np.cumsum([len(query) for query in chosen])[:-1]
        own = members(np.split(np.arange(len(places)), sizes))
        grades = torch.as_tensor(self.grades[places], dtype=torch.float32)
        return Rows(torch.as_tensor(x[places]), grades, None, torch.as_tensor(own))


class MetricRanker(MetricEstimator):
    """Ranker trained directly for a metric of queries, by a surrogate of it that is learned along the way.

    Parameters
    ----------
    metric : str or Metric
        What a ranking is judged by: `"ndcg(10)"`, `"map"`, `"mrr"`, `"err"`; a query without two different grades
        has no influence and is left out everywhere.
    method : str
        `"sl-r"` (universal surrogate, refined), `"sl-s"` (from scratch), `"sl-u"` (universal, frozen), or a name in
        `metricgrad.losses.ranking.QUERY_LOSSES`: `"ranknet"`, `"listnet"`, `"lambdarank"`.
    model : {"mlp", "small", "linear", "additive", "tabm"}, torch module or factory
        The paper's network, 30 units, a linear model, an additive one, an ensemble network with piecewise-linear
        encoding, a module (copied), or a callable `features -> module`.
    recipe : Recipe or {"queries", "default", "paper"}
        How to train; a set is a query.
    validation_fraction : float
        Share of the queries kept for choosing a checkpoint.
    standardise : bool, optional
        Standardise every feature; by default as in the recipe.
    random_state : int, RandomState or None
        Seed of the split, the weights and the drawn sets; None is 0: the same data gives the same model.
    verbose : bool
        Show a progress bar.
    callback : callable, optional
        Called with every `Round` as it is done; if it returns True, training is stopped. It is not kept where the
        estimator is pickled.
    time_limit : float, optional
        Seconds after which training is stopped, as Ctrl-C would stop it.
    optimizer : callable, optional
        Parameters -> optimizer of torch, as of `MetricClassifier`.
    device : str or torch.device, optional
        Where the network is trained, such as `"cuda"`; it predicts on the CPU.

    Attributes
    ----------
    network_ : torch module
        The trained model, on scaled features.
    history_ : list of Round
        The rounds.
    validation_loss_ : float
        True loss of the chosen model, the mean over the validation queries.
    interrupted_ : bool
        Whether training was stopped, by Ctrl-C, the time limit or the callback; the best model until then is kept.
    verdict_ : Verdict
        Which model was kept, that of the metric or that of LambdaRank, and by how much it is better.

    Examples
    --------
    >>> from metricgrad import MetricRanker, Recipe
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(300, 4))
    >>> y = (X[:, 0] + 0.5 * rng.normal(size=300)).round().clip(0, 2)
    >>> ranker = MetricRanker("ndcg(5)", "listnet", "linear", Recipe(warmup=60, rounds=20, sets=8, learning_rate=0.03))
    >>> ranker.fit(X, y, group=[10] * 30).score(X, y, group=[10] * 30) > 0.8
    True
    """

    def __init__(
        self,
        metric: Any = "ndcg(10)",
        method: str = "sl-r",
        model: Any = "mlp",
        recipe: Recipe | str = "queries",
        validation_fraction: float = 0.2,
        standardise: bool | None = None,
        random_state: Any = None,
        verbose: bool = False,
        callback: Callable[[Round], object] | None = None,
        time_limit: float | None = None,
        optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer] | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.metric = metric
        self.method = method
        self.model = model
        self.recipe = recipe
        self.validation_fraction = validation_fraction
        self.standardise = standardise
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback
        self.time_limit = time_limit
        self.optimizer = optimizer
        self.device = device

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        group: ArrayLike | None = None,
        qid: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        validation: Any = None,
    ) -> MetricRanker:
        """Train on the documents of queries.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features)
            Features of every document, for its query.
        y : array-like of shape (rows,)
            Grades of at least 0; 0 is irrelevant.
        group : array-like of shape (queries,), optional
            Sizes of consecutive queries, as LightGBM takes them.
        qid : array-like of shape (rows,), optional
            The query of every row, instead of `group`. Without both, all rows are one query, which is warned of; a
            share of them is held out and judged as another.
        sample_weight : array-like of shape (rows,), optional
            Integers: a document of weight 2 is as good as two, one of weight 0 is left out. Other weights must be
            equal.
        validation : (X, y, group) or array-like, optional
            What to choose a checkpoint on: separate queries, given by `group` or `qid` as those to train on; or whole
            queries of those given, by the indices or a mask of their rows. By default a share of the queries,
            `validation_fraction`.

        Returns
        -------
        self
        """
        metric, recipe = _of_ranking(self.metric), get_recipe(self.recipe)
        self._check_training((*METHODS, *QUERY_LOSSES))
        seed = seed_of(self.random_state)
        more = validation if is_table(validation) else None
        if more is not None:
            X, y, sample_weight, validation = _joined_queries(X, y, sample_weight, more)
        X, y = self._checked(X, y, ensure_min_samples=2, y_numeric=True)
        grades = np.asarray(y)
        if group is None and qid is None and more is None:
            X, table, validation = self._one_query(X, grades, sample_weight, validation, seed)
        else:
            table = _judged(grades, _queries(len(grades), group, qid, more), sample_weight)
        training, held_out = self._parts(table, validation, seed)
        scaler = Scaler.fit(X, np.concatenate(training), standardise=self._standardises)
        self.centre_, self.scale_, x = scaler.centre, scaler.scale, scaler.transform(X)
        rows, kept = table.rows(training, x), table.rows(held_out, x)
        loss_of(metric, rows, rows.y)  # grades that the metric does not take are refused before any work
        with torch.random.fork_rng(devices=[]):
            network = build_model(self._model_spec(), x.shape[1], seed)
            network.prepare(rows.x, None, rows.y)
            check_fit(network, rows.x[:2])
            torch.manual_seed(seed)
            with work_bar() if self.verbose else nullcontext() as report:
                loss = make_loss(self.method, metric, recipe, report)
            trained = self._follow(loss, network, rows, kept, metric, How(recipe, seed, self.time_limit))
        self.network_, self.history_, self.interrupted_, self.verdict_ = trained[:4]
        self.validation_loss_ = loss_of(metric, kept, scores_in_double(self.network_, kept.x))
        return self

    def _one_query(
        self, X: Any, grades: Array, sample_weight: ArrayLike | None, validation: ArrayLike | None, seed: int
    ) -> tuple[Any, _Judged, Indices]:
        """Return rows that are one query as two, to train on and to choose on, and the places of the latter."""
        warnings.warn("group, qid: neither is given, so that all rows are ranked as one query", stacklevel=3)
        counts = _counts(sample_weight, grades)
        if validation is None:
            X, grades, weights = merge_duplicates(X, grades, counts.astype(float))
            counts = _counts(weights, grades)
            parts = split(grades > np.median(grades), seed, test=0.0, validation=self.validation_fraction)
        else:
            parts = split_at(validation, len(grades))
        queries = [np.repeat(rows, counts[rows]) for rows in (parts.train, parts.validation)]
        return X, _judged(grades, queries, None), parts.validation

    def _parts(self, table: _Judged, validation: ArrayLike | None, seed: int) -> tuple[list[Indices], list[Indices]]:
        """Return the queries to train on and to choose on, only informative ones: those with two different grades."""
        informative = np.array([np.ptp(table.grades[query]) > 0 for query in table.queries])
        if informative.sum() < 2:
            raise ValueError(
                f"y: expected two queries at least whose documents differ in grade, got {int(informative.sum())}"
            )
        if validation is None:
            numbers = np.flatnonzero(informative)
            parts = split(np.zeros(len(numbers)), seed, test=0.0, validation=self.validation_fraction)
            training, held_out = numbers[parts.train], numbers[parts.validation]
        else:
            chosen = np.zeros(len(table.grades), bool)
            chosen[split_at(validation, len(chosen)).validation] = True
            whole = whole_queries(table.queries, chosen)
            training, held_out = np.flatnonzero(informative & ~whole), np.flatnonzero(informative & whole)
            if not len(training) or not len(held_out):
                raise ValueError(
                    "validation: expected queries whose documents differ in grade on both sides, got "
                    f"{len(training)} to train on and {len(held_out)} to choose on"
                )
        return [table.queries[number] for number in training], [table.queries[number] for number in held_out]

    def predict(self, X: Any) -> Array:
        """Return a score for every document: within a query, the higher the better.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features)
            Features.

        Returns
        -------
        ndarray of shape (rows,)
        """
        check_is_fitted(self, "network_")
        return np.asarray(self._raw_scores(X).numpy())

    def score(
        self,
        X: Any,
        y: ArrayLike,
        group: ArrayLike | None = None,
        qid: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the mean of the metric over the informative queries, in its usual form (NDCG@10 0.72).

        Parameters
        ----------
        X, y, group, qid, sample_weight : array-like
            As for `fit`.

        Returns
        -------
        float
        """
        metric, scores = _of_ranking(self.metric), torch.as_tensor(self.predict(X))
        grades = column_or_1d(y)
        one = group is None and qid is None
        queries = [np.arange(len(grades))] if one else queries_of(len(grades), group, qid)
        table = _judged(grades, queries, sample_weight)
        if len(scores) != len(table.grades):
            raise ValueError(f"y: expected a grade for each of {len(scores)} rows, got {len(table.grades)}")
        rows = Rows(scores, torch.as_tensor(table.grades), None, torch.as_tensor(members(table.queries)))
        value = float(metric.value(loss_of(metric, rows, scores)))
        return value if metric.higher_is_better else -value

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


def _of_ranking(spec: Any) -> Metric:
    metric = get_metric(spec)
    if metric.task != RANKING:
        raise ValueError(f"metric: expected one of rankings (ndcg, map, mrr, err), got {metric.name!r}")
    return metric


def _joined_queries(X: Any, y: ArrayLike, sample_weight: ArrayLike | None, validation: tuple[Any, ...]) -> Joined:
    """Join validation queries to the training queries; where these have weights, those get the largest."""
    if len(validation) != 3:
        raise ValueError("validation: expected (X, y, group), or (X, y, qid) where queries go by qid, got (X, y)")
    if sample_weight is None:
        return joined(X, y, None, validation)
    heaviest = np.asarray(sample_weight, float).max(initial=0.0)
    return joined(X, y, sample_weight, validation, np.full(len(validation[1]), heaviest))


def _queries(
    rows: int, group: ArrayLike | None, qid: ArrayLike | None, validation: tuple[Any, ...] | None
) -> list[Indices]:
    """Return the row indices of every query; separate validation queries come last."""
    if validation is None:
        return queries_of(rows, group, qid)
    more = len(validation[1])
    named = {"group": validation[2]} if qid is None else {"qid": validation[2]}
    try:
        others = queries_of(more, **named)
    except ValueError as error:
        raise ValueError(f"validation: {error}") from error
    return [*queries_of(rows - more, group, qid), *(query + rows - more for query in others)]


def whole_queries(queries: list[Indices], chosen: Array) -> Array:
    """Return the mask of queries that some rows are, `(rows,)` -> `(queries,)`, or name a query they divide."""
    shares = np.array([chosen[query].mean() for query in queries])
    cut = (shares > 0) & (shares < 1)
    if cut.any():
        number = int(np.argmax(cut))
        found, size = int(chosen[queries[number]].sum()), len(queries[number])
        raise ValueError(f"validation: expected whole queries, got {found} of the {size} rows of query {number}")
    return np.asarray(shares == 1)


def _judged(grades: Array, queries: list[Indices], sample_weight: ArrayLike | None) -> _Judged:
    """Check grades and weights, and return the queries without the rows of weight zero."""
    grades = np.asarray(grades, np.float64)
    invalid = ~(np.isfinite(grades) & (grades >= 0))
    if invalid.any():
        raise ValueError(f"y: expected grades of at least 0, got {grades[invalid][0]:g}")
    if sample_weight is not None:
        counts = _counts(sample_weight, grades)
        queries = [np.repeat(query, counts[query]) for query in queries]
    return _Judged(grades, [query for query in queries if len(query)])


def _counts(sample_weight: ArrayLike | None, grades: Array) -> NDArray[np.int64]:
    """Return how often every document is there, by weights of which only the ratios matter: `(rows,)`.

    >>> _counts([0, 2, 4], np.zeros(3)).tolist(), _counts([0.5, 0.5, 0], np.zeros(3)).tolist()
    ([0, 1, 2], [1, 1, 0])
    """
    weights = np.ones(len(grades)) if sample_weight is None else check_weights(sample_weight, grades)
    positive = weights[weights > 0]
    if not np.ptp(positive):
        return np.asarray(weights > 0, np.int64)
    if (weights % 1).any() or weights.max() > MAX_COUNT:
        raise ValueError(
            "sample_weight: expected equal weights, or how often each document is there, an integer of at most "
            f"{MAX_COUNT:,}, got {positive.min():g} to {positive.max():g}"
        )
    return np.asarray(weights // np.gcd.reduce(weights.astype(np.int64)), np.int64)
