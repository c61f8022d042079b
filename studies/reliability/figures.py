"""Figures: the summary of all cases of a part, stored with command, seed, version, date and commit."""

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
MAX_EXAMPLES, MAX_DETAIL = 5, 500
"""How many unclean cases are stored as examples, and how many characters of each."""


def summed(cases: Iterable[Mapping[str, Any]], seconds: float, peak_mb: float) -> dict[str, Any]:
    """Return the number of cases by outcome, the slowest and the largest, and examples of unclean ones.

    A case that exceeds its limit of seconds or memory is unclean, whatever its outcome.
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
        "examples": [_example(case) for case in wrong[:MAX_EXAMPLES]],
    }


def _example(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is stored of an unclean case, without its temporary folder."""
    detail = re.sub(r"[^\s'\"]*/metricgrad-attack-\w+", "FOLDER", str(case.get("detail") or ""))
    return {"case": case.get("case"), "kind": case.get("kind"), "detail": detail[:MAX_DETAIL]}


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
    """Replace the stored figures of a part, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.write_text(json.dumps({**stored(path), part: dict(record)}, indent=1, sort_keys=True) + "\n", "utf-8")
    beside.replace(path)
