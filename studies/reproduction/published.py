"""The section of docs/reproduction.md about the paper's own recipe."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from metricgrad.evaluation.records import Record, Setting
from metricgrad.paper.layouts import method_label, metric_label
from metricgrad.paper.tables import table2
from metricgrad.training.recipe import RECIPES
from studies.pages import markdown, titled
from studies.paper_recipe.long_page import long_section
from studies.paper_recipe.page import section
from studies.reproduction.evidence import PUBLISHED, Evidence

ROUNDS = RECIPES["paper"].rounds
TEXT = """
## By the paper's own recipe

As the paper describes it, where our recipe `paper` fills in what it leaves open: {rounds:,} rounds of thirteen steps at
1e-5, clipped at 1e-5, from random weights, features not standardised, surrogates of its architecture fitted to its
random sets; the best of 300 checkpoints on validation rows, scored as in the authors' program, one seed. The last
columns are the round of the checkpoint, validation losses on the way, and the median Spearman correlation of surrogate
and metric on fresh sets in the last third. At or below the printed number: **{below} of {cells}**; {away} of {cells}
runs end with a validation loss more than a tenth above their lowest.

{grid}
{readings}"""


def published(records: Sequence[Record], others: Sequence[Setting]) -> str:
    """Return the section about runs by the paper's own recipe, with all its rounds; empty if there are none."""
    if PUBLISHED not in others:
        return ""
    cells = list(table2(records, "paper", PUBLISHED).compared.itertuples())
    runs = {(r.dataset, r.metric, r.method): r for r in records if r.setting == PUBLISHED}
    four, rows = "{:.4f}".format, []
    for cell in cells:
        run = runs[cell.dataset, cell.metric, cell.method]
        texts = cell.dataset, metric_label(cell.metric), method_label(cell.method)
        losses = map(four, (cell.printed, cell.mean))
        rows.append((*texts, *losses, f"{best_round(run):,}", *map(four, thirds(run)), f"{faith(run):.2f}"))
    after = (f"after {part * ROUNDS // 3:,}" for part in (1, 2, 3))
    head = ("dataset", "metric", "mode", "printed", "ours", "from round", *after, "Spearman")
    grid = titled("The recipe `paper`, one seed, protocol paper", markdown(head, rows, left=3))
    below, away = sum(cell.at_or_below for cell in cells), sum(led_away(run) for run in runs.values())
    return TEXT.format(
        grid=grid, below=below, cells=len(cells), rounds=ROUNDS, away=away, readings=f"{section()}\n{long_section()}"
    )


def thirds(run: Record) -> list[float]:
    """Return the validation loss of a run after a third, two thirds and all of its steps."""
    history = run.kept["history"]
    checks = list(zip(history["steps"], history["validation"], strict=True))
    return [next(loss for steps, loss in checks if 3 * steps >= part * checks[-1][0]) for part in (1, 2, 3)]


def best_round(run: Record) -> int:
    """Return the round after which the validation loss of a run was lowest."""
    history = run.kept["history"]
    least = min(range(len(history["steps"])), key=lambda check: history["validation"][check])
    return int(history["steps"][least]) // RECIPES["paper"].model_steps


def led_away(run: Record) -> bool:
    """Whether the validation loss of a run ends more than a tenth above its lowest value."""
    found = run.kept["history"]["validation"]
    return bool(found[-1] > 1.1 * min(found))


def faith(run: Record) -> float:
    """Return the median Spearman correlation of surrogate and metric over the last third of the checks of a run."""
    found = run.kept["history"]["trust"]
    return median(one for one in found[2 * len(found) // 3 :] if one is not None)


def compared(found: Evidence) -> list[Any]:
    """Return the cells of the runs by the paper's own recipe."""
    return list(table2(found.records, "paper", PUBLISHED).compared.itertuples())


def first_reading_sentence(found: Evidence) -> str:
    """Return in how many cells our first reading of the paper's recipe reaches the printed numbers; empty if none."""
    if PUBLISHED not in found.settings:
        return ""
    cells = compared(found)
    reached = sum(cell.at_or_below for cell in cells)
    return (
        f"By our first reading of the paper's recipe {reached} of {len(cells)} cells are at or below the printed ones."
    )


def recipe_sentence(found: Evidence) -> str:
    """Return how the runs by the paper's own recipe ended."""
    if PUBLISHED not in found.settings:
        return "The paper's own recipe was not run."
    cells = compared(found)
    away = sum(led_away(record) for record in found.records if record.setting == PUBLISHED)
    return (
        f"With the paper's own recipe as we first read it, all {ROUNDS:,} rounds, AUC and F1 on a9a and ijcnn1 in all "
        f"three modes, {sum(cell.at_or_below for cell in cells)} of {len(cells)} cells are at or below the printed "
        f"ones, and {away} of the runs end well above their best checkpoint."
    )
