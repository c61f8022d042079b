"""Sphinx directives `{command-reference}` and `{metric-tables}`, whose content comes from the program itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import typer
from typer.cli import get_docs_for_click
from typer.testing import CliRunner

from metricgrad import get_metric

if TYPE_CHECKING:
    from sphinx.application import Sphinx

TASKS = {
    "binary": "Two classes",
    "columns": "Two classes, with columns of the rows",
    "multiclass": "Several classes",
    "multilabel": "Several labels",
    "ranking": "Rankings",
    "regression": "Numbers",
    "censored": "Times, some of them censored",
}


def program() -> typer.Typer:
    """Return the command `metricgrad` as it is installed."""
    (command,) = entry_points(group="console_scripts", name="metricgrad")
    app: typer.Typer = command.load()
    return app


def command_reference() -> str:
    """Return every command with its arguments and options, as Markdown."""
    command = typer.main.get_command(program())
    text = get_docs_for_click(obj=command, ctx=typer.Context(command, info_name="metricgrad"), name="metricgrad")
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n*", "", text)  # each has a section of its own
    text = re.sub(r"\* `--help`: .*\n", "", text).replace("```console\n$ ", "```sh\n")
    text = re.sub(r"(?m)(?<=^\* `)(.*?`)(.*)$", lambda match: match[1] + match[2].replace("*", r"\*"), text)
    return "#" + unescape(text).replace("**Options**:\n\n\n", "")  # a section of a page, not the page


def metric_names() -> list[str]:
    """Return the names of all built-in metrics, as `metricgrad metrics` lists them."""
    listed = CliRunner().invoke(program(), ["metrics"]).stdout
    return re.findall(r"^([a-z]\S*)  +", listed, re.MULTILINE)


def metric_tables() -> str:
    """Return a table of the built-in metrics of every task, as Markdown."""
    metrics = {name: get_metric(name) for name in metric_names()}
    parts = []
    for task, title in TASKS.items():
        rows = [
            f"| `{name}` | {metric.label} | {'higher' if metric.higher_is_better else 'lower'} | {metric.explanation} |"
            for name, metric in metrics.items()
            if metric.task.name == task
        ]
        head = (f"### {title}\n", "| name | shown as | better | meaning |", "|---|---|---|---|")
        parts.append("\n".join((*head, *rows)))
    return "\n\n".join(parts)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register both directives; only here Sphinx is needed."""
    from sphinx.util.docutils import SphinxDirective

    def showing(text: Callable[[], str]) -> type[SphinxDirective]:
        class Generated(SphinxDirective):
            def run(self) -> list[Any]:
                return self.parse_text_to_nodes(text(), allow_section_headings=True)

        return Generated

    app.add_directive("command-reference", showing(command_reference))
    app.add_directive("metric-tables", showing(metric_tables))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
