"""Write docs/money.md from results/money: python -m studies.money.page"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from metricgrad.evaluation.store import Store
from studies.pages import DOCS, ROOT, commands, count_range, listed, markdown, versions, wrapped
from studies.pages import RESULTS as FOLDER

RESULTS, PAGE = FOLDER / "money.jsonl", DOCS / "money.md"
CELLS = {
    "fraud-2": ("fraud", "value_at_capacity(0.02, amount)"),
    "churn": ("churn", "savings(c_fp, c_fn, c_tp, c_tn)"),
    "fair": ("income", "f1 - equal_opportunity_gap(sex)"),
    "fraud-0.5": ("fraud", "value_at_capacity(0.005, amount)"),
    "worst": ("income", "group_min(f1, sex)"),
    "loans": ("loans", "sum(amount * tp) - 0.2 * sum(amount * fp)"),
}
TITLES = {
    "fraud-2": "frauds: share of the money in 2 % of the payments",
    "fraud-0.5": "frauds: share of the money in 0.5 % of the payments",
    "churn": "churn: savings, costs of each row",
    "fair": "incomes: F1 less the gap of recall between the sexes",
    "worst": "incomes: F1 of the sex where it is lower",
    "loans": "loans: instalments of defaults found, less a fifth of those of false alarms, a row",
}
COLUMNS = {
    "proper": "cross-entropy + threshold",
    "plug-in": "plug-in rule",
    "cost-weighted": "weighted by cost",
    "direct": "direct search",
    "sl-r": "surrogate",
    "by hand": "p x money",
    "empulse": "empulse",
    "default": "chosen",
}
BY_HAND = "by hand"
MODELS = {"linear": "linear", "additive": "additive", "mlp": "network", "lightgbm": "LightGBM"}
BARS = {"fraud-2": 0.928, "churn": 0.179}
"""Values by LightGBM, weighted by cost or empulse's, on other splits, in an older note of this project."""


def frame_of(path: Path = RESULTS) -> pd.DataFrame:
    """Return a row for every run: the value on test rows of every strategy, of empulse, and of the choice."""
    names = {spec: name for name, spec in CELLS.items()}
    rows: list[dict[str, Any]] = []
    for record in Store(path):
        run, rivals = record["run"], record["rivals"]
        packaged = [value for name, value in rivals.items() if name != BY_HAND]
        rows.append(
            {
                "cell": names[run["table"], run["metric"]],
                "model": run["model"],
                "seed": run["seed"],
                **record["each"],
                BY_HAND: rivals.get(BY_HAND, float("nan")),
                "empulse": packaged[0] if packaged else float("nan"),
                "default": record["default"],
                "judged": record["judged"],
                "chosen": record["chosen"],
            }
        )
    return pd.DataFrame(rows)


def table_of(own: pd.DataFrame) -> str:
    """Return the values of one cell, a line for each model, the mean and its standard error over seeds."""
    there = [name for name in COLUMNS if name in own and own[name].notna().any()]
    rows = []
    for model, title in MODELS.items():
        runs = own[own["model"] == model]
        if len(runs):
            whole = [runs[name].dropna() if name in runs else pd.Series(dtype=float) for name in there]
            cells = [_with_error(each) if len(each) == len(runs) else "" for each in whole]
            rows.append([title, *cells])
    return markdown(["model", *(COLUMNS[name] for name in there)], rows)


def _with_error(values: pd.Series) -> str:
    error = f" ± {values.sem():.3f}" if len(values) > 1 else ""
    return f"{values.mean():.3f}{error}"


def bars(frame: pd.DataFrame) -> str:
    """Return where the choice is behind the best of the others that all seeds have, by more than a standard error."""
    behind, count = [], 0
    for (cell, model), own in frame.groupby(["cell", "model"], sort=False):
        there = [name for name in COLUMNS if name in own and name != "default" and own[name].notna().all()]
        best = max(there, key=lambda name: own[name].mean())
        gap = own[best] - own["default"]
        count += 1
        error = gap.sem() if len(gap) > 1 else 0.0
        if gap.mean() > error + 1e-9:
            behind.append(f"{cell}, {MODELS[model]} ({COLUMNS[best]}, {_with_error(gap)})")
    found = listed(behind) if behind else "none"
    return (
        f"Behind the best of the others, chosen in hindsight, by more than a standard error: {found}; of {count} cells."
    )


def best_model(own: pd.DataFrame) -> pd.DataFrame:
    """Return, for every seed that all models have, the run of the model whose choice is best on held-out rows."""
    whole = own.groupby("seed").filter(lambda runs: len(runs) == own["model"].nunique())
    return whole.loc[whole.groupby("seed")["judged"].idxmax()] if len(whole) else whole


def models_compared(frame: pd.DataFrame) -> str:
    """Return what the best model by held-out rows is worth, in the cells that have a bar."""
    told = []
    for cell, bar in BARS.items():
        chosen = best_model(frame[frame["cell"] == cell])
        if len(chosen):
            kinds = listed(f"{MODELS[name]} {count}" for name, count in chosen["model"].value_counts().items())
            seeds = "split" if len(chosen) == 1 else "splits"
            value = _with_error(chosen["default"])
            told.append(f"{cell} {value} ({len(chosen)} {seeds}: {kinds}; bar {bar:.3f})")
    return listed(told)


def not_run(frame: pd.DataFrame) -> str:
    """Return which cells have no runs of which models."""
    told = []
    for cell in CELLS:
        known = set(frame.loc[frame["cell"] == cell, "model"])
        absent = [title for model, title in MODELS.items() if model not in known]
        if absent:
            told.append(f"{cell} ({'all models' if not known else listed(absent)})")
    return f"Not run: {listed(told)}." if told else ""


def page(path: Path = RESULTS) -> str:
    """Return the page; every number on it comes from the results."""
    frame, records = frame_of(path), list(Store(path))
    parts = []
    for name in (name for name in CELLS if name in set(frame["cell"])):
        own = frame[frame["cell"] == name]
        kept = listed(f"{COLUMNS[strategy]} {count}" for strategy, count in own["chosen"].value_counts().items())
        title = f"## {TITLES[name][0].upper()}{TITLES[name][1:]}"
        parts.append(f"{title}\n\n`{CELLS[name][1]}`\n\n{table_of(own)}\n\nChosen: {kept}.")
    seeds = count_range(frame.groupby(["cell", "model"]).size())
    return wrapped(
        f"""# Money and groups

Metrics that know more of a row than its class: an amount, the costs of its errors, its group. One fit of
`MetricClassifier(method="auto")` on 60 % of the rows trains every strategy on five folds; values on the other 40 %,
looked at once. Higher is better. Mean and standard error over splits (seeds of a cell: {seeds}; without an error, one).
*Chosen* is what the fit returns; an empty cell was dropped on the way, or does not apply. empulse is CSLogit beside
linear models, CSBoost beside trees, with the threshold that is best on a fifth of the training rows. *p x money* is the
expected gain of a call by calibrated probabilities of cross-entropy, written down by hand.

{bars(frame)}

If the model is chosen too, by held-out rows among those of a cell: {models_compared(frame)}. The bars are what
LightGBM, weighted by cost, and empulse's CSBoost had on other splits.

Few rows carry the money, so held-out rows mislead: by a metric with columns the rule that follows from the metric comes
first, and each strategy must be better than it, and than every simpler one, by two standard errors ([decision
53](decisions/0053-what-follows-from-the-metric-comes-first.md)). This was settled on splits by other seeds (up to 307).
All splits share the rows of one table, so their rows are not new, but no value on the test rows of these splits was
looked at before.

{not_run(frame)}

"""
        + "\n\n".join(parts)
        + f"""

{commands(records)}; {versions(records)}.
"""
    )


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
