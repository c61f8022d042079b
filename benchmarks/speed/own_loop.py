"""One step of a user's own loop with the paper's network, by its loss: python -m benchmarks.speed.own_loop

Rows of a set, the network 100-30-10 and Adam are the same for all; only the loss differs. `refine` takes the scores of
the step at hand, after every step or after every third, as the default recipe does. LibAUC's losses follow their
documentation: AUCM with PESG, AP with SOAP, whose memory of every training row is included. Soft F1 is the usual
formula from probabilities, in a few lines.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.speed.measuring import claim, in_turns, made_up_table, middle, parser_of, ratio, self_timed, store
from metricgrad import SurrogateLoss
from metricgrad.training.networks import build_model

FEATURES = 123
"""As many as a9a has, the first table of the paper."""
SIZES = (400, 4_000)
BAR = 1.75
PLAIN = "cross-entropy"
BOUND = {
    "SurrogateLoss, frozen": "a step on a frozen SurrogateLoss",
    "SurrogateLoss, refined every third step": "a step on SurrogateLoss, refined every third step",
    "SurrogateLoss, refined every step": "a step on SurrogateLoss, refined every step",
}
"""Contestants with a bar, and how the claim names them."""
Step = Callable[[], None]


def soft_f1(scores: Tensor, targets: Tensor) -> Tensor:
    """Return one minus F1 of probabilities."""
    chance = scores.sigmoid()
    return 1 - 2 * (chance * targets).sum() / (chance.sum() + targets.sum())


def follows(loss: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, refine_every: int = 0) -> Step:
    """Return a step of Adam down a loss, which refines it on the same scores after every so many."""
    model, taken = build_model("mlp", x.shape[-1]).train(), 0
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=True)

    def step() -> None:
        nonlocal taken
        scores = model(x)
        optimizer.zero_grad()
        loss(scores, y).backward()
        optimizer.step()
        taken += 1
        if refine_every and taken % refine_every == 0:
            loss.refine(scores, y)  # type: ignore[attr-defined]

    return step


def follows_libauc(name: str, x: Tensor, y: Tensor) -> Step:
    """Return a step of LibAUC: its loss with the optimizer it is made for."""
    from libauc import losses, optimizers

    model, places = build_model("mlp", x.shape[-1]).train(), torch.arange(len(y))
    if name == "AUCM":
        loss: Any = losses.AUCMLoss()
        optimizer = optimizers.PESG(model.parameters(), loss_fn=loss, lr=0.1, verbose=False)
    else:
        loss = losses.APLoss(data_len=len(y))
        optimizer = optimizers.SOAP(model.parameters(), lr=1e-3, verbose=False)

    def step() -> None:
        chance = model(x).sigmoid()
        optimizer.zero_grad()
        (loss(chance, y) if name == "AUCM" else loss(chance, y, places)).backward()
        optimizer.step()

    return step


def contestants(x: Tensor, y: Tensor, steps: int) -> tuple[dict[str, Callable[[], float]], dict[str, str]]:
    """Return what times some steps of every contestant, and why any is missing."""
    made: dict[str, Callable[[], Step]] = {
        PLAIN: lambda: follows(F.binary_cross_entropy_with_logits, x, y),
        "soft F1": lambda: follows(soft_f1, x, y),
        "SurrogateLoss, frozen": lambda: follows(SurrogateLoss("f1", frozen=True), x, y),
        "SurrogateLoss, refined every third step": lambda: follows(SurrogateLoss("f1"), x, y, refine_every=3),
        "SurrogateLoss, refined every step": lambda: follows(SurrogateLoss("f1"), x, y, refine_every=1),
        "LibAUC, AUCM": lambda: follows_libauc("AUCM", x, y),
        "LibAUC, AP": lambda: follows_libauc("AP", x, y),
    }
    ready: dict[str, Callable[[], float]] = {}
    missing: dict[str, str] = {}
    for name, make in made.items():
        try:
            step = make()
            step()
        except Exception as error:
            if not name.startswith("LibAUC"):
                raise
            missing[name] = f"{type(error).__name__}: {error}"
        else:
            ready[name] = partial(timed, step, steps)
    return ready, missing


def timed(step: Step, steps: int) -> float:
    """Return the processor time of a step, the mean of some."""
    start = time.process_time()
    for _ in range(steps):
        step()
    return (time.process_time() - start) / steps


def measure(rows: int, repeats: int, steps: int) -> dict[str, Any]:
    """Time steps on a set of so many rows in turns, and return their ratios to a step of cross-entropy."""
    table, labels = made_up_table(rows, FEATURES, 0.1)
    x, y = torch.from_numpy(table), torch.from_numpy(labels).float()
    ready, missing = contestants(x, y, steps)
    times = in_turns(ready, repeats, timed=self_timed, what=f"{rows} rows")
    over = {name: ratio(own, times[PLAIN]) for name, own in times.items()}
    return {"rows": rows, "seconds": middle(times), "over_cross_entropy": over, "missing": missing}


def main() -> int:
    parser = parser_of(__doc__, repeats=15)
    parser.add_argument("--steps", type=int, default=30, help="timed together on the smaller set")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    found = [measure(rows, asked.repeats, max(3, asked.steps * SIZES[0] // rows)) for rows in SIZES]
    claims = [
        claim(f"{says}, times cross-entropy, {one['rows']:,} rows", one["over_cross_entropy"][name], at_most=BAR)
        for one in found
        for name, says in BOUND.items()
    ]
    return 1 if store("own_loop", claims, asked.folder, features=FEATURES, by_rows=found) else 0


if __name__ == "__main__":
    raise SystemExit(main())
