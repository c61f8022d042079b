"""The critical-difference diagram: mean ranks on a line, and bars over methods that are not told apart; SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape

from metricgrad.evaluation.runs import method_label
from metricgrad.evaluation.statistics import Ranking
from metricgrad.reporting.markup import tag

LINE, LETTER, TOP, STEP, BAR = 200, 7.2, 34, 24, 11
"""Pixels: length of the line, width of a letter, height of the line, distance of labels, distance of bars."""


@dataclass(frozen=True)
class _Axis:
    """Where ranks lie; low ranks, the best, are on the left. Margins hold the labels."""

    left: float
    right: float
    most: int

    @property
    def width(self) -> float:
        return self.left + LINE + self.right

    def at(self, rank: float) -> float:
        return self.left + (rank - 1) / (self.most - 1) * LINE


def critical_difference(ranking: Ranking, title: str, name: str) -> str:
    """Return the diagram with a title and a description for those who do not see it; `name` makes its ids unique."""
    methods = list(ranking.ranks)
    half = math.ceil(len(methods) / 2)
    axis = _Axis(_room(methods[:half]), _room(methods[half:]), len(methods))
    first = TOP + 26 + BAR * len(ranking.cliques)
    parts = [_scale(axis)]
    for i, clique in enumerate(ranking.cliques):
        ends = axis.at(ranking.ranks[clique[0]]) - 4, axis.at(ranking.ranks[clique[-1]]) + 4
        parts.append(_line(*ends, *[TOP + 12 + BAR * i] * 2, class_="clique"))
    for i, method in enumerate(methods):
        on_left = i < half
        y = first + STEP * (i if on_left else len(methods) - 1 - i)
        parts.append(_method(method, ranking.ranks[method], axis, y, on_left=on_left))
    head = tag("title", escape(title), id=f"{name}-title") + tag("desc", escape(said(ranking)), id=f"{name}-desc")
    return tag(
        "svg",
        head,
        *parts,
        viewBox=f"0 0 {axis.width:.0f} {first + STEP * (half - 1) + 12}",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-desc",
        style=f"max-width:{1.1 * axis.width:.0f}px",
    )


def _room(methods: list[str]) -> float:
    """Return how wide a margin must be for the longest label and the rank beside it."""
    return 24 + LETTER * (5 + max(len(method_label(method)) for method in methods))


def _line(x1: float, x2: float, y1: float, y2: float, **more: str) -> str:
    return tag("line", x1=f"{x1:.1f}", x2=f"{x2:.1f}", y1=f"{y1:.1f}", y2=f"{y2:.1f}", **more)


def _scale(axis: _Axis) -> str:
    ticks = "".join(
        _line(axis.at(rank), axis.at(rank), TOP - 6, TOP)
        + tag("text", str(rank), x=f"{axis.at(rank):.1f}", y=TOP - 12, text_anchor="middle")
        for rank in range(1, axis.most + 1)
    )
    return _line(axis.at(1), axis.at(axis.most), TOP, TOP) + ticks


def _method(method: str, rank: float, axis: _Axis, y: float, *, on_left: bool) -> str:
    end, text, anchor = axis.left - 12, axis.left - 17, "end"
    words = [escape(method_label(method)), f"{rank:.2f}"]
    if not on_left:
        end, text, anchor = axis.left + LINE + 12, axis.left + LINE + 17, "start"
        words.reverse()
    label = tag("text", " ".join(words), class_="method", x=f"{text:.1f}", y=y + 4, text_anchor=anchor)
    return _line(axis.at(rank), axis.at(rank), TOP, y) + _line(axis.at(rank), end, y, y) + label


def said(ranking: Ranking) -> str:
    """Return the diagram in words."""
    ranks = ", ".join(f"{method_label(method)} {rank:.2f}" for method, rank in ranking.ranks.items())
    alike = "; ".join(", ".join(map(method_label, clique)) for clique in ranking.cliques)
    return f"Mean ranks over {ranking.cells} cells: {ranks}. Not told apart: {alike or 'none'}."
