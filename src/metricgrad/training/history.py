"""What training leaves behind, as plain records: every round, and which model was kept."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, fields


@dataclass(frozen=True)
class Round:
    """What one round did.

    Parameters
    ----------
    phase, number, of : str, int, int
        `"warm-up"` or `"rounds"`, and where in it; between the two `"refining"`, in steps, if a surrogate could not be
        trusted at first.
    steps : int
        Model steps so far.
    loss, gap : float
        The loss followed, and how far it is from the metric; no loss while refining.
    trust : float
        Spearman correlation of surrogate and metric on fresh sets of the current model, at the last check.
    cosine : float
        Between the gradient of the surrogate and that of the smoothed metric, found by probing it, on some of them.
    validation, control : float
        True loss on the validation rows: of the model, and of the control that goes on with cross-entropy.
    best : bool
        Whether no model lost less on the validation rows so far.
    seconds : float
        Since the start.
    """

    phase: str
    number: int
    of: int
    steps: int
    loss: float
    gap: float = math.nan
    trust: float = math.nan
    cosine: float = math.nan
    validation: float = math.nan
    best: bool = False
    control: float = math.nan
    seconds: float = 0.0

    @property
    def companion(self) -> float:
        """The old name of `control`."""
        warnings.warn("Round.companion is deprecated: use Round.control", DeprecationWarning, stacklevel=2)
        return self.control

    def scalars(self) -> dict[str, float]:
        """Return the finite measurements by name, for a logger; `steps` is the step to log them at.

        `seconds` is always there, and `loss`, but for refining; `validation` if the round was validated; `gap` and
        `trust` if a surrogate was trained.

        Examples
        --------
        MLflow: `callback=lambda done: mlflow.log_metrics(done.scalars(), done.steps)`; W&B:
        `callback=lambda done: run.log(done.scalars(), step=done.steps)`.

        >>> from sklearn.datasets import load_breast_cancer
        >>> from metricgrad import MetricClassifier, Recipe
        >>> kept = []
        >>> model = MetricClassifier(
        ...     "f1", "sl-r", "linear", Recipe(warmup=3, rounds=0), callback=lambda done: kept.append(done.scalars())
        ... )
        >>> _ = model.fit(*load_breast_cancer(return_X_y=True))
        >>> [sorted(numbers) for numbers in kept]
        [['loss', 'seconds', 'validation']]
        """
        measured = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in measured.items() if isinstance(value, float) and math.isfinite(value)}


MIN_TRUST, MIN_COSINE = 0.4, 0.0
"""Correlation that a surrogate has to exceed to be worth following, and cosine, where only that is known."""


def doubt_of(history: Sequence[Round]) -> str:
    """Return why the surrogate that was followed is doubtful, by the last that is known of it; empty if it is not.

    It is not if it orders the sets of the model as the metric does; where that is not known, if it points where the
    metric falls. A cosine does not outweigh a correlation: one that is nearly constant may still point somewhere.

    Examples
    --------
    >>> doubt_of([Round("rounds", 1, 2, 10, 0.3, 0.2, trust=0.1), Round("rounds", 2, 2, 20, 0.3, 0.2, trust=0.05)])
    'correlation 0.05 with the metric, and a gap of 0.2000 that did not fall'
    >>> doubt_of([Round("rounds", 1, 1, 10, 0.3, 0.01, trust=0.98, cosine=0.5)])
    ''
    """
    rounds = [done for done in history if done.phase == "rounds"]
    trust, cosine = (_last([getattr(done, name) for done in rounds]) for name in ("trust", "cosine"))
    if not rounds or trust > MIN_TRUST or (math.isnan(trust) and cosine > MIN_COSINE):
        return ""
    known = [f"correlation {trust:.2f} with the metric"] if trust == trust else []
    known += [f"cosine {cosine:.2f} with its gradient"] if cosine == cosine else []
    gaps = [done.gap for done in rounds if done.gap == done.gap]
    if len(gaps) > 1 and gaps[-1] >= gaps[0]:
        known.append(f"a gap of {gaps[-1]:.4f} that did not fall")
    return ", and ".join(known) if trust == trust or cosine == cosine else UNKNOWN


UNKNOWN = "whether it follows the metric is not known: sets lose nearly the same, or calls are too few"


def _last(values: Sequence[float]) -> float:
    """Return the last number that is known."""
    return next((value for value in reversed(values) if not math.isnan(value)), math.nan)


STRATEGY_NAMES = {
    "proper": "cross-entropy",
    "mse": "squared error",
    "weighted": "weighted cross-entropy",
    "hand-made": "the soft form of the metric",
    "direct": "direct search",
    "sl-r": "the learned surrogate",
    "surrogate": "the learned surrogate",
    "plug-in": "a plug-in rule",
    "cost-weighted": "cross-entropy weighted by cost",
    "mixture": "a mixture",
}
"""What strategies are called in a sentence."""


def in_words(strategy: str) -> str:
    """Return what a strategy, or a method, is called in a sentence."""
    return STRATEGY_NAMES.get(strategy, strategy)


@dataclass(frozen=True)
class Tried:
    """What one way to train a model cost.

    Parameters
    ----------
    name : str
        Model and strategy: `linear by direct search`.
    seconds : float
        Of training, all folds together.
    calls : int, optional
        How often the true metric was evaluated on a set meanwhile: of direct search and of a function of the user's
        own. None where that is not counted.
    """

    name: str
    seconds: float
    calls: int | None = None

    def __str__(self) -> str:
        """Return name and cost: `linear by direct search 1.5 s and 15,000 calls`."""
        calls = "" if self.calls is None else f" and {self.calls:,} calls"
        digits = 2 if self.seconds < 0.1 else 1 if self.seconds < 100 else 0
        return f"{self.name} {self.seconds:,.{digits}f} s{calls}"


@dataclass(frozen=True)
class Verdict:
    """Which model was kept, and why.

    Parameters
    ----------
    followed : bool
        Whether it is the one that followed the loss; else it followed the proxy of the task: cross-entropy.
    gain : float
        How much less the best model of the loss loses on the validation rows than the best of the proxy; NaN if one
        of them was never checked.
    error : float
        Standard error of the gain, by resampling the validation rows; NaN if nothing depends on it.
    proxy : str
        The name of the proxy.
    kept, folds : int
        In how many of how many folds the model that followed the loss was kept; gain and error are then those of the
        held-out rows of all folds.
    strategy : str
        Where several strategies competed, the one that was kept, or else the best but the proxy.
    unit : float
        How much the value of the metric that is shown changes when the loss changes by one.
    rows, positives : int
        Held-out rows that gain and error are of, and how many of them are of the rarer class; 0 if not known.
    note : str
        Why nothing but the proxy was tried, if so.
    detail : str
        What else there is to say of the model that was kept.
    tried : tuple of Tried
        Everything that was trained in a competition, in that order, and what it cost.

    Examples
    --------
    >>> print(Verdict(True, 0.031, 0.012))  # doctest: +NORMALIZE_WHITESPACE
    kept the model that followed the metric: it gained 0.0310 over cross-entropy on the validation rows
    (standard error 0.0120)
    >>> print(Verdict(False, 0.004, 0.012, "ListNet"))  # doctest: +NORMALIZE_WHITESPACE
    kept ListNet: the metric's model gained 0.0040 over ListNet on the validation rows, within noise
    (standard error 0.0120)
    >>> print(Verdict(False, -0.0169, float("nan")))
    kept cross-entropy: the metric's model was 0.0169 behind cross-entropy on the validation rows
    >>> print(Verdict(False, -0.0169, float("nan"), folds=5))  # doctest: +NORMALIZE_WHITESPACE
    kept cross-entropy in all 5 folds: the metric's models were 0.0169 behind cross-entropy on the held-out rows
    >>> print(Verdict(True, 0.031, float("nan"), kept=3, folds=5))
    kept the models that followed the metric in 3 of 5 folds: they gained 0.0310 over cross-entropy on the held-out rows
    >>> print(Verdict(True, 0.03, 0.01, strategy="direct", rows=900, positives=85))  # doctest: +NORMALIZE_WHITESPACE
    kept direct search: it gained 0.0300 over cross-entropy on 900 held-out rows, 85 of the rarer class
    (standard error 0.0100)
    >>> print(Verdict(True, -0.01, 0.02, strategy="plug-in"))
    kept a plug-in rule: it was 0.0100 behind cross-entropy on the validation rows, within noise (standard error 0.0200)
    >>> print(Verdict(True, 2.5, 0.5, "squared error", strategy="mae", rows=900, detail="cost 31.2"))
    kept mae (cost 31.2): it gained 2.5000 over squared error on 900 held-out rows (standard error 0.5000)
    >>> tried = Tried("linear by cross-entropy", 0.21), Tried("linear by direct search", 1.52, 15_000)
    >>> print(Verdict(True, 0.03, 0.01, strategy="direct", tried=tried).costs)
    tried: linear by cross-entropy 0.2 s, linear by direct search 1.5 s and 15,000 calls
    """

    followed: bool
    gain: float
    error: float
    proxy: str = "cross-entropy"
    kept: int = 0
    folds: int = 1
    strategy: str = ""
    unit: float = 1.0
    rows: int = 0
    positives: int = 0
    note: str = ""
    detail: str = ""
    tried: tuple[Tried, ...] = ()

    @property
    def costs(self) -> str:
        """What was tried and what each cost, in one sentence; empty where nothing competed."""
        return f"tried: {', '.join(map(str, self.tried))}" if self.tried else ""

    @property
    def winner(self) -> str:
        """What the model that was kept has followed."""
        return (self.strategy or "the metric") if self.followed else self.proxy

    def __str__(self) -> str:
        kept = f"{self._kept} ({self.detail})" if self.detail else self._kept
        if self.gain != self.gain:
            return f"{kept}: {self.note}" if self.note else kept
        gain, error = self.unit * self.gain, self.unit * self.error
        were = "were" if self.folds > 1 and not self.strategy else "was"
        by = f"{were} {-gain:.4f} behind {self.proxy}" if gain < 0 else f"gained {gain:.4f} over {self.proxy}"
        noise = "" if error != error else f" (standard error {error:.4f})"
        within = ", within noise" if noise and self.followed == (gain < 0) else ""
        return f"{kept}: {self._who} {by} on {self._where}{within}{noise}"

    @property
    def _kept(self) -> str:
        """What was kept."""
        if self.strategy:
            return f"kept {in_words(self.strategy) if self.followed else self.proxy}"
        several = self.folds > 1
        kept = f"kept the model{'s' * several} that followed the metric" if self.followed else f"kept {self.proxy}"
        if several:
            kept += f" in {self.kept} of {self.folds} folds" if self.followed else f" in all {self.folds} folds"
        return kept

    @property
    def _who(self) -> str:
        """Whose gain it is."""
        if self.strategy:
            return "it" if self.followed else f"the best other, {in_words(self.strategy)},"
        several = self.folds > 1
        return f"the metric's model{'s' * several}" if not self.followed else "they" if several else "it"

    @property
    def _where(self) -> str:
        """The rows that it was measured on."""
        if self.rows:
            rare = f", {self.positives:,} of the rarer class" if self.positives else ""
            return f"{self.rows:,} held-out rows{rare}"
        return f"the {'held-out' if self.folds > 1 else 'validation'} rows"
