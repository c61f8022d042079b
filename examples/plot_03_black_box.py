"""
A business rule as the metric
=============================

A call centre can call one customer in ten. A sale earns 12, a call costs 1, and this profit has no gradient.
``black_box`` turns the function into a metric; its surrogate is fitted once and cached.
"""

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from metricgrad import MetricClassifier, Recipe, black_box


def profit(y_true: np.ndarray, y_score: np.ndarray) -> float:
    """Profit per customer if the highest-scored tenth is called."""
    capacity = max(1, len(y_score) // 10)
    called = np.argsort(-y_score, kind="stable")[:capacity]
    return float(12 * y_true[called].sum() - capacity) / len(y_true)


X, y = make_classification(
    20_000, 20, n_informative=10, n_clusters_per_class=4, weights=[0.9], flip_y=0.05, random_state=4
)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

metric = black_box(profit, higher_is_better=True)
recipe = Recipe(warmup=600, rounds=200, learning_rate=3e-3)
models = {}
for method in ("cross-entropy", "sl-r"):
    model = MetricClassifier(metric, method=method, model="linear", recipe=recipe, random_state=0).fit(X_train, y_train)
    print(f"{method:>14}: profit {model.score(X_test, y_test):.4f} a customer on unseen rows")
    models[method] = model

# %%
# The profit on the unseen rows if more or fewer customers were called; the dashed line is the capacity.
figure = Figure(figsize=(7, 3.5), layout="constrained")
axes = figure.subplots()
for method, model in models.items():
    sales = y_test[np.argsort(-model.decision_function(X_test), kind="stable")]
    called = np.arange(1, len(sales) + 1)
    axes.plot(called / len(sales), (12 * np.cumsum(sales) - called) / len(sales), label=method)
axes.axvline(0.1, color="grey", linestyle="--")
axes.set(xlabel="share of customers called", ylabel="profit per customer", xlim=(0, 0.4))
legend = axes.legend(frameon=False)
