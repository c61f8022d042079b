"""Hand-made losses: `loss(scores, targets, weights)`."""
