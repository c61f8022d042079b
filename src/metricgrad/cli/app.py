"""The command `metricgrad`; it and its modules of commands alone print. Imports sit inside, so help answers at once."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from metricgrad._version import __version__
from metricgrad.cli import compare as compare_command
from metricgrad.cli import paper as paper_commands
from metricgrad.cli import table as table_commands
from metricgrad.cli.paper import PROBLEM
from metricgrad.reporting.terminal import echo, visible
from metricgrad.tabular.unpacking import VARIABLE

INTERRUPTED = 130


class OneLineErrors(TyperGroup):
    """Runs commands; bad input and files become one line on stderr and exit code 2, Ctrl-C one line and 130."""

    def main(self, args: Any = None, *rest: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the program; what is wrong with the words of the command line is one line too."""
        try:
            code = super().main(args, *rest, **{**extra, "standalone_mode": False})
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            echo(f"metricgrad: error: {' '.join(error.format_message().split())} (see --help)", err=True)
            code = PROBLEM
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # whoever read our output has seen enough; typer ends quietly
            raise
        except (ValueError, TypeError, OSError) as error:
            if ctx.params.get("traceback"):
                echo(*"".join(traceback.format_exception(error)).splitlines(), err=True)
            echo(f"metricgrad: error: {one_line(error)}", err=True)
            raise typer.Exit(PROBLEM) from None
        except KeyboardInterrupt:
            echo("metricgrad: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


def one_line(error: Exception) -> str:
    """Say what went wrong in one line; the system's errors name the file first."""
    said = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        said = f"{error.filename}: {error.strerror}"
    return " ".join(said.split()) or type(error).__name__


app = typer.Typer(
    name="metricgrad",
    cls=OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
universal = typer.Typer(no_args_is_help=True, help="Fit universal surrogates, and list those that are bundled.")
app.add_typer(universal, name="universal")
app.add_typer(paper_commands.results, name="results")


def show_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        echo(f"metricgrad {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where an error came from.")] = False,
    max_unpacked: Annotated[
        float | None, typer.Option(metavar="GB", help="Most a gzip or zip file may unpack to.", show_default=False)
    ] = None,
) -> None:
    """Train models directly for the metric they are judged by: F1, average precision, AUC, MCC, or any black box."""
    if max_unpacked is not None:
        os.environ[VARIABLE] = str(max_unpacked)  # for this process and those it starts


# ---- one's own table, and the paper made again ---------------------------------------------------------------------


for command in (
    table_commands.fit,
    compare_command.compare,
    table_commands.predict,
    table_commands.evaluate,
    table_commands.export,
    paper_commands.data,
    paper_commands.reproduce,
    paper_commands.report,
):
    app.command()(command)


# ---- the demo ------------------------------------------------------------------------------------------------------


@app.command()
def demo(
    metric: Annotated[str, typer.Option(help="What to train for.")] = "f1",
    out: Annotated[Path, typer.Option(help="Folder for the model, the pictures and the page.")] = Path(
        "metricgrad-demo"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Of the split, the networks and the draws.")] = 0,
) -> None:
    """Train for F1 on an embedded dataset, beside cross-entropy with the same exact threshold: under a minute."""
    from rich.table import Table
    from rich.text import Text

    from metricgrad.cli.demo import METHODS, RECIPE, run_demo, said
    from metricgrad.metrics.registry import PAPER, get_metric
    from metricgrad.reporting.screen import Screen

    chosen = get_metric(metric)
    echo(f"digits8: is it an eight? {chosen.label} is what counts. The paper's network, {RECIPE.steps:,} steps each.")
    runs = run_demo(out, metric, seed)
    table = Table(title="Test rows, looked at once (best in bold)")
    table.add_column("metric", no_wrap=True)
    for run in runs:
        table.add_column(METHODS[run.method], justify="right")
    for name in dict.fromkeys((chosen.name, *PAPER)):
        known = get_metric(name)
        losses = [run.losses[name] for run in runs]
        cells = [Text(f"{known.value(x):.4f}", "bold" if x == min(losses) else "") for x in losses]
        table.add_row(known.label + ("" if known.higher_is_better else " (lower is better)"), *cells)
    table.add_row("seconds", *(f"{run.seconds:.0f}" for run in runs))
    Screen().print(table)
    echo(said(runs[-1]))
    echo(
        f"Only {runs[0].positives} test rows are positive, and the network fits this data easily: take a small "
        "difference for noise. README.md says where it helps."
    )
    echo(f"The page, the pictures and the model are in {out}: open {out / 'index.html'}.")


# ---- what there is -------------------------------------------------------------------------------------------------


@app.command()
def metrics() -> None:
    """List every metric: how people know it, which way is better, whether a threshold matters, what it says."""
    from metricgrad.metrics.registry import ALIASES, FAMILIES, listed_metrics
    from metricgrad.metrics.tasks import BINARY

    listed = listed_metrics()
    for name, metric in listed.items():
        better = "higher is better" if metric.higher_is_better else "lower is better"
        cut = "the offsets matter" if metric.task.outputs else "the threshold matters"
        task = "" if metric.task == BINARY else f"; of {metric.task.name}"
        decided = f"; {cut}" if metric.thresholded else ""
        echo(f"{name:<33}{metric.label}, {better}{decided}{task}", f"    {metric.explanation}")
    others = ", ".join(f"{alias} = {name}" for alias, name in ALIASES.items() if alias not in listed)
    echo("", f"Other names: {others}.")
    echo(f"{', '.join(FAMILIES)} take any other number: f_beta(0.5).")
    echo("Where the threshold matters, best_f1 and the like cut each set at its own best threshold;")
    echo("where offsets of the classes or labels do, best_macro_f1 and the like take the best of each set.")


# ---- universal surrogates ------------------------------------------------------------------------------------------


@universal.command("fit")
def universal_fit(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Metrics, such as best_f1.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Fit every surrogate that is bundled.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the files and their index.")] = Path("metricgrad-universal"),
    seed: Annotated[int, typer.Option(min=0, help="Of the random sets and the network.")] = 0,
    families: Annotated[int | None, typer.Option(min=1, help="Families of 8 random sets; default as bundled.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of fitting; default as bundled.")] = None,
) -> None:
    """Fit the universal surrogates of some metrics to random sets (Eq. 3), and say how faithful each is."""
    from dataclasses import replace

    from metricgrad.metrics.registry import get_metric
    from metricgrad.reporting.progress import work_bar
    from metricgrad.surrogate.pretrained import bundled_names, fit_bundled
    from metricgrad.surrogate.pretraining import THOROUGH

    if bool(names) == every:
        raise ValueError("NAME: expected at least one metric or --all, and not both")
    chosen = bundled_names() if every else list(dict.fromkeys(get_metric(name).name for name in names or ()))
    fitting = replace(THOROUGH, seed=seed, families=families or THOROUGH.families, steps=steps or THOROUGH.steps)
    out.mkdir(parents=True, exist_ok=True)
    with work_bar() as report:
        for done, (name, entry) in enumerate(fit_bundled(chosen, out, fitting, report), 1):
            report("surrogates", done, len(chosen))
            gap, spearman, ceiling = _fidelity(entry)
            # Not typer's echo, which would write through the bars.
            said = f"{name}: gap {gap}, Spearman {spearman} (at most {ceiling}), {out / entry['file']}"
            print(visible(said), flush=True)


@universal.command("list")
def universal_list() -> None:
    """List the bundled surrogates: how far each is from its metric on random sets it has not seen."""
    from rich.table import Table
    from rich.text import Text

    from metricgrad.reporting.screen import Screen
    from metricgrad.surrogate.pretrained import MIN_FAITHFULNESS, bundled_index, faithfulness

    table = Table(title="Bundled universal surrogates, on unseen random sets of 400 rows")
    table.add_column("metric", no_wrap=True)
    for heading in ("gap", "Spearman", "at most", "fidelity"):
        table.add_column(heading, justify="right", no_wrap=True)
    low = False
    for name, entry in bundled_index().items():
        found = faithfulness(entry)
        unfaithful = not found >= MIN_FAITHFULNESS
        low = low or unfaithful
        shown = Text(f"low {found:.4f}", "bold red") if unfaithful else f"{found:.4f}"
        table.add_row(name, *_fidelity(entry), shown)
    Screen().print(table)
    echo("Fidelity is the Spearman correlation over the highest one possible: sets of equal loss have no order.")
    if low:
        echo(f"low: a fidelity below {MIN_FAITHFULNESS:g}; do not rely on such a surrogate as it is.")


def _fidelity(entry: dict[str, Any]) -> tuple[str, str, str]:
    """Format the gap, the Spearman correlation of a bundled surrogate, and the highest one possible."""
    held_out = entry["held_out_sets_of_400"]
    numbers = (held_out.get(key) for key in ("gap", "spearman", "ceiling"))
    gap, spearman, ceiling = ("" if number is None else f"{number:.4f}" for number in numbers)
    return gap, spearman, ceiling
