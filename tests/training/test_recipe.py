"""Recipes: the paper's, field by field, and what is refused."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict, replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from metricgrad import MetricClassifier
from metricgrad.training.recipe import RECIPES, Recipe, get_recipe, recipe_for


def test_the_recipe_of_the_paper_is_what_its_authors_did() -> None:
    assert asdict(get_recipe("paper")) == {
        "start": "steps",
        "patience": None,
        "weight_decay": 0.0,
        "early_stopping": False,
        "name": "paper",
        "rounds": 300_000,
        "model_steps": 3,
        "surrogate_steps": 10,
        "first": "surrogate",
        "set_size": 100,
        "sets": 1,
        "refine_sets": 1,
        "positive_share": 0.5,
        "restore": False,
        "warmup": 0,
        "anchor": 0.0,
        "control": False,
        "margin": 0.0,
        "learning_rate": 1e-5,
        "surrogate_rate": 1e-5,
        "schedule": "constant",
        "clip": 1e-5,
        "refine_mode": "both",
        "noise": 0.0,
        "relational": 0.0,
        "surrogate_config": "paper",
        "standardise": False,
        "form": "best",
        "trust": -1.0,
        "trust_cap": 3_000,
        "check_every": 1_000,
        "baseline_steps": 1_000_000,
        "baseline_rate": 1e-4,
        "clip_baselines": False,
    }


def test_a_recipe_is_found_by_its_name_or_taken_as_it_is() -> None:
    for name, recipe in RECIPES.items():
        assert recipe.name == name
        assert get_recipe(name) is not None
        assert get_recipe(recipe) == get_recipe(name) == recipe
    assert get_recipe("default") == Recipe()


def test_the_default_recipe_depends_on_the_kind_of_the_model() -> None:
    assert recipe_for("default", "linear") == RECIPES["linear"]
    assert recipe_for("default", "network") == RECIPES["default"]
    assert recipe_for("default", "own").learning_rate == 1e-3
    assert recipe_for("paper", "linear") == RECIPES["paper"]
    assert recipe_for(Recipe(rounds=3), "linear") == Recipe(rounds=3)


def test_fields_can_be_changed_on_the_way() -> None:
    changed = get_recipe("paper", rounds=10, name="short")
    assert (changed.rounds, changed.name, changed.clip) == (10, "short", 1e-5)
    assert RECIPES["paper"].rounds == 300_000


def test_a_recipe_cannot_be_changed_in_place() -> None:
    with pytest.raises(FrozenInstanceError):
        Recipe().rounds = 3  # type: ignore[misc]


def test_model_steps_are_counted_with_the_warm_up() -> None:
    assert Recipe(warmup=10, rounds=5, model_steps=3).steps == 25


@pytest.mark.parametrize(("prevalence", "share"), [(0.01, 0.25), (0.4, 0.4), (0.9, 0.75)])
def test_an_automatic_share_of_positives_is_natural_within_limits(prevalence: float, share: float) -> None:
    assert Recipe().share_of(prevalence) == share
    assert Recipe(positive_share=None).share_of(prevalence) is None
    assert Recipe(positive_share=0.5).share_of(prevalence) == 0.5


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("first", "both", "one of model, surrogate"),
        ("refine_mode", "test", "one of eval, train, both"),
        ("start", "cold", "one of steps, solved"),
        ("patience", 0, "an integer of at least 1"),
        ("schedule", "step", "one of plateau, cosine, constant"),
        ("surrogate_config", "own", "one of default, paper, attention"),
        ("form", "worst", "one of best, zero"),
        ("rounds", -1, "an integer of at least 0"),
        ("rounds", 1.5, "an integer of at least 0"),
        ("rounds", True, "an integer of at least 0"),
        ("warmup", -3, "an integer of at least 0"),
        ("surrogate_steps", -1, "an integer of at least 0"),
        ("trust_cap", "many", "an integer of at least 0"),
        ("model_steps", 0, "an integer of at least 1"),
        ("sets", 0, "an integer of at least 1"),
        ("refine_sets", 0, "an integer of at least 1"),
        ("check_every", 0, "an integer of at least 1"),
        ("set_size", 1, "an integer of at least 2"),
        ("learning_rate", 0, "a positive number"),
        ("surrogate_rate", float("nan"), "a positive number"),
        ("learning_rate", float("inf"), "a positive number"),
        ("clip", 0.0, "a positive number"),
        ("anchor", -0.1, "a number of at least 0"),
        ("noise", None, "a number of at least 0"),
        ("relational", -1, "a number of at least 0"),
        ("trust", 1.1, "a number from -1 to 1"),
        ("positive_share", 1.0, "None, 'auto' or a number between 0 and 1"),
        ("positive_share", "half", "None, 'auto' or a number between 0 and 1"),
    ],
)
def test_a_field_out_of_its_range_is_refused_by_name(field: str, value: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"{field}: expected {expected}, got {value!r}"):
        Recipe(**{field: value})


def test_numbers_of_numpy_are_numbers() -> None:
    recipe = Recipe(
        warmup=3_000, model_steps=3, rounds=np.int64(3), learning_rate=np.float32(0.5), positive_share=np.float64(0.5)
    )  # type: ignore[arg-type]
    assert recipe.steps == 3_009


@pytest.mark.parametrize(
    ("spec", "changes", "error", "message"),
    [
        (
            "quick",
            {},
            ValueError,
            "recipe: expected one of default, default-0.1, linear, paper, queries, tabm or a Recipe, got 'quick'",
        ),
        (3, {}, TypeError, "recipe: expected a name or a Recipe, got 3"),
        ("paper", {"epochs": 3}, ValueError, "expected fields of Recipe, got epochs; there are name, rounds,"),
        ("paper", {"roundz": 3}, ValueError, "recipe: expected fields of Recipe, got roundz; did you mean rounds?"),
    ],
)
def test_what_is_no_recipe_is_refused(spec: Any, changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        get_recipe(spec, **changes)


def test_baselines_of_the_paper_take_a_million_unclipped_steps_at_a_rate_of_their_own() -> None:
    recipe = get_recipe("paper").for_baselines
    assert (recipe.steps, recipe.learning_rate, recipe.clip) == (1_000_000, 1e-4, None)
    assert recipe.steps // recipe.check_every == 333  # looked at as often as the surrogate's model
    assert recipe.for_baselines == recipe


def test_baselines_follow_the_recipe_itself_where_it_says_nothing_of_them() -> None:
    assert get_recipe("default").for_baselines == get_recipe("default")
    assert get_recipe("default", clip=1.0).for_baselines.clip == 1.0
    assert get_recipe("paper", baseline_steps=None).for_baselines.steps == 900_000


def test_the_content_of_a_recipe_is_every_field_but_its_name() -> None:
    content = get_recipe("default", anchor=0.3).content
    assert Recipe(**content) == Recipe(anchor=0.3)
    assert "name" not in content


@pytest.mark.parametrize(
    ("old", "new", "value"), [("companion", "control", False), ("construction", "surrogate_config", "paper")]
)
def test_the_old_name_of_a_field_still_works_with_a_warning(old: str, new: str, value: Any) -> None:
    expected = Recipe(**{new: value})
    for make in (Recipe, partial(replace, Recipe()), partial(get_recipe, "default")):
        with pytest.warns(DeprecationWarning, match=f"the field '{old}' of Recipe is now '{new}'"):
            assert make(**{old: value}) == expected
    with pytest.warns(DeprecationWarning, match=f"'{old}'"):
        assert getattr(expected, old) == value
    estimator = MetricClassifier("f1")
    with pytest.warns(DeprecationWarning, match=f"'{old}'"):
        estimator.set_params(**{f"recipe__{old}": value})
    assert estimator.recipe == expected
