"""Write docs/strategies.md from results/strategies: python -m studies.strategies.page"""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import pandas as pd
from packaging.version import Version

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
LEAST_MEAN, LEAST_MEDIAN, MOST_WORSE, WORST = 5.0, 2.5, 3.0, -10.0
"""Per cent, the bars: saved in the mean and in the median, cells that may be worse, and the least that any saves."""
TIE = 0.2
"""Per cent of a loss below which two models are level."""


def newest(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the records of the newest version of the package: runs of different code are not mixed."""
    last = max(Version(record["run"]["version"]) for record in records)
    return [record for record in records if Version(record["run"]["version"]) == last]


def frame_of(records: list[dict[str, Any]]) -> pd.DataFrame:
    """Return a row for every run: shares of the loss of a single model that strategies and rules save, in per cent."""
    rows = []
    for record in newest(records):
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


def cells_of(frame: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return `mean`, `sem` and `size` over the seeds of what every cell saves."""
    known = frame.dropna(subset=column)
    return known.groupby(["dataset", "metric", "model"], sort=False)[column].agg(["mean", "sem", "size"])


def clearly_worse(cells: pd.DataFrame) -> tuple[int, int]:
    """Return how many cells lose more than a standard error over their seeds, and how many have several seeds."""
    judged = cells[cells["size"] > 1]
    return int((judged["mean"] + judged["sem"] < 0).sum()), len(judged)


def summary(frame: pd.DataFrame, column: str) -> list[str]:
    """Return mean, its error over cells, and median; cells better, level, worse and clearly so; and the worst."""
    cells = cells_of(frame, column)
    saved = cells["mean"]
    better, worse = int((saved > TIE).sum()), int((saved < -TIE).sum())
    counts = f"{better} : {len(saved) - better - worse} : {worse}"
    clearly, judged = clearly_worse(cells)
    mean = f"{saved.mean():.1f} ± {saved.sem():.1f}"
    return [mean, f"{saved.median():.1f}", counts, f"{clearly} of {judged}", f"{saved.min():.0f}"]


HEAD = ["mean, %", "median", "better : level : worse", "clearly worse", "worst cell"]
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
        [f"{name}, {model}", *summary(own, name)]
        for model, own in frame.groupby("model", sort=False)
        for name in STRATEGIES
        if name in own and own[name].notna().any()
    ]
    return markdown(["five folds by", *HEAD], rows)


def rules_table(frame: pd.DataFrame) -> str:
    """Return what each rule of choice saves, on tables that nothing was looked at on, and in the mean on the others."""
    seen = frame["dataset"].isin(DEVELOPMENT)
    rows = [
        [text, f"{cells_of(frame[seen], name)['mean'].mean():.1f}", *summary(frame[~seen], name)]
        for name, text in RULES.items()
    ]
    return markdown(["rule", "development tables, %", *HEAD], rows)


def default_table(frame: pd.DataFrame) -> str:
    """Return what the package's rule saves, by model and by metric, and on tables that nothing was looked at on."""
    rule, seen = f"choice, {MARGIN}", frame["dataset"].isin(DEVELOPMENT)
    parts = [(str(model), own) for model, own in frame.groupby("model", sort=False)]
    parts += [(get_metric(str(metric)).label, own) for metric, own in frame.groupby("metric", sort=False)]
    parts += [("development tables", frame[seen]), ("other tables", frame[~seen]), ("all", frame)]
    return markdown(["default", *HEAD], [[name, *summary(own, rule)] for name, own in parts])


class Bar(NamedTuple):
    """What is wanted of the default, what was found, and whether that is enough; None if it cannot be judged."""

    text: str
    found: str
    met: bool | None

    @property
    def cells(self) -> list[str]:
        """The bar as a line of a table."""
        return [self.text, self.found, "not judged" if self.met is None else "met" if self.met else "**missed**"]


def bars_of(frame: pd.DataFrame) -> list[Bar]:
    """Return the bars by the runs of one model, or of all."""
    cells = cells_of(frame, f"choice, {MARGIN}")
    mean, median, worst = cells["mean"].mean(), cells["mean"].median(), cells["mean"].min()
    worse, judged = clearly_worse(cells)
    share = 100 * worse / max(judged, 1)
    best, behind, error = against_hindsight(frame)
    return [
        Bar(
            f"saves at least {LEAST_MEAN:g} % in the mean",
            f"{mean:.1f} ± {cells['mean'].sem():.1f} %",
            mean >= LEAST_MEAN,
        ),
        Bar(f"and {LEAST_MEDIAN:g} % in the median", f"{median:.1f} %", median >= LEAST_MEDIAN),
        Bar(
            f"worse by more than a standard error over seeds in at most {MOST_WORSE:g} % of cells",
            f"{worse} of {judged} ({share:.0f} %)",
            share <= MOST_WORSE if judged else None,
        ),
        Bar(
            f"no cell below {WORST:g} %",
            f"{int((cells['mean'] < WORST).sum())} below, the worst {worst:.0f} %",
            worst >= WORST,
        ),
        Bar(
            "level with the best single strategy in hindsight",
            f"{behind:+.1f} ± {error:.1f} against {best}",
            behind >= -error,
        ),
    ]


def bars_table(frame: pd.DataFrame) -> str:
    """Return which bars the package's rule meets, by model, and against direct search for linear models."""
    rows = [[str(name), *bar.cells] for name, own in frame.groupby("model", sort=False) for bar in bars_of(own)]
    linear = frame[frame["model"] == "linear"]
    if len(linear) and "direct" in linear:
        behind, error = difference(linear, "direct")
        found = f"{behind:+.1f} ± {error:.1f}"
        rows.append(["linear", *Bar("not behind direct search by more than an error", found, behind >= -error).cells])
    return markdown(["model", "bar", "found", ""], rows, left=4)


def difference(frame: pd.DataFrame, strategy: str) -> tuple[float, float]:
    """Return how much more the choice saves than one strategy, in the mean over cells, and the error of that.

    Where the strategy does not apply, the usual loss stands in for it.
    """
    behind = frame[f"choice, {MARGIN}"] - frame[strategy].fillna(frame["proper"])
    cells = cells_of(frame.assign(behind=behind), "behind")["mean"]
    return float(cells.mean()), float(cells.sem())


def against_hindsight(frame: pd.DataFrame) -> tuple[str, float, float]:
    """Return the strategy that saves most by test rows, how much more the choice saves, and the error of that."""
    known = [name for name in STRATEGIES if name in frame]
    found = {name: difference(frame, name) for name in known}
    best = min(known, key=lambda name: found[name][0])
    return best, *found[best]


def hindsight_table(frame: pd.DataFrame) -> str:
    """Return what one strategy for all cells saves, the usual loss where it does not apply, beside the choice."""
    known, rows = [name for name in STRATEGIES if name in frame], []
    for model, own in [*frame.groupby("model", sort=False), ("all", frame)]:
        filled = own.assign(**{name: own[name].fillna(own["proper"]) for name in known})
        means = [cells_of(filled, name)["mean"].mean() for name in (*known, f"choice, {MARGIN}")]
        best, behind, error = against_hindsight(own)
        told = f"{behind:+.1f} ± {error:.1f} against {best}"
        rows.append([str(model), *(f"{value:.1f}" for value in means), told])
    return markdown(["model", *known, "chosen", "chosen, against the best in hindsight"], rows)


def surrogate_table(frame: pd.DataFrame) -> str:
    """Return what is saved without the surrogate among the strategies, and the difference."""
    rows, chosen, without = [], f"choice, {MARGIN}", f"without, {MARGIN}"
    for name, own in [*frame.groupby("model", sort=False), ("all", frame)]:
        means = [cells_of(own, column)["mean"].mean() for column in (chosen, without)]
        gain, error = surrogate_adds(own)
        kept = int((own["chosen"] == "sl-r").sum())
        told = f"{gain:+.1f} ± {error:.1f}"
        rows.append([str(name), *(f"{value:.1f}" for value in means), told, f"{kept} of {len(own)}"])
    return markdown(["model", "with, %", "without, %", "difference", "surrogate chosen, runs"], rows)


def surrogate_adds(frame: pd.DataFrame) -> tuple[float, float]:
    """Return how much more is saved with the surrogate among the strategies, in the mean over cells, and its error."""
    added = frame[f"choice, {MARGIN}"] - frame[f"without, {MARGIN}"]
    cells = cells_of(frame.assign(added=added), "added")["mean"]
    return float(cells.mean()), float(cells.sem())


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
