"""Write docs/reproduction.md from results/reproduction: the paper's tables, ours beside theirs, cell by cell.

metricgrad reproduce table2 --budget standard --protocol both --seeds 3 --results results/reproduction
metricgrad reproduce table3 --budget standard --protocol both --seeds 3 --results results/reproduction
python benchmarks/reproduction.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from benchmarks.speed import complexity
from benchmarks.speed.measuring import stored
from metricgrad.evaluation.ranks import rank_methods
from metricgrad.evaluation.records import Record, Setting, read_records, settings
from metricgrad.paper import printed as paper
from metricgrad.paper.against_printed import Comparison, compare
from metricgrad.paper.rendering import (
    Grid,
    Word,
    as_markdown,
    comparison_grid,
    data_grid,
    method_label,
    metric_label,
    ranking_grid,
    table_grid,
)
from metricgrad.paper.tables import losses, table1, table2, table3
from metricgrad.training.recipe import RECIPES

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results" / "reproduction"
PAGE = ROOT / "docs" / "reproduction.md"
WHOLE = ("a9a", "codrna", "covtype", "ijcnn1", "skin")
"""The datasets on which SL-R is to be at or below what was printed."""

WHY = """## Where we differ, and why

- **Better, in most cells.** The default recipe is not the paper's: features are standardised, the model starts from
  3,000 steps of cross-entropy, learns at 1e-3 instead of 1e-5 without clipping, and the best of some 80 checkpoints is
  chosen on validation rows. The printed models are under-trained, and the gap is widest where a model could still learn
  most, on ijcnn1, covtype and skin. How much of it is the training and not the method, the column of cross-entropy in
  Table 3 tells: it gains as much.
- **Rare positives under `paper`.** The threshold is a percentile, at most the 99th, so at least 1 % of the test rows
  are called positive. On ccfraud (0.17 % positive) and porto (3.6 %) error rate and F1 are then near a floor that the
  rule sets, ours as well as theirs; under `honest` the same models lose far less.
- **Worse on ccfraud, AUC.** There are 315 positives to learn from and 98 to test on. In two of three stored histories
  the validation loss is least in the warm-up and higher ever after. Why was not tried.
- **SL-U** follows our universal surrogates, which are fitted to far more varied sets than the paper's (see fidelity.md)
  and hold much better without refining. The printed SL-U is last nearly everywhere; ours is on a par with the others.
- **SL-R against SL-S**: within noise of one another, here as in the paper.
- **porto, susy and codrna** are held in part (marked \\*): porto has 18 of its 57 features, susy 0.6 % of its rows.
  Their cells measure other data than the printed ones. santander could not be had at all.
- **ijcnn1** as the paper counts it has 15 % of its test rows in train; ours are distinct.
- **Jaccard under `paper`** is accuracy, as in the authors' program, so the column is a second run of the error rate.
- **Thresholds in training**, which the paper does not describe: the authors' program trains for the metric at the best
  of 100 percentiles of each batch, ours at the exact best threshold of each set, by every recipe. After training,
  `paper` takes the best of 100 percentiles of the test rows, `honest` the exact best of the validation rows.
"""

ROUNDS = RECIPES["paper"].rounds
PUBLISHED = """
## By the paper's own recipe

Trained as the paper says: {rounds:,} rounds of thirteen steps at 1e-5, clipped at 1e-5, from random weights, features
as they come; the best of 300 checkpoints on validation rows, scored as the authors' program did. The last columns are
the round the checkpoint is from, the loss on validation rows after so many rounds, and the median Spearman correlation
of surrogate and metric on fresh sets in the last third of the rounds. At or below the printed number: **{below} of
{cells}**. The default recipe is below the paper's own in {better} of {cells}, in a {times}th of the steps of the model.

{grid}
What this settles:

- **The recipe as written does not lead to the printed numbers here.** {away} of {cells} runs end with a validation
  loss more than a tenth above their least, some slowly (AUC on a9a, along a frozen surrogate too), some by leaps (F1 on
  ijcnn1). What is left is due to the choice of the checkpoint, of which the paper says nothing.
- **Refining by such steps did not help.** SL-U, whose surrogate is frozen, has the lowest loss in all four cells, SL-S
  the highest; in print SL-U is last in three of the four. The universal surrogates of these runs are of the paper's
  construction, fitted to the paper's own random sets, so that is not what differs.
- **What it does not settle.** It is one seed a cell, and our program, not theirs: its steps equal the pseudo-code of
  the paper written down directly (a test), but what the paper does not tell may differ, such as where Adam adds its
  epsilon, which clipped gradients are near.
"""


def cell_by_cell(comparison: Comparison, methods: set[str] | None = None) -> Grid:
    """Write every cell that can be compared: printed, ours, and what the difference is."""
    head = ("dataset", "metric", "method", "printed", "ours", "verdict")
    rows = tuple(
        (
            Word(cell.dataset),
            Word(metric_label(cell.metric)),
            Word(method_label(cell.method)),
            Word(f"{cell.printed:.4f}"),
            Word(f"{cell.ours:.4f}" + ("" if cell.error is None else f" ±{cell.error:.4f}")),
            Word(cell.verdict),
        )
        for cell in comparison.cells
        if methods is None or cell.method in methods
    )
    return Grid(f"{comparison.title}, cell by cell", head, rows, left=3)


def published(records: Sequence[Record], setting: Setting, others: Sequence[Setting]) -> str:
    """Write of runs by the paper's own recipe, all its rounds, beside the printed cells; nothing if there are none."""
    own = next((other for other in others if other == Setting("mlp", "paper")), None)
    if own is None:
        return ""
    cells = compare(table2(records, "paper", own)).cells
    default = {(c.dataset, c.metric, c.method): c for c in compare(table2(records, "paper", setting)).cells}
    runs = {(r.dataset, r.metric, r.method): r for r in records if r.setting == own}
    four, rows = "{:.4f}".format, []
    for cell in cells:
        run = runs[cell.dataset, cell.metric, cell.method]
        texts = cell.dataset, metric_label(cell.metric), method_label(cell.method)
        losses = cell.printed, cell.ours, default[cell.dataset, cell.metric, cell.method].ours
        texts += (*map(four, losses), f"{best_round(run):,}", *map(four, thirds(run)), f"{faith(run):.2f}")
        rows.append(tuple(map(Word, texts)))
    recipes = ("printed", "paper's recipe", "default recipe")
    after = (f"after {part * ROUNDS // 3:,}" for part in (1, 2, 3))
    head = ("dataset", "metric", "mode", *recipes, "from round", *after, "Spearman")
    grid = as_markdown(Grid("The paper's own recipe, one seed, protocol paper", head, tuple(rows), left=3))
    below = sum(cell.at_or_below for cell in cells)
    better = sum(default[cell.dataset, cell.metric, cell.method].ours < cell.ours for cell in cells)
    away = sum(led_away(run) for run in runs.values())
    times = RECIPES["paper"].steps // RECIPES["default"].steps
    return PUBLISHED.format(
        grid=grid, below=below, better=better, cells=len(cells), rounds=ROUNDS, times=times, away=away
    )


def thirds(run: Record) -> list[float]:
    """Return the validation loss of a run after a third, two thirds and all of its steps."""
    history = run.kept["history"]
    checks = list(zip(history["steps"], history["validation"], strict=True))
    return [next(loss for steps, loss in checks if 3 * steps >= part * checks[-1][0]) for part in (1, 2, 3)]


def best_round(run: Record) -> int:
    """Return the round after which the loss of a run on validation rows was least."""
    history = run.kept["history"]
    least = min(range(len(history["steps"])), key=lambda check: history["validation"][check])
    return int(history["steps"][least]) // RECIPES["paper"].model_steps


def led_away(run: Record) -> bool:
    """Say whether the validation loss of a run ends more than a tenth above its least."""
    found = run.kept["history"]["validation"]
    return bool(found[-1] > 1.1 * min(found))


def faith(run: Record) -> float:
    """Return the median Spearman correlation of surrogate and metric over the last third of the checks of a run."""
    found = run.kept["history"]["trust"]
    return median(one for one in found[2 * len(found) // 3 :] if one is not None)


def same_in_all_modes(records: Sequence[Record]) -> tuple[int, int]:
    """Return in how many datasets, metrics and seeds all three modes lose the very same, and of how many."""
    found: dict[tuple[object, ...], list[object]] = {}
    for record in records:
        if record.method in paper.MODES:
            place = record.dataset, record.metric, record.seed, record.replicate
            found.setdefault(place, []).append(record.kept["test"])
    places = [tests for tests in found.values() if len(tests) == len(paper.MODES)]
    return sum(tests.count(tests[0]) == len(tests) for tests in places), len(places)


def page() -> str:
    records, (setting, *others) = read_records(RESULTS), settings(RESULTS)
    newest, first = records[-1].kept["made_by"], records[0].kept["made_by"]
    cost = stored(complexity.NAME)
    same, places = same_in_all_modes([record for record in records if record.setting == setting])
    both = {
        protocol: (table2(records, protocol, setting), table3(records, protocol, setting))
        for protocol in ("paper", "honest")
    }
    printed = [compare(table) for table in both["paper"]]
    ours = [cell for cell in printed[0].cells if cell.method == "sl-r" and cell.dataset in WHOLE]
    below = sum(cell.at_or_below for cell in ours)
    commands = "\n".join(f"    {c}" for c in dict.fromkeys(r.kept["command"] for r in records))
    tables = [as_markdown(table_grid(table)) for protocol in both for table in both[protocol]]
    ranks = []
    for protocol in both:
        ranking = rank_methods(losses(records, protocol, setting).values(), paper.MODES)
        if ranking is not None:
            ranks.append(as_markdown(ranking_grid(ranking, f"Protocol {protocol}")))
    return f"""# The paper, made again

Written by `python benchmarks/reproduction.py` from `results/reproduction`, {len(records)} runs, each with its command,
seed, commit, date, wall time and history (metricgrad {newest["metricgrad"]}, torch {newest["torch"]}). Do not edit by
hand.

{commands}

**These runs are of an older recipe.** They were made by commit {first["commit"]} ({first["date"]}), whose recipe
`default` was not today's: {setting.title}. They also kept cross-entropy's model wherever the surrogate's did not lose
less on validation rows, and did not store which: in {same} of {places} runs of a dataset, metric and seed all three
modes have the very same losses, so are the same model. They will be made again by the recipe that the package settles
on.

A *protocol* says how a model is scored, a *recipe* how it is trained. Both protocols score the very same models, which
were trained with that older recipe `default`, not with the paper's. `paper` scores as the authors'
program did, so only it can be compared with the printed numbers; `honest` is how one should.

Under `paper`, our SL-R is at or below the printed SL-R in **{below} of {len(ours)}** cells of {", ".join(WHOLE)}.

{as_markdown(data_grid(table1(records)))}
{as_markdown(comparison_grid(printed[0]))}
{as_markdown(comparison_grid(printed[1]))}
{WHY}{published(records, setting, others)}
## Which mode is best?

{chr(10).join(ranks)}
## The figures

![Losses over two perturbed predictions](images/figure1.png)

*Figure 1, `metricgrad reproduce figure1`: five losses of a set of ten rows while two predictions are shifted; flat
steps have no gradient.*

![A one-parameter model on its surrogate](images/figure2.png)

*Figure 2, `metricgrad reproduce figure2`: true and surrogate loss over the one parameter, round by round.*

![Convergence of SL-S and SL-R](images/figure3.png)

*Figure 3, `metricgrad reproduce figure3 --datasets ijcnn1 --metrics auc --budget standard`: from the very first step,
without warm-up. The refined universal surrogate is true from the start; the one from scratch catches up within 200
steps, and both lead to the same test loss.*

## The runtime

The paper gives the cost of Algorithm 1 as O(T (K_alpha (Q_alpha + Q_beta) + K_beta Q_beta)), with Q the numbers of
parameters. Measured by `{cost["command"]}`,
each of the five varied alone from the paper's values, sets of 100 rows, one thread:

{complexity.table(cost)}
{complexity.residuals(cost)}

![Measured time against the formula](images/runtime.png)

*Left, the formula alone: time is proportional to the rounds, but networks as small as the paper's cost less than a step
itself, so that time grows far more slowly with their parameters. Right, with a cost for every step beside it.*

## The tables

{chr(10).join(tables)}
## Cell by cell

{as_markdown(cell_by_cell(printed[0]))}
{as_markdown(cell_by_cell(printed[1]))}"""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
