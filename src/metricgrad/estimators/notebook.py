"""How estimators show themselves in notebooks: scikit-learn's diagram, and below it a card of what fitting found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from markupsafe import Markup
from sklearn.base import BaseEstimator

if TYPE_CHECKING:
    from metricgrad.training.networks import Scorer


MAX_CARD_SHAPES = 3
"""Features whose shape the card of an additive model shows."""


class NotebookCard(BaseEstimator):  # type: ignore[misc]
    """An estimator with a card below its diagram."""

    def _card(self) -> str:
        """Return the card as HTML; nothing before fitting."""
        return ""

    def _shapes(self, network: Scorer) -> Markup:
        """Return drawings of what an additive model says of the features that count most; nothing of another model."""
        explain = getattr(self, "explain", None)
        if explain is None or network.additive is None or network.outputs is not None:
            return Markup("")
        return Markup(explain().drawn(MAX_CARD_SHAPES))

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._card()

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        shown: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return {kind: text + self._card() if kind == "text/html" else text for kind, text in shown.items()}
