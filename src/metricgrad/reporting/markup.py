"""Pages of one file: style, script and data inside, everything escaped; a page fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable, Mapping
from html import escape
from pathlib import Path
from typing import Any

from metricgrad._version import __version__

FOLDER = Path(__file__).parent / "static"


def page(
    title: str,
    body: str,
    *,
    styles: Iterable[str] = ("style.css",),
    scripts: Iterable[str] = (),
    data: Any = None,
) -> str:
    """Return a whole page; `body` is markup, `styles` and `scripts` are files of ours, `data` is what scripts read.

    Scripts share one scope and become one; the browser is told to run that only, and to fetch nothing.
    """
    style = "".join(_file(name) for name in styles)
    code = "\n".join(_file(name) for name in scripts)
    code = f'"use strict";\n(() => {{\n{code}}})();\n' if code else ""
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(code)}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{style}</style></head>\n<body>{body}"
        f"<footer>metricgrad {escape(__version__)}</footer>"
        + (
            f"<script type='application/json' id='page-data'>{embedded(data)}</script><script>{code}</script>"
            if code
            else ""
        )
        + "</body></html>\n"
    )


def _file(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def _policy(code: str) -> str:
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    scripts = f"script-src 'sha256-{digest}'; " if code else ""
    return f"default-src 'none'; {scripts}style-src 'unsafe-inline'; img-src data:"


def embedded(data: Any) -> str:
    r"""Return JSON that nothing in it can end early.

    >>> embedded("</script>")
    '"\\u003c/script\\u003e"'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def tag(name: str, /, *inside: str, **attributes: Any) -> str:
    """Return an element around markup; attributes are escaped, `_` becomes `-`, None and False are left out.

    >>> tag("td", escape("<1"), data_value=0.5, class_="cell", hidden=True, title=None)
    '<td data-value="0.5" class="cell" hidden>&lt;1</td>'
    """
    written = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{escape(str(value))}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    return f"<{name}{written}>{''.join(inside)}</{name}>"


def select(name: str, label: str, choices: Mapping[str, str], id_: str | None = None) -> str:
    """Return a labelled select; `choices` are texts by value, the first is chosen."""
    options = "".join(tag("option", escape(text), value=value) for value, text in choices.items())
    return tag("label", escape(label), tag("select", options, name=name, id=id_ or f"filter-{name}"))


def boxed(table: str, label: str) -> str:
    """Return a table in a box of its own that scrolls, by keyboard too."""
    return tag("div", table, class_="scroll", tabindex=0, role="region", aria_label=label)


# ---- tables ---------------------------------------------------------------------------------------------------------


def head_cell(text: str, below: str = "", marks: str = "", **attributes: str) -> str:
    """Return a heading of a column, with a smaller line below."""
    small = tag("small", escape(below)) if below else ""
    return tag("th", f"{escape(text)}{marks}{small}", scope="col", **attributes)


def number(value: float | None, form: str, **attributes: str) -> str:
    """Return a cell that sorts by its number; a missing one is a dash, and last."""
    shown = "–" if value is None else escape(format(value, form))
    return tag("td", shown, data_value="" if value is None else f"{value:.10g}", **attributes)


def table_of(
    caption: str, head: str, rows: Iterable[str], foot: Iterable[str] = (), quiet: str = "", **more: str
) -> str:
    """Return a table in its box; `head`, `rows` and `foot` are markup."""
    below = tag("span", escape(quiet), class_="quiet") if quiet else ""
    inside = (
        tag("caption", tag("span", escape(caption)), below),
        tag("thead", tag("tr", head)),
        tag("tbody", *rows),
        tag("tfoot", *foot) if foot else "",
    )
    return boxed(tag("table", *inside, **more), caption)


def note(text: str) -> str:
    """Return a quiet sentence."""
    return tag("p", escape(text), class_="quiet")
