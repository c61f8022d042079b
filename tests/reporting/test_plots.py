"""Training curves show the metric as people know it."""

from __future__ import annotations

import numpy as np
import pytest
from made_up import a_round

from metricgrad.metrics.registry import get_metric
from metricgrad.reporting.plots import plot_convergence
from metricgrad.training.trainer import Round

NAN = float("nan")


def history(losses: list[float], gap: float) -> list[Round]:
    warm = a_round("warm-up", 30, 30, steps=30, loss=0.7, gap=NAN, trust=NAN, validation=0.5)
    rounds = [
        a_round("rounds", i + 1, 3, steps=33 + 3 * i, loss=0.3, gap=gap, trust=0.9, validation=loss)
        for i, loss in enumerate(losses)
    ]
    return [warm, *rounds]


def test_convergence_shows_the_metric_people_know_and_marks_the_checkpoint_kept() -> None:
    figure = plot_convergence(
        {"ce": history([0.4, 0.2, NAN], NAN), "sl": history([0.3, 0.1, 0.2], 0.01)}, get_metric("f1")
    )
    above, below = figure.axes
    line, dot = above.get_lines()[:2]
    np.testing.assert_allclose(line.get_xdata(), [30, 33, 36])
    np.testing.assert_allclose(line.get_ydata(), [0.5, 0.6, 0.8])
    assert (dot.get_xdata()[0], dot.get_ydata()[0]) == (36, pytest.approx(0.8))
    assert [text.get_text() for text in above.get_legend().get_texts()] == ["ce", "sl"]
    assert len([line for line in below.get_lines() if len(line.get_xdata()) > 2]) == 1
