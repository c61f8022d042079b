"""The section on parts of the recipe of docs/when-it-helps.md, which `python -m studies.when_it_helps.page` writes."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from metricgrad.evaluation.statistics import holm
from studies.ablations.run import DEFAULT, RESULTS, VARIANTS, cells, worth
from studies.pages import listed, markdown, spelt
from studies.when_it_helps.tables import METRIC_LABELS, MODEL_LABELS
from studies.win.gains import CELL, MODELS


def recipe_part(path: Path = RESULTS) -> str:
    """Write what each change of the recipe does, and which changes are significant."""
    found = cells(path)
    table = worth(found)
    changes = table.drop(DEFAULT)
    certain = changes["more"][[p < 0.05 for p in holm(changes["p"].tolist())]]
    better, not_better = (_counted(int(number)) for number in ((certain > 0).sum(), (certain < 0).sum()))
    datasets = listed(found.index.unique("dataset"))
    seeds = spelt(found.index.unique("seed").size)
    count = found.xs(DEFAULT).groupby(level=CELL).ngroups
    metrics = listed(METRIC_LABELS[metric] for metric in found.index.unique("metric"))
    return f"""The default with one part changed, on training and validation rows only: half of the validation rows
choose checkpoint and threshold, the other half is the test set; {datasets}, {count} cells of dataset, metric
({metrics}) and
model, {seeds} {"seed" if seeds == spelt(1) else "seeds"}. By model: the mean share of the loss of cross-entropy with
the
same sets, steps and restart that is saved, without selection against cross-entropy. Then the median share of the
default's own loss, the number of cells that are better or worse by more than 1 %, and p by Wilcoxon over cells. Of the
changes, {better} significantly better and {not_better} significantly worse (Holm). Means of small networks are rough:
where the loss is close to zero, as on skin, a share of it means little.

{part_table(table)}"""


def _counted(number: int) -> str:
    return "none is" if not number else f"{spelt(number)} {'is' if number == 1 else 'are'}"


def part_table(table: pd.DataFrame) -> str:
    """Write what the recipe saves without each of its parts, over its control and over the default."""
    models = [model for model in MODELS if model in table]
    ours = [f"{table.loc[DEFAULT, model]:+.1%}" for model in models]
    lines = [[f"**{VARIANTS[DEFAULT]}**", *ours, "", "", ""]]
    for variant, row in table.drop(DEFAULT).iterrows():
        saved = [f"{row[model]:+.1%}" for model in models]
        counts = f"{row['better']:.0f} : {row['worse']:.0f}"
        name = VARIANTS.get(variant, f"`{variant}`")
        lines.append([name, *saved, f"{row['more']:+.1%}", counts, f"{row['p']:.2g}"])
    heads = [MODEL_LABELS[model] for model in models]
    return markdown(["instead", *heads, "over the default", "better : worse", "p"], lines)
