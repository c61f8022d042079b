"""Recipes: how a model is trained, as data."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from difflib import get_close_matches
from numbers import Integral, Real
from typing import Any

from metricgrad.training.old_fields import ADDED_FIELDS, accept_old_names, renamed_fields, with_new_names

CHOICES = {
    "start": ("steps", "solved"),
    "first": ("model", "surrogate"),
    "refine_mode": ("eval", "train", "both"),
    "schedule": ("plateau", "cosine", "constant"),
    "surrogate_config": ("default", "paper", "attention"),
    "form": ("best", "zero"),
}
COUNTS = {
    "rounds": 0,
    "warmup": 0,
    "surrogate_steps": 0,
    "trust_cap": 0,
    "model_steps": 1,
    "sets": 1,
    "refine_sets": 1,
    "check_every": 1,
    "baseline_steps": 1,
    "set_size": 2,
    "patience": 1,
}
OPTIONAL = ("patience", "clip", "baseline_steps", "baseline_rate")
"""Numbers that may be None."""
POSITIVE, LARGEST = sys.float_info.min, sys.float_info.max
NUMBERS = (
    ("learning_rate", POSITIVE, LARGEST),
    ("surrogate_rate", POSITIVE, LARGEST),
    ("baseline_rate", POSITIVE, LARGEST),
    ("clip", POSITIVE, LARGEST),
    ("anchor", 0, LARGEST),
    ("weight_decay", 0, LARGEST),
    ("noise", 0, LARGEST),
    ("relational", 0, LARGEST),
    ("margin", 0, LARGEST),
    ("trust", -1, 1),
)


@dataclass(frozen=True)
class Recipe:
    """How Algorithm 1 is run; the defaults are the recipe `default`.

    Parameters
    ----------
    name : str
        What it is called in results and reports. Runs are identified by the content of their recipe, not by its name.
    rounds : int
        Passes of the outer loop (T).
    model_steps, surrogate_steps : int
        Steps of the model (K_alpha) and of the surrogate (K_beta) in a round.
    first : {"model", "surrogate"}
        Which of the two goes first in a round; the paper's text says model, the authors' program surrogate.
    set_size : int
        Rows in a set (N). Data with no more rows than that is used whole, in every set. Queries are as large as they
        are.
    sets : int
        Sets a model step.
    refine_sets : int
        Sets a surrogate step.
    positive_share : float, optional
        Share of positives in a set; None draws rows as they come. `"auto"`: as they come, but at least a quarter and
        at most three quarters.
    restore : bool
        Weigh the rows of a stratified set so that classes count as they do in the data.
    warmup : int
        Model steps of cross-entropy before the first round. Every loss gets them, baselines too.
    start : {"steps", "solved"}
        Where the rounds start: after the steps of the warm-up; or, for a model that is linear in fixed columns, at the
        minimum of cross-entropy over all rows, with a ridge penalty chosen on validation rows. A surrogate is then
        followed on all rows at once, the model steps of a round being iterations of L-BFGS.
    anchor : float
        How much cross-entropy is mixed into a surrogate the model follows; other losses are followed as they are.
    learning_rate, surrogate_rate : float
        Of the two Adams.
    weight_decay : float
        Of the model's AdamW: each step takes this share of its learning rate off every weight.
    schedule : {"plateau", "cosine", "constant"}
        Of the model's learning rate: constant in the warm-up and along a cosine to zero in the rounds; along a cosine
        in each of the two; or constant in both.
    clip : float, optional
        Largest gradient norm, of model and surrogate.
    refine_mode : {"eval", "train", "both"}
        Mode of the model while refining. `"both"` is the authors' program: true losses of evaluation mode, surrogate
        losses of training mode.
    noise : float
        Largest noise on refined scores, in units of their spread: each set gets its own share of it.
    relational : float
        See `SurrogateLoss`.
    surrogate_config : {"default", "paper", "attention"}
        How a surrogate is built.
    standardise : bool
        Whether features are centred and scaled on the rows trained on.
    form : {"best", "zero"}
        See `SurrogateLoss`; the best model on validation rows is chosen by the same form.
    trust, trust_cap : float, int
        Before the first round, refine until the Spearman correlation of surrogate and metric on fresh sets is at
        least `trust`, for at most `trust_cap` steps; -1 is never.
    check_every : int
        Rounds between checks on the validation rows.
    patience : int, optional
        Checks without a gain on validation rows after which the warm-up ends, and so do rounds, unless their learning
        rate falls to zero; None runs both to their end.
    early_stopping : bool
        Whether of the models that follow cross-entropy, in the warm-up and beside a surrogate, the one with the least
        of it on validation rows is kept, and the rounds start from there. Otherwise it is the best by the metric, which
        may be the best by chance if the network can learn rows by heart and the metric has few positives to judge by.
        Queries are always judged by the metric.
    control : bool
        Whether beside a surrogate a copy of the model goes on with cross-entropy, on the same sets, to compete with it
        on the validation rows in the end.
    margin : float
        By how many standard errors the model that followed a surrogate must lose less on the validation rows than the
        best that followed cross-entropy, to be kept.
    baseline_steps : int, optional
        Model steps of hand-made losses after the warm-up; by default as many as a surrogate's model takes.
    baseline_rate : float, optional
        Learning rate of a model that follows a hand-made loss; by default `learning_rate`.
    clip_baselines : bool
        Whether `clip` applies to hand-made losses too.

    Notes
    -----
    Stored runs hold every field, so a field added later must have a default that changes nothing.
    """

    name: str = "default"
    rounds: int = 180
    model_steps: int = 4
    surrogate_steps: int = 1
    first: str = "model"
    set_size: int = 400
    sets: int = 1
    refine_sets: int = 6
    positive_share: float | str | None = "auto"
    restore: bool = True
    warmup: int = 2_000
    start: str = "steps"
    anchor: float = 0.1
    learning_rate: float = 3e-3
    surrogate_rate: float = 3e-4
    weight_decay: float = 0.0
    schedule: str = "plateau"
    clip: float | None = None
    refine_mode: str = "eval"
    noise: float = 0.3
    relational: float = 0.3
    surrogate_config: str = "default"
    standardise: bool = True
    form: str = "best"
    trust: float = 0.8
    trust_cap: int = 3_000
    check_every: int = 15
    patience: int | None = 8
    early_stopping: bool = False
    control: bool = True
    margin: float = 1.0
    baseline_steps: int | None = None
    baseline_rate: float | None = None
    clip_baselines: bool = True

    def __post_init__(self) -> None:
        for choice, allowed in CHOICES.items():
            if getattr(self, choice) not in allowed:
                raise ValueError(f"{choice}: expected one of {', '.join(allowed)}, got {getattr(self, choice)!r}")
        for count, least in COUNTS.items():
            value: Any = getattr(self, count)
            if value is None and count in OPTIONAL:
                continue
            if not isinstance(value, Integral) or value is True or value is False or value < least:
                raise ValueError(f"{count}: expected an integer of at least {least}, got {value!r}")
        for number, low, high in NUMBERS:
            value = getattr(self, number)
            if value is None and number in OPTIONAL:
                continue
            if not _is_number(value) or not low <= float(value) <= high:
                raise ValueError(f"{number}: expected {_between(low, high)}, got {value!r}")
        for flag in ("restore", "early_stopping", "standardise", "control", "clip_baselines"):
            if not isinstance(getattr(self, flag), bool):
                raise ValueError(f"{flag}: expected True or False, got {getattr(self, flag)!r}")
        share: Any = self.positive_share
        if share not in (None, "auto") and not (_is_number(share) and 0 < share < 1):
            raise ValueError(f"positive_share: expected None, 'auto' or a number between 0 and 1, got {share!r}")

    @property
    def steps(self) -> int:
        """Model steps in all."""
        return self.warmup + self.rounds * self.model_steps

    @property
    def content(self) -> dict[str, Any]:
        """Every field but the name, as plain data: what identifies how a stored run was trained."""
        return {name: value for name, value in asdict(self).items() if name != "name"}

    @property
    def for_baselines(self) -> Recipe:
        """The recipe as it applies to hand-made losses."""
        changes: dict[str, Any] = {"baseline_steps": None, "baseline_rate": None, "clip_baselines": True}
        if self.baseline_steps is not None:  # one step a round, looked at as often
            changes |= {"rounds": self.baseline_steps, "model_steps": 1}
            changes["check_every"] = max(self.check_every * self.model_steps, 50)
        if self.baseline_rate is not None:
            changes["learning_rate"] = self.baseline_rate
        if not self.clip_baselines:
            changes["clip"] = None
        return replace(self, **changes)

    def shares_of(self, prevalences: Sequence[float]) -> list[float] | None:
        """Return the share of every class in a set, none below a quarter of an equal one; None for a natural draw."""
        if self.positive_share is None:
            return None
        raised = [max(share, 0.25 / len(prevalences)) for share in prevalences]
        return [share / sum(raised) for share in raised]

    def share_of(self, prevalence: float) -> float | None:
        """Return the share of positives in a set drawn from data of this prevalence; None for a natural draw."""
        if self.positive_share != "auto":
            return None if self.positive_share is None else float(self.positive_share)
        return min(max(prevalence, 0.25), 0.75)


def stored_recipe(stored: Mapping[str, Any]) -> Recipe:
    """Return a recipe from its stored fields, of an older version too."""
    return Recipe(**ADDED_FIELDS | with_new_names(stored))


accept_old_names(Recipe)


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and value is not True and value is not False


def _between(low: float, high: float) -> str:
    if high < LARGEST:
        return f"a number from {low:g} to {high:g}"
    return "a positive number" if low == POSITIVE else f"a number of at least {low:g}"


RECIPES = {
    "default": Recipe(),
    "default-0.1": Recipe(
        name="default-0.1",
        rounds=1_000,
        refine_sets=8,
        model_steps=3,
        warmup=3_000,
        learning_rate=1e-3,
        schedule="cosine",
        check_every=50,
        patience=None,
    ),
    "linear": Recipe(
        name="linear",
        rounds=10,
        refine_sets=8,
        model_steps=15,
        surrogate_steps=10,
        first="surrogate",
        set_size=1_200,
        start="solved",
        check_every=1,
        patience=5,
        control=False,
        learning_rate=1e-2,
        baseline_steps=1_000,
    ),
    "paper": Recipe(
        name="paper",
        rounds=300_000,
        model_steps=3,
        surrogate_steps=10,
        first="surrogate",
        set_size=100,
        refine_sets=1,
        positive_share=0.5,
        restore=False,
        warmup=0,
        anchor=0.0,
        learning_rate=1e-5,
        surrogate_rate=1e-5,
        schedule="constant",
        clip=1e-5,
        refine_mode="both",
        noise=0.0,
        relational=0.0,
        surrogate_config="paper",
        standardise=False,
        trust=-1.0,
        check_every=1_000,
        patience=None,
        control=False,
        margin=0.0,
        baseline_steps=1_000_000,
        baseline_rate=1e-4,
        clip_baselines=False,
    ),
    "queries": Recipe(
        name="queries",
        rounds=300,
        refine_sets=8,
        model_steps=3,
        set_size=20,
        sets=16,
        warmup=900,
        learning_rate=1e-3,
        schedule="cosine",
        check_every=10,
        patience=None,
    ),
    "tabm": Recipe(
        name="tabm",
        rounds=20,
        model_steps=4,
        set_size=256,
        warmup=2_000,
        weight_decay=3e-4,
        check_every=10,
        early_stopping=True,
    ),
}


OWN_MODULE_RATE = 1e-3
"""Learning rate of a module of the user's own, which may be deep."""


def recipe_for(spec: Recipe | str, kind: str) -> Recipe:
    """Return the recipe that a name stands for; "default" depends on the kind of the model (`networks.kind_of`)."""
    if not isinstance(spec, str) or spec != "default" or kind == "network":
        return get_recipe(spec)
    if kind in RECIPES:
        return RECIPES[kind]
    return replace(RECIPES["default"], learning_rate=OWN_MODULE_RATE)


def get_recipe(spec: Recipe | str, **changes: Any) -> Recipe:
    """Return a recipe by name or as given, with some fields changed."""
    if isinstance(spec, str):
        if spec not in RECIPES:
            raise ValueError(f"recipe: expected one of {', '.join(RECIPES)} or a Recipe, got {spec!r}")
        spec = RECIPES[spec]
    if not isinstance(spec, Recipe):
        raise TypeError(f"recipe: expected a name or a Recipe, got {spec!r}")
    changes = renamed_fields(changes)
    known = [field.name for field in fields(Recipe)]
    unknown = sorted(set(changes) - set(known))
    if unknown:
        meant = [near for name in unknown for near in get_close_matches(name, known, 1)]
        hint = f"did you mean {' and '.join(meant)}?" if meant else f"there are {', '.join(known)}"
        raise ValueError(f"recipe: expected fields of Recipe, got {', '.join(unknown)}; {hint}")
    return replace(spec, **changes)
