"""Write docs/when-it-helps.md, its pictures and a part of the README from what is stored, and from nothing else.

Reads results/win, results/parts.jsonl, results/collapse.jsonl and, if it is there, results/sizes. What is not stored is
not spoken of.

    python benchmarks/when_it_helps.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from metricgrad.evaluation.ranks import holm
from metricgrad.evaluation.records import FILE, Record, read_records
from metricgrad.evaluation.store import Store
from metricgrad.training.recipe import Recipe
from studies.ablations.run import DEFAULT, cells, worth
from studies.ablations.run import RESULTS as PARTS
from studies.collapse.run import NOISE
from studies.collapse.run import ROWS as SHORT_ROWS
from studies.common import count_range, in_place, listed, spelt, wrapped
from studies.when_it_helps.pictures import LABELS, SAID, at, draw_capacity, draw_metrics, draw_short_runs, draw_sizes
from studies.when_it_helps.tables import (
    FEW,
    clearly,
    dataset_table,
    faith_table,
    gain_table,
    hand_made,
    in_hindsight,
    models_of,
    part_table,
    provenance,
    rare_rows,
    rival_table,
    seeds_said,
    size_gains,
    size_table,
)
from studies.win.run import BOOSTED, CELL, PUBLISHED, RESULTS, RIVAL, ROWS, certain, gains, losses, signed_rank, worse

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "when-it-helps.md"
README = ROOT / "README.md"
IMAGES = ROOT / "docs" / "images"
COLLAPSE = ROOT / "results" / "collapse.jsonl"
SIZES = ROOT / "results" / "sizes"
TOP = ("average_precision", "f1", "partial_auc(0.05)", "precision_at(0.02)")
"""Metrics that look at the top of the ranking, or at F1."""
LITTLE = 0.01
"""A mean gain that is called nothing."""
GAINERS = ("ijcnn1", "skin", "covtype")
"""The datasets that the mean gain comes from."""
MODEL_STEPS = {
    RIVAL: Recipe().steps,
    "sl-r": Recipe().steps + Recipe().rounds * Recipe().model_steps,
}
"""Model steps of a run, those of its control included."""
MADE_FOR = (
    ("f1", "soft-f1"),
    ("jaccard", "soft-jaccard"),
    ("jaccard", "lovasz-softmax"),
    ("auc", "pairwise"),
    ("auc", "global-objectives"),
    ("auc", "aucm"),
)
"""Losses that were made by hand for a metric."""


# ---- parts of the page ---------------------------------------------------------------------------------------------


def opening(found: pd.DataFrame) -> str:
    """Say for whom it is, and on what that was measured."""
    means = found["gain"].groupby(level=["dataset", "model"]).mean()
    nothing = [dataset for (dataset, model), gain in means.items() if model == "linear" and abs(gain) < LITTLE]
    (data, model), least = means.idxmin(), means.min()
    by_model = listed(f"{SAID[model]} {at(found, model=model)['gain'].mean():+.1%}" for model in models_of(found))
    counts = (spelt(found.index.get_level_values(level).nunique()) for level in ("dataset", "metric", "model"))
    datasets, metrics, models = counts
    return f"""# When should I use this?

**Use it when your model is limited and your metric looks at the top of the ranking or at a threshold.** Linear models
and small networks cannot be right everywhere; the metric tells them where to be right. **Do not expect much where
cross-entropy already finds what the metric wants**: a large network on easy data, or a linear model to which the loss
hardly matters{f" (under 1 % on {listed(nothing)})" if nothing else ""}. Mean loss saved here: {by_model}. By trying
you lose time, and seldom more: the default trains cross-entropy beside the surrogate, and keeps it unless the
surrogate's model wins on validation rows by more than a standard error. With few positives that can still be luck: the
worst mean over metrics here is {least:+.1%} ({data}, {SAID[model]}).

Measured on {datasets} datasets, {metrics} metrics and {models} models, against **cross-entropy + exact threshold** with
the same network, splits, steps, restarts and choice of checkpoint; {len(found)} cells of dataset, metric and model
({seeds_said(found)}):"""


def summary(frame: pd.DataFrame, records: Sequence[Record]) -> str:
    """Say how much is saved, how sure that is, how often it is worse, and where most is saved."""
    found = gains(frame)
    top = found[found.index.get_level_values("metric").isin(TOP)]
    limited = top[top.index.get_level_values("model").isin(("linear", "small"))]
    by_model = ", ".join(
        f"{SAID[model]} **{at(limited, model=model)['gain'].mean():+.1%}**" for model in models_of(limited)
    )
    of_datasets = found["gain"].groupby(level="dataset").mean()
    of_gainers, of_others = (
        found["gain"][found.index.get_level_values("dataset").isin(GAINERS) == gains_there].mean()
        for gains_there in (True, False)
    )
    over_datasets = signed_rank(of_datasets)
    unsettled = "" if over_datasets < 0.05 else ": whether *your* data gain is not settled by these"
    bound = in_hindsight(frame)
    possible = bound[bound.index.isin(limited.index)]
    bad, (surely, surely_not) = worse(found), certain(found)
    which = f" ({_cells(bad)})" if len(bad) else ""
    lost = found[found["gain"] < 0].nsmallest(3, "gain")
    followed = {
        (r.dataset, r.metric, r.setting.model, r.seed)
        for r in records
        if r.method == "sl-r" and r.setting.recipe == "default" and r.kept["verdict"]["followed"]
    }
    both = frame[["sl-r", RIVAL]].dropna()
    moved = both[both.index.isin(followed)]
    best = found["gain"].groupby(level=["dataset", "model"]).mean().sort_values(ascending=False).head(6)
    most = ", ".join(f"{dataset} ({SAID[model]}) {gain:+.0%}" for (dataset, model), gain in best.items())
    return f"""- Loss saved: mean **{found["gain"].mean():+.1%}**, median **{found["gain"].median():.1%}**; exactly zero
in
{(found["gain"] == 0).sum()} of {len(found)} cells, where every seed kept cross-entropy (Wilcoxon over cells, p =
{signed_rank(found["gain"]):.1g}; cells of one dataset are alike, and over the means of the {spelt(len(of_datasets))}
datasets alone p = {over_datasets:.2g}{unsettled}).
- The mean comes from three datasets: {listed(GAINERS)} together {of_gainers:+.1%}, the other
{spelt(len(of_datasets) - len(GAINERS))} {of_others:+.1%}.
- What it costs: {MODEL_STEPS["sl-r"]:,} model steps with the control that goes on with cross-entropy, against
{MODEL_STEPS[RIVAL]:,} of every hand-made loss.
- On F1 and the metrics of the top of the ranking (AP, pAUC, P@0.02): {by_model}, together
{limited["gain"].mean():+.1%}. How much could be had? The best of all {spelt(len(hand_made(frame)))} hand-made losses,
chosen for every cell in hindsight by its test loss over the seeds that all have, saves {possible.mean():+.1%} there,
and less than 2 % in {(possible < 0.02).mean():.0%} of these cells: there, little is to be had from any loss.
- Worse by more than one standard error over seeds: {len(bad)} of {len(found)} cells{which}; where a single
seed differs, the mean is off by exactly one, and is not counted. The largest losses: {_cells(lost) or "none"}.
- Cells that are surely better by a paired t test over seeds with Holm's correction over all cells: {surely}; surely
worse: {surely_not}.
- The guard kept the surrogate's model in {len(moved) / len(both):.0%} of the runs, cross-entropy's in the others. Where
it did, the test loss is lower than cross-entropy's in {(moved["sl-r"] < moved[RIVAL]).mean():.0%} of the runs and
higher in {(moved["sl-r"] > moved[RIVAL]).mean():.0%}.
- Most is gained on {most}."""


def _cells(found: pd.DataFrame) -> str:
    """Return cells by name, each with what it gains."""
    return ", ".join(f"{d}/{LABELS[m]}/{SAID[k]} {gain:+.1%}" for (d, m, k), gain in found["gain"].items())


def size_part(found: pd.DataFrame, rare: dict[tuple[str, int], int], shares: dict[str, float]) -> str:
    """Say what the number of rows does, and where rows are too few to say."""
    left_out = (
        f" In brackets: fewer than {spelt(FEW)} test rows of the rarer class, where a loss is mostly luck; such a"
        " dataset is not in the mean, and such a cell not in the picture."
        if any(rare[dataset, rows] < FEW for rows, dataset, *_ in found.index)
        else ""
    )
    first_look = " A first look: too few seeds to conclude from." if found["seeds"].max() < 3 else ""
    by_rows = found["gain"].groupby(level="rows").mean().sort_index()
    few_rows = (
        " With few rows less is gained: what cannot be told from the noise of the validation rows is not kept."
        if by_rows.iloc[0] < by_rows.iloc[-1] / 2
        else ""
    )
    metrics = spelt(found.index.get_level_values("metric").nunique())
    return f"""The linear model on fewer rows, drawn by the seed, classes in proportion; a dataset that has fewer than
{ROWS:,} is used whole there. Mean over {metrics} metrics, the same seeds at every size ({count_range(found["seeds"])} a
cell).{few_rows}{first_look}{left_out}

{size_table(found, rare, shares)}

![Gain against the number of rows](images/when-sizes.png)"""


def rival_part(frame: pd.DataFrame) -> str:
    """Say how SL-R fares against every rival, and against losses made for the very metric."""
    published = (
        " SL as published has no warm-up, the paper's surrogate, sets of 100 rows, half of them positive, and ten"
        " refining steps a round, in as many model steps. It differs from the paper in: features standardised,"
        " gradients not clipped, the model's learning rate that of the other methods and the surrogate's 1e-3 (both"
        " 1e-5 in the paper), 2,000 rounds for 300,000, the best checkpoint of 40 on validation rows, and the exact"
        " threshold in training and after it instead of the best of 100 percentiles."
        if PUBLISHED in frame
        else ""
    )
    own = {
        (metric, rival): at(gains(frame, rival), metric=metric) for metric, rival in MADE_FOR if rival in frame.columns
    }
    made_for = ", ".join(
        f"`{rival}` on {LABELS[metric]} {cells['gain'].mean():+.1%} ({clearly(cells).replace(' ', '')})"
        for (metric, rival), cells in own.items()
        if len(cells)
    )
    trees = (
        " And if a tree ensemble is an option, try it first: on tables the family of models often matters more than any"
        " loss."
        if BOOSTED in frame
        else ""
    )
    return f"""Mean share of the rival's loss that SL-R saves (at least -100 %), over cells and seeds that both have;
"clearly" is by more than one standard error over seeds. Every hand-made loss has the same splits, warm-up,
steps, restart and choice of checkpoint and threshold on validation rows; cost-sensitive tries six weights.{published}

{rival_table(frame)}

A hand-made loss made for the very metric can be as good as a learned one or better. What SL-R saves against each
(clearly better:worse): {made_for}.{trees}"""


def short_part(short: Sequence[dict[str, Any]]) -> str:
    """Say how many short runs ended worse than they began, and which of the models kept did."""
    over = {
        name: [r for r in short if r[name] - r["start"] > NOISE * r[f"{name}_error"] + 1e-12]
        for name in ("kept", "last")
    }
    which = " ".join(_worse_run(r) for r in over["kept"])
    kept = len(over["kept"])
    return f"""{len(short)} short runs on made-up tables, prevalence 0.002 to 0.5, sets of 50 to 2,000 rows, every
built-in metric, three models, each with its own seed. Compared with where the rounds began, on
{SHORT_ROWS["test"]:,} fresh rows, **{kept} of {len(short)}** models kept {"is" if kept == 1 else "are"} worse by more
than {spelt(int(NOISE))} standard errors, and {len(over["last"])} of the very last ones, which no guard has looked at.
{which}"""


def _worse_run(r: dict[str, Any]) -> str:
    """Say what happened in a short run whose model is worse than where it began."""
    run, positives = r["run"], r["run"]["prevalence"] * SHORT_ROWS["validation"]
    kept = "the surrogate" if r["followed"] else "cross-entropy"
    return (
        f"Seed {run['seed']}: {LABELS.get(run['metric'], run['metric'])}, {SAID[run['model']]}, about {positives:.0f}"
        f" positive validation rows to choose by; a checkpoint of {kept}"
        f" was kept whose test loss is {r['kept']:.2f}, against {r['start']:.2f} where the rounds began and"
        f" {r['last']:.2f} of the last model along the surrogate."
    )


def recipe_part(path: Path) -> str:
    """Say what the recipe would be without each of its parts, and which changes are sure."""
    found = cells(path)
    table = worth(found)
    changes = table.drop(DEFAULT)
    sure = changes["more"][[p < 0.05 for p in holm(changes["p"].tolist())]]
    better, not_better = (_counted(int(number)) for number in ((sure > 0).sum(), (sure < 0).sum()))
    datasets = listed(found.index.unique("dataset"))
    seeds = spelt(found.index.unique("seed").size)
    count = found.xs(DEFAULT).groupby(level=CELL).ngroups
    metrics = listed(LABELS[metric] for metric in found.index.unique("metric"))
    return f"""The default with one part of it changed, on training and validation rows alone: half of the validation
rows choose checkpoint and threshold, the other half judges; {datasets}, {count} cells of dataset,
metric ({metrics}) and model, {seeds} {"seed" if seeds == spelt(1) else "seeds"}. By model: the mean share of the loss
of cross-entropy with the same sets, steps and restart that is saved, the guard left out. Then the median share of the
default's own loss, in how many cells it is better or worse by more than 1 %, and p by Wilcoxon over cells. Of the
changes, {better} surely better, and {not_better} surely worse (Holm). Means of small networks are rough: where hardly
anything is lost, as on skin, a share of it says little.

{part_table(table)}"""


def _counted(number: int) -> str:
    return "none is" if not number else f"{spelt(number)} {'is' if number == 1 else 'are'}"


def measured_part(sizes: Sequence[int]) -> str:
    """Say by which commands, on which rows and by which code all this was made."""
    of_sizes = (
        f" `python benchmarks/win.py --rows {','.join(map(str, sizes))} --models linear --methods sl-r,cross-entropy"
        " --results results/sizes`,"
        if sizes
        else ""
    )
    paths = [RESULTS / FILE, *([SIZES / FILE] if sizes else []), PARTS, COLLAPSE]
    stored = ["`results/win`", *(["`results/sizes`"] if sizes else []), "`results/parts.jsonl`"]
    stored += ["`results/collapse.jsonl`"]
    return f"""`python benchmarks/win.py` (at most {ROWS:,} rows of a dataset, drawn by the seed, classes in proportion;
seeds from 100 on; honest protocol: features standardised on training rows, checkpoint and threshold chosen on
validation rows, test rows looked at once),{of_sizes} `python benchmarks/ablations.py`,
`python benchmarks/collapse.py`, and this page by `python
benchmarks/when_it_helps.py`. Every run is stored, in {listed(stored)}, with what made it. {provenance(*paths)} What was
tried on the way is in decisions [13](decisions/0013-cross-entropy-competes.md), [14](decisions/0014-anchor-less.md)
and [24](decisions/0024-every-part-left-out-once.md)."""


# ---- the page, the pictures and the README -------------------------------------------------------------------------


def page() -> str:
    """Write the page; every number on it comes from the results."""
    frame, records, sizes = losses(RESULTS), read_records(RESULTS), Store(SIZES / FILE).exists
    found, shares = gains(frame), shares_of(records)
    of_sizes = (
        size_part(size_gains(RESULTS, SIZES), rare_rows([*read_records(SIZES), *records]), shares) if sizes else ""
    )
    return wrapped(f"""{opening(found)}

{summary(frame, records)}

## By metric and model

Mean share of the loss of cross-entropy + exact threshold that SL-R saves, over datasets; p by Wilcoxon over cells.

{gain_table(found)}

![Gain by metric and model](images/when-metrics.png)

*A dot is a dataset, a bar the mean; the scale is linear up to 10 % and logarithmic beyond.*

## By dataset, capacity{", prevalence and size" if sizes else " and prevalence"}

{dataset_table(found, shares)}

![Gain by capacity and prevalence](images/when-capacity.png)

{of_sizes}

## Against every rival

{rival_part(frame)}

## Can the surrogates be trusted?

On fresh sets of the model at the end of training: Spearman correlation of surrogate and metric, and the cosine between
the surrogate's gradient and that of the smoothed metric, found by probing. `history_` of an estimator has both at every
check, and a warning says so when they are too low to follow. Where a model already gets the top right (P@0.02), sets
hardly differ, and a correlation says little.

{faith_table(records)}

## What is each part of the recipe worth?

{recipe_part(PARTS)}

## Does it ever collapse?

{short_part(list(Store(COLLAPSE)))}

![Short runs: gain by prevalence, and rise over the start](images/when-short-runs.png)

## How it was measured

{measured_part(sorted({record.setting.rows for record in read_records(SIZES)}) if sizes else ())}
""")


def shares_of(records: Sequence[Record]) -> dict[str, float]:
    """Return the share of positives in every dataset."""
    return {r.dataset: float(r.kept["positive_share"]) for r in records}


def draw() -> None:
    """Draw the pictures of the page."""
    found, records = gains(losses(RESULTS)), read_records(RESULTS)
    pictures = {
        "when-metrics": draw_metrics(found),
        "when-capacity": draw_capacity(found, shares_of(records)),
        "when-short-runs": draw_short_runs(list(Store(COLLAPSE))),
    }
    if Store(SIZES / FILE).exists:
        rare, of_sizes = rare_rows([*read_records(SIZES), *records]), size_gains(RESULTS, SIZES)
        enough = [rare[dataset, rows] >= FEW for rows, dataset, *_ in of_sizes.index]
        pictures["when-sizes"] = draw_sizes(of_sizes[enough], shares_of(records))
    for name, picture in pictures.items():
        picture.savefig(IMAGES / f"{name}.png", dpi=130)


def readme_part(frame: pd.DataFrame, sizes: bool) -> str:
    """Return the table of gains, over how many seeds it is, and what more the page has."""
    found, others = gains(frame), len(hand_made(frame)) - 1
    rivals = [f"{spelt(others)} more hand-made losses"] if others > 0 else []
    rivals += ["the paper's own recipe"] if PUBLISHED in frame else []
    rivals += ["LightGBM"] if BOOSTED in frame else []
    against = f", against {listed(rivals)}" if rivals else ""
    of_datasets = found["gain"].groupby(level="dataset").mean()
    datasets = spelt(len(of_datasets))
    lost = found[found["gain"] < 0].nsmallest(1, "gain")
    worst = f" The worst cell: {_cells(lost)}." if len(lost) else ""
    return wrapped(f"""{gain_table(found)}

*Mean over {datasets} datasets ({seeds_said(found)}); p by Wilcoxon over cells of dataset and model, which are
alike within a dataset: over the means of the {datasets} datasets alone, p =
{signed_rank(of_datasets):.2g}.{worst}*

By dataset{", prevalence and size" if sizes else " and prevalence"}{against}, how
sure all this is, and whether it ever collapses: [docs/when-it-helps.md](docs/when-it-helps.md).""")


if __name__ == "__main__":
    draw()
    PAGE.write_text(page(), "utf-8")
    part = readme_part(losses(RESULTS), Store(SIZES / FILE).exists)
    README.write_text(in_place(README.read_text("utf-8"), "win", part), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}, its pictures, and its part of README.md")
