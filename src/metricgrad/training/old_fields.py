"""Fields of recipes as older versions stored them: old names, and fields that were added since."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import partial, wraps
from typing import Any

RENAMED_FIELDS = {"companion": "control", "construction": "surrogate_config"}
"""Old names of fields, of a recipe or of a round, which stored runs and saved models hold."""

ADDED_FIELDS: dict[str, Any] = {"start": "steps", "patience": None, "weight_decay": 0.0, "early_stopping": False}
"""Fields that older stored recipes lack, with the values by which they were run."""


def with_new_names(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return stored fields of a recipe or of a round under the names they have now."""
    return {RENAMED_FIELDS.get(name, name): value for name, value in stored.items()}


def accept_old_names(cls: type[Any]) -> None:
    """Let the old names of fields work for one release, with a warning."""
    init = cls.__init__

    @wraps(init)
    def __init__(self: Any, *values: Any, **named: Any) -> None:
        init(self, *values, **renamed_fields(named))

    cls.__init__ = __init__
    for old, new in RENAMED_FIELDS.items():
        setattr(cls, old, property(partial(_old_value, old=old, new=new)))


def renamed_fields(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields under their new names; `replace` gives the new name beside an old one, which then wins."""
    for old in named.keys() & RENAMED_FIELDS.keys():
        _warn_renamed(old)
    old_values = {name: value for name, value in named.items() if name in RENAMED_FIELDS}
    return {name: value for name, value in named.items() if name not in RENAMED_FIELDS} | with_new_names(old_values)


def _old_value(recipe: Any, *, old: str, new: str) -> Any:
    _warn_renamed(old)
    return getattr(recipe, new)


def _warn_renamed(old: str) -> None:
    message = f"the field {old!r} of Recipe is now {RENAMED_FIELDS[old]!r}; the old name goes with the next release"
    warnings.warn(message, DeprecationWarning, stacklevel=4)
