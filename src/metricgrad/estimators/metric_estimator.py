"""What estimators trained for a metric share: checks, scaling, following a loss, and a card."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator, Iterator
from dataclasses import asdict
from datetime import datetime
from functools import partial
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from markupsafe import Markup
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import nn

from metricgrad.estimators.notebook import NotebookCard
from metricgrad.metrics.registry import Metric, get_metric
from metricgrad.training.data import Rows, Scaler, check_weights, chunks
from metricgrad.training.history import Round, Verdict
from metricgrad.training.networks import Scorer, kind_of, numbered
from metricgrad.training.recipe import RECIPES, Recipe, get_recipe, recipe_for

if TYPE_CHECKING:
    from metricgrad.estimators.inputs import Inputs
    from metricgrad.reporting.progress import FitBars
    from metricgrad.training.jobs import Start
    from metricgrad.training.selection import Best

RECIPE = "recipe__"
"""What the names of parameters begin with that are fields of the recipe."""
FLOAT_DTYPES = (np.float64, np.float32)
Array = NDArray[Any]


class Trained(NamedTuple):
    """A trained network, what every round did, whether it was stopped, which model was kept, and what judged it.

    `held_out` has the scores of the validation rows by the best model that followed cross-entropy, and by the best that
    followed the loss; `method` is the one that the network was trained by, `best` its checkpoint. `doubt` is why the
    surrogate that it followed is doubtful, even after a restart, if it is. `calls` is how often the true metric was
    evaluated on a set meanwhile, where that is counted.
    """

    network: Scorer
    history: list[Round]
    interrupted: bool
    verdict: Verdict | None
    judge: Metric
    held_out: tuple[torch.Tensor | None, torch.Tensor | None] = (None, None)
    method: str = ""
    best: Best | None = None
    doubt: str = ""
    calls: int | None = None


class How(NamedTuple):
    """How one model is trained: recipe and seed, seconds it may take, and where its progress is shown among others'."""

    recipe: Recipe
    seed: int
    limit: float | None = None
    bars: FitBars | None = None


class NestedRecipe(NotebookCard):
    """An estimator whose recipe has parameters of its own, such as `recipe__rounds`, that can be set and searched."""

    recipe: Recipe | str
    model: Any

    @property
    def effective_recipe(self) -> Recipe:
        """The recipe that is followed: "default" is another one for a linear model."""
        return recipe_for(self.recipe, kind_of(self.model))

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, and with `deep` the fields of the recipe too."""
        found: dict[str, Any] = super().get_params(deep)
        if deep and (isinstance(self.recipe, Recipe) or (isinstance(self.recipe, str) and self.recipe in RECIPES)):
            found |= {f"{RECIPE}{name}": value for name, value in asdict(self.effective_recipe).items()}
        return found

    def set_params(self, **params: Any) -> Any:
        """Set parameters; a field of the recipe makes a new recipe."""
        changes = {name.removeprefix(RECIPE): value for name, value in params.items() if name.startswith(RECIPE)}
        super().set_params(**{name: value for name, value in params.items() if not name.startswith(RECIPE)})
        if changes:
            self.recipe = get_recipe(self.effective_recipe, **changes)
        return self

    def _get_params_html(self, deep: bool = True, *rest: Any, **more: Any) -> Any:
        """Show the recipe as it was given, not field by field."""
        return super()._get_params_html(False, *rest, **more)


class MetricEstimator(NestedRecipe):
    """An estimator trained for a metric; its subclasses say what a table is, and what is predicted."""

    metric: Any
    method: str
    model: Any
    validation_fraction: float
    standardise: bool | None
    verbose: bool
    callback: Callable[[Round], object] | None
    time_limit: float | None
    network_: Scorer
    history_: list[Round]
    interrupted_: bool
    validation_loss_: float
    centre_: Array
    scale_: Array
    inputs_: Inputs | None = None
    optimizer: Callable[[list[torch.Tensor]], torch.optim.Optimizer] | None = None
    device: str | torch.device | None = None
    _for_text = "encode it first"

    def _check_training(self, methods: tuple[str, ...]) -> None:
        if self.callback is not None and not callable(self.callback):
            raise TypeError(f"callback: expected a function of a Round or None, got {self.callback!r}")
        if self.optimizer is not None and not callable(self.optimizer):
            raise TypeError(f"optimizer: expected a function of parameters or None, got {self.optimizer!r}")
        if self.device is not None:
            _check_device(self.device)
        if self.method not in methods:
            raise ValueError(f"method: expected one of {', '.join(methods)}, got {self.method!r}")
        if not (is_finite(self.validation_fraction) and 0 < self.validation_fraction < 1):
            raise ValueError(
                f"validation_fraction: expected a number between 0 and 1, got {self.validation_fraction!r}"
            )
        if self.time_limit is not None and not (is_finite(self.time_limit) and self.time_limit > 0):
            raise ValueError(f"time_limit: expected a positive number of seconds or None, got {self.time_limit!r}")

    def _checked(self, X: Any, *y: Any, **how: Any) -> Any:
        """Have scikit-learn check features, and targets if given; name the estimator that takes text."""
        from metricgrad.estimators.inputs import as_table  # loading needs none

        X = as_table(X, self.inputs_)
        try:
            return validate_data(self, X, *y, accept_sparse="csr", dtype=FLOAT_DTYPES, **how)
        except (TypeError, ValueError) as error:
            got = _not_numbers(X)
            if not got:
                raise
            raise ValueError(f"X: expected numbers, got {got}; {self._for_text}") from error

    @property
    def _standardises(self) -> bool:
        """Whether features are standardised: as the user says, or else the recipe; inputs with shapes are not."""
        if self.standardise is None and self.inputs_ is not None:
            return False
        return self.effective_recipe.standardise if self.standardise is None else self.standardise

    def _model_spec(self) -> Any:
        """Return the model as it is to be built: of an additive one, features are numbers, not names."""
        from metricgrad.estimators.inputs import shaped_spec

        return shaped_spec(numbered(self.model, getattr(self, "feature_names_in_", ())), self.inputs_)

    def _follow(
        self,
        loss: nn.Module,
        network: Scorer,
        rows: Rows,
        kept: Rows,
        metric: Metric,
        how: How,
        start: Start | None = None,
        guarded: bool = True,
        control: nn.Module | None = None,
    ) -> Trained:
        """Train a network by rounds, from a start if given, until the end, the limit, a callback's True, or Ctrl-C.

        Of a surrogate, `control` is the loss that the model at the start followed, if that is not the usual one.
        """
        from metricgrad.training.selection import Selection  # loading and predicting need no trainer
        from metricgrad.training.trainer import train

        torch.manual_seed(how.seed)  # dropout must not depend on the loss: every method starts from the same warm-up
        judge: Metric = getattr(loss, "judge", metric)  # of a black box, one that needs fewer calls
        selection = Selection(kept, judge, how.recipe, guarded=guarded)
        trained = partial(train, optimizer=self.optimizer, device=self.device, control=control)
        rounds = trained(network, loss, rows, how.recipe, selection=selection, seed=how.seed, start=start)
        history, interrupted = self._watched(rounds, network, metric, how)
        if network.additive is not None:
            network.additive.project()
        # In double, a row scores the same whatever rows lie beside it; a module of the user's stays as it is.
        network = network.double() if network.name else network
        held_out = (selection.control.scores, selection.followed.scores)
        return Trained(network, history, interrupted, selection.verdict, judge, held_out, best=selection.best)

    def _watched(
        self, rounds: Generator[Round, None, None], network: Scorer, metric: Metric, how: How
    ) -> tuple[list[Round], bool]:
        """Let training go on until its end, or until it is stopped; return its rounds and whether it was stopped."""
        from metricgrad.training.threads import threads_for

        history: list[Round] = []
        interrupted = False
        try:
            with threads_for([network], how.recipe.set_size * how.recipe.sets):
                for done in self._shown(rounds, metric, how.bars):
                    history.append(done)
                    if self._is_enough(done, how.limit):
                        interrupted = done.number < done.of or done.phase != "rounds"
                        break
        except KeyboardInterrupt:
            interrupted = True
            warnings.warn("fit: stopped by the user; the best model so far is kept", stacklevel=5)
        rounds.close()
        return history, interrupted

    def _shown(self, rounds: Iterator[Round], metric: Metric, bars: FitBars | None) -> Iterator[Round]:
        """Return rounds whose progress is shown, if that is wanted."""
        from metricgrad.reporting.progress import shown_rounds

        if bars is not None:
            return bars.shown_rounds(rounds, metric)
        return shown_rounds(rounds, metric) if self.verbose else rounds

    def _is_enough(self, done: Round, limit: float | None) -> bool:
        """Call back, and return whether to stop: because the callback returned True, or the time is up."""
        answer = None if self.callback is None else self.callback(done)
        stopped = isinstance(answer, (bool, np.bool_)) and bool(answer)  # not any object that a logger may return
        return stopped or (limit is not None and done.seconds >= limit)

    def _raw_scores(self, X: Any) -> torch.Tensor:
        """Return what the network says of rows, some at a time: `(rows,)`."""
        X, scaler = self._checked(X, reset=False), Scaler(self.centre_, self.scale_)
        parts = (torch.from_numpy(scaler.transform(X[rows])) for rows in chunks(X.shape[0]))
        return torch.cat([scores_in_double(self.network_, part) for part in parts])

    # ---- being shown and kept --------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "callback": None}

    def _facts(self) -> dict[str, str]:
        """Return what the card says first."""
        return {"method": self.method}

    def _card(self) -> str:
        """Return what fitting found, for notebooks; nothing before it."""
        if not hasattr(self, "validation_loss_"):
            return ""
        return self._card_by(get_metric(self.metric), self._shapes(self.network_))

    def _card_by(self, metric: Metric, shapes: Markup) -> str:
        """Return the card by a metric, which names and signs what is shown, with drawings of what the model says."""
        from metricgrad.reporting.html import card, sparkline

        facts = self._facts()
        verdict = getattr(self, "verdict_", None)
        if verdict is not None:
            facts["verdict"] = str(verdict)
        checked = [done for done in self.history_ if math.isfinite(done.validation)]
        kept = min(checked, key=lambda done: done.validation, default=None)
        if kept is not None:
            facts["checkpoint kept"] = f"step {kept.steps:,} of {self.history_[-1].steps:,} ({kept.phase})"
        if self.interrupted_:
            facts["training"] = "stopped before its end"
        points = [(done.steps, metric.value(done.validation)) for done in checked]
        dot = None if kept is None else (kept.steps, metric.value(kept.validation))
        drawn = sparkline(points, dot, f"{metric.label} on validation rows while training")
        headline = f"{metric.shown(self.validation_loss_)} on {self._judged_on}"
        return card(headline, facts, drawn=drawn + shapes)

    @property
    def _judged_on(self) -> str:
        """The rows that chose checkpoint and threshold."""
        return "validation rows"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@torch.no_grad()
def scores_in_double(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Score rows in evaluation mode and in the precision of the network; in double whatever that is."""
    network.eval()
    dtype = next((p.dtype for p in network.parameters()), torch.float64)  # trees have no parameters
    return torch.cat([network(x[rows].to(dtype)).double() for rows in chunks(len(x))])


def scored(metric: Metric, scores: Array, targets: Array, sample_weight: Any, columns: Array | None) -> float:
    """Return a metric in its usual form (F1 0.69), negated if lower is better, as scorers do."""
    targets = targets if columns is None else np.column_stack((targets, columns))
    weights = None if sample_weight is None else np.asarray(sample_weight, float)
    value = float(metric.value(metric(scores, targets, weights)))
    return value if metric.higher_is_better else -value


def weights_for(metric: Metric, sample_weight: Any, X: Any) -> Array | None:
    """Check the weights of rows, which must be equal where the metric takes none."""
    weights = None if sample_weight is None else check_weights(sample_weight, X)
    if weights is not None and not metric.takes_weights and np.ptp(weights):
        raise ValueError(
            f"sample_weight: expected equal weights because the metric {metric.name!r} takes none, "
            f"got {weights.min():g} to {weights.max():g}"
        )
    return weights


def check_fit(network: Scorer, x: torch.Tensor) -> None:
    """Raise an error that names the model if it cannot score two rows of the table."""
    try:
        network.eval()(x)
    except RuntimeError as error:
        raise ValueError(
            f"model: expected a module that scores {x.shape[1]} features in single precision, got {error}"
        ) from error


def seed_of(random_state: Any) -> int:
    """Return the seed in what scikit-learn calls a random state; None is 0."""
    if random_state is None:
        return 0
    if isinstance(random_state, Integral):
        if random_state < 0:
            raise ValueError(f"random_state: expected zero or more, got {random_state}")
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _not_numbers(X: Any) -> str:
    """Name the first column or cell that is text, a category of text or a date; nothing if there is none."""
    frame = X.to_pandas() if hasattr(X, "to_pandas") else X
    if isinstance(frame, pd.DataFrame):
        found = ((name, next(filter(_is_no_number, column), None)) for name, column in frame.items())
        return next((f"{cell!r} in the column {name!r}" for name, cell in found if cell is not None), "")
    cells = np.array(X, dtype=object).ravel() if isinstance(X, (list, tuple, np.ndarray)) else ()
    first = next(filter(_is_no_number, cells), None)
    return "" if first is None else repr(first)


def _is_no_number(cell: Any) -> bool:
    """Whether a cell is a date, or text that is not a number either."""
    if not isinstance(cell, str):
        return isinstance(cell, datetime)
    try:
        float(cell)
    except ValueError:
        return True
    return False


def _check_device(device: Any) -> None:
    """Raise an error that names a device on which nothing can be computed."""
    try:
        torch.zeros(1, device=device)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError) as error:
        said = str(error).splitlines()[0]
        raise ValueError(f"device: expected one that torch can use, got {device!r}: {said}") from error


def is_finite(value: Any) -> bool:
    """Return whether a value is a finite number and not a bool."""
    return isinstance(value, Real) and value is not True and value is not False and math.isfinite(value)
