"""Targets: what a column of a table, or several, is to a model: two classes, several, labels, numbers or grades."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from metricgrad.tabular.cells import Floats, TableError, listed, numbers, words

Cells = Sequence["pd.Series[Any]"]
"""The columns of a target, one but for labels."""


@dataclass(frozen=True)
class Target:
    """The name of the target and its two labels; with `rest`, every label but the positive one is negative."""

    kind: ClassVar[str] = "two classes"
    name: str
    negative: Any
    positive: Any
    rest: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the target."""
        return (self.name,)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The classes, in the order of their codes."""
        return self.negative, self.positive

    def read(self, cells: Cells) -> Floats:
        """Return the codes of all rows, `(rows,)`, NaN where missing."""
        return self.classes(cells[0])

    def classes(self, cells: pd.Series[Any]) -> Floats:
        """Return 1 for the positive class, 0 for the negative one, NaN where missing; refuse any other label."""
        labels = words(cells)
        positive, negative = words(pd.Series([self.positive])), words(pd.Series([self.negative]))
        there = pd.notna(labels)
        found = np.where(there, (labels == positive[0]).astype(float), np.nan)
        unknown = there & (labels != positive[0]) & (labels != negative[0])
        if unknown.any() and not self.rest:
            raise TableError(
                f"target: expected {self.negative!r} or {self.positive!r} in {self.name!r}, got {labels[unknown][0]!r}"
            )
        return np.asarray(found)


@dataclass(frozen=True)
class ClassTarget:
    """The name of the target and its classes, two or more, in the order of their codes."""

    kind: ClassVar[str] = "classes"
    name: str
    labels: tuple[Any, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the target."""
        return (self.name,)

    def read(self, cells: Cells) -> Floats:
        """Return the number of the class of every row, `(rows,)`, NaN where missing; refuse any other label."""
        codes, distinct = pd.factorize(words(cells[0]))
        known = {word: code for code, word in enumerate(words(pd.Series(self.labels, dtype=object)))}
        unknown = [word for word in distinct if word not in known]
        if unknown:
            expected = listed([repr(label) for label in self.labels], 5)
            raise TableError(f"target: expected one of {expected} in {self.name!r}, got {unknown[0]!r}")
        return np.asarray(np.array([*(known[word] for word in distinct), np.nan])[codes])


@dataclass(frozen=True)
class LabelTarget:
    """Several columns of two classes each: every row may have any of the labels."""

    kind: ClassVar[str] = "labels"
    targets: tuple[Target, ...]

    @property
    def name(self) -> str:
        """The names of the labels."""
        return ", ".join(self.names)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the target."""
        return tuple(target.name for target in self.targets)

    @property
    def labels(self) -> tuple[Any, ...]:
        """The names of the labels, in the order of the columns of `read`."""
        return self.names

    def read(self, cells: Cells) -> Floats:
        """Return 1 where a row has a label, else 0, `(rows, labels)`, NaN where missing."""
        return np.column_stack([target.classes(own) for target, own in zip(self.targets, cells, strict=True)])


@dataclass(frozen=True)
class NumberTarget:
    """The name of a target of numbers, and how they are written: the text of a `NumberFormat`, empty if plainly."""

    kind: ClassVar[str] = "numbers"
    name: str
    form: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns of the target."""
        return (self.name,)

    def read(self, cells: Cells) -> Floats:
        """Return numbers, `(rows,)`, NaN where missing; refuse a cell that is not a number."""
        found = numbers(cells[0], self.form)
        stray = np.isnan(found) & pd.notna(words(cells[0]))
        if stray.any():
            got = str(cells[0].iloc[int(np.argmax(stray))])
            raise TableError(f"target: expected a number in every row of {self.name!r}, got {got!r}")
        return found


@dataclass(frozen=True)
class GradeTarget(NumberTarget):
    """The name of a target of grades of at least 0, of the rows of queries."""

    kind: ClassVar[str] = "grades"


AnyTarget = Target | ClassTarget | LabelTarget | NumberTarget


def same_label(one: Any, other: Any) -> bool:
    """Return whether two labels are the same word, or one of them is empty."""
    first, second = words(pd.Series([one]))[0], words(pd.Series([other]))[0]
    return first is None or second is None or first == second


def check_column(name: Any, names: Sequence[str], argument: str) -> None:
    """Refuse a column that does not exist, and suggest a similar one."""
    if name in names:
        return
    near = difflib.get_close_matches(str(name).lower(), [other.lower() for other in names], n=1)
    meant = [other for other in names if near and other.lower() == near[0]]
    hint = f"; did you mean {meant[0]!r}?" if meant else f"; there are {listed(list(names))}"
    raise TableError(f"{argument}: expected the name of a column, got {name!r}{hint}")
