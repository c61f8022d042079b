"""Modules of the user's own on pictures, sequences, several inputs and Datasets, in the estimator."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score, mean_absolute_error
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from metricgrad import MetricClassifier, MetricRegressor, Recipe
from metricgrad.estimators.inputs import MAX_INTEGER, Inputs, Shaped, flat, inputs_of

RECIPE = Recipe(warmup=60, rounds=30, check_every=10, set_size=200)
SHORT = Recipe(warmup=5, rounds=3, set_size=100, trust=-1)


def eights() -> tuple[np.ndarray, np.ndarray]:
    digits = load_digits()
    return (digits.images / 16).astype("float32"), (digits.target == 8).astype(int)


def pictures(shape: Any = (8, 8)) -> nn.Module:
    assert shape == (8, 8)
    return nn.Sequential(nn.Unflatten(1, (1, 8)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 1))


class WordsAndNumbers(nn.Module):
    """Two inputs: words, `(n, 5)` integers, and numbers, `(n, 2)`."""

    def __init__(self, shapes: Any = ((5,), (2,))) -> None:
        super().__init__()
        assert shapes == ((5,), (2,))
        self.words, self.last = nn.EmbeddingBag(30, 4), nn.Linear(6, 1)

    def forward(self, words: Tensor, numbers: Tensor) -> Tensor:
        assert words.dtype == torch.int64
        assert numbers.dtype == torch.float32
        return self.last(torch.cat((self.words(words), numbers), -1))


def words_and_numbers(rows: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    words, numbers = torch.randint(30, (rows, 5), generator=generator), torch.randn(rows, 2, generator=generator)
    return words, numbers, ((words < 8).sum(1) + numbers[:, 0] > 2.5).long()


class Rows(Dataset[Any]):
    """A Dataset of tuples made one by one."""

    def __init__(self, *columns: Tensor) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns[0])

    def __getitem__(self, place: int) -> tuple[Any, ...]:
        *inputs, label = (column[place] for column in self.columns)
        return (*inputs, int(label))


class Stream(IterableDataset[Any]):
    """The same without a length."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    def __iter__(self) -> Any:
        return (self.rows[place] for place in range(len(self.rows)))


@pytest.mark.parametrize("model", [pictures(), pictures], ids=["module", "factory"])
def test_pictures_are_learned_by_a_module_that_gets_them_in_their_shape(model: Any) -> None:
    X, y = eights()
    found = MetricClassifier("average_precision", model=model, recipe=RECIPE).fit(X[:1200], y[:1200])
    scores = found.decision_function(X[1200:])
    assert average_precision_score(y[1200:], scores) > 0.7
    assert found.score(X[1200:], y[1200:]) == pytest.approx(average_precision_score(y[1200:], scores))
    assert found.predict(X[1200:]).shape == (597,)
    assert (found.centre_.any(), found.scale_.var()) == (False, 0)
    assert found.n_features_in_ == 64
    as_tensor = found.decision_function(torch.from_numpy(X[1200:]))
    flattened = found.decision_function(X[1200:].reshape(597, 64))
    again = pickle.loads(pickle.dumps(found)) if isinstance(model, nn.Module) else found
    for same in (as_tensor, flattened, again.decision_function(X[1200:])):
        assert np.array_equal(same, scores)
    with pytest.raises(ValueError, match=r"X: expected inputs of the shapes \(8, 8\), got \(8, 4\)"):
        found.predict(X[1200:, :, :4])


def test_a_module_on_pictures_is_the_same_model_as_one_that_takes_them_as_rows() -> None:
    X, y = eights()
    shaped = nn.Sequential(nn.Flatten(), nn.Linear(64, 1))
    torch.manual_seed(0)
    models = [MetricClassifier("auc", model=shaped, recipe=SHORT, standardise=scaled) for scaled in (None, True)]
    for model in models:
        model.fit(X, y)
    flat_one = MetricClassifier("auc", model=shaped, recipe=SHORT, standardise=False).fit(X.reshape(-1, 64), y)
    assert np.array_equal(models[0].decision_function(X), flat_one.decision_function(X.reshape(-1, 64)))
    assert not np.array_equal(models[1].decision_function(X), flat_one.decision_function(X.reshape(-1, 64)))


def test_a_dataset_a_loader_and_a_stream_give_the_same_model_of_several_inputs() -> None:
    columns = words_and_numbers(600)
    data = TensorDataset(*columns)
    torch.manual_seed(0)
    model = MetricClassifier("f1", model=WordsAndNumbers(), recipe=SHORT)
    found = [clone(model).fit(each) for each in (data, Rows(*columns), Stream(Rows(*columns)), DataLoader(data, 64))]
    scores = found[0].decision_function(TensorDataset(*columns[:2]))
    for each in found[1:]:
        assert np.array_equal(each.decision_function(data), scores)
    assert np.array_equal(found[0].decision_function(DataLoader(data, 100)), scores)
    with pytest.raises(ValueError, match="X: expected a DataLoader that does not shuffle"):
        found[0].predict(DataLoader(data, 100, shuffle=True))
    by_factory = MetricClassifier("f1", model=WordsAndNumbers, recipe=RECIPE).fit(data)
    assert average_precision_score(columns[2], by_factory.decision_function(data)) > 0.7
    assert by_factory.inputs_ == Inputs(((5,), (2,)), (True, False))


def test_validation_rows_may_be_a_dataset_or_shaped() -> None:
    X, y = eights()
    torch.manual_seed(0)
    model = MetricClassifier("auc", model=pictures(), recipe=SHORT)
    labels = torch.from_numpy(y)
    data = TensorDataset(torch.from_numpy(X[:900]), labels[:900])
    kept = TensorDataset(torch.from_numpy(X[900:1200]), labels[900:1200])
    one = clone(model).fit(data, validation=kept).decision_function(X[1200:])
    other = clone(model).fit(X[:900], y[:900], validation=(X[900:1200], y[900:1200])).decision_function(X[1200:])
    assert np.array_equal(one, other)


def test_a_dataset_of_plain_rows_is_a_table_for_any_model() -> None:
    X, y = eights()
    flat_rows = torch.from_numpy(X.reshape(-1, 64))
    model = MetricClassifier("auc", model="linear", recipe=Recipe(rounds=2, trust=-1))
    one = clone(model).fit(TensorDataset(flat_rows, torch.from_numpy(y)))
    other = clone(model).fit(flat_rows.numpy(), y)
    assert np.array_equal(one.decision_function(flat_rows), other.decision_function(flat_rows.numpy()))
    assert np.array_equal(one.predict(TensorDataset(flat_rows)), other.predict(flat_rows.numpy()))


# ---- numbers -------------------------------------------------------------------------------------------------------


def brightness() -> tuple[np.ndarray, np.ndarray]:
    """Pictures, and the brightness of their middle columns, with noise."""
    X, _ = eights()
    noise = np.random.default_rng(0).normal(size=len(X))
    return X, X[:, :, 3:5].mean((1, 2)) + 0.01 * noise


def test_numbers_are_predicted_of_pictures_from_arrays_datasets_and_loaders_alike() -> None:
    X, y = brightness()
    torch.manual_seed(0)
    recipe = replace(SHORT, warmup=150, learning_rate=0.01, trust_cap=5)
    model = MetricRegressor("mae", "surrogate", pictures(), recipe, units="standardised")
    found = clone(model).fit(X[:1200], y[:1200])
    predicted = found.predict(X[1200:])
    error = mean_absolute_error(y[1200:], predicted)
    assert error < 0.5 * mean_absolute_error(y[1200:], np.full(597, np.median(y[:1200])))
    assert -found.score(X[1200:], y[1200:]) == pytest.approx(error)
    columns = torch.from_numpy(X), torch.from_numpy(y).unsqueeze(1)  # as losses of torch want targets
    data = TensorDataset(*(column[:1200] for column in columns))
    for each in (data, DataLoader(data, 100)):
        assert np.array_equal(clone(model).fit(each).predict(X[1200:]), predicted)
    assert np.array_equal(found.predict(DataLoader(TensorDataset(columns[0][1200:]), 100)), predicted)
    assert np.array_equal(pickle.loads(pickle.dumps(found)).predict(X[1200:]), predicted)
    kept = clone(model).fit(data, validation=TensorDataset(*(column[1200:] for column in columns)))
    apart = clone(model).fit(X[:1200], y[:1200], validation=(X[1200:], y[1200:]))
    assert np.array_equal(kept.predict(X), apart.predict(X))


def test_a_factory_of_several_inputs_predicts_numbers() -> None:
    words, numbers, _ = words_and_numbers(600)
    data = TensorDataset(words, numbers, (words < 8).sum(1) + numbers[:, 0])
    recipe = replace(SHORT, warmup=200, learning_rate=0.05)
    found = MetricRegressor("r2", "mse", WordsAndNumbers, recipe, units="standardised").fit(data)
    assert found.score(data, data.tensors[-1]) > 0.5
    assert found.inputs_ == Inputs(((5,), (2,)), (True, False))
    with pytest.raises(ValueError, match="y: expected None because X is a TensorDataset with targets in it"):
        MetricRegressor(model=WordsAndNumbers).fit(data, data.tensors[-1])


def test_shapes_come_back_as_they_were() -> None:
    words, numbers, _ = words_and_numbers(7)
    images = torch.randint(256, (7, 3, 2, 2), dtype=torch.uint8)
    tensors = [words, images, numbers.double()]
    inputs = inputs_of(tensors)
    assert inputs == Inputs(((5,), (3, 2, 2), (2,)), (True, False, False))

    class Same(nn.Module):
        def forward(self, *parts: Tensor) -> tuple[Tensor, ...]:
            return parts

    parts = Shaped(Same(), inputs)(torch.from_numpy(flat(tensors, inputs)))
    for found, given in zip(parts, tensors, strict=True):
        assert torch.equal(found.double(), given.double())
        assert found.shape == given.shape
    assert parts[0].dtype == torch.int64


@pytest.mark.parametrize(
    ("X", "y", "error", "message"),
    [
        (TensorDataset(torch.zeros(4, 2), torch.zeros(4)), [0, 1, 0, 1], ValueError, "y: expected None because X is"),
        (TensorDataset(torch.zeros(4)), None, ValueError, "expected a Dataset of tuples of inputs and a target"),
        (TensorDataset(torch.zeros(0, 2), torch.zeros(0)), None, ValueError, "at least one row, got an empty Tensor"),
        (TensorDataset(*words_and_numbers(40)), None, ValueError, r"for the model 'linear', got .* \(5,\), \(2,\)"),
        (Rows(torch.zeros(4, 2), torch.zeros(4)), [0, 1], ValueError, "y: expected None"),
    ],
)
def test_what_is_no_dataset_of_rows_is_named(X: Any, y: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        MetricClassifier("f1", model="linear").fit(X, y)


def test_a_dataset_of_mappings_is_refused() -> None:
    class Mappings(Rows):
        def __getitem__(self, place: int) -> Any:
            return {"x": self.columns[0][place]}

    with pytest.raises(TypeError, match="X: expected tuples of tensors or numbers from the Mappings"):
        MetricClassifier("f1", model=pictures()).fit(Mappings(torch.zeros(4, 2)))


def test_integers_that_single_precision_does_not_hold_are_refused() -> None:
    words = torch.tensor([[MAX_INTEGER + 2], [1]])
    with pytest.raises(ValueError, match="X: expected integers of at most 16,777,216, got 16,777,218"):
        flat([words], inputs_of([words]))


def test_a_factory_of_something_else_is_named() -> None:
    X, y = eights()
    with pytest.raises(TypeError, match="expected the factory to return a torch module, got str"):
        MetricClassifier("f1", model=lambda shape: "none").fit(X, y)
