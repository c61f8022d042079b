"""How the benchmarks that store runs are called and shown: where results go, the command they keep, their place."""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser
from pathlib import Path


def parser_of(says: str, results: Path) -> ArgumentParser:
    """Return a parser that knows what all of them take; the first line of `says` is its help."""
    parser = ArgumentParser(description=says.splitlines()[0])
    parser.add_argument("--results", type=Path, default=results)
    parser.add_argument("--report", action="store_true", help="only show what is stored")
    return parser


def command() -> str:
    """Return how this program was called, from the root of the project."""
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])


def in_place(text: str, name: str, part: str) -> str:
    """Return a page with what is stored between the marks of a name."""
    before, rest = text.split(f"<!-- {name} -->\n")
    _, after = rest.split(f"<!-- /{name} -->")
    return f"{before}<!-- {name} -->\n\n{part.strip()}\n\n<!-- /{name} -->{after}"
