"""Write docs/performance.md, its picture and the table in the README from results/benchmarks and results/reproduction.

python benchmarks/performance.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from asking import in_place
from measuring import FOLDER, bar_of, stored
from metricgrad.evaluation.records import FILE
from metricgrad.evaluation.store import Store
from performance_tables import (
    goal_table,
    growth_table,
    made_table,
    memory_table,
    metric_table,
    missing_text,
    overhead_table,
    paper_table,
    quartiles,
    round_table,
    step_table,
    thread_table,
)
from when_tables import markdown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "performance.md"
PICTURE = ROOT / "docs" / "images" / "performance.png"
README = ROOT / "README.md"
REPRODUCTION = ROOT / "results" / "reproduction" / FILE
NAMES = ("overhead", "rounds", "grids", "growth", "metrics", "peers", "threads")
"""Benchmarks in the order of the page; each is `benchmarks/NAME.py` and `results/benchmarks/NAME.json`."""
CORES = 2
"""On which Table 2 was reproduced."""
MET, MISSED = "#0891b2", "#e11d48"


def records() -> dict[str, dict[str, Any]]:
    """Return every record there is."""
    return {name: stored(name) for name in NAMES if (FOLDER / f"{name}.json").is_file()}


def claims(found: Mapping[str, Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield all claims, in the order of the page."""
    for record in found.values():
        yield from record["claims"]


def claim_table(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Write every claim, what was measured, the bar, and whether it is met."""
    rows = []
    for one in claims(found):
        rows.append([one["says"], quartiles(one), bar_of(one), "yes" if one["met"] else "**no**"])
    return markdown(["claim", "measured (quartiles)", "bar", "met"], rows)


def table2_section() -> str:
    """Say how long Table 2 took, from the seconds of every run."""
    runs = [one for one in Store(REPRODUCTION) if " table2 --budget standard " in one["command"]]
    total = sum(one["seconds"] for one in runs)
    made, seeds = runs[-1]["made_by"], {one["run"]["seed"] for one in runs}
    datasets = {one["run"]["dataset"] for one in runs}
    return TABLE2.format(
        command=runs[-1]["command"],
        runs=len(runs),
        datasets=len(datasets),
        seeds=len(seeds),
        date=made["date"],
        commit=made["commit"],
        total=f"{total:,.0f}",
        cores=CORES,
        minutes=f"{total / CORES / 60:.0f}",
        bar="below" if total / CORES < 7200 else "above",
        since="" if "control" in runs[-1]["history"] else SINCE,
    )


# ---- picture, page and README ----------------------------------------------------------------------------------------


def draw(found: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Draw how far every claim is from its bar."""
    shown = list(claims(found))[::-1]
    figure = Figure(figsize=(9, 0.6 + 0.42 * len(shown)), layout="constrained")
    axes = figure.subplots()
    for place, one in enumerate(shown):
        bar = one.get("at_most", one.get("at_least"))
        low, at, high = (one[name] / bar for name in ("quartile_low", "ratio", "quartile_high"))
        if "at_least" in one:
            low, at, high = 1 / high, 1 / at, 1 / low
        colour = MET if one["met"] else MISSED
        axes.plot([low, high], [place, place], color=colour, lw=3, alpha=0.4, solid_capstyle="butt")
        axes.plot([at], [place], "o", color=colour, ms=6)
    axes.axvline(1, color="#64748b", lw=1)
    axes.set_xscale("log")
    axes.set_xticks([0.05, 0.1, 0.2, 0.5, 1, 2], ["1/20", "1/10", "1/5", "1/2", "bar", "2 x"], minor=False)
    axes.minorticks_off()
    axes.set_yticks(range(len(shown)), [one["says"] for one in shown], fontsize=8)
    axes.set_xlabel("cost as a share of the bar (left is better)")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def page() -> str:
    """Write the page from the benchmarks that are stored; every number on it comes from their records."""
    found = records()
    shown = list(claims(found))
    missed = sum(not one["met"] for one in shown)
    left = [f"`{name}`" for name in NAMES if name not in found]
    pending = f" Not measured yet: {', '.join(left)}." if left else ""
    texts = [HEAD.format(claims=claim_table(found), missed=missed, number=len(shown), pending=pending)]
    texts += [SECTIONS[name](found[name]) for name in NAMES if name in found]
    return "\n".join([*texts, table2_section(), NOT_COMPILED, MADE.format(made=made_table(found))])


def overhead_section(record: Mapping[str, Any]) -> str:
    """Write of training for a metric against cross-entropy."""
    return OVERHEAD.format(rows=f"{record['rows']:,}", features=record["features"], table=overhead_table(record))


def rounds_section(record: Mapping[str, Any]) -> str:
    """Write of rounds of the paper's recipe."""
    return ROUNDS.format(dataset=record["dataset"], rounds=paper_table(record))


def grids_section(record: Mapping[str, Any]) -> str:
    """Write of many runs at once, and of Table 2."""
    return GRIDS.format(
        runs=record["runs"],
        dataset=record["dataset"],
        fleet=f"{record['seconds']['fleet']:.1f}",
        alone=f"{record['seconds']['one after the other']:.1f}",
        share=quartiles(record["claims"][0], 2),
        cores=record["cores"],
        processes=f"{record['wall_seconds']['processes'] / record['wall_seconds']['fleet']:.2g}",
    )


def growth_section(record: Mapping[str, Any]) -> str:
    """Write of growth with the rows."""
    return GROWTH.format(rounds=round_table(record), memory=memory_table(record), metrics=growth_table(record))


def metrics_section(record: Mapping[str, Any]) -> str:
    """Write of metrics against those of other packages."""
    return METRICS.format(
        sets=f"{record['sets']:,}",
        rows=record["rows"],
        sample=record["sample"],
        large=f"{record['large']:,}",
        table=metric_table(record),
    )


def peers_section(record: Mapping[str, Any]) -> str:
    """Write of other packages for the same purpose."""
    return PEERS.format(
        packages=", ".join(f"{name} {version}" for name, version in record["packages"].items()),
        steps=step_table(record),
        goals=goal_table(record),
        missing=missing_text(record),
    )


def threads_section(record: Mapping[str, Any]) -> str:
    """Write of threads."""
    return THREADS.format(worth=f"{record['worth'] / 1e6:.0f}", table=thread_table(record))


SECTIONS = {
    "overhead": overhead_section,
    "rounds": rounds_section,
    "grids": grids_section,
    "growth": growth_section,
    "metrics": metrics_section,
    "peers": peers_section,
    "threads": threads_section,
}

HEAD = """# How fast is it?

Written by `python benchmarks/performance.py` from `results/benchmarks`. Do not edit by hand. `make bench` measures all
of it anew, and each script of the last table can be run alone.

Everything is measured as a ratio within one run: contestants take turns, every second lap backwards, so that whatever
slows one slows all; the median of the ratios counts, and its quartiles are beside it. On one thread it is the processor
that is timed, for on an idle machine that is what one waits for.

{claims}

{missed} of {number} claims are not met; where any is not, why is said below.{pending}

![Every claim against its bar](images/performance.png)
"""

OVERHEAD = """## Training for a metric, against cross-entropy

What a user waits for: `MetricClassifier("f1").fit(X, y)` over the same with `method="cross-entropy"`, by the default
recipe cut to fewer steps, on a made-up table of {rows} rows and {features} features.

{table}

In the second half of training the default recipe trains *two* models: one follows the surrogate, and its companion goes
on with cross-entropy, exactly as `method="cross-entropy"` would have
([decision 13](decisions/0013-cross-entropy-competes.md)). So a fit for a metric holds a whole fit of cross-entropy, and
says how the two compare. In a wide network only arithmetic counts. There the companion alone makes 1.5 times the steps,
and the eight sets scored in every round to keep the surrogate true are about as much arithmetic as the three steps of
the round. A bar of 1.5 cannot be reached by writing the same computation better, only by computing less, and the last
columns say what that would take: `Recipe(control=False)` goes without the companion, `Recipe(refine_sets=4)` scores
half the sets. Neither is the default: that a fit for a metric is no worse than one of cross-entropy rests on the
companion. What half the scoring saves is not above the noise of so few laps. "Over as many steps" is over a fit of
cross-entropy as long as the model and its companion together. In so few steps what is done once, such as the first
check of the surrogate, weighs more than in a whole fit.
"""

NOT_COMPILED = """## Where torch.compile is used

Nowhere. The paper's recipe takes 300,000 rounds of thirteen tiny steps, and up to version 0.1 whole steps of it were
compiled through private parts of torch. With only the surrogate under the public `torch.compile`, a round took as long
as without ([decision 27](decisions/0027-one-trainer-k-members.md)); compiled model steps were not measured.
"""

ROUNDS = """## Rounds of the paper

Rounds of the paper's recipe on {dataset}, over the pseudo-code of the paper written down directly
(`examples/plot_00_algorithm_1.py`):

{rounds}
"""

GRIDS = """## Many runs at once

The {runs} runs of a block of Table 2 ({dataset}, seven metrics, three modes) took {fleet} s of processor time as a
fleet, and {alone} s one after the other: a share of **{share}**. In processes, one for each of {cores} cores, they took
{processes} times as long as one fleet by the clock, starting them included. The route chosen is fleets, and processes
over fleets ([decision 10](decisions/0010-runs-train-as-a-fleet.md)): a fleet saves work, processes only spread it;
`--jobs` does both.
"""

TABLE2 = """## Table 2, whole

`{command}`
made {runs} runs ({datasets} datasets, {seeds} seeds, both protocols; {date}, commit {commit}). The seconds stored with
them, each run being given its part of its fleet, add up to {total}; in {cores} processes on {cores} cores that is
**{minutes} minutes**, {bar} the bar of two hours. Loading and scoring are not in it.{since}
"""

SINCE = """ Since then
cross-entropy goes on beside surrogates: one member more in a fleet of 21 or more."""

GROWTH = """## Growth with the rows

A round draws sets of fixed size, and costs the same however many rows there are. A look at the validation rows, a
fifth of the table, every 50 rounds, grows with them.

{rounds}

Peak memory of a whole process that makes a table in single precision and fits a model to it. Tables over ten million
cells are scaled as rows are drawn, so that no copy of them is made. What is added is the validation rows and some
numbers for each row: where its class lies, its target, and what judging the validation rows takes. With very few
features these weigh more than the row itself.

{memory}

Metrics sort, so their cost should grow as n log n, and does: long sets are sorted as whole numbers that hold score and
target, and judged in parts that stay near the processor. What the system takes, to hand out memory, is in the table.

{metrics}
"""

METRICS = """## Metrics, against scikit-learn and torchmetrics

How many times as fast: {sets} sets of {rows} rows at once, over one call a set (others were timed on {sample} of the
sets), and one set of {large} rows over one call.

{table}
"""

PEERS = """## Other packages for the same purpose

{packages}; the paper's network, ijcnn1. The time of a model step, ours with refining after every third:

{steps}

Processor time until the test rows reach what cross-entropy came to in 500 steps (AUC, or F1 at its best threshold), in
batches of 100 rows; ours by the default recipe, with sets of 400 rows, cut to 300 steps of warm-up and 300 rounds. One
seed, and each with the settings its documentation begins with: who tunes them will do better.

{goals}
{missing}
LibAUC asks for a dozen packages for images and graphs that its losses do not need; it was installed without them
(`pip install --no-deps libauc`). AP-Perf solves a problem over a matrix of n by n for every batch of n rows, in up to
100 iterations, which is why large batches take long.
"""

THREADS = """## Threads

`fit` gives torch one thread while it trains a model whose steps take less than {worth} million multiplications, and
then as many as before; a network with other layers than dense ones is left to the user's setting. Jobs of `--jobs`,
`compare` and the grid have one thread each, always, so that no core is asked for twice
(`tests/training/test_threads.py`, `tests/evaluation/test_grid.py`).

{table}

On a busy machine the clock is hard on two threads, for they wait for one another.
"""

MADE = """## What made these numbers

{made}
"""


def in_readme(text: str) -> str:
    """Return the README with the main claims in their place."""
    found = records()
    rows = [
        [one["says"], f"{one['ratio']:.3g}", bar_of(one)]
        for name in MAIN
        if name in found
        for one in found[name]["claims"]
    ]
    return in_place(text, "speed", markdown(["", "measured", "bar"], rows))


MAIN = ("overhead", "grids", "growth", "metrics")


if __name__ == "__main__":
    draw(records()).savefig(PICTURE, dpi=130)
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(in_readme(README.read_text("utf-8")), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}, its picture, and the table of README.md")
