"""The study of strategies: its rules of choice and its page."""

from __future__ import annotations

from typing import Any

import torch

from metricgrad import get_metric
from studies.strategies import page
from studies.strategies.run import Rules, Scores, mixed


def scores_of(noise: float, folds: int = 5, n: int = 200) -> tuple[Scores, list[torch.Tensor], torch.Tensor]:
    """Scores of a model that knows the target up to some noise."""
    generator = torch.Generator().manual_seed(0)
    y = [(torch.rand(n, generator=generator) < 0.3).double() for _ in range(folds)]
    test_y = (torch.rand(n, generator=generator) < 0.3).double()
    own = Scores.__new__(Scores)
    own.held_out = [each + noise * torch.randn(n, generator=generator).double() for each in y]
    own.test = [test_y + noise * torch.randn(n, generator=generator).double() for _ in range(folds)]
    own.seconds = 0.0
    return own, y, test_y


def rules() -> Rules:
    good, y, test_y = scores_of(0.2)
    poor, *_ = scores_of(1.5)
    return Rules(get_metric("f1"), {"proper": poor, "direct": good, "sl-r": good}, y, test_y)


def test_the_better_strategy_is_chosen_and_the_usual_one_where_nothing_is_better() -> None:
    found = rules()
    assert found.pooled_choice(["proper", "direct"], 1.0) == "direct"
    assert found.pooled_choice(["proper"], 0.0) == "proper"
    losses = found.all()
    assert losses["alone"]["direct"] < losses["alone"]["proper"]
    assert losses["bag"] == losses["alone"]["direct"]
    assert losses["choice_without_surrogate"]["0.5 SE"] == "direct"


def test_mixtures_lie_between() -> None:
    one, other = [torch.zeros(3)], [torch.ones(3)]
    assert torch.equal(mixed(one, other, 0.25)[0], torch.full((3,), 0.25))


def test_what_is_saved_is_a_share_of_the_loss_of_a_single_model() -> None:
    losses = rules().all()
    record = {**losses, "run": {"dataset": "skin", "metric": "f1", "model": "linear", "seed": 0}, "cpu": 1.0}
    frame = page.frame_of([record])
    expected = 100 * (1 - losses["alone"]["direct"] / losses["single"])
    assert frame["direct"][0] == expected
    assert frame["choice, 0.5 SE"][0] == expected


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert page.PAGE.read_text("utf-8") == page.page()


def records(*saved: tuple[str, float, float]) -> list[dict[str, Any]]:
    """Runs of a dataset each, over two seeds, with losses of the usual loss and of direct search that is chosen."""
    return [
        {
            "run": {"dataset": dataset, "metric": "f1", "model": "linear", "seed": seed},
            "single": 1.0,
            "alone": {"proper": proper, "direct": direct + 0.01 * seed},
            "choice": dict.fromkeys(("0 SE", "0.5 SE", "1 SE"), "direct"),
            "choice_without_surrogate": dict.fromkeys(("0 SE", "0.5 SE", "1 SE"), "direct"),
            **dict.fromkeys(("interpolated", "bag", "averaged"), direct),
            "cpu": 1.0,
        }
        for dataset, proper, direct in saved
        for seed in range(2)
    ]


def test_cells_that_are_worse_beyond_chance_are_counted() -> None:
    frame = page.frame_of(records(("skin", 0.9, 0.8), ("a9a", 1.0, 1.05), ("susy", 1.0, 1.2), ("kc1", 1.0, 0.998)))
    *_, last = page.bars_table(frame).splitlines()
    # Means are 19.5, -5.5, -20.5 and -0.3 %, standard errors 0.5 % each: two are surely worse, one below -10 %.
    assert "2 of 4 (50 %) | 1 of 4" in last


def test_the_choice_stands_beside_the_best_strategy_in_hindsight() -> None:
    frame = page.frame_of(records(("skin", 0.7, 0.8), ("a9a", 0.9, 0.95)))
    *_, last = page.hindsight_table(frame).splitlines()
    # Proper saves 30 and 10 %, direct 20, 19, 5 and 4 %: the choice, always direct, is behind by 8 % in the mean.
    assert "-8.0 ± " in last
    assert "against proper" in last
