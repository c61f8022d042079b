"""The command `metricgrad`: the only place that prints. Imports sit inside commands, so that help answers at once."""

from __future__ import annotations

import re
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from metricgrad import compare_command, table_commands
from metricgrad._version import __version__

if TYPE_CHECKING:
    from metricgrad.datasets import TableRow

PROBLEM, INTERRUPTED = 2, 130


class OneLineErrors(TyperGroup):
    """Runs commands; bad input and files become one line on stderr and exit code 2, Ctrl-C one line and 130."""

    def main(self, args: Any = None, *rest: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the program; what is wrong with the words of the command line is one line too."""
        try:
            code = super().main(args, *rest, **{**extra, "standalone_mode": False})
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise
            typer.echo(f"metricgrad: error: {' '.join(error.format_message().split())} (see --help)", err=True)
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
                traceback.print_exception(error)
            typer.echo(f"metricgrad: error: {one_line(error)}", err=True)
            raise typer.Exit(PROBLEM) from None
        except KeyboardInterrupt:
            typer.echo("metricgrad: interrupted", err=True)
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


def show_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        typer.echo(f"metricgrad {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and leave.")
    ] = False,
    traceback: Annotated[bool, typer.Option("--traceback", help="Show where an error came from.")] = False,
) -> None:
    """Train models directly for the metric they are judged by: F1, average precision, AUC, MCC, or any black box."""


# ---- one's own table -----------------------------------------------------------------------------------------------


for command in (
    table_commands.fit,
    compare_command.compare,
    table_commands.predict,
    table_commands.evaluate,
    table_commands.export,
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

    from metricgrad.demo import METHODS, RECIPE, run_demo
    from metricgrad.metrics import PAPER, get_metric

    chosen = get_metric(metric)
    typer.echo(
        f"digits8: is it an eight? {chosen.label} is what counts. The paper's network, {RECIPE.steps:,} steps each."
    )
    runs = run_demo(out, metric, seed)
    table = Table(title="Test rows, looked at once (best in bold)")
    table.add_column("metric", no_wrap=True)
    for run in runs:
        table.add_column(METHODS[run.method], justify="right")
    for name in dict.fromkeys((chosen.name, *PAPER)):
        known = get_metric(name)
        losses = [run.losses[name] for run in runs]
        cells = [f"[bold]{known.value(x):.4f}[/]" if x == min(losses) else f"{known.value(x):.4f}" for x in losses]
        table.add_row(known.label + ("" if known.higher_is_better else " (lower is better)"), *cells)
    table.add_row("seconds", *(f"{run.seconds:.0f}" for run in runs))
    _print(table)
    typer.echo(
        f"Only {runs[0].positives} test rows are positive, and the network fits this data easily: take a small "
        "difference for noise. README.md says where it helps."
    )
    typer.echo(f"The page, the pictures and the model are in {out}: open {out / 'index.html'}.")


# ---- what there is -------------------------------------------------------------------------------------------------


@app.command()
def data(
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of Parquet files to look in first; METRICGRAD_DATA if not given.")
    ] = None,
) -> None:
    """Show Table 1: the datasets held here beside the paper's, and what is missing or partial."""
    from rich.table import Table

    from metricgrad.datasets import table1

    rows = table1(data_dir)
    table = Table(title="Table 1: ours / the paper's (- where there is none)")
    table.add_column("dataset", no_wrap=True)
    for heading in ("rows", "features", "positive"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("state")
    for row in rows:
        table.add_row(row.name, *_counts(row), _state(row))
    _print(table)
    for row in rows:
        for note in _notes(row):
            typer.echo(f"{row.name}: {note}")


def _counts(row: TableRow) -> tuple[str, str, str]:
    """Write rows, features and positive share, each ours / the paper's."""
    both = (row.ours, row.paper)
    return (
        " / ".join(f"{there.rows:,}" if there else "-" for there in both),
        " / ".join(f"{there.features}" if there else "-" for there in both),
        " / ".join(f"{there.positive_share:.2%}" if there else "-" for there in both),
    )


def _state(row: TableRow) -> str:
    """Write whether a dataset is complete, a subset, missing or unreadable, and whether its hash is not a known one."""
    word = row.status.partition(":")[0]
    return word if row.verified or row.ours is None else f"{word}, unverified"


def _notes(row: TableRow) -> list[str]:
    """Write what is missing from a dataset, how to get it, and why it differs from the paper's."""
    state, _, detail = row.status.partition(": ")
    detail = f"a subset, {detail}" if state == "subset" else detail.removeprefix(f"{row.name} ")
    return [note for note in (detail, row.remark) if note]


@app.command()
def metrics() -> None:
    """List every metric: how people know it, which way is better, whether a threshold matters, what it says."""
    from metricgrad.metrics import ALIASES, FAMILIES, builtin_metrics
    from metricgrad.tasks import BINARY

    for metric in builtin_metrics(None):
        better = "higher is better" if metric.higher_is_better else "lower is better"
        threshold = "; the threshold matters" if metric.thresholded else ""
        task = "" if metric.task == BINARY else f"; of {metric.task.name}"
        typer.echo(f"{metric.name:<26}{metric.label}, {better}{threshold}{task}\n    {metric.explanation}")
    typer.echo(f"\nOther names: {', '.join(f'{alias} = {name}' for alias, name in ALIASES.items())}.")
    typer.echo(f"{', '.join(FAMILIES)} take any other number: f_beta(0.5).")
    typer.echo("Where the threshold matters, best_f1 and the like cut each set at its own best threshold.")


# ---- the paper, made again -----------------------------------------------------------------------------------------


@app.command()
def reproduce(
    target: Annotated[str, typer.Argument(help="table1, table2, table3, figure1, figure2, figure3 or all.")],
    protocol: Annotated[str, typer.Option(help="How models are scored: honest, paper or both.")] = "honest",
    datasets: Annotated[str | None, typer.Option(help="Names with commas; the paper's that are held here.")] = None,
    metrics: Annotated[str | None, typer.Option(help="Names with commas; all of the table.")] = None,
    methods: Annotated[str | None, typer.Option(help="Names with commas; all of the table.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many, from 0 on; 2 quick, 3 standard, 1 paper.")] = None,
    budget: Annotated[str, typer.Option(help="quick (minutes), standard (hours) or paper (300,000 rounds).")] = "quick",
    recipe: Annotated[str | None, typer.Option(help="default or paper; paper for the budget of that name.")] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of Algorithm 1, instead of the budget's.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Model steps in all, instead of the budget's.")] = None,
    model: Annotated[str, typer.Option(help="mlp (the paper's), small or linear.")] = "mlp",
    results: Annotated[Path, typer.Option(help="Folder of the results; run again to go on.")] = Path(
        "metricgrad-results"
    ),
    jobs: Annotated[int | None, typer.Option(min=1, help="Jobs at a time; one a core.")] = None,
    engine: Annotated[str, typer.Option(help="local, ray or dask.")] = "local",
    address: Annotated[str | None, typer.Option(help="Of a Ray or Dask cluster; else one is started here.")] = None,
) -> None:
    """Make the paper's tables and figures again, ours beside theirs; stop at any time, run again to go on."""
    from metricgrad.records import FILE
    from metricgrad.reproduce import FIGURES, TABLES, carry_out, draw, make_plan
    from metricgrad.results import Store

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
    for figure in FIGURES:
        if target in (figure, "all"):
            dataset, metric = (_names(datasets) or ["digits8"])[0], (_names(metrics) or ["f1"])[0]
            typer.echo(f"drawing {figure} ...", err=True)
            for file in draw(figure, results, dataset, metric, plan.recipe):
                typer.echo(f"{figure}: {file}")
    if not plan.runs:
        return
    if plan.absent:
        typer.echo(f"Left out, for they are not held here: {', '.join(plan.absent)}.", err=True)
    store = Store(results / FILE)
    called = table_commands.command_line()
    _carry_out(carry_out(plan, store, command=called, engine=engine, n_jobs=jobs, address=address), store)
    _show_tables(store, [name for name in TABLES if target in (name, "all")], plan)
    _write_report(results, results / "index.html")


def _names(text: str | None) -> list[str] | None:
    """Split names at commas, but not inside brackets: precision_at(0.02) is one name."""
    return None if text is None else [name.strip() for name in re.split(r",(?![^(]*\))", text) if name.strip()]


def _carry_out(progress: Any, store: Any) -> None:
    """Run a plan with a bar; a stop says how to go on."""
    from metricgrad.grid import JobsFailed
    from metricgrad.progress import work_bar

    with work_bar() as report:
        try:
            for done, total in progress:
                report("runs", done, total)
        except KeyboardInterrupt:
            typer.echo(f"Every finished run is in {store.path}; the same command goes on from there.", err=True)
            raise
        except JobsFailed as error:
            typer.echo(f"metricgrad: error: {error}\nThe same command tries them again.", err=True)
            raise typer.Exit(PROBLEM) from None


def _show_tables(store: Any, wanted: list[str], plan: Any) -> None:
    """Print the tables a plan was made for, and how they compare with the paper's."""
    from rich.console import Console

    from metricgrad import tables
    from metricgrad.comparison import compare
    from metricgrad.records import Setting
    from metricgrad.rendering import as_rich, comparison_grid, table_grid

    setting = Setting.of(plan.runs[0].as_dict())
    console = Console() if Console().is_terminal else Console(width=160)
    for protocol in plan.protocols:
        for name in wanted:
            table = getattr(tables, name)(store, protocol, setting, plan.datasets)
            console.print(as_rich(table_grid(table)))
            comparison = compare(table)
            if comparison.cells:
                console.print(as_rich(comparison_grid(comparison)))


def _write_report(results: Path, out: Path) -> None:
    """Write the page about a results folder, and say where it is."""
    from metricgrad.report import write_report

    count = write_report(results, out)
    typer.echo(f"{count:,} runs are in {results}: open {out}.")


# ---- the report ----------------------------------------------------------------------------------------------------


@app.command()
def report(
    results: Annotated[Path, typer.Argument(help="Folder that holds runs.jsonl.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="The page to write; index.html in that folder.")] = None,
) -> None:
    """Write one page about a results folder: tables that sort, ranks, training, figures; it needs no network."""
    _write_report(results, out or (results if results.is_dir() else results.parent) / "index.html")


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

    from metricgrad.bundle import bundled_names, fit_bundled
    from metricgrad.metrics import get_metric
    from metricgrad.progress import work_bar
    from metricgrad.universal import THOROUGH

    if bool(names) == every:
        raise ValueError("NAME: expected at least one metric or --all, and not both")
    chosen = bundled_names() if every else list(dict.fromkeys(get_metric(name).name for name in names or ()))
    fitting = replace(THOROUGH, seed=seed, families=families or THOROUGH.families, steps=steps or THOROUGH.steps)
    out.mkdir(parents=True, exist_ok=True)
    with work_bar() as report:
        for done, (name, entry) in enumerate(fit_bundled(chosen, out, fitting, report), 1):
            report("surrogates", done, len(chosen))
            gap, spearman = _fidelity(entry)
            # Not typer's echo, which would write through the bars.
            print(f"{name}: gap {gap}, Spearman {spearman}, {out / entry['file']}", flush=True)


@universal.command("list")
def universal_list() -> None:
    """List the bundled surrogates: how far each is from its metric on random sets it has not seen."""
    from rich.table import Table

    from metricgrad.bundle import bundled_index

    table = Table(title="Bundled universal surrogates, on unseen random sets of 400 rows")
    table.add_column("metric", no_wrap=True)
    for heading in ("gap", "Spearman", "random sets", "steps"):
        table.add_column(heading, justify="right")
    for name, entry in bundled_index().items():
        fitting = entry["fitting"]
        table.add_row(name, *_fidelity(entry), f"{8 * fitting['families']:,}", f"{fitting['steps']:,}")
    _print(table)


def _fidelity(entry: dict[str, Any]) -> tuple[str, str]:
    """Write the gap and the Spearman correlation of a bundled surrogate."""
    held_out = entry["held_out_sets_of_400"]
    return f"{held_out['gap']:.4f}", f"{held_out['spearman']:.4f}"


# ---- how things are shown ------------------------------------------------------------------------------------------


def _print(table: Any) -> None:
    """Print a table of rich's, plain where nobody sees colours."""
    from rich.console import Console

    Console().print(table)
