"""Made-up rows with amounts and costs, and scores of a model whose log-odds are known."""

from __future__ import annotations

import numpy as np

N = 6000
RNG = np.random.default_rng(0)
ODDS = 1.5 * RNG.normal(size=N) - 2.5
P = 1 / (1 + np.exp(-ODDS))
Y = (RNG.random(N) < P).astype(int)
AMOUNT, COST = np.exp(1.2 * RNG.normal(size=N)), np.exp(RNG.normal(size=N) - 1)
SCORES = 2 * ODDS + 1  # what a model says, on a scale of its own
