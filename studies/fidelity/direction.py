"""Do bundled surrogates point where their metric falls? METRICGRAD_DATA=... python -m studies.fidelity.direction

The cosine between the gradient of a surrogate and the probed gradient of its metric (`probe.py`), along the directions
that a model can move the scores of its rows, on sets of real rows of 400 to 10,000 rows (`scored.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from metricgrad.files import write_whole
from metricgrad.metrics.registry import named_metric
from metricgrad.metrics.tasks import BINARY
from metricgrad.provenance import provenance
from metricgrad.reporting.progress import work_bar
from metricgrad.surrogate.pretrained import bundled_names, load_universal
from studies.fidelity import page
from studies.fidelity.probe import ScoredSet, cosines, followed_gradient, probed_halves
from studies.fidelity.scored import centred_at_prevalence, scored_sets, trained, training_rows
from studies.pages import command, parser_of

TABLES = ("a9a", "ijcnn1", "covtype", "covtype@0.1%", "ccfraud", "porto")
MODELS = ("linear", "mlp")
SEED = 23
FOUND = ("cosines", "ceilings", "slopes")


@dataclass(frozen=True)
class Probing:
    """How sets of one size are probed: how many of each model, how far rows move, and antithetic pairs of each half."""

    rows: int
    sets: int
    width: float
    pairs: int


PROBINGS = (
    Probing(400, 3, 0.1, 96),
    Probing(1_200, 2, 0.1, 96),
    Probing(4_000, 1, 0.05, 64),
    Probing(10_000, 1, 0.05, 48),
)
"""Small sets are step functions on a coarser scale than large ones, so their rows are moved further."""


def two_class_metrics() -> list[str]:
    """Return the names of the bundled metrics of two classes."""
    return [name for name in bundled_names() if named_metric(name).task == BINARY]


def judged(sets: list[ScoredSet], name: str, how: Probing) -> dict[str, Any]:
    """Return what is found on some sets by the surrogate of a metric: cosines, ceilings and slopes, set by set."""
    metric, surrogate, found = named_metric(name), load_universal(name), []
    for number, one in enumerate(sets):
        one = centred_at_prevalence(one) if metric.thresholded else one
        halves = probed_halves(metric, one, width=how.width, pairs=how.pairs, seed=SEED + number)
        slope = float((halves[0] + halves[1]).norm() / 2)
        found.append([*cosines(followed_gradient(surrogate, one), halves), slope])
    by_kind = zip(FOUND, zip(*found, strict=True), strict=True)
    return {"metric": name, "rows": how.rows} | {kind: [round(x, 5) for x in each] for kind, each in by_kind}


def measured(table: str, kinds: list[str], known: set[tuple[str, str, int, str]]) -> Iterator[list[dict[str, Any]]]:
    """Yield what is found on the sets of a table by model and size, of the metrics that are not known there yet."""
    rows = training_rows(table)
    for kind in kinds:
        by_size = {
            how: [name for name in two_class_metrics() if (table, kind, how.rows, name) not in known]
            for how in PROBINGS
        }
        model = trained(rows, kind) if any(by_size.values()) else None
        for how, names in by_size.items():
            if names:
                sets = scored_sets(model, rows, how.rows, how.sets, SEED)
                yield [{"table": table, "model": kind, **judged(sets, name, how)} for name in names]


def main() -> None:
    parser = parser_of(__doc__ or "", page.DIRECTION)
    parser.add_argument("--tables", nargs="+", default=list(TABLES))
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--again", nargs="+", default=[], help="metrics to measure again, where they are stored")
    asked = parser.parse_args()
    if not asked.report:
        torch.set_num_threads(1)
        run_missing(asked.results, asked.tables, asked.models, set(asked.again))
    page.main()


def run_missing(path: Path, tables: list[str], kinds: list[str], again: set[str]) -> None:
    """Measure what is not stored yet; it is stored as it is found, with the number of the run that found it.

    Metrics that are measured again, since their surrogates are others, lose what is stored of them on these tables.
    """
    stored = json.loads(path.read_text("utf-8")) if path.is_file() else {"seed": SEED, "runs": [], "cells": []}
    stored["probings"] = [asdict(each) for each in PROBINGS]
    stored["runs"].append({"command": command(), "made_by": provenance()})
    old = [cell for cell in stored["cells"] if cell["metric"] in again and cell["table"] in tables]
    stored["cells"] = [cell for cell in stored["cells"] if cell not in old]
    known = {(cell["table"], cell["model"], cell["rows"], cell["metric"]) for cell in stored["cells"]}
    with work_bar() as report:
        for number, table in enumerate(tables, 1):
            for found in measured(table, kinds, known):
                stored["cells"] += [{"run": len(stored["runs"]) - 1, **cell} for cell in found]
                write_whole(path, json.dumps(stored) + "\n")
            report("tables", number, len(tables))


if __name__ == "__main__":
    main()
