"""Explanations: the terms of a linear or additive model as a frame, as figures, and as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray

from metricgrad.estimators.terms import Term, Terms

if TYPE_CHECKING:
    from metricgrad.reporting.plots import Picture

Floats = NDArray[np.float64]
BAND = (0.05, 0.95)
"""Quantiles of the bootstrap draws between which the band lies."""
MAX_CARD_FIGURES = 6


class Explanation:
    """What every level of every feature adds to the score; together with `base`, at least 0 is positive.

    Of a model of numbers they add up to the prediction. If that was trained in logarithms they add up to its
    logarithm: the exponential of a contribution is a factor.

    Attributes
    ----------
    frame : DataFrame
        A row for every level, with the columns `feature`, `level`, `place` (of a number), `contribution`, `low` and
        `high` (a 90 % bootstrap band; NaN without rows) and `share` of the rows. The contribution of a number is linear
        between its places. Contributions of a feature have mean 0 over the training rows.
    base : float
        The score of a row of average contributions.
    importance : Series
        Mean absolute contribution of every feature over the rows, the largest first.
    of : {"classes", "numbers", "logarithms"}
        What the model predicts.
    """

    def __init__(self, terms: Terms, of: str = "classes") -> None:
        self.of = of
        self.terms, self.base = {term.feature: term for term in terms.each}, terms.base
        self.frame = pd.concat([_frame(term) for term in terms.each], ignore_index=True)
        weights = {name: _importance(term) for name, term in self.terms.items()}
        self.importance = pd.Series(weights, dtype=float, name="importance").sort_values(ascending=False)

    def figure(self, feature: str) -> Picture:
        """Return the shape function of a feature with its band, and where the rows are.

        Parameters
        ----------
        feature : str
            One of `importance.index`.

        Returns
        -------
        Picture
            A matplotlib figure.
        """
        from metricgrad.reporting.shapes import plot_shape

        if feature not in self.terms:
            raise ValueError(f"feature: expected one of {', '.join(list(self.terms)[:8])}, got {feature!r}")
        own = self.frame[self.frame["feature"] == feature]
        term = self.terms[feature]
        line = term.places is not None and len(term.places) > 2
        own = own.iloc[: len(term.levels)] if line else own
        band = None if own["low"].isna().any() else (own["low"].to_numpy(), own["high"].to_numpy())
        return plot_shape(
            feature,
            own["level"].tolist(),
            own["contribution"].to_numpy(),
            places=term.places if line else None,
            share=own["share"].to_numpy(),
            band=band,
            log=self.of == "logarithms",
        )

    def figures(self, most: int | None = None) -> dict[str, Picture]:
        """Return a figure for every feature, the most important first."""
        return {name: self.figure(name) for name in self.importance.index[:most]}

    def drawn(self, most: int | None = None) -> Markup:
        """Return the figures as SVG, for pages."""
        from metricgrad.reporting.plots import inline_svg

        shown = [inline_svg(figure, f"shape{i}", name) for i, (name, figure) in enumerate(self.figures(most).items())]
        return Markup("").join(shown)

    def page(self, title: str) -> str:
        """Return a page of one file: a figure a feature, and the frame."""
        from metricgrad.reporting.html import render_page

        rows = [[_cell(value) for value in row] for row in self.frame.itertuples(index=False)]
        return render_page(
            "explanation.html",
            title,
            of=self.of,
            base=self.base,
            drawn=self.drawn(),
            head=list(self.frame.columns),
            rows=rows,
        )

    def _repr_html_(self) -> str:
        from metricgrad.reporting.html import NOTEBOOK_COLOURS

        drawn = f'<div style="{NOTEBOOK_COLOURS}">{self.drawn(MAX_CARD_FIGURES)}</div>'
        return drawn + str(self.frame.to_html(index=False, na_rep=""))

    def __repr__(self) -> str:
        return f"base {self.base:+.4g}\n{self.frame.to_string(index=False, float_format='%.4g', na_rep='')}"


def _frame(term: Term) -> pd.DataFrame:
    values, share = term.values, term.share
    levels, places = list(term.levels), np.full(len(share), np.nan) if term.places is None else term.places
    if term.missing is not None:
        values = np.column_stack((values, term.missing))
        share, places = np.append(share, term.missing_share), np.append(places, np.nan)
        levels.append("missing")
    low, high = np.quantile(values[1:], BAND, axis=0) if len(values) > 1 else np.full((2, len(share)), np.nan)
    found: pd.DataFrame = pd.DataFrame(
        {
            "feature": term.feature,
            "level": levels,
            "place": places,
            "contribution": values[0],
            "low": low,
            "high": high,
            "share": share,
        }
    )
    return found


def _importance(term: Term) -> float:
    share = np.where(np.isfinite(term.share), term.share, 1 / max(1, len(term.share)))
    gap = 0.0 if term.missing is None else term.missing_share * abs(float(term.missing[0]))
    return float(share @ np.abs(term.contribution)) + gap


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if np.isnan(value) else f"{value:.4g}"
    return str(value)
