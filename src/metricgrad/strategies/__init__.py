"""Strategies: ways to train a model for a metric, which compete on held-out rows."""
