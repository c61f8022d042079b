"""Encoding: columns of a table to features of a model; gaps filled, categories one-hot encoded, numbers scaled.

What is learned is plain data, one encoder per column, so that it can be stored as JSON and loaded without running code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from metricgrad.tabular import cells
from metricgrad.tabular.cells import Floats, TableError
from metricgrad.tabular.schema import WORDS, Column, Schema, infer_columns

MAX_LEVELS = 50
"""Number of levels of a category that can have a feature of their own."""
MIN_LEVEL_ROWS = 5
"""Rows a level needs to have one."""
MAX_SCALED = 10.0
"""Scaled numbers are clipped here, so that one extreme cell does not decide a score alone."""
ENCODED_AT_ONCE = 65_536
"""Rows that are encoded at a time."""
MAX_CELLS_KEPT = 10_000_000
"""Cells of features up to which a table is kept beside them."""
MIN_TEXT_WIDTH, MAX_TEXT_WIDTH, MAX_TEXT_FEATURES = 16, 256, 1_024
"""Features of a column of free text, and of all such columns together."""
MAX_TEXT_CELL = 10_000
"""Characters of a cell that are hashed."""
DATE_PARTS = ("days", "month", "weekday", "hour")


@dataclass(frozen=True)
class Numeric:
    """Encoder of numbers, booleans or dates: the fill value, centre and scale of each part.

    With `gaps`, one more feature marks missing cells.
    """

    name: str
    kind: str
    form: str
    fill: tuple[float, ...]
    centre: tuple[float, ...]
    scale: tuple[float, ...]
    gaps: bool

    @staticmethod
    def learn(column: Column, given: pd.Series[Any]) -> Numeric:
        """Learn medians to fill gaps with, then centre and scale."""
        parts = PARTS[column.kind](given, column.form)
        gaps = np.isnan(parts)
        there = parts[~gaps[:, 0]] if gaps.any() else parts
        fill = np.median(there, axis=0) if len(there) else np.zeros(parts.shape[1])
        filled = np.where(gaps, fill, parts) if gaps.any() else parts
        centre, spread = filled.mean(axis=0), filled.std(axis=0)
        scale = np.where(spread > 1e-12 * np.abs(centre), spread, 1.0)
        learned = [tuple(map(float, values)) for values in (fill, centre, scale)]
        return Numeric(column.name, column.kind, column.form, learned[0], learned[1], learned[2], bool(gaps.any()))

    def encode(self, given: pd.Series[Any]) -> Floats:
        """Return the scaled parts, and the mask of missing cells: `(rows, features)`."""
        parts = PARTS[self.kind](given, self.form)
        gaps = np.isnan(parts)
        with np.errstate(over="ignore"):  # what is too large is clipped below
            scaled = (np.where(gaps, self.fill, parts) - self.centre) / np.array(self.scale)
        return np.column_stack((scaled.clip(-MAX_SCALED, MAX_SCALED), *([gaps[:, 0]] if self.gaps else [])))

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        named = [f"{self.name} ({part})" for part in DATE_PARTS] if self.kind == "date" else [self.name]
        return [*named, *([f"{self.name} missing"] if self.gaps else [])]


@dataclass(frozen=True)
class OneHot:
    """Encoder of categories: one feature per level, and one for `others` (rare and new levels) and `gaps`, if any."""

    name: str
    levels: tuple[str, ...]
    others: bool
    gaps: bool

    @staticmethod
    def learn(column: Column, given: pd.Series[Any]) -> OneHot:
        """Keep the common levels."""
        counts = pd.Series(cells.words(given)).value_counts()
        enough = min(MIN_LEVEL_ROWS, counts.max())  # NaN where every cell is missing
        common = [str(level) for level in counts.index[:MAX_LEVELS] if counts[level] >= enough]
        return OneHot(column.name, tuple(sorted(common)), len(common) < len(counts), int(counts.sum()) < len(given))

    def encode(self, given: pd.Series[Any]) -> Floats:
        """Return 1 in the feature of each cell's level: `(rows, features)`; a new level without `others` has none."""
        codes, distinct = pd.factorize(cells.words(given))
        place = {level: number for number, level in enumerate(self.levels)}
        known, width = len(self.levels), len(self.features)
        other, gap = known if self.others else width, width - 1 if self.gaps else width
        where = np.array([*(place.get(word, other) for word in distinct), gap], dtype=np.intp)
        return np.asarray(np.eye(width + 1, width)[where[codes]])

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        named = [f"{self.name} = {level}" for level in self.levels]
        return [*named, *([f"{self.name} = other"] * self.others), *([f"{self.name} missing"] * self.gaps)]


@dataclass(frozen=True)
class Hashed:
    """Encoder of free text: how often its words, or its characters in a row, fall into each of some features.

    Nothing is learned but the width: scikit-learn's `HashingVectorizer` has no state. A row has length 1, or 0 where
    the cell is missing.
    """

    name: str
    by: str
    width: int

    def encode(self, given: pd.Series[Any]) -> Floats:
        """Return the features: `(rows, width)`, between -1 and 1."""
        from sklearn.feature_extraction.text import HashingVectorizer  # few tables have text

        analyzer, together = ("word", (1, 2)) if self.by == WORDS else ("char_wb", (3, 5))
        hashing = HashingVectorizer(analyzer=analyzer, ngram_range=together, n_features=self.width)
        texts = ["" if word is None else word[:MAX_TEXT_CELL] for word in cells.words(given)]
        return np.asarray(hashing.transform(texts).toarray())

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        return [f"{self.name} ({self.by} {number})" for number in range(self.width)]


def text_width(columns: int) -> int:
    """Return the width of every column of free text, a power of two, so that all of them together are limited."""
    width = MAX_TEXT_WIDTH
    while width * columns > MAX_TEXT_FEATURES and width > MIN_TEXT_WIDTH:
        width //= 2
    return width


def _date_parts(given: pd.Series[Any], form: str) -> Floats:
    """Return days since 1970, month, weekday and hour."""
    days = cells.dates(given, form)
    calendar = pd.to_datetime(pd.Series(np.floor(days)), unit="D").dt
    return np.column_stack((days, calendar.month.to_numpy(float), calendar.day_of_week.to_numpy(float), days % 1 * 24))


PARTS: dict[str, Callable[[pd.Series[Any], str], Floats]] = {
    "number": lambda given, form: cells.numbers(given, form)[:, None],
    "boolean": lambda given, form: cells.flags(given)[:, None],
    "date": _date_parts,
}


def typed(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return the columns used, with numbers parsed; other columns, and real numbers, are not copied."""
    parsed = {
        column.name: cells.numbers(given, column.form) if column.kind == "number" and given.dtype.kind != "f" else given
        for column in schema.used
        for given in [frame[column.name]]
    }
    found: pd.DataFrame = pd.DataFrame(parsed, index=frame.index, copy=False)
    return found


def values(column: Column, given: pd.Series[Any]) -> Floats:
    """Return the cells of a column as numbers, NaN where missing; a date is its days since 1970."""
    return PARTS[column.kind](given, column.form)[:, 0]


Encoder = Numeric | OneHot | Hashed


class Preparation(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn transformer from a table with columns of any kind to features for a model.

    Numbers, booleans and dates are filled with the median and scaled; categories get one feature per common level; a
    column with gaps gets a feature that marks them; words of free text are hashed. Columns are found by name, in any
    order.

    Parameters
    ----------
    schema : Schema, optional
        The kinds of the columns; inferred in `fit` by default.

    Attributes
    ----------
    schema_ : Schema
        The kinds of the columns.
    encoders_ : list of Numeric, OneHot or Hashed
        One for every column used.

    Examples
    --------
    >>> frame = pd.DataFrame({"age": [20, 40, None], "plan": ["a", "b", "a"]})
    >>> preparation = Preparation().fit(frame)
    >>> [str(name) for name in preparation.get_feature_names_out()]
    ['age', 'age missing', 'plan = a', 'plan = other']
    """

    def __init__(self, schema: Schema | None = None) -> None:
        self.schema = schema

    def fit(self, X: pd.DataFrame, y: Any = None, rows: NDArray[np.int64] | None = None) -> Preparation:
        """Learn an encoder for every column, from some rows if given; one column at a time is copied."""
        self.schema_ = infer_columns(X) if self.schema is None else self.schema
        if not self.schema_.used:
            raise TableError(f"expected a column to learn from, got none: {'; '.join(self.schema_.describe())}")
        width = text_width(sum(column.kind == "prose" for column in self.schema_.used))
        self.encoders_: list[Encoder] = [
            Hashed(column.name, column.form, width)
            if column.kind == "prose"
            else (OneHot if column.kind == "category" else Numeric).learn(
                column, X[column.name] if rows is None else X[column.name].iloc[rows]
            )
            for column in self.schema_.used
        ]
        return self

    def transform(self, X: pd.DataFrame, consume: bool = False) -> NDArray[np.float32]:
        """Return features, `(rows, features)`; to `consume` a large table takes away columns that are encoded."""
        check_is_fitted(self, "encoders_")
        absent = [encoder.name for encoder in self.encoders_ if encoder.name not in X.columns]
        if absent:
            raise TableError(f"expected the columns of the table fitted on, got none named {', '.join(absent)}")
        widths = [len(encoder.features) for encoder in self.encoders_]
        places = list(zip(self.encoders_, widths, np.cumsum(widths), strict=True))
        consume = consume and len(X) * sum(widths) > MAX_CELLS_KEPT
        if consume:
            import pyarrow  # loading a model and predicting need none
        # Column by column, memory is taken only as that of the columns is freed.
        encoded = np.empty((len(X), sum(widths)), dtype=np.float32, order="F" if consume else "C")
        for some in [[place] for place in places] if consume else [places]:
            for start in range(0, len(X), ENCODED_AT_ONCE):  # encoders use float64: a chunk at a time saves memory
                rows = slice(start, start + ENCODED_AT_ONCE)
                for encoder, width, stop in some:
                    encoded[rows, stop - width : stop] = encoder.encode(X[encoder.name].iloc[rows])
            if consume:
                del X[some[0][0].name]
                pyarrow.default_memory_pool().release_unused()  # where the columns of a file lie
        return encoded

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features."""
        return np.array([name for encoder in self.encoders_ for name in encoder.features], dtype=object)

    def state(self) -> list[dict[str, Any]]:
        """Return what was learned as plain data; `manifest.read_preparation` reads it."""
        return [{"encoder": type(encoder).__name__, **asdict(encoder)} for encoder in self.encoders_]
