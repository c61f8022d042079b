"""The cells of the notebook of ten minutes, which `docs/make_notebook.py` runs and keeps with their output."""

# %% [markdown]
# # Ten minutes with metricgrad
#
# A rental company must decide how many bikes to put out in every hour of a day. A bike too few costs 5, a bike too many
# costs 1, and an hour in which bikes run out costs another 10. That is what a prediction is judged by, so that is what
# the model is trained for. It stays a model that can be read: a sum of one curve a column.
#
# This notebook trains it, asks what was gained and why, reads the model, and ends with the same idea in a PyTorch loop
# of your own. The data, 8,645 hours of 2011 in Washington, D.C., come with the package.

# %%
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch

from metricgrad import MetricRegressor, SurrogateLoss, best_threshold, get_metric
from metricgrad.demo.bikes import SEPARATOR, load_bikes

DAYS_BETWEEN = 1  # 1 takes every day of the year; 6 every sixth, which is quicker and worse

X, bikes, day = load_bikes()
taken = day % DAYS_BETWEEN == 0
X, bikes, day = X[taken].reset_index(drop=True), bikes[taken], day[taken]
unseen = (day // DAYS_BETWEEN) % 5 == 0  # every fifth day is kept for the end, whole
print(f"{(~unseen).sum():,} hours to learn from, {unseen.sum():,} to judge by, {X.shape[1]} columns")

# %% [markdown]
# ## The metric
#
# `step_cost(5,1,10)` is the cost above. Its slope says nothing of its jump, so that no gradient of it can be followed.

# %%
cost = get_metric("step_cost(5,1,10)")
for ready in (90, 99, 100, 101, 110):
    print(f"{ready} bikes ready where 100 are wanted: {float(cost([ready], [100])):g}")

# %% [markdown]
# ## Fit
#
# `MetricRegressor` tries several ways to train one model: the usual losses, losses made by hand for such a metric,
# direct search and the learned surrogate. The best on held-out days is kept. Beside it, the same model is trained by
# squared error alone, and then moved by the constant that is best for the cost: what one would do without the package.

# %%
known, days = X[~unseen], day[~unseen]
usual = MetricRegressor("step_cost(5,1,10)", method="mse", model="additive", folds=5, random_state=0)
usual.fit(known, bikes[~unseen], groups=days)
model = MetricRegressor("step_cost(5,1,10)", model="additive", random_state=0)
model.fit(known, bikes[~unseen], groups=days)

print(model.verdict_)

# %% [markdown]
# The rival in the verdict is squared error with its constant, both judged on the same held-out days. The standard error
# beside the gain says whether to believe it.
#
# On days that nobody has looked at so far:

# %%
predicted = {"squared error": usual.predict(X[unseen]), "metricgrad": model.predict(X[unseen])}
for name, ready in predicted.items():
    short = (ready < bikes[unseen]).mean()
    print(f"{name:>14}: an hour costs {float(cost(ready, bikes[unseen])):.1f}, bikes run out in {short:.0%} of hours")

# %%
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for name, ready in predicted.items():
    axes.hist(np.clip(ready - bikes[unseen], -150, 250), bins=60, histtype="step", lw=1.8, label=name)
axes.axvline(0, color="0.5", lw=0.8)
axes.set(xlabel="bikes too few (left of 0) or too many, on unseen days", ylabel="hours")
axes.legend(frameon=False)
plt.show()

# %% [markdown]
# ## What competed
#
# `leaderboard()` has every strategy, its cost on the held-out days and how far it is behind the one that was kept.

# %%
model.leaderboard()[["methods", "units", "value", "behind", "standard_error"]].round(2)

# %% [markdown]
# ## Read the model
#
# An additive model adds up one number a column. `explain` shows them; where the model was trained in logarithms they
# are factors. Columns of one category are joined by `separator`.

# %%
explained = model.explain(known, separator=SEPARATOR)
explained.importance.round(2).head(5).to_frame()

# %%
explained.figure("hour of a working day")

# %%
explained.figure("temperature")

# %% [markdown]
# ## A loop of your own
#
# The learned loss is a `torch.nn.Module`. Here a small network finds the busy hours, those with at least 300 bikes, and
# is judged by F1. It starts from cross-entropy; then a copy goes on with that, and another follows F1. Both get a
# threshold from validation days. The comparison is the point: keep the copy that does better there.

# %%
torch.manual_seed(0)
features = torch.tensor(((X - known.mean()) / known.std().clip(lower=1e-6)).to_numpy(np.float32))
busy = torch.tensor(bikes >= 300).float()
held_out = torch.tensor(~unseen & ((day // DAYS_BETWEEN) % 5 == 1))
training = torch.tensor(~unseen) & ~held_out
x, y = features[training], busy[training]


def follow(network, loss, steps, rate=3e-3):
    """Train for some steps, each on a set of 400 hours."""
    optimizer = torch.optim.Adam(network.parameters(), rate)
    draws = torch.Generator().manual_seed(0)
    for step in range(steps):
        rows = torch.randint(len(y), (400,), generator=draws)
        scores = network(x[rows])[:, 0]
        if isinstance(loss, SurrogateLoss) and step % 3 == 0:
            loss.refine(scores, y[rows])  # lets the surrogate follow the true F1 of this network
        optimizer.zero_grad()
        loss(scores, y[rows]).backward()
        optimizer.step()


start = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 30), torch.nn.ReLU(), torch.nn.Linear(30, 1))
follow(start, torch.nn.BCEWithLogitsLoss(), 300)

# %%
f1, table = get_metric("f1"), {}
for name, loss in {"cross-entropy": torch.nn.BCEWithLogitsLoss(), "surrogate of F1": SurrogateLoss("f1")}.items():
    network = torch.nn.Sequential(torch.nn.Linear(x.shape[1], 30), torch.nn.ReLU(), torch.nn.Linear(30, 1))
    network.load_state_dict(start.state_dict())
    follow(network, loss, 300, rate=1e-3)
    with torch.no_grad():
        scores = network(features)[:, 0]
    threshold = best_threshold("f1", scores[held_out], busy[held_out])
    found = {"validation days": held_out, "unseen days": torch.tensor(unseen)}
    table[name] = {days: float(f1.value(f1(scores[rows] - threshold, busy[rows]))) for days, rows in found.items()}
print("kept:", max(table, key=lambda name: table[name]["validation days"]))
pd.DataFrame(table).T.round(3)

# %% [markdown]
# F1 at the threshold chosen on the validation days, which also decide what is kept: the surrogate does not always win.
# Such a difference on one split of one table is no proof either way; `metricgrad compare` repeats it on many splits and
# gives an interval.
#
# ## Where to go on
#
# - a table with text, dates and missing cells: `TableClassifier`, `TableRegressor`, or `metricgrad fit data.csv`;
# - costs that differ by row, groups, a function or a script of your own as the metric: the how-to pages;
# - Lightning, Accelerate, transformers, skorch, Ray Train, several processes: the page on frameworks.
