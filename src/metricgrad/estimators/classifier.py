"""MetricClassifier: a scikit-learn estimator trained for the metric it will be judged by."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from metricgrad.estimators.held_out import cross_validated, is_table, joined_for, validation_split
from metricgrad.estimators.labels import checked_columns, learn_labels, positive_targets
from metricgrad.estimators.metric_estimator import (
    Array,
    LabelEstimator,
    Trained,
    check_fit,
    is_finite,
    scores_in_double,
    seed_of,
)
from metricgrad.metrics.registry import Metric, get_metric, metric_for_labels
from metricgrad.metrics.tasks import Task
from metricgrad.metrics.thresholds import best_offsets, best_threshold
from metricgrad.training.data import Rows, Scaler, TrainingData, check_weights, merge_duplicates
from metricgrad.training.history import Round
from metricgrad.training.networks import Scorer, build_model
from metricgrad.training.recipe import Recipe


class MetricClassifier(LabelEstimator):
    """Classifier trained directly for a metric, by a surrogate of it that is learned along the way.

    The metric says what is predicted: two classes (`"f1"`), several (`"macro_f1"`), or several labels a row
    (`"sample_f1"`).

    Parameters
    ----------
    metric : str, Metric, torchmetrics object, scorer or function of scikit-learn
        What the model is judged by: `"f1"`, `"average_precision"`, `"partial_auc(0.05)"`, or a rule of your own:
        `black_box(profit, higher_is_better=True)`.
    method : str
        `"sl-r"` (universal surrogate, refined), `"sl-s"` (from scratch), `"sl-u"` (universal, frozen), or a name in
        `metricgrad.losses.binary.BASELINES`: `"cross-entropy"`, `"focal"`, `"aucm"` ... (`"cost-sensitive"` trains six
        models). For several outputs cross-entropy alone, that of the softmax or of each label.
    model : {"mlp", "small", "linear", "additive", "tabm"}, torch module or factory
        The paper's network, 30 units, a linear model, an additive one (with options: `additive(interactions=5)`), an
        ensemble network with piecewise-linear encoding, a module (copied), or a callable `features -> module`.
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
        What every round did.
    validation_loss_ : float
        True loss of the chosen model on the validation rows, at the chosen threshold.
    interrupted_ : bool
        Whether training was stopped, by Ctrl-C, the time limit or the callback; the best model until then is kept.
    verdict_ : Verdict
        Which model was kept, the one that followed the metric or the one that followed cross-entropy, and by how much.
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
        method: str = "sl-r",
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

    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        validation: Any = None,
        columns: Mapping[str, ArrayLike] | None = None,
    ) -> MetricClassifier:
        """Train on a table.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features)
            Features.
        y : array-like of shape (rows,) or (rows, labels)
            Labels: two of them, or as many as the metric is for; of several labels a row, 0 or 1 for each.
        sample_weight : array-like of shape (rows,), optional
            How much each row counts, in training and in the metric.
        validation : (X, y), (X, y, sample_weight) or array-like, optional
            What to choose checkpoint and threshold on: rows of their own, or some of those given, by their numbers or
            by True for each. A stratified share of the rows, `validation_fraction`, if not given.
        columns : mapping of str to array-like of shape (rows,), optional
            What the metric must know of the rows beside their labels, if it is a black box with columns.

        Returns
        -------
        self
        """
        metric, recipe = metric_for_labels(get_metric(self.metric), y), self.effective_recipe
        self.task_, calls_before = metric.task.name, metric.calls
        self._check_arguments(metric.task)
        seed = seed_of(self.random_state)
        start = self.network_ if self.warm_start and hasattr(self, "network_") else None
        if is_table(validation):
            X, y, sample_weight, validation = joined_for(metric, X, y, sample_weight, validation)
        merge = validation is None and metric.task.name in ("binary", "multiclass")
        table = self._table(X, y, sample_weight, metric, going_on=start is not None, merge=merge)
        table = replace(table, columns=checked_columns(columns, metric, len(table.targets)))
        cv = self.threshold == "cv"
        parts = validation_split(table.strata, metric.task, validation, self.validation_fraction, seed, folded=cv)
        weights = table.weights
        if weights is not None and not (weights[parts.train].any() and weights[parts.validation].any()):
            raise ValueError("sample_weight: expected positive weights in training and validation rows, got only zeros")
        if start is None:
            scaler = Scaler.fit(table.X, parts.train, table.weights, standardise=self._standardises)
            self.centre_, self.scale_ = scaler.centre, scaler.scale
        table = replace(table, scaler=Scaler(self.centre_, self.scale_))
        if metric.task.classes and len(np.unique(table.targets[parts.validation])) < 2:
            why = "y: one class has a single row, so " if validation is None else "validation: "
            warnings.warn(f"{why}the validation rows hold one class only", stacklevel=2)
        kept = table.rows(parts.validation)
        with torch.random.fork_rng(devices=[]):
            trained = self._train(table, parts.train, kept, metric, recipe, seed, start)
            self.network_, self.history_, self.interrupted_, self.verdict_, judge = trained
            self.threshold_ = self._choose_threshold(table, kept, judge, recipe, seed)
        shifted = scores_in_double(self.network_, kept.x) - torch.as_tensor(self.threshold_)
        self.validation_loss_ = float(metric(shifted, kept.y, kept.w))
        self.calls_ = metric.calls - calls_before
        return self

    def _check_arguments(self, task: Task) -> None:
        from metricgrad.losses.binary import BASELINES
        from metricgrad.training.methods import METHODS

        self._check_training((*METHODS, *(("cross-entropy",) if task.several else BASELINES)))
        if task.outputs and self.threshold == "cv":
            raise ValueError("threshold: expected 'validation' or a number for several outputs, got 'cv'")
        if self.threshold not in ("validation", "cv") and not is_finite(self.threshold):
            raise ValueError(f"threshold: expected 'validation', 'cv' or a finite number, got {self.threshold!r}")

    def _table(
        self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None, metric: Metric, going_on: bool, merge: bool
    ) -> TrainingData:
        """Check the input and merge equal rows, not standardised yet; a warm start keeps classes and features."""
        X, targets = self._checked_table(X, y, going_on, metric.task)
        weights = None if sample_weight is None else check_weights(sample_weight, X)
        if weights is not None and not metric.takes_weights and np.ptp(weights):
            raise ValueError(
                f"sample_weight: expected equal weights because the metric {metric.name!r} takes none, "
                f"got {weights.min():g} to {weights.max():g}"
            )
        if metric.takes_weights and merge:
            X, targets, weights = merge_duplicates(X, targets, weights)
        weighted = targets if weights is None else targets[weights > 0]
        if metric.task.classes and len(np.unique(weighted)) < 2:
            raise ValueError("sample_weight: expected a positive weight in both classes, got one class of zeros")
        classes = len(self.classes_) if metric.task.name == "multiclass" else 0
        return TrainingData(X, targets, weights, classes)

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

    def _train(
        self,
        table: TrainingData,
        training: Array,
        kept: Rows,
        metric: Metric,
        recipe: Recipe,
        seed: int,
        start: Scorer | None = None,
    ) -> Trained:
        """Train a network; for a baseline with a setting, one for each, and the best on validation rows is kept."""
        from metricgrad.losses.binary import TUNED
        from metricgrad.reporting.progress import work_bar
        from metricgrad.training.methods import make_loss

        outputs = len(self.classes_) if metric.task.outputs else None
        rows = table.lazy_rows(training, recipe.set_size)
        if start is None:
            network = build_model(self._model_spec(), table.X.shape[1], seed, outputs)
            network.prepare(rows.x, rows.w, rows.y)
        else:
            network = deepcopy(start).float()
        check_fit(network, rows.x[:2])
        if self.method not in TUNED:
            torch.manual_seed(seed)
            with work_bar() if self.verbose else nullcontext() as report:
                loss = make_loss(self.method, metric, recipe, report)
            return self._follow(loss, network, rows, kept, metric, recipe, seed)
        runs: list[Trained] = []
        for make in TUNED[self.method]:
            runs.append(self._follow(make(), deepcopy(network), rows, kept, metric, recipe, seed))
            if runs[-1].interrupted:
                break
        judge = metric if recipe.form == "zero" else metric.best
        best = min(runs, key=lambda run: float(judge(scores_in_double(run.network, kept.x), kept.y, kept.w)))
        return best._replace(interrupted=runs[-1].interrupted)

    def _choose_threshold(
        self, table: TrainingData, kept: Rows, metric: Metric, recipe: Recipe, seed: int
    ) -> float | Array:
        if metric.task.outputs:
            return self._choose_offsets(kept, metric, recipe)
        if not isinstance(self.threshold, str):
            return float(self.threshold)
        if not metric.decides or recipe.form == "zero":
            return 0.0
        if self.threshold == "cv" and not self.interrupted_:
            trained = partial(self._train, metric=metric, recipe=recipe, seed=seed)
            rescaled = partial(table.standardised, standardise=self._standardises)
            found = cross_validated(trained, rescaled, self.network_, table, metric, seed, self.validation_fraction)
            self.interrupted_ = found is None
            if found is not None:
                return found
        return best_threshold(metric, scores_in_double(self.network_, kept.x), kept.y, kept.w)

    def _choose_offsets(self, kept: Rows, metric: Metric, recipe: Recipe) -> Array:
        """Return what is taken from the score of every class or label before it decides."""
        if not isinstance(self.threshold, str) or not metric.thresholded or recipe.form == "zero":
            return np.full(len(self.classes_), 0.0 if isinstance(self.threshold, str) else float(self.threshold))
        offsets = best_offsets(metric, scores_in_double(self.network_, kept.x), kept.y, kept.w)
        return np.asarray(-offsets.numpy())
