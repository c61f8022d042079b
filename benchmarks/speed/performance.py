"""Write docs/performance.md, its picture and the table in the README: python -m benchmarks.speed.performance"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from matplotlib.figure import Figure

from benchmarks.speed import performance_tables as tables
from benchmarks.speed.measuring import FOLDER, bar_of, stored
from metricgrad.evaluation.records import FILE
from metricgrad.evaluation.store import Store
from studies.pages import DOCS, RESULTS, ROOT, in_place, markdown, wrapped

PAGE, PICTURE, README = DOCS / "performance.md", DOCS / "images" / "performance.png", ROOT / "README.md"
REPRODUCTION = RESULTS / "reproduction" / FILE
CORES = 2
"""On which Table 2 was reproduced."""
TWO_HOURS = 7_200
IN_README = ("overhead", "growth", "metrics")
"""Benchmarks whose claims the README shows."""
MET, MISSED = "#0891b2", "#e11d48"
Record = Mapping[str, Any]


def records() -> dict[str, dict[str, Any]]:
    """Return every stored record, in the order of the page."""
    return {name: stored(name) for name in SECTIONS if (FOLDER / f"{name}.json").is_file()}


def claims(found: Mapping[str, Record]) -> Iterator[Record]:
    """Yield all claims, in the order of the page."""
    for record in found.values():
        yield from record["claims"]


def draw(found: Mapping[str, Record]) -> Figure:
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
    """Return the page; every number on it comes from the stored records."""
    found = records()
    shown = list(claims(found))
    missing = [f"`{name}`" for name in SECTIONS if name not in found]
    head = HEAD.format(
        claims=tables.claim_table(shown),
        missed=sum(not one["met"] for one in shown),
        number=len(shown),
        pending=f" Not measured yet: {', '.join(missing)}." if missing else "",
    )
    texts = [SECTIONS[name][0].format(**SECTIONS[name][1](record)) for name, record in found.items()]
    return wrapped("\n".join([head, *texts, table2_section(), MADE.format(made=tables.made_table(found))]))


def table2_section() -> str:
    """Write how long Table 2 took, from the seconds of every run."""
    runs = [one for one in Store(REPRODUCTION) if " table2 --budget standard " in one["command"]]
    total, made = sum(one["seconds"] for one in runs), runs[-1]["made_by"]
    return TABLE2.format(
        command=runs[-1]["command"],
        runs=len(runs),
        datasets=len({one["run"]["dataset"] for one in runs}),
        seeds=len({one["run"]["seed"] for one in runs}),
        date=made["date"],
        commit=made["commit"],
        total=f"{total:,.0f}",
        cores=CORES,
        minutes=f"{total / CORES / 60:.0f}",
        bar="below" if total / CORES < TWO_HOURS else "above",
        since="" if {"companion", "control"} & set(runs[-1]["history"]) else SINCE,
    )


def in_readme(text: str) -> str:
    """Return the README with the main claims in their place."""
    found = records()
    shown = claims({name: found[name] for name in IN_README if name in found})
    rows = [[one["says"], f"{one['ratio']:.3g}", bar_of(one)] for one in shown]
    return in_place(text, "speed", markdown(["", "measured", "bar"], rows))


# ---- texts ---------------------------------------------------------------------------------------------------------


HEAD = """# How fast is it?

Written by `python -m benchmarks.speed.performance` from `results/benchmarks`. Do not edit by hand. `make bench`
measures
everything again, and each command of the last table can be run alone.

Everything is measured as a ratio within one run: contestants take turns, every second lap in reverse order, so that
whatever slows one slows all. The result is the median of the ratios, shown with its quartiles. On one thread the
processor time is measured, which on an idle machine is the waiting time.

{claims}

{missed} of {number} claims are not met; the sections below explain why.{pending}

![Every claim against its bar](images/performance.png)
"""

OVERHEAD = """## Training for a metric, against cross-entropy

`MetricClassifier("f1").fit(X, y)` against the same with `method="cross-entropy"`, by the default recipe with fewer
steps,
on a synthetic table of {rows} rows and {features} features.

{table}

In the second half of training the default recipe trains *two* models: one on the surrogate, and a control that
continues with cross-entropy, exactly as `method="cross-entropy"` would
([decision 13](decisions/0013-cross-entropy-competes.md)). A fit for a metric therefore contains a whole fit of
cross-entropy, and reports how the two compare. In a wide network only arithmetic counts: the control alone makes 1.5
times the steps, and the eight sets scored in every round to refine the surrogate are about as much arithmetic as the
three steps of the round. A bar of 1.5 can therefore only be reached by computing less, not by a faster implementation;
the last columns show what that would take: `Recipe(control=False)` omits the control, `Recipe(refine_sets=4)` scores
half the sets. Neither is the default: the control is what ensures that a fit for a metric is no worse than one of
cross-entropy. The saving of half the scoring is within the noise of so few laps. "Over as many steps" compares with a
fit
of cross-entropy as long as model and control together. In so few steps one-time work, such as the first check of the
surrogate, weighs more than in a full fit.
"""

ROUNDS = """## Rounds of the paper

Rounds of the paper's recipe on {dataset}, against a direct implementation of the paper's pseudo-code
(`examples/plot_00_algorithm_1.py`):

{rounds}
"""

TABLE2 = """## All of Table 2

`{command}`
made {runs} runs ({datasets} datasets, {seeds} seeds, both protocols; {date}, commit {commit}). Their stored seconds,
where runs trained at once share their time, sum to {total}; in {cores} processes on {cores} cores that is
**{minutes} minutes**, {bar} the bar of two hours. Loading and scoring are not included.{since}
"""

SINCE = """ Since then
cross-entropy continues beside every surrogate, and runs no longer share their steps
([decision 25](decisions/0025-a-run-is-its-content.md)), so the same runs take longer now."""

GROWTH = """## Growth with the number of rows

A round draws sets of fixed size and costs the same for any number of rows. A check on the validation rows, a fifth of
the table, every 50 rounds, grows with them.

{rounds}

Peak memory of a process that creates a table in single precision and fits a model to it. Tables over ten million cells
are standardised as rows are drawn, so that they are never copied. The additional memory is for the validation rows and
a few numbers for each row: the rows of its class, its target, and the scores of validation rows. With very few features
these weigh more than the row itself.

{memory}

Metrics sort, so their cost should grow as n log n, and it does: long sets are sorted as integers that hold score and
target, and evaluated in parts that fit the processor's cache. The table shows the share of system time, which is spent
on allocating memory.

{metrics}
"""

METRICS = """## Metrics, against scikit-learn and torchmetrics

Speed-up: {sets} sets of {rows} rows at once, against one call for each set (the others were timed on {sample} of the
sets), and one set of {large} rows against one call.

{table}
"""

PEERS = """## Other packages for the same purpose

{packages}; the paper's network, ijcnn1. The time of a model step, ours with refining after every third step:

{steps}

Processor time until the test rows reach the value that cross-entropy reached in 500 steps (AUC, or F1 at its best
threshold), with batches of 100 rows; ours by the default recipe, with sets of 400 rows, shortened to 300 steps of
warm-up and 300 rounds. One seed, each with the settings its documentation starts with; tuned settings will do better.

{goals}
{missing}
LibAUC depends on a dozen packages for images and graphs that its losses do not need; it was installed without them
(`pip install --no-deps libauc`). AP-Perf solves a problem over an n by n matrix for every batch of n rows, in up to 100
iterations, which makes large batches slow.
"""

THREADS = """## Threads

`fit` gives torch one thread while it trains a model whose steps take less than {worth} million multiplications, and
restores the setting afterwards; for a network with layers other than dense ones the user's setting is kept. Jobs of
`--jobs`, `compare` and the grid always have one thread each, so that no core is used twice
(`tests/training/test_threads.py`, `tests/evaluation/test_grid.py`).

{table}

On a busy machine wall time penalises two threads, because they wait for one another.
"""

TRAINER = """## The paper's 300,000 rounds, and torch.compile

Processor time of a round of the paper's recipe (a9a, sets of 100 rows), and hours for the 300,000 rounds of the paper:

{table}

Nothing is compiled. Up to version 0.1 whole rounds of the paper's recipe were compiled through private names of torch.
With only the surrogate under the public `torch.compile` a round took as long as without
([decision 27](decisions/0027-one-trainer-k-members.md)); compiled model steps were not measured. `fit` was never
compiled; the claims above compare it with the code before.
"""

MADE = """## How these numbers were made

{made}
"""

SECTIONS: dict[str, tuple[str, Callable[[Record], dict[str, Any]]]] = {
    "overhead": (
        OVERHEAD,
        lambda r: {"rows": f"{r['rows']:,}", "features": r["features"], "table": tables.overhead_table(r)},
    ),
    "rounds": (ROUNDS, lambda r: {"dataset": r["dataset"], "rounds": tables.paper_table(r)}),
    "trainer": (TRAINER, lambda r: {"table": tables.trainer_table(r)}),
    "growth": (
        GROWTH,
        lambda r: {
            "rounds": tables.round_table(r),
            "memory": tables.memory_table(r),
            "metrics": tables.growth_table(r),
        },
    ),
    "metrics": (
        METRICS,
        lambda r: {
            **{name: f"{r[name]:,}" for name in ("sets", "rows", "sample", "large")},
            "table": tables.metric_table(r),
        },
    ),
    "peers": (
        PEERS,
        lambda r: {
            "packages": ", ".join(f"{name} {version}" for name, version in r["packages"].items()),
            "steps": tables.step_table(r),
            "goals": tables.goal_table(r),
            "missing": "".join(f"\n{name} could not take part: {why}.\n" for name, why in r["missing"].items()),
        },
    ),
    "threads": (THREADS, lambda r: {"worth": f"{r['worth'] / 1e6:.0f}", "table": tables.thread_table(r)}),
}
"""Text and fields by benchmark, in the order of the page; `python -m benchmarks.speed.NAME` measures each."""


if __name__ == "__main__":
    draw(records()).savefig(PICTURE, dpi=130)
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(in_readme(README.read_text("utf-8")), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}, its picture, and the table of README.md")
