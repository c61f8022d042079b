"""
A scikit-learn estimator in ten lines
=====================================

Train a linear model directly for F1, and compare with cross-entropy and the same exact threshold.
"""

from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from metricgrad import MetricClassifier, Recipe

X, y = make_classification(
    6000, 20, n_informative=8, n_clusters_per_class=4, weights=[0.93], flip_y=0.02, random_state=1
)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)

recipe = Recipe(warmup=900, rounds=300, learning_rate=3e-3)
for method in ("cross-entropy", "sl-r"):
    model = MetricClassifier("f1", method=method, model="linear", recipe=recipe, random_state=0).fit(X_train, y_train)
    print(f"{method:>14}: F1 {model.score(X_test, y_test):.4f} on unseen rows")
