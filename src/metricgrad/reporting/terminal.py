"""Text for the terminal: characters that would steer it are shown instead, wherever the text comes from."""

from __future__ import annotations

import unicodedata

import typer

STEERING = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories that are not shown but obeyed: control, format and bidirectional characters, line separators."""
JOINERS = "\u200c\u200d"
"""Format characters that words of some languages, and emoji, are written with."""


def visible(text: str) -> str:
    r"""Return text with an escape in the place of every character that a terminal would obey.

    >>> print(visible("a\x1b[31mb\nc\u202e"))
    a\x1b[31mb\nc\u202e
    """
    if text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(character: str) -> str:
    if unicodedata.category(character) not in STEERING or character in JOINERS:
        return character
    return character.encode("unicode_escape").decode("ascii")


def echo(*lines: object, err: bool = False) -> None:
    """Print lines, each of which stays one line."""
    for line in lines:
        typer.echo(visible(str(line)), err=err)
