"""Which reading of the paper's recipe comes nearest to its numbers? python -m studies.paper_recipe.run

Readings (`readings.py`) of SL-R and SL-S: a wide grid on two cells, a narrow one on a second seed of these, and the
readings that mattered on two more cells with two seeds. At every check the validation loss, the test loss as the
authors' program scored it, and the gap of the surrogate are stored, so that the page can report the last checkpoint,
the best on validation rows, or the best on test rows. Run again to resume.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metricgrad.evaluation.store import Store
from metricgrad.metrics.registry import get_metric
from metricgrad.paper.experiments import prepared
from metricgrad.paper.protocols import PROTOCOLS
from metricgrad.surrogate.network import new_surrogate
from metricgrad.training.data import Rows
from metricgrad.training.methods import make_loss
from metricgrad.training.recipe import RECIPES
from studies import pages
from studies.paper_recipe.checkpoints import resumed
from studies.paper_recipe.networks import Models, Surrogates, initial, surrogate_parts
from studies.paper_recipe.readings import GRIDS, MODEL_STEPS, SIZE, SURROGATE_STEPS, Reading
from studies.paper_recipe.side_by_side import SideBySide

RESULTS = pages.RESULTS / "paper_recipe.jsonl"
CELLS = (
    ("wide", "ijcnn1", "f1", 0, 5_000),
    ("wide", "a9a", "auc", 0, 4_000),
    ("narrow", "ijcnn1", "f1", 1, 3_000),
    ("narrow", "a9a", "auc", 1, 3_000),
    ("chosen", "a9a", "f1", 0, 2_000),
    ("chosen", "ijcnn1", "auc", 0, 2_000),
    ("chosen", "a9a", "f1", 1, 2_000),
    ("chosen", "ijcnn1", "auc", 1, 2_000),
)
"""Grid, dataset, metric, seed and rounds, the most telling first."""
MODES = ("sl-r", "sl-s")
CHECK_EVERY = 250


@dataclass(frozen=True)
class Member:
    """A reading that follows a surrogate of a metric in a mode of the paper."""

    reading: Reading
    metric: str
    mode: str

    @property
    def stored(self) -> dict[str, Any]:
        """What identifies it in a run of one metric."""
        return {"mode": self.mode, **vars(self.reading)}


def members_of(grid: str, metric: str) -> list[Member]:
    """Return every reading of a grid in both modes."""
    return [Member(reading, metric, mode) for reading in GRIDS[grid] for mode in MODES]


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


def side_by_side(members: Sequence[Member], features: int, seed: int) -> SideBySide:
    """Return all members at their start."""
    readings, kinds = [member.reading for member in members], metrics_of(members)
    universal: dict[str, Any] = {name: make_loss("sl-r", get_metric(name), RECIPES["paper"]) for name in kinds}
    surrogates = Surrogates([universal[member.metric].surrogate for member in members], readings)
    stack, scratch = surrogates.stack, new_surrogate("paper", seed)
    for place, member in enumerate(members):
        if member.mode == "sl-s":
            start = initial(surrogate_parts(scratch), member.reading, seed)
            stack.flat[place] = torch.cat([part.flatten() for part in start])
            surrogates.norm.mean[place], surrogates.norm.variance[place] = 0.0, 1.0
        elif member.mode == "sl-u":
            stack.rate[place] = 0.0
    return SideBySide(Models(features, readings, seed), surrogates, TrueLoss(members), readings)


def metrics_of(members: Sequence[Member]) -> list[str]:
    """Return the metrics of members, which lie beside each other."""
    return [name for name, _ in groupby(members, lambda member: member.metric)]


class TrueLoss:
    """The metric of each member at its best threshold: scores and targets `(m, sets, n)` -> `(m, sets)`."""

    def __init__(self, members: Sequence[Member]) -> None:
        self.counts = [(name, len(list(own))) for name, own in groupby(members, lambda member: member.metric)]

    def __call__(self, scores: Tensor, targets: Tensor) -> Tensor:
        """Return the losses of sets."""
        sizes = [count for _, count in self.counts]
        parts = zip(self.counts, scores.split(sizes), targets.split(sizes), strict=True)
        return torch.cat([get_metric(name).best(own, known) for (name, _), own, known in parts])


def train(
    members: Sequence[Member],
    place: tuple[str, int, int],
    state: Path,
    check_every: int = CHECK_EVERY,
    compiled: bool = False,
) -> dict[str, Any]:
    """Train members on a place, which is dataset, seed and rounds, and return their histories, `(checks, m)` each.

    A checkpoint is written to the file `state` at every check.
    """
    dataset, seed, rounds = place
    parts = prepared(dataset, seed, standardise=False)
    sets = Sets(parts.train, seed)
    torch.manual_seed(seed)
    return resumed(
        state,
        side_by_side(members, sets.x.shape[1], seed),
        sets.generator,
        advance=lambda together: together.round(sets.draw(SURROGATE_STEPS), sets.draw(MODEL_STEPS)),
        judge=lambda together: judged(together, members, parts),
        unit="round",
        total=rounds,
        check_every=check_every,
        compiled=compiled,
    )


def judged(together: SideBySide, members: Sequence[Member], parts: Any) -> dict[str, list[float]]:
    """Return the losses of all members on validation and test rows, and the gaps of their surrogates."""
    score = PROTOCOLS["paper"].score
    held, test = (together.models.still(torch.as_tensor(rows.x).float()) for rows in (parts.validation, parts.test))
    each = list(zip((member.metric for member in members), held, test, strict=True))
    return {
        "validation": [round(float(get_metric(name).best(own, parts.validation.y)), 5) for name, own, _ in each],
        "test": [round(score(name, own, parts.validation.y, other, parts.test.y), 5) for name, own, other in each],
        "gap": [round(gap, 5) for gap in together.gap.tolist()],
    }


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--cells", type=int, default=len(CELLS), help="only the first so many cells")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    unfinished = asked.results.parent / "unfinished"
    unfinished.mkdir(parents=True, exist_ok=True)
    runs = {}
    for grid, dataset, metric, seed, rounds in CELLS[: asked.cells]:
        members = members_of(grid, metric)
        stored = [member.stored for member in members]
        run = {"dataset": dataset, "metric": metric, "seed": seed, "rounds": rounds, "members": stored}
        runs[Store.key(run)] = run, members, unfinished / f"{grid}-{dataset}-{metric}-{seed}.pickle"

    def outcome(run: dict[str, Any]) -> dict[str, Any]:
        _, members, state = runs[Store.key(run)]
        return train(members, (run["dataset"], run["seed"], run["rounds"]), state, compiled=True)

    pages.run_missing(Store(asked.results), [run for run, *_ in runs.values()], outcome)


if __name__ == "__main__":
    main()
