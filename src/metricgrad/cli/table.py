"""The commands for a table of your own: fit, predict, evaluate, export. Imports sit inside, as in `app.py`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricgrad.cli.options import (
    ColumnFeatures,
    Competing,
    Data,
    Folder,
    Grouped,
    How,
    Ignored,
    Judge,
    Method,
    MetricColumns,
    Positive,
    TargetOption,
    Timed,
    Weights,
    aside,
    columns_of,
    notes_shown,
    read_with_labels,
    recipe_of,
    targets_of,
)
from metricgrad.reporting.terminal import echo

if TYPE_CHECKING:
    from metricgrad.metrics.metric import Metric
    from metricgrad.tabular.batch_predict import ScoredRows
    from metricgrad.tabular.table_model import TableModel


def fit(
    data: Data,
    target: TargetOption,
    metric: Judge = "f1",
    out: Annotated[Path, typer.Option(help="Folder for the model.")] = Path("metricgrad-model"),
    positive: Positive = None,
    ignore: Ignored = None,
    column: MetricColumns = None,
    column_features: ColumnFeatures = False,
    weights: Weights = None,
    group: Grouped = None,
    time: Timed = None,
    model: Competing = "auto",
    readable: Annotated[
        bool, typer.Option("--readable", help="Only models that can be read: linear, additive.")
    ] = False,
    folds: Annotated[
        int | None, typer.Option(min=1, help="Models to average, each on all but one fold; 1: one model, one split.")
    ] = None,
    method: Method = "auto",
    recipe: How = "default",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split, the network and the sets.")] = 0,
    time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop training then, and keep the best model.")
    ] = None,
) -> None:
    """Train a model for a metric on a table; Ctrl-C stops and keeps the best model so far.

    The metric says what is predicted: two classes, several, labels, numbers, or the order of the rows of queries.
    """
    from metricgrad.estimators.competing import check_name
    from metricgrad.metrics.plain_functions import as_numbers
    from metricgrad.metrics.registry import get_metric
    from metricgrad.tabular.persistence import check_free, save_or_rescue
    from metricgrad.tabular.target_inference import has_many_numbers

    judge = get_metric(metric, allow_files=True)
    if readable and model not in ("auto", "readable"):
        raise typer.BadParameter(f"expected no --model with it, got {model!r}", param_hint="--readable")
    check_free(out)
    check_name(model)
    given: dict[str, Any] = {
        "metric": judge if ".py:" in metric else metric,
        "method": method,
        "model": "readable" if readable else model,
        "ignore": ignore or (),
        "time_limit": time_limit,
        "random_state": seed,
    }
    own = {"positive": positive, "folds": folds, "column_features": column_features or None}
    own = {name: each for name, each in own.items() if each is not None}
    estimator = _estimator(judge, recipe, given, own)
    with notes_shown():
        frame = read_with_labels(data, target, (weights, group, time))
        columns, labels = columns_of(column), targets_of(target, frame.columns)
        of_numbers = as_numbers(judge) if isinstance(labels, str) and has_many_numbers(frame[labels]) else judge
        if of_numbers is not judge:
            judge, given["metric"] = of_numbers, of_numbers
            estimator = _estimator(judge, recipe, given, own)
        estimator.fit(frame, labels, sample_weight=weights, groups=group, times=time, columns=columns)
    save_or_rescue(estimator, out)
    _show_fit(estimator, out)


def _estimator(judge: Metric, recipe: str, given: dict[str, Any], own: dict[str, Any]) -> TableModel:
    """Return the estimator of what a metric judges, not fitted; `own` are options that some estimators do not have."""
    from metricgrad import TableClassifier, TableRanker, TableRegressor

    kinds = {"regression": TableRegressor, "censored": TableRegressor, "ranking": TableRanker}
    kind = kinds.get(judge.task.name, TableClassifier)
    allowed = inspect.signature(kind).parameters
    for name, each in own.items():
        if name not in allowed:
            hint = f"--{name.replace('_', '-')}"
            expected = f"expected none with {judge.name}, a metric of {judge.task.name}"
            raise typer.BadParameter(f"{expected}, got {each!r}", param_hint=hint)
    chosen = "queries" if kind is TableRanker and recipe == "default" else recipe_of(recipe, given["model"])
    made: TableModel = kind(**given, **own, recipe=chosen, verbose=True)
    return made


def _show_fit(estimator: TableModel, out: Path) -> None:
    """Print what came of training."""
    inner = estimator.model_
    if inner.interrupted_:
        echo("training was stopped early; the best model so far is kept")
    if inner.verdict_ is not None:
        echo(str(inner.verdict_))
        if inner.verdict_.costs:
            echo(inner.verdict_.costs)
    if getattr(inner, "calls_", 0):
        echo(f"{inner.calls_:,} calls of the metric")
    shown = estimator.judge_.shown(inner.validation_loss_)
    results = getattr(inner, "results_", [])
    several = bool(results) and results[0].get("folds", 1) > 1
    chose = {"grades": "the checkpoint", "numbers": "the model, the checkpoint and the constant"}
    chosen = chose.get(estimator.target_.kind, "the model, the checkpoint and the threshold")
    echo(
        f"{shown} on the {'rows that each fold left out' if several else 'validation rows'}, which also chose {chosen}"
    )
    if getattr(inner, "calibration_", None) is not None:
        echo(f"probabilities: {inner.calibration_}")
    echo(f"The model is in {out}: metricgrad predict {out} DATA, or metricgrad.load({str(out)!r}).")


def predict(
    model: Folder,
    data: Data,
    out: Annotated[str, typer.Option(help="CSV file to write; - is standard output.")] = "-",
    id: Annotated[list[str] | None, typer.Option(metavar="COL", help="Column to copy; may be repeated.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of every class or label.")] = False,
) -> None:
    """Predict the rows of a file of any size: row number, ids, scores and labels, or predictions of numbers.

    A score of at least 0 is positive; of several classes, the highest is the label.
    """
    from metricgrad.tabular.batch_predict import write_predictions
    from metricgrad.tabular.persistence import load

    rows = write_predictions(load(model), data, out, id or (), report=aside, proba=proba)
    aside(f"{rows:,} rows scored" + ("" if out == "-" else f", in {out}"))


def evaluate(
    model: Folder,
    data: Data,
    metric: Annotated[str | None, typer.Option(help="Another metric to compute.")] = None,
    column: MetricColumns = None,
    weights: Weights = None,
    group: Grouped = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate a model on rows that have the target: the metric it was trained for, and usual ones."""
    from metricgrad.tabular.batch_predict import scored
    from metricgrad.tabular.persistence import load

    loaded = load(model)
    asked = _asked_metrics(loaded, metric)
    needing = next((each for each in asked if each.columns), None)
    queries = (group or loaded.group_) if hasattr(loaded, "group_") else None
    rows = scored(loaded, data, weights, aside, columns_of(column), needing, queries)
    known = {each.name: each for each in asked if each.columns in ((), needing and needing.columns)}
    values = {name: _value(each, rows) for name, each in known.items()}
    counts, bounds = _counts(loaded, rows), _bounds(known, rows)
    if as_json:
        echo(json.dumps({"metrics": values, **counts, **({"bounds": bounds} if bounds else {})}))
        return
    _show_values(known, values, counts)
    for text, found in bounds.items():
        echo(f"bound {text} {'kept' if found['kept'] else 'missed'}: {found['value']:.4f} on these rows")


STANDARD = {
    "classes": ("multiclass_accuracy", "macro_f1", "multiclass_balanced_accuracy", "multiclass_mcc"),
    "labels": ("label_macro_f1", "label_micro_f1", "hamming", "sample_f1"),
    "numbers": ("mae", "rmse", "r2", "spearman"),
    "grades": ("ndcg(10)", "map", "mrr"),
}
"""Metrics that are computed beside the one a model was trained for, by the kind of its target."""


TASKS = {
    "two classes": ("binary", "columns"),
    "classes": ("multiclass",),
    "labels": ("multilabel",),
    "numbers": ("regression", "censored"),
    "grades": ("ranking",),
}
"""Tasks whose metrics can judge a model, by the kind of its target."""


def _asked_metrics(loaded: TableModel, metric: str | None) -> list[Metric]:
    from metricgrad.metrics.registry import PAPER, get_metric

    own = [] if metric and ".py:" in str(loaded.metric) else [loaded.judge_]
    others = [get_metric(name) for name in STANDARD.get(loaded.target_.kind, PAPER)]
    if metric is None:
        return [*own, *others]
    asked, kind = loaded.for_target(get_metric(metric, allow_files=True)), loaded.target_.kind
    if asked.task.name not in TASKS[kind]:
        raise ValueError(f"metric: expected one of {kind}, as the model is, got {metric!r}, one of {asked.task.name}")
    return [asked, *own, *others]


def _value(metric: Metric, rows: ScoredRows) -> float:
    """Return a metric of scored rows: of rankings, the mean over queries whose grades differ."""
    from metricgrad.training.data import Rows, members, queries_of
    from metricgrad.training.selection import loss_of

    if rows.groups is None:
        loss = metric(rows.scores, rows.with_columns if metric.columns else rows.targets, rows.weights)
        return float(metric.value(loss))
    import torch

    queries = torch.as_tensor(members(queries_of(len(rows.scores), qid=rows.groups)))
    scores = torch.as_tensor(rows.scores)
    return float(metric.value(loss_of(metric, Rows(scores, torch.as_tensor(rows.targets), None, queries), scores)))


def _bounds(known: dict[str, Metric], rows: ScoredRows) -> dict[str, dict[str, Any]]:
    """Return the bounds of metrics that are subject to one, with what is bounded on the rows and whether it is kept."""
    import torch

    from metricgrad.metrics.bounds import bound_of, bounded_value

    found = {}
    for metric in known.values():
        bound = bound_of(metric)
        if bound is not None:
            targets = rows.with_columns if metric.columns else rows.targets
            w = None if rows.weights is None else torch.tensor(rows.weights)
            value = bounded_value(metric, torch.tensor(rows.scores), torch.tensor(targets), w)
            found[bound.text] = {"value": value, "kept": bound.keeps(value)}
    return found


def _counts(loaded: TableModel, rows: ScoredRows) -> dict[str, int]:
    """Return the number of rows and, of two classes, of each kind of decision."""
    counts = {"rows": len(rows.targets)}
    if loaded.target_.kind != "two classes":
        return counts
    found, positive = rows.scores >= 0, rows.targets == 1
    return counts | {
        "positive": int(positive.sum()),
        "tp": int((found & positive).sum()),
        "fp": int((found & ~positive).sum()),
        "fn": int((~found & positive).sum()),
        "tn": int((~found & ~positive).sum()),
    }


def _show_values(known: dict[str, Metric], values: dict[str, float], counts: dict[str, int]) -> None:
    from rich.table import Table

    from metricgrad.reporting.terminal import Screen

    positive = f", {counts['positive']:,} positive" if "positive" in counts else ""
    table = Table("metric", "value", title=f"{counts['rows']:,} rows{positive}")
    for name, each in known.items():
        table.add_row(each.label + ("" if each.higher_is_better else " (lower is better)"), f"{values[name]:.4f}")
    Screen().print(table)
    if "tp" in counts:
        echo(", ".join(f"{name} {counts[name]:,}" for name in ("tp", "fp", "fn", "tn")))


def export(
    model: Folder,
    out: Annotated[Path, typer.Option(help="File to write, for torch.export.load.")] = Path("model.pt2"),
) -> None:
    """Export the network of a model as a torch program that needs no metricgrad; it takes prepared features."""
    from metricgrad.tabular.batch_predict import export as exported
    from metricgrad.tabular.persistence import load

    loaded = load(model)
    exported(loaded, out)
    features = len(loaded.pipeline_[0].get_feature_names_out())
    several = loaded.target_.kind == "classes"
    what = "the highest is predicted" if several else "at least 0 is positive"
    echo(f"{out} takes {features:,} features per row, named in the file, and returns scores; {what}.")
