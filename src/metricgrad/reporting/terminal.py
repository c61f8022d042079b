"""Text for the terminal: no markup in it is interpreted, and control characters are shown as escapes."""

from __future__ import annotations

import unicodedata
from typing import Any

import typer
from rich.console import Console
from rich.progress import Task, TextColumn
from rich.text import Text

CONTROL_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that a terminal obeys: control, format and bidirectional characters, line separators."""
JOINERS = "\u200c\u200d"
"""Format characters that some languages, and emoji, need."""


def visible(text: str) -> str:
    r"""Return text with every character that a terminal would obey replaced by its escape.

    >>> print(visible("a\x1b[31mb\nc\u202e"))
    a\x1b[31mb\nc\u202e
    """
    if text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if unicodedata.category(character) not in CONTROL_CATEGORIES or character in JOINERS:
        return character
    return character.encode("unicode_escape").decode("ascii")


def echo(*lines: object, err: bool = False) -> None:
    """Print lines, each of which stays one line."""
    for line in lines:
        typer.echo(visible(str(line)), err=err)


class Screen(Console):
    """A rich console that shows every string literally; only `rich.text.Text` has a style."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Return a string, such as a cell or the title of a table, as text to be shown."""
        return super().render_str(visible(text), **options)


class PlainColumn(TextColumn):
    """A column of a progress bar that shows its text literally."""

    def render(self, task: Task) -> Text:
        """Return the text of one bar."""
        return Text(visible(self.text_format.format(task=task)))
