"""Write docs/when-it-helps.md, its pictures and its part of the README: python -m studies.when_it_helps.page

Every number comes from results/win, results/ablations, results/collapse and, if there, results/sizes. What is not
stored is not mentioned.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from metricgrad.evaluation.records import FILE, Record, read_records
from metricgrad.evaluation.store import Store
from metricgrad.training.networks import TREES as BOOSTED
from metricgrad.training.recipe import RECIPES
from studies import pages
from studies.ablations.page import recipe_part
from studies.ablations.run import RESULTS as PARTS
from studies.collapse.page import short_part
from studies.collapse.run import RESULTS as COLLAPSE
from studies.pages import DOCS, ROOT, count_range, in_place, listed, spelt, wrapped
from studies.when_it_helps import situations
from studies.when_it_helps.pictures import draw_capacity, draw_metrics, draw_short_runs, draw_sizes
from studies.when_it_helps.tables import (
    METRIC_LABELS,
    MIN_RARE_ROWS,
    MODEL_LABELS,
    at,
    baseline_table,
    clearly,
    dataset_table,
    fidelity_table,
    gain_table,
    hand_made,
    in_hindsight,
    models_of,
    provenance,
    rare_rows,
    seed_counts,
    size_gains,
    size_table,
)
from studies.win.gains import BASELINE, MAX_ROWS, OURS, PUBLISHED, gains, losses, signed_rank, significant, worse
from studies.win.run import RESULTS

PAGE, README, IMAGES = DOCS / "when-it-helps.md", ROOT / "README.md", DOCS / "images"
SIZES = pages.RESULTS / "sizes"
TOP_METRICS = ("average_precision", "f1", "partial_auc(0.05)", "precision_at(0.02)")
"""F1 and the metrics of the top of the ranking."""
NEGLIGIBLE = 0.01
"""Mean gains below this count as none."""
GAINING_DATASETS = ("ijcnn1", "skin", "covtype")
"""The datasets that the mean gain comes from."""
RECIPE = RECIPES["default-0.1"]
"""The recipe of the stored runs."""
MODEL_STEPS = {BASELINE: RECIPE.steps, OURS: RECIPE.steps + RECIPE.rounds * RECIPE.model_steps}
"""Model steps of a run, those of its control included."""
MADE_FOR = (
    ("f1", "soft-f1"),
    ("jaccard", "soft-jaccard"),
    ("jaccard", "lovasz-softmax"),
    ("auc", "pairwise"),
    ("auc", "global-objectives"),
    ("auc", "aucm"),
)
"""Hand-made losses and the metric each was made for."""


# ---- parts of the page ---------------------------------------------------------------------------------------------


def opening(found: pd.DataFrame) -> str:
    """Write when to use it, and what that was measured on."""
    means = found["gain"].groupby(level=["dataset", "model"]).mean()
    none = [dataset for (dataset, model), gain in means.items() if model == "linear" and abs(gain) < NEGLIGIBLE]
    (data, model), least = means.idxmin(), means.min()
    by_model = listed(f"{MODEL_LABELS[m]} {at(found, model=m)['gain'].mean():+.1%}" for m in models_of(found))
    levels = ("dataset", "metric", "model")
    datasets, metrics, models = (spelt(found.index.get_level_values(level).nunique()) for level in levels)
    return f"""# When should I use this?

{situations.table(rich_gain(found))}

## Why learn a loss at all?

What the chosen model loses when the learned surrogate is not among the strategies, by regime:

{situations.regimes({MODEL_LABELS[m]: float(at(found, model=m)["gain"].mean()) for m in models_of(found)[1:]})}

For two classes and a cheap metric, weights, soft counts and direct search find what the surrogate finds: it can be left
out. It is worth its place where there is neither a formula nor a model with few weights: a cost of numbers with a jump
in it, and a function of your own. It is also the only one of them that your own training loop can follow as a loss.

## The learned surrogate on two classes

**Use it when your model is limited and your metric depends on the top of the ranking or on a threshold.** Linear models
and small networks cannot be right everywhere; the metric decides where they should be. **Do not expect much where
cross-entropy already finds what the metric rewards**: a large network on easy data, or a linear model whose result
hardly depends on the loss{f" (under 1 % on {listed(none)})" if none else ""}. Mean reduction of the loss: {by_model}.
The main cost of trying is time: the default trains cross-entropy beside the surrogate, and keeps its model unless the
validation gain of the surrogate's model exceeds one standard error. With few positives such a gain can still be luck:
the worst mean over metrics here is {least:+.1%} ({data}, {MODEL_LABELS[model]}).

Measured on {datasets} datasets, {metrics} metrics and {models} models, against **cross-entropy + exact threshold** with
the same network, splits, steps, restarts and choice of checkpoint; {len(found)} cells of dataset, metric and model
({seed_counts(found)}):"""


def summary(frame: pd.DataFrame, records: Sequence[Record]) -> str:
    """Write how much is gained, how certain that is, how often it is worse, and where most is gained."""
    found = gains(frame)
    top = found[found.index.get_level_values("metric").isin(TOP_METRICS)]
    limited = top[top.index.get_level_values("model").isin(("linear", "small"))]
    by_model = ", ".join(
        f"{MODEL_LABELS[model]} **{at(limited, model=model)['gain'].mean():+.1%}**" for model in models_of(limited)
    )
    of_datasets = found["gain"].groupby(level="dataset").mean()
    is_gaining = found.index.get_level_values("dataset").isin(GAINING_DATASETS)
    over_datasets = signed_rank(of_datasets)
    unsettled = "" if over_datasets < 0.05 else ", so these results do not show whether *your* data will gain"
    bound = in_hindsight(frame)
    possible = bound[bound.index.isin(limited.index)]
    bad, (better_cells, worse_cells) = worse(found), significant(found)
    lost = found[found["gain"] < 0].nsmallest(3, "gain")
    both = frame[[OURS, BASELINE]].dropna()
    moved = both[both.index.isin(_surrogate_kept(records))]
    best = found["gain"].groupby(level=["dataset", "model"]).mean().sort_values(ascending=False).head(6)
    most = ", ".join(f"{dataset} ({MODEL_LABELS[model]}) {gain:+.0%}" for (dataset, model), gain in best.items())
    worse_named = f" ({_cells(bad)})" if len(bad) else ""
    return f"""- Reduction of the test loss: mean **{found["gain"].mean():+.1%}**, median
**{found["gain"].median():.1%}**; exactly zero in {(found["gain"] == 0).sum()} of {len(found)} cells, where every
seed kept cross-entropy (Wilcoxon over
cells, p = {signed_rank(found["gain"]):.1g}; cells of one dataset are not independent: over the means of the
{spelt(len(of_datasets))} datasets alone p = {over_datasets:.2g}{unsettled}).
- The mean comes from three datasets: {listed(GAINING_DATASETS)} together {found["gain"][is_gaining].mean():+.1%}, the
other {spelt(len(of_datasets) - len(GAINING_DATASETS))} {found["gain"][~is_gaining].mean():+.1%}.
- Cost: {MODEL_STEPS[OURS]:,} model steps including the control, which continues with cross-entropy, against
{MODEL_STEPS[BASELINE]:,} for every hand-made loss.
- On F1 and the metrics of the top of the ranking (AP, pAUC, P@0.02): {by_model}, together
{limited["gain"].mean():+.1%}. As an upper bound, the best of all {spelt(len(hand_made(frame)))} hand-made losses,
chosen for every cell in hindsight by its test loss over the seeds that all have, gains {possible.mean():+.1%} there,
and less
than 2 % in {(possible < 0.02).mean():.0%} of these cells: there, no loss makes much difference.
- Worse by more than one standard error over seeds: {len(bad)} of {len(found)} cells{worse_named}; where only one seed
differs, the mean is off by exactly one standard error and is not counted. The largest losses: {_cells(lost) or "none"}.
- Cells that are significantly better by a paired t test over seeds, with Holm's correction over all cells:
{better_cells}; significantly worse: {worse_cells}.
- The surrogate's model was selected in {len(moved) / len(both):.0%} of the runs, cross-entropy's in the others. Where
it
was, the test loss is lower than cross-entropy's in {(moved[OURS] < moved[BASELINE]).mean():.0%} of the runs and higher
in {(moved[OURS] > moved[BASELINE]).mean():.0%}.
- The largest gains: {most}."""


def _surrogate_kept(records: Sequence[Record]) -> set[tuple[str, str, str, int]]:
    """Return dataset, metric, model and seed of the runs that kept the surrogate's model."""
    return {
        (r.dataset, r.metric, r.setting.model, r.seed)
        for r in records
        if r.method == OURS and r.setting.recipe == "default-0.1" and r.kept["verdict"]["followed"]
    }


def _cells(found: pd.DataFrame) -> str:
    """Return cells by name, each with its gain."""
    return ", ".join(
        f"{d}/{METRIC_LABELS[m]}/{MODEL_LABELS[k]} {gain:+.1%}" for (d, m, k), gain in found["gain"].items()
    )


def size_part(found: pd.DataFrame, rare: dict[tuple[str, int], int], shares: dict[str, float]) -> str:
    """Write how the gain depends on the number of rows, and where there are too few rows to tell."""
    left_out = (
        f" In brackets: fewer than {spelt(MIN_RARE_ROWS)} test rows of the rarer class, where a loss is mostly luck;"
        " such a dataset is not in the mean, and such a cell not in the picture."
        if any(rare[dataset, rows] < MIN_RARE_ROWS for rows, dataset, *_ in found.index)
        else ""
    )
    preliminary = " Preliminary: too few seeds to conclude from." if found["seeds"].max() < 3 else ""
    by_rows = found["gain"].groupby(level="rows").mean().sort_index()
    few_rows = (
        " With few rows the gain is smaller: a model whose gain is within the noise of the validation rows is not kept."
        if by_rows.iloc[0] < by_rows.iloc[-1] / 2
        else ""
    )
    metrics = spelt(found.index.get_level_values("metric").nunique())
    return f"""The linear model on fewer rows, drawn by the seed, classes in proportion; a dataset with fewer than
{MAX_ROWS:,} rows is used in full there. Mean over {metrics} metrics, the same seeds at every size
({count_range(found["seeds"])} a cell).{few_rows}{preliminary}{left_out}

{size_table(found, rare, shares)}

![Gain against the number of rows](images/when-sizes.png)"""


def baseline_part(frame: pd.DataFrame) -> str:
    """Write the gain over every baseline, and over losses made for the same metric."""
    published = (
        " SL as published has no warm-up, the paper's surrogate, sets of 100 rows, half of them positive, and ten"
        " refining steps a round, in as many model steps. It differs from the paper in these points: features are"
        " standardised, gradients are not clipped, the model's learning rate is that of the other methods and the"
        " surrogate's is 1e-3 (both 1e-5 in the paper), there are 2,000 rounds instead of 300,000, the best of 40"
        " checkpoints is chosen on validation rows, and thresholds are exact, in training and after it, instead of the"
        " best of 100 percentiles."
        if PUBLISHED in frame
        else ""
    )
    own = {(metric, name): at(gains(frame, name), metric=metric) for metric, name in MADE_FOR if name in frame.columns}
    made_for = ", ".join(
        f"`{name}` on {METRIC_LABELS[metric]} {cells['gain'].mean():+.1%} ({clearly(cells).replace(' ', '')})"
        for (metric, name), cells in own.items()
        if len(cells)
    )
    trees = (
        " If a tree ensemble is an option, try it first: on tables the kind of model often matters more than the loss."
        if BOOSTED in frame
        else ""
    )
    return f"""Mean share of the baseline's loss that SL-R saves (at least -100 %), over cells and seeds that both have;
"clearly" means by more than one standard error over seeds. Every hand-made loss has the same splits, warm-up, steps,
restart and choice of checkpoint and threshold on validation rows; cost-sensitive tries six weights.{published}

{baseline_table(frame)}

A loss made by hand for the same metric can be as good as a learned one, or better. What SL-R saves against each
(clearly better:worse): {made_for}.{trees}"""


def measured_part(sizes: Sequence[int]) -> str:
    """Write which commands, rows and code made all this."""
    paths = [RESULTS / FILE, *([SIZES / FILE] if sizes else []), PARTS, COLLAPSE]
    names = ["win", *(["sizes"] if sizes else []), "ablations.parquet", "collapse.parquet"]
    of_sizes = (
        f" `python -m studies.win.run --rows {','.join(map(str, sizes))} --models linear --methods sl-r,cross-entropy"
        " --results results/sizes`,"
        if sizes
        else ""
    )
    return f"""`python -m studies.win.run` (at most {MAX_ROWS:,} rows of a dataset, drawn by the seed, classes in
proportion; seeds from 100 on; honest protocol: features standardised on training rows, checkpoint and threshold chosen
on validation rows, test rows used once),{of_sizes} `python -m studies.ablations.run`,
`python -m studies.collapse.run`, and this page by `python -m studies.when_it_helps.page`. Every run is stored with its
provenance, in {listed(f"`results/{name}`" for name in names)}. {provenance(*paths)} Decisions
[13](decisions/0013-cross-entropy-competes.md), [14](decisions/0014-anchor-less.md) and
[24](decisions/0024-every-part-left-out-once.md) describe what else was tried."""


# ---- the page, the pictures and the README -------------------------------------------------------------------------


def page() -> str:
    """Return the page; every number on it comes from the results."""
    frame, records, sizes = losses(RESULTS), read_records(RESULTS), Store(SIZES / FILE).exists
    found, shares = gains(frame), shares_of(records)
    of_sizes = read_records(SIZES) if sizes else []
    by_size = size_part(size_gains(RESULTS, SIZES), rare_rows([*of_sizes, *records]), shares) if sizes else ""
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

{by_size}

## Against every baseline

{baseline_part(frame)}

## Can the surrogates be trusted?

On fresh sets of the model at the end of training: the Spearman correlation of surrogate and metric, and the cosine
between the surrogate's gradient and that of the smoothed metric, estimated by probing. `history_` of an estimator has
both at every check, and a warning is shown when they are too low. Where a model already gets the top right (P@0.02),
sets hardly differ and a correlation means little.

{fidelity_table(records)}

## What is each part of the recipe worth?

{recipe_part()}

## Does it ever collapse?

{short_part(list(Store(COLLAPSE)))}

![Short runs: gain by prevalence, and rise over the start](images/when-short-runs.png)

## How it was measured

{measured_part(sorted({record.setting.rows for record in of_sizes}))}
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
        enough = [rare[dataset, rows] >= MIN_RARE_ROWS for rows, dataset, *_ in of_sizes.index]
        pictures["when-sizes"] = draw_sizes(of_sizes[enough], shares_of(records))
    for name, picture in pictures.items():
        picture.savefig(IMAGES / f"{name}.png", dpi=130)


def rich_gain(found: pd.DataFrame) -> float:
    """Return the share of the loss that the surrogate saves the largest network."""
    return float(at(found, model=models_of(found)[-1])["gain"].mean())


def readme_part(found: pd.DataFrame) -> str:
    """Return the table of situations."""
    return situations.table(rich_gain(found), "docs/") + "\n"


if __name__ == "__main__":
    draw()
    PAGE.write_text(page(), "utf-8")
    part = readme_part(gains(losses(RESULTS)))
    README.write_text(in_place(README.read_text("utf-8"), "situations", part), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}, its pictures, and its part of README.md")
