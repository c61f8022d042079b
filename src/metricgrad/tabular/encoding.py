"""Preparation: columns of a table to features of a model; gaps filled, categories spread out, numbers scaled.

What is learned is plain data, an encoder for every column, so that it can be kept as JSON and read back without
running anything.
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
from metricgrad.tabular.io import TableError
from metricgrad.tabular.manifest import Field
from metricgrad.tabular.schema import Column, Schema, infer_columns

Floats = NDArray[np.float64]
LEVELS = 50
"""Most levels of a category that get a feature of their own."""
SEEN = 5
"""Rows a level needs to get one."""
FARTHEST = 10.0
"""Scaled numbers are cut here, so that one odd cell does not decide a score alone."""
CHUNK = 65_536
"""Rows that are encoded at a time."""
DATE_PARTS = ("days", "month", "weekday", "hour")


@dataclass(frozen=True)
class Numeric:
    """A column of numbers, of yes and no or of dates: what fills gaps, and the centre and scale of each part.

    `gaps` says whether a feature tells where cells were missing.
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
        """Fill with the median; centre and scale what is then there."""
        parts = PARTS[column.kind](given, column.form)
        gaps = np.isnan(parts)
        there = parts[~gaps[:, 0]]
        fill = np.median(there, axis=0) if len(there) else np.zeros(parts.shape[1])
        filled = np.where(gaps, fill, parts)
        centre, spread = filled.mean(axis=0), filled.std(axis=0)
        scale = np.where(spread > 1e-12 * np.abs(centre), spread, 1.0)
        return Numeric(
            column.name, column.kind, column.form, _plain(fill), _plain(centre), _plain(scale), bool(gaps.any())
        )

    def encode(self, given: pd.Series[Any]) -> Floats:
        """Return the scaled parts, and where cells were missing: `(rows, features)`."""
        parts = PARTS[self.kind](given, self.form)
        gaps = np.isnan(parts)
        with np.errstate(over="ignore"):  # what is too large is cut below
            scaled = (np.where(gaps, self.fill, parts) - self.centre) / np.array(self.scale)
        return np.column_stack((scaled.clip(-FARTHEST, FARTHEST), *([gaps[:, 0]] if self.gaps else [])))

    @property
    def features(self) -> list[str]:
        """Names of the features."""
        named = [f"{self.name} ({part})" for part in DATE_PARTS] if self.kind == "date" else [self.name]
        return [*named, *([f"{self.name} missing"] if self.gaps else [])]


@dataclass(frozen=True)
class OneHot:
    """A column of categories: the levels with a feature each; `others` for rare and new ones, `gaps` for none."""

    name: str
    levels: tuple[str, ...]
    others: bool
    gaps: bool

    @staticmethod
    def learn(column: Column, given: pd.Series[Any]) -> OneHot:
        """Keep the levels that are common."""
        counts = pd.Series(cells.words(given)).value_counts()
        common = [str(level) for level in counts.index[:LEVELS] if counts[level] >= min(SEEN, counts.iloc[0])]
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


def _of_dates(given: pd.Series[Any], form: str) -> Floats:
    """Return days since 1970, month, weekday and hour."""
    days = cells.dates(given, form)
    whole = pd.to_datetime(pd.Series(np.floor(days)), unit="D").dt
    return np.column_stack((days, whole.month.to_numpy(float), whole.day_of_week.to_numpy(float), days % 1 * 24))


PARTS: dict[str, Callable[[pd.Series[Any], str], Floats]] = {
    "number": lambda given, form: cells.numbers(given, form)[:, None],
    "boolean": lambda given, form: cells.flags(given)[:, None],
    "date": _of_dates,
}


def typed(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    """Return the columns used, with numbers written as text parsed once and for all; other columns are not copied."""
    parsed = {
        column.name: cells.numbers(frame[column.name], column.form) if column.kind == "number" else frame[column.name]
        for column in schema.used
    }
    found: pd.DataFrame = pd.DataFrame(parsed, index=frame.index, copy=False)
    return found


def values(column: Column, given: pd.Series[Any]) -> Floats:
    """Return the number each cell of a column says, NaN where there is none; of a date, the days since 1970."""
    return PARTS[column.kind](given, column.form)[:, 0]


class Preparation(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn transformer from a table with columns of any kind to features a model can learn from.

    Numbers, yes or no, and dates are filled with the median and scaled; categories get a feature for every common
    level; a column with gaps gets a feature that tells where they are. Columns are found by name, in any order.

    Parameters
    ----------
    schema : Schema, optional
        What the columns are; inferred in `fit` if not given.

    Attributes
    ----------
    schema_ : Schema
        What the columns are.
    encoders_ : list of Numeric or OneHot
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

    def fit(self, X: pd.DataFrame, y: Any = None) -> Preparation:
        """Learn an encoder for every column."""
        self.schema_ = infer_columns(X) if self.schema is None else self.schema
        if not self.schema_.used:
            raise TableError(f"expected a column to learn from, got none: {'; '.join(self.schema_.describe())}")
        self.encoders_: list[Numeric | OneHot] = [
            (OneHot if column.kind == "category" else Numeric).learn(column, X[column.name])
            for column in self.schema_.used
        ]
        return self

    def transform(self, X: pd.DataFrame) -> NDArray[np.float32]:
        """Return features, `(rows, features)`."""
        check_is_fitted(self, "encoders_")
        absent = [encoder.name for encoder in self.encoders_ if encoder.name not in X.columns]
        if absent:
            raise TableError(f"expected the columns of the table fitted on, got none named {', '.join(absent)}")
        widths = [len(encoder.features) for encoder in self.encoders_]
        stops = np.cumsum(widths)
        encoded = np.empty((len(X), stops[-1]), dtype=np.float32)
        for start in range(0, len(X), CHUNK):  # an encoder works in double: not on all rows at a time
            rows = slice(start, start + CHUNK)
            for encoder, width, stop in zip(self.encoders_, widths, stops, strict=True):
                encoded[rows, stop - width : stop] = encoder.encode(X[encoder.name].iloc[rows])
        return encoded

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the features."""
        return np.array([name for encoder in self.encoders_ for name in encoder.features], dtype=object)

    def state(self) -> list[dict[str, Any]]:
        """Return what was learned as plain data; see `prepared`."""
        return [{"encoder": type(encoder).__name__, **asdict(encoder)} for encoder in self.encoders_]


def _plain(values: Floats) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def prepared(schema: Schema, state: Field) -> Preparation:
    """Return the preparation that had this schema and state, which may be damaged or invented."""
    preparation, entries, used = Preparation(schema), state.items(), schema.used
    if len(entries) != len(used):
        state.refuse(f"an encoder for each of {len(used):,} columns used")
    preparation.schema_ = schema
    preparation.encoders_ = [_encoder(entry, column) for entry, column in zip(entries, used, strict=True)]
    return preparation


def _encoder(entry: Field, column: Column) -> Numeric | OneHot:
    """Return the encoder of a column."""
    entry["name"].one_of([column.name])
    if column.kind == "category":
        entry["encoder"].one_of(["OneHot"])
        levels = tuple(level.text() for level in entry["levels"].items(LEVELS))
        return OneHot(column.name, levels, entry["others"].flag(), entry["gaps"].flag())
    entry["encoder"].one_of(["Numeric"])
    entry["kind"].one_of([column.kind])
    entry["form"].one_of([column.form])
    parts = len(DATE_PARTS) if column.kind == "date" else 1
    fill, centre, scale = (_numbers(entry[key], parts) for key in ("fill", "centre", "scale"))
    if min(scale) <= 0:
        entry["scale"].refuse("positive numbers")
    return Numeric(column.name, column.kind, column.form, fill, centre, scale, entry["gaps"].flag())


def _numbers(entry: Field, parts: int) -> tuple[float, ...]:
    found = tuple(item.number() for item in entry.items(parts))
    if len(found) != parts:
        entry.refuse(f"{parts} numbers")
    return found
