"""Write docs/numbers.md from results/numbers: python -m studies.numbers.page"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from metricgrad.evaluation.store import Store
from metricgrad.metrics.registry import get_metric
from studies.numbers.cells import (
    BY_HAND,
    CHOSEN,
    COSTS,
    LONGER,
    MIXED,
    ONE_SPLIT,
    OURS,
    SURROGATE,
    TITLES,
    USUAL,
    WITHOUT,
    gain,
    latest,
    measured,
    of,
    outcomes,
    written,
)
from studies.numbers.run import AUTO, CELLS, CONTINUED, FINES, OR_MIXED, RESULTS
from studies.pages import DOCS, ROOT, count_range, listed, markdown, versions, wrapped

PAGE = DOCS / "numbers.md"
RIVALS = {
    BY_HAND: "the best loss by hand, chosen on the same held-out rows",
    LONGER: "the same where that loss may be followed as long as a surrogate is",
}
WANTED = 0.1
"""Share of the cost of squared error that the network was to save."""


def table(found: pd.DataFrame, model: str) -> str:
    """Write a row for each cell: values on test rows, and what is gained."""
    rows = []
    for cell, title in measured(found, model).items():
        columns = [written(of(found, cell, model, kind), cell) for kind in (USUAL, BY_HAND, CHOSEN)]
        gains = [written(gain(found, cell, model, over), cell, signed=True) for over in (USUAL, BY_HAND)]
        rows.append([title, *columns, *gains])
    return markdown(["", "squared error", "best loss by hand", "chosen", "over squared error", "over by hand"], rows)


def reference(found: pd.DataFrame) -> str:
    """Write a row for each cell: LightGBM, and the best of ours."""
    kinds = (USUAL, "absolute error", "quantile", CHOSEN)
    rows = []
    for cell, title in measured(found, "lightgbm").items():
        own = [written(of(found, cell, "lightgbm", kind), cell) for kind in kinds]
        rows.append([title, *own, *(written(of(found, cell, model, CHOSEN), cell) for model in OURS)])
    return markdown(["", *kinds, "linear, chosen", "network, chosen"], rows)


def learned_count(found: pd.DataFrame, model: str) -> str:
    """Write how often a learned strategy was chosen."""
    chosen = found[(found["model"] == model) & (found["kind"] == CHOSEN)]["name"]
    counts = [f"{name} in {(chosen == name).sum()}" for name in ("surrogate", "direct")]
    return f"{OURS[model].lower()}: {' and '.join(counts)} of {len(chosen)} runs"


def winners(found: pd.DataFrame, model: str) -> str:
    """Write how often each strategy was chosen."""
    chosen = found[(found["model"] == model) & (found["kind"] == CHOSEN)]
    families = chosen["name"].str.replace(r"-[\d.]+", "", regex=True).replace("mse", "squared error")
    counts = families.value_counts()
    return listed(f"{name} {count}" for name, count in counts.items())


def bars(found: pd.DataFrame) -> str:
    """Write what was wanted, and what came."""
    items = [_level(found, model, *over) for over in RIVALS.items() for model in OURS]
    items += [_cost(found, cell) for cell in COSTS]
    return "\n".join(items)


def _level(found: pd.DataFrame, model: str, rival: str, title: str) -> str:
    """Write in which cells the chosen model is ahead of a rival, or behind, by more than a standard error."""
    behind, ahead = [], []
    for cell, name in measured(found, model).items():
        own = gain(found, cell, model, rival)
        error = 1.001 * own.sem() if len(own) > 1 else 0.0  # they are equal where only one seed differs
        if own.mean() < -error:
            behind.append(f"{name} ({written(own, cell, signed=True)})")
        elif own.mean() > error:
            ahead.append(f"{name} ({written(own, cell, signed=True)})")
    parts = [f"ahead by more than a standard error: {listed(ahead) if ahead else 'none'}"]
    parts.append(f"behind: {listed(behind) if behind else 'none'}")
    return f"- {OURS[model]} against {title}: {'; '.join(parts)}."


def _cost(found: pd.DataFrame, cell: tuple[str, str]) -> str:
    """Write what share of the cost of squared error, with its constant, each model saves."""
    parts = []
    for model, title in OURS.items():
        share = gain(found, cell, model, USUAL) / of(found, cell, model, USUAL)
        error = f" ± {100 * share.sem():.1f}" if len(share) > 1 else ""
        met = f" ({'met' if share.mean() >= WANTED else 'missed'}: 10 % were wanted)" if model == "mlp" else ""
        parts.append(f"{title.lower()} {100 * share.mean():.1f}{error} %{met}")
    return f"- {TITLES[cell]}, saved over squared error with its constant: {'; '.join(parts)}."


def invented(found: pd.DataFrame) -> str:
    """Write how the surrogate did on the fines of six bands, on validation rows."""
    cell = ("bikes", FINES)
    parts = []
    for model, title in OURS.items():
        learned = of(found, cell, model, CHOSEN, "learned")
        runs = [record["surrogate"]["value"] for record in learned if "surrogate" in record]
        kept = sum(record["surrogate"]["kept"] for record in learned if "surrogate" in record)
        others = [
            min(value["value"] for name, value in record.items() if name not in ("surrogate", "direct"))
            for record in learned
            if "surrogate" in record
        ]
        lower = sum(one < other for one, other in zip(runs, others, strict=True))
        parts.append(
            f"{title.lower()}: the surrogate had the lower fine on held-out rows in {lower} of {len(runs)} seeds, by "
            f"more than the noise in {kept}"
        )
    return "; ".join(parts)


def constants(found: pd.DataFrame) -> str:
    """Write what the constant alone does to squared error."""
    parts = []
    for model, title in OURS.items():
        cell = CELLS[0]
        plain, tuned = of(found, cell, model, USUAL, "plain"), of(found, cell, model, USUAL)
        share = (plain - tuned) / plain
        less = f"{100 * share.mean():.0f} % less"
        parts.append(f"{title.lower()} {written(plain, cell)} without and {written(tuned, cell)} with it ({less})")
    return "; ".join(parts)


def added(found: pd.DataFrame) -> str:
    """Write a row for each cell and model: what the surrogate adds to the choice, and what it does alone."""
    rows = []
    for model, title in OURS.items():
        for cell, name in measured(found, model).items():
            kept = of(found, cell, model, CHOSEN, "name")
            gains = [
                written(gain(found, cell, model, over, kind), cell, signed=True)
                for over, kind in ((WITHOUT, CHOSEN), (LONGER, SURROGATE), (CHOSEN, MIXED))
            ]
            rows.append([f"{name}, {title.lower()}", f"{(kept == SURROGATE).sum()} of {len(kept)}", *gains])
    head = ["", "kept", "chosen over chosen without it", "alone over by hand, longer", "averaged with it over chosen"]
    return markdown(head, rows)


def one_split(path: Path = RESULTS) -> str:
    """Write what was chosen by one split before, and by five folds now, for the same rows and seeds."""
    before, now = outcomes(path, folded=False), outcomes(path)
    rows = []
    for model, title in OURS.items() if len(before) else ():
        for cell, name in measured(now, model).items():
            one, five = (of(each, cell, model, CHOSEN) for each in (before, now))
            both = one.index.intersection(five.index)
            if len(both):
                sign = 1 if get_metric(cell[1]).higher_is_better else -1
                values = [written(each[both], cell) for each in (one, five)]
                change = written(sign * (five[both] - one[both]), cell, signed=True)
                rows.append([f"{name}, {title.lower()}", *values, change, str(len(both))])
    return markdown(["", "one split, 0.1.0", "five folds", "gain", "seeds"], rows)


def competing(found: pd.DataFrame) -> str:
    """Write a row for each cell: the best of all models on held-out rows, and what it is ahead of on test rows."""
    rows = []
    for cell, title in measured(found, AUTO).items():
        one, mixed = (of(found, cell, AUTO, kind) for kind in (CHOSEN, OR_MIXED))
        own = mixed.reindex(one.index).fillna(one)
        others = [of(found, cell, model, CHOSEN).reindex(own.index).dropna() for model in ("linear", "mlp", "lightgbm")]
        sign = 1 if get_metric(cell[1]).higher_is_better else -1
        ahead = (sign * (own - others[-1])).dropna()
        won = of(found, cell, AUTO, CHOSEN, "won").value_counts()
        chosen = listed(f"{model} {count}" for model, count in won.items())
        values = [written(each, cell) for each in (*others, one, mixed)]
        rows.append([title, chosen, *values, written(ahead, cell, signed=True), str(len(own))])
    head = ["", "chosen", "linear", "network", "LightGBM", "auto, one model", "auto", "over LightGBM", "seeds"]
    return markdown(head, rows, left=2)


def continuation(found: pd.DataFrame) -> str:
    """Write the cost of trees by two losses, and of these continued along the same loss or along the surrogate."""
    cell, rows = CELLS[0], []
    for start in (USUAL, "quantile"):
        kinds = (start, f"{start}, continued", f"{start}, surrogate")
        values = [written(of(found, cell, CONTINUED, kind), cell) for kind in kinds]
        gains = [written(gain(found, cell, CONTINUED, over, kinds[2]), cell, signed=True) for over in kinds[:2]]
        rows.append([start, *values, *gains])
    head = ["start", "as it is", "same loss, continued", "surrogate", "over the start", "over the same loss"]
    return markdown(head, rows)


ON_ONE_SPLIT = """Where it says *one split*, the numbers are those of version 0.1.0, which held out a fifth of the rows
and trained networks at a lower rate: they have not been measured again."""


def page(path: Path = RESULTS) -> str:
    """Return the page; every number on it comes from the results."""
    found, records = latest(path), list(Store(path))
    seeds = found[found["kind"] == CHOSEN].groupby(["dataset", "metric", "model"])["seed"].nunique()
    rows = sorted({int(record["known_rows"]) for record in records})
    return wrapped(
        TEXT.format(
            seeds=count_range(seeds),
            rows=f"{rows[0]:,} to {rows[-1]:,}" if len(rows) > 1 else f"{rows[0]:,}",
            fines=FINES,
            bars=bars(found),
            learned="; ".join(learned_count(found, model) for model in OURS),
            invented=invented(found),
            older=ON_ONE_SPLIT
            if any(ONE_SPLIT in name for model in OURS for name in measured(found, model).values())
            else "",
            constants=constants(found),
            linear=table(found, "linear"),
            network=table(found, "mlp"),
            linear_winners=winners(found, "linear"),
            network_winners=winners(found, "mlp"),
            added=added(outcomes(path)),
            reference=reference(found),
            competing=competing(found),
            continuation=continuation(outcomes(path)),
            one_split=one_split(path),
            made=versions(records),
        )
    )


TEXT = """# Numbers

`MetricRegressor` as it is by default, on five folds, on tables of numbers: bikes rented in an hour, by a cost
(`step_cost(5,1,10)`: 5 a bike short, 1 a bike over, 10 if short) and by fines of six bands that no usual loss fits
(`{fines}`); house prices of King County within 10 %; diamonds within 5 % and 10 %; arrivals of flights within 5 and 15
minutes. {rows} rows are known, at most 10,000 others are judged once. Means and standard errors over seeds
({seeds} a cell), cost and mean fine as they are, shares in percent.

{bars}

How often the surrogate or direct search was chosen: {learned}. On the fines, {invented}.

{older}

One fit trains every strategy on the same five folds; each choice among them is judged from its models, averaged, with
the constant that is best on the rows the folds leave out. Tables, metrics and bars were fixed before; the fines are our
own invention. Settings were chosen on other splits of the same rows, below.

## {linear_title}

{linear}

Chosen: {linear_winners}.

## {network_title}

{network}

Chosen: {network_winners}.

*Squared error* and *best loss by hand* have their constant too (a shift, a factor or an isotonic map). *Best loss by
hand* is the best on held-out rows of squared error, absolute error, Huber's loss, three quantiles and, where the metric
has a tolerance, a soft step and Welsch's loss at it. *Chosen* is what `MetricRegressor` returns: the best of these, of
the same loss followed longer (network), of direct search (linear model) and of the surrogate, which have to beat their
start by more than a standard error on held-out rows. Squared error is trained in the units, standardised or logarithms,
in which it does better on the first fold.

What the constant alone does, cost of the bikes by squared error: {constants}.

## What the surrogate adds

{added}

Gains, above 0 where the surrogate helps. *Chosen without it* is the best of the losses by hand, of the same followed
longer and of direct search. *Averaged with it* is the mean of the predictions of the surrogate and of the best loss by
hand, which `MetricRegressor` does not offer. It is only judged where it was trained on all folds.

Why it is rarely kept was looked into for the network and the fines, on other splits of the same rows (one or two
seeds): rates of 0.001 to 0.03, an early start, three times as many rounds, sets of 1,600 rows, a longer first fit, four
times as much refining, and less or more of the loss by hand beside it. The surrogate was faithful in all: on fresh sets
its values had the order of the true ones. Only the rate helped much, and as much with the loss by hand: both had been
too slow. So networks of numbers learn at 0.01 now, whatever they follow. The exact fines, smoothed by a normal
distribution, were no better than the quantile either: it is not the loss that limits the network there.

## Boosted trees

{reference}

LightGBM (learning rate 0.05, each model stopped early on the rows its fold leaves out) by three objectives on five
folds, averaged, each with its constant; the quantile is the level that the best constant of squared error has among its
errors. *Chosen* is the best of the three on held-out rows. The last two columns are those of the tables above, with
their seeds and splits.

## Models that compete

{competing}

`model="auto"`, the default of `TableRegressor` and of `metricgrad fit`: linear, additive, `tabm` and LightGBM by three
objectives, each by every strategy that suits it, on the same five folds; the best on held-out rows is used (*one
model*, whose kind is in the column *chosen*), or a mixture if that is better there (*auto*). Other
columns are those of the tables above, on the same seeds.

## Trees continued along the surrogate

{continuation}

Cost of the bikes. Trees by squared error, or by the quantile, on four fifths of the rows; then at most 200 more, at
rate 0.02 and in steps of the same size, along the gradient of a surrogate over sets of 400 training rows, refined on
six noisy sets before every tree, or along the same loss as before. How many of them are kept is decided by the cost on
the other fifth, and so is the constant.

## Since the first study

{one_split}

The first study of this page (version 0.1.0) chose on one split, and trained networks at a learning rate of 0.003; now
there are five folds, and networks learn at 0.01. Same rows, same seeds.

## How it was measured

`METRICGRAD_DATA=... python -m studies.numbers.run`; this page by `python -m studies.numbers.page`. Stored in
`results/numbers.parquet`: {made}.
""".replace("{linear_title}", OURS["linear"]).replace("{network_title}", OURS["mlp"])


def main() -> None:
    PAGE.write_text(page(), "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
