"""Write docs/performance.md, its picture and the table in the README: python -m benchmarks.speed.performance"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
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
IN_README = ("user", "auto", "own_loop", "scale")
"""Benchmarks whose claims the README shows."""
MET, MISSED = "#0891b2", "#e11d48"
Record = Mapping[str, Any]


def records() -> dict[str, dict[str, Any]]:
    """Return every stored record, in the order of the page."""
    return {name: stored(name) for name in SECTIONS if (FOLDER / f"{name}.json").is_file()}


def claims(found: Mapping[str, Record]) -> Iterator[Record]:
    """Yield all claims, in the order of the page; not those of one version against the code before it."""
    for name, record in found.items():
        if name != "trainer":
            yield from record["claims"]


def _missing(why: Mapping[str, str]) -> str:
    """Write who could not take part, and why."""
    return "".join(f"\n\n{name} could not take part: {reason}.\n" for name, reason in why.items())


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
    texts = [_dated(SECTIONS[name][0].format(**SECTIONS[name][1](record)), record) for name, record in found.items()]
    return wrapped("\n".join([head, *texts, table2_section(), MADE.format(made=tables.made_table(found))]))


def _dated(text: str, record: Record) -> str:
    """Write under the heading of a section when it was measured."""
    heading, rest = text.split("\n", 1)
    return f"{heading}\n\n{tables.measured(record)}\n{rest}"


def _before(name: str) -> dict[str, Any]:
    """Return the record before the last attempt at a bar that is still missed."""
    return stored(name, FOLDER / "before")


def _at(record: Record) -> str:
    return f"commit {record['made_by']['commit']}"


def _beside_old_recipe(reached: Mapping[str, Sequence[float]]) -> str:
    """Return how the network compares in quality with that by the recipe of version 0.1, on tables of several seeds."""
    now, old = (np.array(values) for values in reached.values())
    error = (now - old).std(ddof=1) / len(now) ** 0.5
    return (
        f"F1 on test rows is {now.mean():.4f} against {old.mean():.4f} in the mean of {len(now)} tables, each with a "
        f"seed of its own: a difference of {(now - old).mean():.4f} with a standard error of {error:.4f}."
    )


def _beside_old_version(found: Mapping[str, Any] | None) -> str:
    """Return how the network compares with that of the code of version 0.1, in time and in quality."""
    if found is None:
        return ""
    (now, old), (better, before) = found["seconds"].values(), found["test_metric"].values()
    return (
        f"Against the code of version 0.1 itself (commit {found['commit']}, {found['laps']} laps): {now:.1f} s against "
        f"{old:.1f} s, with an F1 of {better:.4f} against {before:.4f} on the test rows of that synthetic table, one "
        "seed; over several seeds the difference goes away, as above."
    )


def _verdict(claims: Sequence[Record], why: str = "") -> str:
    """Return which bars of a section are missed, by how much and why."""
    missed = [f"{one['says']} ({one['ratio']:.3g}; {bar_of(one)})" for one in claims if not one["met"]]
    return f"Missed: {'; '.join(missed)}. {why}".rstrip() if missed else "All bars of this section are met."


def _steps_before() -> dict[str, str]:
    """Return what a step of 400 rows took before, over cross-entropy: by autograd, then by gradients written out."""
    names = {"frozen": "frozen", "third": "refined every third step", "every": "refined every step"}
    by_autograd, in_numpy = _before("own_loop"), _before("own_loop_in_numpy")
    found = {"at": _at(by_autograd), "at_numpy": _at(in_numpy)}
    for which, before in (("before", by_autograd), ("numpy", in_numpy)):
        over = before["by_rows"][0]["over_cross_entropy"]
        found |= {f"{key}_{which}": f"{over[f'SurrogateLoss, {name}']['ratio']:.2f}" for key, name in names.items()}
    return found


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
processor time is measured, which on an idle machine is the waiting time. A busy one makes it longer, and ratios of
short steps less certain: the last table has the load of every run.

{claims}

{missed} of {number} claims are not met; the sections below explain why.{pending}

![Every claim against its bar](images/performance.png)
"""

USER = """## What a user runs

Tables of 20,000 rows, one thread. All fit on four fifths of the rows; LightGBM, logistic regression and LibAUC choose
the exact threshold for F1 on the others, as `MetricClassifier` does. *cross-entropy: linear* is
`MetricClassifier("f1", "cross-entropy", "linear")`, *F1: linear* the same with `method="sl-r"`. LibAUC trains the
paper's network in 1,500 steps of 128 rows.{missing} The default, `method="auto"` on five folds, trains several models
where these train one: next section.

{fits}

Metrics without a bundled surrogate, `model="linear"` on as many rows, first with an empty cache: a function of labels
(a profit), one of scores (an early lift), and macro F1 of five classes.

{first}

Processor time on 50,000 x 30, one process. The command trains as it does by default, every strategy on five folds,
where those above train one:

{command}

The paper's network against the recipe of 0.1, {laps} laps in turns: {now} s against {old} s. Both run by the code of
today; what separates them is the number of steps, which ends at a plateau. {quality} {version}

In `compare`, the columns of training and of validation rows are computed once for all methods of a split, and linear
and additive models are searched in coordinates in which they need few iterations. What is left is LightGBM itself, one
of the five methods, and products of all rows with the columns of an additive model, some 500.

{verdict}
"""

USER_MISSED = """The bar of a third was asked of version 0.1, whose code is slower than its recipe run by the code of
today. Over the recipe, the result depends on the steps after which each seed comes to a plateau, and on the load."""

AUTO = """## The default

`MetricClassifier("f1", model=...)` trains every strategy that suits the model on five folds, and averages the folds of
the best. On the synthetic table of the last section:

{table}
"""

START = """## Start

Processes that only start, Python included:

{table}
"""

OWN_LOOP = """## Your own loop

One step of the paper's network on {features} features: scores, loss, gradient and Adam.

{table}
{missing}
On a set of 400 rows the arithmetic of a step is so small that the number of operations decides, and the surrogate has
many small ones where cross-entropy has one. On larger sets the network's own arithmetic decides. Sets of more than
1,000 rows are put on a grid ([decision 34](decisions/0034-large-sets-on-a-grid.md)), so that the surrogate's share
becomes small.

{verdict} Six ways brought it here. (1) Fewer operations of torch (class weights once, no copies of constants,
no search for tied weights): {frozen_before}, {third_before} and {every_before} times cross-entropy frozen, refined
every third step and refined every step ({at}). (2) `torch.compile` of the loss, below, which gains little.
(3) The gradient written out in numpy, whose operations take a fraction of the time of torch's, Adam without the class
around it, and the sets of a step pooled once for the loss and for `refine`: {frozen_numpy}, {third_numpy} and
{every_numpy} ({at_numpy}). (4) Sets read and checked in numpy; the metric called without checks, and without weights
that nobody gave. (5) Sets judged once for the loss and for `refine`, and the curve of a small set counted by numpy.
(6) Sets that the loss has read are not read and checked again by `refine`, and no weights are made up where there are
none. What is left of a step with `refine` is the true metric, the surrogate's own gradient and Adam on its 40,000
weights. The default recipe refines every third step. Refined every step on 400 rows it is at its bar on an idle
machine, no more: the same code at a load of 11 took 1.87 times as long as cross-entropy (the record of commit 85b2402).
"""

SCALE = """## Five million rows

A table of {size} in single precision, written to Parquet by a script ({file_bytes} MB); one thread. A table in memory
is counted as a pandas frame of what the file holds: {table_bytes} MB.

{large}

Neither way holds the table twice. Arrow reads nothing ahead; a column of the frame is freed as soon as it is encoded,
and the features are filled column by column; rows are standardised as they are drawn or scored; long curves are judged
in slices. The command takes longer than the array because it finds out what the columns are, learns how to encode
them, encodes them and looks for columns that leak the target. Two statistics come from a sample: whether a column may
leak is looked at on 5,000 rows first, and the standard error of a gain on 312,500 validation rows at most
([decision 43](decisions/0043-the-error-of-a-gain-on-some-rows.md)).

How the processor time of `fit` grows from 20,000 rows, 30 features and two classes (macro F1 for more): the exponent of
a power through all points, and through the last two.

{slopes}

![Seconds of fit against rows, features and classes](images/scale.png)
"""

COMPILED = """## torch.compile

A step of the paper's network on a frozen surrogate, as it is and with `torch.compile(loss, fullgraph=True)`. Nothing in
the package is compiled; up to version 0.1 whole rounds of the paper's recipe were, through private names of torch
([decision 27](decisions/0027-one-trainer-k-members.md)).

{table}
"""

ROUNDS = """## Rounds of the paper

Rounds of the paper's recipe on {dataset}, against a direct implementation of the paper's pseudo-code
(`examples/plot_00_algorithm_1.py`):

{rounds}

The bar was met up to version 0.1 by whole rounds compiled through private names of torch, which was given up
([decision 27](decisions/0027-one-trainer-k-members.md)). Three ways without them were tried: `torch.compile` of the
loss alone, below; Adam without the class around it; and the ten sets of a round scored in both modes and refined upon
in one call. The last two are in what is measured here. Gradients written out in numpy, which made the default recipe
fast, do not apply: the paper's surrogate learns its g. Sets of 100 rows are so small that a round is some hundred
operations of torch that take longer to call than to compute, which only compiling avoids.
"""

TABLE2 = """## All of Table 2

`{command}`
made {runs} runs ({datasets} datasets, {seeds} seeds, both protocols; {date}, commit {commit}). Their stored seconds,
where runs trained at once share their time, sum to {total}; in {cores} processes on {cores} cores that is
**{minutes} minutes**, {bar} the bar of two hours. Loading and scoring are not included.
"""

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

{verdict}
"""

GROWTH_MISSED = """In the run before this one (commit 870f1f9ba13f, at a load of 1) these bars were met: 0.92 for the
growth of a metric, 1.41 tables with 8 features. Here the machine was shared by several jobs, which slows what goes
through memory; why the peak with 8 features is higher has not been looked into."""

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
restores the setting afterwards; for a network with layers other than dense ones the user's setting is kept. `tabm` has
one thread, so that its weights do not depend on how many cores there are: a second one saves some of the time if it has
a core of its own, and costs a multiple of it if not. Jobs of `--jobs`, `compare` and the grid always have one thread
each, so that no core is used twice (`tests/training/test_threads.py`, `tests/evaluation/test_grid.py`).

{table}

On a busy machine wall time penalises two threads, because they wait for one another.
"""

TRAINER = """## The paper's 300,000 rounds

Processor time of a round of the paper's recipe (a9a, sets of 100 rows), and hours for the 300,000 rounds of the paper:

{table}
"""

MADE = """## How these numbers were made

{made}
"""

SECTIONS: dict[str, tuple[str, Callable[[Record], dict[str, Any]]]] = {
    "user": (
        USER,
        lambda r: {
            "fits": tables.fit_table(r),
            "first": tables.first_fit_table(r),
            "command": tables.command_table(r),
            "missing": _missing(r["missing"]),
            "laps": r["old_recipe"]["laps"],
            "now": f"{r['old_recipe']['seconds']['now']:.1f}",
            "old": f"{r['old_recipe']['seconds']['F1 by the recipe of 0.1']:.1f}",
            "version": _beside_old_version(r.get("old_version")),
            "verdict": _verdict(r["claims"], USER_MISSED),
            "quality": _beside_old_recipe(r["old_recipe"]["test_metric"]),
        },
    ),
    "auto": (AUTO, lambda r: {"table": tables.auto_table(r)}),
    "start": (START, lambda r: {"table": tables.start_table(r)}),
    "own_loop": (
        OWN_LOOP,
        lambda r: {
            "features": r["features"],
            "table": tables.own_loop_table(r),
            "missing": _missing(r["by_rows"][0]["missing"]),
            "verdict": _verdict(r["claims"]),
            **_steps_before(),
        },
    ),
    "scale": (
        SCALE,
        lambda r: {
            "size": f"{r['large']['rows']:,} x {r['large']['features']}",
            "file_bytes": f"{r['large']['file_bytes'] / 1e6:,.0f}",
            "large": tables.large_table(r),
            "table_bytes": f"{r['large']['array']['bytes'] / 1e6:,.0f}",
            "slopes": tables.slope_table(r),
        },
    ),
    "growth": (
        GROWTH,
        lambda r: {
            "rounds": tables.round_table(r),
            "memory": tables.memory_table(r),
            "metrics": tables.growth_table(r),
            "verdict": _verdict(r["claims"], GROWTH_MISSED),
        },
    ),
    "metrics": (
        METRICS,
        lambda r: {
            **{name: f"{r[name]:,}" for name in ("sets", "rows", "sample", "large")},
            "table": tables.metric_table(r),
        },
    ),
    "rounds": (ROUNDS, lambda r: {"dataset": r["dataset"], "rounds": tables.paper_table(r)}),
    "trainer": (TRAINER, lambda r: {"table": tables.trainer_table(r)}),
    "compiled": (COMPILED, lambda r: {"table": tables.compiled_table(r)}),
    "peers": (
        PEERS,
        lambda r: {
            "packages": ", ".join(f"{name} {version}" for name, version in r["packages"].items()),
            "steps": tables.step_table(r),
            "goals": tables.goal_table(r),
            "missing": _missing(r["missing"]),
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
