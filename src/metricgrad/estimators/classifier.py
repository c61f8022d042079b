"""MetricClassifier: a scikit-learn estimator trained for the metric it will be judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from metricgrad.estimators.competing import COMPETING, CompetingEstimator, competes
from metricgrad.estimators.label_estimator import LabelEstimator
from metricgrad.estimators.labels import class_factors, learn_labels, positive_targets
from metricgrad.estimators.metric_estimator import (
    Array,
    How,
    Trained,
    is_finite,
    seed_of,
    weights_for,
)
from metricgrad.metrics.registry import Metric, get_metric, metric_for_labels
from metricgrad.metrics.tasks import Task
from metricgrad.training.data import Rows, Scaler, TrainingData, merge_duplicates
from metricgrad.training.history import Round
from metricgrad.training.networks import kind_of
from metricgrad.training.recipe import Recipe

if TYPE_CHECKING:
    from metricgrad.estimators.candidates import Candidate, HeldOut
    from metricgrad.estimators.probabilities import Probabilities


class MetricClassifier(CompetingEstimator, LabelEstimator):
    """Classifier trained directly for a metric, by a surrogate of it that is learned along the way.

    The metric says what is predicted: two classes (`"f1"`), several (`"macro_f1"`), or several labels a row
    (`"sample_f1"`).

    Parameters
    ----------
    metric : str, Metric, torchmetrics object, scorer or function of scikit-learn
        What the model is judged by: `"f1"`, `"average_precision"`, `"partial_auc(0.05)"`, or a rule of your own:
        `black_box(profit, higher_is_better=True)`.
    method : str
        `"auto"`: every strategy that suits metric and model is tried (cross-entropy, weighted cross-entropy, the soft
        form of the metric, direct search, the learned surrogate), and the best on held-out rows is kept. Or one of
        them: `"sl-r"` (universal surrogate, refined), `"sl-s"` (from scratch), `"sl-u"` (universal, frozen),
        `"direct"` (search on the true metric, of a linear or additive model), `"weighted"`, `"hand-made"`,
        `"plug-in"` or `"cost-weighted"` (those of `"auto"`, where they suit metric and model), or a name in
        `metricgrad.losses.binary.BASELINES`: `"cross-entropy"`, `"focal"`, `"aucm"` ... (`"cost-sensitive"` trains six
        models). For several outputs cross-entropy alone, that of the softmax or of each label.
    model : {"mlp", "plain", "small", "linear", "additive", "tabm", "lightgbm", "auto", "readable"}, module or factory
        The paper's network, the same without dropout (`"plain"`), 30 units, a linear model, an additive one (with
        options: `additive(interactions=5)`), an ensemble network with piecewise-linear encoding, boosted trees (by log
        loss, whatever the method), a module (copied), or a callable `features -> module`. With `"auto"` several kinds
        compete and the best on held-out rows is kept, or a mixture of several if that is better; with `"readable"`
        linear and additive ones, never mixed.
    recipe : Recipe or {"default", "paper"}
        How to train. Its fields can be searched: `{"recipe__rounds": [300, 1000]}`.
    threshold : {"validation", "cv"} or float
        Where scores are cut: at the best threshold of the validation rows, of 5-fold cross-validation (as the paper
        says; trains six models), or as given. Metrics of the ranking alone are cut at 0. Of several classes each gets
        an offset, of several labels each a threshold, on validation rows.
    validation_fraction : float
        Share of the rows kept for choosing checkpoint and threshold.
    standardise : bool, optional
        Centre and scale every feature first (sparse input is only scaled; it is made dense to train); as the recipe
        says if not given.
    warm_start : bool
        Start from the model of the last `fit`, with its scale and classes. There is no `partial_fit`: checkpoint and
        threshold are chosen on validation rows, which a stream of small batches does not have.
    random_state : int, RandomState or None
        Seed of the split, the weights and the draws; None is 0: the same data gives the same model.
    verbose : bool
        Show a progress bar.
    callback : callable, optional
        Called with every `Round` as it is done, of every model that is trained; its `scalars()` are the numbers to
        log. If it returns True, training is stopped, as Ctrl-C would stop it. It is not kept where the estimator is
        pickled, because loggers cannot be.
    time_limit : float, optional
        Seconds after which the training of a model is stopped, as Ctrl-C would stop it.
    folds : int, optional
        With 5, five models are trained, each on four fifths of the rows; threshold and choice are those of the rows
        that each leaves out, and the average of the five is used, which is again one model for a linear or an additive
        one. With 1, one model is trained and `validation_fraction` of the rows are held out. By default 5 where models
        or strategies compete, unless validation rows are given, the metric is a function of your own, or rows are very
        few or many.
    optimizer : callable, optional
        Parameters -> optimizer of torch, such as `functools.partial(torch.optim.SGD, lr=0.1)`, by which a network is
        trained; by default Adam with the rate and weight decay of the recipe. Linear and additive models are solved
        for and need none.
    device : str or torch.device, optional
        Where a network is trained, such as `"cuda"`; it predicts on the CPU.
    class_weight : mapping of label to float or "balanced", optional
        What the weights of the rows of each class are multiplied by in training. The metric, by which models are
        compared and scored, and the probabilities do not count it. `"balanced"` gives each class the same weight and
        leaves the threshold where the metric is best. A mapping also moves the threshold, or the offsets of the
        classes, by the logarithm of the weights, so that more rows are predicted as a class of more weight, as in
        scikit-learn; by the metric, None is best.
    positive_label : label, optional
        Which of two classes is the positive one: of F1, precision and the like it makes all the difference. By default
        the last in order, as in scikit-learn: 1 of 0 and 1, "yes" of "no" and "yes".

    Attributes
    ----------
    classes_ : ndarray of shape (2,) or (classes,)
        The labels, in order.
    positive_label_ : label or None
        The positive one of two classes.
    threshold_ : float or ndarray of shape (classes,)
        Where the raw scores of the model, high for the positive class, are cut.
    network_ : torch module
        The trained model, on scaled features.
    history_ : list of Round
        What every round did; with several folds, of the first.
    validation_loss_ : float
        True loss of the chosen model on the validation rows, at the chosen threshold; with several folds, of the rows
        that each leaves out.
    interrupted_ : bool
        Whether training was stopped, by Ctrl-C, the time limit or the callback; the best model until then is kept.
    verdict_ : Verdict
        Which model was kept, the one that followed the metric or the one that followed cross-entropy, and by how much.
    bound_ : BoundCheck or None
        Whether the bound of a metric that is subject to one holds on held-out rows.
    results_ : list of dict
        A record of each model that competed, the chosen one first; `leaderboard()` is a table of them.
    chosen_recipe_ : Recipe
        The recipe of the chosen model.
    rule_ : Rule or None
        How the score of a row and the columns of the metric become what is decided by; None if the score itself is.
        With a rule, `predict` and `decision_function` must be given the columns.
    column_codes_ : dict of str to list
        The groups of every column that the metric needs them of, in the order of their codes.
    calibration_ : Probabilities
        How scores become the probabilities of `predict_proba`, fitted to the held-out rows: its `method`, `rows`,
        `brier` (the Brier score on these rows, cross-fitted) and `base_brier` (that of the shares of the classes).
    task_ : str
        What was predicted: two classes, several, or several labels a row.
    calls_ : int
        How often `fit` called the metric, if it is a function of the user's own; its limit is `black_box(max_calls=)`.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from metricgrad import MetricClassifier, Recipe
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MetricClassifier("f1", model="linear", recipe=Recipe(warmup=60, rounds=20)).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    _for_text = "use TableClassifier, which takes columns of any kind, or encode it"

    def __init__(
        self,
        metric: Any = "f1",
        method: str = "auto",
        model: Any = "mlp",
        recipe: Recipe | str = "default",
        threshold: str | float = "validation",
        validation_fraction: float = 0.2,
        standardise: bool | None = None,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
        callback: Callable[[Round], object] | None = None,
        time_limit: float | None = None,
        positive_label: Any = None,
        folds: int | None = None,
        optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer] | None = None,
        device: str | torch.device | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
    ) -> None:
        self.metric = metric
        self.method = method
        self.model = model
        self.recipe = recipe
        self.threshold = threshold
        self.validation_fraction = validation_fraction
        self.standardise = standardise
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.callback = callback
        self.time_limit = time_limit
        self.positive_label = positive_label
        self.folds = folds
        self.optimizer = optimizer
        self.device = device
        self.class_weight = class_weight

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        validation: Any = None,
        columns: Mapping[str, ArrayLike] | None = None,
        groups: ArrayLike | None = None,
    ) -> MetricClassifier:
        """Train on a table.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features), array of shape (rows, ...), or Dataset
            Features. For a module of your own they may have any shape, such as that of pictures, or be several inputs,
            which a torch `Dataset` or `DataLoader` gives as tuples (input, ..., label); all of it is held in memory.
            Inputs with shapes are standardised only if asked for.
        y : array-like of shape (rows,) or (rows, labels), optional
            Labels, unless a Dataset has them: two of them, or as many as the metric is for; of several labels a row, 0
            or 1 for each.
        sample_weight : array-like of shape (rows,), optional
            How much each row counts, in training and in the metric.
        validation : (X, y), (X, y, sample_weight) or array-like, optional
            What to choose checkpoint and threshold on: rows of their own, or some of those given, by their numbers or
            by True for each. A stratified share of the rows, `validation_fraction`, if not given.
        columns : mapping of str to array-like of shape (rows,), optional
            What the metric must know of the rows beside their labels: amounts of at least 0, and groups, which may be
            text. They are not features; put them into `X` too where they may be.
        groups : array-like of shape (rows,), optional
            The group of each row, such as a customer: no group is both trained on and held out.

        Returns
        -------
        self
        """
        from metricgrad.estimators.bound_check import check_bound
        from metricgrad.estimators.held_out import HoldOut, fold_count, held_out_parts, is_table, joined_for
        from metricgrad.estimators.inputs import read_rows
        from metricgrad.estimators.metric_columns import learn_columns
        from metricgrad.training.methods import AUTO

        X, y, validation, self.inputs_ = read_rows(self.model, X, y, validation)
        metric = metric_for_labels(get_metric(self.metric), y)
        self.task_, calls_before = metric.task.name, metric.calls
        self._check_arguments(metric.task)
        seed = seed_of(self.random_state)
        start = self.network_ if self.warm_start and hasattr(self, "network_") else None
        if is_table(validation):
            X, y, sample_weight, validation = joined_for(metric, X, y, sample_weight, validation)
        free = validation is None and groups is None
        merge = free and metric.task.name in ("binary", "multiclass")
        table = self._table(X, y, sample_weight, metric, going_on=start is not None, merge=merge)
        metric, self.column_codes_, known = learn_columns(columns, metric, table.targets)
        table = replace(table, columns=known)
        judged = self._as_trained(metric, table)
        cv = self.threshold == "cv"
        several = (
            (competes(self.model) or self.method == AUTO) and validation is None and not cv and not self.warm_start
        )
        count = fold_count(self.folds, metric, table.strata, groups, several=several)
        how = HoldOut(count, self.validation_fraction, seed, cv, validation, groups)
        plan = held_out_parts(table, metric.task, how)
        learned_from = plan[0].train if len(plan) == 1 else np.arange(len(table.targets))
        if start is None:
            scaler = Scaler.fit(table.X, learned_from, table.weights, standardise=self._standardises)
            self.centre_, self.scale_ = scaler.centre, scaler.scale
        table = replace(table, scaler=Scaler(self.centre_, self.scale_))
        with torch.random.fork_rng(devices=[]):
            found = self._compete(table, plan, learned_from, judged, seed, start)
            best = found.best
            first, rows = best.folds[0].trained, best.held_out()
            self.network_, self.history_, self.interrupted_ = best.network(), first.history, found.interrupted
            self.verdict_, self.chosen_recipe_, self.rule_ = found.verdict(), best.recipe, best.rule
            self.threshold_ = self._choose_threshold(table, best, first.judge, seed)
        self.calibration_ = _calibrated(best, metric.task)
        chosen = isinstance(self.threshold, str)
        self.bound_ = check_bound(metric, first.judge, best, self.threshold_, chosen=chosen)
        shifted = rows.scores - torch.as_tensor(self.threshold_)
        self.validation_loss_ = float(metric(shifted, rows.y, rows.w))
        self.results_ = found.results(float(metric.value(self.validation_loss_)))
        self.calls_ = metric.calls - calls_before
        return self

    def _as_trained(self, metric: Metric, table: TrainingData) -> Metric:
        """Return the metric that models are trained and compared by: itself, or at a share of rows."""
        from metricgrad.metrics.held_share import held_at_share

        if getattr(self.recipe, "form", "best") == "zero":
            return metric
        return held_at_share(metric, table.targets, table.columns, table.weights, stacklevel=4)

    @property
    def _asked(self) -> str | None:
        from metricgrad.training.methods import BY_STRATEGY

        return self.method if self.method in BY_STRATEGY else None

    def _mixes(self, metric: Metric) -> bool:
        # Cross-validation of the threshold, and a warm start, train the one model again.
        return super()._mixes(metric) and self.threshold != "cv" and not self.warm_start

    def _check_arguments(self, task: Task) -> None:
        from metricgrad.losses.binary import BASELINES
        from metricgrad.training.methods import AUTO, BY_STRATEGY, DIRECT, METHODS

        by_name = ("cross-entropy",) if task.outputs else (DIRECT, *BY_STRATEGY, *BASELINES)
        self._check_training((AUTO, *METHODS, *by_name))
        self._check_recipe()
        if task.outputs and self.threshold == "cv":
            raise ValueError("threshold: expected 'validation' or a number for several outputs, got 'cv'")
        self._check_folds()
        if self.warm_start and (self.folds or 1) > 1:
            raise ValueError(f"folds: expected 1 with warm_start, got {self.folds}")
        if self.threshold not in ("validation", "cv") and not is_finite(self.threshold):
            raise ValueError(f"threshold: expected 'validation', 'cv' or a finite number, got {self.threshold!r}")

    def _check_recipe(self) -> None:
        """Refuse a recipe by which a linear or additive model cannot be trained as the method does, before any work."""
        from metricgrad.training.methods import OF_SOLVED

        if self.method not in OF_SOLVED:
            return
        for spec in COMPETING[self.model] if competes(self.model) else [self.model]:
            start = self._recipe_for(spec).start
            if kind_of(spec) == "linear" and start != "solved":
                raise ValueError(
                    f"recipe: expected one with start='solved', by which {self.method!r} trains linear and additive "
                    f"models, got start={start!r}"
                )

    def _table(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, metric: Metric, going_on: bool, merge: bool
    ) -> TrainingData:
        """Check the input and merge equal rows, not standardised yet; a warm start keeps classes and features."""
        X, targets = self._checked_table(X, y, going_on, metric.task)
        weights = weights_for(metric, sample_weight, X)
        if metric.takes_weights and merge:
            X, targets, weights = merge_duplicates(X, targets, weights)
        weighted = targets if weights is None else targets[weights > 0]
        if metric.task.classes and len(np.unique(weighted)) < 2:
            raise ValueError("sample_weight: expected a positive weight in both classes, got one class of zeros")
        classes = len(self.classes_) if metric.task.name == "multiclass" else 0
        if self.class_weight is not None and not (metric.task.classes and metric.takes_weights):
            why = "takes no weights" if metric.task.classes else "is one of several labels"
            raise ValueError(f"class_weight: expected None, because the metric {metric.name!r} {why}")
        factors = None if self.class_weight is None else self._class_factors(targets, weights)
        return TrainingData(X, targets, weights, classes, class_weights=factors)

    def _class_factors(self, targets: Array, weights: Array | None) -> Array:
        """Return what the weights of every target are multiplied by in training."""
        classes = self.classes_[::-1] if self._positive_first else self.classes_
        return class_factors(self.class_weight, classes, targets, weights)

    def _checked_table(self, X: Any, y: ArrayLike, going_on: bool, task: Task) -> tuple[Any, Array]:
        several = task.name == "multilabel"
        X, given = self._checked(X, y, ensure_min_samples=2, reset=not going_on, multi_output=several)
        classes, targets = learn_labels(given, task)
        if going_on and not np.array_equal(classes, self.classes_):
            raise ValueError(f"y: expected the classes of the last fit, {self.classes_}, to go on, got {classes}")
        positive, targets = positive_targets(classes, targets, task, self.positive_label)
        if going_on and positive != self.positive_label_:
            last = self.positive_label_
            raise ValueError(f"positive_label: expected that of the last fit, {last!r}, to go on, got {positive!r}")
        self.classes_, self.positive_label_ = classes, positive
        return X, targets

    def _choose_threshold(self, table: TrainingData, best: Candidate, metric: Metric, seed: int) -> float | Array:
        from metricgrad.metrics.thresholds import best_threshold  # predicting needs none

        rows, recipe = best.held_out(), best.recipe
        if metric.task.outputs:
            return self._choose_offsets(rows, metric, recipe)
        if not isinstance(self.threshold, str):
            return float(self.threshold)
        if not metric.decides or recipe.form == "zero":
            return 0.0
        if self.threshold == "cv" and not self.interrupted_:
            found = self._cross_validated(table, metric, best, How(recipe, seed, self.time_limit))
            self.interrupted_ = found is None
            if found is not None:
                return found + float(self._moved_by(rows, metric.task))
        return best_threshold(metric, *rows) + float(self._moved_by(rows, metric.task))

    def _cross_validated(self, table: TrainingData, metric: Metric, best: Candidate, how: How) -> float | None:
        """Return the threshold of cross-validation; None if the user stopped it."""
        from metricgrad.estimators.fold_training import FoldTraining
        from metricgrad.estimators.held_out import cross_validated

        def trained(own: TrainingData, training: Array, kept: Rows) -> Trained:
            network = self._network(best.model, how.recipe, own, training, metric, how.seed, None)
            rows = own.lazy_rows(training, how.recipe.set_size)
            return FoldTraining(self, network, rows, kept, metric).train(best.strategy, how)

        rescaled = partial(table.standardised, standardise=self._standardises)
        share = self.validation_fraction
        return cross_validated(trained, rescaled, self.network_, table, metric, how.seed, share)

    def _choose_offsets(self, rows: HeldOut, metric: Metric, recipe: Recipe) -> Array:
        """Return what is taken from the score of every class or label before it decides."""
        from metricgrad.metrics.thresholds import best_offsets

        if not isinstance(self.threshold, str) or not metric.thresholded or recipe.form == "zero":
            return np.full(len(self.classes_), 0.0 if isinstance(self.threshold, str) else float(self.threshold))
        return np.asarray(-best_offsets(metric, *rows).numpy() + self._moved_by(rows, metric.task))

    def _moved_by(self, rows: HeldOut, task: Task) -> Any:
        """Return what weights of classes that the user states add to the threshold, or to that of every class."""
        if not isinstance(self.class_weight, Mapping):
            return 0.0
        from metricgrad.estimators.probabilities import log_odds_slope

        logs = np.log(self._class_factors(rows.y.numpy(), None))
        y = rows.y[:, 0] if task.name == "columns" else rows.y
        slope = log_odds_slope(rows.scores.numpy(), y.numpy(), None if rows.w is None else rows.w.numpy())
        return -logs / slope if task.outputs else (logs[0] - logs[1]) / slope


def _calibrated(best: Candidate, task: Task) -> Probabilities:
    """Fit probabilities to the scores of the model on held-out rows, before any rule."""
    from metricgrad.estimators.probabilities import fit_probabilities

    scores, y, w = best.pooled()
    classes = y[:, 0] if task.name == "columns" else y
    labels = task.name == "multilabel"
    return fit_probabilities(scores.numpy(), classes.numpy(), None if w is None else w.numpy(), labels=labels)
