"""TableRanker: trains a model that orders the rows of queries, on a table with columns of any kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import NDArray

from metricgrad.estimators.ranker import MetricRanker
from metricgrad.metrics.registry import Metric
from metricgrad.tabular.cells import TableError
from metricgrad.tabular.schema import as_frame
from metricgrad.tabular.table_model import TableModel
from metricgrad.tabular.table_regressor import check_one_column
from metricgrad.tabular.target import AnyTarget, GradeTarget
from metricgrad.training.networks import numbered
from metricgrad.training.recipe import Recipe

if TYPE_CHECKING:
    from metricgrad.tabular.fit_rows import FitRows

Array = NDArray[Any]
AUTO = "auto"
DEFAULTS = {"method": "sl-r", "model": "additive"}
"""What "auto" stands for: rankers do not compete yet."""


class TableRanker(TableModel):
    """Ranker for a table as it is, whose rows belong to queries; `fit` must be given `groups`, the query of each row.

    Columns are read and encoded as by `TableClassifier`; the last step of the pipeline is a `MetricRanker`. No query is
    both trained on and held out.

    Parameters
    ----------
    metric : str or Metric
        Of rankings: `"ndcg(10)"`, `"map"`, `"mrr"`, `"err"`.
    method : str
        As for `MetricRanker`; `"auto"` is `"sl-r"`.
    model : {"auto", "linear", "additive", "mlp", "small", "tabm"}, torch module or factory
        As for `MetricRanker`; `"auto"` is `"additive"`.
    recipe : Recipe or {"queries", "default", "paper"}
        How to train.
    ignore : collection of str
        Columns to leave out.
    validation_fraction : float
        Share of the queries kept for choosing a checkpoint.
    time_limit : float, optional
        Seconds after which training is stopped.
    random_state : int, RandomState or None
        Seed of the split, the weights and the drawn sets; None is 0.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    pipeline_ : Pipeline
        A `Preparation` and a `MetricRanker`, fitted.
    target_ : GradeTarget
        Name of the target.
    group_ : str
        Name of the column of queries; empty if values were given.
    """

    target_: GradeTarget
    group_: str = ""
    column_features = False

    def __init__(
        self,
        metric: Any = "ndcg(10)",
        method: str = AUTO,
        model: Any = AUTO,
        recipe: Recipe | str = "queries",
        ignore: Collection[str] = (),
        validation_fraction: float = 0.2,
        time_limit: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.metric = metric
        self.method = method
        self.model = model
        self.recipe = recipe
        self.ignore = ignore
        self.validation_fraction = validation_fraction
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        times: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> TableRanker:
        """Train on a table of queries.

        Parameters
        ----------
        X : DataFrame
            Columns of any kind.
        y : str or array-like of shape (rows,)
            Grades of at least 0: a column, or numbers. Rows without one are left out.
        sample_weight : str or array-like, optional
            0 for rows to leave out, and one other weight.
        groups : str or array-like
            The query of each row: a column, or values.
        times, columns : None
            Queries are held out, not times, and no metric of rankings has columns.

        Returns
        -------
        self
        """
        if groups is None:
            raise TableError("group: expected the query of each row, because the metric is one of rankings, got none")
        self.group_ = groups if isinstance(groups, str) else ""
        super().fit(X, y, sample_weight, groups, times, columns)
        return self

    def _infer_target(
        self, metric: Metric, cells: list[pd.Series[Any]], names: list[str], others: pd.DataFrame
    ) -> tuple[AnyTarget, Metric, list[str]]:
        from metricgrad.tabular.target_inference import infer_numbers

        check_one_column(cells, metric)
        if metric.task.name != "ranking":
            raise ValueError(f"metric: expected one of rankings, such as 'ndcg(10)', got {metric.name!r}")
        target, line = infer_numbers(cells[0], names[0], grades=True)
        return target, metric, [line]

    def _fitted(
        self, metric: Metric, x: Array, names: Array, rows: FitRows, validation: Array | None, folds: int
    ) -> MetricRanker:
        method, spec = (
            DEFAULTS[name] if isinstance(given, str) and given == AUTO else given
            for name, given in (("method", self.method), ("model", self.model))
        )
        model = MetricRanker(
            metric,
            method,
            numbered(spec, names),
            self.recipe,
            time_limit=self.time_limit,
            random_state=self.random_state,
            verbose=self.verbose,
        )
        queries = rows.held_out.groups
        return model.fit(x, rows.targets, qid=queries, sample_weight=rows.weights, validation=validation)

    def predict(self, X: Any) -> Array:
        """Return a score for every row: within a query, the higher the better.

        Parameters
        ----------
        X : DataFrame
            The columns that the model was trained on; others are ignored.

        Returns
        -------
        ndarray of shape (rows,)
        """
        return self.judged_scores(as_frame(X))

    def score(
        self,
        X: Any,
        y: Any = None,
        sample_weight: Any = None,
        columns: Mapping[str, Any] | None = None,
        groups: Any = None,
    ) -> float:
        """Return the mean of the metric over the queries whose grades differ, in its usual form.

        Parameters
        ----------
        X : DataFrame
            As for `predict`.
        y : str or array-like of shape (rows,), optional
            Grades; by default the target column of `X`.
        sample_weight : str or array-like, optional
            As for `fit`.
        columns : None
            No metric of rankings has any.
        groups : str or array-like, optional
            The query of each row; by default the column of that name in training.

        Returns
        -------
        float
        """
        from metricgrad.tabular.fit_rows import cells_of, groups_of

        frame = as_frame(X)
        there, grades, weights = self.labelled(frame, y, sample_weight)
        given = (self.group_ or None) if groups is None else groups
        if given is None:
            raise TableError("group: expected the query of each row, got none")
        queries, some = groups_of(cells_of(given, frame, "group").iloc[there]), frame.iloc[there]
        return float(self.model_.score(self.pipeline_[0].transform(some), grades, qid=queries, sample_weight=weights))

    def judged_scores(self, frame: pd.DataFrame, columns: Mapping[str, Any] | None = None) -> Array:
        """Return the scores."""
        return self.in_parts(frame, lambda features, _: self.model_.predict(features))

    def prediction_columns(self, frame: pd.DataFrame) -> dict[str, Array]:
        """Return the scores."""
        return {"score": self.judged_scores(frame)}
