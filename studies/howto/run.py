"""What the pictures of the how-to pages show, by the programs on the pages themselves: python -m studies.howto.run

Runs the first program of each page, and stores in `results/howto.json` curves of its model, and of the usual one beside
it, on the rows that the page keeps for the end.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression

from metricgrad import MetricRegressor, best_threshold, get_metric
from metricgrad.provenance import provenance
from studies import pages

RESULTS = pages.RESULTS / "howto.json"
PROFIT, FAIR = "sum(amount * tp) - 5 * fp", "f1 - equal_opportunity_gap(sex)"
TRAINED, USUAL = "trained for the metric", "the usual loss"
BINS = np.linspace(-0.5, 0.5, 51)
"""Edges of the bins of relative errors; those beyond are left out of the picture, not of the shares."""


def names_of(page: str) -> dict[str, Any]:
    """Run the first program of a page and return its variables."""
    text = (pages.DOCS / "howto" / f"{page}.md").read_text("utf-8")
    (program, *_) = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {"__name__": page}
    exec(compile(program, f"{page}.md", "exec"), names)
    return names


def by_threshold(spec: str, scores: np.ndarray, targets: np.ndarray, thresholds: np.ndarray) -> list[float]:
    """Return a metric, in its usual form, at every threshold."""
    metric = get_metric(spec)
    return [round(float(metric.value(metric(scores - each, targets))), 5) for each in thresholds]


def cost() -> dict[str, Any]:
    """Return the profit of unseen rows by the share of them that is called."""
    names = names_of("costs")
    targets = np.column_stack((names["y_test"], names["a_test"]))
    known = np.column_stack((names["y_train"], names["a_train"]))
    plain = LogisticRegression(max_iter=1000).fit(names["X_train"], names["y_train"])
    threshold = best_threshold(PROFIT, plain.decision_function(names["X_train"]), known)
    columns = {"columns": {"amount": names["a_test"]}} if names["model"].rule_ else {}
    found = {
        TRAINED: names["model"].decision_function(names["X_test"], **columns),
        USUAL: plain.decision_function(names["X_test"]) - threshold,
    }
    shares = np.linspace(0.005, 0.3, 60)
    curves = {}
    for name, scores in found.items():
        at = np.quantile(scores, 1 - shares)
        here = [float((scores >= 0).mean()), by_threshold(PROFIT, scores, targets, np.zeros(1))[0]]
        curves[name] = {"profit": by_threshold(PROFIT, scores, targets, at), "chosen": here}
    return {"share": shares.round(4).tolist(), "curves": curves}


def numbers() -> dict[str, Any]:
    """Return how many prices are off by how much, and how many are within ten percent."""
    names = names_of("numbers")
    X, prices = names["X"], names["prices"]
    usual = MetricRegressor("within(0.1)", "mse", "linear", random_state=0, folds=5).fit(X[:1000], prices[:1000])
    found = {}
    for name, model in ((TRAINED, names["model"]), (USUAL, usual)):
        errors = model.predict(X[1000:]) / prices[1000:] - 1
        counts = np.histogram(errors, BINS)[0].tolist()
        found[name] = {"counts": counts, "within": round(float((np.abs(errors) <= 0.1).mean()), 4)}
    return {"edges": BINS.round(3).tolist(), "errors": found}


def groups() -> dict[str, Any]:
    """Return F1 and the difference of recall between the groups, by the threshold, and where each model is cut."""
    names = names_of("groups")
    y, sex = names["y_test"], (names["s_test"] == "m").astype(float)
    known = np.column_stack((names["y_train"], names["s_train"] == "m"))
    plain = LogisticRegression().fit(names["X_train"], names["y_train"])
    threshold = best_threshold("f1", plain.decision_function(names["X_train"]), known[:, 0])
    columns = {"columns": {"sex": names["s_test"]}} if names["model"].rule_ else {}
    found = {
        TRAINED: names["model"].decision_function(names["X_test"], **columns),
        USUAL: plain.decision_function(names["X_test"]) - threshold,
    }
    targets, curves = np.column_stack((y, sex)), {}
    for name, scores in found.items():
        at = np.append(np.quantile(scores, np.linspace(0.6, 0.97, 60)), 0.0)
        f1, gap = by_threshold("f1", scores, y, at), by_threshold("equal_opportunity_gap(sex)", scores, targets, at)
        curves[name] = {"f1": f1[:-1], "gap": gap[:-1], "chosen": [f1[-1], gap[-1]]}
    return {"curves": curves}


def main(results: Path = RESULTS) -> None:
    torch.set_num_threads(1)
    found = {"cost": cost(), "numbers": numbers(), "groups": groups()}
    record = {"command": "python -m studies.howto.run", "seed": 0, **found, "made_by": provenance()}
    results.write_text(json.dumps(record, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
