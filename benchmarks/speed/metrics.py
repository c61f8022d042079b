"""The speed of built-in metrics against scikit-learn and torchmetrics: python -m benchmarks.speed.metrics

Many sets: the vectorised metric on all sets, against one call for each set. One large set: against one call. On one
thread, in processor time; the others are timed on a sample of the sets, and their time is scaled up.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import sklearn.metrics as sk
import torch
import torchmetrics
import torchmetrics.functional.classification as tm

from benchmarks.speed.measuring import (
    claim,
    in_turns,
    middle,
    parser_of,
    processor_seconds,
    ratio,
    say,
    self_timed,
    store,
)
from metricgrad.metrics.registry import Metric, builtin_metrics

Contestant = Callable[[Any, Any], Any]
BARS = {"sklearn": 100.0, "torchmetrics": 10.0, "sklearn, one set": 1.0}
CLAIMS = {
    "sklearn": "metrics on 1,000 sets, times as fast as scikit-learn",
    "torchmetrics": "metrics on 1,000 sets, times as fast as torchmetrics",
    "sklearn, one set": "metrics on one set of a million, times as fast as scikit-learn",
}


# ---- the obvious way with scikit-learn: (targets, scores) in numpy ---------------------------------------------------


def sk_eer(y: np.ndarray, s: np.ndarray) -> float:
    fpr, tpr, _ = sk.roc_curve(y, s)
    nearest = np.abs(1 - tpr - fpr).argmin()
    return (1 - tpr[nearest] + fpr[nearest]) / 2


def sk_precision_at(y: np.ndarray, s: np.ndarray) -> float:
    top = max(1, round(0.02 * len(s)))
    called = np.zeros(len(s), dtype=bool)
    called[np.argsort(s)[-top:]] = True
    return sk.precision_score(y, called)


def sk_recall_at_precision(y: np.ndarray, s: np.ndarray) -> float:
    precision, recall, _ = sk.precision_recall_curve(y, s)
    return recall[precision >= 0.9].max()


def sk_best(of_rates: Callable[..., np.ndarray]) -> Contestant:
    """Score every threshold of roc_curve from its rates and the number of positives and negatives."""

    def contestant(y: np.ndarray, s: np.ndarray) -> float:
        fpr, tpr, _ = sk.roc_curve(y, s, drop_intermediate=False)
        positives = y.sum()
        negatives = len(y) - positives
        return np.nanmax(of_rates(tpr * positives, fpr * negatives, positives, negatives))

    return contestant


def mcc_of_counts(tp: np.ndarray, fp: np.ndarray, p: int, n: int) -> np.ndarray:
    called = tp + fp
    return (tp * n - fp * p) / np.sqrt(float(p) * n * called * (p + n - called))


def of_labels(score: Callable[..., float], **options: Any) -> Contestant:
    return lambda y, s: score(y, s >= 0, **options)


SKLEARN: dict[str, Contestant] = {
    "auc": sk.roc_auc_score,
    "eer": sk_eer,
    "average_precision": sk.average_precision_score,
    "error_rate": of_labels(sk.accuracy_score),
    "f1": of_labels(sk.f1_score),
    "mcc": of_labels(sk.matthews_corrcoef),
    "jaccard": of_labels(sk.jaccard_score),
    "balanced_error": of_labels(sk.balanced_accuracy_score),
    "precision": of_labels(sk.precision_score),
    "recall": of_labels(sk.recall_score),
    "f_beta(2)": of_labels(sk.fbeta_score, beta=2),
    "partial_auc(0.05)": lambda y, s: sk.roc_auc_score(y, s, max_fpr=0.05),
    "precision_at(0.02)": sk_precision_at,
    "recall_at_precision(0.9)": sk_recall_at_precision,
    "best_error_rate": sk_best(lambda tp, fp, p, n: (tp + n - fp) / (p + n)),
    "best_f1": sk_best(lambda tp, fp, p, n: 2 * tp / (p + tp + fp)),
    "best_mcc": sk_best(mcc_of_counts),
    "best_jaccard": sk_best(lambda tp, fp, p, n: tp / (p + fp)),
    "best_balanced_error": sk_best(lambda tp, fp, p, n: (tp / p + 1 - fp / n) / 2),
    "best_precision": lambda y, s: sk.precision_recall_curve(y, s)[0][:-1].max(),
    "best_recall": lambda y, s: sk.precision_recall_curve(y, s)[1].max(),
    "best_f_beta(2)": sk_best(lambda tp, fp, p, n: 5 * tp / (4 * p + tp + fp)),
}

# ---- torchmetrics' functional forms: (scores, targets) in torch, where it has the metric ----------------------------


def tm_best_f1(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    precision, recall, _ = tm.binary_precision_recall_curve(scores, targets)
    return (2 * precision * recall / (precision + recall)).nan_to_num().max()


TORCHMETRICS: dict[str, Contestant] = {
    "auc": tm.binary_auroc,
    "eer": tm.binary_eer,
    "average_precision": tm.binary_average_precision,
    "error_rate": tm.binary_accuracy,
    "f1": tm.binary_f1_score,
    "mcc": tm.binary_matthews_corrcoef,
    "jaccard": tm.binary_jaccard_index,
    "precision": tm.binary_precision,
    "recall": tm.binary_recall,
    "f_beta(2)": lambda s, y: tm.binary_fbeta_score(s, y, beta=2.0),
    "partial_auc(0.05)": lambda s, y: tm.binary_auroc(s, y, max_fpr=0.05),
    "recall_at_precision(0.9)": lambda s, y: tm.binary_recall_at_fixed_precision(s, y, min_precision=0.9),
    "best_f1": tm_best_f1,
}


# ---- measuring -------------------------------------------------------------------------------------------------------


def made_up(shape: tuple[int, ...], seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return scores between 0 and 1, so that torchmetrics applies no sigmoid, and targets."""
    rng = torch.Generator().manual_seed(seed)
    targets = (torch.rand(shape, generator=rng) < 0.3).long()
    targets[..., 0], targets[..., 1] = 0, 1
    return torch.sigmoid(torch.randn(shape, generator=rng) + targets), targets


def ratios(ours: Callable[[], Any], theirs: Callable[[], Any], share: float, repeats: int) -> dict[str, float]:
    """Time both in turns; `share` is the part of the sets that the other side was given, and scales its time up."""
    # Ours is far the shorter where the ratio is large: the median of a few runs beside each of theirs steadies it.
    contestants = {
        "ours": lambda: median(processor_seconds(ours) for _ in range(3)),
        "theirs": lambda: processor_seconds(theirs) / share,
    }
    times = in_turns(contestants, repeats, timed=self_timed)
    took = {f"{name}_ms": 1e3 * own for name, own in middle(times).items()}
    return {**ratio(times["theirs"], times["ours"]), **took}


def compare(metric: Metric, sets: int, rows: int, sample: int, large: int, repeats: int) -> dict[str, Any]:
    scores, targets = made_up((sets, rows))
    centred = scores - 0.5
    y, s = targets.numpy()[:sample], centred.numpy()[:sample]
    sk_fn, tm_fn = SKLEARN[metric.name], TORCHMETRICS.get(metric.name)
    share = sample / sets

    def ours() -> Any:
        return metric(centred, targets)

    found = {"sklearn": ratios(ours, lambda: [sk_fn(y[i], s[i]) for i in range(sample)], share, repeats)}
    if tm_fn:
        theirs = lambda: [tm_fn(scores[i], targets[i]) for i in range(sample)]  # noqa: E731
        found["torchmetrics"] = ratios(ours, theirs, share, repeats)
    one, truth = made_up((large,), seed=1)
    one -= 0.5
    found["sklearn, one set"] = ratios(
        lambda: metric(one, truth), lambda: sk_fn(truth.numpy(), one.numpy()), 1.0, max(3, repeats // 3)
    )
    return {"metric": metric.name} | found


def main() -> int:
    parser = parser_of(__doc__, repeats=9)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--sample", type=int, default=50, help="sets the others are timed on; their time is scaled up")
    parser.add_argument("--large", type=int, default=1_000_000, help="rows of the one large set")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    shape = {key: getattr(options, key) for key in ("sets", "rows", "sample", "large", "repeats")}
    forms = [form for metric in builtin_metrics() for form in dict.fromkeys((metric, metric.best))]
    forms = [form for form in forms if form.name in SKLEARN]
    rows = []
    for metric in forms:
        say(f"measuring {metric.name}")
        rows.append(compare(metric, **shape))
    say("")
    least = {other: min((row[other] for row in rows if other in row), key=lambda f: f["ratio"]) for other in BARS}
    claims = [claim(f"{CLAIMS[other]}, least of all", least[other], at_least=bar) for other, bar in BARS.items()]
    theirs = {"torchmetrics": torchmetrics.__version__}
    return 1 if store("metrics", claims, options.folder, packages=theirs, **shape, metrics=rows) else 0


if __name__ == "__main__":
    raise SystemExit(main())
