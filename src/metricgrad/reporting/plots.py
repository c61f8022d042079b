"""Charts, drawn once by matplotlib: as pictures in notebooks and files, and as SVG inside pages."""

from __future__ import annotations

import io
import math
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from markupsafe import Markup
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import blended_transform_factory
from numpy.typing import NDArray

if TYPE_CHECKING:
    from metricgrad.metrics.metric import Metric
    from metricgrad.training.history import Round

Array = NDArray[Any]
PALETTE = ("#0e7fa3", "#b3289f", "#c26a04", "#475569", "#2f7d32", "#7c3aed", "#be123c", "#857a00")
"""Colours of series; number i is `--c<i>` in the style sheet of pages, which has another one for dark screens."""
DASHES: tuple[Any, ...] = ("-", (0, (4.5, 1.8)), (0, (1.2, 1.6)), (0, (6, 1.6, 1.2, 1.6)))
INK, SOFT, LINE, EVEN = "#1d2733", "#5c6673", "#e3e0d8", "#8a93a0"
"""Colours of headings, labels, grid lines and axes."""
CSS_COLOURS = {colour: f"var(--c{i})" for i, colour in enumerate(PALETTE)}
CSS_COLOURS |= {INK: "var(--ink)", SOFT: "var(--soft)", LINE: "var(--line)", EVEN: "var(--even)"}
MAX_TICKS = 6
MAX_TIPS = 30
"""How many places along the x axis of a chart show their values on a page."""
NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
PANELS = {"validation": "True loss on validation rows", "loss": "Training loss", "gap": "Gap of the surrogate"}
"""Panels of a chart of training: column of a run, title."""


class Picture(Figure):
    """A figure that notebooks show without pyplot; its text is literal, never mathematics between dollar signs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.marks: dict[str, dict[str, str]] = {}

    def mark(self, artist: Any, kind: str, series: str = "", tip: str = "") -> None:
        """Give an artist a class, the name of its series and a tooltip, for when it becomes part of a page."""
        name = f"mark-{len(self.marks)}"
        artist.set_gid(name)
        self.marks[name] = {"class": kind, "data-series": series, "title": tip}

    def draw(self, renderer: Any) -> None:
        """Draw the figure."""
        for text in self.findobj(Text):
            text.set_parse_math(False)
        super().draw(renderer)

    def _repr_png_(self) -> bytes:
        file = io.BytesIO()
        self.savefig(file, format="png", dpi=110)
        return file.getvalue()


def pen(number: int) -> dict[str, Any]:
    """Return colour and dashes of a series by its number."""
    return {"color": PALETTE[number % len(PALETTE)], "linestyle": DASHES[number % len(PALETTE) // 3 % len(DASHES)]}


def plain(axes: Any, title: str = "", bottom: str = "") -> Any:
    """Style axes: a title on the left, horizontal grid lines, no box; return them."""
    axes.grid(axis="y", color=LINE, lw=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.spines["bottom"].set_color(EVEN)
    axes.tick_params(labelsize=9, colors=SOFT, length=0)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(MAX_TICKS, steps=[1, 2, 5, 10]))
        axis.set_major_formatter(lambda value, _: f"{value:,.6g}".replace("-", "−"))
    if title:
        axes.set_title(title, loc="left", fontsize=9, fontweight="bold", color=INK)
    if bottom:
        axes.set_xlabel(bottom, loc="right", fontsize=9, color=SOFT)
    return axes


def add_tips(
    figure: Picture, axes: Any, label: str, grid: Array, lines: Mapping[str, Iterable[str]], most: int = MAX_TIPS
) -> None:
    """Add invisible strips to a chart that show, on a page, the x value and what each series is there.

    `lines` has for every series a text for each point of `grid`; `axes` is one axes or several that share x.
    """
    every = np.atleast_1d(axes)
    low, high = every[0].get_xlim()
    inside = np.flatnonzero((grid >= low) & (grid <= high) & (np.diff(grid, prepend=-np.inf) > 0))
    chosen = inside[np.unique(np.linspace(0, len(inside) - 1, min(most, len(inside))).round().astype(int))]
    if not len(chosen):
        return
    texts = {name: list(values) for name, values in lines.items()}
    edges = np.concatenate(([low], (grid[chosen][1:] + grid[chosen][:-1]) / 2, [high]))
    several = len(every) > 1
    y0, y1 = (every[-1].get_position().y0, every[0].get_position().y1) if several else (0, 1)
    place = (
        blended_transform_factory(every[0].transData, figure.transFigure) if several else every[0].get_xaxis_transform()
    )
    for i, left, right in zip(chosen, edges, edges[1:], strict=False):
        tip = "\n".join([f"{label} {grid[i]:,.4g}", *(f"{name}: {own[i]}" for name, own in texts.items() if own[i])])
        strip = Rectangle((left, y0), right - left, y1 - y0, transform=place, alpha=0, lw=0, zorder=9, clip_on=False)
        every[0].add_artist(strip)
        figure.mark(strip, "strip", tip=tip)


# ---- training ------------------------------------------------------------------------------------------------------


def plot_convergence(histories: Mapping[str, Sequence[Round]], metric: Metric) -> Picture:
    """Plot the validation metric against model steps for some runs, and the gap of the surrogate below it."""
    runs = {name: [history_frame(history, metric)] for name, history in histories.items()}
    titles = {"validation": f"{metric.label} on validation rows", "gap": PANELS["gap"]}
    figure = plot_training(runs, titles, higher_is_better=metric.higher_is_better, size=(8, 5.2))
    warm = [r.steps for history in histories.values() for r in history if r.phase == "warm-up"]
    for axes in figure.axes:
        if warm:
            axes.axvline(max(warm), color=EVEN, ls=":", lw=1)
    figure.axes[0].set_title(
        "Dot: best checkpoint of a run; dotted line: end of the warm-up", loc="right", fontsize=8, color=SOFT
    )
    figure.axes[0].legend(frameon=False)
    return figure


def history_frame(history: Sequence[Round], metric: Metric) -> pd.DataFrame:
    """Return steps, validation metric, loss and gap of a run, a row for each round."""
    columns = {name: [getattr(done, name) for done in history] for name in ("steps", *PANELS)}
    frame: pd.DataFrame = pd.DataFrame(columns)
    frame["validation"] = metric.value(frame["validation"].to_numpy(dtype=float))
    return frame


def thinned(run: pd.DataFrame, most: int) -> pd.DataFrame:
    """Return at most so many rows of a run: all, or evenly chosen from the validated ones if there are any."""
    if len(run) <= most:
        return run
    known = run[run["validation"].notna()]
    rows = run if known.empty else known
    chosen = np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).round().astype(int))
    found: pd.DataFrame = rows.iloc[chosen]
    return found


def plot_training(
    runs: Mapping[str, Sequence[pd.DataFrame]],
    titles: Mapping[str, str] = PANELS,
    *,
    higher_is_better: bool = False,
    numbers: Mapping[str, int] | None = None,
    thin: Collection[str] = tuple(PANELS),
    points: int = 10_000,
    tips: int = MAX_TIPS,
    size: tuple[float, float] = (8, 5),
) -> Picture:
    """Plot runs against model steps: a panel for each column, thin lines for runs, a thick one for their mean.

    Parameters
    ----------
    runs : mapping
        Runs by the name of their series: frames with the column `steps` and those of `titles`.
    titles : mapping
        What the panels show by column; `validation` has a dot at the best of each run.
    numbers : mapping, optional
        Numbers of the series in the palette; by default in their order.
    thin : collection of str
        Columns for which single runs are drawn behind their mean.
    points : int
        How many points of a run are drawn at most.
    tips : int
        How many places along the x axis show their values on a page.
    """
    figure = Picture(figsize=size)
    panels = np.atleast_1d(figure.subplots(len(titles), 1, sharex=True, height_ratios=[3, 2, 1.4][: len(titles)]))
    figure.subplots_adjust(left=0.09, right=0.98, top=0.94, bottom=0.1, hspace=0.28)
    drawn = {name: [thinned(run, points) for run in own] for name, own in runs.items()}
    means = {name: _mean(own, list(titles)) for name, own in drawn.items()}
    for (column, title), axes in zip(titles.items(), panels, strict=True):
        plain(axes, title)
        for i, (name, own) in enumerate(runs.items()):
            style = pen(numbers[name] if numbers else i)
            for run in drawn[name] if len(own) > 1 and column in thin else ():
                (line,) = axes.plot(*_known(run, column), color=style["color"], alpha=0.28, lw=0.8)
                figure.mark(line, "run", name)
            (line,) = axes.plot(*_known(means[name], column), **style, label=name, lw=1.6)
            figure.mark(line, "mean", name)
            for run in own if column == "validation" else ():
                _best_dot(figure, axes, run, name, higher_is_better, color=style["color"], ms=6 if len(own) == 1 else 4)
        _leave_room(axes)
    panels[-1].set_xlabel("model steps", loc="right", fontsize=9, color=SOFT)
    longest = max((mean["steps"].to_numpy() for mean in means.values()), key=len, default=np.array([]))
    if len(longest):
        lines = {name: _values_near(mean, longest, titles) for name, mean in means.items()}
        add_tips(figure, panels, "step", longest, lines, tips)
    return figure


def _mean(runs: Sequence[pd.DataFrame], columns: list[str]) -> pd.DataFrame:
    """Return the mean of those runs that have the steps of the longest one."""
    longest = max(runs, key=len)
    same = [run for run in runs if len(run) == len(longest) and (run["steps"].array == longest["steps"].array).all()]
    mean: pd.DataFrame = pd.concat(same).groupby("steps", sort=False)[columns].mean().reset_index()
    return mean


def _known(run: pd.DataFrame, column: str) -> tuple[Array, Array]:
    known = run[run[column].notna()] if column in run else run.iloc[:0].assign(**{column: math.nan})
    return known["steps"].to_numpy(dtype=float), known[column].to_numpy(dtype=float)


def _best_dot(figure: Picture, axes: Any, run: pd.DataFrame, name: str, higher: bool, **style: Any) -> None:
    steps, values = _known(run, "validation")
    if len(values):  # a run may have been stopped before its first validation
        best = int(np.argmax(values) if higher else np.argmin(values))
        (dot,) = axes.plot(steps[best], values[best], "o", lw=0, **style)
        figure.mark(dot, "dot", name)


def _leave_room(axes: Any) -> None:
    if not any(len(line.get_xdata()) for line in axes.get_lines()):
        axes.set(ylim=(0, 1), yticks=[])
    axes.margins(x=0.01)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_locator(
        MaxNLocator(max(2, round(MAX_TICKS * axes.get_position().height * 2)), steps=[1, 2, 5, 10])
    )


def _values_near(mean: pd.DataFrame, steps: Array, titles: Mapping[str, str]) -> list[str]:
    """Return the values of a mean at the steps nearest to some, as text."""
    own = mean["steps"].to_numpy(dtype=float)
    nearest = np.abs(own[:, None] - steps).argmin(0)
    columns = [(column, mean[column].to_numpy(dtype=float)[nearest]) for column in titles]
    shown = ([f"{column} {v[i]:.4f}" for column, v in columns if math.isfinite(v[i])] for i in range(len(steps)))
    return [", ".join(parts).removeprefix("validation ") for parts in shown]


# ---- SVG -----------------------------------------------------------------------------------------------------------


def inline_svg(figure: Picture, name: str, label: str, *, legend: bool = False) -> Markup:
    """Return a figure as an SVG element for a page: its colours follow the page, its text is text.

    Parameters
    ----------
    figure : Picture
        What to draw; its marks become classes, `data-series` and titles.
    name : str
        Another one for every figure of a page, so that the ids inside are unique.
    label : str
        What the figure shows, for those who do not see it.
    legend : bool
        Whether to keep its legends; pages mostly have a legend of their own.
    """
    for shown in figure.findobj(Legend):
        shown.set_visible(legend)
    file = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # the browser has other fonts
        figure.savefig(file, format="svg", transparent=True)
    root = ET.fromstring(_xml(file.getvalue()))
    for element in list(root.iter()):
        _clean(element, figure.marks)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in ("metadata", "style") or (child.tag in ("defs", "g") and not len(child)):
                parent.remove(child)
    kept = {"viewBox": root.get("viewBox", ""), "role": "img", "aria-label": _xml(label), "tabindex": "0"}
    root.attrib.clear()
    root.attrib.update(kept)
    return Markup(ET.tostring(root, encoding="unicode"))


def _xml(text: str) -> str:
    return NOT_XML.sub("\ufffd", text)


def _clean(element: ET.Element, marks: Mapping[str, dict[str, str]]) -> None:
    """Drop what a page does not need from an element, name its colours, and turn marks into attributes."""
    element.tag = element.tag.rpartition("}")[2]
    element.tail = None
    attributes = {key.rpartition("}")[2]: value for key, value in element.attrib.items()}
    if element.tag == "text":
        attributes = _text_attributes(attributes)
    else:
        element.text = None
    if element.tag == "g":
        mark = marks.get(attributes.pop("id", ""), {})
        attributes |= {key: _xml(mark[key]) for key in ("class", "data-series") if mark.get(key)}
        if mark.get("title"):
            title = ET.Element("title")
            title.text = _xml(mark["title"])
            element.insert(0, title)
    attributes |= {key: _short_numbers(attributes[key]) for key in ("d", "x", "y") if key in attributes}
    if "style" in attributes:
        attributes["style"] = re.sub(r"#[0-9a-f]{6}", lambda m: CSS_COLOURS.get(m[0], m[0]), attributes["style"])
    element.attrib.clear()
    element.attrib.update(attributes)


def _text_attributes(attributes: Mapping[str, str]) -> dict[str, str]:
    """Keep size, weight, anchor and colour of a text, and leave its font to the page."""
    style = attributes.get("style", "")
    size, anchor, fill = (re.search(p, style) for p in (r"([\d.]+)px", r"text-anchor: (\w+)", r"fill: (#\w+)"))
    kept = {key: attributes[key] for key in ("x", "y") if key in attributes}
    turned = attributes.get("transform", "")
    if turned and not re.fullmatch(r"rotate\(-?0(\.0)?( [-\d.]+)*\)", turned):
        kept["transform"] = turned
    kept |= {"font-size": size[1] if size else "9", "text-anchor": anchor[1] if anchor else "start"}
    if re.search(r"\b(bold|[67]00)\b", style):
        kept["font-weight"] = "600"
    return kept | {"style": f"fill: {fill[1] if fill else INK}"}


def _short_numbers(text: str) -> str:
    """Round to a tenth of a point, which nobody sees, and halve the size of a path."""
    rounded = re.sub(r"-?\d+\.\d+", lambda m: f"{float(m[0]):.1f}".removesuffix(".0"), text)
    return re.sub(r"\s*([A-Za-z])\s*", r"\1", re.sub(r"\s+", " ", rounded)).strip()
