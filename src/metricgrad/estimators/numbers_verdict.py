"""NumbersVerdict: which strategy of a regressor won, and by how much."""

from __future__ import annotations

from dataclasses import dataclass

MSE, DIRECT, SURROGATE = "mse", "direct", "surrogate"
LEARNED = (DIRECT, SURROGATE)
"""Strategies that start from the best of the others, and have to beat it by more than the noise."""


@dataclass(frozen=True)
class NumbersVerdict:
    """Which strategy won, and by how much in the metric's own units.

    Parameters
    ----------
    winner, units, constant : str
        The strategy, what it was trained in, and the map of its predictions.
    label : str
        Of the metric.
    value, usual : float
        Of the metric on validation rows: of the winner, and of squared error with its best constant.
    error : float
        Standard error of their difference.
    higher_is_better : bool
        Of the metric.

    Examples
    --------
    >>> print(NumbersVerdict("surrogate", "log", "times 1.02", "within 10 %", 0.52, 0.5, 0.008, True))
    kept surrogate (log, times 1.02): within 10 % 0.52, better than squared error with its constant by 0.02 \
(standard error 0.008)
    """

    winner: str
    units: str
    constant: str
    label: str
    value: float
    usual: float
    error: float
    higher_is_better: bool

    @property
    def followed(self) -> bool:
        """Whether the model that followed the metric itself was kept, by the surrogate or by search."""
        return self.winner in LEARNED

    @property
    def gain(self) -> float:
        """How much better the winner is than squared error with its constant, in the unit of the metric."""
        return (self.value - self.usual) * (1 if self.higher_is_better else -1)

    def __str__(self) -> str:
        kept = f"kept {self.winner} ({self.units}, {self.constant}): {self.label} {self.value:.4g}"
        if self.winner == MSE:
            return kept
        gain = f"{self.gain:.4g} (standard error {self.error:.2g})"
        return f"{kept}, better than squared error with its constant by {gain}"
