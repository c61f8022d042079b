"""The command `compare`: a method against baselines on a table of your own. Imports sit inside, as in `app.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricgrad.cli.options import (
    ColumnFeatures,
    Data,
    Grouped,
    How,
    Ignored,
    Judge,
    MetricColumns,
    Network,
    Positive,
    TargetOption,
    Timed,
    Weights,
    columns_of,
    command_line,
    recipe_of,
    targets_of,
)
from metricgrad.reporting.terminal import echo

if TYPE_CHECKING:
    from rich.table import Table

    from metricgrad.evaluation.comparison_result import ComparisonResult


def compare(
    data: Data,
    target: TargetOption,
    metric: Judge = "f1",
    out: Annotated[Path, typer.Option(help="Folder for the page and the numbers.")] = Path("metricgrad-compare"),
    positive: Positive = None,
    ignore: Ignored = None,
    column: MetricColumns = None,
    column_features: ColumnFeatures = False,
    weights: Weights = None,
    group: Grouped = None,
    time: Timed = None,
    baselines: Annotated[str | None, typer.Option(help="Names separated by commas, the reference first.")] = None,
    splits: Annotated[int, typer.Option(min=2, help="Number of random splits.")] = 6,
    model: Network = "mlp",
    method: Annotated[
        str | None,
        typer.Option(help="sl-r, sl-s, sl-u, a baseline, or auto as in fit; of numbers surrogate, direct ..."),
    ] = None,
    recipe: How = "default",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first split; later ones count up from it.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Splits at a time; default: one per core.")] = None,
    rivals: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Compare training for the metric with cross-entropy and other baselines on a table, over many splits."""
    from metricgrad import compare as compared
    from metricgrad.metrics.registry import get_metric
    from metricgrad.tabular.io import read_table

    if rivals is not None:
        echo("--rivals is deprecated: use --baselines", err=True)
        baselines = rivals
    frame = read_table(data)
    result = compared(
        frame,
        targets_of(target, frame.columns),
        get_metric(metric, allow_files=True),
        method=method,
        baselines=None if baselines is None else [name.strip() for name in baselines.split(",") if name.strip()],
        model=model,
        recipe=recipe if recipe == "default" else recipe_of(recipe, model),
        groups=group,
        times=time,
        sample_weight=weights,
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
    _show_comparison(result, out)


def _show_comparison(result: ComparisonResult, out: Path) -> None:
    """Write the page and every number, and print the verdict."""
    from metricgrad.files import write_whole
    from metricgrad.reporting.terminal import Screen

    result.write_page(out / "index.html", command_line())
    write_whole(out / "trials.csv", result.table().to_csv(index=False))
    for name, frame in (("choices.csv", result.choices()), ("costs.csv", result.costs())):
        if len(frame):
            write_whole(out / name, frame.to_csv(index=False))
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
