"""An object of torchmetrics, as a team may already judge by: average precision of rare faults, as it comes."""

from tables import clusters
from torchmetrics.classification import BinaryAveragePrecision

from metricgrad import get_metric

metric = get_metric(BinaryAveragePrecision())
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.1)
