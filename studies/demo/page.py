"""Write docs/demo.md and its picture from results/demo.json: python -m studies.demo.page"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

from metricgrad.demo.charts import draw_picture
from metricgrad.demo.trial import BEST_USUAL, METHODS, OURS, SQUARED, percent
from metricgrad.evaluation.store import Store
from studies.demo.run import CHOICES, RESULTS
from studies.pages import DOCS, ROOT, markdown, wrapped

PAGE, PICTURE = DOCS / "demo.md", DOCS / "images" / "demo.svg"


def stored(path: Path = RESULTS) -> dict[str, Any]:
    """Return what the demonstration came to."""
    found: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return found


def costs(record: dict[str, Any]) -> str:
    """Write the table that the demonstration prints."""
    rows = []
    for method in METHODS:
        own = pd.Series(record["costs"][method])
        mean, low, high = (percent(end) for end in record["saved"].get(method, (0, 0, 0)))
        saved = ["", ""] if method == OURS else [f"{mean} %", f"{low} to {high}"]
        rows.append([method, f"{own.mean():.1f}", *saved, f"{100 * record['short'][method]:.1f}"])
        rows[-1].append(f"{record['over'][method]:.1f}")
    return markdown(["", "cost an hour", "saved", "95 % interval", "% of hours short", "bikes over"], rows)


def choices(path: Path = CHOICES) -> str:
    """Write what the model and its columns were chosen from, means and standard errors over splits."""
    records = list(Store(path))
    found = pd.DataFrame([{**record["run"], **record["costs"]} for record in records])
    rows = []
    for (split_hours, model), own in found.groupby(["split_hours", "model"]):
        saved = [100 * (1 - own[OURS] / own[over]) for over in (SQUARED, BEST_USUAL)]
        hours = "working and free days" if split_hours else "all days"
        cells = [f"{each.mean():.1f} ± {each.sem():.1f}" for each in (*(own[m] for m in METHODS), *saved)]
        rows.append([model, hours, *cells])
    head = ["model", "one hour for", *METHODS, "% saved", "% over best usual"]
    return markdown(head, rows, left=2)


def page(results: Path = RESULTS, tried: Path = CHOICES) -> str:
    """Return the page; every number on it comes from the results."""
    record = stored(results)
    made = record["made_by"]
    return wrapped(
        TEXT.format(
            verdict=record["verdict"],
            table=costs(record),
            hours=f"{record['hours']:,}",
            days=record["days"],
            splits=len(record["costs"][OURS]),
            followed="; ".join(f"{method}: {', '.join(own)}" for method, own in record["followed"].items()),
            choices=choices(tried),
            runs=len({entry["run"]["seed"] for entry in Store(tried)}),
            seconds=f"{record['cpu_seconds']:.0f}",
            command=record["command"],
            made=f"metricgrad {made['metricgrad']}, {made['date']}, seed {record['seed']}",
        )
    ).replace("CODE", CODE)


CODE = """```python
from metricgrad import MetricRegressor
from metricgrad.demo.bikes import load_bikes

X, y, day = load_bikes()
model = MetricRegressor("step_cost(5,1,10)", model="additive", random_state=0, folds=1)
model.fit(X, y, groups=day)  # a fifth of the days chooses
print(model.verdict_)
shapes = model.explain(separator="=")  # one-hot columns are joined
print(shapes.importance)
shapes.figure("hour of a working day")
```"""
"""What a reader can type."""
TEXT = """# The demonstration

`make demo`, or `metricgrad demo` once it is installed, trains for a cost on data that the package holds: bikes rented
in {hours} hours of {days} days in Washington, D.C. (Fanaee-T and Gama 2013, CC BY 4.0). A bike short costs 5, a bike
over 1, and an hour in which any is short another 10: `step_cost(5,1,10)`. It takes {seconds} s of one core, prints the
table and the sentence below, and writes a page with cost curves, errors and the shape functions of the model.

{verdict}

![The cost of an hour if bikes were added to every prediction, of the three models](images/demo.svg)

{table}

All three are the same additive model, from the same rows, each with its best constant. The days are dealt into {splits}
parts; the hours of each are judged once, by models trained on the other days, of which a fifth choose units, loss,
checkpoint and constant. *Best usual loss* is the best there of squared error, absolute error, Huber's loss and three
quantiles. Intervals are those of the corrected resampled t. Neighbouring days are on different sides: this is no
forecast.

What was followed, and the constant: {followed}.

CODE

## What it was chosen from

A linear and an additive model, with one hour for all days or one for working days and another for free days, on {runs}
splits of the same hours by other seeds, a quarter of the days judged; cost of an hour and share saved, means and
standard errors:

{choices}

The model of least cost was taken, not the one of the largest gain. The weaker the model, the more it gains by the
metric. The choice was made on first runs of these splits, which had the felt temperature and holidays as columns too;
the table has the columns of the demonstration. Days of these splits are judged in the demonstration as well.

That the cost is worth following on these hours was known from [the study of numbers](numbers.md), in which boosted
trees, which cannot be read, cost less than all of these, on random hours instead of days. [When it
helps](when-it-helps.md) has what to use where it does not.

## How it was measured

`{command}` and `python -m studies.demo.run --choices`; this page by `python -m studies.demo.page`. Stored in
`results/demo.json` and `results/demo_choices.parquet`: {made}.
"""


def main() -> None:
    PAGE.write_text(page(), "utf-8")
    draw_picture(stored(), PICTURE)
    print(f"wrote {PAGE.relative_to(ROOT)} and {PICTURE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
