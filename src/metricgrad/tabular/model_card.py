"""The model card: what a model folder says about itself, in Markdown."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

from metricgrad.metrics.registry import Metric
from metricgrad.reporting.terminal import visible
from metricgrad.tabular.schema import DROPPED, USED
from metricgrad.tabular.table_classifier import TableClassifier
from metricgrad.tabular.table_model import TableModel
from metricgrad.tabular.target import ClassTarget, GradeTarget, LabelTarget, Target
from metricgrad.training.networks import MIXTURE

CURVE = "validation.png"
"""The picture of training beside the card."""
MAX_CARD_COLUMNS, MAX_CARD_CLASSES = 200, 50


def model_card(model: TableModel, metric: Metric, made_by: Mapping[str, str]) -> str:
    """Return a model card in Markdown: validation result, target, data, columns, and how to load the model."""
    inner = model.model_
    stopped = " Training was stopped early." if inner.interrupted_ else ""
    columns = model.pipeline_[0].schema_.columns
    positive = f"{model.data_['positives']:,} of them positive, " if "positives" in model.data_ else ""
    lines = [
        f"# A model of {_in_markdown(model.target_.name)}, trained for {_in_markdown(metric.label)}",
        "",
        f"- **{_in_markdown(metric.shown(inner.validation_loss_))}** on the validation rows. They also chose "
        f"{_chosen(model)}, so expect slightly less on new rows.{stopped}",
        *([f"- It {_in_markdown(inner.verdict_)}."] if inner.verdict_ is not None else []),
        *_decided(model),
        *_probabilities(inner),
        f"- Trained on {model.data_['rows']:,} rows, {positive}{model.pipeline_[1].n_features_in_:,} features.",
        f"- Method {inner.method}, model {inner.network_.name}.",
        "",
        f"![The metric on the validation rows during training]({CURVE})",
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
        "or `metricgrad predict this-folder data.csv`. Loading runs no code from this folder.",
        "",
        "## Columns",
        "",
        "| name | kind |",
        "|---|---|",
        *(f"| {_in_markdown(column.name)} | {_described(column.kind)} |" for column in columns[:MAX_CARD_COLUMNS]),
        *([f"| {len(columns) - MAX_CARD_COLUMNS:,} more | |"] if len(columns) > MAX_CARD_COLUMNS else []),
        "",
        *_importance(model),
        "## Made by",
        "",
        *(f"- {_in_markdown(name)} {_in_markdown(version)}" for name, version in made_by.items() if version),
        "",
    ]
    return "\n".join(lines)


def _chosen(model: TableModel) -> str:
    """Return what was chosen on the held-out rows: among several models or strategies, which one too."""
    if model.target_.kind == "grades":
        return "the checkpoint"
    inner = model.model_
    tried = () if inner.verdict_ is None else inner.verdict_.tried
    results = getattr(inner, "results_", [])  # not of a model that was loaded
    names = [line["model"] for line in results] or [each.name.partition(" by ")[0] for each in tried]
    which = "mixture of models" if inner.network_.name == MIXTURE else "model" if len(set(names)) > 1 else "strategy"
    several = f"the {which}, " if len(names) > 1 else ""
    return f"{several}the checkpoint and what is decided by"


def _decided(model: TableModel) -> list[str]:
    """Return how scores become what is predicted."""
    inner, target = model.model_, model.target_
    if isinstance(target, Target):
        return [
            f"- Positive is {_in_markdown(target.positive)}, negative {_in_markdown(target.negative)}; a row with a "
            "score of at least 0 is predicted positive.",
            f"- Threshold on the network's raw scores: {inner.threshold_:.6g}, already subtracted. Scores rank rows; "
            "they are not probabilities.",
        ]
    if isinstance(target, ClassTarget):
        shown = [_in_markdown(label) for label in target.labels[:MAX_CARD_CLASSES]]
        more = f" and {len(target.labels) - len(shown):,} more" if len(target.labels) > len(shown) else ""
        return [
            f"- {len(target.labels):,} classes: {', '.join(shown)}{more}; the highest score is predicted. An offset of "
            "each class is already subtracted."
        ]
    if isinstance(target, LabelTarget):
        shown = [f"{_in_markdown(each.name)} ({_in_markdown(each.positive)})" for each in target.targets]
        return [f"- Labels, each from a score of 0 on: {', '.join(shown[:MAX_CARD_CLASSES])}."]
    if isinstance(target, GradeTarget):
        return ["- Scores order the rows of a query; they mean nothing across queries."]
    return [f"- Numbers in the unit of {_in_markdown(target.name)}: {_in_markdown(inner.correction_)}."]


def _probabilities(inner: Any) -> list[str]:
    known = getattr(inner, "calibration_", None)
    return [] if known is None else [f"- Probabilities by `predict_proba`: {known}."]


def _importance(model: TableModel) -> list[str]:
    """Return how much every column adds to the score of a readable model."""
    if model.model_.network_.name not in ("linear", "additive") or not isinstance(model, TableClassifier):
        return []
    if not isinstance(model.target_, Target):
        return []
    sizes = model.explain().importance.head(MAX_CARD_COLUMNS)
    rows = [f"| {_in_markdown(name)} | {size:.4g} |" for name, size in sizes.items()]
    head = ["| column | mean absolute contribution to the score |", "|---|---:|"]
    return ["## What counts", "", *head, *rows, "", "`model.explain()` has every level of every column.", ""]


def _described(kind: str) -> str:
    return kind if kind in USED else f"not used: {DROPPED[kind]}"


def _in_markdown(value: Any) -> str:
    """Return a user's text with characters that Markdown, HTML or a terminal would interpret escaped."""
    plain = html.escape(visible(" ".join(str(value).split())), quote=False)
    return re.sub(r"([\\`*_\[\]#!|~])", r"\\\1", plain)
