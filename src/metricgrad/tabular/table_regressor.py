"""TableRegressor: trains a model of numbers for a metric of numbers on a table with columns of any kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from metricgrad.estimators.competing import competes
from metricgrad.estimators.regressor import MetricRegressor
from metricgrad.metrics.registry import Metric
from metricgrad.tabular.schema import as_frame
from metricgrad.tabular.table_model import TableModel
from metricgrad.tabular.target import AnyTarget, NumberTarget
from metricgrad.training.networks import numbered
from metricgrad.training.recipe import Recipe

if TYPE_CHECKING:
    from metricgrad.estimators.explain import Explanation
    from metricgrad.tabular.fit_rows import FitRows

Array = NDArray[Any]


class TableRegressor(RegressorMixin, TableModel):  # type: ignore[misc]
    """Regressor for a table as it is: numbers, categories, booleans, dates, free text, missing cells and ids.

    Columns are read and encoded as by `TableClassifier`; the last step of the pipeline is a `MetricRegressor`.

    Parameters
    ----------
    metric : str, Metric or callable
        Of numbers, as for `MetricRegressor`: `"within(0.1)"`, `"step_cost(5,1,10)"`, `"pinball(0.9)"`, `"mape"` ...
    method : {"auto", "usual", "hand-made", "mse", "surrogate", "direct"}
        Which strategies compete, as for `MetricRegressor`.
    model : {"auto", "readable", "linear", "additive", "mlp", "plain", "small", "tabm", "lightgbm"}, module or factory
        As for `MetricRegressor`: several that compete, those of them that can be read, or one.
    recipe : Recipe or {"default"}
        How to train.
    units : {"auto", "log", "standardised"}
        In what units the model is trained.
    ignore : collection of str
        Columns to leave out.
    validation_fraction : float
        Share of the rows kept for choosing model, strategy, checkpoint and constant, if there is one split.
    time_limit : float, optional
        Seconds for all models together, after which the best until then is kept.
    random_state : int, RandomState or None
        Seed of the split, the weights and the drawn sets; None is 0.
    verbose : bool
        Show progress bars.
    folds : int, optional
        As for `MetricRegressor`; 1 if rows are split by time.
    column_features : bool
        Whether the columns that the metric needs are features too.

    Attributes
    ----------
    pipeline_ : Pipeline
        A `Preparation` and a `MetricRegressor`, fitted.
    target_ : NumberTarget
        Name of the target, and how its numbers are written.
    data_ : dict
        Number of `rows`.
    notes_ : list of str
        What was inferred, which columns were dropped and why, and which model was chosen.

    Examples
    --------
    >>> import pandas as pd
    >>> from metricgrad import TableRegressor
    >>> frame = pd.DataFrame({"rooms": [1, 2, 3, 4, 5] * 20, "price": ["$110", "$195", "$310", "$390", "$505"] * 20})
    >>> model = TableRegressor("within(0.1)", method="usual", model="linear").fit(frame, "price")
    >>> model.notes_[0]
    'target price: numbers from 110 to 505, median 310, 100 rows'
    """

    target_: NumberTarget
    score = TableModel.score  # not that of the mixin

    def __init__(
        self,
        metric: Any = "mae",
        method: str = "auto",
        model: Any = "auto",
        recipe: Recipe | str = "default",
        units: str = "auto",
        ignore: Collection[str] = (),
        validation_fraction: float = 0.2,
        time_limit: float | None = None,
        random_state: Any = None,
        verbose: bool = False,
        folds: int | None = None,
        column_features: bool = False,
    ) -> None:
        self.metric = metric
        self.method = method
        self.model = model
        self.recipe = recipe
        self.units = units
        self.ignore = ignore
        self.validation_fraction = validation_fraction
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose
        self.folds = folds
        self.column_features = column_features

    # ---- fitting ---------------------------------------------------------------------------------------------------

    def _infer_target(
        self, metric: Metric, cells: list[pd.Series[Any]], names: list[str], others: pd.DataFrame
    ) -> tuple[AnyTarget, Metric, list[str]]:
        from metricgrad.tabular.target_inference import infer_numbers

        check_one_column(cells, metric)
        metric = self.for_target(metric)
        if not metric.task.numbers:
            raise ValueError(
                f"metric: expected one of numbers, such as 'mae' or 'within(0.1)', got {metric.name!r}, which is for "
                f"{metric.task.name} targets; use TableClassifier or TableRanker"
            )
        target, line = infer_numbers(cells[0], names[0])
        return target, metric, [line]

    def _fitted(
        self, metric: Metric, x: Array, names: Array, rows: FitRows, validation: Array | None, folds: int
    ) -> MetricRegressor:
        model = MetricRegressor(
            metric,
            self.method,
            numbered(self.model, names),
            self.recipe,
            units=self.units,
            validation_fraction=self.validation_fraction,
            time_limit=self.time_limit,
            random_state=self.random_state,
            verbose=self.verbose,
            folds=folds,
        )
        groups = rows.held_out.groups if validation is None else None
        model.fit(x, rows.targets, rows.weights, validation, rows.columns, groups)
        if competes(self.model):
            from metricgrad.estimators.leaderboard import ranked

            self._note(*ranked(model.results_, metric))
        return model

    # ---- using -----------------------------------------------------------------------------------------------------

    def for_target(self, metric: Metric) -> Metric:
        """Return a metric as it is for numbers: a function of one's own may be of classes too."""
        from metricgrad.metrics.plain_functions import as_numbers

        return as_numbers(metric)

    def predict(self, X: Any) -> Array:
        """Return predictions, in the unit of the target.

        Parameters
        ----------
        X : DataFrame
            The columns that the model was trained on; others are ignored.

        Returns
        -------
        ndarray of shape (rows,)
        """
        return self.judged_scores(as_frame(X))

    def judged_scores(self, frame: pd.DataFrame, columns: Mapping[str, Any] | None = None) -> Array:
        """Return the predictions."""
        return self.in_parts(frame, lambda features, _: self.model_.predict(features))

    def prediction_columns(self, frame: pd.DataFrame) -> dict[str, Array]:
        """Return the predictions."""
        return {"prediction": self.judged_scores(frame)}

    def explain(self, X: Any = None) -> Explanation:
        """Return what every level of every column adds to the prediction, of a linear or additive model.

        The sum is mapped by `model_.correction_` afterwards. A model trained in logarithms multiplies: its
        contributions are logarithms of factors.

        Parameters
        ----------
        X : DataFrame, optional
            Rows, best those of training: of a linear model the frame then has the share of each level.

        Returns
        -------
        Explanation
            `frame` has a row for every level, `figure(column)` draws one.
        """
        from metricgrad.estimators.explain import Explanation
        from metricgrad.tabular.readable import column_terms

        check_is_fitted(self, "pipeline_")
        preparation = self.pipeline_[0]
        x = None if X is None else preparation.transform(as_frame(X))
        terms = self.model_._terms(x, preparation.get_feature_names_out())
        return Explanation(column_terms(terms, preparation), self.model_._terms_are)


def check_one_column(cells: list[pd.Series[Any]], metric: Metric) -> None:
    """Refuse several columns where the metric is of one."""
    if len(cells) != 1:
        raise ValueError(f"target: expected one column for {metric.name!r}, got {len(cells)}")
