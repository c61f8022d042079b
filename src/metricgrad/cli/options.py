"""Options, notes and parsers that the commands for a table share."""

from __future__ import annotations

import logging
import shlex
import sys
import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from metricgrad.reporting.terminal import echo

Data = Annotated[str, typer.Argument(help="CSV, TSV, Parquet, Feather, gzip or zip of them, or -.", show_default=False)]
Folder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder written by fit.", show_default=False)]
Weights = Annotated[
    str | None, typer.Option("--weights", "--weight-column", metavar="COL", help="Column of row weights.")
]
TargetOption = Annotated[
    list[str],
    typer.Option(metavar="COL", help="Column to predict; of several labels, repeated or a,b.", show_default=False),
]
Positive = Annotated[str | None, typer.Option(metavar="LABEL", help="Positive class; inferred by default.")]
Ignored = Annotated[list[str] | None, typer.Option(metavar="COL", help="Column to leave out; may be repeated.")]
Network = Annotated[str, typer.Option(help="mlp, small, linear, additive or tabm.")]
Competing = Annotated[str, typer.Option(help="auto (several compete), readable, or one: additive, tabm, lightgbm ...")]
Method = Annotated[
    str,
    typer.Option(help="auto, sl-r, sl-s, sl-u, direct, weighted, hand-made, plug-in, or a baseline as cross-entropy."),
]
How = Annotated[str, typer.Option(help="default or paper, and changed fields: rounds=100,warmup=300.")]
Judge = Annotated[
    str,
    typer.Option(
        "--metric",
        "--metric-expression",
        help='Name (see metricgrad metrics), expression such as "5*tp - fp" or "sum(amount * tp) - 5*fp", '
        "sklearn.metrics.NAME or FILE.py:FUNCTION.",
    ),
]
MetricColumns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        "--value-column",
        metavar="NAME=COL",
        help="Column that a name in the metric stands for, amount=Amount; repeatable. By default that of its name.",
    ),
]
ColumnFeatures = Annotated[
    bool, typer.Option("--column-features", help="Columns of the metric are features too; by default they are not.")
]
Grouped = Annotated[
    str | None,
    typer.Option(metavar="COL", help="Column of groups, never divided by a split; of rankings, that of queries."),
]
Timed = Annotated[
    str | None, typer.Option("--time", "--time-column", metavar="COL", help="Column of times; later rows judge.")
]


def aside(line: str) -> None:
    """Print something that is not the result."""
    echo(line, err=True)


class _Echo(logging.Handler):
    """Prints the log of the package."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        echo(record.getMessage())


@contextmanager
def notes_shown() -> Iterator[None]:
    """Print notes and warnings of the package when they occur, one line each."""
    log, echo = logging.getLogger("metricgrad"), _Echo(logging.INFO)
    level = log.level
    log.addHandler(echo)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _warned
            yield
    finally:
        log.removeHandler(echo)
        log.setLevel(level)


def _warned(message: Warning | str, *rest: Any, **named: Any) -> None:
    aside(f"metricgrad: warning: {message}")


def command_line() -> str:
    """Return the command line of this process."""
    return shlex.join(["metricgrad", *sys.argv[1:]])


def columns_of(options: list[str] | None) -> dict[str, str] | None:
    """Parse which columns names in a metric stand for: `["amount=Amount (EUR)"]`; a name alone is its column."""
    found = {}
    for option in options or ():
        name, equals, column = option.partition("=")
        column = column if equals else name
        if not name.strip() or not column:
            raise typer.BadParameter(
                f"expected NAME=COLUMN, such as amount=Amount, got {option!r}", param_hint="--column"
            )
        found[name.strip()] = column
    return found or None


def targets_of(given: list[str], names: Collection[str]) -> str | list[str]:
    """Return the column to predict, or several: repeated, or separated by commas where no column is called so."""
    from metricgrad.tabular.target import check_column

    found = [part.strip() for each in given for part in ([each] if each in names else each.split(",")) if part.strip()]
    for name in found:
        check_column(name, list(names), "target")
    return found if len(found) > 1 else found[0] if found else ""


def read_with_labels(data: str, target: list[str], others: Collection[str | None] = ()) -> Any:
    """Read a table in which the columns of labels, weights, groups and times stay text."""
    from metricgrad.tabular.io import read_table

    labels = [name.strip() for each in target for name in (each, *each.split(","))]
    return read_table(data, text_columns=[*dict.fromkeys(labels), *(name for name in others if name is not None)])


def recipe_of(text: str, model: str) -> Any:
    """Parse the recipe for a model: a name, changed fields, or both: `default,rounds=100`."""
    from metricgrad.estimators.competing import competes
    from metricgrad.training.networks import kind_of
    from metricgrad.training.recipe import get_recipe, recipe_for

    name, changes = "default", {}
    for part in text.split(","):
        field, equals, value = (piece.strip() for piece in part.partition("="))
        if equals:
            changes[field] = _option_value(value)
        else:
            name = field
    if competes(model) and not changes:
        return name  # each of them has its own
    return get_recipe(recipe_for(name, kind_of(model)), **changes)


def _option_value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
