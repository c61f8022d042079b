"""Progress of long work: bars in a terminal or a notebook, and training rounds as numbers for a logger."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.progress import BarColumn, Progress, TaskID, TimeElapsedColumn, TimeRemainingColumn

from metricgrad.reporting.html import progress_bar
from metricgrad.reporting.terminal import PlainColumn, Screen

if TYPE_CHECKING:
    from metricgrad.metrics.registry import Metric
    from metricgrad.training.history import Round

NOTEBOOK_INTERVAL = 0.2
"""Seconds between two updates of the bars of a notebook."""


@dataclass
class _Task:
    """One bar of a notebook."""

    description: str
    total: int
    note: str = ""
    completed: int = 0
    begun: float = field(default_factory=time.perf_counter)

    def markup(self) -> str:
        """Return the bar with its label, its counts and the elapsed seconds."""
        counts = f"{self.completed:,}/{self.total:,}, {time.perf_counter() - self.begun:.0f} s {self.note}"
        return progress_bar(self.description, self.completed, self.total, counts)


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

    def add_task(self, description: str, total: int, note: str) -> TaskID:
        """Add a bar."""
        self.tasks.append(_Task(description, total, note))
        self._show()
        return TaskID(len(self.tasks) - 1)

    def update(self, task: TaskID, **changes: Any) -> None:
        """Change a bar."""
        for name, value in changes.items():
            setattr(self.tasks[task], name, value)
        self._show(NOTEBOOK_INTERVAL)

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
    """Return a bar on stderr with counts, elapsed and remaining time; it shows nothing if stderr is a file."""
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
        redirect_stdout=sys.stdout.isatty(),  # printed lines go above the bar, unless stdout is a file
    )


@contextmanager
def work_bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for every kind of work reported as `report(what, done, total)`, and remove them in the end."""
    with bar(transient=True) as progress:
        tasks: dict[str, TaskID] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total, note="")
            progress.update(tasks[what], completed=done, total=total)

        yield report


def shown_rounds(rounds: Iterator[Round], metric: Metric, title: str = "training") -> Iterator[Round]:
    """Yield the rounds and show their progress, with the value of the metric on validation rows."""
    with bar() as progress:
        tasks: dict[str, TaskID] = {}
        for done in rounds:
            if done.phase not in tasks:
                tasks[done.phase] = progress.add_task(f"{title}: {done.phase}", total=done.of, note="")
            progress.update(tasks[done.phase], completed=done.number)
            if done.validation == done.validation:
                progress.update(tasks[done.phase], note=f"validation {metric.shown(done.validation)}")
            yield done


class FitBars:
    """One bar for many fits, and one for the rounds of the present fit.

    Parameters
    ----------
    progress : Progress or NotebookBars
        Where they are shown.
    fits : int
        How many fits there may be.
    """

    def __init__(self, progress: Progress | NotebookBars, fits: int) -> None:
        self.progress, self.title, self.done = progress, "", 0
        self.all = progress.add_task("models", total=fits, note="")
        self.own = progress.add_task("training", total=1, note="")

    def begin(self, title: str, done: int) -> None:
        """Show that some fits are done, and the next one begins."""
        self.title, self.done = title, done
        self.progress.update(self.all, completed=done)

    def report(self, what: str, done: int, total: int) -> None:
        """Show how far some work before training is."""
        self.progress.update(self.own, description=f"{self.title}: {what}", completed=done, total=total)

    def shown_rounds(self, rounds: Iterator[Round], metric: Metric) -> Iterator[Round]:
        """Yield the rounds of a fit and show their progress."""
        for done in rounds:
            self.report(done.phase, done.number, done.of)
            if done.validation == done.validation:
                self.progress.update(self.own, note=f"validation {metric.shown(done.validation)}")
            yield done


@contextmanager
def fit_bars(fits: int) -> Iterator[FitBars]:
    """Show the progress of many fits; in the end the bar is full, also if some were not needed."""
    with bar() as progress:
        bars = FitBars(progress, fits)
        yield bars
        progress.update(bars.all, completed=bars.done + 1, total=bars.done + 1)


def scalars(done: Round) -> dict[str, float]:
    """Return `done.scalars()`; deprecated."""
    return done.scalars()
