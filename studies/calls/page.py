"""Write docs/calls.md and its picture from results/black_boxes: python -m studies.calls.page"""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd

from metricgrad.evaluation.store import Store
from studies.black_boxes.page import gains_of
from studies.black_boxes.run import LIMITS, RESULTS
from studies.pages import DOCS, ROOT, listed, markdown, versions, wrapped, write_svg

PAGE, PICTURE = DOCS / "calls.md", DOCS / "images" / "calls.svg"
TARGET = 0.8
"""Share of the gain at the default limit that 300 calls were to reach."""


NO_GAIN = 0.05
"""Percent of the proxy's value below which a difference counts as none."""


def reached(found: pd.DataFrame) -> pd.DataFrame:
    """Return for every box, and as mean and median of them, the gain at each limit, in percent of the proxy."""
    gains = found.pivot_table(index="box", columns="limit", values="share", aggfunc="mean")
    both = gains.agg(["mean", "median"])
    return pd.concat((gains, both))


def table(found: pd.DataFrame) -> str:
    """Write a row for each box: gains at each limit, calls used, and seconds of learning."""
    gains, boxes = reached(found), found.groupby("box")
    seconds, calls = boxes["learning_seconds"].mean(), found.pivot_table(index="box", columns="limit", values="calls")
    emulated = boxes["emulated"].mean() > 0.5
    head = ["box", "learned as", *(f"gain, {limit:,} calls" for limit in LIMITS), "calls used", "CPU s to learn"]
    rows = []
    for name, row in gains.iterrows():
        shown = [f"{row[limit]:+.1f} %" for limit in LIMITS]
        if name in ("mean", "median"):
            rows.append([f"**{name}**", "", *shown, "", f"{seconds.agg(name):.1f}"])
            continue
        used = " / ".join(f"{calls.loc[name, limit]:,.0f}" for limit in LIMITS)
        rows.append([f"`{name}`", "emulator" if emulated[name] else "calls", *shown, used, f"{seconds[name]:.1f}"])
    return markdown(head, rows, left=2)


def draw(found: pd.DataFrame) -> None:
    """Draw the gain of every box, and their mean, against the limit of calls."""
    gains = reached(found).drop(index="median")
    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    for name, row in gains.iterrows():
        mean = name == "mean"
        axes.plot(
            LIMITS, row[list(LIMITS)], "o-", color="#1f4e79" if mean else "#b5b5b5", lw=2.5 if mean else 0.8, ms=4
        )
    axes.set(xscale="log", xlabel="calls that a run may take", ylabel="gain over the proxy, % of its value")
    axes.set_xticks(LIMITS, [f"{limit:,}" for limit in LIMITS])
    axes.minorticks_off()
    axes.axhline(0, color="black", lw=0.6)
    axes.set_yscale("symlog", linthresh=5)
    write_svg(figure, PICTURE)
    plt.close(figure)


def carried(found: pd.DataFrame) -> dict[str, str]:
    """Return what the mean over boxes hides: boxes without a gain, and how much of it is due to a single one."""
    boxes = reached(found).drop(index=["mean", "median"])
    least, most = boxes[LIMITS[0]], boxes[LIMITS[-1]]
    first = most.idxmax()
    apart = least - most
    rest, all_limits = boxes.drop(index=first).mean(), found.groupby("box")["share"]
    return {
        "largest": f"`{first}`",
        "largest_gain": f"{most[first]:+.1f} %",
        "carried": f"{100 * most[first] / most.sum():.0f} %",
        "without_few": f"{rest[LIMITS[0]]:+.1f} %",
        "without_many": f"{rest[LIMITS[-1]]:+.1f} %",
        "few": f"{least.mean():+.1f} %",
        "many": f"{most.mean():+.1f} %",
        "difference": f"{apart.mean():+.1f} %",
        "error": f"{apart.sem():.1f} %",
        "none": str(int(all_limits.agg(lambda share: share.abs().max() < NO_GAIN).sum())),
        "worse": str(int((most < -NO_GAIN).sum())),
        "median_few": f"{least.median():+.1f} %",
        "median_many": f"{most.median():+.1f} %",
    }


def by_seed(found: pd.DataFrame) -> str:
    """Return the share of the default's gain that the least limit reaches, seed by seed."""
    means = found.pivot_table(index="seed", columns="limit", values="share", aggfunc="mean")
    shares = 100 * means[LIMITS[0]] / means[LIMITS[-1]]
    return listed(f"{share:.0f} % (seed {seed})" for seed, share in shares.items())


def page() -> str:
    """Return the page; every number on it comes from the results."""
    records = list(Store(RESULTS))
    found = gains_of(records)
    mean = reached(found).loc["mean"]
    share = mean[LIMITS[0]] / mean[LIMITS[-1]]
    return wrapped(
        TEXT.format(
            boxes=found["box"].nunique(),
            seeds=found["seed"].nunique(),
            middle_seeds=found.loc[found["limit"] == LIMITS[1], "seed"].nunique(),
            share=f"{100 * share:.0f} %",
            by_seed=by_seed(found),
            target=f"{100 * TARGET:.0f} %",
            verdict="reached" if share >= TARGET else "missed",
            most=f"{int(found['calls'].max()):,}",
            over=int((found["calls"] > found["limit"]).sum()),
            runs=len(found),
            kept=int(found["followed"].sum()),
            seconds=f"{found['learning_seconds'].mean():.1f}",
            slowest=f"{found['learning_seconds'].max():.1f}",
            table=table(found),
            made=versions(records),
            no_gain=NO_GAIN,
            **carried(found),
        )
    )


TEXT = """# How many calls a metric of your own takes

A function of your own may be a simulation of seconds. `black_box(fn, ..., max_calls=300)` limits how often a run of
training calls it, looks at validation rows and the threshold included; the default is 4,000. `metric.calls` counts.

**With 300 calls the gain over the proxy is {few} of its value, with 4,000 calls {many}**, in the mean of {boxes} boxes
and {seeds} seeds. That is {share} of what the default reaches (the target of {target} was {verdict}), but such a share
is not well known: the two differ by {difference}, with a standard error over boxes of {error}, and seed by seed the
share is {by_seed}.

A few boxes carry the mean: on {none} boxes no run at any limit differed from the proxy by {no_gain} % of its value,
with 4,000 calls {worse} are worse, and the median gain is {median_few} with 300 calls and {median_many} with 4,000.
{largest} alone ({largest_gain}) is {carried} of the mean; without it the gains are {without_few} and {without_many}.
The surrogate's model was kept in {kept} of {runs} runs; in the others the gain is that of cross-entropy's model, mostly
zero.

The way metrics are learned (emulators, their limits and how calls are spaced) was chosen with seed 0 of the same boxes,
though with other tables than these.

No run took more than {most} calls; {over} of {runs} runs exceeded their limit. Learning a metric takes {seconds} CPU
seconds on average, {slowest} at most, calls included.

![Gain against calls](images/calls.svg)

Gains are in percent of the proxy's value, means over {seeds} seeds ({middle_seeds} with 1,000 calls); the picture has a
line for each box, and one for their mean.

{table}

## Where the calls go

- **Learning**: up to 400 calls, and at most 40 % of the limit, on random sets. A function of labels depends on four
  counts, and a Gaussian process over rates of these is mostly exact after a hundred calls. A function of scores is
  mostly a smooth function of points of its ROC and precision-recall curves, of which the same is true. Where the
  process explains at least 90 % of the variance of groups left out, it replaces the function in training
  (*emulator*).
- Otherwise (*calls*) the bundled surrogate that correlates best is fitted to the same calls, and refined by calls on
  the sets of the model, each of which is used several times.
- **Refining**: an emulator of scores is fitted to some calls on the sets of the model too. Refining stops where three
  quarters of the limit are used; `loss.out_of_calls` is then true.
- **Looks** at validation rows come first and are never refused. Of a function of labels the emulator proposes three
  thresholds, of which the function chooses one.

## How it was measured

`python -m studies.black_boxes.run`; this page by `python -m studies.calls.page`. Boxes, tables, model and recipe are
those of [twenty black boxes](black-boxes.md); nothing of a metric is known before each run. Stored in
`results/black_boxes.parquet`: {made}.
"""


if __name__ == "__main__":
    draw(gains_of(list(Store(RESULTS))))
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)}")
