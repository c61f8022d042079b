"""The page about numbers says what is stored, and its arithmetic is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from metricgrad.evaluation.store import Store
from studies.numbers import page, run

PAGE = Path(__file__).parents[2] / "docs" / "numbers.md"


KNOWN = {"validation": {}, "known_rows": 10_000}


def run_of(dataset: str, metric: str, model: str, seed: int) -> dict[str, object]:
    return {"dataset": dataset, "metric": metric, "model": model, "seed": seed, "folds": run.FOLDS}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    store = Store(tmp_path / "numbers.jsonl")
    for seed in range(3):
        for dataset, metric in run.CELLS:
            for model in run.MODELS:
                base = 100.0 + seed if dataset == "bikes" else 0.5
                step = -(2.0 + seed) if dataset == "bikes" else 0.01 * (seed - 1)
                kinds = {"squared error": base, "best loss by hand": base + step, "chosen": base + 2 * step}
                kinds |= dict.fromkeys((page.LONGER, page.WITHOUT), base + step)
                kinds |= {page.SURROGATE: base + step, page.MIXED: base + 3 * step} if model != "lightgbm" else {}
                if model == "lightgbm":
                    kinds = {"absolute error": base, "quantile": base, **kinds}
                values = {
                    kind: {
                        "won": "tabm" if seed else "lightgbm",
                        "name": "mse" if kind == "squared error" else "pinball-0.8",
                        "test": value,
                        "plain": 2 * base,
                    }
                    for kind, value in kinds.items()
                }
                learned = {"pinball-0.8": {"kept": True, "value": 3.0}, "surrogate": {"kept": seed > 1, "value": 2.0}}
                outcome = {"values": values, "validation": {} if model == "lightgbm" else learned, "known_rows": 10_000}
                store.add(run_of(dataset, metric, model, seed), outcome)
    return store.path


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.page() == PAGE.read_text("utf-8")


def test_no_run_is_stored_twice_and_a_cell_has_the_same_seeds_by_all_models_of_ours() -> None:
    found = page.outcomes()
    seeds = found[found["kind"] == page.CHOSEN].groupby(["dataset", "metric", "model"])["seed"].agg(set)
    for dataset, metric in run.CELLS:
        if (dataset, metric, "linear") in seeds and (dataset, metric, "mlp") in seeds:
            assert seeds[dataset, metric, "linear"] == seeds[dataset, metric, "mlp"]
    assert len(list(Store(page.RESULTS))) == len({Store.key(record["run"]) for record in Store(page.RESULTS)})


def test_a_gain_is_that_of_the_same_seed_and_lower_costs_are_gains(stored: Path) -> None:
    found = page.outcomes(stored)
    costs = page.gain(found, run.CELLS[0], "mlp", page.BY_HAND)
    assert costs.tolist() == pytest.approx([2.0, 3.0, 4.0])
    shares = page.gain(found, run.CELLS[2], "mlp", page.USUAL)
    assert shares.tolist() == pytest.approx([-0.02, 0.0, 0.02])
    error = np.std([2.0, 3.0, 4.0], ddof=1) / 3**0.5
    assert page.written(costs, run.CELLS[0], signed=True) == f"+3.00 ± {error:.2f}"
    assert page.written(shares, run.CELLS[2], signed=True).startswith(("+0.0 ", "-0.0 "))


def test_what_was_wanted_is_said_to_be_met_or_missed(stored: Path) -> None:
    text = " ".join(page.page(stored).split())
    saved = np.mean([2 * (2 + seed) / (100 + seed) for seed in range(3)])
    assert f"network {100 * saved:.1f}" in text
    assert "missed: 10 % were wanted" in text
    assert "ahead by more than a standard error: bikes, cost" in text
    assert "in 3 of 3 seeds, by more than the noise in 1" in text
    assert "| bikes, cost, network | 0 of 3 | +3.00 ± 0.58 | +0.00 ± 0.00 | +3.00 ± 0.58 |" in text
    assert "(50 % less)" in text
    assert "Chosen: pinball 21." in text


def test_models_that_compete_are_shown_beside_trees_on_the_same_seeds(stored: Path) -> None:
    store = Store(stored)
    mixed = {"chosen": {"won": "linear", "test": 50.0}, run.OR_MIXED: {"won": "mixture", "test": 48.0}}
    store.add(run_of(*run.CELLS[0], run.AUTO, 3), {"values": mixed, **KNOWN})
    store.add(run_of(*run.CELLS[0], "lightgbm", 3), {"values": {"chosen": {"test": 52.0}}, **KNOWN})
    line = next(line for line in page.competing(page.outcomes(stored)).splitlines() if "bikes, cost" in line)
    error = np.std([0, 0, 0, 4.0], ddof=1) / 4**0.5  # of what is used: the mixture, where there is one
    assert line.startswith("| bikes, cost | tabm 2, lightgbm 1 and linear 1 | 95.00 ± 0.58 | 95.00 ± 0.58 |")
    assert line.endswith(f"| 48.00 | +1.00 ± {error:.2f} | 4 |")


def test_the_features_are_numbers_and_the_rows_are_not_in_both_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    frame = pd.DataFrame({"target": np.arange(50.0), "hr": np.arange(50) % 3, "mnth": ["a", "b"] * 25})
    frame["weekday"] = frame["season"] = 1
    (tmp_path / "numbers").mkdir()
    frame.to_parquet(tmp_path / "numbers" / "bikes.parquet")
    monkeypatch.setenv("METRICGRAD_DATA", str(tmp_path))
    X, y, test_X, test_y = run.rows_of("bikes", 0)
    assert (X.dtype, X.shape, test_X.shape) == (np.float32, (35, 7), (15, 7))
    assert sorted([*y, *test_y]) == list(range(50))


def test_the_first_study_is_compared_with_folds_for_the_same_seeds(stored: Path) -> None:
    store = Store(stored)
    before = run_of(*run.CELLS[0], "linear", 1)
    del before["folds"]
    values = {"chosen": {"name": "mae", "test": 99.0}}
    store.add(before, {"values": values, "validation": {}, "known_rows": 10_000})
    text = page.one_split(stored)  # by five folds 101 less twice 3
    assert "| bikes, cost, linear model | 99.00 | 95.00 | +4.00 | 1 |" in text
    assert page.outcomes(stored)["folds"].eq(run.FOLDS).all()


def test_trees_are_continued_along_a_surrogate_and_along_their_own_loss() -> None:
    pytest.importorskip("lightgbm")
    from studies.numbers import boosted

    rng = np.random.default_rng(0)
    X = rng.normal(size=(1_300, 3))
    y = 50 + 10 * X[:, 0] + 8 * rng.normal(size=1_300)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosted, "ROUNDS", 10)
        found = boosted.continued({"metric": "step_cost(5,1,10)"}, X[:1_000], y[:1_000], X[1_000:], y[1_000:], 0)
    values = found["values"]
    starts = ("squared error", "quantile")
    assert set(values) == {*starts, *(f"{a}, {b}" for a in starts for b in ("continued", "surrogate")), "chosen"}
    for start in starts:
        assert values[f"{start}, surrogate"]["validation"] <= values[start]["validation"]
