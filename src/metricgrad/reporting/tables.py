"""Result tables: one pandas frame each, and writers for the terminal (rich), for documents (Markdown) and for pages."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from markupsafe import Markup
from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from metricgrad.reporting.html import render
from metricgrad.reporting.terminal import visible


@dataclass(frozen=True)
class Shown:
    """How one cell is shown: by all writers (first group), in text only (`brackets`), on pages only (the others).

    Parameters
    ----------
    text : str
        What the cell says; `-` stands for a missing value.
    value : float, optional
        What a page sorts the cell by; NaN comes last, None sorts by the text.
    best : bool
        Whether it is in bold.
    error : str
        What follows in plain type.
    brackets : str
        What follows that in text.
    beside, verdict : str
        What a page shows below it instead, and the class that colours it.
    small, note, tone, title : str
        A smaller line below, the numbers of footnotes, a class and a tooltip of the cell.
    bar : sequence of (str, str)
        Parts of a stacked bar: their classes and their widths in percent.
    """

    text: str
    value: float | None = None
    best: bool = False
    error: str = ""
    brackets: str = ""
    beside: str = ""
    verdict: str = ""
    small: str = ""
    note: str = ""
    tone: str = ""
    title: str = ""
    bar: Sequence[tuple[str, str]] = ()

    @property
    def sort_key(self) -> str:
        """The attribute that a page sorts by."""
        return "" if self.value is None or math.isnan(self.value) else f"{self.value:.10g}"


@dataclass(frozen=True, eq=False)
class ResultTable:
    """A table to be shown.

    Parameters
    ----------
    title : str
        Stands above it.
    frame : DataFrame
        Cells, either `Shown` or text. Columns with two levels are a heading and what stands below it.
    notes : tuple of str
        Sentences below.
    names : int
        How many of the first columns name a row.
    summary_rows : int
        How many of the last rows summarise the others; a page never sorts them.
    row_attributes, column_attributes : sequence of mappings
        HTML attributes of rows and of columns.
    column_notes : sequence of str
        Numbers of the footnotes of columns.
    """

    title: str
    frame: pd.DataFrame = field(repr=False)
    notes: tuple[str, ...] = ()
    names: int = 1
    summary_rows: int = 0
    row_attributes: Sequence[Mapping[str, str]] = ()
    column_attributes: Sequence[Mapping[str, str]] = ()
    column_notes: Sequence[str] = ()

    @property
    def headings(self) -> list[tuple[str, str]]:
        """Heading of every column, and what stands below it."""
        return [(c, "") if isinstance(c, str) else (str(c[0]), str(c[1])) for c in self.frame.columns]

    @property
    def rows(self) -> list[list[Shown]]:
        """The cells, row by row."""
        values = self.frame.to_numpy(dtype=object).tolist()
        return [[cell if isinstance(cell, Shown) else Shown(str(cell)) for cell in row] for row in values]


def result_frame(rows: Iterable[Sequence[Any]], columns: Sequence[Any]) -> pd.DataFrame:
    """Return a frame of cells as they are given; headings may repeat."""
    two_levels = any(isinstance(column, tuple) for column in columns)
    pairs = [column if isinstance(column, tuple) else (column, "") for column in columns]
    head = pd.MultiIndex.from_tuples(pairs) if two_levels else pd.Index(list(columns), dtype=object)
    frame: pd.DataFrame = pd.DataFrame([list(row) for row in rows], columns=head, dtype=object)
    return frame


def number(value: Any, form: str, **more: Any) -> Shown:
    """Return a cell that shows and sorts by a number; a missing one is a dash.

    >>> number(0.25, ".1%").text, number(None, "d").text
    ('25.0%', '-')
    """
    if value is None or math.isnan(value):
        return Shown("-", math.nan, **more)
    return Shown(format(value, form), float(value), **more)


# ---- writers -------------------------------------------------------------------------------------------------------


def as_rich(table: ResultTable) -> Group:
    """Return a table for the terminal, with its notes below."""
    shown = Table(title=Text(visible(table.title), "table.title"), box=box.SIMPLE_HEAD, padding=0, show_edge=False)
    for i, heading in enumerate(table.headings):
        shown.add_column(
            Text(visible(_heading_text(heading))), justify="left" if i < table.names else "right", overflow="fold"
        )
    for row in table.rows:
        shown.add_row(
            *(Text.assemble((visible(c.text), "bold" if c.best else ""), visible(c.error + c.brackets)) for c in row)
        )
    return Group(shown, *(Text(visible(note)) for note in table.notes))


def as_markdown(table: ResultTable) -> str:
    """Return a table for documents, with its title above and its notes as a list below."""
    rule = ["---" if i < table.names else "---:" for i in range(table.frame.shape[1])]
    lines = [
        f"**{_markdown_escaped(table.title)}**",
        "",
        _line(_markdown_escaped(_heading_text(heading)) for heading in table.headings),
        _line(rule),
        *(_line(_markdown(cell) for cell in row) for row in table.rows),
    ]
    if table.notes:
        lines += ["", *(f"- {_markdown_escaped(note)}" for note in table.notes)]
    return "\n".join(lines) + "\n"


def as_html(table: ResultTable, *, id: str = "", lead: str = "", classes: str = "sortable") -> Markup:
    """Return a table for a page, in a box that scrolls; `lead` stands below its title."""
    columns, own = table.frame.shape[1], table.row_attributes or [{}] * len(table.frame)
    notes = table.column_notes or [""] * columns
    heads = [{"text": t, "small": s, "note": n} for (t, s), n in zip(table.headings, notes, strict=True)]
    rows = list(zip(table.rows, own, strict=True))
    split = len(rows) - table.summary_rows
    return render(
        "table.html",
        table=table,
        heads=heads,
        body=rows[:split],
        foot=rows[split:],
        attributes_of_columns=table.column_attributes or [{}] * columns,
        id=id,
        lead=lead,
        classes=classes,
    )


def _heading_text(heading: tuple[str, str]) -> str:
    return ": ".join(filter(None, heading))


def _markdown(cell: Shown) -> str:
    text = _markdown_escaped(cell.text)
    return (f"**{text}**" if cell.best else text) + _markdown_escaped(cell.error + cell.brackets)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown_escaped(text: str) -> str:
    """Escape the special characters of Markdown and HTML."""
    return re.sub(r"([\\`*_\[\]<>|&])", r"\\\1", re.sub(r"\s+", " ", text))
