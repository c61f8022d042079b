"""True losses: what models are judged by, vectorised over sets, in [0, 1], lower is better.

A metric is called as `metric(scores, targets, weights=None)`, with sets on the last axis: `(..., n)` -> `(...)`.
Scores are raw reals, targets 0 or 1, weights non-negative; a row of weight zero is as good as absent. For other targets
than these see `tasks.py`.

What a set that cannot be judged loses (never NaN):

- `auc`, `eer`, `partial_auc`, `mcc` and an empty set under `balanced_error`: 0.5, as chance does;
- metrics that look for positives (`f1`, `f_beta`, `jaccard`, `precision`, `recall`, `average_precision`,
  `precision_at`, `recall_at_precision`): 1 where there is nothing to find or nothing was found, as scikit-learn;
- `balanced_error` with one class: the error of that class; `error_rate` of an empty set: 0.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from metricgrad import formulas
from metricgrad.curves import counting_dtype
from metricgrad.formulas import Counts, Function
from metricgrad.tasks import BINARY, Task


@dataclass(frozen=True)
class Metric:
    """A true loss by name, and how people know it.

    Parameters
    ----------
    name : str
        What `get_metric` finds it by.
    function : callable
        `(scores, targets, weights) -> loss`, `(..., n)` -> `(...)`; called with checked input.
    label : str
        How people write it: `F1`.
    explanation : str
        One sentence.
    known_as : (float, float)
        The value people know when the loss is 0, and when it is 1: `(1, 0)` for F1, `(0, 1)` for an error rate.
    thresholded : bool
        Whether the loss depends on where scores are cut.
    counts : callable, optional
        For a thresholded metric of confusion counts: the loss from the counts. It gives the best-threshold form and
        the exact search of a threshold.
    best_function : callable, optional
        For a thresholded metric without counts: the loss at the best threshold it can find.
    takes_weights : bool
        Whether rows may weigh differently.
    bounded : bool
        Whether the loss is known to lie in [0, 1].
    costly : bool
        Whether every set costs a call of somebody's function, so that it is asked sparingly.
    task : Task
        What is predicted: which shapes scores and targets have, and what targets may be.
    view : str, optional
        How a surrogate looks at a set, by its name in `views.py`; as suits the task if not given.
    columns : tuple of str
        What the metric looks at beside labels and scores: names of columns of the targets.

    Examples
    --------
    >>> f1 = get_metric("f1")
    >>> loss = f1(torch.tensor([0.3, -0.2, 1.5, -1.0]), torch.tensor([1, 1, 0, 0]))
    >>> loss
    tensor(0.5000)
    >>> f1.shown(loss)
    'F1 0.5000'
    >>> f1.best(torch.tensor([0.3, -0.2, 1.5, -1.0]), torch.tensor([1, 1, 0, 0]))
    tensor(0.2000)
    """

    name: str
    function: Function = field(repr=False)
    label: str = field(repr=False)
    explanation: str = field(default="", repr=False)
    known_as: tuple[float, float] = field(default=(1.0, 0.0), repr=False)
    thresholded: bool = field(default=False, repr=False)
    counts: Counts | None = field(default=None, repr=False)
    best_function: Function | None = field(default=None, repr=False)
    takes_weights: bool = field(default=True, repr=False)
    bounded: bool = field(default=True, repr=False)
    costly: bool = field(default=False, repr=False)
    task: Task = field(default=BINARY, repr=False)
    view: str | None = field(default=None, repr=False)
    columns: tuple[str, ...] = field(default=(), repr=False)

    @torch.no_grad()
    def __call__(self, scores: Any, targets: Any, weights: Any = None) -> Tensor:
        """Return the loss of every set, `(..., n)` -> `(...)`, in the dtype of the scores."""
        scores, targets, weights = checked_sets(scores, targets, weights, self.task)
        return self.function(scores, targets, weights).to(scores.dtype)

    @property
    def higher_is_better(self) -> bool:
        """Whether people want the value they know to be high."""
        return self.known_as[0] > self.known_as[1]

    @property
    def best(self) -> Metric:
        """The same metric at the best threshold of the set itself; a metric without a threshold is its own."""
        if not self.thresholded:
            return self
        function = partial(formulas.at_best, counts=self.counts) if self.counts else self.best_function
        if function is None:
            raise ValueError(f"metric: {self.name!r} has no best-threshold form: no counts, no best_function")
        return replace(
            self,
            name=f"best_{self.name}",
            function=function,
            label=f"best {self.label}",
            explanation=f"{self.explanation.rstrip('.')}, at the best threshold of the set itself.",
            thresholded=False,
            counts=None,
            best_function=None,
        )

    def trained(self, form: str) -> Metric:
        """Return the form a surrogate imitates: at the best threshold of each set, or at zero.

        What decides between several outputs is tuned only afterwards: the search is long, and each has a bias to learn.
        """
        return self.best if form == "best" and not self.task.outputs else self

    def value(self, loss: Any) -> Any:
        """Turn a loss into the value people know; the only place where the sign flips."""
        at_zero, at_one = self.known_as
        return at_zero + (at_one - at_zero) * loss

    def shown(self, loss: Any) -> str:
        """Write a loss as people know it: `F1 0.6900`."""
        return f"{self.label} {float(self.value(loss)):.4f}"


def checked_sets(
    scores: Any, targets: Any, weights: Any = None, task: Task = BINARY
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return tensors of one shape and device, or raise an error that names the argument, the expectation, the value."""
    scores = _tensor("scores", scores)
    if scores.ndim == 0:
        raise ValueError("scores: expected at least one axis, the rows of a set on the last, got a single number")
    if scores.ndim < task.axes:
        raise ValueError(f"scores: expected rows and outputs, (..., n, c), got the shape {tuple(scores.shape)}")
    if not scores.is_floating_point():
        scores = scores.to(counting_dtype(scores))
    targets = task.coded(_tensor("targets", targets), scores)
    columns = targets.shape[-1:] if task.several and not task.outputs else ()
    targets = _spread("targets", targets, torch.Size((*scores.shape, *columns)), scores.device)
    if not bool(scores.isfinite().all()):
        raise ValueError(f"scores: expected finite numbers, got {_first(scores, ~scores.isfinite())}")
    if targets.dtype != torch.bool or task.several:
        wrong = task.wrong(targets)
        if bool(wrong.any()):
            raise ValueError(f"targets: expected {task.expected}, got {_first(targets, wrong)}")
    if weights is not None:
        weights = _spread("weights", _tensor("weights", weights), task.rows(scores).shape, scores.device)
        wrong = ~(weights >= 0) | ~weights.isfinite()
        if bool(wrong.any()):
            raise ValueError(f"weights: expected finite numbers of at least 0, got {_first(weights, wrong)}")
    return scores, targets, weights


def _tensor(name: str, values: Any) -> Tensor:
    """Turn what people hold rows in (lists, arrays, series) into a tensor; a tensor stays as it is."""
    if not isinstance(values, Tensor):
        try:
            array = np.asarray(values)
        except ValueError:
            raise ValueError(f"{name}: expected sets of equal length, got a ragged {type(values).__name__}") from None
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name}: expected real numbers, got {array.dtype} from {type(values).__name__}")
        # A copy, for torch takes no array that is reversed, read-only (as pandas gives) or of another byte order.
        plain = {"b": np.bool_, "i": np.int64, "u": np.float64}.get(array.dtype.kind, array.dtype.newbyteorder("="))
        values = torch.from_numpy(np.array(array, dtype=np.float64 if array.dtype.itemsize > 8 else plain))
    tensor: Tensor = values
    if tensor.is_complex():
        raise TypeError(f"{name}: expected real numbers, got {tensor.dtype}")
    return tensor


def _spread(name: str, values: Tensor, shape: torch.Size, device: torch.device) -> Tensor:
    values = values.to(device)
    if values.shape == shape:
        return values
    # Leading axes may spread; rows may not, for a column beside a row would silently become sets of one row each.
    if values.shape[-1:] == shape[-1:] and values.ndim <= len(shape):
        try:
            return values.expand(shape)
        except RuntimeError:
            pass
    expected, got = tuple(shape), tuple(values.shape)
    raise ValueError(f"{name}: expected the shape of scores {expected}, or its last axes, got {got}")


def _first(values: Tensor, wrong: Tensor) -> str:
    where = tuple(int(i) for i in wrong.nonzero()[0])
    return f"{values[where].item()} at index {where if len(where) > 1 else where[0]}"


# ---- the built-in metrics ------------------------------------------------------------------------------------------


def _of_counts(
    name: str, counts: Counts, label: str, explanation: str, known_as: tuple[float, float] = (1, 0)
) -> Metric:
    return Metric(name, partial(formulas.at_zero, counts=counts), label, explanation, known_as, True, counts)


auc = Metric("auc", formulas.auc_loss, "AUC", "Area under the ROC curve: how often a positive outranks a negative.")
eer = Metric(
    "eer",
    formulas.eer_loss,
    "EER",
    "Equal error rate: mean of miss and false-alarm rate where they are nearest.",
    (0, 1),
)
average_precision = Metric(
    "average_precision",
    formulas.average_precision_loss,
    "AP",
    "Average precision: mean precision at each positive found.",
)
error_rate = _of_counts(
    "error_rate", formulas.error_rate_loss, "error rate", "Share of rows classified wrongly (MCR).", (0, 1)
)
f1 = _of_counts("f1", partial(formulas.f_beta_loss, beta=1.0), "F1", "Harmonic mean of precision and recall.")
mcc = _of_counts(
    "mcc", formulas.mcc_loss, "MCC", "Matthews correlation coefficient; the loss is (1 - MCC) / 2.", (1, -1)
)
jaccard = _of_counts(
    "jaccard", formulas.jaccard_loss, "Jaccard", "Positives found, over positives and false alarms (IoU)."
)
balanced_error = _of_counts(
    "balanced_error", formulas.balanced_error_loss, "balanced error", "Mean of miss rate and false-alarm rate.", (0, 1)
)
precision = _of_counts("precision", formulas.precision_loss, "precision", "Share of rows called positive that are.")
recall = _of_counts("recall", formulas.recall_loss, "recall", "Share of positive rows that are found.")


def f_beta(beta: float = 2.0) -> Metric:
    """F-measure in which recall counts `beta` times as much as precision."""
    beta = _within("beta", beta, 0, 1e6)
    counts = partial(formulas.f_beta_loss, beta=beta)
    explanation = f"F-measure; recall counts {beta:g} times as much as precision."
    return _of_counts(f"f_beta({_brief(beta)})", counts, f"F{beta:g}", explanation)


def partial_auc(max_fpr: float = 0.05) -> Metric:
    """Area under the ROC curve up to a false-alarm rate, standardised as scikit-learn does (chance is 0.5)."""
    max_fpr = _within("max_fpr", max_fpr, 0, 1)
    explanation = f"Area under the ROC curve up to a false-alarm rate of {max_fpr:g}, standardised (chance is 0.5)."
    function = partial(formulas.partial_auc_loss, max_fpr=max_fpr)
    return Metric(f"partial_auc({_brief(max_fpr)})", function, f"pAUC@{max_fpr:g}", explanation)


def precision_at(fraction: float = 0.02) -> Metric:
    """Precision among the highest-scored fraction of the rows by weight; a cut through ties takes their average."""
    fraction = _within("fraction", fraction, 0, 1)
    explanation = f"Share of positives among the top {fraction:.3g} of the rows (by weight)."
    function = partial(formulas.precision_at_loss, fraction=fraction)
    return Metric(f"precision_at({_brief(fraction)})", function, f"P@{fraction:g}", explanation)


def recall_at_precision(precision: float = 0.9) -> Metric:
    """The largest recall any threshold reaches while keeping at least this precision."""
    precision = _within("precision", precision, 0, 1)
    explanation = f"Largest recall of any threshold with a precision of at least {precision:g}."
    function = partial(formulas.recall_at_precision_loss, precision=precision)
    return Metric(f"recall_at_precision({_brief(precision)})", function, f"R@P{precision:g}", explanation)


def _within(name: str, value: Any, low: float, high: float) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not low < number <= high:
        raise ValueError(f"{name}: expected a number above {low:g} and at most {high:g}, got {value!r}")
    return number


def _brief(number: float) -> str:
    """Write a number as short as finds the same metric again."""
    return repr(number).removesuffix(".0")


PLAIN = {
    m.name: m for m in (auc, eer, average_precision, error_rate, f1, mcc, jaccard, balanced_error, precision, recall)
}
FAMILIES: dict[str, Callable[..., Metric]] = {
    f.__name__: f for f in (f_beta, partial_auc, precision_at, recall_at_precision)
}
ALIASES = {
    "mcr": "error_rate",
    "accuracy": "error_rate",
    "ap": "average_precision",
    "jac": "jaccard",
    "iou": "jaccard",
    "roc_auc": "auc",
    "balanced_accuracy": "balanced_error",
}
WELL_KNOWN = {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy"}
"""Aliases by which an error is known the other way round: high is good."""
PAPER = ("auc", "eer", "average_precision", "error_rate", "f1", "mcc", "jaccard")
"""The seven losses of the paper, in the order of its Table 2."""


def builtin_metrics() -> list[Metric]:
    """Return every built-in metric, families at their usual setting."""
    return [*PLAIN.values(), *(family() for family in FAMILIES.values())]


def get_metric(name: str) -> Metric:
    """Find a metric by name: `"f1"`, `"best_f1"`, `"partial_auc(0.05)"`, or an alias of the paper such as `"mcr"`."""
    if not isinstance(name, str):
        raise TypeError(f"metric: expected a name, got {type(name).__name__}")
    head, bracket, settings = name.lower().replace(" ", "").partition("(")
    plain = head.replace("-", "_") + bracket + settings
    if plain.startswith("best_"):
        return get_metric(plain.removeprefix("best_")).best
    if plain in WELL_KNOWN:
        return replace(PLAIN[ALIASES[plain]], label=WELL_KNOWN[plain], known_as=(1, 0))
    plain = ALIASES.get(plain, plain)
    if plain in PLAIN:
        return PLAIN[plain]
    call = re.fullmatch(r"(\w+?)(?:\(([^()]*)\))?", plain)
    if call and call[1] in FAMILIES:
        return FAMILIES[call[1]](*([call[2]] if call[2] else []))
    known = [*PLAIN, *FAMILIES, *ALIASES]
    near = difflib.get_close_matches(plain.partition("(")[0], known, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join([*PLAIN, *FAMILIES])}"
    raise ValueError(f"metric: unknown name {name!r}; {hint}")
