"""Terms of a table model: one a column, with its levels and the missing cells, in the units of the table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from metricgrad.estimators.terms import Term, Terms, value_at
from metricgrad.tabular import cells
from metricgrad.tabular.encoding import PARTS, Hashed, Numeric, OneHot, Preparation

Floats = NDArray[np.float64]


def column_terms(terms: Terms, preparation: Preparation) -> Terms:
    """Join the terms of encoded features to terms of the columns they were made from."""
    found: list[Term] = []
    place = 0
    for encoder in preparation.encoders_:
        own = terms.each[place : place + len(encoder.features)]
        place += len(own)
        if isinstance(encoder, Hashed):
            found += own  # a hash stands for no word
        else:
            found += [_levels(encoder, own)] if isinstance(encoder, OneHot) else _numbers(encoder, own)
    return Terms(terms.base, found + terms.each[place:])


def table_cells(frame: pd.DataFrame, preparation: Preparation) -> dict[str, NDArray[Any]]:
    """Return the columns that terms read: numbers, booleans as 1 and 0, parts of dates, words of categories."""
    found: dict[str, NDArray[Any]] = {}
    for encoder in preparation.encoders_:
        if isinstance(encoder, OneHot):
            found[encoder.name] = cells.words(frame[encoder.name])
            continue
        if isinstance(encoder, Hashed):
            found |= dict(zip(encoder.features, encoder.encode(frame[encoder.name]).T, strict=True))
            continue
        parts = PARTS[encoder.kind](frame[encoder.name], encoder.form)
        found |= dict(zip(encoder.features, parts.T, strict=False))
        if encoder.gaps and encoder.kind == "date":
            found[encoder.features[-1]] = np.isnan(parts[:, 0]).astype(float)
    return found


def _levels(encoder: OneHot, own: list[Term]) -> Term:
    """Return the term of a category: a level adds its own feature, and the others their zeros."""
    off = sum(value_at(term, 0.0) for term in own)
    on = np.column_stack([value_at(term, 1.0) - value_at(term, 0.0) for term in own]) + np.reshape(off, (-1, 1))
    share = np.array([float(term.share[-1]) if len(term.share) > 1 else float(_only(term)) for term in own])
    known = len(own) - encoder.gaps
    names = (*encoder.levels, *(["other"] * encoder.others))
    missing = on[:, known] if encoder.gaps else None
    gap = float(share[known]) if encoder.gaps else 0.0
    return Term(
        encoder.name, names, None, on[:, :known], share[:known], missing, gap, float(np.ravel(off)[0]), "category"
    )


def _numbers(encoder: Numeric, own: list[Term]) -> list[Term]:
    """Return the terms of a number, a boolean or the parts of a date, in their units."""
    gap = own[-1] if encoder.gaps else None
    parts = [
        term.scaled(scale, centre) for term, scale, centre in zip(own, encoder.scale, encoder.centre, strict=False)
    ]
    if len(parts) > 1:
        return [*parts, *([] if gap is None else [gap])]
    (term,) = parts
    places = term.places if term.places is not None else np.zeros(0)
    if encoder.kind == "boolean":
        term = replace(term, levels=tuple("yes" if place > 0.5 else "no" for place in places), kind="boolean")
    filled = np.array([np.interp(encoder.fill[0], places, values) for values in term.values])
    if gap is None:
        return [replace(term, unseen=float(filled[0]))]
    share = float(gap.share[-1]) if len(gap.share) > 1 else float(_only(gap))
    nearest = int(np.abs(places - encoder.fill[0]).argmin())
    shares = term.share.copy()
    shares[nearest] = max(0.0, shares[nearest] - share)  # missing cells were filled
    present = term.values + value_at(gap, 0.0)[:, None]
    return [replace(term, values=present, share=shares, missing=filled + value_at(gap, 1.0), missing_share=share)]


def _only(term: Term) -> float:
    """Return the share of rows at 1 of a feature that has one value."""
    assert term.places is not None
    return float(term.places[0] > 0.5)
