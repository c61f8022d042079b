"""The commands for people with a table: fit, predict, evaluate, export. Imports sit inside, as in `app.py`."""

from __future__ import annotations

import json
import logging
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from metricgrad.reporting.terminal import echo

Data = Annotated[str, typer.Argument(help="CSV, TSV, Parquet, Feather, gzip or zip of them, or -.", show_default=False)]
Folder = Annotated[Path, typer.Argument(metavar="MODEL", help="A folder that fit has written.", show_default=False)]
Weights = Annotated[str | None, typer.Option(metavar="COL", help="Column that says how much each row counts.")]
Target = Annotated[str, typer.Option(metavar="COL", help="Column to predict.", show_default=False)]
Positive = Annotated[str | None, typer.Option(metavar="LABEL", help="The positive class; inferred.")]
Ignored = Annotated[list[str] | None, typer.Option(metavar="COL", help="Column to leave out; again for more.")]
Network = Annotated[str, typer.Option(help="mlp, small or linear.")]
Method = Annotated[str, typer.Option(help="sl-r, sl-s, sl-u or a baseline such as cross-entropy.")]
How = Annotated[str, typer.Option(help="default or paper, and changes: rounds=100,warmup=300.")]
Judge = Annotated[
    str,
    typer.Option(
        help='Name (see metricgrad metrics), expression such as "5*tp - fp", sklearn.metrics.NAME or FILE.py:FUNCTION.'
    ),
]


def fit(
    data: Data,
    target: Target,
    metric: Judge = "f1",
    out: Annotated[Path, typer.Option(help="Folder for the model.")] = Path("metricgrad-model"),
    positive: Positive = None,
    ignore: Ignored = None,
    weights: Weights = None,
    group: Annotated[str | None, typer.Option(metavar="COL", help="Keep rows of a group on one side.")] = None,
    time: Annotated[str | None, typer.Option(metavar="COL", help="Validate on the latest rows.")] = None,
    model: Network = "mlp",
    method: Method = "sl-r",
    recipe: How = "default",
    seed: Annotated[int, typer.Option(min=0, help="Of the split, the network and the draws.")] = 0,
    time_limit: Annotated[float | None, typer.Option(metavar="SECONDS", help="Stop training, keep the best.")] = None,
) -> None:
    """Train a model for a metric on your own table; Ctrl-C keeps the best so far."""
    from metricgrad.metrics.parse import read_metric
    from metricgrad.tabular.io import read_table
    from metricgrad.tabular.persistence import check_free, save_or_rescue
    from metricgrad.tabular.table_classifier import TableClassifier

    judge = read_metric(metric, run_code=True)
    check_free(out)
    classifier = TableClassifier(
        judge if ".py:" in metric else metric,
        method,
        model,
        recipe_of(recipe),
        positive=positive,
        ignore=ignore or (),
        time_limit=time_limit,
        random_state=seed,
        verbose=True,
    )
    labels = [name for name in (target, weights, group, time) if name is not None]
    with _told():
        classifier.fit(read_table(data, text_columns=labels), target, sample_weight=weights, groups=group, times=time)
    save_or_rescue(classifier, out)
    inner = classifier.model_
    if inner.interrupted_:
        echo("training was stopped before its end; the best model until then is kept")
    if inner.verdict_ is not None:
        echo(str(inner.verdict_))
    echo(f"{judge.shown(inner.validation_loss_)} on validation rows, which also chose checkpoint and threshold")
    echo(f"The model is in {out}: metricgrad predict {out} DATA, or metricgrad.load({str(out)!r}).")


def predict(
    model: Folder,
    data: Data,
    out: Annotated[str, typer.Option(help="CSV file to write; - is standard output.")] = "-",
    id: Annotated[list[str] | None, typer.Option(metavar="COL", help="Column to carry over; again for more.")] = None,
) -> None:
    """Score the rows of a file of any size: row number, ids, score and label; a score of at least 0 is positive."""
    from metricgrad.tabular.batch_predict import write_predictions
    from metricgrad.tabular.persistence import load

    rows = write_predictions(load(model), data, out, id or (), tell=_aside)
    _aside(f"{rows:,} rows scored" + ("" if out == "-" else f", in {out}"))


def evaluate(
    model: Folder,
    data: Data,
    metric: Annotated[str | None, typer.Option(help="Judge by another metric as well.")] = None,
    weights: Weights = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Judge a model by rows that have the target: the metric it was trained for, and those of the paper."""
    from rich.table import Table

    from metricgrad.metrics.parse import read_metric
    from metricgrad.metrics.registry import PAPER
    from metricgrad.reporting.terminal import Screen
    from metricgrad.tabular.batch_predict import judged
    from metricgrad.tabular.persistence import load

    loaded = load(model)
    own = [] if metric and ".py:" in str(loaded.metric) else [loaded.metric]
    asked = [read_metric(spec, run_code=spec == metric) for spec in (*([metric] if metric else []), *own, *PAPER)]
    scores, targets, heavy = judged(loaded, data, weights, tell=_aside)
    known = {judge.name: judge for judge in asked}
    values = {name: float(judge.value(judge(scores, targets, heavy))) for name, judge in known.items()}
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
    for name, judge in known.items():
        table.add_row(judge.label + ("" if judge.higher_is_better else " (lower is better)"), f"{values[name]:.4f}")
    Screen().print(table)
    echo(", ".join(f"{name} {counts[name]:,}" for name in ("tp", "fp", "fn", "tn")))


def export(
    model: Folder,
    out: Annotated[Path, typer.Option(help="File to write, of the kind torch.export.load reads.")] = Path("model.pt2"),
) -> None:
    """Write the network of a model as a program of torch that needs no metricgrad; it takes prepared features."""
    from metricgrad.tabular.export import export as exported
    from metricgrad.tabular.persistence import load

    loaded = load(model)
    exported(loaded, out)
    features = len(loaded.pipeline_[0].get_feature_names_out())
    echo(f"{out} takes {features:,} features a row, named in the file, and gives scores; at least 0 is positive.")


# ---- what is said and read -----------------------------------------------------------------------------------------


def _aside(said: str) -> None:
    """Say something that is not the result."""
    echo(said, err=True)


class _Echo(logging.Handler):
    """Says what the package notes, as it comes."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say one note."""
        echo(record.getMessage())


@contextmanager
def _told() -> Iterator[None]:
    """Say notes and warnings of the package as they come, a line each."""
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
    """Write down how this program was called."""
    return shlex.join(["metricgrad", *sys.argv[1:]])


def recipe_of(text: str) -> Any:
    """Read a recipe: a name, changes of its fields, or both: `default,rounds=100`."""
    from metricgrad.training.recipe import get_recipe

    name, changes = "default", {}
    for part in text.split(","):
        field, equals, value = (piece.strip() for piece in part.partition("="))
        if equals:
            changes[field] = _number(value)
        else:
            name = field
    return get_recipe(name, **changes)


def _number(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return {"true": True, "false": False, "none": None}.get(text.lower(), text)
