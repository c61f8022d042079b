"""Write docs/readable.md and its pictures from results/readable: python -m studies.readable.page"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from metricgrad.evaluation.store import Store
from studies.pages import DOCS, ROOT, count_range, listed, markdown, titled, versions, wrapped
from studies.readable import pictures, tried
from studies.readable.cells import (
    BY_FEATURE_AND_BOOSTED,
    COMPETING,
    EBM,
    EBM_PAIRS,
    FOLDED,
    FOR_A_METRIC,
    LOG_LOSS,
    METRICS,
    MODELS,
    OURS,
    OURS_FOR_LOG_LOSS,
    PAIRS,
    PAIRS_FOR_LOG_LOSS,
    RESULTS,
    ahead,
    at,
    cells,
    label,
    losses,
    seconds,
)
from studies.readable.tables import comparison, mean_error

PAGE, IMAGES = DOCS / "readable.md", DOCS / "images"
RIVALS = {
    EBM: "boosted additive models (EBM of `interpret-core`)",
    "optimal bins": "logistic regression on optimal bins (`optbinning`)",
    "logistic regression": "logistic regression",
}
MIN_SHARE = 0.75
"""Of the runs of EBM that a model must have to be in the table of means."""
FEW_SEEDS = "Preliminary: fewer than three seeds, so that a cell depends much on its split."


def mean_table(found: pd.DataFrame) -> str:
    """Write mean losses by model and metric, on the tables and seeds that all of the models have.

    Models that were run on far fewer are left out.
    """
    counts = found.groupby(level="metric").count().max()
    full = [model for model in MODELS if model in counts and counts[model] >= MIN_SHARE * counts[EBM]]
    rows, every = [], found.drop(index=LOG_LOSS, level="metric", errors="ignore")[full].dropna()
    for model in full:
        means = every[model].groupby(level="metric").mean()
        rows.append([MODELS[model], *(f"{means[metric]:.4f}" for metric in METRICS), f"{means.mean():.4f}"])
    runs = every.groupby(level="metric").size().min()
    title = f"Mean loss on test rows, over {runs} tables and seeds that all of these models have"
    return titled(title, markdown(["", *map(label, METRICS), "mean"], rows))


def time_table(times: pd.DataFrame) -> str:
    """Write CPU seconds a fit by model, and their ratio to EBM on the same tables."""
    rows = []
    for model in MODELS:
        if model not in times:
            continue
        row = [MODELS[model], f"{times[model].median():.2f}", f"{times[model].max():.1f}"]
        for other in (EBM, EBM_PAIRS):
            ratio = (times[model] / times[other]).dropna() if other in times else pd.Series(dtype=float)
            row.append(f"{np.exp(np.log(ratio).mean()):.2f} ({len(ratio)})" if len(ratio) and model != other else "")
        rows.append([*row, "each metric" if model in FOR_A_METRIC else "once"])
    names = [f"times {MODELS[other]} (tables)" for other in (EBM, EBM_PAIRS)]
    return markdown(["", "median, s", "longest, s", *names, "fitted for"], rows)


def by_table(found: pd.DataFrame) -> str:
    """Write a row for each table: losses of our model and of EBM for every metric."""
    both, rows = cells(found, OURS, EBM), []
    for table in dict.fromkeys(both.index.get_level_values("table")):
        row = [table.removeprefix("rt30/").replace("_", "\\_")]
        for metric in METRICS:
            if (table, metric) not in both.index:
                row.append("")
                continue
            one = both.loc[(table, metric)]
            own = f"{one['own']:.3f}"
            row.append(f"{f'**{own}**' if one['own'] < one['other'] else own} / {one['other']:.3f}")
        rows.append(row)
    return markdown(["table", *map(label, METRICS)], rows)


def targets(found: pd.DataFrame, times: pd.DataFrame) -> str:
    """Write what was aimed at, and what came."""
    rows = []
    for model in (COMPETING, OURS, BY_FEATURE_AND_BOOSTED):
        by_metric = cells(found, model, EBM).drop(index=LOG_LOSS, level="metric", errors="ignore")
        if len(by_metric) > 1:
            share = ahead(by_metric)
            measured = f"{100 * share:.0f} % of {len(by_metric)}, seeds: {count_range(by_metric['seeds'])}"
            rows.append([f"ahead of EBM without pairs: {MODELS[model]}", "60 % of the cells", measured, share >= 0.6])
    for model in (OURS_FOR_LOG_LOSS, FOLDED, BY_FEATURE_AND_BOOSTED):
        log = at(cells(found, model, EBM), LOG_LOSS)["saved"]
        if len(log) > 1:
            level = bool(log.mean() >= -log.sem())
            rows.append([f"log loss saved: {MODELS[model]}", "at least -1 SE", f"{mean_error(log)} %", level])
    for own, other in ((OURS, EBM), (OURS, EBM_PAIRS), (BY_FEATURE_AND_BOOSTED, EBM)):
        if own in times and other in times:
            ratio = (times[own] / times[other]).dropna()
            mean = float(np.exp(np.log(ratio).mean()))
            name = f"CPU time of a fit, in units of {MODELS[other]}: {MODELS[own]}"
            rows.append([name, "at most 0.33", f"{mean:.2f}", mean <= 1 / 3])
    shown = [[*map(str, row[:3]), "yes" if row[3] else "**no**"] for row in rows]
    return markdown(["", "aim", "measured", "met"], shown)


def in_short(found: pd.DataFrame) -> str:
    """Write what each of our ways saves of the loss of EBM, in the mean and in the share of cells."""
    ways = []
    for model in (COMPETING, OURS, OURS_FOR_LOG_LOSS, FOLDED, BY_FEATURE_AND_BOOSTED):
        both = cells(found, model, EBM).drop(index=LOG_LOSS, level="metric", errors="ignore")
        if len(both) > 1:
            per_table = both["saved"].groupby(level="table").mean()
            ways.append(f"{MODELS[model]}: {mean_error(per_table)} %, ahead in {100 * ahead(both):.0f} % of the cells")
    return f"Loss saved against EBM, mean ± SE over tables, over all metrics: {'; '.join(ways)}."


def with_pairs(found: pd.DataFrame) -> str:
    """Write the part about pairs of features, if it was measured."""
    pairs = cells(found, PAIRS, EBM_PAIRS)
    if pairs.empty:
        return "Not measured: with its default, three pairs a feature, EBM takes many times as long."
    tables, seeds = pairs.index.get_level_values("table").nunique(), count_range(pairs["seeds"])
    return "\n\n".join(
        (
            "EBM adds three pairs a feature by default, ours has ten in all. EBM then takes many times as long, so "
            f"this was measured on {tables} tables; seeds of a cell: {seeds}.",
            comparison(found, PAIRS, EBM_PAIRS, METRICS),
            comparison(found, PAIRS_FOR_LOG_LOSS, EBM_PAIRS, (LOG_LOSS,)),
            comparison(found, OURS, EBM_PAIRS, METRICS),
        )
    )


def page(path: Path = RESULTS) -> str:
    """Return the page; every number on it comes from the results."""
    records = list(Store(path))
    found, times = losses(records), seconds(records)
    own = cells(found, OURS, EBM)
    tables = set(own.index.get_level_values("table"))
    thirty = sum(table.startswith("rt30/") for table in tables)
    more = len(tables) - thirty
    others = [model for model in ("optimal bins", "logistic regression", "linear") if model in found]
    return wrapped(
        TEXT.format(
            rivals=listed(text for model, text in RIVALS.items() if model in found),
            thirty=thirty,
            more=f" and {more} of the paper's datasets (at most 20,000 rows of each)" if more else "",
            seeds=count_range(own["seeds"]),
            few=FEW_SEEDS if own["seeds"].min() < 3 else "",
            targets=targets(found, times),
            short=in_short(found),
            means=mean_table(found),
            against=comparison(found, OURS, EBM, METRICS),
            competing=comparison(found, COMPETING, EBM, METRICS),
            competition=comparison(found, COMPETING, OURS_FOR_LOG_LOSS, METRICS),
            log=comparison(found, OURS_FOR_LOG_LOSS, EBM, (*METRICS, LOG_LOSS)),
            folded=comparison(found, FOLDED, EBM, (*METRICS, LOG_LOSS)),
            metric=comparison(found, OURS, OURS_FOR_LOG_LOSS, METRICS),
            pairs=with_pairs(found),
            others="\n\n".join(comparison(found, OURS, model, METRICS) for model in others),
            times=time_table(times),
            tried=tried.part(found),
            by_table=by_table(found),
            made=versions(records),
        )
    )


TEXT = """# Against other readable models

Additive models that follow the metric, against readable models that aim at log loss: {rivals}; on {thirty} of the
thirty tables of [additive models](additive.md){more}, five metrics; seeds of a cell: {seeds}. {few}

{targets}

{short} EBM is ahead by little in many cells and behind by much in a few: a mean that is ahead, and a share of cells
that is not. Neither following the metric nor averaging folds nor letting strategies compete changes that.

Cells are pairs of a table and a metric, by mean losses over seeds. The share of the loss saved is that of the larger of
the two losses, from -100 to 100 %.

{means}

## Additive for the metric against EBM without pairs

The default trains every [strategy](strategies.md) on five folds of the same rows as EBM has, chooses among them there,
and averages the folds into one additive model:

{competing}

One model for the metric, of four fifths of those rows:

{against}

![Loss saved against EBM, by metric](images/readable-gains.svg)

![Loss of our additive model and of EBM, by cell](images/readable-losses.svg)

## Where both aim at log loss

{log}

{folded}

What training one model for the metric itself adds to our additive model, and what the competition on folds adds:

{metric}

{competition}

## With pairs of features

{pairs}

## Against the others

{others}

## Time

{times}

![CPU seconds a fit, by rows](images/readable-time.svg)

Models for the metric are fitted once for each metric, all others once for all. The time of EBM
includes scoring rows by each bag, for the threshold.

## Every table

Losses on test rows: additive for the metric / EBM without pairs.

{by_table}

{tried}

## How it was measured

All models have the same 20 % of the rows to be judged on. Ours and logistic regression, with and without bins, are
trained on 64 % and have 16 % for validation: our checkpoint, ridge and threshold are chosen there, and the threshold
of F1 of the others; their ridge is chosen by cross-validation of the training rows. EBM has all 80 % to train on,
with its own 14 bags, each of which holds 15 % out to stop early; the threshold of F1 is the best for its out-of-bag
scores. So EBM has a quarter more rows, and so has the mean of five folds. Settings of all models are their defaults.
Bins, ridge and averaging were compared on validation rows of other seeds. At first, additive models for log loss were
selected by F1, as `method="cross-entropy"` does with the metric `"f1"`; when their log loss on test rows showed it,
these runs were dropped and made again with log loss for the selection.

`METRICGRAD_DATA=... python -m studies.readable.run`, which continues where it stopped; this page by
`python -m studies.readable.page`. Stored in `results/readable.parquet`: {made}.
"""


def main() -> None:
    text = page()
    records = list(Store(RESULTS))
    pictures.write(losses(records), records, IMAGES)
    PAGE.write_text(text, "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
