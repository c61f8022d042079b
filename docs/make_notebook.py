"""Write the notebook of ten minutes: run the cells of its program, and keep it with all that they print and draw.

`python docs/make_notebook.py` writes `examples/ten_minutes.ipynb`, and `docs/ten-minutes.md` with its pictures.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

from metricgrad.provenance import provenance

DOCS = Path(__file__).parent
PROGRAM = DOCS.parent / "examples" / "ten_minutes.py"
NOTEBOOK, PAGE = PROGRAM.with_suffix(".ipynb"), DOCS / "ten-minutes.md"
COMMAND = "python docs/make_notebook.py"
MARK = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


def cells_of(program: str) -> list[NotebookNode]:
    """Return the cells of a program in which `# %%` starts each, and comments are the text of Markdown cells."""
    _, *parts = MARK.split(program)
    cells = []
    for number, (markdown, text) in enumerate(zip(parts[::2], parts[1::2], strict=True)):
        make = nbformat.v4.new_markdown_cell if markdown else nbformat.v4.new_code_cell
        source = re.sub(r"^# ?", "", text, flags=re.MULTILINE) if markdown else text
        cells.append(make(source.strip(), id=f"cell-{number}"))
    return cells


def executed(program: str) -> NotebookNode:
    """Return the notebook of a program with its outputs, without what depends on the time or the machine."""
    notebook = nbformat.v4.new_notebook(cells=cells_of(program))
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False).execute()
    version = notebook.metadata["language_info"]["version"]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    made = {"command": COMMAND, "seed": 0, **provenance()}
    notebook.metadata = {"kernelspec": kernel, "language_info": {"name": "python", "version": version}, "made_by": made}
    return notebook


def page_of(notebook: NotebookNode) -> tuple[str, dict[str, bytes]]:
    """Return a notebook as a page of Markdown, and its pictures by name."""
    made, pictures = notebook.metadata["made_by"], dict[str, bytes]()
    parts = []
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        parts += [_shown(output, pictures) for output in cell.outputs]
    title, _, rest = "\n\n".join(parts).partition("\n")
    note = f"""\
{title}

Written by `{COMMAND}` from `examples/ten_minutes.py` (metricgrad {made["metricgrad"]}, commit {made["commit"]},
{made["date"]}). Do not edit by hand. The same as a notebook to run and change:
{{download}}`ten_minutes.ipynb <../examples/ten_minutes.ipynb>`.
"""
    return f"{note}{rest}\n", pictures


def _shown(output: Any, pictures: dict[str, bytes]) -> str:
    data = output.get("data", {})
    if "image/png" in data:
        name = f"ten-minutes-{len(pictures) + 1}.png"
        pictures[name] = base64.b64decode(data["image/png"])
        return f"![What the cell above draws](images/{name})"
    return f"```text\n{(data.get('text/plain') or output['text']).rstrip()}\n```"


def main() -> None:
    """Write the notebook, its page and the pictures."""
    notebook = executed(PROGRAM.read_text("utf-8"))
    NOTEBOOK.write_text(nbformat.writes(notebook) + "\n", "utf-8")
    page, pictures = page_of(notebook)
    for old in (DOCS / "images").glob("ten-minutes-*.png"):
        old.unlink()
    for name, picture in pictures.items():
        (DOCS / "images" / name).write_bytes(picture)
    PAGE.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
