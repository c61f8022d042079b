"""
Is it worth it on your table?
=============================

``compare`` trains a model for the metric, and others with cross-entropy, class weights, the focal loss and boosted
trees, on repeated splits of a table. One sentence says whether the first is better, with an interval that allows for
the overlap of the splits.
"""

import pandas as pd
from sklearn.datasets import make_classification

from metricgrad import Recipe, compare

X, y = make_classification(
    3000, 12, n_informative=8, n_clusters_per_class=4, weights=[0.9], flip_y=0.02, random_state=1
)
table = pd.DataFrame(X, columns=[f"sensor {i}" for i in range(12)]).assign(fault=y)

short = Recipe(warmup=450, rounds=150, learning_rate=3e-3)  # leave it out for the full training
result = compare(table, "fault", "f1", model="linear", recipe=short, splits=4, n_jobs=1)
for method in ("sl-r", "cross-entropy"):
    print(f"{result.label(method):>14}: F1 {result.values(method).mean():.4f} on unseen rows")
print(result.verdict)

# %%
# A notebook shows the result as a table. Every chart is a matplotlib figure.
result

# %%
metric_by_method = result.plot_metric()

# %%
thresholds = result.plot_threshold()

# %%
# ``metricgrad compare TABLE.csv --target fault`` does the same on the command line and writes all charts as one page.
