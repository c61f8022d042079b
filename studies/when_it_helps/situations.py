"""The table of situations in the README and docs/when-it-helps.md: what to use, and the stored number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pandas as pd

from metricgrad.evaluation.store import Store
from studies.auto import page as auto
from studies.calls import page as calls
from studies.deep import cells as deep_cells
from studies.deep import page as deep
from studies.money import page as money
from studies.numbers import page as numbers
from studies.pages import listed, markdown
from studies.ranking import page as ranking
from studies.strategies import cells as strategies
from studies.targets import page as targets


class Situation(NamedTuple):
    """What a user has, what to do, what that was worth, and the page of docs/, or its part, that has the rest."""

    have: str
    use: str
    measured: str
    page: str


def situations(rich: float) -> list[Situation]:
    """Return all situations; `rich` is the share of the loss that the surrogate saves a network on two classes."""
    return [
        Situation(
            "two classes, a large network or boosted trees",
            'the usual loss and the exact threshold: `best_threshold`, or `method="cross-entropy"`',
            f"training for the metric saved a network {100 * rich:.1f} % of the loss",
            "when-it-helps#the-learned-surrogate-on-two-classes",
        ),
        Situation(
            "two classes, a model that must be small or readable",
            '`model="linear"` or `"additive"`',
            _strategies(),
            "strategies",
        ),
        Situation(
            "a table, and any model will do",
            "`TableClassifier` or `metricgrad fit`, LightGBM among the candidates",
            _auto(),
            "auto",
        ),
        Situation(
            "amounts, costs of each row or groups in the metric",
            "`columns=`, with any model",
            _money(),
            "money",
        ),
        Situation(
            "numbers judged by a cost or a tolerance",
            "`MetricRegressor`; of a table `TableRegressor`, LightGBM among the candidates",
            _numbers(),
            "numbers",
        ),
        Situation("many classes, a linear model", '`MetricClassifier("macro_f1")`', _classes(), "targets"),
        Situation(
            "a metric that is a function of your own, perhaps slow",
            "`black_box(fn, max_calls=300)`",
            _boxes(),
            "calls",
        ),
        Situation(
            "your own network, in your own loop",
            "`SurrogateLoss`, early in training; where a loss was made for the metric, that",
            _networks(),
            "deep",
        ),
        Situation("rankings", "LambdaRank (LightGBM), unless the metric is your own", _rankings(), "ranking"),
    ]


def table(rich: float, folder: str = "") -> str:
    """Return the table in Markdown, with links to pages in a folder."""
    rows = []
    for one in situations(rich):
        page, mark, part = one.page.partition("#")
        rows.append([one.have, one.use, one.measured, f"[{page}]({folder}{page}.md{mark}{part})"])
    return markdown(["you have", "use", "measured", "page"], rows, left=4)


def _strategies() -> str:
    frame = strategies.frame_of(list(Store(strategies.RESULTS)))
    others = frame[~frame["dataset"].isin(strategies.DEVELOPMENT)]
    saved = strategies.cells_of(others, f"choice, {strategies.MARGIN}")["mean"]
    models = listed(others["model"].unique())
    return (
        f"{saved.mean():.1f} ± {saved.sem():.1f} % of the loss of one model by cross-entropy + threshold in the mean, "
        f"{saved.median():.1f} % in the median ({len(saved)} cells of {models} models, tables not "
        "developed on)"
    )


def _auto() -> str:
    losses = auto.losses(auto.frame_of(list(Store(auto.RESULTS))), "f1")
    single, folded = (auto.saved(losses, "auto", other) for other in ("lightgbm", "lightgbm, five folds"))
    counts = f"{folded['better']} better, {folded['level']} level, {folded['worse']} worse"
    share = f"{folded['mean']:+.1f} ± {folded['error']:.1f} %"
    saved = f"F1: saved {share} of the loss of LightGBM + threshold by five folds"
    rest = f"{folded['median']:+.1f} % in the median, {folded['total']:+.1f} % of the summed loss; {counts}"
    return f"{saved} in the mean, {rest} (of one LightGBM {single['mean']:+.1f} ± {single['error']:.1f} %)"


def _money() -> str:
    found = money.frame_of()
    told = []
    for model in ("linear", "additive", "lightgbm"):
        own = found[(found["cell"] == "churn") & (found["model"] == model)]
        gain = own["default"] - own["proper"]
        told.append(f"{money.MODELS[model]} {gain.mean():+.3f} ± {gain.sem():.3f}")
    return f"churn with costs of each row, savings over cross-entropy + threshold: {', '.join(told)}"


def _numbers() -> str:
    found, cell = numbers.outcomes(), numbers.COSTS[0]
    shares = {
        title: numbers.gain(found, cell, model, numbers.USUAL) / numbers.of(found, cell, model, numbers.USUAL)
        for model, title in (("linear", "linear model"), ("mlp", "network"))
    }
    told = [f"{title} {100 * share.mean():.1f} ± {100 * share.sem():.1f} %" for title, share in shares.items()]
    return f"saved of the cost of squared error with its best constant, bikes: {', '.join(told)}"


def _classes() -> str:
    found: pd.DataFrame = targets.cells(Store(targets.RESULTS))
    row = found.loc[("letter", "macro_f1")]
    return f"letter, macro F1: {row['difference']:+.3f} ± {row['error']:.3f} over cross-entropy with tuned offsets"


def _rankings() -> str:
    found = ranking.compared(ranking.losses(ranking.RESULTS), ("lambdarank",))
    better = int((found["difference"] > found["error"] + 1e-12).sum())
    worse = len(ranking.worse(found))
    return f"better than LambdaRank by more than a standard error in {better} of {len(found)} cells, worse in {worse}"


def _networks() -> str:
    frame = deep_cells.frame_of(deep_cells.records_of(deep_cells.RESULTS))
    pictures, segments = deep_cells.CELLS[0], deep_cells.CELLS[3]
    best = deep.against(frame, pictures, deep_cells.best_rival(frame, pictures))
    return (
        f"pictures with 1 % of positives, AP: {deep.against(frame, pictures)}, {best}; segments, IoU: "
        f"{deep.against(frame, segments)}"
    )


def _boxes() -> str:
    few = calls.reached(calls.gains_of(list(Store(calls.RESULTS))))[calls.LIMITS[0]]
    return (
        f"{len(few) - 2} functions, {calls.LIMITS[0]} calls: {few['mean']:+.1f} % over the proxy in the mean, "
        f"{few['median']:+.1f} % in the median"
    )


TITLES = {
    "small": "network of 30 units, strategies compete",
    "mlp": "network of 100-30-10 units, strategies compete",
}
"""What networks are called; those of another study were compared with cross-entropy alone."""


def regimes(networks: Mapping[str, float]) -> str:
    """Return what the surrogate adds by regime; `networks` are shares of the loss that it saves some of them."""
    frame = strategies.frame_of(list(Store(strategies.RESULTS)))
    rows = []
    models = [(TITLES.get(str(model), f"{model} model"), own) for model, own in frame.groupby("model", sort=False)]
    before = strategies.older(frame).groupby("model", sort=False)
    for title, own in [*models, *((f"{model} model (runs of 0.1.0)", own) for model, own in before)]:
        added, error = strategies.surrogate_adds(own)
        rows.append([title, "two classes, labels only", f"{added:+.1f} ± {error:.1f} % of the loss"])
    for title, share in networks.items():
        rows.append(
            [
                f"network of {title}",
                "two classes, labels only",
                f"{100 * share:+.1f} % of the loss (over cross-entropy alone)",
            ]
        )
    found = numbers.outcomes()
    for model, title in (("linear", "linear model"), ("mlp", "network of 100-30-10 units")):
        for cell in numbers.COSTS:
            usual = numbers.of(found, cell, model, numbers.USUAL)
            share = 100 * numbers.gain(found, cell, model, numbers.LONGER) / usual
            told = f"{share.mean():+.1f} ± {share.sem():.1f} % of the cost (with direct search)"
            rows.append([title, f"numbers: {numbers.TITLES[cell]}", told])
    boxes = calls.reached(calls.gains_of(list(Store(calls.RESULTS)))).loc["mean"]
    for limit in (calls.LIMITS[0], calls.LIMITS[-1]):
        told = f"{boxes[limit]:+.1f} % of the value (over the proxy alone)"
        rows.append(["linear model", f"a function of your own, {limit:,} calls", told])
    return markdown(["model", "metric", "what the surrogate adds"], rows, left=3)
