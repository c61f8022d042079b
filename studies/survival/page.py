"""Write docs/survival.md from results/survival: python -m studies.survival.page"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from metricgrad.evaluation.store import Store
from studies.pages import DOCS, ROOT, commands, listed, markdown, spelt, versions, wrapped
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "survival.jsonl", DOCS / "survival.md"
TABLES = ("gbsg2", "whas500", "veterans")
RIVALS = {"cox": "Cox, ridge", "stumps": "boosted stumps, Cox's loss", "trees": "boosted trees, Cox's loss"}
OURS = {"linear": "linear, for the index", "additive": "additive, for the index"}
METHODS = (*RIVALS, *OURS)
PAIRS = (("linear", "cox"), ("additive", "stumps"), ("additive", "cox"))
"""Of ours and a rival, which are compared."""


def frame_of(path: Path = RESULTS) -> pd.DataFrame:
    """Return the index on test rows: a row for every table and split, a column for every method."""
    rows = [{**record["run"], "value": record["value"]} for record in Store(path)]
    whole = pd.DataFrame(rows).pivot_table(index=["table", "seed"], columns="method", values="value", sort=False)
    return whole.dropna()


def value_table(frame: pd.DataFrame, records: list[dict[str, Any]]) -> str:
    """Return the mean index of every method on every table."""
    rows = []
    for table in TABLES:
        own = frame.loc[table]
        size = next(record for record in records if record["run"]["table"] == table)
        cells = [f"{own[method].mean():.3f} ± {own[method].sem():.3f}" for method in METHODS]
        rows.append([table, f"{size['rows']:,}", f"{size['events']:,}", *cells])
    head = ["table", "training rows", "events", *RIVALS.values(), *OURS.values()]
    return markdown(head, rows)


def difference(frame: pd.DataFrame, ours: str, rival: str) -> str:
    """Return how far one of ours is ahead of a rival, in the mean of the tables, and on each."""
    gaps = (frame[ours] - frame[rival]).groupby(level="table", sort=False)
    mean, error = gaps.mean(), gaps.sem()
    told = {table: f"{table} ({mean[table]:+.3f} ± {error[table]:.3f})" for table in mean.index}
    ahead, behind = ([told[table] for table in told if sign * mean[table] > error[table]] for sign in (1, -1))
    names = {**RIVALS, **OURS}
    return (
        f"- {names[ours].capitalize()}, against {names[rival]}: {mean.mean():+.4f} in the mean of the tables; ahead by "
        f"more than a standard error on {listed(ahead) if ahead else 'none'}, behind on "
        f"{listed(behind) if behind else 'none'}."
    )


def page(path: Path = RESULTS) -> str:
    """Return the page; every number on it comes from the results."""
    frame, records = frame_of(path), list(Store(path))
    kept = pd.Series([record["chosen"] for record in records if record["run"]["method"] in OURS]).value_counts()
    chosen = listed(f"{name} {count}" for name, count in kept.items())
    seeds = sorted({record["run"]["seed"] for record in records})
    pairs = "\n".join(difference(frame, *pair) for pair in PAIRS)
    return wrapped(
        f"""# Survival: who has the event first

Times until an event, some of them censored: such a row was only followed until then. What counts is often the order of
the rows, by Harrell's concordance index: of the pairs in which the earlier time is that of an event, the share that is
ordered correctly. Cox's partial likelihood is its usual stand-in. `MetricRegressor("censored_concordance")` chooses by
the index itself among squared error, Cox's loss, direct search for the index and its learned surrogate; predictions are
higher where the event comes later.

    from metricgrad import MetricRegressor

    model = MetricRegressor("censored_concordance", model="linear").fit(X, times, columns={{"event": seen}})

Index on test rows, higher is better, mean and standard error over {spelt(len(seeds))} splits by 70/30 (seeds {seeds[0]}
to {seeds[-1]}). Cox's model has the ridge penalty that is best on five folds of the training rows, boosted models their
number of trees; ours choose strategy and units on five folds. The index is computed by scikit-survival for all.

"""
        + value_table(frame, records)
        + f"""

{pairs}

Strategies that were kept by ours: {chosen}. The surrogate took no part here (`method="direct"`): it has to be fitted on
every fold, which takes most of the time of a fit. Squared error (mse) is that of the rows whose event was seen.

{commands(records)}; {versions(records)}.
"""
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
