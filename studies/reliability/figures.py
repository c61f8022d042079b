"""Figures: what all cases of a part amount to, stored with the command, seed, version, date and commit."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from studies.reliability.verdicts import REFUSED, UNCLEAN, USED

STORED = Path(__file__).parents[2] / "results" / "reliability.json"
SHOWN, LONGEST = 5, 500
"""How many cases that are not clean are stored as examples, and how much of each."""


def summed(cases: Iterable[Mapping[str, Any]], seconds: float, peak_mb: float) -> dict[str, Any]:
    """Return how many cases came out which way, the slowest and the largest, and examples of what is not clean.

    A case that took more seconds or memory than it may is not clean, whatever came of it.
    """
    judged = [_within(case, seconds, peak_mb) for case in cases]
    counts = Counter(case["outcome"] for case in judged)
    wrong = [case for case in judged if case["outcome"] not in (USED, REFUSED)]
    return {
        "cases": len(judged),
        **{outcome: counts[outcome] for outcome in (USED, REFUSED, UNCLEAN)},
        "slowest_seconds": max((case["seconds"] for case in judged), default=0.0),
        "peak_mb": max((case.get("peak_mb", 0.0) for case in judged), default=0.0),
        "killed": sum(bool(case.get("killed")) for case in judged),
        "examples": [_example(case) for case in wrong[:SHOWN]],
    }


def _example(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is stored of a case that is not clean; its temporary folder is of no interest."""
    said = re.sub(r"[^\s'\"]*/metricgrad-attack-\w+", "FOLDER", str(case.get("detail") or ""))
    return {"case": case.get("case"), "kind": case.get("kind"), "detail": said[:LONGEST]}


def _within(case: Mapping[str, Any], seconds: float, peak_mb: float) -> dict[str, Any]:
    if case["outcome"] != UNCLEAN and case["seconds"] > seconds:
        return {**case, "outcome": UNCLEAN, "detail": f"took {case['seconds']:.1f} s"}
    if case["outcome"] != UNCLEAN and case.get("peak_mb", 0) > peak_mb:
        return {**case, "outcome": UNCLEAN, "detail": f"took {case['peak_mb']:,.0f} MB"}
    return dict(case)


def stored(path: Path = STORED) -> dict[str, Any]:
    """Return the figures of every part that are stored."""
    return dict(json.loads(path.read_text("utf-8"))) if path.exists() else {}


def store(part: str, record: Mapping[str, Any], path: Path = STORED) -> None:
    """Put the figures of a part in the place of those that are stored, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps({**stored(path), part: dict(record)}, indent=1, sort_keys=True) + "\n", "utf-8")
    beside.replace(path)
