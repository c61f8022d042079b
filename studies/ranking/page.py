"""Write docs/ranking.md from results/ranking: python -m studies.ranking.page"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from metricgrad.evaluation.store import Store
from metricgrad.metrics.registry import get_metric
from studies.pages import DOCS, markdown, versions
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "ranking.jsonl", DOCS / "ranking.md"
PUBLISHED_RESULTS = FOLDER / "ranking_published.jsonl"
OURS, TREES = "sl-r", "lightgbm"
BY_HAND = ("ranknet", "listnet", "lambdarank")
LABELS = {OURS: "metricgrad", "ranknet": "RankNet", "listnet": "ListNet", "lambdarank": "LambdaRank", TREES: "LightGBM"}
CELL = ["dataset", "metric", "model"]
PRINTED = {
    "CatBoost, YetiRankPairwise": 0.7148,
    "CatBoost, QueryRMSE": 0.7126,
    "CatBoost, RMSE": 0.7123,
    "CatBoost, YetiRank": 0.7114,
    "LightGBM": 0.7100,
    "XGBoost": 0.7098,
}
"""NDCG@10 of yandex_ltr in catboost/benchmarks, ranking/Readme.md: the best test value of a grid of 48 settings."""
NAMES = {
    ("lightgbm", "lambdarank"): "LightGBM, lambdarank",
    ("lightgbm", "regression"): "LightGBM, squared error",
    ("linear", "sl-r"): "`MetricRanker`, linear",
    ("additive", "sl-r"): "`MetricRanker`, additive",
    ("mlp", "sl-r"): "`MetricRanker`, network",
}
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


def compared(frame: pd.DataFrame, baselines: tuple[str, ...]) -> pd.DataFrame:
    """Compare with the best of some baselines in every cell, over the seeds all have; positive is better than it.

    The best has the lowest mean test loss: it is chosen in hindsight, which favours it.
    """
    whole = frame[[OURS, *baselines]].dropna()
    found = []
    for cell, own in whole.groupby(level=CELL):
        best = min(baselines, key=lambda baseline: own[baseline].mean())
        saved = own[best] - own[OURS]
        error = float(saved.sem()) if len(saved) > 1 else 0.0
        found.append((*cell, best, float(saved.mean()), error, len(saved)))
    return pd.DataFrame(found, columns=[*CELL, "best", "difference", "error", "seeds"]).set_index(CELL)


def worse(found: pd.DataFrame) -> pd.DataFrame:
    """Return the cells that are worse by more than one standard error over seeds."""
    return found[found["difference"] < -found["error"] - 1e-12]


def value_table(frame: pd.DataFrame) -> str:
    """Write the mean value of every method in every cell, and the difference from the best hand-made loss."""
    by_hand, rows = compared(frame, BY_HAND), []
    for cell, own in frame.groupby(level=CELL).mean().iterrows():
        dataset, name, model = cell
        metric, best = get_metric(name), by_hand.loc[cell]
        values = [f"{metric.value(own[method]):.4f}" for method in LABELS]
        rows.append([dataset, metric.label, model, *values, f"{best['difference']:+.4f} ± {best['error']:.4f}"])
    return markdown(["data", "metric", "model", *LABELS.values(), "against the best hand-made"], rows, left=3)


def against(frame: pd.DataFrame, baselines: tuple[str, ...], name: str) -> str:
    """Write the comparison with some baselines, and where it is worse."""
    found = compared(frame, baselines)
    bad = worse(found)
    better = int((found["difference"] > found["error"] + 1e-12).sum())
    cells = [
        f"{dataset} {get_metric(metric).label} {model} ({one.difference:+.4f} ± {one.error:.4f})"
        for (dataset, metric, model), one in zip(bad.index, bad.itertuples(), strict=True)
    ]
    where = f": {', '.join(cells)}" if cells else ""
    return (
        f"- Against {name}: {found['difference'].mean():+.4f} on average; better by more than one standard error in "
        f"{better} of {len(found)} cells, worse by more than one in {len(bad)}{where}."
    )


def published(path: Path = PUBLISHED_RESULTS) -> str:
    """Return where rankers trained here stand among the values that a benchmark has printed."""
    records = list(Store(path))
    frame = pd.DataFrame([{**record["run"], **record} for record in records])
    lines = [(value, [name, f"{value:.4f}", "", "printed"]) for name, value in PRINTED.items()]
    for (model, method), own in frame.groupby(["model", "method"]):
        mean, error = own["value"].mean(), own["value"].sem()
        lines.append((mean, [NAMES[model, method], f"{mean:.4f}", f"{error:.4f}", f"{own['cpu'].mean():.0f} s"]))
    rows = [cells for _, cells in sorted(lines, key=lambda line: -line[0])]
    ours = frame[frame["method"] == OURS]
    followed, seeds = int(ours["followed"].sum()), frame["seed"].nunique()
    return f"""## Beside a published benchmark

`yandex_ltr`, NDCG@10 on the test queries of CatBoost's benchmark, trained on its training queries, computed as there (a
query without relevant documents counts 1, ties are ordered worst first). Printed values are the best on test queries
over a grid of 48 settings. Ours choose everything on a fifth of the training queries ({seeds} splits of these, hence
the standard error); LightGBM is then grown again on all of them, which the others are not.

{markdown(["ranker", "NDCG@10", "standard error", "processor time"], rows)}

The learned loss was kept in {followed} of {len(ours)} runs of `MetricRanker`, LambdaRank's model in the others.

Made by `{records[-1]["command"].split(" --")[0]}` ({versions(records)})."""


def page(path: Path = RESULTS) -> str:
    """Return the page; every number on it comes from the results."""
    frame, records = losses(path), list(Store(path))
    ours = [record for record in records if record["run"]["method"] == OURS]
    followed = sum(record["followed"] for record in ours) / len(ours)
    cosines = pd.Series([record["cosine"] for record in ours], dtype=float)
    seeds = sorted({record["run"]["seed"] for record in records})
    return f"""# Ranking

`MetricRanker` trains a model that orders the documents of a query, directly for a ranking metric. A set is a query, and
its documents have grades.

{EXAMPLE}

Metrics: `ndcg(k)` (gain 2^grade - 1, discount log2(1 + rank)), `map` and `mrr` (every grade above 0 is relevant) and
`err(max_grade)`. Documents with equal scores count as in random order: the value is the average over all orders of
ties. A query whose documents all have one grade is not informative and is left out of training and of means;
scikit-learn scores a query without relevant documents as the worst, LightGBM as the best, so their means differ from
ours by a constant.

Methods: `"sl-r"`, which learns the loss and keeps LambdaRank's model unless its own validation gain exceeds one
standard error; `"lambdarank"`, `"listnet"` and `"ranknet"`, trained in the same way from the same start.

## Does it help?

Mean over seeds {seeds[0]} to {seeds[-1]} on test queries (split 60/20/20 by query), higher is better. The last column
is the mean gain over the best of the three hand-made losses in that cell, chosen in hindsight, with its standard error
over seeds. LightGBM (lambdarank) trains trees, the same in both rows.

{value_table(frame)}

{against(frame, BY_HAND, "the best hand-made loss of each cell, chosen in hindsight")}
{against(frame, ("lambdarank",), "LambdaRank")}
{against(frame, ("listnet",), "ListNet")}
{against(frame, ("ranknet",), "RankNet")}
{against(frame, (TREES,), "LightGBM's lambdarank")}
- The learned loss was kept in {followed:.0%} of the runs, LambdaRank's model in the others. At the end of training the
  median cosine between the surrogate's gradient and that of the smoothed metric was {cosines.median():.2f}.

Where only one seed differs, the mean is off by exactly one standard error and is counted neither way.

The tables are small: about fifty queries for validation and fifty for testing, so differences below 0.01 mean little.

Made by `{ours[-1]["command"]}`, which is now `python -m studies.ranking.run`
({versions(records)}); runs are stored in `results/ranking.parquet`.

{published()}
"""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
