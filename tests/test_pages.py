"""Pages that are written from stored results say what those results say."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_1samp

ROOT = Path(__file__).parents[1]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def win() -> Iterator[ModuleType]:
    sys.path.insert(0, str(BENCHMARKS))
    import win

    yield win
    sys.path.remove(str(BENCHMARKS))


@pytest.fixture(scope="module")
def when(win: ModuleType) -> ModuleType:
    import when_it_helps

    return when_it_helps


def test_the_readme_has_the_gains_that_are_stored(win: ModuleType, when: ModuleType) -> None:
    found = win.gains(win.losses(win.RESULTS))
    text = (ROOT / "README.md").read_text("utf-8")
    assert when.in_readme(text, found) == text


def test_the_page_has_the_numbers_that_are_stored(when: ModuleType) -> None:
    assert when.page() == (ROOT / "docs" / "when-it-helps.md").read_text("utf-8")


@pytest.mark.parametrize("page", sorted((ROOT / "docs").rglob("*.md")), ids=lambda page: page.name)
def test_every_picture_and_page_that_a_page_names_is_there(page: Path) -> None:
    named = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    stored = [link for link in named if not link.startswith("gallery/")]  # `make docs` makes the gallery, and checks it
    assert [link for link in stored if not (page.parent / link).exists()] == []


# ---- the arithmetic of the comparison ------------------------------------------------------------------------------


def frame(ours: list[float], theirs: list[float]) -> pd.DataFrame:
    index = pd.MultiIndex.from_tuples(
        [("data", "f1", "linear", seed) for seed in range(len(ours))], names=["dataset", "metric", "model", "seed"]
    )
    return pd.DataFrame({"sl-r": ours, "cross-entropy": theirs}, index=index)


def test_a_gain_is_the_share_of_the_rivals_mean_loss_that_is_saved(win: ModuleType) -> None:
    (cell,) = win.gains(frame([0.1, 0.2, 0.15], [0.2, 0.3, 0.25])).itertuples()
    assert cell.gain == pytest.approx(0.1 / 0.25)
    assert cell.difference == pytest.approx(0.1)
    assert cell.seeds == 3


def test_where_a_rival_loses_nothing_any_loss_is_all_of_it(win: ModuleType) -> None:
    assert win.gains(frame([0.0, 0.1], [0.0, 0.0]))["gain"].item() == -1
    assert win.gains(frame([0.0, 0.0], [0.0, 0.0]))["gain"].item() == 0
    assert win.gains(frame([0.9, 0.9], [0.1, 0.1]))["gain"].item() == -1


def test_worse_is_by_more_than_one_standard_error_over_seeds(win: ModuleType) -> None:
    rng = np.random.default_rng(0)
    theirs = rng.uniform(0.2, 0.3, 5)
    one_bad_seed = theirs + np.array([0.02, 0, 0, 0, 0])
    assert len(win.worse(win.gains(frame(list(one_bad_seed), list(theirs))))) == 0
    assert len(win.worse(win.gains(frame(list(theirs + 0.01), list(theirs))))) == 1
    assert len(win.worse(win.gains(frame(list(theirs - 0.01), list(theirs))))) == 0


def test_p_is_that_of_a_paired_t_test_over_seeds(win: ModuleType) -> None:
    ours, theirs = [0.1, 0.12, 0.11, 0.13], [0.15, 0.13, 0.16, 0.15]
    (cell,) = win.gains(frame(ours, theirs)).itertuples()
    assert cell.p == pytest.approx(ttest_1samp(np.subtract(theirs, ours), 0).pvalue)
    assert win.gains(frame(theirs, theirs))["p"].item() == 1


def test_the_best_loss_in_hindsight_is_found_on_seeds_that_all_losses_have(when: ModuleType) -> None:
    losses = frame([0.1, 0.1, 0.1], [0.3, 0.5, np.nan])  # no cross-entropy on the last seed, an easy one
    losses["focal"], losses["soft-f1"] = [0.2, 0.4, 0.0], [0.3, 0.5, 0.0]
    assert when.in_hindsight(losses).item() == pytest.approx((0.4 - 0.3) / 0.4)


def test_trees_and_surrogates_are_no_losses_made_by_hand(when: ModuleType) -> None:
    losses = frame([0.1], [0.4])
    losses["lightgbm"], losses["sl-published"], losses["focal"] = [0.0], [np.nan], [0.2]
    assert when.in_hindsight(losses).item() == pytest.approx(0.5)


def test_a_cell_in_which_cross_entropy_loses_nothing_leaves_nothing_to_save(when: ModuleType) -> None:
    losses = frame([0.0], [0.0])
    losses["focal"] = [0.0]
    assert when.in_hindsight(losses).item() == 0
