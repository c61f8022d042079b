"""Recipes so short that a test can train by them."""

from __future__ import annotations

from metricgrad import Recipe

TINY = Recipe(
    warmup=45,
    rounds=3,
    set_size=200,
    refine_sets=2,
    learning_rate=0.03,
    trust=-1.0,
    check_every=2,
    model_steps=3,
    schedule="cosine",
    patience=None,
)
"""Of networks: every part of a training is there, none takes long."""
READABLE = Recipe(warmup=150, rounds=2, set_size=200, refine_sets=2, learning_rate=0.1, trust=-1.0)
"""Of linear and additive models whose shapes are looked at."""
