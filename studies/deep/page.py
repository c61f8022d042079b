"""Write docs/deep.md and its pictures from results/deep: python -m studies.deep.page"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from studies.deep import pictures
from studies.deep.cells import (
    CELLS,
    CROSS_ENTROPY,
    LOSSES,
    REMEDIES,
    RESULTS,
    Cell,
    best_rival,
    by_start,
    difference,
    fidelity_of,
    frame_of,
    losses_of,
    reach_of,
    records_of,
)
from studies.pages import DOCS, ROOT, commands, listed, markdown, spelt, versions, wrapped

PAGE = DOCS / "deep.md"
IMAGES = DOCS / "images"
LOVASZ = "lovasz-hinge"


def shown(values: pd.Series) -> str:
    """Return mean and standard error over seeds."""
    return f"{values.mean():.3f} ± {values.sem():.3f}" if len(values) > 1 else f"{values.mean():.3f}"


def task_table(frame: pd.DataFrame, cell: Cell) -> str:
    """Return the values of one metric, a line for each loss, and how far each is ahead of cross-entropy."""
    plain, rows = by_start(frame, cell, CROSS_ENTROPY)["chosen"], []
    for loss in losses_of(frame, cell):
        own = by_start(frame, cell, loss)
        name = f"**{LOSSES[loss]}**" if loss == cell.own else LOSSES[loss]
        gap = difference(own["chosen"], plain)
        ahead = ["", ""] if loss == CROSS_ENTROPY else [str(gap), f"{gap.ahead} of {gap.seeds}"]
        rows.append([name, shown(own["early"]), shown(own["late"]), shown(own["chosen"]), *ahead])
    return markdown(["loss", "early start", "late start", "start by validation", "ahead of CE", "seeds ahead"], rows)


def summary(frame: pd.DataFrame) -> str:
    """Return, of every metric, how far its surrogate is ahead of cross-entropy and of the best rival."""
    rows = []
    for cell in CELLS:
        own = by_start(frame, cell, cell.own)
        plain = difference(own["chosen"], by_start(frame, cell, CROSS_ENTROPY)["chosen"])
        rival = best_rival(frame, cell)
        best = difference(own["chosen"], by_start(frame, cell, rival)["chosen"])
        rows.append([cell.title, LOSSES[cell.own], str(plain), f"{plain.ahead} of {plain.seeds}"])
        rows[-1] += [LOSSES[rival], str(best), f"{best.ahead} of {best.seeds}", best.word]
    head = ["task, metric", "surrogate", "ahead of CE", "seeds", "best hand-made loss", "ahead of it", "seeds", ""]
    return markdown(head, rows, left=2)


def starts_table(frame: pd.DataFrame) -> str:
    """Return how far the surrogate of each metric is ahead of cross-entropy from the same start."""
    rows = []
    for cell in CELLS:
        own, plain = by_start(frame, cell, cell.own), by_start(frame, cell, CROSS_ENTROPY)
        gaps = [difference(own[start], plain[start]) for start in ("early", "late")]
        better = difference(own["early"], own["late"])
        cells = [f"{gap} ({gap.ahead} of {gap.seeds})" for gap in gaps]
        rows.append([cell.title, *cells, f"{better} ({better.ahead} of {better.seeds})"])
    return markdown(["task, metric", "from the early start", "from the late start", "early over late"], rows)


def fidelity_table(records: list[dict[str, Any]]) -> str:
    """Return gap, Spearman correlation and cosine of every surrogate, at the start and at the end."""
    rows, known = [], set()
    for cell in CELLS:
        if (cell.task, cell.own) in known:
            continue
        known.add((cell.task, cell.own))
        found = fidelity_of(records, cell, cell.own)
        cells = []
        for name, places in (("gap", 3), ("spearman", 2), ("cosine", 2)):
            by_time = found.groupby("when")[name].mean()
            cells += [f"{by_time['start']:.{places}f}", f"{by_time['end']:.{places}f}"]
        rows.append([cell.title.partition(",")[0], LOSSES[cell.own], *cells])
    head = ["task", "surrogate", "gap, start", "end", "Spearman, start", "end", "cosine, start", "end"]
    return markdown(head, rows, left=2)


def remedy_table(frame: pd.DataFrame, records: list[dict[str, Any]]) -> str:
    """Return what each remedy does to IoU and boundary F1, and where its gradient lies at the late start."""
    iou, boundary = CELLS[3], CELLS[4]
    lovasz, reach, rows = by_start(frame, iou, LOVASZ)["chosen"], reach_of(records, "late"), []
    for loss in losses_of(frame, iou, remedies=True):
        own = by_start(frame, iou, loss)
        gap = difference(own["chosen"], lovasz)
        ahead = ["", ""] if loss == LOVASZ else [str(gap), f"{gap.ahead} of {gap.seeds}"]
        where = [f"{100 * reach.loc[loss, name]:.0f} %" for name in ("near", "surely wrong", "towards")]
        edges = shown(by_start(frame, boundary, loss)["chosen"])
        rows.append([LOSSES[loss], shown(own["early"]), shown(own["chosen"]), *ahead, edges, *where])
    head = ["loss", "IoU, early start", "IoU, start by validation", "ahead of Lovasz", "seeds", "boundary F1"]
    return markdown([*head, "gradient near", "surely wrong", "right way"], rows)


def opening(frame: pd.DataFrame) -> str:
    """Return the first paragraph, three sentences: rare pictures, against what, and where it does not help."""
    ap, recall, top, iou, boundary, spam, _ = CELLS
    rival = best_rival(frame, ap)
    return f"""On pictures with 1 % of positives the surrogate of average precision is {against(frame, ap)}; for recall
        at precision 0.9 it is {against(frame, recall)}, and for P@100 {against(frame, top)}. Losses that were made for
        average precision do as much there: the surrogate is {against(frame, ap, rival)}, the best of them in hindsight.
        With many positives, or a metric too coarse for the validation rows at hand, it did not help: on membranes the
        surrogate of IoU is {against(frame, iou)} and {against(frame, iou, LOVASZ)}, at the best threshold of each
        picture, a remedy, {against(frame, iou._replace(own=REMEDIES[0]), LOVASZ)}, that of boundary F1 is
        {against(frame, boundary)}, and on spam that of recall at precision 0.99 is {against(frame, spam)}."""


def against(frame: pd.DataFrame, cell: Cell, rival: str = CROSS_ENTROPY) -> str:
    """Return how the surrogate of a metric does against a loss, in words and numbers."""
    gap = difference(by_start(frame, cell, cell.own)["chosen"], by_start(frame, cell, rival)["chosen"])
    word = {"ahead": "ahead of", "level": "level with", "behind": "behind"}[gap.word]
    name = LOSSES[rival] if rival != LOVASZ else f"the {LOSSES[rival]}"
    return f"{word} {name} ({gap}; {gap.ahead} of {gap.seeds} seeds)"


def over_the_surrogate(frame: pd.DataFrame) -> str:
    """Return what each remedy gains over the surrogate of IoU, from either start."""
    iou, parts = CELLS[3], []
    plain = by_start(frame, iou, iou.own)
    for loss in REMEDIES:
        own = by_start(frame, iou, loss)
        early, late = (difference(own[start], plain[start]) for start in ("early", "late"))
        parts.append(f"{LOSSES[loss].removeprefix('surrogate of IoU').strip(' ,+')} {early} and {late}")
    return listed(parts)


def validation_range(frame: pd.DataFrame, cell: Cell) -> str:
    """Return the lowest and the highest of the best values of the seeds on validation rows, of any loss."""
    best = frame[(frame["task"] == cell.task) & (frame["metric"] == cell.metric)].groupby("seed")["validation"].max()
    return f"{best.min():.2f} to {best.max():.2f}"


def steps_of(records: Iterable[dict[str, Any]], task: str) -> str:
    """Return how many seeds and steps a task has."""
    own = [record for record in records if record["run"]["task"] == task]
    seeds, steps = {record["run"]["seed"] for record in own}, own[0]["steps"]
    return (
        f"{spelt(len(seeds)).capitalize()} seeds; early is after {steps['early']:,} and late after {steps['late']:,} "
        f"steps of cross-entropy, then {steps['after']:,} by each loss."
    )


def thresholds(records: Iterable[dict[str, Any]]) -> str:
    """Return precision and recall of spam on test rows at the threshold of validation rows."""
    rows: dict[str, list[dict[str, float]]] = {}
    for record in records:
        run = record["run"]
        if run["task"] == "spam" and run["start"] == "late":
            rows.setdefault(run["loss"], []).append(record["chosen"]["recall_at_precision(0.99)"])
    cells = []
    for loss in (loss for loss in LOSSES if loss in rows):
        own = pd.DataFrame(rows[loss])
        cells.append([LOSSES[loss], shown(own["precision"]), shown(own["recall"])])
    return markdown(["loss, late start", "precision on test rows", "recall on test rows"], cells)


def page(path: Path = RESULTS) -> str:
    """Return the page; every number on it comes from the results."""
    records = records_of(path)
    frame = frame_of(records)
    tables = {cell: task_table(frame, cell) for cell in CELLS}
    reach = 100 * reach_of(records, "late")
    return wrapped(
        TEXT.format(
            opening=opening(frame),
            summary=summary(frame),
            **{f"{task}_steps": steps_of(records, task) for task in ("fashion", "membranes", "spam")},
            gains=over_the_surrogate(frame),
            starts=starts_table(frame),
            fidelity=fidelity_table(records),
            fashion="\n\n".join(f"**{cell.title}**\n\n{tables[cell]}" for cell in CELLS[:3]),
            membranes="\n\n".join(f"**{cell.title}**\n\n{tables[cell]}" for cell in CELLS[3:5]),
            spam="\n\n".join(f"**{cell.title}**\n\n{tables[cell]}" for cell in CELLS[5:]),
            thresholds=thresholds(records),
            coarse=validation_range(frame, CELLS[5]),
            remedies=remedy_table(frame, records),
            near=f"{reach.loc['surrogate-iou', 'near']:.0f} %",
            sure=f"{reach.loc['surrogate-iou', 'surely wrong']:.0f} %",
            lovasz_near=f"{reach.loc['lovasz-hinge', 'near']:.0f} %",
            lovasz_sure=f"{reach.loc['lovasz-hinge', 'surely wrong']:.0f} %",
            pixels_near=f"{reach.loc['surrogate-iou', 'pixels near']:.0f} %",
            pixels_sure=f"{reach.loc['surrogate-iou', 'pixels surely wrong']:.0f} %",
            wrong_way=f"{100 - reach.loc['surrogate-iou', 'towards']:.0f} %",
            minutes=f"{sum(record['cpu'] for record in records) / 60:.0f}",
            commands=commands(records),
            versions=versions(records),
        )
    )


TEXT = """# Networks in a loop of one's own

{opening}

{summary}

*Ahead* and *behind* are by more than a standard error over seeds, *level* is within it. All differences are paired by
seed, and higher is better everywhere.

![How far every loss is ahead of cross-entropy, seed by seed](images/deep-differences.svg)

## How it was measured

One program, `studies/deep/run.py`, trains everything. Of every seed (its own split and first weights) a network is
trained by cross-entropy and kept twice, early and late. From either, every loss takes the same number of steps on the
same sets with Adam along a cosine, at three learning rates. Rate, checkpoint (the start is one of them) and start are
chosen by the metric in question on validation rows only, thresholds too; then the choice is judged on test rows.
Cross-entropy has one more start to choose from: any checkpoint on the way to the late one. Its value in the column
*start by validation* is what plain training with a threshold comes to.

- **Fashion-MNIST**: shirts, the hardest class, at 1 %: 200 shirts of 20,000 pictures to train on and 100 of 10,000 to
  validate; 33,300 others and the 6,700 shirts left over, weighted to 1 %, to test. Three convolutions (8, 16, 32
  channels). Sets of 300 with 60 shirts, weighted so that shirts count 1 %. P@100 is the precision of the first hundred
  of ten thousand. {fashion_steps}
- **Membranes**: the 30 slices of ISBI 2012 at half resolution, in blocks of 16 to train on, 6 to validate and 8 to
  test; crops of 80 x 80, four a step, each a set; a U-Net of 8, 16 and 32 channels. IoU is that of the membrane,
  picture by picture. Boundary F1 counts the edge pixels of calls and truth that have one of the other within a pixel.
  {membranes_steps}
- **Spam**: 5,171 different messages, 653 of them spam; half to train on, a fifth to validate, the others to test; an
  embedding bag of hashed words and groups of three letters. Sets of 300 with 75 spam. {spam_steps}

LibAUC's loss of average precision is written here from its paper and code, and tested against the formula of the paper
and, where it is installed, against LibAUC 2.0.1 itself, which has the same gradients;
LibAUC's loss of AUC is `AUCM` of this package, with its inner problem solved exactly. A surrogate is refined in every
step; that of boundary F1 begins as the bundled one of F1 and is refined a hundred times before the first step.

What was settled beforehand: a trial on Fashion-MNIST with another seed (the same pictures, split otherwise; its test
values were seen too) chose by AP on validation rows that LibAUC's AP takes raw scores and weights, the width of
Smooth-AP, and the learning rates. The noise of a remedy and the start of the surrogate of boundary F1 were chosen by
where gradients lie, and by fidelity, on validation crops of one of the three splits. The remedies were planned before
the runs; that they are also run from the late start was decided after the first seed of membranes.

## Rare pictures

{fashion}

A test picture that is no shirt weighs as much as 20 shirts: one of them at the very top keeps precision below 0.9 for a
long way, which is why recall at precision 0.9 is often 0. From the late start, when the 200 shirts have begun to be
learned by heart, only Smooth-AP keeps what it gains from the early one.

![AP on validation rows step by step, from both starts](images/deep-curves.svg)

## From where

{starts}

The last column is the surrogate from the early start less the surrogate from the late one.

## Membranes

{membranes}

### What the surrogate does not see

![Where the gradients of the losses lie](images/deep-reach.svg)

The surrogate of IoU follows its metric nearly perfectly in value, yet its gradient is that of IoU at threshold zero:
only pixels near the decision change it. At the late start {near} of its gradient lies on the {pixels_near} of the
pixels within a quarter of a standard deviation of the decision, and {sure} on the {pixels_sure} that are surely wrong;
{wrong_way} of it even pushes pixels away from their class. The Lovasz hinge puts {lovasz_near} near the decision and
{lovasz_sure} on the surely wrong. To the exact metric a pixel far on the wrong side is worth nothing until it is about
to cross, and a faithful surrogate inherits that.

Three remedies:

{remedies}

*Right way* is the share of the gradient that pushes pixels towards their class. IoU at the best threshold of each
picture lets the surrogate see the whole curve; noise of half a standard deviation on the scores widens the step; half a
cross-entropy anchors what the surrogate leaves alone. Over the plain surrogate of IoU they gain, from the early and
from the late start: {gains}. So it is not the width of the step alone: noise spreads the gradient too, and loses.
What helped is a target that is smooth in where the threshold lies, or a loss beside it that counts all pixels. With
three seeds these are small differences; a surrogate at the best threshold, or with an anchor, draws with the Lovasz
hinge and does not beat it.

## Spam

{spam}

With 130 spam messages to validate on, one other message at the top of the ranking decides this metric: the best value
of any loss on validation rows is {coarse}, depending on the seed, so that start, rate and checkpoint are partly chosen
by chance. At the threshold that reaches precision 0.99 on validation rows:

{thresholds}

## Fidelity

{fidelity}

Means over seeds and starts, on sets of validation rows: the gap between metric and surrogate, their Spearman
correlation over sets, and the cosine between the gradients of the surrogate and of the smoothed metric (on membranes
from slopes along few directions, as pixels are too many to be probed one by one).

{minutes} minutes of one core in all. {commands}; {versions}.
"""


def main() -> None:
    """Write the page and its pictures."""
    records = records_of()
    pictures.write(frame_of(records), records, IMAGES)
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
