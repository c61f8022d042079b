"""
A business rule as the metric
=============================

A call centre can make calls to one customer in ten. A sale brings 12, a call costs 1, and nobody has ever written down
a gradient of that. `black_box` makes it a metric; the surrogate of it is fitted once and cached.
"""

import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from metricgrad import MetricClassifier, Recipe, black_box


def profit(y_true: np.ndarray, y_score: np.ndarray) -> float:
    """Profit per customer if the best-scored tenth is called."""
    capacity = max(1, len(y_score) // 10)
    called = np.argsort(-y_score, kind="stable")[:capacity]
    return float(12 * y_true[called].sum() - capacity) / len(y_true)


X, y = make_classification(
    20_000, 20, n_informative=10, n_clusters_per_class=4, weights=[0.9], flip_y=0.05, random_state=4
)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

metric = black_box(profit, higher_is_better=True)
recipe = Recipe(warmup=600, rounds=200, learning_rate=3e-3)
for method in ("cross-entropy", "sl-r"):
    model = MetricClassifier(metric, method=method, model="linear", recipe=recipe, random_state=0).fit(X_train, y_train)
    print(f"{method:>14}: profit {model.score(X_test, y_test):.4f} a customer on unseen rows")
