"""Write docs/calls.md and its picture from results/calls: python -m studies.calls.page"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from metricgrad.evaluation.store import Store
from studies.calls.run import LIMITS, RESULTS
from studies.pages import DOCS, ROOT, markdown, versions, wrapped

PAGE, PICTURE = DOCS / "calls.md", DOCS / "images" / "calls.svg"
TARGET = 0.8
"""Share of the gain at the default limit that 300 calls were to reach."""


def outcomes(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return gains of every box, seed and limit in units of the mean absolute value of the proxy."""
    frame = pd.DataFrame([{**record, **record["run"]} for record in records])
    frame["gain"] = np.where(frame["higher_is_better"], 1, -1) * (frame["ours"] - frame["proxy"])
    frame["share"] = 100 * frame["gain"] / frame.groupby("box")["proxy"].transform(lambda proxy: proxy.abs().mean())
    complete = frame.groupby(["box", "seed"])["limit"].transform("nunique") == len(LIMITS)
    return frame[complete]


def reached(found: pd.DataFrame) -> pd.DataFrame:
    """Return for every box, and in all, the gain at each limit, in percent of the proxy, and the most calls."""
    gains = found.pivot_table(index="box", columns="limit", values="share", aggfunc="mean")
    gains.loc["mean"] = gains.mean()
    return gains


def table(found: pd.DataFrame) -> str:
    """Write a row for each box: gains at each limit, calls used, and seconds of learning."""
    gains, boxes = reached(found), found.groupby("box")
    seconds, calls = boxes["learning_seconds"].mean(), found.pivot_table(index="box", columns="limit", values="calls")
    emulated = boxes["emulated"].mean() > 0.5
    head = ["box", "learned as", *(f"gain, {limit:,} calls" for limit in LIMITS), "calls used", "CPU s to learn"]
    rows = []
    for name, row in gains.iterrows():
        shown = [f"{row[limit]:+.1f} %" for limit in LIMITS]
        if name == "mean":
            rows.append(["**mean**", "", *shown, "", f"{seconds.mean():.1f}"])
            continue
        used = " / ".join(f"{calls.loc[name, limit]:,.0f}" for limit in LIMITS)
        rows.append([f"`{name}`", "emulator" if emulated[name] else "calls", *shown, used, f"{seconds[name]:.1f}"])
    return markdown(head, rows, left=2)


def draw(found: pd.DataFrame) -> None:
    """Draw the gain of every box, and their mean, against the limit of calls."""
    gains = reached(found)
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
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def page() -> str:
    """Return the page; every number on it comes from the results."""
    records = list(Store(RESULTS))
    found = outcomes(records)
    mean = reached(found).loc["mean"]
    share = mean[LIMITS[0]] / mean[LIMITS[-1]]
    return wrapped(
        TEXT.format(
            boxes=found["box"].nunique(),
            seeds=found["seed"].nunique(),
            share=f"{100 * share:.0f} %",
            target=f"{100 * TARGET:.0f} %",
            verdict="reached" if share >= TARGET else "missed",
            most=f"{int(found['calls'].max()):,}",
            over=int((found["calls"] > found["limit"]).sum()),
            runs=len(found),
            seconds=f"{found['learning_seconds'].mean():.1f}",
            slowest=f"{found['learning_seconds'].max():.1f}",
            table=table(found),
            made=versions(records),
        )
    )


TEXT = """# How many calls a metric of your own takes

A function of your own may be a simulation of seconds. `black_box(fn, ..., max_calls=300)` limits how often a run of
training calls it, looks at validation rows and the threshold included; the default is 4,000. `metric.calls` counts.

**With 300 calls, {share} of the gain over the proxy that the default reaches**, in the mean of {boxes} boxes (the
target of {target} was {verdict}). No run took more than {most} calls; {over} of {runs} runs exceeded their limit.
Learning a metric takes {seconds} CPU seconds on average, {slowest} at most, calls included.

![Gain against calls](images/calls.svg)

Gains are in percent of the proxy's value, means over {seeds} seeds; the picture has a line for each box, and one for
their mean.

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

`python -m studies.calls.run`; this page by `python -m studies.calls.page`. Boxes, tables, model and recipe are those of
[twenty black boxes](black-boxes.md); nothing of a metric is known before each run. Stored in `results/calls.parquet`:
{made}.
"""


if __name__ == "__main__":
    draw(outcomes(list(Store(RESULTS))))
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)}")
