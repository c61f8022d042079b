"""The data of the demonstration: bikes rented in every hour of 2011 in Washington, D.C. `bikes.md` says from where."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

FILE = Path(__file__).with_name("bikes.csv.gz")
SEPARATOR = "="
"""Stands between the column and the level in the name of a one-hot feature."""
HOUR_WORKING, HOUR_FREE = "hour of a working day", "hour of a free day"
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
WEEKDAYS = ("Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat")
WEATHER = ("clear", "cloudy", "wet")
NUMBERS = {"temperature": "°C", "humidity": "%", "wind": "km/h"}
"""Columns of numbers, and their units."""


class Bikes(NamedTuple):
    """Features, bikes rented and the day of the year of every hour.

    Attributes
    ----------
    X : DataFrame of shape (hours, features)
        Numbers, and one column for every level of a category, named `column=level`.
    y : ndarray of shape (hours,)
        Bikes rented.
    day : ndarray of shape (hours,)
        1 to 365; hours of one day belong on the same side of a split.
    """

    X: pd.DataFrame
    y: NDArray[Any]
    day: NDArray[Any]


def read_bikes() -> pd.DataFrame:
    """Return the table as it is stored, a row an hour."""
    table: pd.DataFrame = pd.read_csv(FILE)
    return table


def load_bikes() -> Bikes:
    """Return the hours as features and targets.

    The hour is one category on working days and another one on free days: people ride to work at eight, and for
    pleasure at two. Without that no sum of single features knows of either.

    Returns
    -------
    Bikes

    Examples
    --------
    >>> X, y, day = load_bikes()
    >>> X.shape, y.sum()
    ((8645, 73), np.float64(1243103.0))
    """
    table = read_bikes()
    working = table["working_day"] == 1
    hours = tuple(map(str, range(24)))
    names = {
        HOUR_WORKING: (table["hour"].astype(str).where(working), hours),
        HOUR_FREE: (table["hour"].astype(str).where(~working), hours),
        "month": (table["month"].map(dict(enumerate(MONTHS, 1))), MONTHS),
        "weekday": (table["weekday"].map(dict(enumerate(WEEKDAYS))), WEEKDAYS),
        "weather": (table["weather"], WEATHER),
    }
    categories = pd.DataFrame({name: pd.Categorical(cells, levels) for name, (cells, levels) in names.items()})
    one_hot = pd.get_dummies(categories, prefix_sep=SEPARATOR, dtype=np.float32)
    X = pd.concat([one_hot, table[list(NUMBERS)].astype(np.float32)], axis=1)
    return Bikes(X, table["bikes"].to_numpy(np.float64), table["day"].to_numpy())
