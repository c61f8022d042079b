"""The commands about the paper: data, reproduce, report. Imports sit inside, as in `app.py`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from metricgrad.cli.options import command_line
from metricgrad.reporting.terminal import echo

if TYPE_CHECKING:
    from metricgrad.paper.datasets import TableRow
    from metricgrad.paper.reproduce import Plan
    from metricgrad.training.recipe import Recipe

FAILURE = 2
"""Exit code for bad input or a failed job."""


# ---- the datasets --------------------------------------------------------------------------------------------------


def data(
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of Parquet files to look in first; default METRICGRAD_DATA.")
    ] = None,
) -> None:
    """Show Table 1: the datasets on this machine beside the paper's, and what is missing or partial."""
    from rich.table import Table

    from metricgrad.paper.datasets import table1
    from metricgrad.reporting.terminal import Screen

    rows = table1(data_dir)
    table = Table(title="Table 1: ours / the paper's (- where there is none)")
    table.add_column("dataset", no_wrap=True)
    for heading in ("rows", "features", "positive"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state")
    for row in rows:
        table.add_row(row.name, *_counts(row), _dataset_state(row))
    Screen().print(table)
    for row in rows:
        for note in _notes(row):
            echo(f"{row.name}: {note}")


def _counts(row: TableRow) -> tuple[str, str, str]:
    """Return rows, features and positive share, each ours / the paper's."""
    both = (row.ours, row.source.paper)
    return (
        " / ".join(f"{each.rows:,}" if each else "-" for each in both),
        " / ".join(f"{each.features}" if each else "-" for each in both),
        " / ".join(f"{each.positive_share:.2%}" if each else "-" for each in both),
    )


def _dataset_state(row: TableRow) -> str:
    """Return whether a dataset is complete, a subset, missing or unreadable, and whether its hash is unknown."""
    word = row.status.partition(":")[0]
    return word if row.verified or row.ours is None else f"{word}, unverified"


def _notes(row: TableRow) -> list[str]:
    """Return what is missing from a dataset, how to get it, and why it differs from the paper's."""
    state, _, detail = row.status.partition(": ")
    detail = f"a subset, {detail}" if state == "subset" else detail.removeprefix(f"{row.name} ")
    return [note for note in (detail, row.source.remark) if note]


# ---- the paper's tables and figures --------------------------------------------------------------------------------


def reproduce(
    target: Annotated[str, typer.Argument(help="table1, table2, table3, figure1, figure2, figure3 or all.")],
    protocol: Annotated[str, typer.Option(help="How models are scored: honest, paper or both.")] = "honest",
    datasets: Annotated[
        str | None, typer.Option(help="Names separated by commas; default: the paper's that are on this machine.")
    ] = None,
    metrics: Annotated[str | None, typer.Option(help="Names separated by commas; default: all of the table.")] = None,
    methods: Annotated[str | None, typer.Option(help="Names separated by commas; default: all of the table.")] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Number of seeds; default: quick 2, standard 5, paper 1.")
    ] = None,
    budget: Annotated[str, typer.Option(help="quick (minutes), standard (hours) or paper (300,000 rounds).")] = "quick",
    recipe: Annotated[
        str | None, typer.Option(help="default or paper; default: paper with the budget paper, else default.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of Algorithm 1, instead of the budget's.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Model steps in all, instead of the budget's.")] = None,
    model: Annotated[str, typer.Option(help="mlp (the paper's), small or linear.")] = "mlp",
    results: Annotated[Path, typer.Option(help="Folder of the results; run again to resume.")] = Path(
        "metricgrad-results"
    ),
    jobs: Annotated[int | None, typer.Option(min=1, help="Jobs at a time; default: one per core.")] = None,
    engine: Annotated[str, typer.Option(help="local, ray or dask.")] = "local",
    address: Annotated[str | None, typer.Option(help="Address of a Ray or Dask cluster; default: a local one.")] = None,
) -> None:
    """Reproduce the paper's tables and figures, ours beside theirs; stop at any time, run again to resume."""
    from metricgrad.paper.reproduce import make_plan

    plan = make_plan(
        target,
        protocol=protocol,
        datasets=_names(datasets),
        metrics=_names(metrics),
        methods=_names(methods),
        seeds=seeds,
        budget=budget,
        recipe=recipe,
        rounds=rounds,
        steps=steps,
        model=model,
    )
    if target in ("table1", "all"):
        data()
    _draw_figures(target, results, (_names(datasets) or ["digits8"])[0], (_names(metrics) or ["f1"])[0], plan.recipe)
    if plan.runs:
        _train_and_show(target, plan, results, engine=engine, n_jobs=jobs, address=address)


def _draw_figures(target: str, results: Path, dataset: str, metric: str, recipe: Recipe) -> None:
    """Draw the figures of a target, the third of a dataset and a metric, and print where they are."""
    from metricgrad.paper.reproduce import FIGURES, draw

    for figure in FIGURES:
        if target in (figure, "all"):
            echo(f"drawing {figure} ...", err=True)
            for file in draw(figure, results, dataset, metric, recipe):
                echo(f"{figure}: {file}")


def _train_and_show(target: str, plan: Plan, results: Path, **how: Any) -> None:
    """Train what is missing of a plan, print its tables, and write the page."""
    from metricgrad.evaluation.records import FILE
    from metricgrad.evaluation.store import Store
    from metricgrad.paper.experiments import TABLES
    from metricgrad.paper.reproduce import carry_out

    if plan.absent:
        echo(f"Not on this machine, left out: {', '.join(plan.absent)}.", err=True)
    store = Store(results / FILE)
    _carry_out(carry_out(plan, store, command=command_line(), **how), store)
    _show_tables(store, [name for name in TABLES if target in (name, "all")], plan)
    _write_report(results, results / "index.html")


def _names(text: str | None) -> list[str] | None:
    """Split names at commas, but not inside brackets: precision_at(0.02) is one name."""
    return None if text is None else [name.strip() for name in re.split(r",(?![^(]*\))", text) if name.strip()]


def _carry_out(progress: Any, store: Any) -> None:
    """Run a plan with a progress bar; if it is stopped, print how to resume."""
    from metricgrad.evaluation.grid import JobsFailed
    from metricgrad.reporting.progress import work_bar

    with work_bar() as report:
        try:
            for done, total in progress:
                report("runs", done, total)
        except KeyboardInterrupt:
            echo(f"Every finished run is in {store.path}; the same command resumes from there.", err=True)
            raise
        except JobsFailed as error:
            echo(*f"metricgrad: error: {error}".splitlines(), "The same command retries them.", err=True)
            raise typer.Exit(FAILURE) from None


def _show_tables(store: Any, wanted: list[str], plan: Plan) -> None:
    """Print the tables a plan was made for, and how they compare with the paper's."""
    from metricgrad.evaluation.records import Setting
    from metricgrad.paper import tables
    from metricgrad.paper.layouts import result_table, tally_table
    from metricgrad.reporting.tables import as_rich
    from metricgrad.reporting.terminal import Screen

    setting = Setting.of(plan.runs[0].as_dict())
    console = Screen() if Screen().is_terminal else Screen(width=160)
    for protocol in plan.protocols:
        for name in wanted:
            table = getattr(tables, name)(store, protocol, setting, plan.datasets)
            console.print(as_rich(result_table(table)))
            if len(table.compared):
                console.print(as_rich(tally_table(table)))


def _write_report(results: Path, out: Path) -> None:
    """Write the page about a results folder, and print where it is."""
    from metricgrad.paper.report import write_report

    count = write_report(results, out)
    echo(f"{count:,} runs are in {results}: open {out}.")


# ---- the report ----------------------------------------------------------------------------------------------------


def report(
    results: Annotated[Path, typer.Argument(help="Folder that holds runs.jsonl or runs.parquet.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Page to write; default: index.html in that folder.")] = None,
) -> None:
    """Write one page about a results folder: sortable tables, ranks, training, figures; it works offline."""
    _write_report(results, out or (results if results.is_dir() else results.parent) / "index.html")
