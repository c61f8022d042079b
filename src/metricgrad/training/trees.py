"""Boosted trees as a model among others: grown by LightGBM, kept as plain arrays, scored without it."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from metricgrad.losses.default import SquaredError, SquaredErrorOfEvents
from metricgrad.losses.regression import AbsoluteError, Pinball
from metricgrad.training.data import Rows

MAX_TREES, EARLY_STOPPING, LEARNING_RATE = 2_000, 100, 0.05
"""Trees at most, trees without a gain on validation rows after which boosting stops, and their shrinkage."""
RARE, RIDGE = 0.02, 10.0
"""Share of a class, by weight, below which shrunken leaves are tried too, and how much they shrink. Where all rows
have the probability p, a leaf of positives alone takes a step of 1 / p: a tree or two overshoot, and boosting stops."""


class Trees(nn.Module):
    """A sum of binary trees: `(n, features)` -> `(n, 1)`, in double precision.

    Nodes of all trees are in one list; a leaf is a node that is its own child. Children come after their parent, so
    that every row arrives at a leaf.

    Parameters
    ----------
    features : int
        Number of features.
    trees, nodes : int
        Sizes; the arrays are empty until `fill` or `load_state_dict`.
    """

    rows_at_once = 32_768
    """Rows to be scored at a time: many, because every node costs something."""
    roots: Tensor
    feature: Tensor
    cut: Tensor
    left: Tensor
    right: Tensor
    value: Tensor
    bias: Tensor

    def __init__(self, features: int, trees: int = 0, nodes: int = 0) -> None:
        super().__init__()
        self.features = features
        for name in ("feature", "left", "right"):
            self.register_buffer(name, torch.zeros(nodes, dtype=torch.int64))
        self.register_buffer("roots", torch.zeros(trees, dtype=torch.int64))
        for name, size in (("cut", nodes), ("value", nodes), ("bias", 1)):
            self.register_buffer(name, torch.zeros(size, dtype=torch.float64))

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes from which an empty model of the same shapes can be built."""
        return {"trees": len(self.roots), "nodes": len(self.value)}

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        """Score rows: `(n, features)` -> `(n, 1)`."""
        columns = np.ascontiguousarray(x.double().numpy().T)
        feature, cut, left, right, value = (tensor.tolist() for tensor in self._nodes())
        total = np.full(len(x), float(self.bias))
        for root in self.roots.tolist():
            waiting = [(root, np.arange(len(x)))]
            while waiting:  # rows are divided from node to node, which is faster than one row after the other
                node, rows = waiting.pop()
                if left[node] == node:
                    total[rows] += value[node]
                elif len(rows):
                    below = columns[feature[node]].take(rows) <= cut[node]
                    waiting += [(left[node], rows[below]), (right[node], rows[~below])]
        return torch.from_numpy(total).unsqueeze(-1)

    def _nodes(self) -> tuple[Tensor, ...]:
        return self.feature, self.cut, self.left, self.right, self.value

    def check(self) -> None:
        """Raise an error if a row could leave the arrays or walk in a circle, or a score be infinite."""
        nodes = torch.arange(len(self.value))
        for name, tensor, least, most in (
            ("feature", self.feature, torch.zeros(()), self.features - 1),
            ("left", self.left, nodes, len(nodes) - 1),
            ("right", self.right, nodes, len(nodes) - 1),
            ("roots", self.roots, torch.zeros(()), len(nodes) - 1),
        ):
            if bool(((tensor < least) | (tensor > most)).any()):
                raise ValueError(f"{name}: expected numbers of features, or of nodes from their parent on, got others")
        if bool(((self.left == nodes) != (self.right == nodes)).any()):
            raise ValueError("left, right: expected nodes with two children or none, got one child")

    def largest(self) -> float:
        """Return a bound of the absolute score of any row."""
        return float(self.bias.abs() + self.value.abs().sum())


def empty_trees(features: int, outputs: int = 1, sizes: Mapping[str, int] | None = None) -> Trees:
    """Build trees of some sizes, to be filled."""
    if outputs != 1:
        raise ValueError(f"model: expected a task of two classes for 'lightgbm', got {outputs} outputs")
    return Trees(features, **(sizes or {}))


def has_lightgbm() -> bool:
    """Whether LightGBM is installed."""
    return importlib.util.find_spec("lightgbm") is not None


def grow_trees(rows: Rows, validation: Rows, seed: int, loss: nn.Module | None = None) -> Trees:
    """Boost trees along a loss that LightGBM knows, and stop by that of validation rows.

    Parameters
    ----------
    rows, validation : Rows
        What is learned from, and what it is stopped by.
    seed : int
        Of LightGBM.
    loss : Module, optional
        Squared or absolute errors or a quantile of numbers; cross-entropy of two classes by default.
    """
    if not has_lightgbm():
        raise ImportError("model: 'lightgbm' needs LightGBM: pip install metricgrad[trees]")
    import lightgbm

    features, held_out = (torch.as_tensor(part.x[:]) for part in (rows, validation))
    train = lightgbm.Dataset(features.numpy(), _labels(rows), weight=_weights(rows))
    kept = lightgbm.Dataset(held_out.numpy(), _labels(validation), train, _weights(validation))
    objective = objective_of(loss)
    rare = objective["objective"] == "binary" and _rarer_share(rows) < RARE
    ridges = (0.0, RIDGE) if rare else (0.0,)
    parameters = {
        **objective,
        "learning_rate": LEARNING_RATE,
        "num_threads": 1,
        "seed": seed,
        "verbosity": -1,
        "use_missing": False,
    }
    grown = []
    for ridge in ridges:
        stop = lightgbm.early_stopping(EARLY_STOPPING, verbose=False)
        own = {**parameters, "lambda_l2": ridge}
        booster = lightgbm.train(own, train, num_boost_round=MAX_TREES, valid_sets=[kept], callbacks=[stop])
        (left,) = booster.best_score["valid_0"].values()
        grown.append((left, booster))
    best = min(grown, key=itemgetter(0))[1]
    dumped = best.dump_model(num_iteration=best.best_iteration)["tree_info"]
    return trees_of([tree["tree_structure"] for tree in dumped], features.shape[1])


def objective_of(loss: nn.Module | None) -> dict[str, Any]:
    """Return the objective of LightGBM that a loss is; that of two classes is cross-entropy."""
    if isinstance(loss, (SquaredError, SquaredErrorOfEvents)):
        return {"objective": "regression"}
    if isinstance(loss, AbsoluteError):
        return {"objective": "regression_l1"}
    if isinstance(loss, Pinball):
        return {"objective": "quantile", "alpha": loss.quantile}
    return {"objective": "binary"}


def _rarer_share(rows: Rows) -> float:
    share = float(np.average(_labels(rows), weights=_weights(rows)))
    return min(share, 1 - share)


def _labels(rows: Rows) -> Any:
    return (rows.y if rows.y.ndim == 1 else rows.y[:, 0].contiguous()).numpy()


def _weights(rows: Rows) -> Any:
    return None if rows.w is None else rows.w.numpy()


def trees_of(roots: Iterable[Mapping[str, Any]], features: int) -> Trees:
    """Return trees from LightGBM's dump of them: nested nodes with `split_feature`, `threshold`, `leaf_value`."""
    nodes: list[list[float]] = []  # feature, cut, left, right, value

    def add(node: Mapping[str, Any]) -> int:
        number = len(nodes)
        nodes.append([0, 0.0, number, number, float(node.get("leaf_value", 0.0))])
        if "split_feature" in node:
            cut = float(node["threshold"])
            nodes[number][:2] = int(node["split_feature"]), cut
            nodes[number][2:4] = add(node["left_child"]), add(node["right_child"])
        return number

    starts = [add(root) for root in roots]
    trees = Trees(features, len(starts), len(nodes))
    feature, cut, left, right, value = zip(*nodes, strict=True) if nodes else [()] * 5
    for name, numbers in (("feature", feature), ("left", left), ("right", right), ("roots", starts)):
        setattr(trees, name, torch.tensor(numbers, dtype=torch.int64))
    trees.cut, trees.value = (torch.tensor(numbers, dtype=torch.float64) for numbers in (cut, value))
    return trees


def summed(parts: Sequence[Trees], factors: Sequence[float], shift: float) -> Trees:
    """Return the weighted sum of trees, and a shift, as trees again."""
    total = Trees(parts[0].features)
    first = torch.tensor([0, *(len(part.value) for part in parts[:-1])]).cumsum(0).tolist()
    for name in ("left", "right", "roots"):
        setattr(total, name, torch.cat([getattr(part, name) + start for part, start in zip(parts, first, strict=True)]))
    total.feature, total.cut = (torch.cat([getattr(part, name) for part in parts]) for name in ("feature", "cut"))
    total.value = torch.cat([factor * part.value for factor, part in zip(factors, parts, strict=True)])
    total.bias = sum(factor * part.bias for factor, part in zip(factors, parts, strict=True)) + torch.full((1,), shift)
    return total.to(torch.float64)
