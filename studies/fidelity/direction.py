"""Do bundled surrogates point where their metric falls? METRICGRAD_DATA=... python -m studies.fidelity.direction

The cosine between the gradient of a surrogate and the probed gradient of its metric (`probe.py`), along the directions
that a model can move the scores of its rows, on sets of real rows of 400 to 10,000 rows (`scored.py`).
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch

from metricgrad.metrics.registry import named_metric
from metricgrad.metrics.tasks import BINARY
from metricgrad.provenance import provenance
from metricgrad.reporting.progress import work_bar
from metricgrad.surrogate.network import Surrogate
from metricgrad.surrogate.pretrained import WEIGHTS_FOLDER, bundled_names, file_name, open_surrogate, unpacked_surrogate
from studies.fidelity import page
from studies.fidelity.probe import ScoredSet, cosines, followed_gradient, probed_halves
from studies.fidelity.scored import centred_at_prevalence, scored_sets, trained, training_rows
from studies.pages import ROOT, command, parser_of

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


def bundled_at(commit: str | None, name: str) -> Surrogate:
    """Return the bundled surrogate of a metric, as it is or as it was at a commit."""
    path = WEIGHTS_FOLDER / file_name(name)
    if commit is None:
        return open_surrogate(path)
    place = path.relative_to(ROOT).as_posix()
    shown = subprocess.run(["git", "-C", str(ROOT), "show", f"{commit}:{place}"], capture_output=True, check=True)
    return unpacked_surrogate(shown.stdout, path.name)


def judged(sets: list[ScoredSet], name: str, surrogates: dict[str, Surrogate], how: Probing) -> list[dict[str, Any]]:
    """Return what is found on some sets by every surrogate of a metric: cosines, ceilings and slopes, set by set."""
    metric, found = named_metric(name), {key: [] for key in surrogates}
    for number, one in enumerate(sets):
        one = centred_at_prevalence(one) if metric.thresholded else one
        halves = probed_halves(metric, one, width=how.width, pairs=how.pairs, seed=SEED + number)
        slope = float((halves[0] + halves[1]).norm() / 2)
        for key, surrogate in surrogates.items():
            found[key].append([*cosines(followed_gradient(surrogate, one), halves), slope])
    return [
        {"weights": key, "metric": name, "rows": how.rows}
        | {what: [round(x, 5) for x in each] for what, each in zip(FOUND, zip(*of_sets, strict=True), strict=True)}
        for key, of_sets in found.items()
    ]


def measured(names: list[str], commits: dict[str, str | None]) -> Iterator[list[dict[str, Any]]]:
    """Yield what is found by all surrogates on the sets of one table, model and size."""
    surrogates = {name: {key: bundled_at(commit, name) for key, commit in commits.items()} for name in names}
    for table in TABLES:
        rows = training_rows(table)
        for kind in MODELS:
            model = trained(rows, kind)
            for how in PROBINGS:
                sets = scored_sets(model, rows, how.rows, how.sets, SEED)
                found = [cell for name in names for cell in judged(sets, name, surrogates[name], how)]
                yield [{"table": table, "model": kind, **cell} for cell in found]


def main() -> None:
    parser = parser_of(__doc__ or "", page.DIRECTION)
    parser.add_argument("--before", help="a commit whose weights are judged on the same probes")
    asked = parser.parse_args()
    if not asked.report:
        torch.set_num_threads(1)
        commits = {"bundled": None, **({"before": asked.before} if asked.before else {})}
        how = {"probings": [asdict(each) for each in PROBINGS], "tables": TABLES, "models": MODELS}
        stored = {"command": command(), "seed": SEED, "made_by": provenance(), **how, "cells": []}
        total = len(TABLES) * len(MODELS) * len(PROBINGS)
        with work_bar() as report:
            for number, found in enumerate(measured(two_class_metrics(), commits), 1):
                stored["cells"] += found
                asked.results.write_text(json.dumps(stored) + "\n", "utf-8")
                report("tables, models and sizes", number, total)
    page.main()


if __name__ == "__main__":
    main()
