"""Write docs/black-boxes.md from results/black_boxes.jsonl and results/own_loops.jsonl.

python benchmarks/black_boxes_page.py
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from metricgrad.evaluation.store import Store
from studies.black_boxes.run import BOXES, CALLS, RECIPE, RESULTS, ROWS, names
from studies.common import markdown, wrapped
from studies.own_loops.run import RESULTS as LOOPS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "black-boxes.md"
SEEDS = 5
"""A box is shown once so many are done."""
FEWEST = 3
"""Seeds of a loop that are shown."""


def outcomes(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a row for each box of which all seeds are done.

    Means of both, the mean gain and its standard error, seeds won and lost, and calls.
    """
    frame = pd.DataFrame([{**record, **record["run"]} for record in records])
    frame = frame[frame.groupby("box")["seed"].transform("count") >= SEEDS]
    frame["gain"] = np.where(frame["higher_is_better"], 1, -1) * (frame["ours"] - frame["proxy"])
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


def who(name: str) -> str:
    """Return the sentence a box begins with."""
    return (ast.get_docstring(ast.parse((BOXES / f"{name}.py").read_text("utf-8"))) or "").split("\n\n")[0]


def table(found: pd.DataFrame) -> str:
    """Write a row for each box, the largest gain in standard errors first."""
    head = ["box", "metric", "metricgrad", "proxy", "gain", "seeds better : worse", "most calls"]
    order = (found["gain"] / found["error"].replace(0, np.nan)).fillna(0).sort_values(ascending=False).index
    rows = []
    for name, row in found.loc[order].iterrows():
        arrow = "" if row["higher_is_better"] else " (low is good)"
        rival = "" if row["rival"] == "cross-entropy" else f" ({row['rival']})"
        numbers = (f"{row['ours']:.3f}", f"{row['proxy']:.3f}{rival}", f"{row['gain']:+.3f} ± {row['error']:.3f}")
        rows.append(
            [f"`{name}`", f"{row['label']}{arrow}", *numbers, f"{row['won']} : {row['lost']}", f"{row['calls']:,}"]
        )
    return markdown(head, rows, left=2)


def loop_table(records: list[dict[str, Any]], example: str) -> str:
    """Write the mean of every loss of an example, and what the surrogate gains over it."""
    frame = pd.DataFrame([record["values"] for record in records if record["run"]["example"] == example])
    if len(frame) < FEWEST:
        return "Still to be run."
    rows = []
    for name in frame:
        gain = frame["surrogate"] - frame[name]
        more = [f"{gain.mean():+.4f} ± {gain.sem():.4f}", f"{int((gain > 0).sum())} : {int((gain < 0).sum())}"]
        rows.append([name, f"{frame[name].mean():.4f}", *(["", ""] if name == "surrogate" else more)])
    shown = markdown([f"loss, {len(frame)} seeds", "value", "the surrogate gains", "seeds better : worse"], rows)
    return f"{shown}\n\nBest on average: {frame.mean().idxmax()}."


def page() -> str:
    """Return the page, all of its numbers from what is stored."""
    records, loops = list(Store(RESULTS)), list(Store(LOOPS))
    found = outcomes(records)
    made = records[-1]["made_by"]
    text = TEXT.format(
        boxes=len(found),
        so_far="" if len(found) == len(names()) else f" The other {len(names()) - len(found)} are still to be run.",
        better=int((found["gain"] > 0).sum()),
        sure=int((found["gain"] > 2 * found["error"]).sum()),
        worse=int((found["gain"] < 0).sum()),
        bad=int((found["gain"] < -found["error"]).sum()),
        seeds=SEEDS,
        most=f"{int(found['calls'].max()):,}",
        limit=f"{CALLS:,}",
        table=table(found),
        list="\n".join(f"- `{name}`: {who(name)}" for name in names()),
        rows=f"{ROWS['train']:,} rows to train on, {ROWS['validation']:,} to validate and {ROWS['test']:,} fresh ones",
        steps=f"{RECIPE.warmup:,} steps of cross-entropy, then {RECIPE.rounds * RECIPE.model_steps:,}",
        pictures=loop_table(loops, "plot_06_segmentation"),
        prices=loop_table(loops, "plot_07_within_ten_percent"),
        made=f"Version {made['metricgrad']}, commit {made['commit']}, {made['date']}",
    )
    return wrapped(text)


TEXT = """# Twenty black boxes

Metrics nobody has written a gradient for, each a few lines of Python in `examples/black_boxes`, some with a program or
dice inside. Each is trained for as it is, and compared with its natural proxy: cross-entropy, or cross-entropy of
balanced classes, for the same linear model, with the same steps, the same start, and checkpoint and threshold chosen by
the very same metric on the same validation rows. Fresh rows are judged once.

**Better than the proxy on {better} of {boxes} boxes**, by more than two standard errors on {sure}; worse on {worse}, by
more than one standard error on {bad}.{so_far} Means and standard errors over {seeds} seeds, each with a table of its
own. A run takes {most} calls of the metric at most, those that teach its surrogate included (the limit set beforehand
was {limit}).

{table}

A gain is counted so that positive is better. Where the model kept is that of cross-entropy, the two are the same and
the gain is 0: the surrogate has to win on validation rows by more than their noise.

## The boxes

{list}

## Two loops of one's own

`examples/plot_06_segmentation.py`: cells in noisy pictures, judged by IoU image by image, for the pixels of an image
are a set. A small convolutional network starts by cross-entropy, then takes as many steps by each loss; all are cut
where other pictures say.

{pictures}

`examples/plot_07_within_ten_percent.py`: prices, of which as many as can be should come within ten percent of what was
paid, while one in four was paid in a hurry or for love. A linear model of log prices starts by squared error of logs,
then takes as many steps by each loss.

{prices}

## How it was measured

`python benchmarks/black_boxes.py` and `python benchmarks/own_loops.py`; this page by
`python benchmarks/black_boxes_page.py`. Every run is stored, in `results/black_boxes.jsonl` and
`results/own_loops.jsonl`. Tables are made in code, so that no linear score is right everywhere ({rows}); which kind
of table, the model and the recipe ({steps}) were fixed before, after a look at other seeds with built-in metrics, and
are the same for all boxes. {made}.
"""


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
