"""Readings of the paper's recipe: side by side they do what one alone does, and the page says what is stored."""

from __future__ import annotations

import math
import pickle
import runpy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from metricgrad.evaluation.store import Store
from metricgrad.surrogate.network import Surrogate, new_surrogate
from metricgrad.training.data import Parts, Rows
from metricgrad.training.networks import build_model
from studies.paper_recipe import baselines, baselines_page, checkpoints, long_page, page, readings, run, side_by_side
from studies.paper_recipe.networks import Models, Surrogates
from studies.paper_recipe.readings import GRIDS, OURS, Reading
from studies.paper_recipe.side_by_side import SideBySide
from studies.paper_recipe.stack import Stack

EXAMPLE = Path(__file__).parents[2] / "examples" / "plot_00_algorithm_1.py"
FEATURES, SEED = 5, 3


class OneSet(nn.Module):
    """A surrogate of a single set."""

    def __init__(self, surrogate: Surrogate) -> None:
        super().__init__()
        self.surrogate = surrogate

    def forward(self, scores: Tensor, targets: Tensor) -> Tensor:
        return self.surrogate(scores.unsqueeze(0), targets.unsqueeze(0))[0]


def rows() -> Rows:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, FEATURES, generator=generator)
    return Rows(x, (x[:, 0] + torch.randn(400, generator=generator) > 0.5).float())


def test_our_reading_is_algorithm_1_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    from metricgrad.metrics.registry import get_metric

    monkeypatch.setattr(side_by_side, "DROPOUT", 0.0)
    members = (OURS, *GRIDS["narrow"])
    models, surrogate = Models(FEATURES, members, SEED), new_surrogate("paper", SEED)
    surrogates = Surrogates([surrogate] * len(members), members)
    together = SideBySide(models, surrogates, get_metric("auc"), members)
    model = build_model("mlp", FEATURES, SEED)
    for layer in model.body.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    alone = runpy.run_path(str(EXAMPLE))["AlgorithmOne"](model, OneSet(surrogate))
    start, sets, same = model.eval()(rows().x).detach(), run.Sets(rows(), 1), run.Sets(rows(), 1)
    for _ in range(5):
        together.round(sets.draw(10), sets.draw(3))
        alone.round(*(zip(*same.draw(count), strict=True) for count in (10, 3)))
    found, expected = models.still(rows().x), model.eval()(rows().x)
    assert found[0].detach().allclose(expected, atol=1e-4)
    assert (expected - start).abs().max() > 0.1
    assert all((found[0] - other).abs().max() > 1e-4 for other in found[1:])  # the other readings do something else


@pytest.mark.parametrize("clip", ["all", "each", "none"])
def test_a_step_is_that_of_torch_after_the_clipping_that_is_named(clip: str) -> None:
    torch.manual_seed(0)
    start = [torch.randn(4, 3), torch.randn(4)]
    gradients = [torch.randn(4, 3), 1e-3 * torch.randn(4)]
    stack = Stack([start], [Reading("", clip=clip, rate=1e-3)])
    known = [nn.Parameter(part.clone()) for part in start]
    adam = torch.optim.Adam(known, 1e-3)
    total = math.sqrt(sum(float(part.square().sum()) for part in gradients))
    for _ in range(3):
        stack.move(torch.cat([part.flatten() for part in gradients]).unsqueeze(0))
        for part, gradient in zip(known, gradients, strict=True):
            norm = {"all": total, "each": float(gradient.norm()), "none": 0.0}[clip]
            part.grad = gradient * (readings.CLIP / norm if norm else 1.0)
        adam.step()
    for part, moved in zip(known, stack.parts(stack.flat), strict=True):
        assert moved[0].allclose(part, atol=1e-7)


def test_epsilon_stands_where_the_reading_says() -> None:
    first = {}
    for adam in ("torch", "tensorflow", "inside"):
        stack = Stack([[torch.zeros(1)]], [Reading("", adam=adam, clip="none", rate=1.0)])
        stack.move(torch.tensor([[1e-7]]))
        first[adam] = -float(stack.flat)
    assert first["torch"] == pytest.approx(1e-7 / (1e-7 + 1e-8), rel=1e-4)
    assert first["tensorflow"] == pytest.approx(1e-7 / (1e-7 + 1e-8 / math.sqrt(0.001)), rel=1e-3)
    assert first["inside"] == pytest.approx(1e-7 / math.sqrt(1e-14 + 1e-8), rel=1e-3)


def record(seed: int, losses: dict[str, list[float]]) -> dict[str, object]:
    names = {"ours": OURS, "other": Reading("other", follows="train")}
    members = [{"mode": "sl-r", **vars(names[name])} for name in losses]
    checks = [
        {"round": 250 * (i + 1), "validation": list(own), "test": [2 * loss for loss in own], "gap": [0.1] * len(own)}
        for i, own in enumerate(zip(*losses.values(), strict=True))
    ]
    return {"run": {"dataset": "a9a", "metric": "auc", "seed": seed, "members": members}, "checks": checks}


def test_the_page_finds_the_checkpoints_and_compares_only_readings_that_differ_in_one_point() -> None:
    found = page.courses([record(0, {"ours": [0.4, 0.2, 0.3], "other": [0.3, 0.2, 0.1]})])
    assert dict(found[0].losses) == {"last": 0.6, "validation": 0.4, "test": 0.4}
    assert found[0].distance("last") == pytest.approx(math.log(0.6 / 0.0983))
    assert [(a.name, b.name) for a, b in page.paired(found, "follows", "eval", "train")] == [("ours", "other")]
    assert page.paired(found, "rate", 1e-5, 1e-4) == []
    assert page.paired_sentence(found, "follows", "eval", "train").startswith("lower in 1 of 1 pairs")
    text = page.grid_table(found, "t").splitlines()
    assert text[4].startswith("| **printed** | 0.0983 |")
    assert text[5].startswith("| other | 0.2000 | x 2.03 |")  # the nearest first


def test_readings_are_also_compared_in_cells_they_were_not_chosen_by() -> None:
    first, other = record(0, {"ours": [0.4], "other": [0.3]}), record(1, {"ours": [0.2], "other": [0.1]})
    assert page.elsewhere(page.courses([first, other])) == ""
    other["run"] = {**other["run"], "metric": "f1", "members": other["run"]["members"][:1]}  # type: ignore[index]
    text = page.elsewhere(page.courses([first, other]))
    assert "(1 trainings, F1 on a9a, with 1 seed for each, 250 rounds) readings are off by x 1.28 (ours)." in text
    assert "The first is nearest in 1 of 1 combinations" in text


MEMBERS = [run.Member(readings.ALL_AT_ONCE, metric, mode) for metric in ("auc", "f1") for mode in ("sl-r", "sl-u")]


def after_rounds(members: list[run.Member], rounds: int = 2, compiled: bool = False) -> SideBySide:
    torch.manual_seed(0)
    together, sets = run.side_by_side(members, FEATURES, SEED), run.Sets(rows(), 1)
    if compiled:
        together.compile()
    for _ in range(rounds):
        together.round(sets.draw(10), sets.draw(3))
    return together


def test_members_of_several_metrics_are_trained_as_those_of_one() -> None:
    together, alone = after_rounds(MEMBERS), after_rounds(MEMBERS[2:])
    assert together.models.stack.flat[2:].allclose(alone.models.stack.flat, atol=1e-6)
    assert together.surrogates.stack.flat[2:].allclose(alone.surrogates.stack.flat, atol=1e-6)
    assert not together.models.stack.flat[0].allclose(together.models.stack.flat[2], atol=1e-4)  # AUC is not F1


def test_a_universal_surrogate_stays_as_it_is_and_its_model_moves() -> None:
    start, end = after_rounds(MEMBERS, rounds=0), after_rounds(MEMBERS)
    moved = (end.surrogates.stack.flat - start.surrogates.stack.flat).abs().amax(1)
    assert [member.mode for member, far in zip(MEMBERS, moved.tolist(), strict=True) if far == 0] == ["sl-u", "sl-u"]
    assert ((end.models.stack.flat - start.models.stack.flat).abs().amax(1) > 1e-4).all()


def compiled_by(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", lambda step, **how: compile_(step, backend=backend, **how))


BACKENDS = ["eager", pytest.param("inductor", marks=pytest.mark.slow)]
"""What compiles the steps: tracing alone, or C++ as in a training, which takes half a minute."""


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of torch's compiler
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_steps_do_the_same_and_are_left_out_of_a_checkpoint(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_by(monkeypatch, backend)
    plain, traced = after_rounds(MEMBERS), after_rounds(MEMBERS, compiled=True)
    assert traced.models.still(rows().x).allclose(plain.models.still(rows().x), atol=1e-5)
    assert traced.surrogates.stack.flat.allclose(plain.surrogates.stack.flat, atol=1e-5)
    again = pickle.loads(pickle.dumps(traced))
    assert again.models.stack.flat.equal(traced.models.stack.flat)
    assert not set(side_by_side.STEPS) & set(vars(again))


def test_scores_of_both_modes_from_one_first_layer_are_those_of_each() -> None:
    models, (x, _) = after_rounds(MEMBERS).models, run.Sets(rows(), 1).draw(4)
    masks = side_by_side.drawn_masks(*x.shape[:2])
    clean, noisy, seen = models.both(x, masks)
    alone, seen_alone = models.live(models.stack.flat, x, masks)
    assert clean.flatten(1).allclose(models.still(x.flatten(0, 1)), atol=1e-6)
    assert noisy.allclose(alone, atol=1e-6)
    assert all(
        a.allclose(b) for own, other in zip(seen, seen_alone, strict=True) for a, b in zip(own, other, strict=True)
    )


def test_a_training_that_was_stopped_continues_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts(rows(), rows(), rows())
    monkeypatch.setattr(run, "prepared", lambda *_, **__: parts)
    members, state = MEMBERS[:1], tmp_path / "state.pickle"
    at_once = run.train(members, ("any", SEED, 4), tmp_path / "other.pickle", check_every=2)
    run.train(members, ("any", SEED, 2), state, check_every=2)
    resumed = run.train(members, ("any", SEED, 4), state, check_every=2)
    assert resumed["checks"] == at_once["checks"]
    assert [check["round"] for check in resumed["checks"]] == [2, 4]


def test_what_was_reached_is_stored_as_the_shorter_run_that_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts(rows(), rows(), rows())
    monkeypatch.setattr(run, "prepared", lambda *_, **__: parts)
    monkeypatch.setattr(checkpoints.pages, "command", lambda: "a command")
    members, store, stopped = MEMBERS[:1], Store(tmp_path / "runs.jsonl"), tmp_path / "state.pickle"
    shorter = run.train(members, ("any", SEED, 4), tmp_path / "other.pickle", check_every=2)
    judged, checked = run.judged, []

    def judged_twice(*given: object) -> dict[str, list[float]]:
        checked.append(given)
        if len(checked) > 2:
            raise KeyboardInterrupt
        return judged(*given)

    monkeypatch.setattr(run, "judged", judged_twice)
    with pytest.raises(KeyboardInterrupt):
        run.train(members, ("any", SEED, 300), stopped, check_every=2)
    states = [({"dataset": "any", "rounds": 300}, stopped), ({"dataset": "none", "rounds": 300}, tmp_path / "no")]
    for _ in range(2):  # it is stored once
        checkpoints.store_unfinished(store, states, "rounds")
    (found,) = store
    assert found["run"] == {"dataset": "any", "rounds": 4}
    assert found["checks"] == shorter["checks"]


def baselines_at_start() -> tuple[baselines.Baselines, run.Sets]:
    torch.manual_seed(0)
    trained, sets = baselines.Baselines(baselines.MEMBERS, FEATURES, SEED), run.Sets(rows(), 1)
    trained.start(*(part[0] for part in sets.draw(1)))
    return trained, sets


def centred(scores: Tensor) -> Tensor:
    """Scores less their mean: a loss of pairs has no gradient in their level, and Adam makes steps of the rounding."""
    return scores - scores.mean(-1, keepdim=True)


@pytest.mark.parametrize("place", range(len(baselines.MEMBERS)), ids=[m.method for m in baselines.MEMBERS])
def test_a_baseline_side_by_side_is_trained_as_one_alone(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(side_by_side, "DROPOUT", 0.0)
    together, sets = baselines_at_start()
    model, loss = build_model("mlp", FEATURES, SEED), baselines.MEMBERS[place].loss()
    for layer in model.body.modules():
        if isinstance(layer, nn.Dropout):
            layer.p = 0.0
    same = run.Sets(rows(), 1)
    (x,), (y,) = same.draw(1)
    loss(model(x).squeeze(-1).detach(), y)
    adam = torch.optim.Adam([*model.parameters(), *loss.parameters()], baselines.RATE)
    for x, y in zip(*same.draw(20), strict=True):
        adam.zero_grad()
        loss(model(x).squeeze(-1), y).backward()
        adam.step()
    start = centred(together.scores(rows().x))
    together.steps(sets.draw(20))
    found, expected = centred(together.scores(rows().x)), centred(model.eval()(rows().x).squeeze(-1))
    assert found[place].allclose(expected, atol=1e-4)
    assert (found - start).abs().amax(1).min() > 0.02
    assert all((found[place] - other).abs().max() > 1e-3 for i, other in enumerate(found) if i != place)
    for learned, part in zip(together.learned.parts(together.learned.flat), loss.parameters(), strict=False):
        assert learned[0].allclose(part, atol=1e-6)


def test_dropout_of_many_steps_is_drawn_at_once_and_is_that_of_each() -> None:
    torch.manual_seed(0)
    at_once = side_by_side.drawn_masks(1, 10, 3)
    torch.manual_seed(0)
    each = [side_by_side.drawn_masks(1, 10) for _ in range(3)]
    for layer, masks in enumerate(at_once):
        assert masks.equal(torch.cat([step[layer] for step in each]))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")  # of torch's compiler
@pytest.mark.parametrize("backend", BACKENDS)
def test_compiled_baselines_do_the_same_and_can_be_stored(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled_by(monkeypatch, backend)
    (plain, _), (traced, _) = baselines_at_start(), baselines_at_start()
    traced.compile()
    again = pickle.loads(pickle.dumps(traced))
    again.compile()
    for trained in (plain, traced, again):
        torch.manual_seed(1)
        trained.steps(run.Sets(rows(), 2).draw(5))
    for trained in (traced, again):
        assert centred(trained.scores(rows().x)).allclose(centred(plain.scores(rows().x)), atol=1e-5)
        assert trained.learned.flat.allclose(plain.learned.flat, atol=1e-6)


def test_a_baseline_is_judged_by_what_the_paper_measured_under_its_column() -> None:
    measured = {member.method: member.measured for member in baselines.MEMBERS}
    assert measured == {
        "cross-entropy": "error_rate",
        "pairwise": "auc",
        "global-objectives": "auc",
        "lovasz-softmax": "error_rate",  # Jaccard was accuracy
        "cost-sensitive": "f1",
    }


def test_longer_trainings_are_shown_member_by_member_beside_the_printed_number() -> None:
    members = [{"metric": metric, "mode": "sl-u", **vars(OURS)} for metric in ("auc", "f1")]
    checks = [
        {"round": 1_000, "validation": [0.2, 0.1], "test": [0.05, 0.5], "gap": [0.1, 0.2]},
        {"round": 2_000, "validation": [0.1, 0.2], "test": [0.09, 0.4], "gap": [0.3, 0.4]},
    ]
    records = [{"run": {"dataset": "a9a", "seed": 0, "members": members}, "checks": checks}]
    text = long_page.long_table(records)
    assert "| a9a | AUC | SL-U | 0.0968 | 0.0900 | 0.0900 | 2,000 | 2,000 | 0.300 |" in text
    assert "| a9a | F1 | SL-U | 0.4557 | 0.5000 | 0.4000 | 1,000 | 2,000 | 0.400 |" in text
    section = long_page.long_section(records)
    assert "one seed: 2,000 rounds on a9a, at most 1% of the paper's 300,000" in " ".join(section.split())
    assert "| SL-U | 1 of 2 | 2 of 2 | x 1.09 | x 1.11 | 1 |" in section  # F1 ends at twice its least validation loss
    assert "in the other cells, the better evidence, 0 of 1" in section  # F1; AUC on a9a chose the reading
    assert long_page.long_section([]) == long_page.long_table([]) == long_page.long_sentence([]) == ""
    members = [{**members[0], "mode": mode} for mode in ("sl-r", "sl-u")]
    first = long_page.long_sentence(
        page.courses([{"run": {"dataset": "a9a", "seed": 0, "members": members}, "checks": checks}])
    )
    assert (
        "in 1 of 1 cells by the best checkpoint on validation rows, in 1 by the last, after 2,000 of 300,000" in first
    )
    assert long_page.condition([*long_page.long_courses(records), *page.courses(records)]) == ""  # no SL-R, no SL-S
    assert "last in 1 of 1 (printed: in 0)" in first  # its loss is 0.5; printed is 0.0968, below the other


def test_longer_trainings_are_counted_where_the_rule_for_the_threshold_leaves_something_to_count() -> None:
    stored = []
    for dataset, metrics, rounds in (("a9a", ("auc", "f1"), 3), ("ccfraud", ("auc", "f1"), 1)):
        members = [{"metric": metric, "mode": "sl-r", **vars(OURS)} for metric in metrics]
        check = {"validation": [0.01, 0.01], "test": [0.01, 0.01], "gap": [0.1, 0.1]}
        checks = [{"round": 1_000 * (i + 1), **check} for i in range(rounds)]
        stored.append({"run": {"dataset": dataset, "seed": 0, "members": members}, "checks": checks})
    found, section = long_page.long_courses(stored), " ".join(long_page.long_section(stored).split())
    sentence = long_page.long_sentence(found)
    assert "in 3 of 3 cells" in sentence
    assert long_page.condition(found) == ""
    worse = [
        {**record, "checks": [*record["checks"], {**check, "round": 9_000, "test": [0.9, 0.9]}]} for record in stored
    ]
    assert long_page.condition(long_page.long_courses(worse)).startswith(", if the best checkpoint")
    assert "after 1,000 to 3,000 of 300,000 rounds (AUC and F1 on a9a, AUC on ccfraud; one seed)" in sentence
    assert "3,000 rounds on a9a and 1,000 rounds on ccfraud" in section
    assert "F1 on ccfraud is not counted" in section
    assert "| SL-R | 3 of 3 |" in section
    assert "not counted" not in long_page.long_section(stored[:1])


def budget(hundreds: int, losses: dict[str, list[float]]) -> dict[str, object]:
    """A stored run on ijcnn1; the printed numbers are 0.0364 (error rate), 0.0168 (AUC) and 0.1959 (F1)."""
    metrics = {"cross-entropy": "error_rate", "pairwise": "auc", "cost-sensitive": "f1"}
    members = [{"metric": metrics[name], "method": name, "cost": None} for name in losses]
    checks = [
        {"hundred": hundreds // 2 * (i + 1), "validation": list(own), "test": [loss / 2 for loss in own]}
        for i, own in enumerate(zip(*losses.values(), strict=True))
    ]
    return {"run": {"dataset": "ijcnn1", "hundreds": hundreds, "members": members}, "checks": checks}


RUNS = [
    budget(10_000, {"cross-entropy": [0.01, 0.02], "pairwise": [0.04, 0.03], "cost-sensitive": [0.9, 0.8]}),
    budget(20, {"cross-entropy": [0.5, 0.06], "pairwise": [0.4, 0.3], "cost-sensitive": [0.9, 0.9]}),
]


def test_a_baseline_is_compared_with_its_printed_number_at_every_check_of_all_runs() -> None:
    usual, pairs, costly = baselines_page.curves(RUNS)
    assert (usual.steps, usual.best, usual.reached) == ([1_000, 2_000, 500_000, 1_000_000], 0.005, 2_000)
    assert (pairs.best, pairs.reached, pairs.after(500_000)) == (0.015, 1_000_000, 0.02)
    assert math.isnan(pairs.after(2_001))
    assert (costly.best, costly.reached, costly.printed_surrogate) == (0.4, None, 0.0806)


def test_the_page_says_in_how_many_cells_baselines_reach_their_printed_numbers() -> None:
    sentence = baselines_page.budget_sentence(RUNS)
    assert "for all of its 1,000,000 steps" in sentence
    assert "passed after 2,000 to 1,000,000 steps, in 2 of 3 cells of ijcnn1" in sentence
    assert "at or below the printed SL-R in 1 (one seed)" in sentence
    assert "by the last one 2 are at or below the printed number" in sentence
    assert "never passed, in 0 of 1" in baselines_page.budget_sentence([budget(20, {"pairwise": [0.9, 0.8]})])
    text = baselines_page.baselines_section(RUNS)
    assert "(but for cost-sensitive on ijcnn1)" in " ".join(text.lower().split())
    assert (
        "| 0.0168 | 0.2000 |  |  | 0.0150 | 0.0150 | 1,000,000 | 0.0030 | 1,000,000 |"
        in baselines_page.baselines_table(RUNS)
    )
    assert "the last checkpoint is at or below the printed number in 2 of 3 on ijcnn1" in " ".join(text.split())
    assert "(after 501,000 steps in the median, 1,000,000 at most)" in " ".join(text.split())
    assert "**for 2,000 steps on ijcnn1**" in " ".join(baselines_page.baselines_section(RUNS[1:]).split())
    assert "**" not in text  # all of the budget: nothing to warn of
    assert (
        baselines_page.baselines_section([])
        == baselines_page.baselines_table([])
        == baselines_page.budget_sentence([])
        == ""
    )


def test_a_refined_surrogate_is_compared_with_the_hand_made_loss_that_validation_rows_prefer() -> None:
    rivals = baselines_page.curves(RUNS)  # on ijcnn1, 0.015 by AUC and 0.4 by F1
    members = [{"metric": metric, "mode": "sl-r", **vars(OURS)} for metric in ("auc", "f1")]
    check = {"round": 1_000, "validation": [0.1, 0.1], "test": [0.016, 0.3], "gap": [0.1, 0.1]}
    found = page.courses([{"run": {"dataset": "ijcnn1", "seed": 0, "members": members}, "checks": [check]}])
    text = long_page.against_sentence(found, rivals)
    assert "in 1 of 2 cells (AUC and F1 on ijcnn1; its models took at most 3,000 steps, theirs 1,000,000)" in text
    assert long_page.against_sentence(found, []) == long_page.against_sentence([], rivals) == ""


def test_the_figure_has_the_printed_level_of_every_loss_and_of_the_surrogate() -> None:
    panels = baselines_page.draw(RUNS).axes
    levels = {axes.get_title(): {float(line.get_ydata()[0]) for line in axes.lines[1:]} for axes in panels}
    assert len(panels) == 3
    assert levels["ijcnn1, AUC"] == {0.0168, 0.003}


def test_only_the_longest_training_on_a_dataset_is_shown() -> None:
    short, longer = record(0, {"ours": [0.4, 0.2]}), record(0, {"ours": [0.4, 0.2, 0.1]})
    assert [(c.rounds, c.losses["validation"]) for c in long_page.long_courses([longer, short])] == [(750, 0.2)]
