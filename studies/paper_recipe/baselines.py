"""Hand-made losses at the paper's budget: METRICGRAD_DATA=... python -m studies.paper_recipe.baselines

The baselines of Table 3 as the paper trains them: its network from random weights, sets of 100 rows of which half are
positive, features not standardised, 1,000,000 steps of Adam at 1e-4. All are trained side by side on the same sets with
the same dropout. A checkpoint is written every 20,000 steps; run again to resume, or with `--so-far` to store
what was reached. A shorter run, `--hundreds 200 --check-every 5`, is the start of the same training, looked at more
often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from metricgrad.evaluation.store import Store
from metricgrad.losses.binary import BASELINES, CostSensitive, GlobalObjectives
from metricgrad.metrics.registry import get_metric
from metricgrad.paper.experiments import prepared
from metricgrad.paper.protocols import PROTOCOLS, get_protocol
from metricgrad.training.recipe import RECIPES
from studies import pages
from studies.paper_recipe.checkpoints import resumed, store_unfinished
from studies.paper_recipe.networks import Models
from studies.paper_recipe.readings import OURS
from studies.paper_recipe.run import Sets
from studies.paper_recipe.side_by_side import drawn_masks
from studies.paper_recipe.stack import Stack, Statistics

RESULTS = pages.RESULTS / "paper_baselines.jsonl"
DATASETS = ("ijcnn1", "codrna", "a9a")
SEED, HUNDREDS, CHECK_EVERY = 0, 10_000, 200
"""Steps are taken in hundreds, for which the sets are drawn at once."""
RATE = float(RECIPES["paper"].baseline_rate or 0)
ADAM = replace(OURS, name="Adam at the rate of the baselines", clip="none", rate=RATE)


@dataclass(frozen=True)
class Baseline:
    """A hand-made loss, the column of Table 3 it is in, and the cost of a positive row if that is tuned."""

    metric: str
    method: str
    cost: float | None = None

    def loss(self) -> nn.Module:
        """Return the loss of a set."""
        return BASELINES[self.method]() if self.cost is None else CostSensitive(self.cost)

    @property
    def measured(self) -> str:
        """The metric that the paper measured under the name of the column."""
        return get_protocol("paper").measured(self.metric).name


MEMBERS = (
    Baseline("error_rate", "cross-entropy"),
    Baseline("auc", "pairwise"),
    Baseline("auc", "global-objectives"),
    Baseline("jaccard", "lovasz-softmax"),
    Baseline("f1", "cost-sensitive", 2.7),
)
"""The cost is the one of `COSTS` that validation rows chose most often in the tables of the standard budget."""


class Losses(nn.ModuleList):
    """Losses of one member each."""

    def forward(self, scores: Tensor, y: Tensor) -> Tensor:
        """Return the sum of the losses of all members on a set: `(m, n)` and `(n,)`."""
        return torch.stack([loss(own, y) for loss, own in zip(self, scores, strict=True)]).sum()


class Baselines:
    """Models that follow hand-made losses, side by side."""

    def __init__(self, members: Sequence[Baseline], features: int, seed: int) -> None:
        self.members = members
        self.models = Models(features, [ADAM] * len(members), seed)
        self.losses = Losses(member.loss() for member in members)
        self.learned = self._learned()

    def start(self, x: Tensor, y: Tensor) -> None:
        """Let losses that start at the scores of a first set see it, `(n, features)`; steps come after it."""
        with torch.no_grad():
            scores, seen = self.models.live(self.models.stack.flat, x.unsqueeze(0), drawn_masks(1, len(x)))
            self.losses(scores[:, 0], y)
        self.models.move_norms(seen, len(x))
        self.learned = self._learned()

    def _learned(self) -> Stack:
        """Return what losses learn themselves, the thresholds and multipliers of Eban et al., as they are now."""
        return Stack([[part.detach().clone() for part in self.losses.parameters()]], [ADAM])

    def steps(self, sets: tuple[Tensor, Tensor]) -> None:
        """Take a step on each of some sets, `(steps, n, features)` with their targets `(steps, n)`."""
        count, rows = sets[1].shape
        for x, y, *masks in zip(*sets, *drawn_masks(1, rows, count), strict=True):
            self._step(x, y, masks)

    def _step(self, x: Tensor, y: Tensor, masks: Sequence[Tensor]) -> None:
        """Move the models, their batch norms and what losses learn by one set: `(n, features)` and `(n,)`."""

        def followed(flat: Tensor, learned: Tensor) -> tuple[Tensor, list[Statistics]]:
            scores, seen = self.models.live(flat, x.unsqueeze(0), masks)
            return self._loss(learned, scores[:, 0], y), seen

        gradients, seen = grad(followed, (0, 1), has_aux=True)(self.models.stack.flat, self.learned.flat)
        self.models.move_norms(seen, len(y))
        for stack, gradient in zip((self.models.stack, self.learned), gradients, strict=True):
            stack.move(gradient)

    def _loss(self, learned: Tensor, scores: Tensor, y: Tensor) -> Tensor:
        """Return the sum of the losses of all members on a set, by what losses have learned, `(1, p)`."""
        names = (name for name, _ in self.losses.named_parameters())
        parts = (part[0] for part in self.learned.parts(learned))
        total: Tensor = functional_call(self.losses, dict(zip(names, parts, strict=True)), (scores, y))
        return total

    def compile(self) -> None:
        """Compile the step as one program, which takes half a minute; it then takes two fifths of the time."""
        for loss in self.losses:
            if isinstance(loss, GlobalObjectives) and bool(loss.started):
                del loss.started  # a buffer, whose value a compiled program cannot branch on
                loss.__dict__["started"] = True
        self._step = torch.compile(self._step, dynamic=False)  # type: ignore[method-assign]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_step"}

    def scores(self, x: Tensor) -> Tensor:
        """Score rows in evaluation mode: `(n, features)` -> `(m, n)`."""
        return self.models.still(x)

    def judged(self, parts: Any) -> dict[str, list[float]]:
        """Return the losses of all members on validation and test rows."""
        score = PROTOCOLS["paper"].score
        held, test = (self.scores(torch.as_tensor(rows.x).float()) for rows in (parts.validation, parts.test))
        each = list(zip((member.measured for member in self.members), held, test, strict=True))
        return {
            "validation": [round(float(get_metric(name).best(own, parts.validation.y)), 5) for name, own, _ in each],
            "test": [round(score(name, own, parts.validation.y, other, parts.test.y), 5) for name, own, other in each],
        }


def main() -> None:
    parser = pages.parser_of(__doc__, RESULTS)
    parser.add_argument("--datasets", default=",".join(DATASETS), help="names, separated by commas")
    parser.add_argument("--hundreds", type=int, default=HUNDREDS, help="steps, in hundreds")
    parser.add_argument("--check-every", type=int, default=CHECK_EVERY, help="the same, between two checks")
    parser.add_argument("--so-far", action="store_true", help="only store what unfinished trainings have reached")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    unfinished = asked.results.parent / "unfinished"
    unfinished.mkdir(parents=True, exist_ok=True)
    members = [asdict(member) for member in MEMBERS]
    runs = [
        {"dataset": dataset, "seed": SEED, "hundreds": asked.hundreds, "rate": RATE, "members": members}
        for dataset in asked.datasets.split(",")
    ]

    def state(run: dict[str, Any]) -> Path:
        return unfinished / f"baselines-{run['dataset']}-{asked.hundreds}-{asked.check_every}.pickle"

    def outcome(run: dict[str, Any]) -> dict[str, Any]:
        parts = prepared(run["dataset"], SEED, standardise=False)
        sets = Sets(parts.train, SEED)
        torch.manual_seed(SEED)
        trained = Baselines(MEMBERS, sets.x.shape[1], SEED)
        trained.start(*(part[0] for part in sets.draw(1)))
        return resumed(
            state(run),
            trained,
            sets.generator,
            advance=lambda own: own.steps(sets.draw(100)),
            judge=lambda own: own.judged(parts),
            unit="hundred",
            total=run["hundreds"],
            check_every=asked.check_every,
            compiled=True,
        )

    store = Store(asked.results)
    if asked.so_far:
        store_unfinished(store, [(run, state(run)) for run in runs], "hundreds")
    else:
        pages.run_missing(store, runs, outcome)


if __name__ == "__main__":
    main()
