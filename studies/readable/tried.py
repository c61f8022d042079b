"""The part of the page about what was tried to be ahead of EBM more often."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from metricgrad.evaluation.store import Store
from studies.pages import count_range, markdown, titled, versions
from studies.readable.cells import BY_FEATURE_AND_BOOSTED, DESIGNS, EBM, FOLDED, LOG_LOSS, METRICS, ahead, at, cells
from studies.readable.tables import comparison, mean_error


def designs(path: Path = DESIGNS) -> str:
    """Write what other designs save of the loss of EBM and of ours on development splits."""
    rows = [
        (record["run"]["table"], record["run"]["seed"], metric, name, loss)
        for record in Store(path)
        for name, losses in record["losses"].items()
        for metric, loss in losses.items()
    ]
    frame = pd.DataFrame(rows, columns=["table", "seed", "metric", "model", "loss"])
    found, shown = frame.pivot_table("loss", ["table", "seed", "metric"], "model"), []
    for name in [name for name in dict.fromkeys(frame["model"]) if name != "ebm"]:
        row = [name.replace("ebm", "EBM")]
        for other in ("ebm", "ours"):
            both = cells(found, name, other)
            metrics, log = both.drop(index=LOG_LOSS, level="metric"), at(both, LOG_LOSS)["saved"]
            per_table = metrics["saved"].groupby(level="table").mean()
            same = name == other
            row += ["", "", ""] if same else [f"{100 * ahead(metrics):.0f} %", mean_error(per_table), mean_error(log)]
        shown.append(row)
    head = [
        "",
        *(f"{what} {other}" for other in ("EBM", "ours") for what in ("ahead of", "saved of", "log loss saved of")),
    ]
    tables, seeds = frame["table"].nunique(), count_range(cells(found, "ours", "ebm")["seeds"])
    title = f"Means of five folds for log loss, in %, over five metrics; {tables} tables, seeds of a cell: {seeds}"
    return titled(title, markdown(head, shown))


def part(found: pd.DataFrame) -> str:
    """Write the part, given losses on test rows."""
    every = (*METRICS, LOG_LOSS)
    return TEXT.format(
        designs=designs(),
        judged=cells(found, BY_FEATURE_AND_BOOSTED, EBM).index.get_level_values("table").nunique(),
        boosting=comparison(found, BY_FEATURE_AND_BOOSTED, EBM, every),
        boosting_ours=comparison(found, BY_FEATURE_AND_BOOSTED, FOLDED, every),
        made=versions(Store(DESIGNS)),
    ).strip()


TEXT = """## What was tried to be ahead more often

**Other designs, on development splits.** All models know the training rows of a seed that no comparison uses, and are
judged on its validation rows; test rows were not looked at.

- *ours*: the additive model as it is. *By feature*: the same columns, and a ridge penalty for the line and for the
  bends of every feature, found from the training rows alone (generalised Fellner-Schall).
- *Boosted*: steps of single features in turn, at up to 64 bins a feature that are finer where the rarer class is,
  stopped by the held-out rows of each fold. A row is read once in two rounds; between, slopes are moved by the products
  of bins.
- Names joined by a plus are means of scores. *Shares by log loss* are chosen on held-out rows. The last line is no
  design: the mean with EBM itself shows what shapes as good as those of EBM would add.

{designs}

Boosted shapes are as good as EBM on some tables, in an eighth of its time, but behind it in the mean. They help where
shapes are steps (thyroid disease), and cost where they are smooth (climate simulation crashes, wilt).
First looks on seed 950, not stored: boosting greedily instead of in turn, at plain quantiles, on from the smooth model,
and knots of the smooth model where the rarer class is, were worse or no better. `python -m studies.readable.designs`,
{made}.

**On test rows.** The mean of smooth shapes by feature and boosted ones, one of the two with the least log loss on these
splits, was judged once, on {judged} of the tables (those that take longest were left out):

{boosting}

{boosting_ours}

It is level with EBM and no more often ahead, and behind our five folds in the mean, by much where classes separate
(auction, vowel). So it is not in the package. Even the mean of our model and EBM itself is ahead of EBM in less than
half of the cells above: 60 % may be more than better shapes can give.

**Earlier looks** on 27 of the smaller tables, one split of another seed, on rows in none of its test parts, not stored;
all of them the mean of five folds for log loss, beside EBM on the same rows. As it is: ahead in 55 % of the cells,
5.0 % of the loss saved.

- **Knots where a small tree of the feature cuts**, beside the quantiles: 57 %, 7.0 %. Learned from all rows instead of
  those of each fold, as the average needs them, they see held-out rows: 56 %, 4.9 %.
- **The mean with shapes that were boosted** (scikit-learn's histogram trees without interactions), which are much worse
  alone (34 %): 62 %, 7.8 %. At the knots of the model, 32 of them, where the mean is again one additive model with as
  many columns: 63 % beside 61 % without, on 22 tables, 7.4 % each.
- **Twice the bins**: as before. **Three times the folds**: 60 % beside 58 %. **Adaptive ridge**, which spares large
  rises: worse in a first look.

Additive models are unchanged.
"""
