"""Write docs/tabm.md and its picture from results/tabm: python -m studies.tabm.page"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from studies.pages import DOCS, count_range, in_place, listed, markdown, spelt, versions, wrapped, write_svg
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE, PICTURE = FOLDER / "tabm.jsonl", DOCS / "tabm.md", DOCS / "images" / "tabm.svg"
METRICS = ("f1", "average_precision")
MLP, TABM, TREES = "mlp", "tabm", "LightGBM"
MODELS = (MLP, TABM, TREES)
BY_METRIC, NO_NORM = "tabm, checkpoints by the metric", "tabm, no batch norm"
RANDOM, PLAIN = "tabm, ramps that start at random", "tabm, features as they are"
ABLATIONS = (BY_METRIC, NO_NORM, RANDOM, PLAIN)
TABM_FOLDS, TREES_FOLDS, MLP_FOLDS = "tabm, five folds", "LightGBM, five folds", "mlp, five folds"
FOLDED = {TABM_FOLDS: "tabm", TREES_FOLDS: "lightgbm", MLP_FOLDS: "mlp"}
"""`MetricClassifier` with these models, by the names they are stored under."""
ABLATED = ("satimage", "page_blocks", "jm1", "us_crime", "wine_quality", "yeast", "ijcnn1", "covtype")
DEVELOPED = (
    *(*ABLATED, "letter_img", "susy", "satellite", "pc1", "thyroid_disease", "vowel", "chess", "optical_digits"),
    *("wilt", "mammography", "kc1", "seismic_bumps", "graduation", "climate_simulation_crashes"),
)
"""Tables by some of whose rows settings were chosen, by the splits of other seeds."""
FIRST_SEED, TABLES = 400, 38
TIE, LEAST = 0.002, 0.01
"""Losses that differ by less are tied; shares of losses below `LEAST` are not counted in the mean of shares."""
DRAWS = 2_000
"""Of tables, with replacement, for intervals."""
TARGETS = {MLP: 8.0, TREES: -3.0}
"""Percent of the loss of another model that were to be saved."""


def losses(records: Iterable[dict[str, Any]], models: Iterable[str] = MODELS) -> pd.DataFrame:
    """Return the mean test loss by table and metric of models over the seeds that all of them have, and the seeds."""
    frame = pd.DataFrame([{**record["run"], "loss": record["loss"]} for record in records])
    wide = frame.pivot_table(index=["table", "metric", "seed"], columns="model", values="loss")
    wide = wide.reindex(columns=list(models)).dropna()
    grouped = wide.groupby(level=["table", "metric"])
    return grouped.mean().assign(seeds=grouped.size())


def saved(found: pd.DataFrame, other: str, own: str = TABM) -> dict[str, float]:
    """Return percent of the loss of another model saved, in all, as mean and median of the cells, and who is ahead."""
    share = 100 * (1 - found[own] / found[other])
    counted, gain = share[found[other] >= LEAST], found[other] - found[own]
    return {
        "sum": 100 * (1 - found[own].sum() / found[other].sum()),
        "mean": counted.mean(),
        "error": counted.sem(),
        "median": counted.median(),
        "better": int((gain > TIE).sum()),
        "tied": int((gain.abs() <= TIE).sum()),
        "worse": int((gain < -TIE).sum()),
    }


def interval(found: pd.DataFrame, other: str, measure: str, own: str = TABM) -> tuple[float, float]:
    """Return the 95 % interval of a measure of what is saved, by the bootstrap over tables."""
    numbers, names = pd.factorize(found.index.get_level_values("table"))
    ours, theirs = found[own].to_numpy(), found[other].to_numpy()
    counts = np.random.default_rng(0).multinomial(len(names), np.full(len(names), 1 / len(names)), DRAWS)[:, numbers]
    if measure == "sum":
        drawn = 1 - counts @ ours / (counts @ theirs)
    else:
        counts = counts * (theirs >= LEAST)
        share = 1 - ours / np.maximum(theirs, LEAST)
        drawn = counts @ share / np.maximum(counts.sum(1), 1)
    low, high = np.percentile(100 * drawn, [2.5, 97.5])
    return float(low), float(high)


def summary(found: pd.DataFrame, pairs: Iterable[tuple[str, str]]) -> str:
    """Write a row for each pair of models and each metric, and both together."""
    rows = []
    for own, other in pairs:
        for metric in (*METRICS, None):
            cells = found if metric is None else found.xs(metric, level="metric")
            s = saved(cells, other, own)
            shown = [f"{s['sum']:+.1f} %", f"{s['mean']:+.1f} ± {s['error']:.1f} %", f"{s['median']:+.1f} %"]
            label = "both" if metric is None else get_metric(metric).label
            counts = [f"{s['better']} : {s['tied']} : {s['worse']}", f"{100 * s['tied'] / len(cells):.0f} %"]
            rows.append([f"{own} against {other}", label, *shown, *counts])
    head = ["models", "metric", "of the summed loss", "mean of cells", "median", "better : tied : worse", "ties"]
    return markdown(head, rows, left=2)


def table(found: pd.DataFrame) -> str:
    """Write the loss of every model on every table."""
    rows = []
    for name, cells in found.groupby(level="table"):
        row = [str(name).replace("_", "\\_")]
        for metric in METRICS:
            values = [cells.loc[(name, metric), model] if (name, metric) in cells.index else None for model in MODELS]
            least = min((value for value in values if value is not None), default=None)
            row += ["" if v is None else f"**{v:.3f}**" if v == least else f"{v:.3f}" for v in values]
        rows.append(row)
    head = ["table", *(f"{get_metric(metric).label}: {model}" for metric in METRICS for model in MODELS)]
    return markdown(head, rows)


def draw(found: pd.DataFrame) -> None:
    """Draw the loss of tabm against that of the others, a dot for a table and metric."""
    figure, both = plt.subplots(1, 2, figsize=(7.6, 3.8), layout="constrained", sharey=True)
    for axes, other in zip(both, (MLP, TREES), strict=True):
        for metric, colour in zip(METRICS, ("#1f4e79", "#c55a11"), strict=True):
            cells = found.xs(metric, level="metric")
            dots = (cells[other].clip(lower=1e-3), cells[TABM].clip(lower=1e-3))
            axes.scatter(*dots, s=16, color=colour, label=get_metric(metric).label)
        axes.plot([1e-3, 1], [1e-3, 1], color="black", lw=0.6)
        axes.set(xscale="log", yscale="log", xlabel=f"test loss of {other}")
    both[0].set_ylabel("test loss of tabm")
    both[0].legend(frameon=False)
    write_svg(figure, PICTURE)
    plt.close(figure)


def part(path: Path = RESULTS) -> str:
    """Return the measured part of the page."""
    records = list(Store(path))
    found = losses(records)
    names = found.index.get_level_values("table").unique()
    return wrapped(f"""
![Loss of tabm against those of the network and of LightGBM](images/tabm.svg)

{summary(found, [(TABM, MLP), (TABM, TREES), (MLP, TREES)])}

Loss saved by the first of two models; cells are a table and a metric. Cells where the other model loses less than
{LEAST} are left out of mean and median; losses that differ by at most {TIE} are tied.

{_kept(records)}

{_ablations(records)}## Five folds

{_folded(records)}

## Every table

{table(found)}

Test losses, 1 - metric, means over {_seeds(found)} of {len(names)} tables, from {FIRST_SEED} on;
`python -m studies.tabm.run`, {versions(records)}.""")


def verdict(path: Path = RESULTS) -> str:
    """Say what was to be reached, by which measure it was, and on how much that rests."""
    found = losses(Store(path))
    tables = len(found.index.get_level_values("table").unique())
    runs = f"{_seeds(found)} of {tables} of {TABLES} tables, the smallest first, F1 and average precision"
    said = [_against(found, other, target) for other, target in TARGETS.items()]
    fresh = found[~found.index.get_level_values("table").isin(DEVELOPED)]
    apart = [f"{_less(saved(fresh, other)['sum'])} than {other}" for other in TARGETS] if len(fresh) else []
    ending = f" On the {len(fresh)} cells of tables that nothing was chosen on: {listed(apart)}." if apart else ""
    missing = f" The other {TABLES - tables} tables have not been run with this network." if tables < TABLES else ""
    tried = " What was tried, kept and dropped is at the end."
    return wrapped(f"Measured on {runs}. {' '.join(said)}{ending}{missing}{_as_it_comes(path)}{tried}")


def _as_it_comes(path: Path) -> str:
    """Write what tabm saves of the loss of mlp with the five folds that are its default."""
    found = losses(Store(path), (TABM_FOLDS, MLP, TABM))
    if found.empty:
        return ""
    tables = len(found.index.get_level_values("table").unique())
    s, (low, high) = saved(found, MLP, TABM_FOLDS), interval(found, MLP, "mean", TABM_FOLDS)
    return (
        f" With five folds, the default, on {spelt(tables)} of the {TABLES} tables: in the mean of the cells "
        f"{_less(s['mean'])} than mlp on one split ({low:+.1f} to {high:+.1f}). On the same tables tabm on one split "
        f"has {_less(saved(found, MLP)['mean'])}; mlp with five folds was not run."
    )


def _against(found: pd.DataFrame, other: str, target: float) -> str:
    s = saved(found, other)
    met = {name: "met" if s[name] >= target else "missed" for name in ("sum", "mean", "median")}
    ends = {name: " to ".join(f"{end:+.1f}" for end in interval(found, other, name)) for name in ("sum", "mean")}
    wanted = f"at least {target:.0f} % less" if target > 0 else f"at most {-target:.0f} % more"
    return (
        f"Against {other} the bar was {wanted} loss: in sum tabm has **{_less(s['sum'])}** (saved, 95 %: "
        f"{ends['sum']}; {met['sum']}), in the mean of the cells **{_less(s['mean'])}** ({ends['mean']}; "
        f"{met['mean']}), in the median cell {_less(s['median'])} ({met['median']}); better, tied and worse in "
        f"{s['better']}, {s['tied']} and {s['worse']} cells."
    )


def _folded(records: list[dict[str, Any]]) -> str:
    """Write what tabm saves as it comes, with five folds, on the tables where both it and another model were run."""
    rows, counts = [], []
    for other in (MLP, MLP_FOLDS, TREES, TREES_FOLDS, TABM):
        found = losses(records, (TABM_FOLDS, other))
        if found.empty:
            continue
        s, names = saved(found, other, TABM_FOLDS), found.index.get_level_values("table").unique()
        ends = " to ".join(f"{end:+.1f}" for end in interval(found, other, "mean", TABM_FOLDS))
        shown = [f"{s['sum']:+.1f} %", f"{s['mean']:+.1f} ± {s['error']:.1f} %", ends, f"{s['median']:+.1f} %"]
        rows.append([_once(other), f"{len(names)}", *shown, f"{s['better']} : {s['tied']} : {s['worse']}"])
        counts.append(len(names))
    if not rows:
        return "Not measured yet."
    head = ["against", "tables", "of the summed loss", "mean of cells", "95 % of it", "median", "better : tied : worse"]
    measured = any(row[0] == MLP_FOLDS for row in rows)
    fair = "" if measured else " mlp with five folds was not run: a part of what is saved is owed to the folds."
    few = "" if max(counts) == TABLES else f", on {spelt(max(counts))} of the smallest of {TABLES} tables only"
    return (
        f'Loss saved by `MetricClassifier(model="tabm")` as it comes, whose strategies compete on five folds of '
        f"training and validation rows, of which the average is used{few}; F1 and average precision, one seed. The bar "
        f"of {TARGETS[MLP]:.0f} % was set against mlp on a single split.{fair}\n\n{markdown(head, rows)}"
    )


def _once(model: str) -> str:
    return model if model in FOLDED else f"{model}, one split"


def _seeds(found: pd.DataFrame) -> str:
    counts = count_range(found["seeds"])
    return "one seed" if counts == "1" else f"{counts} seeds"


def _less(share: float) -> str:
    return f"{abs(share):.1f} % {'less' if share >= 0 else 'more'}"


def _kept(records: list[dict[str, Any]]) -> str:
    frame = pd.DataFrame([{**r["run"], **{name: r[name] for name in ("kept", "seconds")}} for r in records])
    frame = frame[frame["model"].isin(MODELS)]
    followed = frame[frame["model"] != TREES].groupby("model")["kept"].apply(lambda kept: (kept == "surrogate").mean())
    seconds = frame.groupby("model")["seconds"]
    times = ", ".join(f"{m} {seconds.median()[m]:.1f} (at most {seconds.max()[m]:.0f})" for m in MODELS)
    return (
        f"The model that followed the surrogate was kept in {100 * followed[TABM]:.0f} % of the fits of tabm and in "
        f"{100 * followed[MLP]:.0f} % of those of mlp. CPU seconds for both metrics, from one warm-up, on a busy "
        f"machine, median: {times}."
    )


def _ablations(records: list[dict[str, Any]]) -> str:
    known = {record["run"]["model"] for record in records}
    pairs, shown = [(TABM, name) for name in ABLATIONS if name in known], []
    for own, other in pairs:
        found = losses(records, (own, other))
        s = saved(found, other, own)
        tables = len(found.index.get_level_values("table").unique())
        values = [f"{s['sum']:+.1f} %", f"{s['mean']:+.1f} ± {s['error']:.1f} %", f"{s['median']:+.1f} %"]
        shown.append([other, f"{tables}", *values, f"{s['better']} : {s['tied']} : {s['worse']}"])
    if not shown:
        return ""
    head = ["tabm against", "tables", "of the summed loss", "mean of cells", "median", "better : tied : worse"]
    few = spelt(max(int(row[1]) for row in shown))
    return (
        f"## Without one of its parts\n\n{markdown(head, shown)}\n\nLoss saved by the model as it is, at most {few} "
        "tables, one seed: small numbers.\n\n"
    )


def page() -> str:
    """Return the page with its measured part as it is stored."""
    text = in_place(PAGE.read_text("utf-8"), "verdict", verdict())
    return in_place(text, "measured", part())


def main() -> None:
    draw(losses(Store(RESULTS)))
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
