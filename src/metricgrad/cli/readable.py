"""The commands for readable models: explain and scorecard. Imports sit inside, as in `app.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricgrad.cli.options import Folder, Weights
from metricgrad.reporting.terminal import echo

if TYPE_CHECKING:
    from metricgrad.tabular.table_classifier import TableClassifier
    from metricgrad.tabular.table_model import TableModel

Rows = Annotated[
    str | None, typer.Option("--data", metavar="DATA", help="File with the target, best the one of training.")
]


def explain(
    model: Folder,
    out: Annotated[Path, typer.Option(help="Page to write.")] = Path("explanation.html"),
    data: Rows = None,
    weights: Weights = None,
) -> None:
    """Write what every level of every column adds to the score, or the number, of a linear or additive model.

    With data, of two classes with bands.
    """
    from metricgrad.files import write_whole
    from metricgrad.tabular.io import read_table
    from metricgrad.tabular.persistence import load
    from metricgrad.tabular.table_regressor import TableRegressor

    loaded = load(model)
    if isinstance(loaded, TableRegressor):
        if weights is not None:
            raise ValueError(f"weights: expected none with a model of numbers, got {weights!r}")
        found = loaded.explain(None if data is None else read_table(data))
    else:
        loaded = _of_two_classes(loaded, model, " or numbers")
        frame = None if data is None else read_table(data, text_columns=[loaded.target_.name])
        found = loaded.explain(frame, sample_weight=weights)
    write_whole(out, found.page(f"What {model.name} adds up"))
    for name, size in found.importance.head(10).items():
        echo(f"{size:8.4f}  {name}")
    echo(f"The mean absolute contribution of the first columns; every level is in {out}.")


def scorecard(
    model: Folder,
    out: Annotated[Path, typer.Option(help="CSV or, if it ends in .md, Markdown file to write.")] = Path("card.csv"),
    sql: Annotated[Path | None, typer.Option(help="File for a query that gives the same points.")] = None,
    python: Annotated[Path | None, typer.Option(help="File for Python code that gives the same points.")] = None,
    points: Annotated[int, typer.Option(min=1, help="Points of a level at most.")] = 20,
    data: Rows = None,
    weights: Weights = None,
    table: Annotated[str, typer.Option(help="Table that the query reads.")] = "data",
) -> None:
    """Write integer points for every level of a linear or additive model; with data, rounded by the true metric."""
    from metricgrad.files import write_whole
    from metricgrad.tabular.io import read_table
    from metricgrad.tabular.persistence import load

    loaded = _of_two_classes(load(model), model)
    frame = None if data is None else read_table(data, text_columns=[loaded.target_.name])
    card = loaded.scorecard(frame, sample_weight=weights, points=points)
    write_whole(out, card.to_markdown() if out.suffix == ".md" else card.to_csv())
    if sql is not None:
        write_whole(sql, card.to_sql(table))
    if python is not None:
        write_whole(python, card.to_python())
    echo(card.summary)
    echo(f"The card is in {out}" + "".join(f", {path}" for path in (sql, python) if path is not None) + ".")


def _of_two_classes(loaded: TableModel, folder: Path, more: str = "") -> TableClassifier:
    """Return a model of two classes; others are refused, and `more` is what else would do."""
    from metricgrad.tabular.table_classifier import TableClassifier

    if not isinstance(loaded, TableClassifier) or loaded.target_.kind != "two classes":
        raise ValueError(f"{folder}: expected a model of two classes{more}, got one of {loaded.target_.kind}")
    return loaded
