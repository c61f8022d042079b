"""The study of strategies: its rules of choice and its page."""

from __future__ import annotations

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
