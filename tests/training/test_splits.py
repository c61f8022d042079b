import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from metricgrad.training.splits import (
    Split,
    class_numbers,
    folds,
    group_folds,
    group_part,
    latest_part,
    split,
    split_at,
)

labels = st.lists(st.integers(0, 3), min_size=12, max_size=300).map(np.array)
shares = st.sampled_from([0.0, 0.1, 0.2, 0.25, 1 / 3, 0.5])


def fingerprint(*parts: np.ndarray) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.astype("<i8").tobytes() + b"|")
    return digest.hexdigest()


def parts_of(found: Split) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return found.train, found.validation, found.test


def test_a_split_is_the_same_on_every_machine_and_with_every_version() -> None:
    y = np.arange(1000) % 10 == 0
    assert (
        fingerprint(*parts_of(split(y, seed=0))) == "51a51661c2fda46d3e3b0c93bd24f4b7f68059da926dec5f3e95ff1a9ec623dd"
    )
    assert (
        fingerprint(*parts_of(split(y, seed=2**40, test=0.3, validation=0.0)))
        == "ab5f674fcaa87b3015c0d8ba3684e9cb9e045f39198ecb84fe650bf025f61b9c"
    )
    assert (
        fingerprint(*(rows for pair in folds(y, k=5, seed=1) for rows in pair))
        == "000b5baa6479bd0804e0cbed10f553a26c6e4f8e97b20a8721852ea3d6269c1a"
    )


def test_validation_is_taken_out_of_the_eighty_percent() -> None:
    found = split(np.arange(1000) < 100, seed=3)
    assert [len(part) for part in parts_of(found)] == [640, 160, 200]
    assert [int((part < 100).sum()) for part in parts_of(found)] == [64, 16, 20]


@settings(deadline=None)
@given(y=labels, seed=st.integers(0, 2**64), test=shares, validation=shares)
def test_parts_are_disjoint_cover_every_row_and_repeat(
    y: np.ndarray, seed: int, test: float, validation: float
) -> None:
    found = split(y, seed, test, validation)
    assert np.array_equal(np.sort(np.concatenate(parts_of(found))), np.arange(len(y)))
    assert all(np.all(np.diff(part) > 0) for part in parts_of(found))
    assert fingerprint(*parts_of(found)) == fingerprint(*parts_of(split(y, seed, test, validation)))


@settings(deadline=None)
@given(y=labels, seed=st.integers(0, 1000), test=shares, validation=shares)
def test_every_class_keeps_its_proportions_to_within_a_row(
    y: np.ndarray, seed: int, test: float, validation: float
) -> None:
    found = split(y, seed, test, validation)
    asked = [True, validation > 0, test > 0]
    for label in np.unique(y):
        rows = int((y == label).sum())
        train, held_out, tested = (int((y[part] == label).sum()) for part in parts_of(found))
        if rows >= sum(asked):
            assert all(bool(n) == wanted for n, wanted in zip((train, held_out, tested), asked, strict=True))
            assert abs(tested - rows * test) <= 1
            assert abs(held_out - (rows - tested) * validation) <= 1
        else:
            assert (train, held_out, tested) == (rows, 0, 0)


@settings(deadline=None)
@given(y=labels, seed=st.integers(0, 1000))
def test_only_the_grouping_of_labels_matters_not_their_kind(y: np.ndarray, seed: int) -> None:
    wanted = fingerprint(*parts_of(split(y, seed)))
    assert fingerprint(*parts_of(split(y.astype(float) / 2, seed))) == wanted
    assert fingerprint(*parts_of(split([f"class {9 - label}" for label in y], seed))) == wanted


def test_seeds_give_different_splits() -> None:
    y = np.arange(500) % 2
    assert len({fingerprint(split(y, seed).test) for seed in range(50)}) == 50


def test_each_row_is_tested_about_as_often_as_any_other() -> None:
    y = np.arange(60) % 3 == 0
    times = np.bincount(np.concatenate([split(y, seed).test for seed in range(2000)]), minlength=60)
    # Binomial(2000, 0.2) has deviation 18: five of them either way, for sixty rows at once.
    assert times.min() > 310
    assert times.max() < 490


@settings(deadline=None)
@given(y=labels, k=st.integers(2, 12), seed=st.integers(0, 1000))
def test_folds_validate_each_row_once_in_even_stratified_folds(y: np.ndarray, k: int, seed: int) -> None:
    pairs = list(folds(y, k, seed))
    assert len(pairs) == k
    assert np.array_equal(np.sort(np.concatenate([held_out for _, held_out in pairs])), np.arange(len(y)))
    for train, held_out in pairs:
        assert np.array_equal(np.sort(np.concatenate([train, held_out])), np.arange(len(y)))
        assert len(held_out) in (len(y) // k, -(-len(y) // k))
        for label in np.unique(y):
            rows = int((y == label).sum())
            assert int((y[held_out] == label).sum()) in (rows // k, -(-rows // k))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"y": np.zeros((3, 2))}, ValueError, r"y must have one dimension, got shape \(3, 2\)"),
        ({"y": []}, ValueError, "y must have at least one row"),
        ({"y": [0.0, np.nan, 1.0]}, ValueError, "y must not hold NaN, got 1 of them"),
        ({"y": [0, 1]}, ValueError, r"enough rows for every part .* class sizes \[1, 1\]"),
        ({"seed": -1}, ValueError, "seed must be zero or more, got -1"),
        ({"seed": 0.5}, TypeError, "seed must be an integer, got 0.5"),
        ({"seed": True}, TypeError, "seed must be an integer, got True"),
        ({"test": 1.0}, ValueError, "test must be at least 0 and less than 1, got 1.0"),
        ({"validation": -0.1}, ValueError, "validation must be at least 0 and less than 1, got -0.1"),
        ({"validation": float("nan")}, ValueError, "validation must be at least 0 and less than 1, got nan"),
        ({"test": "0.2"}, TypeError, "test must be a number, got '0.2'"),
    ],
)
def test_bad_input_to_split_is_named(arguments: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        split(**{"y": np.arange(20) % 2, "seed": 0, **arguments})


def test_there_may_be_as_many_folds_as_rows() -> None:
    assert sorted(held_out.tolist() for _, held_out in folds([0, 1, 0, 1], 4, seed=0)) == [[0], [1], [2], [3]]


@pytest.mark.parametrize(
    ("k", "error", "message"),
    [
        (1, ValueError, "k must be from 2 to the number of rows, 20, got 1"),
        (21, ValueError, "got 21"),
        (2.0, TypeError, "k must"),
    ],
)
def test_bad_input_to_folds_is_named_before_the_first_fold_is_asked_for(
    k: int, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        folds(np.arange(20) % 2, k, seed=0)


# ---- rows named by the user, by group, by time ----------------------------------------------------------------------


@given(st.data(), st.integers(2, 50))
def test_rows_named_by_number_or_by_truth_are_the_validation_rows(data: st.DataObject, n: int) -> None:
    chosen = data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n - 1, unique=True))
    by_number, by_truth = split_at(chosen, n), split_at(np.isin(np.arange(n), chosen), n)
    for found in (by_number, by_truth):
        assert found.validation.tolist() == sorted(chosen)
        assert sorted([*found.train, *found.validation]) == list(range(n))
        assert not len(found.test)


@pytest.mark.parametrize("kind", [bool, np.int8, np.uint64, np.float16, np.float64, "U3", object])
@given(values=st.lists(st.integers(0, 99), min_size=1))
def test_labels_are_numbered_as_numpy_does(values: list[int], kind: Any) -> None:
    labels = np.array(values).astype(kind)
    for found, expected in zip(class_numbers(labels), np.unique(labels, return_inverse=True), strict=True):
        np.testing.assert_array_equal(found, expected, strict=True)


@pytest.mark.parametrize("kind", [np.uint8, np.int32, np.int64])
def test_parts_named_by_numbers_of_any_kind_are_numbers_of_rows(kind: type) -> None:
    found = split_at(np.array([3, 1], kind), 5)
    assert {part.dtype for part in parts_of(found)} == {np.dtype(np.int64)}
    assert [np.arange(5)[part].tolist() for part in parts_of(found)] == [[0, 2, 4], [1, 3], []]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "validation must be the numbers of some of 4 rows"),
        ([0, 0], "once each"),
        ([4], "some of 4 rows"),
        ([-1], "some of 4 rows"),
        ([0.5], "got float64"),
        ([True, False], "got bool of shape"),
        (np.zeros(4, bool), "some of 4 rows and not all, got 0"),
        ([0, 1, 2, 3], "some of 4 rows and not all, got 4"),
    ],
)
def test_rows_that_cannot_be_validation_rows_are_named(rows: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        split_at(rows, 4)


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans()), min_size=2, max_size=200), st.integers(0, 99), shares)
def test_a_group_is_never_on_both_sides(rows: list, seed: int, share: float) -> None:
    groups, y = (np.array(column) for column in zip(*rows, strict=True))
    if len(set(groups)) < 2:
        with pytest.raises(ValueError, match="groups must be two at least, got one"):
            group_part(groups, y, seed, share)
        return
    chosen = np.isin(np.arange(len(y)), group_part(groups, y, seed, share))
    assert 0 < chosen.sum() < len(y)
    assert not set(groups[chosen]) & set(groups[~chosen])


def test_groups_of_one_row_give_the_share_asked_for_and_every_class_on_both_sides() -> None:
    y = np.arange(200) < 4
    chosen = group_part(np.arange(200), y, seed=0, share=0.25)
    assert len(chosen) == 50
    assert 0 < y[chosen].sum() < 4
    assert chosen.tolist() != group_part(np.arange(200), y, seed=1, share=0.25).tolist()


def chosen_by_hand(groups: list[int], y: list[int], seed: int, share: float, attempts: int = 100) -> list[int]:
    """Choose groups in an order of random keys until every class is on both sides, or for the last time."""
    names = sorted(set(groups))
    for attempt in range(attempts):
        keys = np.random.PCG64([seed, attempt]).random_raw(len(names)).tolist()
        order = [name for _, name in sorted(zip(keys, names, strict=True))]
        sizes = np.cumsum([groups.count(name) for name in order])[:-1].tolist()
        nearest = min(range(len(sizes)), key=lambda i: abs(sizes[i] - share * len(groups)))
        chosen = [row for row, name in enumerate(groups) if name in order[: nearest + 1]]
        left = set(range(len(groups))) - set(chosen)
        if {y[row] for row in chosen} == {y[row] for row in left} == set(y):
            break
    return chosen


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2)), min_size=2, max_size=12),
    st.integers(0, 99),
    st.sampled_from([0.1, 0.25, 0.5, 0.8]),
)
def test_groups_are_chosen_until_every_class_is_on_both_sides(rows: list, seed: int, share: float) -> None:
    groups, y = (list(column) for column in zip(*rows, strict=True))
    assume(len(set(groups)) > 1)
    assert group_part(groups, y, seed, share).tolist() == chosen_by_hand(groups, y, seed, share)


def test_a_class_of_two_groups_is_on_both_sides_whatever_the_seed() -> None:
    groups, y = np.repeat(np.arange(6), 3), np.repeat([1, 1, 0, 0, 0, 0], 3)
    for seed in range(40):
        chosen = np.isin(np.arange(18), group_part(groups, y, seed, 0.3))
        assert set(y[chosen]) == set(y[~chosen]) == {0, 1}


def test_where_no_choice_of_groups_has_every_class_on_both_sides_the_hundredth_is_taken() -> None:
    groups, y = [number // 2 for number in range(40)], [int(number == 0) for number in range(40)]
    hundredth = chosen_by_hand(groups, y, 0, 0.3, attempts=100)
    assert hundredth not in (chosen_by_hand(groups, y, 0, 0.3, attempts=n) for n in (99, 101))
    assert group_part(groups, y, 0, 0.3).tolist() == hundredth


@pytest.mark.parametrize("test", [0.0, 0.01, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("validation", [0.0, 0.01, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("rows", [3, 4, 7])
def test_whatever_the_shares_every_part_asked_for_has_a_row_of_every_class(
    test: float, validation: float, rows: int
) -> None:
    y = np.repeat([0, 1], [rows, rows + 1])
    asked = [True, validation > 0, test > 0]
    for part, wanted in zip(parts_of(split(y, 0, test, validation)), asked, strict=True):
        assert set(y[part]) == ({0, 1} if wanted else set())


def test_a_fifth_of_the_rows_is_taken_unless_another_share_is_asked_for() -> None:
    assert len(group_part(np.arange(50), np.arange(50) % 2, seed=0)) == 10
    assert latest_part(np.arange(50)).tolist() == list(range(40, 50))


def test_times_may_be_numbers_or_dates() -> None:
    assert latest_part([0.5, 3.5, 2.5, 1.5], 0.25).tolist() == [1]
    assert latest_part(np.array(["2024-01-01", "2024-03-01", "2024-02-01"], "M8[D]"), 0.3).tolist() == [1]
    with pytest.raises(ValueError, match=r"share must be at least 0 and less than 1, got 1\.0"):
        latest_part([1, 2, 3], 1.0)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=200), shares)
def test_validation_by_time_is_never_before_training(times: list[int], share: float) -> None:
    if len(set(times)) < 2:
        with pytest.raises(ValueError, match="two different ones at least"):
            latest_part(times, share)
        return
    late = np.isin(np.arange(len(times)), latest_part(times, share))
    assert max(np.array(times)[~late]) < min(np.array(times)[late])
    # No other moment to cut at comes nearer to the share.
    sizes = [sum(time >= cut for time in times) for cut in sorted(set(times))[1:]]
    assert abs(late.sum() - share * len(times)) == min(abs(size - share * len(times)) for size in sizes)


def test_a_split_by_groups_divides_none_and_covers_every_row() -> None:
    groups, y = np.arange(500) // 5, np.arange(500) % 3
    for seed in range(5):
        parts = parts_of(split(y, seed, groups=groups))
        assert sum(len(set(groups[part])) for part in parts) == len(set(groups))
        assert np.array_equal(np.sort(np.concatenate(parts)), np.arange(500))
        assert [len(part) for part in parts] == [320, 80, 100]
    train, validation, test = parts_of(split(y, 0, test=0.0, groups=groups))
    assert (len(train), len(validation), len(test)) == (400, 100, 0)


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 1)), min_size=2, max_size=120), st.integers(2, 5))
def test_folds_by_groups_divide_none_and_hold_every_row_out_once(rows: list[tuple[int, int]], k: int) -> None:
    groups, y = np.array(rows).T
    if len(set(groups)) < k:
        with pytest.raises(ValueError, match="k must be from 2 to the number of groups"):
            group_folds(groups, y, k, seed=0)
        return
    parts = group_folds(groups, y, k, seed=0)
    assert len(parts) == k
    assert np.array_equal(np.sort(np.concatenate([held_out for _, held_out in parts])), np.arange(len(y)))
    for train, held_out in parts:
        assert not set(groups[train]) & set(groups[held_out])
        assert np.array_equal(np.union1d(train, held_out), np.arange(len(y)))


def test_folds_by_groups_have_about_the_same_rows_and_positives() -> None:
    groups = np.repeat(np.arange(100), 5)
    y = groups % 10 == 0
    for train, held_out in group_folds(groups, y, 5, seed=1):
        assert len(held_out) == 100
        assert y[held_out].sum() == 10
        assert len(train) == 400
