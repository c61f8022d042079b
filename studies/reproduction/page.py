"""Write docs/reproduction.md, the cells, and the part of the README about both: python -m studies.reproduction.page

Reads results/reproduction, which this command fills, and which another start of it continues:

    metricgrad reproduce all --budget standard --protocol both --seeds 5 --results results/reproduction
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.speed import complexity
from benchmarks.speed.measuring import stored
from metricgrad.evaluation.records import Record
from metricgrad.evaluation.store import Store
from metricgrad.paper.layouts import (
    datasets_table,
    metric_label,
    ranking_table,
    result_table,
    seed_count,
    tally_table,
)
from metricgrad.paper.printed import MODES
from metricgrad.paper.tables import PaperTable, table1
from metricgrad.reporting.tables import as_markdown
from studies.pages import DOCS, in_place, listed, wrapped
from studies.paper_recipe import baselines_page
from studies.paper_recipe import run as readings_run
from studies.paper_recipe.baselines import RESULTS as BASELINES
from studies.paper_recipe.baselines_page import baselines_section, baselines_table, budget_sentence, curves
from studies.paper_recipe.long import RESULTS as LONG
from studies.paper_recipe.long_page import against_sentence, condition, long_courses, long_sentence, long_table
from studies.paper_recipe.page import reading_tables
from studies.reproduction.cluster import cluster_table, job_seconds, part_seconds, parts_table
from studies.reproduction.evidence import COMPARED, PROTOCOLS, PUBLISHED, STANDARD, Evidence, evidence
from studies.reproduction.figures import STORED as FIGURES
from studies.reproduction.modes import about_runs, modes_table, order_sentence, worst_sentence
from studies.reproduction.published import first_reading_sentence, published
from studies.reproduction.readme import README, readme_part

PAGE, CELLS = DOCS / "reproduction.md", DOCS / "reproduction-cells.md"
STUDIES = {"Readings of the recipe": readings_run.RESULTS, "The nearest reading": LONG, "Hand-made losses": BASELINES}
"""Where the other parts of the page are stored."""


def wins_sentence(table: PaperTable) -> str:
    """Return how often SL-R has the lowest mean loss in Table 3, against the hand-made losses."""
    parts = [
        f"{wins['sl-r']:.1f} of {table.counted[metric]} by {metric_label(metric)}"
        for metric, wins in table.wins.items()
    ]
    return f"{listed(parts)} (a tie counts in part)"


def page(found: Evidence) -> str:
    """Return the page."""
    records, known, own = found.records, found.settings, found.own
    cost = stored(complexity.NAME)
    ranks = [as_markdown(ranking_table(r, f"Protocol {p}")) for p, r in found.rankings.items() if r is not None]
    return wrapped(f"""# The paper, reproduced

- **What reproduces**: the printed losses of models that follow a learned surrogate{condition(long_courses())}.
  {long_sentence(long_courses())}
  Under the paper's scoring, but by a recipe of our own, SL-R is at or below the printed SL-R in
  {found.at_or_below(0, "sl-r")} cells of {listed(COMPARED)}, {order_sentence(found.rankings["paper"])}.
- **What does not**: that surrogates beat hand-made losses. {budget_sentence()}
  {against_sentence(long_courses(), curves(Store(BASELINES)))} By our recipe cross-entropy is at or
  below its printed number in {found.at_or_below(1, "cross-entropy")} cells too. Datasets on which SL-R has the lowest
  loss of Table 3: {wins_sentence(found.tables["paper"][1])}. {worst_sentence(found.rankings["paper"])}
  {first_reading_sentence(found)}
- **What the printed tables cannot tell**: the order of SL-R and SL-S, because there is one run for each cell and two
  runs of one quantity, MCR and JAC, differ by as much; anything about CC-Fraud and Porto-Seguro under MCR and F1, where
  the rule for the threshold sets the loss; anything about Jaccard, which was accuracy; and how models do on unseen
  rows, because thresholds were chosen by test labels.

A model follows a *surrogate* of the metric in one of three modes: SL-U takes a universal surrogate as it is, SL-R
refines it while the model is trained, SL-S learns one from scratch. Table 2 compares the modes, Table 3 compares SL-R
with hand-made losses. A *protocol* defines how a model is scored, a *recipe* how it is trained. `paper` scores as the
authors' program did, so only it can be compared with the printed numbers; `honest` is how models should be scored.
{about_runs(own)}

- SL-U uses our universal surrogates, fitted to far more varied sets than the paper's
  ([how faithful they are](fidelity.md)).
- porto, susy and codrna are available only in part (marked \\*), so their cells measure other data; santander was not
  available. ijcnn1 as the paper counts it has 15 % of its test rows in train; ours are distinct.
- Of CC-Fraud there are 315 positives to learn from and 98 to test on.
{published(records, known)}
{baselines_section()}
## Which mode is best?

{modes_table(own)}
{chr(10).join(ranks)}
## The figures

All are drawn by `python -m studies.reproduction.figures`, each alone by `metricgrad reproduce figure1` and so on.

![Losses over two perturbed predictions](images/figure1.png)

*Figure 1: five losses of a set of ten rows as two predictions are shifted; flat steps have no gradient.*

![A one-parameter model on its surrogate](images/figure2.png)

*Figure 2: true and surrogate loss over the one parameter, round by round. <a href="figure2.html">Move alpha and step
through the rounds yourself</a>, also on the page that `metricgrad reproduce figure2` writes and on every report.*

![Convergence of SL-S and SL-R, AUC](images/figure3.png)

![Convergence of SL-S and SL-R, F1](images/figure3-f1.png)

*Figure 3, AUC and F1 on ijcnn1, from the first step, without warm-up: the refined surrogate is close to the metric from
the start, the one from scratch only later.*

## The runtime

The paper gives the cost of Algorithm 1 as O(T (K_alpha (Q_alpha + Q_beta) + K_beta Q_beta)), where Q is the number of
parameters. Measured by `{cost["command"]}`, each of the five varied alone from the paper's values, sets of 100 rows,
one thread:

{complexity.table(cost)}
{complexity.residuals(cost)}

![Measured time against the formula](images/runtime.png)

*Left, the formula alone; right, with a fixed cost for every step, which is most of the cost of such small networks.*

Every cell of the tables, the commands, how long each part takes and what a cluster would cost are on [a page of their
own](reproduction-cells.md).
""")


def cells_page(evidence: Evidence) -> str:
    """Return the page of all cells."""
    found = [table for protocol in PROTOCOLS for table in evidence.tables[protocol]]
    tables = "\n".join(as_markdown(result_table(table)) for table in found)
    tallies = "\n".join(as_markdown(tally_table(table)) for table in found[:2])
    return wrapped(f"""# The paper, reproduced: the cells

What they say is on [the page before](reproduction.md). {about_runs(evidence.own)}
{seed_count(found[0]).capitalize()} for each cell. Both pages are written by `python -m studies.reproduction.page`; do
not edit them.

{as_markdown(datasets_table(table1(evidence.own)))}
{tallies}
{tables}
## Readings of the paper's recipe

{reading_tables()}
{long_table()}
## Hand-made losses at the paper's budget

{baselines_table()}
{again_section(evidence)}""")


def again_section(found: Evidence) -> str:
    """Return how to run everything again, how long it takes, and what a cluster would cost."""
    records, own = found.records, found.own
    newest, machines = records[-1].kept["made_by"], stored("engines")
    commands = "\n".join(f"    {c}" for c in dict.fromkeys(r.kept["command"] for r in records))
    return f"""## To run it again

{commands}

Each run has its command, seed, commit, date, wall time and history (newest: metricgrad {newest["metricgrad"]}, torch
{newest["torch"]}). Another start of a command continues. {run_sentence(own)} By `--engine ray` or
`--engine dask` jobs go to a cluster: {engines_sentence(machines)}

{parts_table(parts_of(records))}
Seconds are those that passed, on a machine that did other work too; of the figures, processor time.

{cluster_table(job_seconds(own))}
Runs of one dataset and seed are one job, which is why a hundred workers wait for the longest.
"""


def parts_of(records: Sequence[Record]) -> dict[str, list[float]]:
    """Return the seconds of the jobs of everything that is on the page, part by part."""
    own = [record for record in records if record.setting == STANDARD]
    modes = [record for record in own if record.method in MODES]
    return {
        "Table 2, standard budget": job_seconds(modes),
        "Table 3, hand-made losses, standard budget": job_seconds([r for r in own if r.method not in MODES]),
        "Table 2, recipe `paper`": job_seconds([r for r in records if r.setting == PUBLISHED]),
        **{name: [one["seconds"] for one in Store(path)] for name, path in STUDIES.items()},
        "Figures": [json.loads(FIGURES.read_text(encoding="utf-8"))["seconds"]],
    }


def run_sentence(records: Sequence[Record]) -> str:
    """Return the seconds of a run by dataset."""
    each = ", ".join(f"{dataset} {seconds:.0f}" for dataset, seconds in part_seconds(records).items())
    return f"Seconds of a run of the tables: {each}."


def engines_sentence(record: Mapping[str, Any]) -> str:
    """Return what running the same small plan by every engine gave."""
    rows = record["engines"]
    largest = max(row["largest_difference"] for row in rows)
    times = ", ".join(f"{row['engine']} {row['seconds']:.0f} s" for row in rows)
    same = "the same to the last digit" if largest == 0 else f"within {largest:.1e}"
    return (
        f"with two local workers each, {rows[0]['losses']} losses of a small part of Table 2 were {same} in one "
        f"process, in two, on Ray and on Dask (`{record['command']}`; on a busy machine {times})."
    )


if __name__ == "__main__":
    stored_runs = evidence()
    PAGE.write_text(page(stored_runs), encoding="utf-8")
    CELLS.write_text(cells_page(stored_runs), encoding="utf-8")
    whole = README.read_text(encoding="utf-8")
    baselines_page.write_picture()
    README.write_text(in_place(whole, "reproduction", readme_part(stored_runs)), encoding="utf-8")
