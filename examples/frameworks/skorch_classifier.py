"""skorch: a network as an estimator of scikit-learn, trained for a metric, in a search over its settings."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetBinaryClassifier
from torch import nn

from metricgrad import SurrogateLoss, get_metric


class MetricNet(NeuralNetBinaryClassifier):
    """Follows cross-entropy for some epochs, then its criterion, which is refined on every batch."""

    def get_loss(self, y_pred, y_true, X=None, training=False):
        targets = y_true.to(y_pred.dtype)
        if len(self.history) <= 5:
            return nn.functional.binary_cross_entropy_with_logits(y_pred, targets)
        if training:
            self.criterion_.refine(y_pred, targets)
        return self.criterion_(y_pred, targets)


class Pictures(nn.Module):
    """A small convolution network: (rows, 8, 8) -> (rows,)."""

    def __init__(self, channels=8):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Unflatten(1, (1, 8)), nn.Conv2d(1, channels, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36 * channels, 1)
        )

    def forward(self, images):
        return self.layers(images)[:, 0]


def both_classes(scores):
    """Return numbers in [0, 1] that rank as the scores do, for both classes: (rows,) -> (rows, 2)."""
    return torch.stack((-scores, scores), 1).sigmoid()


def main() -> None:
    torch.manual_seed(0)
    digits = load_digits()
    X, y = digits.images.astype("float32") / 16, (digits.target == 8).astype("int64")
    net = MetricNet(
        Pictures,
        criterion=SurrogateLoss,
        criterion__metric="average_precision",
        predict_nonlinearity=both_classes,
        optimizer=torch.optim.Adam,
        lr=0.003,
        batch_size=200,
        max_epochs=15,
        iterator_train__shuffle=True,
        train_split=None,
        verbose=0,
    )
    search = GridSearchCV(net, {"module__channels": [4, 8]}, scoring="average_precision", cv=3)
    search.fit(X[:1200], y[:1200])
    metric = get_metric("average_precision")
    with torch.no_grad():
        scores = search.best_estimator_.forward(X[1200:])
    print(f"{metric.shown(metric(scores, torch.tensor(y[1200:])))} on unseen rows, {search.best_params_}")


if __name__ == "__main__":
    main()
