"""Write docs/black-boxes.md from results/black_boxes and results/own_loops: python -m studies.black_boxes.page"""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pandas as pd

from metricgrad.evaluation.store import Store
from metricgrad.metrics.called_sets import MAX_CALLS
from studies.black_boxes.run import BOXES, RECIPE, RESULTS, ROWS, names
from studies.own_loops.run import RESULTS as LOOPS
from studies.pages import DOCS, ROOT, listed, markdown, versions, wrapped
from studies.pages import RESULTS as FOLDER

PAGE = DOCS / "black-boxes.md"
BEFORE = FOLDER / "black_boxes-0.1.jsonl"
"""Results of version 0.1, before emulators, on seeds 0 to 4."""
MIN_SEEDS = 3
"""A loop is shown from so many seeds on."""


def gains_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a row a run: its gain over the proxy, positive if better, and that in percent of the proxy of its box.

    Only seeds are used that every box has, limit by limit.
    """
    frame = pd.DataFrame([{"limit": MAX_CALLS, **record, **record["run"]} for record in records])
    boxes = frame.groupby(["limit", "seed"])["box"].transform("nunique")
    frame = frame[boxes == frame["box"].nunique()].copy()
    frame["gain"] = np.where(frame["higher_is_better"], 1, -1) * (frame["ours"] - frame["proxy"])
    units = frame["proxy"].abs().groupby([frame["limit"], frame["box"]]).transform("mean")
    frame["share"] = 100 * frame["gain"] / units
    return frame


def outcomes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return means, mean gain and its standard error, seeds won and lost, and calls of every box."""
    boxes = frame.groupby("box")
    first = boxes[["label", "rival", "higher_is_better"]].first()
    return first.assign(
        ours=boxes["ours"].mean(),
        proxy=boxes["proxy"].mean(),
        gain=boxes["gain"].mean(),
        error=boxes["gain"].sem(),
        won=boxes["gain"].agg(lambda gain: int((gain > 0).sum())),
        lost=boxes["gain"].agg(lambda gain: int((gain < 0).sum())),
        calls=boxes["calls"].max(),
    )


def summary_of(name: str) -> str:
    """Return the first sentence of a box."""
    return (ast.get_docstring(ast.parse((BOXES / f"{name}.py").read_text("utf-8"))) or "").split("\n\n")[0]


def table(found: pd.DataFrame) -> str:
    """Write a row for each box, the largest gain in standard errors first."""
    head = ["box", "metric", "metricgrad", "proxy", "gain", "seeds better : worse", "most calls"]
    order = (found["gain"] / found["error"].replace(0, np.nan)).fillna(0).sort_values(ascending=False).index
    rows = []
    for name, row in found.loc[order].iterrows():
        arrow = "" if row["higher_is_better"] else " (lower is better)"
        rival = "" if row["rival"] == "cross-entropy" else f" ({row['rival']})"
        numbers = (f"{row['ours']:.3f}", f"{row['proxy']:.3f}{rival}", f"{row['gain']:+.3f} ± {row['error']:.3f}")
        rows.append(
            [f"`{name}`", f"{row['label']}{arrow}", *numbers, f"{row['won']} : {row['lost']}", f"{row['calls']:,}"]
        )
    return markdown(head, rows, left=2)


def loop_table(records: list[dict[str, Any]], example: str) -> str:
    """Write the mean value of every loss of an example, and the gain of the surrogate over it."""
    frame = pd.DataFrame([record["values"] for record in records if record["run"]["example"] == example])
    if len(frame) < MIN_SEEDS:
        return "Not run yet."
    rows = []
    for name in frame:
        gain = frame["surrogate"] - frame[name]
        more = [f"{gain.mean():+.4f} ± {gain.sem():.4f}", f"{int((gain > 0).sum())} : {int((gain < 0).sum())}"]
        rows.append([name, f"{frame[name].mean():.4f}", *(["", ""] if name == "surrogate" else more)])
    shown = markdown([f"loss, {len(frame)} seeds", "value", "gain of the surrogate", "seeds better : worse"], rows)
    return f"{shown}\n\nBest on average: {frame.mean().idxmax()}."


def page() -> str:
    """Return the page; every number on it comes from the results."""
    records, loops, before = list(Store(RESULTS)), list(Store(LOOPS)), gains_of(list(Store(BEFORE)))
    runs = gains_of(records)
    runs = runs[runs["limit"] == MAX_CALLS]
    found, old = outcomes(runs), outcomes(before)
    none = runs.groupby("box")["share"].agg(lambda share: bool((share.abs() < 0.05).all()))
    text = TEXT.format(
        boxes=len(found),
        better=int((found["gain"] > 0).sum()),
        sure=int((found["gain"] > 2 * found["error"]).sum()),
        worse=int((found["gain"] < 0).sum()),
        bad=int((found["gain"] < -found["error"]).sum()),
        seeds=listed(map(str, sorted(runs["seed"].unique()))),
        most=f"{int(found['calls'].max()):,}",
        limit=f"{MAX_CALLS:,}",
        none=int(none.sum()),
        mean=f"{runs['share'].mean():+.1f} %",
        median=f"{runs.groupby('box')['share'].mean().median():+.1f} %",
        kept=f"{int(runs['followed'].sum())} of {len(runs)}",
        old_better=int((old["gain"] > 0).sum()),
        old_boxes=len(old),
        old_mean=f"{before['share'].mean():+.1f} %",
        old_median=f"{before.groupby('box')['share'].mean().median():+.1f} %",
        easier=int((np.where(found["higher_is_better"], 1, -1) * (found["proxy"] - old["proxy"]) > 0).sum()),
        old_most=f"{int(before['calls'].max()):,}",
        table=table(found),
        list="\n".join(f"- `{name}`: {summary_of(name)}" for name in names()),
        rows=f"{ROWS['train']:,} training, {ROWS['validation']:,} validation and {ROWS['test']:,} fresh rows",
        steps=f"{RECIPE.warmup:,} steps of cross-entropy, then {RECIPE.rounds * RECIPE.model_steps:,}",
        pictures=loop_table(loops, "plot_06_segmentation"),
        prices=loop_table(loops, "plot_07_within_ten_percent"),
        made=versions(records),
    )
    return wrapped(text)


TEXT = """# Twenty black boxes

Metrics without a known gradient, each a few lines of Python in `examples/black_boxes`, some with an external program or
random numbers inside. A model is trained for each metric as it is, and compared with its natural proxy: cross-entropy,
or cross-entropy with balanced classes, for the same linear model, with the same steps, the same start, and checkpoint
and threshold chosen by that metric on the same validation rows. Fresh rows are used once.

**Better than the proxy on {better} of {boxes} boxes**, by more than two standard errors on {sure}; worse on {worse}, by
more than one standard error on {bad}; on {none} less than 0.05 % of a difference in every run. The surrogate's model
was kept in {kept} runs. Gains are {mean} of the proxy's value in the mean and {median} in the median of the boxes.
Means and standard errors over seeds {seeds}, each with its own table; the way metrics are learned was chosen with seed
0. A run takes at most {most} calls of the metric, learning it included (the limit is {limit}).

Version 0.1 took up to {old_most} calls. On seeds 0 to 4, other tables than these, it was better than the proxy on
{old_better} of {old_boxes} boxes, by {old_mean} of its value in the mean and {old_median} in the median. The two cannot
be compared: here the proxy itself is better on {easier} of {boxes} boxes, so that the tables leave less to gain. How
the gain depends on the limit is on [a page of its own](calls.md).

{table}

A positive gain is always better. Where cross-entropy's model is kept, the two are equal and the gain is 0: the
surrogate's model is kept only if its validation gain exceeds one standard error.

## The boxes

{list}

## Two custom training loops

`examples/plot_06_segmentation.py`: cells in noisy pictures, scored by IoU image by image: the pixels of an image are a
set. A small convolutional network starts with cross-entropy, then takes the same number of steps with each loss; all
thresholds are chosen on other pictures.

{pictures}

`examples/plot_07_within_ten_percent.py`: prices, of which as many as possible should be within ten percent of the price
paid; one in four was a rushed or sentimental purchase. A linear model of log prices starts with squared error of logs,
then takes the same number of steps with each loss.

{prices}

## How it was measured

`python -m studies.black_boxes.run` and `python -m studies.own_loops.run`; this page by
`python -m studies.black_boxes.page`. Every run is stored, in `results/black_boxes.parquet`,
`results/black_boxes-0.1.parquet` and `results/own_loops.parquet`. The tables are synthetic, such that no linear score
is right everywhere ({rows}); the kind of table, the model and the recipe ({steps}) were fixed beforehand, on other
seeds with built-in metrics, and are the same for all boxes. {made}.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
