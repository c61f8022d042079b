"""Progress bars for long work, in a terminal or a notebook."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TaskID, TimeElapsedColumn, TimeRemainingColumn

from metricgrad.reporting.markup import tag
from metricgrad.reporting.screen import PlainColumn, Screen

if TYPE_CHECKING:
    from metricgrad.metrics.registry import Metric
    from metricgrad.training.trainer import Round


PAUSE = 0.2
"""Seconds between two looks of a notebook at its bars."""


@dataclass
class _Task:
    """One bar of a notebook."""

    what: str
    total: int
    note: str = ""
    completed: int = 0
    begun: float = field(default_factory=time.perf_counter)

    def markup(self) -> str:
        """Return the bar, what it stands for, and how long it took."""
        seconds = time.perf_counter() - self.begun
        bar = tag("progress", value=self.completed, max=self.total, style="width:14em;vertical-align:middle")
        counts = f"{self.completed:,}/{self.total:,}, {seconds:.0f} s {self.note}"
        return tag("div", escape(self.what), " ", bar, " ", escape(counts), style="font:13px system-ui,sans-serif")


class NotebookBars:
    """Bars in the output of a notebook cell, without widgets; used as rich's `Progress` is."""

    def __init__(self, transient: bool) -> None:
        self.transient, self.tasks, self.last = transient, list[_Task](), 0.0
        self.place: Any = None

    def __enter__(self) -> NotebookBars:
        return self

    def __exit__(self, *error: object) -> None:
        if self.transient:
            self.tasks.clear()
        if self.place is not None:
            self._show()

    def add_task(self, what: str, total: int, note: str) -> TaskID:
        """Add a bar."""
        self.tasks.append(_Task(what, total, note))
        self._show()
        return TaskID(len(self.tasks) - 1)

    def update(self, task: TaskID, **changes: Any) -> None:
        """Change a bar."""
        for name, value in changes.items():
            setattr(self.tasks[task], name, value)
        self._show(PAUSE)

    def _show(self, pause: float = 0.0) -> None:
        from IPython.display import HTML, display

        if time.perf_counter() - self.last < pause:
            return
        self.last = time.perf_counter()
        shown = HTML("".join(task.markup() for task in self.tasks))
        if self.place is None:
            self.place = display(shown, display_id=True)
        else:
            self.place.update(shown)


def bar(transient: bool = False) -> Progress | NotebookBars:
    """Return a bar on stderr that says what is done, how much of it, and how long it takes yet; nothing in a file."""
    screen = Screen(stderr=True)
    if screen.is_jupyter:
        return NotebookBars(transient)
    return Progress(
        PlainColumn("{task.description}"),
        BarColumn(bar_width=24),
        PlainColumn("{task.completed:.0f}/{task.total:.0f}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        PlainColumn("{task.fields[note]}"),
        console=screen,
        transient=transient,
        disable=not screen.is_terminal,
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
