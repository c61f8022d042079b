"""Hostile texts in the place of a metric: each is refused in one line and at once, and nothing in it is run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from metricgrad.metrics.registry import get_metric
from studies.reliability.hostile_texts import texts
from studies.reliability.tables import save_models
from studies.reliability.verdicts import REFUSED, UNCLEAN, USED, Verdict, of_call, of_command, worse
from studies.reliability.workers import as_record

SECONDS, PEAK_MB = 10.0, 256
"""The most seconds and memory a case may take."""
RUNS = (
    "exec",
    "import",
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "ctypes.dlopen",
    "open",
)
"""Python's audit events of what no text may cause."""
CASES = len(texts())


def prepare(work: Path) -> None:
    """Save the model that the command evaluates."""
    if not (work / "linear").exists():
        save_models(work)
    of_command(["evaluate", str(work / "linear"), str(work / "data.csv")])  # imports what it takes


def attempt(work: Path, seed: int, case: int) -> Mapping[str, Any]:
    """Read a hostile text as a metric, by Python and by the command, and watch what Python does meanwhile."""
    text = texts()[case]
    seen: list[str] = []
    watching = True

    def watch(event: str, values: tuple[Any, ...]) -> None:
        if watching and event.startswith(RUNS) and not _is_harmless(event, values):
            seen.append(f"{event} {values}"[:200])

    get_metric("f1")
    get_metric("sum(amount * tp)")  # so is what reads expressions over columns
    get_metric("sklearn.metrics.cohen_kappa_score")  # scikit-learn is imported when it is first named
    sys.addaudithook(watch)
    verdict = of_call(lambda: get_metric(text))
    watching = False
    if seen:
        verdict = Verdict(UNCLEAN, f"it did {seen[0]}")
    if verdict.outcome == USED:
        verdict = Verdict(UNCLEAN, "it was taken for a metric")
    if verdict.outcome == REFUSED and _is_word(text):
        verdict = worse(verdict, of_command(_evaluate(work, text)))
    return as_record(f"{text[:40]!r} of {len(text):,}", verdict)


def _evaluate(work: Path, text: str) -> list[str]:
    return ["evaluate", str(work / "linear"), str(work / "data.csv"), f"--metric={text}"]


def _is_word(text: str) -> bool:
    """Whether a system would let a text be a word of a command line."""
    return "\x00" not in text and text.isascii() and 0 < len(text) < 100_000


def _is_harmless(event: str, values: tuple[Any, ...]) -> bool:
    """Whether an event is Python's own: a module imported late, or a line of source looked up for a message."""
    named = str(values[0]) if values else ""
    return (event == "import" and named.split(".")[0] in sys.stdlib_module_names) or (
        event in ("open", "exec") and ("site-packages" in named or "/lib/python" in named)
    )
