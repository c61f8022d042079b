"""
Was it worth it? Ask your own table
===================================

``compare`` trains for the metric, and by cross-entropy, class weights, the focal loss and boosted trees, on repeated
splits of a table. It says in one sentence whether the first is better, with an interval that knows that splits overlap.
"""

import pandas as pd
from sklearn.datasets import make_classification

from metricgrad import Recipe, compare

X, y = make_classification(
    3000, 12, n_informative=8, n_clusters_per_class=4, weights=[0.9], flip_y=0.02, random_state=1
)
table = pd.DataFrame(X, columns=[f"sensor {i}" for i in range(12)]).assign(fault=y)

short = Recipe(warmup=450, rounds=150, learning_rate=3e-3)  # leave it out for the full training
found = compare(table, "fault", "f1", model="linear", recipe=short, splits=4, n_jobs=1)
for method in ("sl-r", "cross-entropy"):
    print(f"{found.label(method):>14}: F1 {found.values(method).mean():.4f} on unseen rows")
print(found.verdict)

# %%
# A notebook shows the result by itself, and every picture is a figure.
found

# %%
metric_by_method = found.plot_metric()

# %%
thresholds = found.plot_threshold()

# %%
# ``metricgrad.write_comparison(found, "page.html")`` writes all of it as one page.
