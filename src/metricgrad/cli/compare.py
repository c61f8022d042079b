"""The command `metricgrad compare`. Imports sit inside, as in `app.py`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from metricgrad.cli.table import (
    Data,
    How,
    Ignored,
    Judge,
    Method,
    Network,
    Positive,
    Target,
    command_line,
    recipe_of,
)
from metricgrad.reporting.terminal import echo

if TYPE_CHECKING:
    from rich.table import Table

    from metricgrad.evaluation.comparison_result import ComparisonResult


def compare(
    data: Data,
    target: Target,
    metric: Judge = "f1",
    out: Annotated[Path, typer.Option(help="Folder for the page and the numbers.")] = Path("metricgrad-compare"),
    positive: Positive = None,
    ignore: Ignored = None,
    group: Annotated[str | None, typer.Option(metavar="COL", help="Keep rows of a group in one part.")] = None,
    rivals: Annotated[str | None, typer.Option(help="Names with commas, the one to beat first.")] = None,
    splits: Annotated[int, typer.Option(min=2, help="How often the rows are split anew.")] = 6,
    model: Network = "mlp",
    method: Method = "sl-r",
    recipe: How = "default",
    seed: Annotated[int, typer.Option(min=0, help="Of the first split; the others count up from it.")] = 0,
    jobs: Annotated[int | None, typer.Option(min=1, help="Splits at a time; one a core.")] = None,
) -> None:
    """Say whether training for the metric is worth it on your table: against cross-entropy and others, many splits."""
    from metricgrad import compare as compared
    from metricgrad.evaluation.report import write_comparison
    from metricgrad.metrics.parse import read_metric
    from metricgrad.reporting.atomic import write_whole
    from metricgrad.reporting.terminal import Screen
    from metricgrad.tabular.io import read_table

    contest = compared(
        read_table(data),
        target,
        read_metric(metric, run_code=True),
        method=method,
        rivals=None if rivals is None else [name.strip() for name in rivals.split(",") if name.strip()],
        model=model,
        recipe=recipe_of(recipe),
        groups=group,
        splits=splits,
        positive=positive,
        ignore=ignore or (),
        random_state=seed,
        n_jobs=jobs,
        name="standard input" if data == "-" else Path(data).name,
        verbose=True,
    )
    write_comparison(contest, out / "index.html", command_line())
    write_whole(out / "trials.csv", contest.table().to_csv(index=False))
    for remark in contest.remarks:
        echo(remark)
    Screen().print(_table(contest))
    echo(contest.verdict)
    echo(f"The page and every number are in {out}: open {out / 'index.html'}.")


def _table(contest: ComparisonResult) -> Table:
    from rich.table import Table

    summary = contest.summary()
    table = Table(title=f"{contest.metric.label} on test rows, {len(contest.splits)} splits (95 % intervals)")
    table.add_column("method", no_wrap=True)
    for heading in summary.columns:
        table.add_column(str(heading), justify="right")
    for name, row in summary.iterrows():
        known, spread, *ahead, seconds = row
        table.add_row(str(name), f"{known:.4f}", f"{spread:.4f}", *ahead, f"{seconds:.0f}")
    return table
