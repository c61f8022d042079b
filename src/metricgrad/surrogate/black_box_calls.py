"""Calls of a black box while a surrogate is refined: how many there are, when they are made, and on which sets.

A black box is mostly emulated, so that refining hardly calls it. Its emulator is corrected by calls on sets of the
model now and then, and given up if it does not follow the function there. Without an emulator the function itself is
called, in pauses that grow. Both leave a part of the calls of a run for looks at validation rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from metricgrad.metrics.metric import Metric
from metricgrad.surrogate.network import Progress

LOOKS_SHARE = 0.25
"""Share of the calls of a run that is kept for looks at validation rows."""
CALLS_PER_PAUSE, PAUSE_OF_EMULATORS = 150, 0.15
"""Refinings between two that call a black box, as a share of all so far: 150 over the limit of calls, and at least."""
SETS_TO_CORRECT = 8
"""Sets of a model that an emulator is fitted to at a time."""
REFININGS = 100
"""Least number of refinings that the calls of a black box are divided over."""
MIN_COMPARED, MIN_CORRELATION = 24, 0.4
"""Sets of a model from which on an emulator is given up, if it correlates less than this with the metric there."""


class BlackBoxCalls:
    """The part of a loss that knows the metric, and how often a user's function has been and may be called."""

    metric: Metric
    judge: Metric
    out_of_calls: bool

    def _start_counting(self, metric: Metric) -> None:
        """Count calls of a metric from now on."""
        self._calls_before, self._refined = metric.calls, 0
        self.judge = metric
        self._truth: Metric | None = None  # the metric, where `metric` is its emulator
        self._known: Tensor | None = None  # what it returned in calls for an emulator that is not accurate
        self._compared: list[Tensor] = []
        self._called: list[tuple[Tensor, Tensor]] = []
        self._generator, self._per_set, self._next_due = torch.Generator().manual_seed(0), 1.0, 0
        self.out_of_calls = False

    def _emulated(self, metric: Metric, progress: Progress | None) -> Metric:
        """Return a black box as its emulator, if there is a good one."""
        from metricgrad.surrogate import cache, emulators  # fitting needs modules that a bundled metric does not

        emulator = cache.emulator_for(metric, progress)
        if emulator is None or not emulator.is_accurate:
            if isinstance(emulator, emulators.ScoreEmulator):
                self._known = emulator.process.values
            return metric
        if isinstance(emulator, emulators.ScoreEmulator):
            self._truth = metric
        stand_in = emulators.emulated(metric, emulator)
        self.judge = emulators.guided(metric, stand_in)
        return stand_in

    @property
    def calls(self) -> int:
        """Calls of a user's function since this loss was made, looks at validation rows included."""
        calls: int = self.judge.calls - self._calls_before
        return calls

    @property
    def calls_per_set(self) -> float:
        """Calls that the last set took: several where thresholds are tried."""
        return self._per_set

    @property
    def calls_left(self) -> float:
        """Calls that refining may still take: what looks at validation rows do not need of the calls of a run."""
        if self.judge.budget is None:
            return float("inf")
        return max((1 - LOOKS_SHARE) * self.judge.budget.max_calls - self.calls, 0)

    def _affordable(self, kept: Tensor) -> Tensor:
        """Return the mask of the sets that a black box is called on: none if it is not due, or calls have run out."""
        assert self.judge.budget is not None
        most = min(max(self.judge.budget.max_calls // REFININGS, SETS_TO_CORRECT), int(self.calls_left / self._per_set))
        if most < min(int(kept.sum()), SETS_TO_CORRECT):
            self.out_of_calls, most = True, 0
        elif not self._is_due(0.0):
            most = 0
        return kept & (kept.flatten().cumsum(0).view(kept.shape) <= most)

    def _is_due(self, least_pause: float) -> bool:
        """Whether to call a black box in this refining: often at first, then in pauses that grow as calls are fewer."""
        assert self.judge.budget is not None
        if self._refined < self._next_due:
            return False
        pause = max(CALLS_PER_PAUSE / self.judge.budget.max_calls, least_pause)
        self._next_due = self._refined + max(int(pause * self._refined), 1)
        return True

    def _correct(self, scores: Tensor, targets: Tensor, weights: Tensor) -> None:
        """Call the true metric now and then on the sets of a model, and fit its emulator to them too.

        If the emulator does not follow it there, the true metric is called from then on.
        """
        some = min(len(scores), SETS_TO_CORRECT, int(min(self.calls_left, SETS_TO_CORRECT)))
        if self._truth is None or not some or not self._is_due(PAUSE_OF_EMULATORS):
            return
        weighs = self._truth.takes_weights or self._truth.repeats_rows
        present = weights[:some] if weighs else (weights[:some] > 0).to(weights)
        sets = scores[:some].double(), targets[:some], present
        true = self._truth(*sets)
        self._compared.append(torch.stack((self.metric(*sets), true)))
        if not _follows(torch.cat(self._compared, -1)):
            self.metric, self._truth, self._next_due = self._truth, None, 0
            return
        emulator: Any = self.metric.function
        emulator.add(*sets, true)

    def _black_box_state(self) -> dict[str, Any]:
        """Return what is known of a black box by its calls, and when the next are due."""
        emulator: Any = self.metric.function
        return {
            "calls": self.calls,
            "schedule": (self._refined, self._next_due, self._per_set, self.out_of_calls),
            "called": self._called,
            "compared": self._compared,
            "random": self._generator.get_state(),
            "emulator": dict(emulator.process.state_dict()) if self._truth else None,
        }

    def _load_black_box(self, state: dict[str, Any]) -> None:
        self._calls_before = self.judge.calls - state["calls"]
        self._refined, self._next_due, self._per_set, self.out_of_calls = state["schedule"]
        self._called, self._compared = state["called"], state["compared"]
        self._generator.set_state(state["random"])
        emulator: Any = self.metric.function
        if self._truth and state["emulator"]:
            emulator.process.load(state["emulator"])
        elif self._truth:  # it was given up
            self.metric, self._truth = self._truth, None


def _follows(losses: Tensor) -> bool:
    """Whether emulated losses go with the true ones, `(2, k)`; undecided, they do."""
    if losses.shape[-1] < MIN_COMPARED or bool((losses.std(-1) == 0).any()):
        return True
    return float(losses.corrcoef()[0, 1]) >= MIN_CORRELATION
