"""
Watch training in TensorBoard, MLflow or W&B
============================================

A callback is called with every round; ``scalars`` makes plain numbers of it. Nothing else is needed: any logger that
takes names and numbers will do, and so will a list.
"""

import tempfile

from matplotlib.figure import Figure
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from torch.utils.tensorboard import SummaryWriter

from metricgrad import MetricClassifier, Recipe, scalars

X, y = make_classification(3000, 10, weights=[0.85], flip_y=0.05, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
recipe = Recipe(warmup=300, rounds=100, check_every=10)

# %%
# TensorBoard: ``tensorboard --logdir`` shows the curves while they grow.
folder = tempfile.mkdtemp()
with SummaryWriter(folder) as writer:

    def log(done):
        for name, value in scalars(done).items():
            writer.add_scalar(f"metricgrad/{name}", value, done.steps)

    model = MetricClassifier("f1", model="linear", recipe=recipe, callback=log).fit(X_train, y_train)
print(f"TensorBoard: F1 {model.score(X_test, y_test):.4f} on unseen rows")

# %%
# A plain function does as well. With MLflow it is ``lambda done: mlflow.log_metrics(scalars(done), done.steps)``, with
# W&B ``lambda done: run.log(scalars(done), step=done.steps)``.
kept = []
model = MetricClassifier(
    "f1", model="linear", recipe=recipe, callback=lambda done: kept.append((done.steps, scalars(done)))
)
print(f"     a list: F1 {model.fit(X_train, y_train).score(X_test, y_test):.4f} on unseen rows")

# %%
figure = Figure(figsize=(7, 3), layout="constrained")
axes = figure.subplots()
for name in ("validation", "gap"):
    points = [(step, numbers[name]) for step, numbers in kept if name in numbers]
    axes.plot(*zip(*points, strict=True), label=name)
axes.set(xlabel="model steps", ylabel="loss")
legend = axes.legend(frameon=False)
