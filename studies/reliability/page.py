"""Write docs/reliability.md from results/reliability.json: python -m studies.reliability.page"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from studies.reliability import figures
from studies.reliability.verdicts import REFUSED, UNCLEAN, USED

PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
Record = Mapping[str, Any]
ATTACKS = {
    "folders": "damaged or forged model folders: bits flipped, files cut, types exchanged, links, pipes, huge files",
    "inputs": "damaged or malicious input files: CSV, Parquet, Feather, LIBSVM and ARFF, plain and packed",
    "kills": "writers killed: a model, predictions, records, the cache, a report",
    "specs": "hostile text instead of a metric: code, deep nesting, huge numbers, unicode, very long texts",
    "servers": "hostile servers: silent, dripping, endless, redirecting in circles, lying about lengths",
}
"""What each attack is, in the order of the page."""
HEAD = """# Reliability

<!-- Written by studies/reliability/page.py from results/reliability.json. -->

`make attack` tests these guarantees:

- **A bad file is rejected in one line.** A model folder or an input file that is damaged, forged or malicious is either
  read and gives finite numbers, or raises `ValueError`, `TypeError` or `OSError` with a message. The command prints one
  line and exits with code 2, without a traceback.
- **No code from a file is executed.** A model folder is data. A metric written as text is parsed, never executed,
  unless it names a Python file on the command line.
- **Time and memory are bounded.** No case may exceed the seconds and the memory given below.
- **A kill loses nothing.** After a writer is killed at any moment, either the old or the new content is complete, no
  earlier record is lost, and the next writer succeeds.
- **A download is complete or absent.** Whatever a server does, the download ends in bounded time.
- **Fits do not leak.** Memory, tensors, threads and open files do not grow from fit to fit.
"""


def page(stored: Mapping[str, Record] | None = None) -> str:
    """Return the page."""
    stored = figures.stored() if stored is None else stored
    parts = (HEAD, attack_part(stored), growth_part(stored), fuzz_part(stored), made_part(stored))
    return "\n".join(part for part in parts if part)


def attack_part(stored: Mapping[str, Record]) -> str:
    """Show the cases of every attack, and what was not clean."""
    known = {name: stored[name] for name in ATTACKS if name in stored}
    if not known:
        return ""
    rows = [
        f"| {name} | {_of(record['cases'], record['wanted'])} | {record[USED]:,} | {record[REFUSED]:,} | "
        f"{_bold(record[UNCLEAN])} | {record['slowest_seconds']:.1f} s of {record['limits']['seconds']:.0f} | "
        f"{record['peak_mb']:,.0f} MB of {record['limits']['mb']:,} |"
        for name, record in known.items()
    ]
    about = [f"- **{name}**: {ATTACKS[name]}." for name in known]
    lines = [
        "## Attacks",
        "",
        "*Used* is a result that was checked, *refused* a clean error, *unclean* anything else, which should be 0. The",
        "slowest case and the highest memory above that of the process are shown with their limits.",
        "",
        "| attack | cases | used | refused | unclean | slowest | memory |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        *about,
        *_killed(known),
    ]
    return "\n".join([*lines, *_unclean(known), ""])


def _killed(known: Mapping[str, Record]) -> list[str]:
    if "kills" not in known:
        return []
    record = known["kills"]
    return ["", f"{record['killed']:,} of the {record['cases']:,} writers were still writing when they were killed."]


def _unclean(known: Mapping[str, Record]) -> list[str]:
    wrong = {name: record["examples"] for name, record in known.items() if record["examples"]}
    if not wrong:
        return []
    lines = [f"- {name}, case {one['case']}: {_text(one)}" for name, examples in wrong.items() for one in examples]
    return ["", "Not clean, some of them:", "", *lines]


def growth_part(stored: Mapping[str, Record]) -> str:
    """Show what many fits leave behind."""
    if "slope_kb" not in stored.get("growth", {}):
        return ""
    record = stored["growth"]
    more = ", ".join(f"{count} more {what}" for what, count in record["more"].items())
    return (
        f"## Fits\n\n{record['fits']} fits of small models in one process, some saved and loaded: memory grows\n"
        f"by **{record['slope_kb']:.1f} KB a fit**, from {record['mb_first']:,} MB after the first that count to "
        f"{record['mb_last']:,} MB; {more}.\n"
    )


def fuzz_part(stored: Mapping[str, Record]) -> str:
    """Show how many examples agreed with the oracles."""
    if "fuzz" not in stored:
        return ""
    record = stored["fuzz"]
    return (
        f"## Fuzzing\n\n`make fuzz` compares metrics with scikit-learn, fractions or brute force on random sets:\n"
        f"{_of(record['examples'], record['wanted'])} examples of {record['properties']} properties, "
        f"{_bold(record['failures'])} failures, in {record['seconds'] / 60:,.0f} minutes one after the other.\n"
    )


def made_part(stored: Mapping[str, Record]) -> str:
    """Show which command made each figure, with which version and when."""
    rows = [
        f"| {name} | `{record['command']}` | {record['seed']} | {record['made_by']['metricgrad']} | "
        f"{record['made_by']['commit']} | {record['made_by']['date']} |"
        for name, record in stored.items()
    ]
    head = [
        "## How these numbers were made",
        "",
        "| figures | command | seed | version | commit | date |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([*head, *rows, ""]) if rows else ""


def _of(done: int, wanted: int) -> str:
    return f"{done:,}" if done >= wanted else f"{done:,} of {wanted:,}"


def _bold(count: int) -> str:
    return f"**{count:,}**" if count else "0"


def _text(example: Record) -> str:
    """Write an example so that it is nothing but text in Markdown."""
    plain = " ".join(f"{example['kind']} {example['detail']}".split())[:200]
    return "`" + "".join(char if char.isprintable() and char != "`" else "?" for char in plain) + "`"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), "utf-8")
    print(f"{PAGE} written")


if __name__ == "__main__":
    main()
