"""A rich console on which text is nothing but text: no markup in it is read, no control character obeyed."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import Task, TextColumn
from rich.text import Text

from metricgrad.reporting.terminal import visible


class Screen(Console):
    """A console that shows every string as it is; `rich.text.Text` alone has a style."""

    def __init__(self, **how: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **how)

    def render_str(self, text: str, **how: Any) -> Text:
        """Return a string, such as the cell or the title of a table, as text to be shown."""
        return super().render_str(visible(text), **how)


class PlainColumn(TextColumn):
    """A column of a progress bar that shows its text as it is."""

    def render(self, task: Task) -> Text:
        """Return the text of one bar."""
        return Text(visible(self.text_format.format(task=task)))
