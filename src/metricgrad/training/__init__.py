"""Algorithm 1, and which model is kept."""
