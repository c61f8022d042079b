"""Other rules of choice, from scores that were kept: python -m studies.strategies.other_rules FOLDER

`studies.strategies.run --scores FOLDER` keeps the scores of every strategy; nothing is trained here.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from metricgrad import get_metric
from metricgrad.evaluation.store import Store
from metricgrad.metrics.thresholds import best_threshold
from metricgrad.training.selection import standard_error
from studies import pages
from studies.strategies import cells
from studies.strategies.run import Rules, in_spreads, mixed, path_of

FEW = 100
"""Held-out positives below which the margin is twice that of the package."""
NEAR = 2.0
"""Standard errors below which the best and the usual loss are averaged."""


def losses_of(rules: Rules) -> dict[str, float]:
    """Return the losses on test rows of rules that are not those of the package."""
    best, errors = rules.best_of(list(rules.known))
    rare = min(int((rules.pooled == kind).sum()) for kind in (0, 1))
    margins = {
        "few": 2 * cells.PACKAGE_MARGIN if rare < FEW else cells.PACKAGE_MARGIN,
        "root": cells.PACKAGE_MARGIN * (1 + (FEW / rare) ** 0.5),
    }
    chosen = {name: best if errors > margin else "proper" for name, margin in margins.items()}
    chosen["crossed"] = crossed_choice(rules, cells.PACKAGE_MARGIN)
    averaged = best != "proper" and errors < NEAR
    return {
        **{name: rules.alone(strategy) for name, strategy in chosen.items()},
        "near": with_proper(rules, best) if averaged else rules.alone(best),
    }


def with_proper(rules: Rules, best: str) -> float:
    """Return the loss of the average of the scores of the usual loss and of the best strategy."""
    usual, other = rules.known["proper"], rules.known[best]
    held_out, test = (mixed(a, b, 0.5) for a, b in ((usual.held_out, other.held_out), (usual.test, other.test)))
    return rules.test_loss(in_spreads(held_out), in_spreads(test, held_out))


def crossed_choice(rules: Rules, margin: float) -> str:
    """Return the choice where each fold is decided by the threshold that is best on the others."""
    scores = {name: crossed(rules, own.held_out) for name, own in rules.known.items()}
    losses = {name: float(rules.metric(own, rules.pooled)) for name, own in scores.items()}
    best = min(losses, key=lambda name: losses[name])
    if best == "proper":
        return best
    error = standard_error(rules.metric, scores["proper"], scores[best], rules.pooled)
    return best if losses["proper"] - losses[best] > margin * error else "proper"


def crossed(rules: Rules, held_out: list[Tensor]) -> Tensor:
    """Return pooled scores, those of each fold less the best threshold of the others."""
    if not rules.metric.decides:
        return torch.cat(held_out)
    cuts = []
    for fold in range(len(held_out)):
        scores, y = (
            torch.cat([part for other, part in enumerate(own) if other != fold]) for own in (held_out, rules.y)
        )
        cuts.append(best_threshold(rules.metric, scores, y))
    return torch.cat([own - cut for own, cut in zip(held_out, cuts, strict=True)])


def outcome(run: dict[str, Any], scores: Path) -> dict[str, float]:
    """Judge the rules by the scores of a run."""
    return losses_of(Rules.load(get_metric(run["metric"]), path_of(run, scores)))


def main() -> None:
    parser = pages.parser_of(__doc__, cells.RULE_RESULTS)
    parser.add_argument("scores", type=Path)
    asked = parser.parse_args()
    runs = [record["run"] for record in cells.newest(list(Store(cells.RESULTS)))]
    kept = [run for run in runs if path_of(run, asked.scores).exists()]
    pages.run_missing(Store(asked.results), kept, partial(outcome, scores=asked.scores))


if __name__ == "__main__":
    main()
