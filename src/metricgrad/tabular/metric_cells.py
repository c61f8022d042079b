"""The columns of a table that a metric must know of its rows: which they are, and their cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from metricgrad.tabular.cells import TableError, numbers
from metricgrad.tabular.target import check_column


def metric_columns(
    needed: tuple[str, ...], given: Mapping[str, Any] | None, frame: pd.DataFrame
) -> dict[str, str | pd.Series[Any]]:
    """Return what every name in a metric stands for: a column of a table, by default that of its name, or cells.

    >>> metric_columns(("amount", "sex"), {"amount": "Amount (EUR)"}, pd.DataFrame({"Amount (EUR)": [1], "sex": ["f"]}))
    {'amount': 'Amount (EUR)', 'sex': 'sex'}
    """
    found: dict[str, Any] = {name: name for name in needed}
    unknown = [name for name in (given or {}) if name not in found]
    if unknown:
        wanted = f"{', '.join(needed)} of the metric, such as {needed[0]}={unknown[0]}" if needed else ""
        raise TableError(f"column: expected {wanted or 'none, because the metric needs none'}, got {unknown[0]!r}")
    found |= dict(given or {})
    for name, column in found.items():
        if isinstance(column, str):
            if column not in frame.columns and column == name:
                raise TableError(
                    f"column: expected the column {name!r}, which the metric needs, or which one it is, such as "
                    f"{name}={frame.columns[0]}, got a table without it"
                )
            check_column(column, list(frame.columns), "column")
        elif len(column) != len(frame):
            raise TableError(f"column: expected a value for each of {len(frame):,} rows, got {len(column):,}")
        else:
            found[name] = pd.Series(np.asarray(column))
    return found


def metric_cells(
    columns: Mapping[str, str | pd.Series[Any]], groups: tuple[str, ...], frame: pd.DataFrame, rows: Any
) -> dict[str, Any]:
    """Return the cells of some rows, by their numbers, for each name: groups as they are, amounts as numbers."""
    whole = {name: frame[each] if isinstance(each, str) else each for name, each in columns.items()}
    cells = {name: each.iloc[rows].reset_index(drop=True) for name, each in whole.items()}
    return {name: each if name in groups else _amounts(name, each) for name, each in cells.items()}


def _amounts(name: str, cells: pd.Series[Any]) -> Any:
    found = numbers(cells)
    invalid = ~(found >= 0)
    if invalid.all():  # text, which a callable may compare
        return cells
    if invalid.any():
        got = cells.iloc[int(np.argmax(invalid))]
        raise TableError(f"column {name}: expected a number of at least 0 in every row, got {str(got)!r}")
    return found
