"""The runtime formula of the paper, measured: python -m benchmarks.speed.complexity

T (K_alpha (Q_alpha + Q_beta) + K_beta Q_beta): each of the five is varied alone from the paper's values, on sets of 100
rows, one thread, in processor time. Also draws docs/images/runtime.png.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from scipy.optimize import nnls
from torch import nn

from benchmarks.speed.measuring import in_turns, made_up_table, parser_of, self_timed, store, stored
from metricgrad.surrogate.config import CONFIGS
from metricgrad.surrogate.loss import SurrogateLoss
from metricgrad.training.data import Rows
from metricgrad.training.networks import PAPER_WIDTHS, build_model, mlp
from metricgrad.training.recipe import RECIPES
from metricgrad.training.trainer import train
from studies.pages import DOCS, markdown, titled

NAME = "complexity"
PICTURE = DOCS / "images" / "runtime.png"
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10)
FEATURES = 22
"""As many as ijcnn1 has."""
SYMBOLS = {"rounds": "T", "model_steps": "K_alpha", "surrogate_steps": "K_beta", "model": "Q_alpha", "loss": "Q_beta"}
VARIED: Mapping[str, Sequence[int]] = {
    "rounds": (10, 20, 40, 80),
    "model_steps": (1, 3, 9, 27),
    "surrogate_steps": (1, 3, 10, 30),
    "model": (1, 2, 4, 8),
    "loss": (1, 2, 4, 8),
}
"""Rounds, steps, and the width of every layer as a multiple of the paper's."""


@dataclass(frozen=True)
class Case:
    """One training: rounds, steps of both kinds in a round, and width factors of both networks."""

    rounds: int = 20
    model_steps: int = 3
    surrogate_steps: int = 10
    model: int = 1
    loss: int = 1

    def networks(self) -> tuple[nn.Module, SurrogateLoss]:
        """Build the model and the surrogate."""
        torch.manual_seed(0)
        built = CONFIGS["paper"]
        wider = replace(built, g=tuple(self.loss * w for w in built.g), h=tuple(self.loss * w for w in built.h))
        widths = tuple(self.model * w for w in PAPER_WIDTHS)
        model = build_model(partial(mlp, widths=widths), FEATURES)
        return model, SurrogateLoss("auc", "scratch", config=wider)

    def parameters(self) -> tuple[int, int]:
        """Return Q_alpha and Q_beta."""
        model, loss = self.networks()
        return tuple(sum(p.numel() for p in net.parameters()) for net in (model, loss.surrogate))  # type: ignore[return-value]

    def seconds(self, rows: Rows) -> float:
        """Return the processor time of the rounds, without the first, which allocates memory, and the last check."""
        kept = {"rounds": self.rounds + 2, "model_steps": self.model_steps, "surrogate_steps": self.surrogate_steps}
        recipe = replace(RECIPES["paper"], refine_mode="eval", check_every=10**9, **kept)
        model, loss = self.networks()
        rounds = train(model, loss, rows, recipe)
        next(rounds)
        begun = time.process_time()
        for _ in range(self.rounds):
            next(rounds)
        return time.process_time() - begun


def formula(case: Mapping[str, Any]) -> float:
    """Return the value of the paper's formula."""
    q_alpha, q_beta = case["parameters"]
    return float(case["rounds"] * (case["model_steps"] * (q_alpha + q_beta) + case["surrogate_steps"] * q_beta))


def terms(case: Mapping[str, Any]) -> list[float]:
    """Return the terms of the formula and, beside each parameter, one for every step however small the networks are."""
    q_alpha, q_beta = case["parameters"]
    model, surrogate = (case["rounds"] * case[name] for name in ("model_steps", "surrogate_steps"))
    return [model, surrogate, model * q_alpha, (model + surrogate) * q_beta]


def fitted(cases: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float]]:
    """Return the seconds of each term by least squares on relative errors, none negative, and what they predict."""
    rows = np.array([terms(case) for case in cases])
    seconds = np.array([case["seconds"] for case in cases])
    found, _ = nnls(rows / seconds[:, None], np.ones(len(cases)))
    return found.tolist(), (rows @ found).tolist()


def measure(repeats: int) -> list[dict[str, Any]]:
    """Time every case in turns with the others."""
    X, y = made_up_table(5_000, FEATURES)
    rows = Rows(torch.from_numpy(X), torch.from_numpy(y).float())
    named = {f"{name}={value}": Case(**{name: value}) for name, values in VARIED.items() for value in values}
    distinct = {str(case): case for case in named.values()}
    timed = {name: partial(case.seconds, rows) for name, case in distinct.items()}
    times = in_turns(timed, repeats, timed=self_timed, what="trainings")
    least = {name: min(found) for name, found in times.items()}  # whatever else runs only adds to it
    return [
        {"varied": name.split("=")[0], **vars(case), "parameters": case.parameters(), "seconds": least[str(case)]}
        for name, case in named.items()
    ]


def slope(cases: Sequence[Mapping[str, Any]], of: str, values: Sequence[float]) -> float:
    """Return the value of the largest case that varies one field over that of the smallest."""
    places = [i for i, case in enumerate(cases) if case["varied"] == of]
    return values[places[-1]] / values[places[0]]


def table(record: Mapping[str, Any]) -> str:
    """Write how time grows with each of the five, beside what the formula and the fit say."""
    cases = record["cases"]
    _, predicted = fitted(cases)
    counted, seconds = [formula(case) for case in cases], [case["seconds"] for case in cases]
    rows = []
    for name, symbol in SYMBOLS.items():
        own = [case for case in cases if case["varied"] == name]
        place = {"model": 0, "loss": 1}.get(name)
        ends = [case[name] if place is None else case["parameters"][place] for case in (own[0], own[-1])]
        grown = (slope(cases, name, values) for values in (seconds, counted, predicted))
        rows.append([symbol.replace("_", "\\_"), f"{ends[0]:,} to {ends[1]:,}", *(f"x {times:.1f}" for times in grown)])
    head = ("varied", "from, to", "measured", "the formula", "with a cost a step")
    return titled("Processor time of the largest case over that of the smallest", markdown(head, rows, left=2))


def residuals(record: Mapping[str, Any]) -> str:
    """Write the seconds of each term, and how far the fit is off."""
    cases = record["cases"]
    found, predicted = fitted(cases)
    off = sorted(abs(p / case["seconds"] - 1) for p, case in zip(predicted, cases, strict=True))
    model, surrogate, q_alpha, q_beta = (1e6 * seconds for seconds in found)
    return (
        f"Fitted: {model:,.0f} µs a model step, {surrogate:,.0f} µs a surrogate step, and for every 1,000 parameters "
        f"{1e3 * q_alpha:,.1f} µs of the model and {1e3 * q_beta:,.1f} µs of the surrogate in each step that has it; "
        f"off by {off[len(off) // 2]:.0%} in the median and by {off[-1]:.0%} at most, over {len(cases)} trainings."
    )


def draw(record: Mapping[str, Any]) -> Figure:
    """Draw measured time against the formula, and against the fit."""
    cases = record["cases"]
    _, predicted = fitted(cases)
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    scale = math.exp(np.mean([math.log(case["seconds"] / formula(case)) for case in cases]))
    for axis, values, title in (
        (axes[0], [scale * formula(case) for case in cases], "by the paper's formula, scaled"),
        (axes[1], predicted, "by the fit, with a cost for every step"),
    ):
        for name, symbol in SYMBOLS.items():
            own = [i for i, case in enumerate(cases) if case["varied"] == name]
            points = [values[i] for i in own], [cases[i]["seconds"] for i in own]
            axis.plot(
                *points,
                marker="o",
                label=f"${symbol.replace('alpha', chr(92) + 'alpha').replace('beta', chr(92) + 'beta')}$",
            )
        ends = min(values), max(values)
        axis.plot(ends, ends, color="0.6", linewidth=1, zorder=0)
        axis.set(xscale="log", yscale="log", xlabel=f"seconds {title}", ylabel="seconds measured")
        for side in (axis.xaxis, axis.yaxis):
            side.set_major_locator(FixedLocator(TICKS))
            side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            side.set_minor_locator(NullLocator())
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def main() -> None:
    parser = parser_of(__doc__, repeats=3)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    store(NAME, [], cases=measure(asked.repeats))
    record = stored(NAME)
    draw(record).savefig(PICTURE, dpi=130)
    print(table(record), residuals(record), sep="\n")


if __name__ == "__main__":
    main()
