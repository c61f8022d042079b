"""Fuzz the metrics against their oracles and store the figures: python -m studies.reliability.fuzz

The examples are spread over all properties of tests/metrics/test_metrics_oracles.py. Each property is recorded when it
ends, so that after a stop the same command continues with the others.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from metricgrad.provenance import provenance
from studies.reliability import figures
from studies.reliability.workers import Journal

ROOT = Path(__file__).parents[2]
TESTS = "tests/metrics/test_metrics_oracles.py"
EXAMPLES = 100_000


class Notes:
    """A plugin of pytest that records every property as it ends."""

    def __init__(self, journal: Journal) -> None:
        self.journal = journal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a property that was called; one that failed is tried again in the next run."""
        if report.when == "call" and "examples" in dict(report.user_properties):
            examples = dict(report.user_properties)["examples"]
            line = {"test": report.nodeid, "examples": examples, "seconds": report.duration, "passed": report.passed}
            self.journal.add({"case": len(self.journal.cases), **line})


def main(words: Sequence[str] | None = None) -> int:
    """Run the remaining properties and store the figures; return the exit code of pytest."""
    asked = parser().parse_args(words)
    journal = journal_of(asked)
    passed = [line["test"] for line in journal.cases.values() if line["passed"]]
    os.environ["METRICGRAD_FUZZ"] = str(asked.examples)
    options = ["--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "--dist=load"]  # its one file to all workers
    chosen = [f"--hypothesis-seed={asked.seed}", *(f"--deselect={test}" for test in passed)]
    code = int(pytest.main([*options, *chosen, *asked.pytest, str(ROOT / TESTS)], plugins=[Notes(journal)]))
    record = {**{key: journal.head[key] for key in ("command", "seed", "made_by")}, **summed(journal, asked.examples)}
    figures.store("fuzz", record, asked.out)
    print(f"{record['examples']:,} examples of {record['properties']} properties, {record['failures']} failures")
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED and passed else code


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    found = argparse.ArgumentParser(prog="python -m studies.reliability.fuzz", description=__doc__)
    found.add_argument("--examples", type=int, default=EXAMPLES, help="in all")
    found.add_argument("--seed", type=int, default=0)
    found.add_argument("--work", type=Path, default=ROOT / "build" / "reliability", help="for the journal")
    found.add_argument("--out", type=Path, default=figures.STORED, help="where figures are stored")
    found.add_argument("--pytest", nargs=argparse.REMAINDER, default=[], help="further arguments of pytest")
    return found


def journal_of(asked: argparse.Namespace) -> Journal:
    """Return the journal; one of other code, another seed or another number of examples starts again."""
    digest = hashlib.sha256()
    for path in sorted([*(ROOT / "src").rglob("*.py"), ROOT / TESTS]):
        digest.update(path.read_bytes())
    head = {
        "key": [digest.hexdigest(), asked.seed, asked.examples],
        "command": f"python -m studies.reliability.fuzz --examples={asked.examples}",
        "seed": asked.seed,
        "made_by": provenance(),
    }
    return Journal(asked.work / "fuzz.jsonl", head)


def summed(journal: Journal, wanted: int) -> Mapping[str, Any]:
    """Return the numbers of examples, properties and failures, and the seconds."""
    latest = {line["test"]: line for line in journal.cases.values()}.values()
    return {
        "wanted": wanted,
        "properties": len(latest),
        "examples": sum(line["examples"] for line in latest),
        "failures": sum(not line["passed"] for line in latest),
        "seconds": round(sum(line["seconds"] for line in latest), 1),
    }


if __name__ == "__main__":
    sys.exit(main())
