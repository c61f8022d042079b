"""The command `metricgrad`. Heavy imports sit inside functions, so that help is printed at once."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from metricgrad._version import __version__
from metricgrad.cli import compare as compare_command
from metricgrad.cli import demo as demo_command
from metricgrad.cli import paper as paper_commands
from metricgrad.cli import readable as readable_commands
from metricgrad.cli import table as table_commands
from metricgrad.cli.paper import FAILURE
from metricgrad.reporting.terminal import echo, visible

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


class OneLineErrors(TyperGroup):
    """Runs commands; an error becomes one line on stderr and exit code 2, Ctrl-C one line and 130."""

    def main(self, args: Any = None, *rest: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the program; an error in the command line is one line too."""
        try:
            code = super().main(args, *rest, **{**extra, "standalone_mode": False})
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            echo(f"metricgrad: error: {' '.join(error.format_message().split())} (see --help)", err=True)
            code = FAILURE
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:  # the reader of our output has closed it; typer ends quietly
            raise
        except (ValueError, TypeError, OSError) as error:
            if ctx.params.get("traceback"):
                echo(*"".join(traceback.format_exception(error)).splitlines(), err=True)
            echo(f"metricgrad: error: {error_line(error)}", err=True)
            raise typer.Exit(FAILURE) from None
        except KeyboardInterrupt:
            echo("metricgrad: interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None


def error_line(error: Exception) -> str:
    """Return an error as one line; errors of the operating system name the file first."""
    text = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:
        text = f"{error.filename}: {error.strerror}"
    return " ".join(text.split()) or type(error).__name__


app = typer.Typer(
    name="metricgrad",
    cls=OneLineErrors,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
universal = typer.Typer(no_args_is_help=True, help="Fit universal surrogates, or list the bundled ones.")
results = typer.Typer(no_args_is_help=True, help="Pack results as Parquet, and unpack them to JSON lines.")
app.add_typer(universal, name="universal")
app.add_typer(results, name="results")


def show_version(wanted: bool) -> None:
    """Print the version and exit."""
    if wanted:
        echo(f"metricgrad {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show the traceback of an error.")] = False,
    max_unpacked: Annotated[
        float | None,
        typer.Option(metavar="GB", help="Largest size of a gzip or zip file once unpacked.", show_default=False),
    ] = None,
) -> None:
    """Train models directly for the metric they are judged by: F1, average precision, AUC, MCC, or any black box."""
    if max_unpacked is not None:
        # MAX_UNPACKED_VARIABLE of tabular.io, for this process and those it starts.
        os.environ["METRICGRAD_MAX_UNPACKED_GB"] = str(max_unpacked)


for command in (
    table_commands.fit,
    compare_command.compare,
    table_commands.predict,
    table_commands.evaluate,
    table_commands.export,
    readable_commands.explain,
    readable_commands.scorecard,
    demo_command.demo,
    paper_commands.data,
    paper_commands.reproduce,
    paper_commands.report,
):
    app.command()(command)


# ---- metrics -------------------------------------------------------------------------------------------------------


@app.command()
def metrics() -> None:
    """List every metric: its usual name, which way is better, whether a threshold matters, its meaning."""
    from metricgrad.metrics.registry import MODULES, built_in, listed_metrics
    from metricgrad.metrics.tasks import BINARY

    listed, known = listed_metrics(), built_in(*MODULES)
    for name, metric in listed.items():
        better = "higher is better" if metric.higher_is_better else "lower is better"
        cut = "the offsets matter" if metric.task.outputs else "the threshold matters"
        task = "" if metric.task == BINARY else f"; of {metric.task.name}"
        decided = f"; {cut}" if metric.thresholded else ""
        echo(f"{name:<33}{metric.label}, {better}{decided}{task}", f"    {metric.explanation}")
    others = ", ".join(f"{alias} = {name}" for alias, name in known.aliases.items() if alias not in listed)
    echo("", f"Other names: {others}.")
    echo(f"{', '.join(known.parametric)} take any other number: f_beta(0.5).")
    echo("Columns of your rows, groups and bounds: sum(amount * tp) - 5*fp, top(0.02): sum(amount * tp),")
    echo("min over sex of recall, recall subject to precision >= 0.9.")
    echo("Where the threshold matters, best_f1 and the like use the best threshold of each set;")
    echo("where class or label offsets matter, best_macro_f1 and the like use the best offsets of each set.")


# ---- universal surrogates ------------------------------------------------------------------------------------------


@universal.command("fit")
def universal_fit(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Metrics, such as best_f1.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Fit every surrogate that is bundled.")] = False,
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("metricgrad-universal"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random sets and the network.")] = 0,
    groups: Annotated[
        int | None, typer.Option("--groups", "--families", min=1, help="Groups of 8 random sets; default: as bundled.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Training steps; default: as bundled.")] = None,
    attention: Annotated[bool, typer.Option("--attention", help="With attention over thresholds.")] = False,
) -> None:
    """Fit universal surrogates of some metrics to random sets (Eq. 3), and print the fidelity of each."""
    from metricgrad.metrics.registry import get_metric
    from metricgrad.reporting.progress import work_bar
    from metricgrad.surrogate.bundling import fit_bundled
    from metricgrad.surrogate.pretrained import bundled_names

    if bool(names) == every:
        raise ValueError("NAME: expected at least one metric or --all, and not both")
    chosen = bundled_names() if every else list(dict.fromkeys(get_metric(name).name for name in names or ()))
    changes: dict[str, Any] = {
        name: value for name, value in (("seed", seed), ("groups", groups), ("steps", steps)) if value is not None
    }
    out.mkdir(parents=True, exist_ok=True)
    with work_bar() as report:
        for done, (name, entry) in enumerate(fit_bundled(chosen, out, None, report, attention, **changes), 1):
            report("surrogates", done, len(chosen))
            gap, spearman, ceiling = _fidelity_cells(entry)
            # Not typer's echo, which would write over the progress bars.
            line = f"{name}: gap {gap}, Spearman {spearman} (at most {ceiling}), {out / entry['file']}"
            print(visible(line), flush=True)


@universal.command("list")
def universal_list() -> None:
    """List the bundled surrogates: how far each is from its metric on unseen random sets."""
    from rich.table import Table
    from rich.text import Text

    from metricgrad.reporting.terminal import Screen
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
        table.add_row(name, *_fidelity_cells(entry), shown)
    Screen().print(table)
    echo("Fidelity is the Spearman correlation divided by its maximum: sets of equal loss have no order.")
    if low:
        echo(f"low: a fidelity below {MIN_FAITHFULNESS:g}; do not rely on such a surrogate without refining it.")


def _fidelity_cells(entry: dict[str, Any]) -> tuple[str, str, str]:
    """Format the gap, the Spearman correlation of a bundled surrogate, and its maximum."""
    held_out = entry["held_out_sets_of_400"]
    numbers = (held_out.get(key) for key in ("gap", "spearman", "ceiling"))
    gap, spearman, ceiling = ("" if number is None else f"{number:.4f}" for number in numbers)
    return gap, spearman, ceiling


# ---- results as Parquet --------------------------------------------------------------------------------------------

Paths = Annotated[list[Path], typer.Argument(help="Files of records, or folders with such files.", show_default=False)]


@results.command("pack")
def pack(paths: Paths) -> None:
    """Move records from JSON lines into a Parquet file beside them; one that is there already is added to."""
    _move(paths, ".jsonl", lambda store: (store.pack(), store.packed))


@results.command("unpack")
def unpack(paths: Paths) -> None:
    """Move records from Parquet files back into JSON lines."""
    _move(paths, ".parquet", lambda store: (store.unpack(), store.path))


def _move(paths: list[Path], suffix: str, move: Callable[[Any], tuple[int, Path]]) -> None:
    """Pack or unpack every file, and print where its records are now."""
    from metricgrad.evaluation.store import Store

    for path in paths:
        files = sorted(path.rglob(f"*{suffix}")) if path.is_dir() else [path]
        if not files:
            raise ValueError(f"{path}: expected a folder with {suffix} files, got none")
        for file in files:
            count, where = move(Store(file))
            echo(f"{where}: {count:,} records, {where.stat().st_size / 1024:,.0f} KB")
