"""Boosted trees kept as arrays score as LightGBM does, alone and averaged."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_classification
from sklearn.metrics import log_loss

from metricgrad.training.averaging import averaged
from metricgrad.training.data import Rows
from metricgrad.training.networks import TREES, Scorer
from metricgrad.training.trees import Trees, trees_of
from metricgrad.training.trees import grow_trees as grown

lightgbm = pytest.importorskip("lightgbm")

X, Y = make_classification(900, 8, n_informative=3, flip_y=0.2, random_state=0)
SEED = 3


def grow_trees(rows: Rows, validation: Rows, seed: int) -> Scorer:
    return Scorer(grown(rows, validation, seed), TREES, rows.x.shape[1])


def part(places: slice, flipped: bool = False, weighted: bool = False) -> Rows:
    y = 1 - Y[places] if flipped else Y[places]
    w = torch.linspace(0.1, 3, len(y)) if weighted else None
    return Rows(torch.as_tensor(X[places], dtype=torch.float32), torch.as_tensor(y, dtype=torch.float32), w)


TRAIN, VALIDATION, FLIPPED = part(slice(0, 400)), part(slice(400, 600)), part(slice(600, 900), flipped=True)


def best_trees(rows: Rows) -> tuple[lightgbm.Booster, int]:
    """Grow 250 trees without stopping, and count those after which the cross-entropy of some rows is least."""
    how = {"objective": "binary", "learning_rate": 0.05, "num_threads": 1, "seed": SEED, "verbosity": -1}
    trees = lightgbm.train(how, lightgbm.Dataset(TRAIN.x.numpy(), TRAIN.y.numpy()), num_boost_round=250)
    shares = [trees.predict(rows.x.numpy(), num_iteration=count) for count in range(1, 251)]
    return trees, 1 + int(np.argmin([log_loss(rows.y.numpy(), share) for share in shares]))


def test_there_are_as_many_trees_as_lose_least_on_the_validation_rows_and_test_rows_have_no_say() -> None:
    trees, count = best_trees(VALIDATION)
    _, misled = best_trees(FLIPPED)
    assert 1 < count < 150  # growing stops 100 trees later: within the 250
    assert misled == 1
    found = grow_trees(TRAIN, VALIDATION, SEED)
    for rows in (VALIDATION, FLIPPED):
        expected = trees.predict(rows.x.numpy(), raw_score=True, num_iteration=count)
        np.testing.assert_allclose(found(rows.x.double()).numpy(), expected, rtol=1e-12)


def test_few_positives_do_not_make_the_first_trees_overshoot() -> None:
    rare = {"weights": [0.998], "flip_y": 0.0005, "class_sep": 2.0, "random_state": 1}
    x, y = make_classification(40_000, 6, n_informative=4, n_redundant=0, **rare)
    parts = [(np.float32(x[place::3]), np.float32(y[place::3])) for place in range(3)]
    train, kept, unseen = (Rows(torch.from_numpy(features), torch.from_numpy(labels)) for features, labels in parts)
    plain = {"objective": "binary", "learning_rate": 0.05, "num_threads": 1, "seed": SEED, "verbosity": -1}
    sets = [lightgbm.Dataset(*part) for part in parts[:2]]
    stop = lightgbm.early_stopping(100, verbose=False)
    booster = lightgbm.train(plain, sets[0], 2_000, valid_sets=[sets[1]], callbacks=[stop])
    found = torch.sigmoid(grow_trees(train, kept, SEED)(unseen.x.double()))
    assert log_loss(unseen.y, found) < 0.8 * log_loss(unseen.y, booster.predict(parts[2][0]))


def test_weights_of_rows_change_the_trees_as_they_do_in_lightgbm() -> None:
    train, kept = part(slice(0, 400), weighted=True), part(slice(400, 600), weighted=True)
    how = {"objective": "binary", "learning_rate": 0.05, "num_threads": 1, "seed": SEED, "verbosity": -1}
    sets = [lightgbm.Dataset(rows.x.numpy(), rows.y.numpy(), weight=rows.w.numpy()) for rows in (train, kept)]
    stop = lightgbm.early_stopping(100, verbose=False)
    booster = lightgbm.train(how, sets[0], 2_000, valid_sets=[sets[1]], callbacks=[stop])
    expected = booster.predict(kept.x.numpy(), raw_score=True)
    np.testing.assert_allclose(grow_trees(train, kept, SEED)(kept.x.double()).numpy(), expected, rtol=1e-12)


def test_the_average_of_trees_is_trees_again_and_scores_as_the_mean_of_standardised_scores() -> None:
    models = [grow_trees(TRAIN, VALIDATION, SEED), grow_trees(VALIDATION, TRAIN, SEED)]
    centre, scale = torch.tensor([[0.3], [-1.0]]), torch.tensor([[2.0], [0.5]])
    mean = averaged(models, centre, scale)
    x = FLIPPED.x.double()
    expected = ((models[0](x) - 0.3) / 2 + (models[1](x) + 1) / 0.5) / 2
    assert isinstance(mean.body, Trees)
    assert mean.folds == 1
    torch.testing.assert_close(mean(x), expected)


def test_trees_survive_pickling() -> None:
    model = grow_trees(TRAIN, VALIDATION, SEED)
    again = pickle.loads(pickle.dumps(model))
    assert torch.equal(again(FLIPPED.x.double()), model(FLIPPED.x.double()))


@given(st.data())
def test_any_tree_scores_as_a_walk_from_node_to_node(data: st.DataObject) -> None:
    cuts = st.floats(-2, 2)
    leaves = st.fixed_dictionaries({"leaf_value": st.floats(-5, 5)})
    inner = lambda child: st.fixed_dictionaries(  # noqa: E731
        {"split_feature": st.integers(0, 1), "threshold": cuts, "left_child": child, "right_child": child}
    )
    roots = data.draw(st.lists(st.recursive(leaves, inner, max_leaves=6), max_size=4))
    rows = data.draw(st.lists(st.tuples(cuts, cuts), min_size=1, max_size=8))

    def walked(node: dict, row: tuple) -> float:
        while "split_feature" in node:
            node = node["left_child" if row[node["split_feature"]] <= node["threshold"] else "right_child"]
        return node["leaf_value"]

    expected = [sum(walked(root, row) for root in roots) for row in rows]
    trees = trees_of(roots, 2)
    trees.check()
    scores = trees(torch.tensor(rows, dtype=torch.float64)).squeeze(-1)
    torch.testing.assert_close(scores, torch.tensor(expected, dtype=torch.float64))
    assert float(scores.abs().max()) <= trees.largest() + 1e-9


@pytest.mark.parametrize(
    ("name", "value"), [("feature", 2), ("left", 0), ("right", 99), ("roots", -1), ("left", 2)], ids=str
)
def test_arrays_that_do_not_belong_together_are_refused(name: str, value: int) -> None:
    leaf = {"leaf_value": 1.0}
    trees = trees_of([{"split_feature": 1, "threshold": 0.0, "left_child": leaf, "right_child": leaf}], 2)
    getattr(trees, name)[{"left": 1, "right": 0}.get(name, 0)] = value
    with pytest.raises(ValueError, match="expected"):
        trees.check()


def test_trees_of_no_row_score_none() -> None:
    assert Scorer(trees_of([{"leaf_value": 1.0}], 2), TREES, 2)(torch.zeros(0, 2).double()).shape == (0,)
