from __future__ import annotations

from metricgrad.training.old_fields import with_new_names


def test_stored_fields_are_read_under_their_new_names() -> None:
    assert with_new_names({"companion": False, "rounds": 3, "construction": "paper"}) == {
        "control": False,
        "rounds": 3,
        "surrogate_config": "paper",
    }
