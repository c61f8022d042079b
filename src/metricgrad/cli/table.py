"""The commands for a table of your own: fit, compare, predict, evaluate, export. Imports sit inside, as in `app.py`."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricgrad.reporting.terminal import echo

if TYPE_CHECKING:
    from rich.table import Table

    from metricgrad.evaluation.comparison_result import ComparisonResult

Data = Annotated[str, typer.Argument(help="CSV, TSV, Parquet, Feather, gzip or zip of them, or -.", show_default=False)]
Folder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder written by fit.", show_default=False)]
Weights = Annotated[str | None, typer.Option(metavar="COL", help="Column of row weights.")]
TargetOption = Annotated[str, typer.Option(metavar="COL", help="Column to predict.", show_default=False)]
Positive = Annotated[str | None, typer.Option(metavar="LABEL", help="Positive class; inferred by default.")]
Ignored = Annotated[list[str] | None, typer.Option(metavar="COL", help="Column to leave out; may be repeated.")]
Network = Annotated[str, typer.Option(help="mlp, small, linear, additive or tabm.")]
Competing = Annotated[str, typer.Option(help="auto (several compete), readable, or one: additive, tabm, lightgbm ...")]
Method = Annotated[str, typer.Option(help="auto, sl-r, sl-s, sl-u, direct, or a baseline such as cross-entropy.")]
How = Annotated[str, typer.Option(help="default or paper, and changed fields: rounds=100,warmup=300.")]
Judge = Annotated[
    str,
    typer.Option(
        "--metric",
        "--metric-expression",
        help='Name (see metricgrad metrics), expression such as "5*tp - fp" or "sum(amount * tp) - 5*fp", '
        "sklearn.metrics.NAME or FILE.py:FUNCTION.",
    ),
]
MetricColumns = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=COL", help="Column that a name in the metric stands for, amount=Amount; repeatable."),
]
ColumnFeatures = Annotated[
    bool, typer.Option("--column-features", help="Columns of the metric are features too; by default they are not.")
]


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
    group: Annotated[
        str | None, typer.Option(metavar="COL", help="Column of groups; no group is on both sides of the split.")
    ] = None,
    time: Annotated[
        str | None, typer.Option(metavar="COL", help="Column of times; the latest rows are the validation rows.")
    ] = None,
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
    """Train a model for a metric on a table; Ctrl-C stops and keeps the best model so far."""
    from metricgrad.metrics.registry import get_metric
    from metricgrad.tabular.io import read_table
    from metricgrad.tabular.persistence import check_free, save_or_rescue
    from metricgrad.tabular.table_classifier import TableClassifier

    judge = get_metric(metric, allow_files=True)
    if readable and model not in ("auto", "readable"):
        raise typer.BadParameter(f"expected no --model with it, got {model!r}", param_hint="--readable")
    model = "readable" if readable else model
    check_free(out)
    classifier = TableClassifier(
        judge if ".py:" in metric else metric,
        method,
        model,
        recipe_of(recipe, model),
        positive=positive,
        ignore=ignore or (),
        time_limit=time_limit,
        random_state=seed,
        verbose=True,
        folds=folds,
        column_features=column_features,
    )
    labels = [name for name in (target, weights, group, time) if name is not None]
    with _notes_shown():
        frame = read_table(data, text_columns=labels)
        columns = columns_of(column)
        classifier.fit(frame, target, sample_weight=weights, groups=group, times=time, columns=columns)
    save_or_rescue(classifier, out)
    inner = classifier.model_
    if inner.interrupted_:
        echo("training was stopped early; the best model so far is kept")
    if inner.verdict_ is not None:
        echo(str(inner.verdict_))
    if inner.calls_:
        echo(f"{inner.calls_:,} calls of the metric")
    shown = judge.shown(inner.validation_loss_)
    where = "rows that each fold left out" if inner.results_[0]["folds"] > 1 else "validation rows"
    echo(f"{shown} on the {where}, which also chose the model, the checkpoint and the threshold")
    echo(f"probabilities: {inner.calibration_}")
    echo(f"The model is in {out}: metricgrad predict {out} DATA, or metricgrad.load({str(out)!r}).")


def predict(
    model: Folder,
    data: Data,
    out: Annotated[str, typer.Option(help="CSV file to write; - is standard output.")] = "-",
    id: Annotated[list[str] | None, typer.Option(metavar="COL", help="Column to copy; may be repeated.")] = None,
    proba: Annotated[bool, typer.Option("--proba", help="Add the probability of the positive class.")] = False,
) -> None:
    """Score the rows of a file of any size: row number, ids, score and label; a score of at least 0 is positive."""
    from metricgrad.tabular.batch_predict import write_predictions
    from metricgrad.tabular.persistence import load

    rows = write_predictions(load(model), data, out, id or (), report=_aside, proba=proba)
    _aside(f"{rows:,} rows scored" + ("" if out == "-" else f", in {out}"))


def evaluate(
    model: Folder,
    data: Data,
    metric: Annotated[str | None, typer.Option(help="Another metric to compute.")] = None,
    column: MetricColumns = None,
    weights: Weights = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Evaluate a model on rows that have the target: the metric it was trained for, and those of the paper."""
    from rich.table import Table

    from metricgrad.metrics.registry import PAPER, get_metric
    from metricgrad.reporting.terminal import Screen
    from metricgrad.tabular.batch_predict import scored
    from metricgrad.tabular.persistence import load

    loaded = load(model)
    own = [] if metric and ".py:" in str(loaded.metric) else [loaded.metric]
    asked = [get_metric(spec, allow_files=spec == metric) for spec in (*([metric] if metric else []), *own, *PAPER)]
    needing = next((each for each in asked if each.columns), None)
    rows = scored(loaded, data, weights, _aside, columns_of(column), needing)
    scores, targets = rows.scores, rows.targets
    known = {each.name: each for each in asked if each.columns in ((), needing and needing.columns)}
    values = {}
    for name, each in known.items():
        judged = rows.with_columns if each.columns else targets
        values[name] = float(each.value(each(scores, judged, rows.weights)))
    found = scores >= 0
    counts = {
        "rows": len(targets),
        "positive": int(targets.sum()),
        "tp": int((found & (targets == 1)).sum()),
        "fp": int((found & (targets == 0)).sum()),
        "fn": int((~found & (targets == 1)).sum()),
        "tn": int((~found & (targets == 0)).sum()),
    }
    if as_json:
        echo(json.dumps({"metrics": values, **counts}))
        return
    table = Table("metric", "value", title=f"{counts['rows']:,} rows, {counts['positive']:,} positive")
    for name, each in known.items():
        table.add_row(each.label + ("" if each.higher_is_better else " (lower is better)"), f"{values[name]:.4f}")
    Screen().print(table)
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
    echo(f"{out} takes {features:,} features per row, named in the file, and returns scores; at least 0 is positive.")


def compare(
    data: Data,
    target: TargetOption,
    metric: Judge = "f1",
    out: Annotated[Path, typer.Option(help="Folder for the page and the numbers.")] = Path("metricgrad-compare"),
    positive: Positive = None,
    ignore: Ignored = None,
    column: MetricColumns = None,
    column_features: ColumnFeatures = False,
    group: Annotated[
        str | None, typer.Option(metavar="COL", help="Column of groups; no group is in two parts of a split.")
    ] = None,
    baselines: Annotated[str | None, typer.Option(help="Names separated by commas, the reference first.")] = None,
    splits: Annotated[int, typer.Option(min=2, help="Number of random splits.")] = 6,
    model: Network = "mlp",
    method: Method = "sl-r",
    recipe: How = "default",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first split; later ones count up from it.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Splits at a time; default: one per core.")] = None,
    rivals: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Compare training for the metric with cross-entropy and other baselines on a table, over many splits."""
    from metricgrad import compare as compared
    from metricgrad.files import write_whole
    from metricgrad.metrics.registry import get_metric
    from metricgrad.reporting.terminal import Screen
    from metricgrad.tabular.io import read_table

    if rivals is not None:
        echo("--rivals is deprecated: use --baselines", err=True)
        baselines = rivals
    result = compared(
        read_table(data),
        target,
        get_metric(metric, allow_files=True),
        method=method,
        baselines=None if baselines is None else [name.strip() for name in baselines.split(",") if name.strip()],
        model=model,
        recipe=recipe_of(recipe, model),
        groups=group,
        columns=columns_of(column),
        column_features=column_features,
        splits=splits,
        positive=positive,
        ignore=ignore or (),
        random_state=seed,
        n_jobs=jobs,
        name="standard input" if data == "-" else Path(data).name,
        verbose=True,
    )
    result.write_page(out / "index.html", command_line())
    write_whole(out / "trials.csv", result.table().to_csv(index=False))
    for remark in result.remarks:
        echo(remark)
    Screen().print(_comparison_table(result))
    echo(result.verdict)
    echo(f"The page and every number are in {out}: open {out / 'index.html'}.")


def _comparison_table(result: ComparisonResult) -> Table:
    from rich.table import Table

    summary = result.summary()
    table = Table(title=f"{result.metric.label} on test rows, {len(result.splits)} splits (95 % intervals)")
    table.add_column("method", no_wrap=True)
    for heading in summary.columns:
        table.add_column(str(heading), justify="right")
    for name, row in summary.iterrows():
        known, spread, *ahead, seconds = row
        table.add_row(str(name), f"{known:.4f}", f"{spread:.4f}", *ahead, f"{seconds:.0f}")
    return table


# ---- messages and options ------------------------------------------------------------------------------------------


def _aside(line: str) -> None:
    """Print something that is not the result."""
    echo(line, err=True)


class _Echo(logging.Handler):
    """Prints the log of the package."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        echo(record.getMessage())


@contextmanager
def _notes_shown() -> Iterator[None]:
    """Print notes and warnings of the package when they occur, one line each."""
    log, echo = logging.getLogger("metricgrad"), _Echo(logging.INFO)
    level = log.level
    log.addHandler(echo)
    log.setLevel(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _warned
            yield
    finally:
        log.removeHandler(echo)
        log.setLevel(level)


def _warned(message: Warning | str, *rest: Any, **named: Any) -> None:
    _aside(f"metricgrad: warning: {message}")


def command_line() -> str:
    """Return the command line of this process."""
    return shlex.join(["metricgrad", *sys.argv[1:]])


def columns_of(options: list[str] | None) -> dict[str, str] | None:
    """Parse which columns names in a metric stand for: `["amount=Amount (EUR)"]`."""
    found = {}
    for option in options or ():
        name, equals, column = option.partition("=")
        if not equals or not name.strip() or not column:
            raise typer.BadParameter(
                f"expected NAME=COLUMN, such as amount=Amount, got {option!r}", param_hint="--column"
            )
        found[name.strip()] = column
    return found or None


def recipe_of(text: str, model: str) -> Any:
    """Parse the recipe for a model: a name, changed fields, or both: `default,rounds=100`."""
    from metricgrad.estimators.competing import competes
    from metricgrad.training.networks import kind_of
    from metricgrad.training.recipe import get_recipe, recipe_for

    name, changes = "default", {}
    for part in text.split(","):
        field, equals, value = (piece.strip() for piece in part.partition("="))
        if equals:
            changes[field] = _option_value(value)
        else:
            name = field
    if competes(model) and not changes:
        return name  # each of them has its own
    return get_recipe(recipe_for(name, kind_of(model)), **changes)


def _option_value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
