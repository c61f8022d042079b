"""Write docs/strategies.md from results/strategies: python -m studies.strategies.page"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from studies.pages import DOCS, in_place, markdown, versions, wrapped
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "strategies.jsonl", DOCS / "strategies.md"
METRICS = ("f1", "average_precision", "mcc", "partial_auc(0.05)", "precision_at(0.02)", "recall_at_precision(0.9)")
PAPER = ("a9a", "ccfraud", "codrna", "covtype", "ijcnn1", "porto", "skin", "susy")
MODELS = ("linear", "additive", "small", "mlp")
MARGINS = (0.0, 0.5, 1.0)
DEVELOPMENT = (
    *("abalone_binarized", "auction", "climate_simulation_crashes", "graduation", "kc1", "letter_img", "mammography"),
    *("ozone_level", "page_blocks", "covtype", "ijcnn1", "skin"),
)
"""Tables on which strategies and rules were looked at while they were built."""
MARGIN = "0.5 SE"
"""The rule of the package."""
WORST = -10
"""Per cent: no cell should lose more."""
TIE = 0.2
"""Per cent of a loss below which two models are level."""


def frame_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a row for every run: shares of the loss of a single model that strategies and rules save, in per cent."""
    rows = []
    for record in records:
        base, alone = record["single"], record["alone"]
        if base <= 0:
            continue
        losses = {
            **alone,
            **{f"choice, {margin}": alone[name] for margin, name in record["choice"].items()},
            **{f"without, {margin}": alone[name] for margin, name in record["choice_without_surrogate"].items()},
            **{name: record[name] for name in ("interpolated", "bag", "averaged")},
        }
        saved = {name: 100 * (1 - loss / base) for name, loss in losses.items()}
        rows.append({**record["run"], **saved, "chosen": record["choice"][MARGIN], "cpu": record["cpu"]})
    return pd.DataFrame(rows)


def summary(saved: pd.Series) -> list[str]:
    """Return mean and standard error, median, and the cells that are better, level and worse, and the worst."""
    known = saved.dropna()
    better, worse = int((known > TIE).sum()), int((known < -TIE).sum())
    counts = f"{better} : {len(known) - better - worse} : {worse}"
    return [f"{known.mean():.1f} ± {known.sem():.1f}", f"{known.median():.1f}", counts, f"{known.min():.0f}"]


HEAD = ["mean, %", "median", "better : level : worse", "worst cell"]
RULES = {
    "choice, 0 SE": "one choice, pooled over folds: the least loss",
    "choice, 0.5 SE": "the same, but proper unless better by half a standard error (**the package**)",
    "choice, 1 SE": "the same, by one standard error",
    "bag": "each fold's own choice",
    "interpolated": "between proper and the best, the share chosen on held-out rows",
    "averaged": "the mean of all strategies",
}
STRATEGIES = ("proper", "weighted", "hand-made", "direct", "sl-r")


def strategies_table(frame: pd.DataFrame) -> str:
    """Return what each strategy saves alone, by model."""
    rows = [
        [f"{name}, {model}", *summary(own[name])]
        for model, own in frame.groupby("model", sort=False)
        for name in STRATEGIES
        if name in own and own[name].notna().any()
    ]
    return markdown(["five folds by", *HEAD], rows)


def rules_table(frame: pd.DataFrame) -> str:
    """Return what each rule of choice saves, over all models."""
    return markdown(["rule", *HEAD], [[text, *summary(frame[name])] for name, text in RULES.items()])


def default_table(frame: pd.DataFrame) -> str:
    """Return what the package's rule saves, by model and by metric, and on tables that nothing was looked at on."""
    rule = f"choice, {MARGIN}"
    rows = [[f"{model}", *summary(own[rule])] for model, own in frame.groupby("model", sort=False)]
    rows += [[get_metric(metric).label, *summary(own[rule])] for metric, own in frame.groupby("metric", sort=False)]
    seen = frame["dataset"].isin(DEVELOPMENT)
    rows += [["development tables", *summary(frame[rule][seen])]] if seen.any() else []
    rows += [["other tables", *summary(frame[rule][~seen])]] if (~seen).any() else []
    return markdown(["default", *HEAD], [*rows, ["all", *summary(frame[rule])]])


def bars_table(frame: pd.DataFrame) -> str:
    """Return how often the package's rule is worse than a single model, over tables, metrics and models."""
    rows = []
    for name, own in [*frame.groupby("model", sort=False), ("all", frame)]:
        seeds = own.groupby(["dataset", "metric", "model"])[f"choice, {MARGIN}"].agg(["mean", "sem", "size"])
        judged = seeds[seeds["size"] > 1]
        worse = int((judged["mean"] + judged["sem"] < 0).sum())
        share = f"{worse} of {len(judged)} ({100 * worse / len(judged):.0f} %)" if len(judged) else ""
        below = int((judged["mean"] < WORST).sum())
        rows.append([str(name), *summary(seeds["mean"]), share, f"{below} of {len(judged)}" if len(judged) else ""])
    return markdown(["cells", *HEAD, "worse by more than a standard error", f"below {WORST} %"], rows)


def hindsight_table(frame: pd.DataFrame) -> str:
    """Return what one strategy for all cells saves, the usual loss where it does not apply, beside the choice."""
    everywhere = pd.DataFrame({name: frame[name].fillna(frame["proper"]) for name in STRATEGIES if name in frame})
    chosen, rows = frame[f"choice, {MARGIN}"], []
    for model, own in [*everywhere.groupby(frame["model"], sort=False), ("all", everywhere)]:
        best = own.mean().idxmax()
        behind = chosen[own.index] - own[best]
        rows.append(
            [
                str(model),
                *(f"{value:.1f}" for value in own.mean()),
                f"{chosen[own.index].mean():.1f}",
                f"{behind.mean():+.1f} ± {behind.sem():.1f} against {best}",
            ]
        )
    return markdown(["model", *everywhere.columns, "chosen", "chosen, against the best in hindsight"], rows)


def surrogate_table(frame: pd.DataFrame) -> str:
    """Return what is saved without the surrogate among the strategies, and the difference."""
    rows = []
    for name, own in [*frame.groupby("model", sort=False), ("all", frame)]:
        with_it, without = own[f"choice, {MARGIN}"], own[f"without, {MARGIN}"]
        difference = (with_it - without).dropna()
        kept = int((own["chosen"] == "sl-r").sum())
        rows.append(
            [
                str(name),
                f"{with_it.mean():.1f}",
                f"{without.mean():.1f}",
                f"{difference.mean():+.1f} ± {difference.sem():.1f}",
                f"{kept} of {len(own)}",
            ]
        )
    return markdown(["model", "with, %", "without, %", "difference", "surrogate chosen"], rows)


def page() -> str:
    """Return the page with the tables of what is stored."""
    records = list(Store(RESULTS))
    frame = frame_of(records)
    chosen = Counter(frame["chosen"])
    made = (
        f"{len(frame)} cells: {frame['dataset'].nunique()} tables, {frame['metric'].nunique()} metrics, "
        f"{frame['seed'].nunique()} seed(s); {versions(records)}. Chosen: "
        + ", ".join(f"{name} {count}" for name, count in chosen.most_common())
        + "."
    )
    text = PAGE.read_text(encoding="utf-8")
    for name, part in (
        ("made", wrapped(made)),
        ("default", default_table(frame) + "\n"),
        ("bars", bars_table(frame) + "\n"),
        ("rules", rules_table(frame) + "\n"),
        ("hindsight", hindsight_table(frame) + "\n"),
        ("strategies", strategies_table(frame) + "\n"),
        ("surrogate", surrogate_table(frame) + "\n"),
    ):
        text = in_place(text, name, part)
    return text


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
