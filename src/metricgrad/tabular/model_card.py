"""The model card: what a saved model is for, how good it was, what it was made of, and how to load it, in Markdown."""

from __future__ import annotations

import html
import re
from typing import Any

from metricgrad.metrics.registry import Metric
from metricgrad.reporting.terminal import visible
from metricgrad.tabular.schema import DROPPED, USED
from metricgrad.tabular.table_classifier import TableClassifier

CURVE = "validation.png"
SHOWN = 200
"""Columns that are listed."""


def write_card(model: TableClassifier, metric: Metric, made_by: dict[str, str]) -> str:
    """Return the card of a fitted model, its metric and what it was made by."""
    inner, target = model.model_, model.target_
    rows, positives = model.data_["rows"], model.data_["positives"]
    stopped = " Training was stopped before its end." if inner.interrupted_ else ""
    columns = model.pipeline_[0].schema_.columns
    lines = [
        f"# A model of {_text(target.name)}, trained for {_text(metric.label)}",
        "",
        f"- **{_text(metric.shown(inner.validation_loss_))}** on validation rows. They also chose checkpoint and "
        f"threshold, so expect a little less on new ones.{stopped}",
        *([f"- It {_text(inner.verdict_)}."] if inner.verdict_ is not None else []),
        f"- Positive is {_text(target.positive)}, negative {_text(target.negative)}; a row is called positive where "
        "its score is at least 0.",
        f"- Threshold on the raw scores of the network: {inner.threshold_:.6g}; scores are already shifted by it. They "
        "are for ranking and cutting, not probabilities.",
        f"- Trained on {rows:,} rows, {positives:,} of them positive, {model.pipeline_[1].n_features_in_:,} features.",
        f"- Method {inner.method}, model {inner.network_.name}.",
        "",
        f"![The metric on validation rows while training]({CURVE})",
        "",
        "## Load",
        "",
        "```python",
        "import metricgrad",
        "",
        'model = metricgrad.load("this-folder")',
        "model.predict(frame)  # a pandas frame with the columns below, in any order",
        "```",
        "",
        "or `metricgrad predict this-folder data.csv`. Loading runs no code of this folder.",
        "",
        "## Columns",
        "",
        "| name | kind |",
        "|---|---|",
        *(f"| {_text(column.name)} | {_kind(column.kind)} |" for column in columns[:SHOWN]),
        *([f"| {len(columns) - SHOWN:,} more | |"] if len(columns) > SHOWN else []),
        "",
        "## Made by",
        "",
        *(f"- {_text(name)} {_text(version)}" for name, version in made_by.items() if version),
        "",
    ]
    return "\n".join(lines)


def _kind(kind: str) -> str:
    return kind if kind in USED else f"not used: {DROPPED[kind]}"


def _text(value: Any) -> str:
    """Write a value of the user's so that it is nothing but text in Markdown, and on a terminal."""
    plain = html.escape(visible(" ".join(str(value).split())), quote=False)
    return re.sub(r"([\\`*_\[\]#!|~])", r"\\\1", plain)
