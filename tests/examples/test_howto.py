"""The how-to pages, and others with programs: their programs and commands run, in order, in one folder a page."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from sklearn.datasets import make_classification
from typer.testing import CliRunner

from metricgrad.cli.app import app
from metricgrad.losses.binary import BASELINES

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted((DOCS / "howto").glob("*.md"))
OTHERS = [DOCS / f"{name}.md" for name in ("additive", "demo", "index", "ranking", "tabm", "targets")]
WITHOUT = {"auto", "ten-minutes", "tour"}
"""Pages whose programs need a table of the reader's, or are run elsewhere."""
BLOCK = re.compile(r"^( *)```(python|sh)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Return the language and the text of every block that runs."""
    return [(language, dedent(text)) for _, language, text in BLOCK.findall(page.read_text("utf-8"))]


def run_command(line: str) -> None:
    """Run a line of the command line in this process."""
    program, *words = shlex.split(line)
    assert program == "metricgrad"
    one_process = ["--jobs", "1"] if words[0] in ("compare", "reproduce") else []
    done = CliRunner().invoke(app, [*words, *one_process])
    assert done.exit_code == 0, (line, done.output)


@pytest.fixture
def table(folder: Path) -> Iterator[None]:
    """The table data.csv in the working folder; baselines that a page registers are gone after it."""
    baselines = dict(BASELINES)
    X, y = make_classification(300, 4, weights=[0.8], random_state=0)
    rows = "\n".join(",".join(map(str, (*row, label))) for row, label in zip(X, y, strict=True))
    (folder / "data.csv").write_text(f"a,b,c,d,y\n{rows}\n")
    yield
    BASELINES.clear()
    BASELINES.update(baselines)


@pytest.mark.slow  # every page trains several small models
@pytest.mark.filterwarnings("ignore:the surrogate of .* is not faithful yet:UserWarning")
@pytest.mark.parametrize("page", [*OTHERS, *PAGES], ids=lambda page: f"{page.parent.name}-{page.stem}")
@pytest.mark.usefixtures("table")
def test_the_programs_and_commands_of_a_page_run(page: Path) -> None:
    names: dict[str, object] = {"__name__": page.stem}
    programs = blocks(page)
    assert programs or page.stem == "index"
    for language, text in programs:
        if language == "python":
            exec(compile(text, page.name, "exec"), names)
        else:
            for line in text.replace("\\\n", " ").splitlines():
                run_command(line)


def test_the_programs_of_every_page_are_run_or_run_elsewhere() -> None:
    having = {page.stem for page in DOCS.glob("*.md") if blocks(page)}
    assert having == WITHOUT | {page.stem for page in OTHERS}


def test_every_page_is_listed_and_but_for_the_index_has_a_program() -> None:
    index = (DOCS / "howto" / "index.md").read_text("utf-8")
    for page in PAGES:
        assert page.stem == "index" or (blocks(page) and f"]({page.name})" in index)
