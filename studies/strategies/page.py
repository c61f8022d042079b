"""Write docs/strategies.md from results/strategies: python -m studies.strategies.page"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from studies.pages import DOCS, in_place, markdown, versions, wrapped
from studies.strategies.bars import bars_table
from studies.strategies.cells import (
    DEVELOPMENT,
    MARGIN,
    PACKAGE,
    RESULTS,
    RULE_RESULTS,
    STRATEGIES,
    TIE,
    against_hindsight,
    cells_of,
    clearly_worse,
    frame_of,
    newest,
    older,
    surrogate_adds,
)

PAGE = DOCS / "strategies.md"
SHOWN_WORST = 5
"""Cells that are named."""
HEAD = ["mean, %", "median", "better : level : worse", "clearly worse", "worst cell"]
RULES = {
    "choice, 0 SE": "one choice, pooled over folds: the least loss",
    "choice, 0.5 SE": "the same, but proper unless better by half a standard error (**the package**)",
    "choice, 1 SE": "the same, by one standard error",
    "bag": "each fold's own choice",
    "interpolated": "between proper and the best, the share chosen on held-out rows",
    "averaged": "the mean of all strategies",
}
OTHER_RULES = {
    "few": "proper unless better by one standard error with fewer than 100 held-out positives, else by half",
    "root": "proper unless better by half a standard error, times 1 + 10 / root of held-out positives",
    "crossed": "the package's rule, each fold decided by the threshold that is best on the others",
    "near": "the best, averaged with proper if it is ahead by less than two standard errors",
}
"""Rules of `other_rules.py`."""


def summary(frame: pd.DataFrame, column: str) -> list[str]:
    """Return mean, its error over cells, and median; cells better, level, worse and clearly so; and the worst."""
    cells = cells_of(frame, column)
    saved = cells["mean"]
    better, worse = int((saved > TIE).sum()), int((saved < -TIE).sum())
    counts = f"{better} : {len(saved) - better - worse} : {worse}"
    clearly, judged = clearly_worse(cells)
    mean = f"{saved.mean():.1f} ± {saved.sem():.1f}"
    return [mean, f"{saved.median():.1f}", counts, f"{clearly} of {judged}", f"{saved.min():.0f}"]


def strategies_table(frame: pd.DataFrame) -> str:
    """Return what each strategy saves alone, by model."""
    rows = [
        [f"{name}, {model}", *summary(own, name)]
        for model, own in frame.groupby("model", sort=False)
        for name in STRATEGIES
        if name in own and own[name].notna().any()
    ]
    return markdown(["five folds by", *HEAD], rows)


def with_other_rules(frame: pd.DataFrame, records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return the runs that other rules were tried on, with what these save."""
    keys = ["dataset", "metric", "model", "seed", "version"]
    losses = pd.DataFrame([{**record["run"], **{name: record[name] for name in OTHER_RULES}} for record in records])
    found = frame.merge(losses, on=keys)
    for name in OTHER_RULES:
        found[name] = 100 * (1 - found[name] / found["single"])
    return found


def rules_table(frame: pd.DataFrame) -> str:
    """Return what each rule of choice saves on development and on other tables, and there against the package's."""
    seen, package = frame["dataset"].isin(DEVELOPMENT), PACKAGE
    rows = []
    for name, text in {**RULES, **{name: text for name, text in OTHER_RULES.items() if name in frame}}.items():
        parts = [
            cells_of(frame.assign(more=frame[name] - frame[package])[part], "more")["mean"] for part in (seen, ~seen)
        ]
        told = ["" if name == package else f"{own.mean():+.1f} ± {own.sem():.1f}" for own in parts]
        saved = f"{cells_of(frame[seen], name)['mean'].mean():.1f}"
        rows.append([text, saved, told[0], *summary(frame[~seen], name), told[1]])
    head = ["rule", "development tables, %", "against the package's", *(f"others: {name}" for name in HEAD)]
    return markdown([*head, "against the package's"], rows)


MIXED = {
    PACKAGE: "the best strategy, proper unless it is better by half a standard error (**the package**)",
    "choice, 0 SE": "the best strategy, whatever the margin",
    "mixture": "a mixture of strategies, found step by step",
    "averaged": "the mean of all strategies",
}


def mixtures_table(frame: pd.DataFrame) -> str:
    """Return what rules save on the runs whose models were mixed too, and how much more than a single strategy."""
    known, rows = frame.dropna(subset="mixture"), []
    seen, single = known["dataset"].isin(DEVELOPMENT), PACKAGE
    for model, own in known.groupby("model", sort=False):
        for name, text in MIXED.items():
            more = own.assign(more=own[name] - own[single])
            told = [
                "" if name == single or not part.any() else _told(cells_of(more[part], "more")["mean"])
                for part in (seen[own.index], ~seen[own.index])
            ]
            rows.append([str(model), text, *summary(own, name), *told])
    head = ["model", "rule", *HEAD, "more than a single strategy (better : worse): development tables", "other tables"]
    return markdown(head, rows, left=2)


def _told(more: pd.Series) -> str:
    """Return how much more is saved, with its error, and in how many cells it is more and less."""
    return f"{more.mean():+.1f} ± {more.sem():.1f} ({int((more > TIE).sum())} : {int((more < -TIE).sum())})"


def default_table(frame: pd.DataFrame) -> str:
    """Return what the package's rule saves, by model and by metric, and on tables that nothing was looked at on."""
    rule, seen = PACKAGE, frame["dataset"].isin(DEVELOPMENT)
    parts = [(str(model), own) for model, own in frame.groupby("model", sort=False)]
    parts += [(get_metric(str(metric)).label, own) for metric, own in frame.groupby("metric", sort=False)]
    parts += [("development tables", frame[seen]), ("other tables", frame[~seen]), ("all", frame)]
    parts += [(f"{model}, by 0.1.0", own) for model, own in older(frame).groupby("model", sort=False)]
    return markdown(["default", *HEAD], [[name, *summary(own, rule)] for name, own in parts])


def hindsight_table(frame: pd.DataFrame) -> str:
    """Return what one strategy for all cells saves, the usual loss where it does not apply, beside the choice."""
    known, rows = [name for name in STRATEGIES if name in frame], []
    for model, own in [*frame.groupby("model", sort=False), ("all", frame)]:
        filled = own.assign(**{name: own[name].fillna(own["proper"]) for name in known})
        means = [cells_of(filled, name)["mean"].mean() for name in (*known, PACKAGE)]
        best, behind, error = against_hindsight(own)
        told = f"{behind:+.1f} ± {error:.1f} against {best}"
        rows.append([str(model), *(f"{value:.1f}" for value in means), told])
    return markdown(["model", *known, "chosen", "chosen, against the best in hindsight"], rows)


def surrogate_table(frame: pd.DataFrame) -> str:
    """Return what is saved without the surrogate among the strategies, and the difference."""
    rows, chosen, without = [], PACKAGE, f"without, {MARGIN}"
    for name, own in [*frame.groupby("model", sort=False), ("all", frame)]:
        means = [cells_of(own, column)["mean"].mean() for column in (chosen, without)]
        gain, error = surrogate_adds(own)
        kept = int((own["chosen"] == "sl-r").sum())
        told = f"{gain:+.1f} ± {error:.1f}"
        rows.append([str(name), *(f"{value:.1f}" for value in means), told, f"{kept} of {len(own)}"])
    return markdown(["model", "with, %", "without, %", "difference", "surrogate chosen, runs"], rows)


def worst_cells(frame: pd.DataFrame) -> str:
    """Return which cells lose most, with the positives among their training rows."""
    cells = cells_of(frame, PACKAGE)["mean"].nsmallest(SHOWN_WORST)
    positives = frame.groupby(["dataset", "metric", "model"])["positives"].mean()
    told = (
        f"{dataset} ({get_metric(metric).label}, {model}, {positives[dataset, metric, model]:.0f}) {saved:.0f} %"
        for (dataset, metric, model), saved in cells.items()
    )
    return wrapped(f"The worst cells, with the positives among their training rows: {', '.join(told)}.")


def seeds_table(frame: pd.DataFrame) -> str:
    """Return how many tables there are by how many seeds, by model and metric."""
    runs = frame.groupby(["model", "metric", "dataset"], sort=False)["seed"].nunique()
    counts = runs.groupby(["model", "metric"], sort=False).value_counts().unstack(fill_value=0).sort_index(axis=1)
    head = ["model", "metric", *(f"tables by {seeds} seed{'s' * (seeds > 1)}" for seeds in counts)]
    rows = [
        [model, get_metric(metric).label, *map(str, own)]
        for (model, metric), own in zip(counts.index, counts.to_numpy(), strict=True)
    ]
    return markdown(head, rows, left=2)


def page() -> str:
    """Return the page with the tables of what is stored."""
    records = newest(list(Store(RESULTS)))
    frame = frame_of(records)
    chosen = Counter(frame["chosen"])
    made = (
        f"{len(frame)} runs: {frame['dataset'].nunique()} tables, {frame['metric'].nunique()} metrics, "
        f"{frame['seed'].nunique()} seeds at most; {versions(records)}. Chosen: "
        + ", ".join(f"{name} {count}" for name, count in chosen.most_common())
        + "."
    )
    looked_at = [
        str(name) for name, own in frame.groupby("model", sort=False) if own["dataset"].isin(DEVELOPMENT).all()
    ]
    made += f" On development tables alone: {', '.join(looked_at)}." if looked_at else ""
    text = PAGE.read_text(encoding="utf-8")
    for name, part in (
        ("made", f"{wrapped(made)}\n{seeds_table(frame)}"),
        ("default", default_table(frame) + "\n"),
        ("bars", f"{bars_table(frame)}\n\n{worst_cells(frame)}"),
        ("rules", rules_table(with_other_rules(frame, list(Store(RULE_RESULTS)))) + "\n"),
        ("mixtures", mixtures_table(frame) + "\n"),
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
