"""What the studies and the speed page share: their command line, words, and tables and places in Markdown."""

from __future__ import annotations

import re
import shlex
import sys
import textwrap
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metricgrad.evaluation.store import Store
from metricgrad.reporting.progress import work_bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
DOCS = ROOT / "docs"
WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


# ---- the command line ----------------------------------------------------------------------------------------------


def parser_of(doc: str, results: Path) -> ArgumentParser:
    """Return a parser with the options all studies have; its help is the first line of `doc`."""
    parser = ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("--report", action="store_true", help="only show what is stored")
    return parser


def command() -> str:
    """Return the command that started this program, as it is typed at the root of the project."""
    module = Path(sys.argv[0]).resolve().relative_to(ROOT).with_suffix("").parts
    return shlex.join(["python", "-m", ".".join(module), *sys.argv[1:]])


def run_missing(store: Store, runs: Sequence[Any], outcome_of: Callable[[Any], Mapping[str, Any]]) -> None:
    """Carry out the runs that are not stored yet, one after the other; each is stored as it ends, with its time."""
    known = store.keys()
    with work_bar() as report:
        for number, run in enumerate(runs, 1):
            if store.key(run) not in known:
                begun = time.perf_counter()
                outcome = {**outcome_of(run)}
                store.add(run, {"seconds": time.perf_counter() - begun, **outcome, "command": command()})
            report("runs", number, len(runs))


# ---- words ---------------------------------------------------------------------------------------------------------


def spelt(number: int) -> str:
    """Return a small number as a word."""
    return WORDS[number] if number < len(WORDS) else f"{number:,}"


def listed(items: Iterable[str]) -> str:
    """Join items with commas and a final "and".

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    *first, last = items
    return f"{', '.join(first)} and {last}" if first else last


def count_range(counts: Iterable[int]) -> str:
    """Return a count, or its least and greatest value.

    >>> count_range([3, 5, 4])
    '3 to 5'
    """
    least, most = int(min(counts := list(counts))), int(max(counts))
    return f"{least}" if least == most else f"{least} to {most}"


def versions(records: Iterable[dict]) -> str:
    """Return the versions and dates of stored records."""
    return "; ".join(sorted({f"metricgrad {r['made_by']['metricgrad']}, {r['made_by']['date']}" for r in records}))


def commands(records: Iterable[dict]) -> str:
    """Return the programs that stored records, without options, as code: dashes in text become other ones.

    >>> commands([{"command": "python -m studies.tabm.run --rows 100"}])
    '`python -m studies.tabm.run`'
    """
    return listed(f"`{line}`" for line in sorted({record["command"].split(" --")[0] for record in records}))


# ---- Markdown ------------------------------------------------------------------------------------------------------


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Write a table whose first `left` columns are text and whose others are numbers."""
    rule = ["---"] * left + ["---:"] * (len(head) - left)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def titled(title: str, table: str) -> str:
    """Put a title in bold above a table."""
    return f"**{title}**\n\n{table}\n"


def wrapped(text: str) -> str:
    """Wrap paragraphs and bullets at 120 characters; leave tables, headings, pictures and code as they are."""
    blocks = []
    for block in re.split(r"\n{2,}", text.strip()):
        if block.startswith(("|", "#", "![", "    ")):
            blocks.append(block)
            continue
        lines = [f"- {item}" for item in block[2:].split("\n- ")] if block.startswith("- ") else [block]
        indent = "  " if block.startswith("- ") else ""
        blocks.append("\n".join(_filled(line, indent) for line in lines))
    return "\n\n".join(blocks) + "\n"


def _filled(line: str, indent: str) -> str:
    """Wrap one paragraph; no line begins with what Markdown takes for a bullet, a heading or, as `%`, for a comment."""
    flat = re.sub(r" (?=(?:[-+*>#]|\d+[.)]|%\S*)(?: |$))", "\0", " ".join(line.split()))
    lines = textwrap.fill(flat, 120, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def in_place(text: str, name: str, part: str) -> str:
    """Return a page with the text between the marks `<!-- name -->` and `<!-- /name -->` replaced."""
    before, rest = text.split(f"<!-- {name} -->\n")
    _, after = rest.split(f"<!-- /{name} -->")
    return f"{before}<!-- {name} -->\n\n{part.strip()}\n\n<!-- /{name} -->{after}"


def write_svg(figure: Figure, path: Path) -> None:
    """Write a picture, the same bytes for the same figure."""
    import matplotlib as mpl  # most of these programs draw nothing

    with mpl.rc_context({"svg.hashsalt": path.stem}):
        figure.savefig(path, metadata={"Date": None})
