"""Progress bars for long work, in a terminal or a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from metricgrad.metrics import Metric
    from metricgrad.trainer import Round


def bar(transient: bool = False) -> Progress:
    """Return a bar on stderr that says what is done, how much of it, and how long it takes yet; nothing in a file."""
    screen = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
        console=screen,
        transient=transient,
        disable=not (screen.is_terminal or screen.is_jupyter),
        redirect_stdout=sys.stdout.isatty(),  # lines go above the bar on a screen, but stay on stdout if it is a file
    )


@contextmanager
def work_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for every kind of work reported as `report(what, done, total)`; they go when it is over."""
    with bar(transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total, note="")
            progress.update(tasks[what], completed=done, total=total)

        yield report


def shown_rounds(rounds: Iterator[Round], metric: Metric, title: str = "training") -> Iterator[Round]:
    """Pass rounds on and show them live, with the true metric on validation rows as people know it."""
    with bar() as progress:
        tasks: dict[str, TaskID] = {}
        for done in rounds:
            if done.phase not in tasks:
                tasks[done.phase] = progress.add_task(f"{title}: {done.phase}", total=done.of, note="")
            progress.update(tasks[done.phase], completed=done.number)
            if done.validation == done.validation:
                progress.update(tasks[done.phase], note=f"validation {metric.shown(done.validation)}")
            yield done
