"""The comparison of surrogates with and without attention uses what both were measured on, and nothing else."""

from __future__ import annotations

from studies.fidelity.attention import directions, gains, pairs, spoken_for


def cell(metric: str, cosines: list[float], table: str = "a9a") -> dict[str, object]:
    known = {"table": table, "model": "linear", "metric": metric, "rows": 400, "cosines": cosines}
    return known | {"ceilings": [0.9] * len(cosines), "slopes": [0.01] * len(cosines)}


def run(config: str, seed: int, gain: float) -> dict[str, object]:
    return {"table": "a9a", "model": "linear", "metric": "f1", "seed": seed, "config": config, "gain": gain}


def test_cosines_are_compared_on_sets_that_both_were_measured_on() -> None:
    default = {"cells": [cell("best_f1", [0.2, 0.4]), cell("best_f1", [0.9, 0.9], "porto"), cell("auc", [1.0, 1.0])]}
    stored = {"cells": [cell("best_f1", [0.8, 0.9]), cell("best_f1", [0.1, 0.1], "other")]}
    lines = directions(stored, default).splitlines()
    assert len(lines) == 3
    assert [part.strip() for part in lines[-1].strip("|").split("|")] == [
        "`best_f1`",
        "0.30 / 0.22",
        "0.85 / 0.81",
        "2",
    ]


def test_gains_are_those_of_pairs_and_a_run_without_its_other_does_not_count() -> None:
    training = [run("default", 0, 0.1), run("attention", 0, 0.2), run("default", 1, 0.3), run("attention", 1, 0.1)]
    stored = {"training": [*training, run("default", 2, 0.9)]}
    assert len(pairs(stored)) == 2
    assert gains(stored).splitlines()[-1].split("|")[4:7] == [" +0.2000 ", " +0.1500 ", " 2 "]
    said = spoken_for(stored)
    assert "gained more in 1 of 2 runs and less in 1; on average the difference is -0.0500" in said
