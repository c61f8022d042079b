"""The command demo. Imports sit inside, as in `app.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from metricgrad.cli.options import command_line
from metricgrad.reporting.terminal import echo


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the page, the numbers and the predictions.")] = Path(
        "metricgrad-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the splits and of training.")] = 0,
) -> None:
    """Train for a cost on embedded data, beside squared error and the best usual loss, in five splits: a minute."""
    from metricgrad.demo.page import costs_table, write_demo
    from metricgrad.demo.trial import run_demo
    from metricgrad.reporting.progress import work_bar
    from metricgrad.reporting.tables import as_rich
    from metricgrad.reporting.terminal import Screen

    out.mkdir(parents=True, exist_ok=True)  # a folder that cannot be made is refused before any work
    echo("Bikes rented in an hour: 5 a bike short, 1 a bike over, 10 if any is short. Five splits by days.", err=True)
    with work_bar() as report:
        result = run_demo(seed, report=report)
    console = Screen() if Screen().is_terminal else Screen(width=100)
    console.print(as_rich(costs_table(result)))
    console.print(result.verdict)
    page = write_demo(result, out, command_line())[0]
    echo(f"{result.cpu_seconds:.0f} s of one core. Open {page}: cost curves, errors, and the model to be read.")
