"""The section of docs/reproduction.md about longer trainings by the nearest reading, from what is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from metricgrad.evaluation.runs import metric_label
from metricgrad.evaluation.store import Store
from studies.pages import listed, markdown, titled
from studies.paper_recipe.baselines_page import Curve
from studies.paper_recipe.long import RESULTS
from studies.paper_recipe.page import MODES, PAPER_ROUNDS, Course, cells_of, courses, mean_distance
from studies.paper_recipe.readings import MODEL_STEPS
from studies.paper_recipe.run import CELLS

CHOSEN_BY = {(dataset, metric) for grid, dataset, metric, *_ in CELLS if grid != "chosen"}
"""The cells by which the nearest reading was chosen."""
BY_RULE = {("ccfraud", "f1")}
"""Cells whose loss the rule for the threshold sets: it predicts at least 1 % to be positive, of which 0.17 % are."""


def long_courses(records: Iterable[Mapping[str, Any]] | None = None) -> list[Course]:
    """Return the members of the longest training on each dataset."""
    stored = Store(RESULTS) if records is None else records
    longest = {r["run"]["dataset"]: r for r in sorted(stored, key=lambda r: r["checks"][-1]["round"])}
    return courses(longest[dataset] for dataset in sorted(longest))


def long_sentence(found: Sequence[Course]) -> str:
    """Return what the nearest reading reproduces in longer trainings; empty if none is stored."""
    told = [c for c in found if (c.dataset, c.metric) not in BY_RULE]
    learned = [c for c in told if c.mode != "sl-u"]
    if not learned:
        return ""
    below, last = (at_or_below(learned, name) for name in ("validation", "last"))
    cells = [[c for c in told if (c.dataset, c.metric, c.seed) == cell] for cell in cells_of(told)]
    ours = sum(max(own, key=lambda c: c.losses["validation"]).mode == "sl-u" for own in cells)
    theirs = sum(max(own, key=lambda c: c.printed).mode == "sl-u" for own in cells)
    return (
        "By the reading of the recipe that comes nearest (TensorFlow's defaults, the surrogate's batch norm in "
        f"training mode, rates of 1e-4), SL-R and SL-S are at or below the printed numbers in {below} of "
        f"{len(learned)} cells by the best checkpoint on validation rows, in {last} by the last, after {span(told)} of "
        f"{PAPER_ROUNDS:,} rounds ({cell_names(told)}; one seed). The universal surrogate is last in {ours} of "
        f"{len(cells)} (printed: in {theirs}). That reading was chosen by F1 on ijcnn1 and AUC on a9a in at most 5,000 "
        "rounds."
    )


def condition(found: Sequence[Course]) -> str:
    """Return under which condition the printed losses are reached, if most last checkpoints do not reach them."""
    learned = [c for c in found if c.mode != "sl-u" and (c.dataset, c.metric) not in BY_RULE]
    if not learned or 2 * at_or_below(learned, "last") >= len(learned):
        return ""
    return ", if the best checkpoint on validation rows is what was printed"


def at_or_below(found: Iterable[Course], checkpoint: str = "validation") -> int:
    """Return how many losses are at or below the printed ones."""
    return sum(course.losses[checkpoint] <= course.printed for course in found)


def span(found: Iterable[Course]) -> str:
    """Return the least and the greatest number of rounds."""
    rounds = sorted(course.rounds for course in found)
    return f"{rounds[0]:,}" if rounds[0] == rounds[-1] else f"{rounds[0]:,} to {rounds[-1]:,}"


def lengths(found: Iterable[Course]) -> str:
    """Return how many rounds were trained on which datasets, the most first."""
    alike: dict[int, dict[str, None]] = {}
    for course in sorted(found, key=lambda course: -course.rounds):
        alike.setdefault(course.rounds, {})[course.dataset] = None
    return listed(f"{rounds:,} rounds on {listed(datasets)}" for rounds, datasets in alike.items())


def cell_names(found: Iterable[Course]) -> str:
    """Return the metrics of each dataset, datasets of the same ones together, the most first."""
    by_dataset: dict[str, dict[str, None]] = {}
    for course in found:
        by_dataset.setdefault(course.dataset, {})[metric_label(course.metric)] = None
    alike: dict[tuple[str, ...], list[str]] = {}
    for dataset, metrics in by_dataset.items():
        alike.setdefault(tuple(metrics), []).append(dataset)
    ordered = sorted(alike.items(), key=lambda item: -len(item[1]))
    return ", ".join(f"{listed(metrics)} on {listed(datasets)}" for metrics, datasets in ordered)


def long_section(records: Iterable[Mapping[str, Any]] | None = None) -> str:
    """Return the section about the nearest reading in longer trainings; empty if none is stored."""
    found = long_courses(records)
    told = [c for c in found if (c.dataset, c.metric) not in BY_RULE]
    if not told:
        return ""
    others = [c for c in told if (c.dataset, c.metric) not in CHOSEN_BY]
    untold = "" if len(told) == len(found) else f"\n{by_rule_sentence(found)}"
    return f"""### The nearest reading, for longer

`python -m studies.paper_recipe.long` trains that reading in all three modes with one seed: {lengths(found)}, at most
{max(c.rounds for c in found) / PAPER_ROUNDS:.0%} of the paper's {PAPER_ROUNDS:,}.

{mode_table(told)}
"Off by" is the mean factor from the printed numbers, in either direction; "led away" means that the validation loss
ends more than a tenth above its lowest. The best checkpoint is from round {median(c.best_round for c in told):,.0f} in
the median. {others_sentence(others)}Every cell is on [the page of cells](reproduction-cells.md).{untold}
"""


def others_sentence(found: Sequence[Course]) -> str:
    """Return how near the reading comes in cells it was not chosen by; empty if there are none."""
    if not found:
        return ""
    return (
        f"The reading was chosen by F1 on ijcnn1 and AUC on a9a; in the other cells, the better evidence, "
        f"{at_or_below(found)} of {len(found)} are at or below the printed number by the best checkpoint, off by x "
        f"{mean_distance(found):.2f} on average. "
    )


def by_rule_sentence(found: Iterable[Course]) -> str:
    """Return which cells are not counted."""
    names = listed(
        dict.fromkeys(f"{metric_label(c.metric)} on {c.dataset}" for c in found if (c.dataset, c.metric) in BY_RULE)
    )
    return (
        f"{names} is not counted: the rule for the threshold predicts at least 1 % of the rows to be positive, far "
        "more than are, so that no model has a low loss."
    )


def mode_table(found: Sequence[Course]) -> str:
    """Write by mode how many losses are at or below the printed ones, and how far they are off."""
    rows = []
    for mode, label in MODES.items():
        own = [c for c in found if c.mode == mode]
        if own:
            counts = (f"{at_or_below(own, name)} of {len(own)}" for name in ("validation", "last"))
            off = (f"x {mean_distance(own, name):.2f}" for name in ("validation", "last"))
            rows.append([label, *counts, *off, f"{sum(c.led_away for c in own)}"])
    head = ("mode", "best at or below printed", "last at or below printed", "best off by", "last off by", "led away")
    return titled("The nearest reading by mode: best checkpoint on validation rows, and last", markdown(head, rows))


def against_sentence(found: Iterable[Course], rivals: Sequence[Curve]) -> str:
    """Return in how many cells SL-R loses less than the hand-made loss that is best on validation rows."""
    pairs = []
    for course in found:
        own = [c for c in rivals if (c.dataset, c.metric) == (course.dataset, course.metric)]
        if own and course.mode == "sl-r":
            pairs.append((course, min(own, key=lambda c: min(c.validation))))
    if not pairs:
        return ""
    lower = sum(course.losses["validation"] < rival.best for course, rival in pairs)
    steps, theirs = max(MODEL_STEPS * c.rounds for c, _ in pairs), max(rival.steps[-1] for _, rival in pairs)
    return (
        "On the same rows SL-R by the nearest reading has a lower loss than the hand-made loss that is best on "
        f"validation rows in {lower} of {len(pairs)} cells ({cell_names(c for c, _ in pairs)}; its models took at most "
        f"{steps:,} steps, theirs {theirs:,})."
    )


def long_table(records: Iterable[Mapping[str, Any]] | None = None) -> str:
    """Return the losses of the nearest reading in longer trainings; empty if none is stored."""
    found = long_courses(records)
    if not found:
        return ""
    rows = []
    for c in found:
        losses = (f"{loss:.4f}" for loss in (c.printed, c.losses["validation"], c.losses["last"]))
        ends = f"{c.best_round:,}", f"{c.rounds:,}", f"{c.gap:.3f}"
        rows.append((c.dataset, metric_label(c.metric), MODES[c.mode], *losses, *ends))
    head = ("dataset", "metric", "mode", "printed", "best on validation rows", "last", "from round", "of", "gap")
    return titled("The nearest reading, test loss as the authors' program scored", markdown(head, rows, left=3))
