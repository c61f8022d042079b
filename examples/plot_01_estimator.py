"""
A scikit-learn estimator in ten lines
=====================================

Train a linear model directly for F1 and compare it with one trained on cross-entropy. Both get the exact best threshold
of their validation rows.
"""

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import make_classification
from sklearn.metrics import f1_score
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

# %%
# The default method, ``sl-r``, trains a control on cross-entropy as well, and keeps the surrogate's model only if its
# gain on the validation rows exceeds one standard error. If not, the two lines above are the same.
print(model.verdict_)

# %%
# F1 on the unseen rows, depending on how many of them are called positive. The dot is the threshold that was chosen on
# the validation rows.
scores = model.decision_function(X_test)
shares = np.linspace(0.01, 0.3, 59)
figure = Figure(figsize=(7, 3.5), layout="constrained")
axes = figure.subplots()
axes.plot(shares, [f1_score(y_test, scores >= np.quantile(scores, 1 - share)) for share in shares])
axes.plot((scores >= 0).mean(), f1_score(y_test, scores >= 0), "o")
labels = axes.set(xlabel="share of rows called positive", ylabel="F1")
