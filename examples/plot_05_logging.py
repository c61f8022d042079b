"""
Watch training in TensorBoard, MLflow or W&B
============================================

The callback is called after every round with what was measured. Any logger that takes names and numbers works, and so
does a list.
"""

import math
import tempfile

from matplotlib.figure import Figure
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split
from torch.utils.tensorboard import SummaryWriter

from metricgrad import MetricClassifier, Recipe

X, y = make_classification(3000, 10, weights=[0.85], flip_y=0.05, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
recipe = Recipe(warmup=300, rounds=100, check_every=10)


def numbers(done):
    """Return what a round measured: the validation loss where it was looked at, and the gap of the surrogate."""
    measured = {"validation": done.validation, "gap": done.gap}
    return {name: value for name, value in measured.items() if math.isfinite(value)}


# %%
# TensorBoard: ``tensorboard --logdir`` shows the curves during training.
folder = tempfile.mkdtemp()
with SummaryWriter(folder) as writer:

    def log(done):
        for name, value in numbers(done).items():
            writer.add_scalar(f"metricgrad/{name}", value, done.steps)

    model = MetricClassifier("f1", model="linear", recipe=recipe, callback=log).fit(X_train, y_train)
print(f"TensorBoard: F1 {model.score(X_test, y_test):.4f} on unseen rows")

# %%
# MLflow: ``lambda done: mlflow.log_metrics(numbers(done), done.steps)``. W&B: ``lambda done: run.log(numbers(done),
# step=done.steps)``. A callback that returns True stops the training.
kept = []
model = MetricClassifier(
    "f1", model="linear", recipe=recipe, callback=lambda done: kept.append((done.steps, numbers(done)))
)
print(f"     a list: F1 {model.fit(X_train, y_train).score(X_test, y_test):.4f} on unseen rows")

# %%
figure = Figure(figsize=(7, 3), layout="constrained")
axes = figure.subplots()
for name in ("validation", "gap"):
    points = [(step, measured[name]) for step, measured in kept if name in measured]
    axes.plot(*zip(*points, strict=True), label=name)
axes.set(xlabel="model steps", ylabel="loss")
legend = axes.legend(frameon=False)
