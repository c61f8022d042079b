"""Letter by a linear model, against searches for its decision or its class weights: python -m studies.targets.rivals

Reads METRICGRAD_DATA. Macro F1 of 26 classes, which a linear model cannot separate. Rivals start from multinomial
logistic regression at its minimum, ridge penalty by validation rows: offsets of classes alone, CMA-ES over an offset
and a factor of every class, CMA-ES over the class weights of cross-entropy (the model is solved for anew for each), and
CMA-ES over all weights of the model. Each has its offsets tuned on validation rows at the end. Every run is stored as
it ends; run again to continue.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import cma
import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from metricgrad import MetricClassifier, get_metric
from metricgrad.estimators.labels import known_labels
from metricgrad.evaluation.store import Store
from metricgrad.metrics.thresholds import best_offsets
from metricgrad.training.data import Scaler
from metricgrad.training.splits import split
from studies import pages
from studies.targets import page
from studies.targets.run import load

RIDGES = (1e-6, 1e-5, 1e-4)
"""Penalties of the squared weights, beside the mean loss of the rows."""
EVALUATIONS = {"offsets and factors": 2_000, "class weights": 300, "all weights": 4_000}
"""Candidates that a search judges."""


class Task(NamedTuple):
    """Standardised features with a column of ones, and classes, of training, validation and test rows."""

    x: list[Tensor]
    y: list[Tensor]
    metric: Any

    def loss(self, scores: Tensor, part: int) -> float:
        """Return the true loss of scores of one of the parts."""
        return float(self.metric(scores, _one_hot(self.y[part], scores.shape[1])))


def task_of(dataset: str, metric: str, seed: int) -> Task:
    """Read a table and split it as the other methods do."""
    X, y = load(dataset)
    parts = split(y, seed)
    rows = [parts.train, parts.validation, parts.test]
    scaled = Scaler.fit(X[np.concatenate(rows[:2])]).transform(X)
    x = torch.from_numpy(np.column_stack((scaled, np.ones(len(y)))).astype(np.float64))
    known = torch.from_numpy(y.astype(np.int64))
    return Task([x[own] for own in rows], [known[own] for own in rows], get_metric(metric))


def _one_hot(y: Tensor, classes: int) -> Tensor:
    return torch.nn.functional.one_hot(y, classes).double()


def solved(task: Task, ridge: float, weights: Tensor | None = None, start: Tensor | None = None) -> Tensor:
    """Return the minimum of weighted cross-entropy, `(features + 1, classes)`."""
    x, y, classes = task.x[0], task.y[0], int(max(own.max() for own in task.y)) + 1
    w = torch.ones(classes, dtype=torch.float64) if weights is None else weights
    share, goal = w[y] / w[y].sum(), _one_hot(y, classes)
    first = torch.zeros(x.shape[1], classes, dtype=torch.float64) if start is None else start

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        own = torch.from_numpy(flat).view_as(first)
        logs = (x @ own).log_softmax(-1)
        grad = x.T @ (share.unsqueeze(-1) * (logs.exp() - goal)) + 2 * ridge * own
        loss = -(share * logs.gather(-1, y.unsqueeze(-1))[:, 0]).sum() + ridge * own.square().sum()
        return float(loss), grad.numpy().ravel()

    most = 500 if start is None else 12
    found = minimize(value, first.numpy().ravel(), jac=True, method="L-BFGS-B", options={"maxiter": most})
    return torch.from_numpy(found.x).view_as(first)


def tuned(task: Task, weights: Tensor) -> tuple[float, float]:
    """Return the losses on validation and test rows, with the offsets that are best on validation rows."""
    kept, test = (x @ weights for x in task.x[1:])
    offsets = best_offsets(task.metric, kept, _one_hot(task.y[1], kept.shape[1]))
    return task.loss(kept + offsets, 1), task.loss(test + offsets, 2)


def searched(judge: Callable[[np.ndarray], float], start: np.ndarray, step: float, evaluations: int, seed: int) -> Any:
    """Return the mean of CMA-ES after some evaluations."""
    options = {"seed": seed + 1, "verbose": -9, "maxfevals": evaluations, "CMA_diagonal": len(start) > 100}
    options |= dict.fromkeys(("tolfun", "tolfunhist", "tolflatfitness", "tolstagnation"), 0) | {"tolflatfitness": 10**6}
    options["tolstagnation"] = 10**6
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        strategy = cma.CMAEvolutionStrategy(start, step, options)
        while not strategy.stop():
            points = strategy.ask()
            strategy.tell(points, [judge(np.asarray(point)) for point in points])
    return np.asarray(strategy.mean)


def offsets_and_factors(task: Task, weights: Tensor, ridge: float, seed: int) -> Tensor:
    """Search an offset and a factor of every class, on training and validation rows: few numbers, many rows."""
    scores, y = torch.cat(task.x[:2]) @ weights, torch.cat(task.y[:2])
    classes, goal = scores.shape[1], _one_hot(y, scores.shape[1])

    def judge(point: np.ndarray) -> float:
        own = torch.from_numpy(point)
        return float(task.metric(scores * own[:classes].exp() + own[classes:], goal))

    found = torch.from_numpy(searched(judge, np.zeros(2 * classes), 0.1, EVALUATIONS["offsets and factors"], seed))
    moved = weights * found[:classes].exp()
    moved[-1] += found[classes:]
    return moved


def class_weights(task: Task, weights: Tensor, ridge: float, seed: int) -> Tensor:
    """Search the class weights of cross-entropy, judged on validation rows by the model that they lead to."""

    def model(point: np.ndarray) -> Tensor:
        return solved(task, ridge, torch.from_numpy(point).exp(), weights)

    def judge(point: np.ndarray) -> float:
        return task.loss(task.x[1] @ model(point), 1)

    found = searched(judge, np.zeros(weights.shape[1]), 0.3, EVALUATIONS["class weights"], seed)
    return solved(task, ridge, torch.from_numpy(found).exp())


def all_weights(task: Task, weights: Tensor, ridge: float, seed: int) -> Tensor:
    """Search all weights of the model on training and validation rows, in coordinates that change scores alike."""
    x, goal = torch.cat(task.x[:2]), _one_hot(torch.cat(task.y[:2]), weights.shape[1])
    basis = torch.linalg.inv(torch.linalg.cholesky(x.T @ x / len(x) + 1e-3 * torch.eye(x.shape[1]).double())).T
    unit = float((x @ weights).std()) / x.shape[1] ** 0.5

    def model(point: np.ndarray) -> Tensor:
        return weights + unit * basis @ torch.from_numpy(point).view_as(weights)

    def judge(point: np.ndarray) -> float:
        return float(task.metric(x @ model(point), goal))

    return model(searched(judge, np.zeros(weights.numel()), 0.05, EVALUATIONS["all weights"], seed))


SEARCHES = {
    "offsets": lambda task, weights, ridge, seed: weights,
    "offsets and factors": offsets_and_factors,
    "class weights": class_weights,
    "all weights": all_weights,
}


def by_package(dataset: str, metric: str, seed: int) -> tuple[float, float]:
    """Return the losses on validation and test rows of the surrogate of today's version, offsets tuned likewise."""
    X, y = load(dataset)
    parts = split(y, seed)
    known = np.concatenate((parts.train, parts.validation))
    model = MetricClassifier(metric, "sl-r", "linear", random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X[known], y[known], validation=np.arange(len(parts.train), len(known)))
    judge = get_metric(metric)
    truth = known_labels(y[parts.test], model.classes_, judge.task)
    return model.validation_loss_, float(judge(model.decision_function(X[parts.test]), truth))


def outcome(dataset: str, metric: str, method: str, seed: int, **_: Any) -> dict[str, Any]:
    """Train one model and judge it on the test rows."""
    begun = time.process_time()
    if method == page.PACKAGE:
        kept, test = by_package(dataset, metric, seed)
    else:
        task = task_of(dataset, metric, seed)
        starts = {ridge: solved(task, ridge) for ridge in RIDGES}
        ridge = min(RIDGES, key=lambda each: tuned(task, starts[each])[0])
        kept, test = tuned(task, SEARCHES[method](task, starts[ridge], ridge, seed))
    return {"loss": test, "validation_loss": kept, "cpu": time.process_time() - begun}


def main() -> None:
    parser = pages.parser_of(__doc__, page.RIVALS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--methods", default=",".join([*SEARCHES, page.PACKAGE]))
    asked = parser.parse_args()
    runs = [
        {"dataset": "letter", "metric": "macro_f1", "method": method, "model": "linear", "seed": seed}
        for seed in range(page.FIRST_SEED, page.FIRST_SEED + asked.seeds)
        for method in asked.methods.split(",")
    ]
    torch.set_num_threads(1)
    pages.run_missing(Store(asked.results), [] if asked.report else runs, lambda run: outcome(**run))
    if asked.results == page.RIVALS:
        page.main()


if __name__ == "__main__":
    main()
