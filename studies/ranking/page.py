"""Write docs/ranking.md from what `benchmarks/ranking.py` stored, and from nothing else."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from metricgrad.evaluation.store import Store
from metricgrad.metrics.registry import get_metric

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "ranking.jsonl"
PAGE = ROOT / "docs" / "ranking.md"
OURS, TREES = "sl-r", "lightgbm"
BY_HAND = ("ranknet", "listnet", "lambdarank")
SAID = {OURS: "metricgrad", "ranknet": "RankNet", "listnet": "ListNet", "lambdarank": "LambdaRank", TREES: "LightGBM"}
CELL = ["dataset", "metric", "model"]
EXAMPLE = """```python
import numpy as np
from metricgrad import MetricRanker

rng = np.random.default_rng(0)
X = rng.normal(size=(600, 5))  # documents
y = (X[:, 0] + 0.5 * rng.normal(size=600)).round().clip(0, 3)  # grades: 0 is irrelevant
group = [12] * 50  # sizes of consecutive queries; or qid=, the query of every row
ranker = MetricRanker("ndcg(10)", model="linear").fit(X, y, group=group)
order = np.argsort(-ranker.predict(X[:12]))  # the first query, best document first
print(f"{ranker.score(X, y, group=group):.2f}", ranker.verdict_)
```"""


def losses(path: Path) -> pd.DataFrame:
    """Return test losses by dataset, metric, model and seed, a column for each method; trees beside every model."""
    rows = [{**record["run"], "loss": record["loss"]} for record in Store(path)]
    frame = pd.DataFrame(rows).drop_duplicates([*CELL, "seed", "method"], keep="last")
    trees = frame[frame["method"] == TREES]
    others = frame[frame["method"] != TREES]
    beside = [trees.assign(model=model) for model in others["model"].unique()]
    return pd.concat([others, *beside]).pivot_table(index=[*CELL, "seed"], columns="method", values="loss")


def compared(frame: pd.DataFrame, rivals: tuple[str, ...]) -> pd.DataFrame:
    """Compare with the best of some rivals in every cell, over the seeds all have: positive is better than it.

    The best is the one with the least mean test loss: chosen in hindsight, which favours it.
    """
    whole = frame[[OURS, *rivals]].dropna()
    found = []
    for cell, own in whole.groupby(level=CELL):
        best = min(rivals, key=lambda rival: own[rival].mean())
        saved = own[best] - own[OURS]
        error = float(saved.sem()) if len(saved) > 1 else 0.0
        found.append((*cell, best, float(saved.mean()), error, len(saved)))
    return pd.DataFrame(found, columns=[*CELL, "best", "difference", "error", "seeds"]).set_index(CELL)


def worse(found: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that lose more by more than one standard error over seeds."""
    return found[found["difference"] < -found["error"] - 1e-12]


def value_table(frame: pd.DataFrame) -> str:
    """Write the mean value of every method in every cell, and the difference from the best loss made by hand."""
    means, by_hand = frame.groupby(level=CELL).mean(), compared(frame, BY_HAND)
    lines = [
        f"| data | metric | model | {' | '.join(SAID.values())} | against the best by hand |",
        "|---|---|---|" + "---:|" * (len(SAID) + 1),
    ]
    for cell, own in means.iterrows():
        dataset, name, model = cell
        metric = get_metric(name)
        values = [f"{metric.value(own[method]):.4f}" for method in SAID]
        against = by_hand.loc[cell]
        shown = f"{against['difference']:+.4f} ± {against['error']:.4f}"
        lines.append(f"| {dataset} | {metric.label} | {model} | {' | '.join(values)} | {shown} |")
    return "\n".join(lines)


def against(frame: pd.DataFrame, rivals: tuple[str, ...], name: str) -> str:
    """Say how it fares against some rivals, and where it is worse."""
    found = compared(frame, rivals)
    bad = worse(found)
    better = int((found["difference"] > found["error"] + 1e-12).sum())
    cells = [
        f"{dataset} {get_metric(metric).label} {model} ({one.difference:+.4f} ± {one.error:.4f})"
        for (dataset, metric, model), one in zip(bad.index, bad.itertuples(), strict=True)
    ]
    where = f": {', '.join(cells)}" if cells else ""
    return (
        f"- Against {name}: {found['difference'].mean():+.4f} on average; better by more than a standard error in "
        f"{better} of {len(found)} cells, worse by more than one in {len(bad)}{where}."
    )


def page(path: Path = RESULTS) -> str:
    """Write the page; every number on it comes from the results."""
    frame, records = losses(path), list(Store(path))
    ours = [record for record in records if record["run"]["method"] == OURS]
    followed = sum(record["followed"] for record in ours) / len(ours)
    cosines = pd.Series([record["cosine"] for record in ours], dtype=float)
    seeds = sorted({record["run"]["seed"] for record in records})
    made = sorted({f"metricgrad {r['made_by']['metricgrad']}, {r['made_by']['date']}" for r in records})
    return f"""# Ranking

`MetricRanker` orders the documents of a query by a model that is trained for the metric of the order. A set is a query;
its documents have grades.

{EXAMPLE}

Metrics: `ndcg(k)` (gain 2^grade - 1, discount log2(1 + rank)), `map` and `mrr` (every grade above 0 is relevant) and
`err(max_grade)`. Documents of equal score count as in random order: the value is the average over all orders of ties. A
query whose documents all have one grade tells nothing and is left out of training and of means; scikit-learn counts one
without relevant documents as the worst, LightGBM as the best, so that their means differ from ours by a constant.

Methods: `"sl-r"`, which learns the loss and keeps LambdaRank's model unless its own wins on validation queries by more
than a standard error; `"lambdarank"`, `"listnet"` and `"ranknet"`, followed by the same trainer after the same start.

## Does it help?

Mean over seeds {seeds[0]} to {seeds[-1]} on test queries (split 60/20/20 by query), higher is better. The last column
is the mean gain over the best of the three hand-made losses in that cell, chosen in hindsight, and its standard error
over seeds. The model of LightGBM (lambdarank) is trees in either row.

{value_table(frame)}

{against(frame, BY_HAND, "the best hand-made loss of each cell, chosen in hindsight")}
{against(frame, ("lambdarank",), "LambdaRank")}
{against(frame, ("listnet",), "ListNet")}
{against(frame, ("ranknet",), "RankNet")}
{against(frame, (TREES,), "LightGBM's lambdarank")}
- The learned loss was kept in {followed:.0%} of the runs, LambdaRank's model in the others. At the end the cosine
  between the surrogate's gradient and that of the smoothed metric was {cosines.median():.2f} in the median run.

Where a single seed differs, the mean is off by exactly one standard error, and is counted neither way.

The tables are small: some fifty queries choose a checkpoint and some fifty judge it, so that differences below 0.01
mean little.

Made by `{ours[-1]["command"]}` ({"; ".join(made)}); runs are stored in `results/ranking.jsonl`.
"""
