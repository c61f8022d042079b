"""MetricRegressor: a scikit-learn estimator of numbers, trained for the metric that they are judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, column_or_1d

from metricgrad.estimators.metric_columns import checked_columns
from metricgrad.estimators.metric_estimator import Array, scored, seed_of
from metricgrad.estimators.number_competition import (
    AUTO,
    BY_HAND,
    BY_HAND_LOSSES,
    CHOSEN,
    METHODS,
    USUAL,
    NumberCompetition,
    metric_of_numbers,
)
from metricgrad.metrics.constants import Correction, Units
from metricgrad.training.data import Rows, Scaler
from metricgrad.training.history import Round, Verdict
from metricgrad.training.recipe import Recipe

if TYPE_CHECKING:
    from metricgrad.estimators.competition import Competition
    from metricgrad.estimators.explain import Explanation
    from metricgrad.estimators.terms import Terms


class MetricRegressor(RegressorMixin, NumberCompetition):  # type: ignore[misc]
    """Regressor trained for any metric of numbers: a tolerance, a cost, a quantile, a rank, or a function of your own.

    Several strategies compete on held-out rows: the usual losses (squared, absolute, Huber), hand-made ones that suit
    the metric (quantiles, soft tolerances, Cox's partial likelihood of censored times), direct search on the metric
    itself for models linear in fixed columns, and a surrogate of it. The last two start from the best of the others and
    are kept only if they beat it by more than the noise. Targets are standardised, or their logarithms are if all are
    above 0, whichever does better on the first fold. Every strategy is trained on five folds and judged at its best
    constant, a shift or a factor, on the rows that the folds leave out. The model is the average of those of the folds;
    its predictions get the map that does best on these rows: none, a shift, a factor, or an isotonic one.

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
    model : {"mlp", "plain", "small", "linear", "additive", "tabm", "lightgbm", "auto", "readable"}, module or factory
        As of `MetricClassifier`, but `"mlp"` is `"plain"` here, without dropout: it blurs predictions of numbers. Those
        that compete are linear, additive, tabm and, where it is installed, lightgbm (`"auto"`), or those of them that
        can be read. Trees follow squared and absolute errors and quantiles.
    recipe : Recipe or {"default"}
        How to train. By default networks learn at a rate of 0.01, above that of `MetricClassifier`.
    units : {"auto", "log", "standardised"}
        In what units the model is trained.
    validation_fraction : float
        Share of the rows kept for choosing strategy, checkpoint and constant, if there is one split.
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
    folds : int, optional
        Parts of the rows that are held out in turn; 1 is one split. By default 5 where strategies or models compete,
        unless there are few rows or very many, validation rows are given or calls of the metric are costly.
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
    verdict_ : Verdict
        What won, and by how much in the metric's own units.
    validation_loss_ : float
        True loss of what is predicted on held-out rows; the map is fitted to other parts of them each time.
    history_ : list of Round
        What every round of the chosen strategy did, on the first fold.
    chosen_recipe_ : Recipe
        The recipe of the chosen model.
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
    verdict_: Verdict
    chosen_recipe_: Recipe

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
        folds: int | None = None,
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
        self.folds = folds
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
            What to choose on: rows of their own, or some of those given, by their numbers or by True for each. The rows
            that folds leave out, or a share of the rows, `validation_fraction`, if not given.
        columns : mapping of str to array-like of shape (rows,), optional
            What the metric must know beside the target: of `censored_concordance`, `event`.
        groups : array-like of shape (rows,), optional
            The group of each row: no group is both trained on and held out.

        Returns
        -------
        self
        """
        return self._adopt(self._competed(X, y, sample_weight, validation, columns, groups))

    def _adopt(self, found: Competition) -> MetricRegressor:
        """Become what won a competition."""
        from metricgrad.metrics.constants import chosen_correction
        from metricgrad.training.threads import one_thread

        best, metric, verdict = found.best, found.judge.metric, found.verdict()
        assert best.units is not None
        assert verdict is not None
        self.network_, self.history_, self.units_ = best.network(), best.folds[0].trained.history, best.units
        self.chosen_recipe_, self.interrupted_ = best.recipe, found.interrupted
        with one_thread():
            seed = seed_of(self.random_state)
            self.correction_, self.validation_loss_ = chosen_correction(metric, *best.held_out(), seed=seed)
        value = float(metric.value(best.judged().loss(found.judge)))
        parts = (verdict.detail, f"{best.units.name} units, {self.correction_}", f"{metric.label} {value:.4g}")
        detail = "; ".join(part for part in parts if part)
        self.verdict_, self.results_ = replace(verdict, detail=detail), found.results(value)
        return self

    # ---- using -----------------------------------------------------------------------------------------------------

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
        metric, predictions = metric_of_numbers(self.metric), self.predict(X)
        targets: Array = np.asarray(column_or_1d(y), np.float64)
        known = checked_columns(columns, metric, len(predictions))
        return scored(metric, predictions, targets, sample_weight, known)

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

        check_is_fitted(self, "correction_")
        names = getattr(self, "feature_names_in_", [f"x{number}" for number in range(self.n_features_in_)])
        terms = self._terms(X, names)
        return Explanation(terms if separator is None else terms.with_levels(separator), self._terms_are)

    def _terms(self, X: Any, names: Iterable[Any]) -> Terms:
        """Return the terms of the model in its units, with the share of each level among the rows, if any are given."""
        from metricgrad.estimators.terms import terms_of

        rows = None
        if X is not None:
            x = torch.from_numpy(Scaler(self.centre_, self.scale_).transform(self._checked(X, reset=False)))
            rows = Rows(x, torch.zeros(len(x)))
        terms = terms_of(self, list(map(str, names)), rows, band=False)
        return terms.in_units(self.units_.scale, self.units_.centre)

    @property
    def _terms_are(self) -> str:
        return "logarithms" if self.units_.log else "numbers"

    def _facts(self) -> dict[str, str]:
        verdict = self.verdict_
        known = {"trained in": f"{self.units_.name} units", "predictions": str(self.correction_)}
        return {"model": str(self.network_.name or "own"), "strategy": verdict.winner, **known}


def fit_beside_usual(model: MetricRegressor, X: Any, y: Any, **given: Any) -> dict[str, MetricRegressor]:
    """Fit a regressor, and return it beside others of the same rows: by squared error, and by the best loss by hand.

    Each has its own correction, chosen on the held-out rows; `given` is what `fit` takes.
    """
    found = model._competed(X, y, **given)
    losses = {USUAL: ("mse",), BY_HAND: BY_HAND_LOSSES, CHOSEN: METHODS[AUTO]}
    return {
        name: copy(model)._adopt(found.among([each for each in found.candidates if each.strategy.name in allowed]))
        for name, allowed in losses.items()
    }
