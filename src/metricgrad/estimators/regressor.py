"""MetricRegressor: a scikit-learn estimator of numbers, trained for the metric that they are judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from metricgrad.estimators.metric_columns import checked_columns
from metricgrad.estimators.metric_estimator import Array, MetricEstimator, scored, seed_of, weights_for
from metricgrad.metrics.constants import Correction, Units
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.training.data import Rows, Scaler, TrainingData, merge_duplicates
from metricgrad.training.history import Round
from metricgrad.training.recipe import Recipe
from metricgrad.training.splits import Split

if TYPE_CHECKING:
    from metricgrad.estimators.explain import Explanation
    from metricgrad.estimators.number_competition import NumberCompetition
    from metricgrad.estimators.number_strategies import NumbersVerdict, Strategy

METHODS = ("auto", "usual", "hand-made", "mse", "surrogate", "direct")
"""Everything, the usual losses alone, these and hand-made ones, squared error alone, or one learned strategy."""


class MetricRegressor(RegressorMixin, MetricEstimator):  # type: ignore[misc]
    """Regressor trained for any metric of numbers: a tolerance, a cost, a quantile, a rank, or a function of your own.

    Several strategies compete on validation rows: the usual losses (squared, absolute, Huber), hand-made ones that suit
    the metric (quantiles, soft tolerances), direct search on the metric itself for models linear in fixed columns, and
    a surrogate of it. The last two start from the best of the others and are kept only if they beat it by more than the
    noise. Targets are standardised, or their logarithms are if all are above 0, whichever does better. Every
    strategy is judged at its best constant, a shift or a factor; the one kept gets the map of its predictions that does
    best on validation rows: none, a shift, a factor, or an isotonic one.

    Parameters
    ----------
    metric : str, Metric or callable
        What predictions are judged by: `"within(0.1)"` (10 % of the target), `"within_units(5)"`, `"bands(5:1,15:4)"`
        (fines), `"step_cost(5,1,10)"` (5 a unit short, 1 a unit over, 10 if short), `"pinball(0.9)"`, `"mae"`,
        `"mape"`, `"rmse"`, `"rmsle"`, `"r2"`, `"spearman"`, `"concordance"`, `"censored_concordance"`, or your own
        `black_box(fn, higher_is_better=..., task="regression")`.
    method : {"auto", "usual", "hand-made", "mse", "surrogate", "direct"}
        Which strategies compete: all; the usual losses alone; these and hand-made ones; squared error alone; or all
        losses and one of the two learned strategies.
    model : {"mlp", "small", "linear", "additive", "tabm"}, torch module or factory
        As of `MetricClassifier`, but the paper's network has no dropout here: it blurs predictions of numbers.
    recipe : Recipe or {"default"}
        How to train.
    units : {"auto", "log", "standardised"}
        In what units the model is trained.
    validation_fraction : float
        Share of the rows kept for choosing strategy, checkpoint and constant.
    standardise : bool, optional
        Centre and scale every feature first; as the recipe says if not given.
    random_state : int, RandomState or None
        Seed of the split, the weights and the draws; None is 0.
    verbose : bool
        Show progress bars.
    callback : callable, optional
        Called with every `Round`; if it returns True, training is stopped.
    time_limit : float, optional
        Seconds after which no further strategy is tried, and the one at work is stopped.
    optimizer : callable, optional
        Parameters -> optimizer of torch, as of `MetricClassifier`: how a network is trained.
    device : str or torch.device, optional
        Where a network is trained, such as `"cuda"`; it predicts on the CPU.

    Attributes
    ----------
    network_ : torch module
        The trained model, on scaled features, in the units of training.
    units_ : Units
        These units.
    correction_ : Correction
        The map of its predictions.
    verdict_ : NumbersVerdict
        What won, and by how much in the metric's own units.
    validation_loss_ : float
        True loss of what is predicted on validation rows; the map is fitted to other parts of them each time.
    history_ : list of Round
        What every round of the chosen strategy did.
    interrupted_ : bool
        Whether training was stopped; the best model until then is kept.
    results_ : list of dict
        A record of each strategy; `leaderboard()` is a table of them.

    Examples
    --------
    >>> from metricgrad import MetricRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(500, 3))
    >>> y = np.exp(X[:, 0] + 0.1 * rng.normal(size=500))
    >>> model = MetricRegressor("within(0.1)", method="usual", model="linear").fit(X, y)
    >>> model.units_.log, model.score(X, y) > 0.5
    (True, True)
    """

    _for_text = "encode it first"
    units_: Units
    correction_: Correction
    verdict_: NumbersVerdict
    results_: list[dict[str, Any]]

    def __init__(
        self,
        metric: Any = "mae",
        method: str = "auto",
        model: Any = "mlp",
        recipe: Recipe | str = "default",
        units: str = "auto",
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
        self.units = units
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
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        validation: Any = None,
        columns: Mapping[str, ArrayLike] | None = None,
        groups: ArrayLike | None = None,
    ) -> MetricRegressor:
        """Train on a table.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features), array of shape (rows, ...), or Dataset
            Features; for a module of your own of any shape, or several inputs, as for `MetricClassifier`.
        y : array-like of shape (rows,), optional
            Finite numbers, unless a Dataset has them.
        sample_weight : array-like of shape (rows,), optional
            How much each row counts, in training and in the metric.
        validation : (X, y), (X, y, sample_weight) or array-like, optional
            What to choose on: rows of their own, or some of those given, by their numbers or by True for each. A share
            of the rows, `validation_fraction`, if not given.
        columns : mapping of str to array-like of shape (rows,), optional
            What the metric must know beside the target: of `censored_concordance`, `event`.
        groups : array-like of shape (rows,), optional
            The group of each row: no group is both trained on and held out.

        Returns
        -------
        self
        """
        competition = self._compete(X, y, sample_weight, validation, columns, groups)
        return self._adopt(competition, competition.best)

    def _compete(
        self,
        X: Any,
        y: ArrayLike | None,
        sample_weight: ArrayLike | None = None,
        validation: Any = None,
        columns: Mapping[str, ArrayLike] | None = None,
        groups: ArrayLike | None = None,
    ) -> NumberCompetition:
        """Train every strategy."""
        from metricgrad.estimators.inputs import read_rows
        from metricgrad.estimators.number_competition import NumberCompetition

        X, y, validation, self.inputs_ = read_rows(self.model, X, y, validation)
        metric = _of_numbers(self.metric)
        self._check_arguments()
        seed = seed_of(self.random_state)
        table, parts = self._prepared(X, y, sample_weight, validation, columns, groups, metric, seed)
        with torch.random.fork_rng(devices=[]):
            competition = NumberCompetition(self, table, parts, metric, seed)
            competition.run()
        return competition

    def _adopt(self, competition: NumberCompetition, best: Strategy) -> MetricRegressor:
        """Become what one of the strategies has trained."""
        self.network_, self.history_, self.units_ = best.trained.network, best.trained.history, best.units
        self.interrupted_ = competition.interrupted
        self.correction_, self.validation_loss_ = competition.correction(best)
        self.verdict_, self.results_ = competition.verdict(best, self.correction_), competition.records(best)
        return self

    def _prepared(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None,
        validation: Any,
        columns: Mapping[str, ArrayLike] | None,
        groups: ArrayLike | None,
        metric: Metric,
        seed: int,
    ) -> tuple[TrainingData, Split]:
        """Check the input, hold rows out, and learn the scale of the features from the others."""
        from metricgrad.estimators.held_out import HoldOut, held_out_parts, is_table, joined_for

        if is_table(validation):
            X, y, sample_weight, validation = joined_for(metric, X, y, sample_weight, validation)
        X, y = self._checked(X, y, ensure_min_samples=2, y_numeric=True)
        targets: Array = np.asarray(y, np.float64)
        weights = weights_for(metric, sample_weight, X)
        known = checked_columns(columns, metric, len(targets))
        if validation is None and groups is None and known is None and metric.takes_weights:
            X, targets, weights = merge_duplicates(X, targets, weights)
        table = TrainingData(X, targets, weights, columns=known)
        strata = replace(table, targets=np.zeros(len(targets), np.int8))
        how = HoldOut(1, self.validation_fraction, seed, False, validation, groups)
        (parts,) = held_out_parts(strata, metric.task, how)
        scaler = Scaler.fit(X, parts.train, weights, standardise=self._standardises)
        self.centre_, self.scale_ = scaler.centre, scaler.scale
        return replace(table, scaler=scaler), parts

    def _model_spec(self) -> Any:
        """Return the model as it is to be built: dropout, which the paper's network has, blurs numbers."""
        return "plain" if isinstance(self.model, str) and self.model == "mlp" else super()._model_spec()

    def _check_arguments(self) -> None:
        self._check_training(METHODS)
        if self.units not in ("auto", "log", "standardised"):
            raise ValueError(f"units: expected 'auto', 'log' or 'standardised', got {self.units!r}")

    def predict(self, X: Any) -> Array:
        """Return predictions, in the unit of the targets.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features)
            Features.

        Returns
        -------
        ndarray of shape (rows,)
        """
        check_is_fitted(self, "correction_")
        return self.correction_.apply(self.units_.to_targets(self._raw_scores(X)).numpy())

    def score(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        columns: Mapping[str, ArrayLike] | None = None,
    ) -> float:
        """Return the metric in its usual form, negated if lower is better, as scorers do.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features)
            Features.
        y : array-like of shape (rows,)
            Targets.
        sample_weight : array-like of shape (rows,), optional
            How much each row counts.
        columns : mapping of str to array-like of shape (rows,), optional
            As for `fit`.

        Returns
        -------
        float
        """
        metric, predictions = _of_numbers(self.metric), self.predict(X)
        targets: Array = np.asarray(column_or_1d(y), np.float64)
        known = checked_columns(columns, metric, len(predictions))
        return scored(metric, predictions, targets, sample_weight, known)

    def leaderboard(self) -> pd.DataFrame:
        """Return the strategies that competed, the chosen one first.

        Returns
        -------
        DataFrame
            With the columns `method`, `units`, `value` (of the metric, on validation rows, at the best constant),
            `behind` (the chosen one), `standard_error` (of that), `seconds`, `note`.
        """
        from metricgrad.estimators.number_strategies import as_table

        check_is_fitted(self, "results_")
        return as_table(self.results_)

    def explain(self, X: Any = None, separator: str | None = None) -> Explanation:
        """Return what every level of every feature adds to the prediction of a linear or additive model.

        The sum is mapped by `correction_` afterwards. A model trained in logarithms (`units_.log`) multiplies: its
        contributions are logarithms of factors.

        Parameters
        ----------
        X : array-like of shape (rows, features), optional
            Rows, best those of training: of a linear model the frame then has the share of each level.
        separator : str, optional
            What stands between column and level in the names of one-hot features, `prefix_sep` of
            `pandas.get_dummies`: these become one feature a column.

        Returns
        -------
        Explanation
            `frame` has a row for every level, `figure(feature)` draws one.
        """
        from metricgrad.estimators.explain import Explanation
        from metricgrad.estimators.terms import terms_of

        check_is_fitted(self, "correction_")
        rows = None
        if X is not None:
            x = torch.from_numpy(Scaler(self.centre_, self.scale_).transform(self._checked(X, reset=False)))
            rows = Rows(x, torch.zeros(len(x)))
        names = getattr(self, "feature_names_in_", [f"x{number}" for number in range(self.n_features_in_)])
        terms = terms_of(self, list(map(str, names)), rows, band=False)
        terms = terms if separator is None else terms.with_levels(separator)
        of = "logarithms" if self.units_.log else "numbers"
        return Explanation(terms.in_units(self.units_.scale, self.units_.centre), of)

    def _facts(self) -> dict[str, str]:
        verdict = self.verdict_
        return {"strategy": verdict.winner, "trained in": f"{verdict.units} units", "predictions": verdict.constant}


def _of_numbers(spec: Any) -> Metric:
    metric = get_metric(spec)
    if metric.task.name not in ("regression", "censored"):
        raise ValueError(
            f"metric: expected one of numbers (within, step_cost, pinball, mae, spearman ...), got {metric.name!r} of "
            f"{metric.task.name}; a function of your own is black_box(fn, higher_is_better=..., task='regression')"
        )
    return metric
