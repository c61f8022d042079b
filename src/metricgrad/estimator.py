"""MetricClassifier: a scikit-learn estimator trained for the metric it will be judged by."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
from torch import nn

from metricgrad.baselines import BASELINES
from metricgrad.black_box import as_metric
from metricgrad.loss import SurrogateLoss
from metricgrad.metrics import Metric
from metricgrad.model import build_model
from metricgrad.progress import shown_rounds
from metricgrad.recipe import Recipe, get_recipe
from metricgrad.splits import folds, split
from metricgrad.threshold import best_threshold
from metricgrad.trainer import Round, Rows, train

METHODS = ("sl-r", "sl-s", "sl-u")
MERGED_UP_TO = 10_000
CHUNK = 65_536
Array = NDArray[Any]


class MetricClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Binary classifier trained directly for a metric, by a surrogate of it that is learned along the way.

    Parameters
    ----------
    metric : str, Metric, torchmetrics object or callable
        What the model is judged by: `"f1"`, `"average_precision"`, `"partial_auc(0.05)"`, `black_box(profit)` ...
    method : str
        `"sl-r"` (universal surrogate, refined), `"sl-s"` (from scratch), `"sl-u"` (universal, frozen), or a baseline:
        `"cross-entropy"`.
    model : {"mlp", "small", "linear"}, torch module or factory
        The paper's network, 30 units, a linear model, a module (copied), or a callable `features -> module`.
    recipe : Recipe or {"default", "paper"}
        How to train.
    threshold : {"validation", "cv"} or float
        Where scores are cut: at the best threshold of the validation rows, of 5-fold cross-validation (as the paper
        says; trains six models), or as given.
    validation_fraction : float
        Share of the rows kept for choosing checkpoint and threshold.
    standardise : bool
        Centre and scale every feature first (sparse input is only scaled).
    warm_start : bool
        Start from the model of the last `fit`.
    random_state : int, RandomState or None
        Seed of the split, the weights and the draws; None is 0: the same data gives the same model.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (2,)
        The labels; the second is the positive one.
    threshold_ : float
        Where the raw scores of the model are cut; `decision_function` is already shifted by it.
    history_ : list of Round
        What every round did.
    validation_loss_ : float
        True loss of the chosen model on the validation rows, at the chosen threshold.
    interrupted_ : bool
        Whether training was stopped by Ctrl-C; the best model until then is kept.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from metricgrad import MetricClassifier, Recipe
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> model = MetricClassifier("f1", model="linear", recipe=Recipe(warmup=60, rounds=20)).fit(X, y)
    >>> model.score(X, y) > 0.9
    True
    """

    def __init__(
        self,
        metric: Any = "f1",
        method: str = "sl-r",
        model: Any = "mlp",
        recipe: Recipe | str = "default",
        threshold: str | float = "validation",
        validation_fraction: float = 0.2,
        standardise: bool = True,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: bool = False,
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

    # ---- fitting ---------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> MetricClassifier:
        """Train on a table.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (rows, features)
            Features.
        y : array-like of shape (rows,)
            Labels, two of them.
        sample_weight : array-like of shape (rows,), optional
            How much each row counts, in training and in the metric.

        Returns
        -------
        self
        """
        metric, recipe = as_metric(self.metric), get_recipe(self.recipe)
        self._check_arguments(metric)
        X, targets = self._checked_table(X, y)
        weights = None if sample_weight is None else _checked_weights(sample_weight, X)
        if weights is not None and not metric.takes_weights and np.ptp(weights):
            raise ValueError(f"sample_weight: expected none, for the metric {metric.name!r} takes no weights")
        if metric.takes_weights and len(targets) <= MERGED_UP_TO:
            X, targets, weights = _merged(X, targets, weights)
        seed = _seed(self.random_state)
        self._fit_scaling(X, weights)
        parts = split(targets, seed, test=0.0, validation=self.validation_fraction)
        table = Table(self._scaled(X), targets, weights)
        with torch.random.fork_rng(devices=[]):
            self._train(table, parts.train, parts.validation, metric, recipe, seed)
            self.threshold_ = self._choose_threshold(table, parts.validation, metric, recipe, seed)
        kept = table.rows(parts.validation)
        shifted = _score(self.network_, kept.x) - self.threshold_
        self.validation_loss_ = float(metric(shifted, kept.y, kept.w))
        return self

    def _check_arguments(self, metric: Metric) -> None:
        if self.method not in (*METHODS, *BASELINES):
            raise ValueError(f"method: expected one of {', '.join((*METHODS, *BASELINES))}, got {self.method!r}")
        if isinstance(self.threshold, str) and self.threshold not in ("validation", "cv"):
            raise ValueError(f"threshold: expected 'validation', 'cv' or a number, got {self.threshold!r}")
        if not 0 < self.validation_fraction < 1:
            raise ValueError(f"validation_fraction: expected between 0 and 1, got {self.validation_fraction!r}")

    def _checked_table(self, X: Any, y: ArrayLike) -> tuple[Any, Array]:
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float32, ensure_min_samples=2)
        check_classification_targets(y)
        kind = type_of_target(y, input_name="y", raise_unknown=True)
        classes, targets = np.unique(y, return_inverse=True)
        if kind != "binary" or len(classes) > 2:
            raise ValueError(f"Only binary classification is supported. The type of the target is {kind}.")
        if len(classes) < 2:
            raise ValueError(f"y: expected two classes, got one class only: {classes[0]!r}")
        self.classes_ = classes
        return X, targets.astype(np.int8)

    def _train(
        self, table: Table, training: Array, validation: Array, metric: Metric, recipe: Recipe, seed: int
    ) -> None:
        rows, kept = table.rows(training), table.rows(validation)
        network = self._start(table.features, seed)
        torch.manual_seed(seed)
        loss = make_loss(self.method, metric, recipe)
        torch.manual_seed(seed)  # dropout must not depend on the loss: every method starts from the same warm-up
        self.history_: list[Round] = []
        self.interrupted_ = False
        rounds = train(network, loss, rows, recipe, validation=kept, metric=metric, seed=seed)
        try:
            for done in _shown(rounds, metric, self.verbose):
                self.history_.append(done)
        except KeyboardInterrupt:
            rounds.close()
            self.interrupted_ = True
            warnings.warn("fit: stopped by the user; the best model so far is kept", stacklevel=3)
        self.network_ = network

    def _start(self, features: int, seed: int) -> nn.Module:
        if self.warm_start and hasattr(self, "network_"):
            return self.network_
        return build_model(self.model, features, seed)

    def _choose_threshold(self, table: Table, validation: Array, metric: Metric, recipe: Recipe, seed: int) -> float:
        if not isinstance(self.threshold, str):
            return float(self.threshold)
        if not metric.thresholded or recipe.form == "zero":
            return 0.0
        if self.threshold == "validation":
            kept = table.rows(validation)
            return best_threshold(metric, _score(self.network_, kept.x), kept.y, kept.w)
        return self._cross_validated(table, metric, recipe, seed)

    def _cross_validated(self, table: Table, metric: Metric, recipe: Recipe, seed: int) -> float:
        """Choose the threshold on rows no model has seen: standardised scores of five models, each on its own fold."""
        chosen, history = self.network_, self.history_
        scores, order = [], []
        for training, held_out in folds(table.targets, 5, seed):
            inner = split(table.targets[training], seed, test=0.0, validation=self.validation_fraction)
            self._train(table, training[inner.train], training[inner.validation], metric, recipe, seed)
            unseen = _score(self.network_, table.rows(held_out).x)
            scores.append((unseen - unseen.mean()) / unseen.std().clamp(min=1e-12))
            order.append(held_out)
        self.network_, self.history_ = chosen, history
        pooled = table.rows(np.concatenate(order))
        cut = best_threshold(metric, torch.cat(scores), pooled.y, pooled.w)
        own = _score(chosen, torch.as_tensor(table.x))
        return float(own.mean() + cut * own.std())

    def _fit_scaling(self, X: Any, weights: Array | None) -> None:
        features = X.shape[1]
        self.centre_, self.scale_ = np.zeros(features, np.float32), np.ones(features, np.float32)
        if not self.standardise:
            return
        share = np.full(X.shape[0], 1 / X.shape[0]) if weights is None else weights / weights.sum()
        mean = np.asarray(share @ X).ravel()
        square = np.asarray(share @ (X.multiply(X) if scipy.sparse.issparse(X) else np.square(X, dtype=np.float64)))
        spread = np.sqrt(np.maximum(square.ravel() - mean**2, 0))
        self.scale_ = np.where(spread > 1e-7 * np.abs(mean), spread, 1).astype(np.float32)
        if not scipy.sparse.issparse(X):
            self.centre_ = mean.astype(np.float32)

    def _scaled(self, X: Any) -> Array:
        dense = X.toarray() if scipy.sparse.issparse(X) else X
        return np.asarray((dense - self.centre_) / self.scale_, np.float32)

    # ---- using -----------------------------------------------------------------------------------------------------

    def decision_function(self, X: Any) -> Array:
        """Return scores, shifted so that the threshold is zero: `(rows,)`."""
        check_is_fitted(self, "threshold_")
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float32, reset=False)
        chunks = [
            _score(self.network_, torch.from_numpy(self._scaled(X[start : start + CHUNK])))
            for start in range(0, X.shape[0], CHUNK)
        ]
        return np.asarray(torch.cat(chunks).double().numpy() - self.threshold_)

    def predict(self, X: Any) -> Array:
        """Return labels: the second class where the decision function is at least zero."""
        found = self.decision_function(X) >= 0
        return np.asarray(self.classes_[found.astype(int)])

    def score(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Return the chosen metric as people know it (F1 0.69), or negated if they want it low, as scorers do."""
        metric = as_metric(self.metric)
        scores = self.decision_function(X)
        targets = np.asarray(y) == self.classes_[1]
        weights = None if sample_weight is None else np.asarray(sample_weight, float)
        value = float(metric.value(metric(scores, targets, weights)))
        return value if metric.higher_is_better else -value

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags


class Table:
    """Scaled features, targets and weights of all rows, from which parts are taken."""

    def __init__(self, x: Array, targets: Array, weights: Array | None) -> None:
        self.x, self.targets, self.weights = x, targets, weights
        self.features = x.shape[1]

    def rows(self, part: Array) -> Rows:
        """Return some rows as tensors."""
        w = None if self.weights is None else torch.as_tensor(self.weights[part], dtype=torch.float32)
        return Rows(torch.as_tensor(self.x[part]), torch.as_tensor(self.targets[part], dtype=torch.float32), w)


def make_loss(method: str, metric: Metric, recipe: Recipe) -> nn.Module:
    """Build the loss of a method: a baseline, or a surrogate that starts and learns as the paper's modes do."""
    if method in BASELINES:
        return BASELINES[method]()
    return SurrogateLoss(
        metric,
        "scratch" if method == "sl-s" else "universal",
        frozen=method == "sl-u",
        form=recipe.form,
        construction=None if recipe.construction == "default" else recipe.construction,
        learning_rate=recipe.surrogate_rate,
        clip=recipe.clip,
        relational=recipe.relational,
    )


@torch.no_grad()
def _score(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    network.eval()
    scores: torch.Tensor = network(x)
    return scores


def _shown(rounds: Iterator[Round], metric: Metric, verbose: bool) -> Iterator[Round]:
    """Pass rounds on, with a live line of the true metric on validation rows if asked for."""
    yield from shown_rounds(rounds, metric) if verbose else rounds


def _seed(random_state: Any) -> int:
    if random_state is None:
        return 0
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    return int(random_state.randint(2**31 - 1))


def _checked_weights(sample_weight: ArrayLike, X: Any) -> Array:
    weights = np.asarray(_check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True))
    if not weights.any():
        raise ValueError("sample_weight: expected at least one positive weight, got only zeros")
    return weights


def _merged(X: Any, targets: Array, weights: Array | None) -> tuple[Any, Array, Array | None]:
    """Merge equal rows and add up their weights, dropping those of weight zero.

    Repeating a row and weighing it are then the same thing to the bit, and no row can be on both sides of a split.
    """
    weights = np.ones(len(targets)) if weights is None else weights
    dense = X.toarray() if scipy.sparse.issparse(X) else X
    table = np.column_stack((dense, targets))[weights > 0]
    unique, where = np.unique(table, axis=0, return_inverse=True)
    total = np.bincount(where.ravel(), weights[weights > 0], minlength=len(unique))
    features = np.ascontiguousarray(unique[:, :-1], dtype=np.float32)
    merged = scipy.sparse.csr_matrix(features) if scipy.sparse.issparse(X) else features
    return merged, unique[:, -1].astype(np.int8), None if np.ptp(total) == 0 else total
