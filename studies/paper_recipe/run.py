"""Which reading of the paper's recipe comes nearest to its numbers? python -m studies.paper_recipe.run

Readings (`readings.py`) of SL-R and SL-S: a wide grid on two cells, then a narrow one on two more and on a second seed
of these. At every check the validation loss, the test loss as the authors' program scored it, and the gap of the
surrogate are stored, so that the page can report the last checkpoint, the best on validation rows, or the best on test
rows. Run again to resume.
"""

from __future__ import annotations

import pickle
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metricgrad.evaluation.store import Store
from metricgrad.files import write_whole
from metricgrad.metrics.registry import get_metric
from metricgrad.paper.experiments import prepared
from metricgrad.paper.protocols import PROTOCOLS
from metricgrad.surrogate.network import new_surrogate
from metricgrad.training.data import Rows
from metricgrad.training.methods import make_loss
from metricgrad.training.recipe import RECIPES
from studies import pages
from studies.paper_recipe.readings import (
    GRIDS,
    MODEL_STEPS,
    SIZE,
    SURROGATE_STEPS,
    Models,
    Reading,
    SideBySide,
    Surrogates,
    initial,
    surrogate_parts,
)

RESULTS = pages.RESULTS / "paper_recipe.jsonl"
CELLS = (
    ("wide", "ijcnn1", "f1", 0, 5_000),
    ("wide", "a9a", "auc", 0, 4_000),
    ("narrow", "ijcnn1", "f1", 1, 3_000),
    ("narrow", "a9a", "auc", 1, 3_000),
    ("narrow", "ijcnn1", "auc", 0, 3_000),
    ("narrow", "a9a", "f1", 0, 3_000),
)
"""Grid, dataset, metric, seed and rounds, the most telling first."""
MODES = ("sl-r", "sl-s")
CHECK_EVERY = 250
Member = tuple[Reading, str]


def members_of(grid: str) -> list[Member]:
    """Return every reading of a grid in both modes."""
    return [(reading, mode) for reading in GRIDS[grid] for mode in MODES]


class Sets:
    """Stratified sets of the training rows, half of them positive, in an order that the seed fixes."""

    def __init__(self, rows: Rows, seed: int) -> None:
        self.x, self.y = torch.as_tensor(rows.x).float(), rows.y.float()
        self.classes = [(self.y == label).nonzero()[:, 0] for label in (1, 0)]
        self.generator = torch.Generator().manual_seed(seed)

    def draw(self, sets: int) -> tuple[Tensor, Tensor]:
        """Return sets and their targets: `(sets, n, features)`, `(sets, n)`."""
        half = (sets, SIZE // 2)
        drawn = [own[torch.randint(len(own), half, generator=self.generator)] for own in self.classes]
        places = torch.cat(drawn, 1)
        return self.x[places], self.y[places]


def side_by_side(members: list[Member], metric: str, features: int, seed: int) -> SideBySide:
    """Return all readings of SL-R and SL-S at their start."""
    readings = [reading for reading, _ in members]
    loss: Any = make_loss("sl-r", get_metric(metric), RECIPES["paper"])
    surrogates = Surrogates([loss.surrogate] * len(members), readings)
    stack, scratch = surrogates.stack, new_surrogate("paper", seed)
    for place, (reading, mode) in enumerate(members):
        if mode == "sl-s":
            start = initial(surrogate_parts(scratch), reading, seed)
            stack.flat[place] = torch.cat([part.flatten() for part in start])
            surrogates.norm.mean[place], surrogates.norm.variance[place] = 0.0, 1.0
    return SideBySide(Models(features, readings, seed), surrogates, get_metric(metric).best, readings)


def train(grid: str, dataset: str, metric: str, seed: int, rounds: int, unfinished: Path) -> dict[str, Any]:
    """Train all members and return their histories, `(checks, m)` each; a checkpoint is written at every check."""
    parts = prepared(dataset, seed, standardise=False)
    sets, checks = Sets(parts.train, seed), []
    state = unfinished / f"{grid}-{dataset}-{metric}-{seed}.pickle"
    members, number, spent = side_by_side(members_of(grid), metric, sets.x.shape[1], seed), 0, 0.0
    torch.manual_seed(seed)
    if state.exists():  # written by this program
        members, number, spent, checks, own, general = pickle.loads(state.read_bytes())
        sets.generator.set_state(own)
        torch.set_rng_state(general)
    begun = time.perf_counter() - spent
    while number < rounds:
        members.round(sets.draw(SURROGATE_STEPS), sets.draw(MODEL_STEPS))
        number += 1
        if number % CHECK_EVERY == 0 or number == rounds:
            checks.append({"round": number, **judged(members, metric, parts)})
            known = sets.generator.get_state(), torch.get_rng_state()
            write_whole(state, pickle.dumps((members, number, time.perf_counter() - begun, checks, *known)))
    return {"checks": checks, "seconds": time.perf_counter() - begun}


def judged(members: SideBySide, metric: str, parts: Any) -> dict[str, list[float]]:
    """Return the losses of all members on validation and test rows, and the gaps of their surrogates."""
    of_metric, score = get_metric(metric), PROTOCOLS["paper"].score
    held, test = (members.models.still(torch.as_tensor(rows.x).float()) for rows in (parts.validation, parts.test))
    return {
        "validation": [round(float(of_metric.best(own, parts.validation.y)), 5) for own in held],
        "test": [
            round(score(metric, own, parts.validation.y, other, parts.test.y), 5)
            for own, other in zip(held, test, strict=True)
        ],
        "gap": [round(gap, 5) for gap in members.gap.tolist()],
    }


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--cells", type=int, default=len(CELLS), help="only the first so many cells")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    unfinished = asked.results.parent / "unfinished"
    unfinished.mkdir(parents=True, exist_ok=True)
    runs = {
        Store.key(run): (run, grid)
        for grid, dataset, metric, seed, rounds in CELLS[: asked.cells]
        for run in [
            {
                "dataset": dataset,
                "metric": metric,
                "seed": seed,
                "rounds": rounds,
                "members": [{"mode": mode, **vars(reading)} for reading, mode in members_of(grid)],
            }
        ]
    }

    def outcome(run: dict[str, Any]) -> dict[str, Any]:
        grid = runs[Store.key(run)][1]
        return train(grid, run["dataset"], run["metric"], run["seed"], run["rounds"], unfinished)

    pages.run_missing(Store(asked.results), [run for run, _ in runs.values()], outcome)


if __name__ == "__main__":
    main()
