"""Tables the black boxes are tried on, made in code: every seed is another table.

Positives come in several clusters, some apart from the negatives and some among them, narrow and wide, so that no
linear score is right everywhere: which rows to be right about is then for the metric to say.
"""

import numpy as np


def clusters(seed: int, rows: int, positives: float, features: int = 10) -> tuple[np.ndarray, np.ndarray]:
    """Draw a table of five clusters of positives and five of negatives: X `(rows, features)`, y `(rows,)`."""
    rng = np.random.default_rng(seed)
    y = (rng.random(rows) < positives).astype(np.int64)
    centres, spreads = rng.normal(size=(2, 5, features)), np.exp(0.8 * rng.normal(size=(2, 5, 1)))
    shares = rng.dirichlet(np.full(5, 2.0), size=2)
    cluster = np.where(y == 1, rng.choice(5, rows, p=shares[1]), rng.choice(5, rows, p=shares[0]))
    return centres[y, cluster] + spreads[y, cluster] * rng.normal(size=(rows, features)), y
