"""A rule that lives in another program, fed a line a row and asked for a number: here F2, by a line of awk."""

import subprocess

import numpy as np
from tables import clusters

from metricgrad import black_box

PROGRAM = '{n[$0]++} END {f = 5 * n["11"]; print f ? f / (f + 4 * n["10"] + n["01"]) : 0}'


def asked(y_true: np.ndarray, y_pred: np.ndarray) -> float:
    lines = "\n".join(f"{truth}{called}" for truth, called in zip(y_true.tolist(), y_pred.tolist(), strict=True))
    done = subprocess.run(["awk", PROGRAM], input=lines, capture_output=True, text=True, check=True)
    return float(done.stdout)


metric = black_box(asked, name="F2 (program)", higher_is_better=True, value_range=(0, 1), labels=True)
proxy = "cross-entropy"


def data(seed: int, rows: int):
    return clusters(seed, rows, positives=0.1)
