"""Write docs/auto.md and its picture from results/auto: python -m studies.auto.page"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from studies.pages import DOCS, commands, in_place, listed, markdown, versions, wrapped, write_svg
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE, PICTURE = FOLDER / "auto.jsonl", DOCS / "auto.md", DOCS / "images" / "auto.svg"
METRICS = ("f1", "average_precision", "mcc")
PAPER = ("a9a", "ccfraud", "codrna", "covtype", "ijcnn1", "porto", "skin", "susy")
ONE, MIXTURES = "auto, one model", "mixtures"
"""`auto` where models are not mixed, and what the candidates of `auto` are called where they are."""
MODELS = (
    *("lightgbm", "lightgbm, five folds", "mlp", "readable, sl-r alone", "auto, sl-r alone", "readable"),
    *(ONE, "auto"),
)
COMPARED = (
    *(("auto", "lightgbm"), ("auto", "lightgbm, five folds"), ("auto", ONE)),
    *((ONE, "lightgbm"), (ONE, "lightgbm, five folds"), (ONE, "auto, sl-r alone"), ("readable", "lightgbm")),
)
PUBLISHED = 0.617
"""Mean F1 of fifteen models over the thirty tables and folds, with a tuned threshold (Abdelhamid and Desai 2024)."""
TIE = 0.005
"""Share of a loss below which two models are level."""


def frame_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a row for every run, and one for what it comes to where models are not mixed."""
    rows = []
    for record in records:
        run, cpu = record["run"], record["cpu"]
        mixed = MIXTURES in run.get("candidates", "")
        name = ONE if run["model"] == "auto" and not mixed else run["model"]
        rows.append({**run, "model": name, "loss": record["loss"], "cpu": cpu})
        if mixed:
            rows.append({**run, "model": ONE, "loss": record.get("one model", record)["loss"], "cpu": cpu})
    # Of one model there may be an older run too.
    rows = pd.DataFrame(rows).drop_duplicates(["dataset", "fold", "metric", "model"], keep="last").to_dict("records")
    return pd.DataFrame(rows).assign(source=lambda f: f["dataset"].isin(PAPER).map({True: "paper", False: "rt30"}))


def losses(frame: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Return the mean loss of each dataset, `(datasets, models)`, over the folds that every model of its source has."""
    own = frame[frame["metric"] == metric]
    parts = []
    for _, some in own.groupby("source"):
        wide = some.pivot_table(index=["source", "dataset", "fold"], columns="model", values="loss")
        there = [name for name in wide.columns if name != "mlp"]
        first = wide[there].dropna().groupby(level=[0, 1]).mean()
        if "mlp" in wide:
            first["mlp"] = wide["mlp"].groupby(level=[0, 1]).mean()
        parts.append(first)
    found = pd.concat(parts)
    return found[[name for name in MODELS if name in found.columns]]


def saved(found: pd.DataFrame, model: str, baseline: str) -> dict[str, float]:
    """Return what a model saves of the loss of another: mean, standard error and median in per cent, and counts."""
    both = found[[model, baseline]].dropna()
    both = both[both[baseline] > 0]
    share = 100 * (1 - both[model] / both[baseline])
    tie = share.abs() <= 100 * TIE
    return {
        "mean": float(share.mean()),
        "error": float(share.sem()),
        "median": float(share.median()),
        "better": int((~tie & (share > 0)).sum()),
        "level": int(tie.sum()),
        "worse": int((~tie & (share < 0)).sum()),
        "total": 100 * float(1 - both[model].sum() / both[baseline].sum()),
    }


def values_table(frame: pd.DataFrame) -> str:
    """Return the mean value of every model by metric and source of the data."""
    rows = []
    for metric in (one for one in METRICS if one in set(frame["metric"])):
        found, judge = losses(frame, metric), get_metric(metric)
        for source, own in found.groupby(level="source"):
            label = "thirty tables" if source == "rt30" else "the paper's datasets"
            means = [f"{judge.value(own[name].mean()):.3f}" if name in own.dropna(axis=1) else "" for name in MODELS]
            rows.append([f"{judge.label}, {label} ({len(own)})", *means])
    there = [name for name in MODELS if name in set(frame["model"])]
    rows = [[row[0], *(cell for name, cell in zip(MODELS, row[1:], strict=True) if name in there)] for row in rows]
    return markdown(["mean on test rows", *there], rows)


def against_table(frame: pd.DataFrame) -> str:
    """Return what `auto` and `readable` save of LightGBM's loss."""
    rows = []
    for model, baseline in COMPARED:
        for metric in (one for one in METRICS if one in set(frame["metric"])):
            found = losses(frame, metric)
            if not {model, baseline} <= set(found.columns):
                continue
            one = saved(found, model, baseline)
            counts = f"{one['better']} : {one['level']} : {one['worse']}"
            mean = f"{one['mean']:+.1f} ± {one['error']:.1f}"
            name = f"{model} against {baseline}, {get_metric(metric).label}"
            rows.append([name, mean, f"{one['median']:+.1f}", f"{one['total']:+.1f}", counts])
    head = ["share of the loss saved, %", "mean ± SE", "median", "of the summed loss", "better : level : worse"]
    return markdown(head, rows)


def choices(records: list[dict[str, Any]]) -> str:
    """Return how often each model was chosen."""
    chosen = Counter(
        record["results"][0]["model"] for record in records if MIXTURES in record["run"].get("candidates", "")
    )
    return listed(f"{name} in {count}" for name, count in chosen.most_common())


def part(path: Path = RESULTS) -> str:
    """Return the measured part of the page."""
    records = list(Store(path))
    frame = frame_of(records)
    published = losses(frame, "f1").loc["rt30"]
    shown = listed(f"{1 - published[name].mean():.3f} ({name})" for name in MODELS if name in published)
    folds = listed(sorted(str(fold + 1) for fold in set(frame.loc[frame["source"] == "rt30", "fold"])))
    sizes = frame.groupby(["model", "metric"])["dataset"].nunique()
    runs = {
        name: listed(
            f"{get_metric(metric).label} on {sizes[name, metric]}" for metric in METRICS if (name, metric) in sizes
        )
        for name in ("auto", ONE)
    }
    cpu = frame[frame["source"] == "rt30"].groupby("model")["cpu"].median()
    seconds = listed(f"{name} {cpu[name]:.1f}" for name in MODELS if name in cpu)
    return wrapped(f"""
{values_table(frame)}

{against_table(frame)}

- *auto* is the default (tables: {runs["auto"]}), *{ONE}* the same without mixtures ({runs[ONE]}), *readable* linear and
additive models; *sl-r alone* are runs of before strategies competed, with one method and an earlier `tabm`.
- Chosen by `auto`, in runs: {choices(records)}.
- Mean F1 over the thirty tables, on the folds of Abdelhamid and Desai (2024): {shown}; their mean over fifteen models
with a tuned threshold is {PUBLISHED}. Here: fold {folds} of their five.
- Median CPU seconds of a fit on one of the thirty tables: {seconds}.
- A difference of less than {100 * TIE:.1f} % of the loss counts as level. The mean of shares is carried by tables on
which the loss is small; the share of the summed loss is not.
- {commands(records)}; {versions(records)}.""")


def draw(path: Path = RESULTS, out: Path = PICTURE) -> None:
    """Draw the loss of `auto` and of the readable models against that of LightGBM, a point a dataset."""
    found = losses(frame_of(list(Store(path))), "f1")
    figure, axes = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
    for model, marker in (("readable", "o"), ("auto", "x")):
        axes.scatter(1 - found["lightgbm"], 1 - found[model], marker=marker, s=26, label=model, alpha=0.8)
    axes.axline((0, 0), slope=1, color="0.6", lw=1)
    axes.set(xlabel="F1 of LightGBM on test rows", ylabel="F1 of the model", xlim=(0, 1.02), ylim=(0, 1.02))
    axes.legend(frameon=False)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_svg(figure, out)
    plt.close(figure)


def page() -> str:
    """Return the page with its measured part as it is stored."""
    return in_place(PAGE.read_text("utf-8"), "measured", part())


def main() -> None:
    PAGE.write_text(page(), "utf-8")
    draw()


if __name__ == "__main__":
    main()
