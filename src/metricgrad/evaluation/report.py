"""The page of a contest: the verdict, the metric by method, and what is behind it; one file, as every report."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from html import escape
from pathlib import Path

import numpy as np
import torch
from scipy.stats import spearmanr

from metricgrad._version import __version__
from metricgrad.evaluation.charts import chart_data
from metricgrad.evaluation.comparison_result import ComparisonResult
from metricgrad.evaluation.records import Setting
from metricgrad.evaluation.statistics import signed
from metricgrad.evaluation.training_panel import NO_SCRIPT, training_panel
from metricgrad.reporting.atomic import write_whole
from metricgrad.reporting.markup import head_cell, note, number, page, table_of, tag

PARTS = {
    "metric": "Metric by method",
    "curves": "Curves",
    "threshold": "Threshold",
    "confusion": "Confusion",
    "training": "Convergence",
    "calibration": "Calibration",
    "fidelity": "Fidelity",
    "made": "How it was made",
}


def write_comparison(contest: ComparisonResult, path: str | Path, command: str = "") -> None:
    """Write one page about a contest.

    Parameters
    ----------
    contest : ComparisonResult
        What `compare` returned.
    path : path
        The page to write; its folder is made.
    command : str
        How to make it again, to be shown.
    """
    title = f"{contest.metric.label} on {contest.name}: was it worth it?"
    text = page(
        f"metricgrad: {title}",
        _body(contest, title, command),
        styles=("style.css", "report.css"),
        scripts=("draw.js", "sort.js", "convergence.js", "charts.js"),
        data=chart_data(contest),
    )
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text)


def _body(contest: ComparisonResult, title: str, command: str) -> str:
    inside = {
        "metric": tag("div", _chart("metric"), _chart("ahead"), class_="pair")
        + _methods(contest)
        + _about_intervals(contest),
        "curves": PICKS + tag("div", _chart("roc"), _chart("precision"), class_="pair"),
        "threshold": _threshold(contest),
        "confusion": _confusions(contest),
        "training": training_panel([Setting(contest.model, contest.recipe)], "split", one=True),
        "calibration": _about_calibration() + tag("div", _chart("calibration"), class_="one"),
        "fidelity": _fidelity(contest),
        "made": _made(contest, command),
    }
    parts = [name for name in PARTS if inside[name]]
    links = "".join(tag("a", escape(PARTS[name]), href=f"#{name}") for name in parts)
    sections = (tag("section", tag("h2", escape(PARTS[name])), inside[name], id=name) for name in parts)
    return (
        tag(
            "header",
            tag("h1", escape(title)),
            tag("p", escape(_capital(contest.verdict)), class_="verdict"),
            _facts(contest),
        )
        + tag("nav", tag("div", links), aria_label="Parts")
        + tag("main", *sections)
    )


PICKS = (
    "<fieldset class='plain'><legend class='sr'>Methods</legend><div class='picks' data-picks></div></fieldset>"
    "<p class='quiet'>Thin lines are splits, the thick one is their mean. Point at a plot, or focus it and use the "
    "arrow keys, to read values.</p>"
)


def _chart(name: str) -> str:
    return f"<div class='plot' data-chart='{name}' id='chart-{name}'>{NO_SCRIPT}<div class='tip' hidden></div></div>"


def _facts(contest: ComparisonResult) -> str:
    facts = {
        "rows": f"{contest.rows:,}",
        "positive": f"{contest.positives / contest.rows:.1%}",
        "columns": f"{contest.features:,}",
        "splits": f"{len(contest.splits)}",
        "minutes of training": f"{sum(trial.seconds for trial in contest.trials) / 60:,.1f}",
    }
    cards = (tag("div", tag("dt", name), tag("dd", value)) for name, value in facts.items())
    return tag("dl", *cards, class_="facts")


# ---- the metric ----------------------------------------------------------------------------------------------------


def _methods(contest: ComparisonResult) -> str:
    metric, ours = contest.metric, contest.label(contest.methods[0])
    better = "higher" if metric.higher_is_better else "lower"
    head = (
        head_cell("method", class_="name")
        + head_cell(metric.label, f"mean, {better} is better")
        + head_cell("spread", "over splits")
        + head_cell(f"{ours} minus it", "mean")
        + head_cell("95 % interval", "of that")
        + head_cell("threshold", "mean")
        + head_cell("seconds", "a split")
    )
    means = {method: contest.values(method).mean() for method in contest.methods}
    best = (max if metric.higher_is_better else min)(means.values())
    rows = [_method_row(contest, method, bool(means[method] == best)) for method in contest.methods]
    return table_of(
        f"{metric.label} on test rows, {len(contest.splits)} splits", head, rows, class_="sortable", id="methods"
    )


def _method_row(contest: ComparisonResult, method: str, best: bool) -> str:
    values, gain, own = contest.values(method), contest.intervals.get(method), contest.of(method)
    mean = f"{values.mean():.4f}"
    ahead, low, high = signed(contest.metric, gain) if gain else ("", "", "")
    colour = "" if gain is None or not gain.reliable else "better" if gain.better else "worse"
    return tag(
        "tr",
        tag("th", escape(contest.label(method)), scope="row", class_="name"),
        tag("td", tag("strong", mean) if best else mean, data_value=f"{values.mean():.10g}"),
        number(float(values.std(ddof=1)), ".4f"),
        tag("td", escape(ahead), data_value="" if gain is None else f"{gain.mean:.10g}", class_=colour or None),
        tag("td", escape(f"{low} to {high}") if gain else "", data_value="" if gain is None else f"{gain.low:.10g}"),
        number(float(np.mean([trial.threshold for trial in own])), ".3g"),
        number(float(np.mean([trial.seconds for trial in own])), ".1f"),
    )


def _about_intervals(contest: ComparisonResult) -> str:
    ratio = contest.test / (1 - contest.test)
    ours = contest.of(contest.methods[0])
    kept = sum(trial.followed for trial in ours)
    return note(
        "Splits of one table overlap, so a plain t interval would be too narrow. These are intervals of the corrected "
        f"resampled t (Nadeau and Bengio 2003): the variance over {len(contest.splits)} splits times "
        f"1/{len(contest.splits)} + {ratio:.2f}, test rows to rows learned from. Each has its own 95 %. The verdict is "
        f"about {contest.label(contest.methods[1])}, chosen before looking. Validation rows chose checkpoint and "
        f"threshold of every method; in {kept} of {len(ours)} splits they preferred the model that followed the metric "
        "to the best one of cross-entropy. Test rows were looked at once a split."
    )


# ---- what is behind it ---------------------------------------------------------------------------------------------


def _threshold(contest: ComparisonResult) -> str:
    if not contest.metric.thresholded:
        return note(
            f"{contest.metric.label} judges the ranking alone: no threshold matters. Decisions are cut at zero."
        )
    said = note(
        f"{contest.metric.label} of the test rows if more or fewer of them were called positive, best-scored first. A "
        "dot is the threshold chosen on validation rows; how far it lies below the top of its curve is what choosing "
        "cost."
    )
    return said + tag("div", _chart("threshold"), class_="one")


def _confusions(contest: ComparisonResult) -> str:
    negative, positive = (escape(str(label)) for label in contest.classes)
    said = note("Test rows of all splits together, at the chosen thresholds; a row is in as many as it was tested in.")
    grids = (_confusion(contest, method, negative, positive) for method in contest.methods)
    return said + tag("div", *grids, class_="grids")


def _confusion(contest: ComparisonResult, method: str, negative: str, positive: str) -> str:
    every = zip(*(trial.diagnosis.confusion for trial in contest.of(method)), strict=True)
    tp, fp, fn, tn = (int(sum(counts)) for counts in every)
    recall, precision = tp / max(tp + fn, 1), tp / max(tp + fp, 1)
    head = tag(
        "tr", tag("td"), tag("th", f"called {negative}", scope="col"), tag("th", f"called {positive}", scope="col")
    )
    rows = (
        tag("tr", tag("th", name, scope="row"), *_shaded(counts))
        for name, counts in ((f"is {negative}", (tn, fp)), (f"is {positive}", (fn, tp)))
    )
    caption = tag(
        "caption", escape(contest.label(method)), tag("small", f"recall {recall:.3f}, precision {precision:.3f}")
    )
    return tag("table", caption, tag("thead", head), tag("tbody", *rows), class_="confusion")


def _shaded(counts: tuple[int, int]) -> Iterator[str]:
    total = max(sum(counts), 1)
    for count in counts:
        yield tag("td", f"{count:,}", tag("small", f"{count / total:.1%}"), style=f"--share:{count / total:.3f}")


def _about_calibration() -> str:
    return note(
        "Scores are for ranking and cutting. Taken as log-odds they would be probabilities: on the diagonal they could "
        "be read as such. What is trained for a metric, weighted or focal mostly cannot; calibrate it before you do."
    )


def _fidelity(contest: ComparisonResult) -> str:
    rows = []
    for method in contest.methods:
        pairs = [trial.fidelity for trial in contest.of(method) if trial.fidelity is not None]
        if pairs:
            true, learned = np.concatenate(pairs, axis=1)
            agree = float(spearmanr(true, learned).statistic) if np.ptp(true) and np.ptp(learned) else None
            last = (_at_the_end(contest, method, name) for name in ("trust", "cosine"))
            cells = (float(np.abs(true - learned).mean()), agree, *last)
            rows.append(
                tag("tr", tag("th", escape(contest.label(method)), scope="row"), *(number(c, ".4f") for c in cells))
            )
    if not rows:
        return ""
    head = head_cell("method", class_="name") + head_cell("gap", "mean |true - surrogate|")
    head += head_cell("Spearman", "of these sets") + head_cell("trust", "as training ended")
    head += head_cell("cosine", "of gradients, then")
    said = note(
        "A model follows the surrogate, so the surrogate has to be true. Each dot is a fresh set of validation rows, "
        "scored by the model kept, with noise as in training: on the diagonal the surrogate says what the metric says."
    )
    return said + tag("div", _chart("fidelity"), table_of("Surrogate against metric", head, rows), class_="pair")


def _at_the_end(contest: ComparisonResult, method: str, name: str) -> float | None:
    """Return the mean over splits of what the last round of each measured; None if none did."""
    last = [getattr(trial.history[-1], name) for trial in contest.of(method) if trial.history]
    return float(np.nanmean(last)) if np.isfinite(last).any() else None


def _made(contest: ComparisonResult, command: str) -> str:
    facts = {
        "Model": f"{contest.model}, recipe {contest.recipe}, the same for every network",
        "Splits": f"seeds {', '.join(map(str, contest.splits))}; {contest.test:.0%} of the rows are test rows, "
        f"{contest.validation:.0%} of the others validation rows, the rest training rows",
        "Versions": f"metricgrad {__version__}, torch {torch.__version__}, Python {platform.python_version()}",
    }
    listed = "".join(tag("dt", name) + tag("dd", escape(text)) for name, text in facts.items())
    remarks = tag("ul", *(tag("li", escape(remark)) for remark in contest.remarks))
    listed += tag("dt", "Table") + tag("dd", remarks)
    again = tag("h3", "To run it again") + tag("pre", tag("code", escape(command)), tabindex=0) if command else ""
    return tag("dl", listed, class_="made") + again


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:] + "."
