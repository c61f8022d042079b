"""What counts as clean: a result that can be used, or an error of one line from Python and from the command."""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from typer.testing import CliRunner

from metricgrad.cli.app import app

USED, REFUSED, UNCLEAN = "used", "refused", "unclean"
LONGEST = 2_000
"""Characters of an error message, more of which would only flood a terminal."""
ERROR, PROBLEM = "metricgrad: error: ", 2
"""How the line of an error begins, and the exit code that goes with it."""


@dataclass(frozen=True)
class Verdict:
    """What came of a case: one of `USED`, `REFUSED` and `UNCLEAN`, and what was said or returned."""

    outcome: str
    detail: str = ""


def of_call(call: Callable[[], Any], check: Callable[[Any], str | None] = lambda found: None) -> Verdict:
    """Return the verdict on a call of Python.

    Parameters
    ----------
    call : callable
        Raises `ValueError`, `TypeError` or `OSError` with a message, or returns something.
    check : callable
        Says what is wrong with what was returned, or returns None.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wrong = check(call())
    except (ValueError, TypeError, OSError) as error:
        return _of_error(error)
    except Exception as error:
        return Verdict(UNCLEAN, f"{type(error).__name__}: {error}"[:LONGEST])
    return Verdict(USED) if wrong is None else Verdict(UNCLEAN, wrong)


def of_command(words: Sequence[str]) -> Verdict:
    """Return the verdict on a command: exit code 0, or exit code 2 and one line of error; never a traceback."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        done = CliRunner().invoke(app, list(words))
    said = done.stderr.rstrip("\n").split("\n")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return Verdict(UNCLEAN, f"traceback of {type(done.exception).__name__}: {done.exception}"[:LONGEST])
    if done.exit_code == 0:
        return Verdict(USED)
    if done.exit_code != PROBLEM or not said[-1].startswith(ERROR) or sum(ERROR in line for line in said) != 1:
        return Verdict(UNCLEAN, f"exit code {done.exit_code}: {said[-3:]}"[:LONGEST])
    if not said[-1].isprintable() or not ERROR.strip() < said[-1].strip() or len(said[-1]) > LONGEST:
        return Verdict(UNCLEAN, f"a line of {len(said[-1]):,} characters: {said[-1]!r}"[:LONGEST])
    return Verdict(REFUSED, said[-1])


def worse(first: Verdict, second: Verdict) -> Verdict:
    """Return the verdict on a case tried in two ways, which have to agree."""
    for verdict in (first, second):
        if verdict.outcome == UNCLEAN:
            return verdict
    if first.outcome != second.outcome:
        return Verdict(UNCLEAN, f"{first.outcome} ({first.detail}) by Python, {second.outcome} by the command")
    return first


def _of_error(error: Exception) -> Verdict:
    said = str(error).strip()
    if isinstance(error, OSError) and error.errno == errno.EFBIG:  # the limit of the worker, not of the package
        return Verdict(UNCLEAN, "wrote a file without a limit")
    if not said:
        return Verdict(UNCLEAN, f"{type(error).__name__} without a message")
    if len(said) > LONGEST:
        return Verdict(UNCLEAN, f"{type(error).__name__} of {len(said):,} characters: {said[:200]!r}")
    return Verdict(REFUSED, f"{type(error).__name__}: {said}"[:300])
