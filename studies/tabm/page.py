"""Write docs/tabm.md and its picture from results/tabm: python -m studies.tabm.page"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from studies.pages import DOCS, count_range, in_place, markdown, spelt, versions, wrapped
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE, PICTURE = FOLDER / "tabm.jsonl", DOCS / "tabm.md", DOCS / "images" / "tabm.svg"
METRICS = ("f1", "average_precision")
MLP, TABM, TREES = "mlp", "tabm", "LightGBM"
MODELS = (MLP, TABM, TREES)
BY_CROSS_ENTROPY, NO_NORM = "tabm, model of the least cross-entropy", "tabm, no batch norm"
RANDOM, PLAIN = "tabm, ramps that start at random", "tabm, features as they are"
ABLATIONS = (BY_CROSS_ENTROPY, NO_NORM, RANDOM, PLAIN)
FOLDED = {"tabm, five folds": "tabm", "LightGBM, five folds": "lightgbm"}
"""`MetricClassifier` with these models, by the names they are stored under."""
ABLATED = ("satimage", "page_blocks", "jm1", "us_crime", "wine_quality", "yeast", "ijcnn1", "covtype")
DEVELOPED = (*ABLATED, "letter_img", "susy")
"""Tables on whose validation rows, by the split of another seed, settings were chosen."""
FIRST_SEED = 400
TIE, LEAST = 0.002, 0.01
"""Losses that differ by less are tied; shares of losses below `LEAST` are not counted in the mean of shares."""
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
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)


def part(path: Path = RESULTS) -> str:
    """Return the measured part of the page."""
    records = list(Store(path))
    found = losses(records)
    names = found.index.get_level_values("table").unique()
    return wrapped(f"""
{_verdict(found)}

![Loss of tabm against those of the network and of LightGBM](images/tabm.svg)

{summary(found, [(TABM, MLP), (TABM, TREES), (MLP, TREES)])}

Loss saved by the first of two models; cells are a table and a metric. Cells where the other model loses less than
{LEAST} are left out of mean and median; losses that differ by at most {TIE} are tied.

{_kept(records)}

## Without one of its parts

{_ablations(records)}

## Every table

{table(found)}

Test losses, 1 - metric, means over {count_range(found["seeds"])} seeds of {len(names)} tables, from {FIRST_SEED} on;
{records[-1]["command"]}, {versions(records)}.""")


def _verdict(found: pd.DataFrame) -> str:
    """Say what was to be reached, and what was."""
    said, fresh = [], found[~found.index.get_level_values("table").isin(DEVELOPED)]
    for other, target in TARGETS.items():
        s = saved(found, other)
        reached = {name: "reached" if s[name] >= target else "missed" for name in ("sum", "mean")}
        wanted = f"at least {target:.0f} % less" if target > 0 else f"at most {-target:.0f} % more"
        said.append(
            f"Against {other} it has **{_less(s['sum'])} loss** over all cells, in the mean of the cells "
            f"{_less(s['mean'])} (± {s['error']:.1f}), in the median cell {_less(s['median'])}. The target, {wanted}, "
            f"was {reached['sum']} by the first measure and {reached['mean']} by the second. On the {len(fresh)} cells "
            f"of tables that nothing was chosen on it has {_less(saved(fresh, other)['sum'])}."
        )
    return " ".join(said)


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
        return "Not measured yet."
    head = ["tabm against", "tables", "of the summed loss", "mean of cells", "median", "better : tied : worse"]
    few = spelt(max(int(row[1]) for row in shown))
    return (
        f"{markdown(head, shown)}\n\nLoss saved by the model as it is, at most {few} tables, one seed: small numbers."
    )


def page() -> str:
    """Return the page with its measured part as it is stored."""
    return in_place(PAGE.read_text("utf-8"), "measured", part())


def main() -> None:
    draw(losses(Store(RESULTS)))
    PAGE.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
