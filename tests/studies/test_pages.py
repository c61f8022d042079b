"""Pages that are written from stored results say what those results say."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import add, run
from scipy.stats import ttest_1samp

from benchmarks.speed import performance
from metricgrad.evaluation.records import Record, Setting
from metricgrad.evaluation.store import Store
from studies import pages
from studies.ablations import run as ablations
from studies.ablations.page import part_table
from studies.black_boxes import page as boxes
from studies.black_boxes.run import FIRST_SEED
from studies.calls import page as calls
from studies.collapse.page import short_part
from studies.reproduction import page as reproduction
from studies.reproduction import published
from studies.solver import page as solver
from studies.when_it_helps import page as when
from studies.win import gains as win
from studies.win.run import METRICS

pytestmark = pytest.mark.slow  # draws every page and picture from what is stored

ROOT = Path(__file__).parents[2]


def test_the_readme_has_what_is_stored() -> None:
    part = when.readme_part(win.gains(win.losses(when.RESULTS)))
    text = (ROOT / "README.md").read_text("utf-8")
    assert when.in_place(text, "situations", part) == text


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert when.page() == (ROOT / "docs" / "when-it-helps.md").read_text("utf-8")


def test_the_page_of_speed_and_the_readme_have_what_is_stored() -> None:
    assert performance.page() == (ROOT / "docs" / "performance.md").read_text("utf-8")
    text = (ROOT / "README.md").read_text("utf-8")
    assert performance.in_readme(text) == text


def test_the_page_of_the_paper_has_the_numbers_that_are_stored() -> None:
    found, readme = reproduction.evidence(), (ROOT / "README.md").read_text("utf-8")
    assert reproduction.page(found) == (ROOT / "docs" / "reproduction.md").read_text("utf-8")
    assert reproduction.cells_page(found) == (ROOT / "docs" / "reproduction-cells.md").read_text("utf-8")
    assert reproduction.in_place(readme, "reproduction", reproduction.readme_part(found)) == readme


def test_a_long_run_is_shown_by_thirds_and_by_its_last_third() -> None:
    steps, validation = [3, 6, 9, 12, 15, 18, 21], [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]
    trust = [0.9, 0.9, 0.9, 0.9, None, 0.1, 0.3]
    kept = {"history": {"steps": steps, "validation": validation, "trust": trust}}
    long = Record("a9a", "auc", "sl-r", Setting("mlp", "paper"), 0, 0, kept)
    assert published.thirds(long) == [0.7, 0.5, 0.3]  # at 9, 15 and 21 steps
    assert published.faith(long) == pytest.approx(0.2)
    assert published.best_round(long) == 7
    assert not published.led_away(long)
    validation[-1] = 0.45
    assert published.led_away(long)


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


def test_a_gain_is_the_share_of_the_baselines_mean_loss_that_is_saved() -> None:
    (cell,) = win.gains(frame([0.1, 0.2, 0.15], [0.2, 0.3, 0.25])).itertuples()
    assert cell.gain == pytest.approx(0.1 / 0.25)
    assert cell.difference == pytest.approx(0.1)
    assert cell.seeds == 3


def test_any_loss_counts_in_full_where_the_baseline_has_none() -> None:
    assert win.gains(frame([0.0, 0.1], [0.0, 0.0]))["gain"].item() == -1
    assert win.gains(frame([0.0, 0.0], [0.0, 0.0]))["gain"].item() == 0
    assert win.gains(frame([0.9, 0.9], [0.1, 0.1]))["gain"].item() == -1


def test_worse_is_by_more_than_one_standard_error_over_seeds() -> None:
    rng = np.random.default_rng(0)
    theirs = rng.uniform(0.2, 0.3, 5)
    one_bad_seed = theirs + np.array([0.02, 0, 0, 0, 0])
    assert len(win.worse(win.gains(frame(list(one_bad_seed), list(theirs))))) == 0
    assert len(win.worse(win.gains(frame(list(theirs + 0.01), list(theirs))))) == 1
    assert len(win.worse(win.gains(frame(list(theirs - 0.01), list(theirs))))) == 0


def test_p_is_that_of_a_paired_t_test_over_seeds() -> None:
    ours, theirs = [0.1, 0.12, 0.11, 0.13], [0.15, 0.13, 0.16, 0.15]
    (cell,) = win.gains(frame(ours, theirs)).itertuples()
    assert cell.p == pytest.approx(ttest_1samp(np.subtract(theirs, ours), 0).pvalue)
    assert win.gains(frame(theirs, theirs))["p"].item() == 1


def test_the_best_loss_in_hindsight_is_found_on_seeds_that_all_losses_have() -> None:
    losses = frame([0.1, 0.1, 0.1], [0.3, 0.5, np.nan])  # no cross-entropy on the last seed, an easy one
    losses["focal"], losses["soft-f1"] = [0.2, 0.4, 0.0], [0.3, 0.5, 0.0]
    assert when.in_hindsight(losses).item() == pytest.approx((0.4 - 0.3) / 0.4)


def test_trees_and_surrogates_are_no_losses_made_by_hand() -> None:
    losses = frame([0.1], [0.4])
    losses["lightgbm"], losses["sl-published"], losses["focal"] = [0.0], [np.nan], [0.2]
    assert when.in_hindsight(losses).item() == pytest.approx(0.5)


def test_a_cell_in_which_cross_entropy_loses_nothing_leaves_nothing_to_save() -> None:
    losses = frame([0.0], [0.0])
    losses["focal"] = [0.0]
    assert when.in_hindsight(losses).item() == 0


# ---- nothing is mentioned that is not stored -------------------------------------------------------------------------


def every_metric(seeds: int, **methods: float) -> pd.DataFrame:
    cells = pd.MultiIndex.from_product(
        [("a9a", "susy"), METRICS, ("linear", "small"), range(seeds)], names=["dataset", "metric", "model", "seed"]
    )
    losses = {"sl-r": 0.1, "cross-entropy": 0.2, **{name.replace("_", "-"): loss for name, loss in methods.items()}}
    return pd.DataFrame(losses, index=cells).sort_index()


def test_the_published_recipe_is_described_where_it_was_run() -> None:
    without, with_it = every_metric(2), every_metric(2, sl_published=0.3)
    assert "as published" not in when.baseline_part(without)
    assert when.baseline_part(with_it).count("SL as published") == 2  # in words, and in the table


def test_trees_are_named_where_they_were_run() -> None:
    assert "tree" not in when.baseline_part(every_metric(2))


def test_seeds_are_one_number_only_if_all_cells_have_as_many() -> None:
    losses = every_metric(5)
    assert "(five seeds)" in when.opening(win.gains(losses))
    losses.loc[("susy", "f1", "small", 4), "cross-entropy"] = np.nan
    assert "(seeds: linear 5, 30 units 4 to 5)" in when.opening(win.gains(losses))


def test_situations_have_what_the_largest_network_saves_and_link_to_pages_that_exist() -> None:
    losses = every_metric(2)
    losses.loc[(slice(None), slice(None), "small"), "sl-r"] = 0.15
    part = when.readme_part(win.gains(losses))
    assert "saved a network 25.0 % of the loss" in part
    links = re.findall(r"\]\((.*?)\)", part)
    assert len(links) >= 7
    assert [link for link in links if not (ROOT / link.partition("#")[0]).is_file()] == []


def test_gains_by_size_are_of_the_same_cells_and_seeds_at_every_size(tmp_path: Path) -> None:
    folders = {2_000: tmp_path / "sizes", win.MAX_ROWS: tmp_path / "win"}
    for rows, folder in folders.items():
        for seed in (100, 101, 102):
            for dataset, ours, theirs in (("a9a", 0.1, 0.2), ("susy", rows / 100_000, 0.8), ("skin", 0.1, 0.2)):
                if rows == 2_000 and (seed == 102 or dataset == "skin"):
                    continue  # not yet
                ours = 0.0 if seed == 102 else ours
                how = {"model": "linear", "rows": rows}
                test = {"rows": {"train": 60, "validation": 20, "test": 12 if dataset == "a9a" else rows}}
                add(Store(folder / "runs.jsonl"), run(dataset, "f1", "sl-r", seed, **how), ours, **test)
                add(Store(folder / "runs.jsonl"), run(dataset, "f1", "cross-entropy", seed, **how), theirs, **test)
    found = when.size_gains(folders[win.MAX_ROWS], folders[2_000])
    assert found["gain"].droplevel(["metric", "model"]).to_dict() == pytest.approx(
        {(2_000, "a9a"): 0.5, (2_000, "susy"): 0.975, (60_000, "a9a"): 0.5, (60_000, "susy"): 0.25}
    )
    rare = when.rare_rows([*when.read_records(folders[2_000]), *when.read_records(folders[win.MAX_ROWS])])
    text = " ".join(when.size_part(found, rare, {"a9a": 0.24, "susy": 0.46, "skin": 0.79}).split())
    assert "at every size (2 a cell). Preliminary: too few seeds to conclude from. In brackets: fewer than ten" in text
    assert "| a9a | (+50.0%) | (+50.0%) | | susy | +97.5% | +25.0% | | **mean** | **+97.5%** | **+25.0%** |" in text


def tried(losses: dict[str, tuple[float, float]], dataset: str = "a") -> list[tuple[dict, dict]]:
    """Return trials as they are stored: the losses of control and surrogate of each variant."""
    return [
        (
            {"dataset": dataset, "model": "linear", "seed": 10, "variant": variant},
            {"losses": {"f1": {"control": [0.0, control], "surrogate": [0.0, surrogate]}}},
        )
        for variant, (control, surrogate) in losses.items()
    ]


def test_a_part_is_worth_what_is_lost_without_it(tmp_path: Path) -> None:
    store = Store(tmp_path / "parts.jsonl")
    trials = tried({"default": (0.5, 0.4), "noise=0.0": (0.8, 0.6)}) + tried({"noise=0.0": (0.5, 0.2)}, "unfinished")
    trials += tried({"default": (0.1, 0.1), "noise=0.0": (0.1, 0.5)}, "b")
    for trial, kept in trials:
        store.add(trial, kept)
    table = ablations.worth(ablations.cells(tmp_path / "parts.jsonl"))
    assert table.loc["default", "saved"] == pytest.approx(0.2 / 2)  # of 0.5 saved 0.1, of 0.1 nothing
    assert table.loc["noise=0.0", "saved"] == pytest.approx((0.25 - 1) / 2)  # at least -1
    assert table.loc["noise=0.0", "more"] == pytest.approx((-0.5 - 1) / 2)
    assert table.loc["noise=0.0", ["better", "worse"]].tolist() == [0, 2]
    assert table.index.tolist() == ["default", "noise=0.0"]
    assert "no noise on refined scores | -37.5% | -75.0% | 0 : 2 |" in part_table(table)


def test_a_short_run_that_ended_worse_is_described() -> None:
    fine = {
        "run": {"seed": 1, "metric": "f1", "model": "small", "prevalence": 0.005},
        "start": 0.5,
        "kept": 0.5,
        "last": 0.5,
        "kept_error": 0.1,
        "last_error": 0.1,
        "followed": False,
    }
    text = " ".join(short_part([fine, {**fine, "kept": 0.81}, {**fine, "last": 0.79}]).split())
    assert "**1 of 3** selected models is worse by more than three standard errors, and 0 of the last models" in text
    assert "Seed 1: F1, 30 units, about 20 positive validation rows" in text
    assert "Seed" not in short_part([fine])


def test_paragraphs_are_broken_into_lines_and_tables_are_not() -> None:
    words, row = " ".join(["word"] * 60), "| " + "cell " * 60 + "|"
    lines = when.wrapped(f"# Title\n\n{words}\n\n\n\n- {words}\n- {words}\n\n{row}").splitlines()
    assert row in lines
    assert max(len(line) for line in lines if line != row) <= 120
    assert [line[:2] for line in lines if "word" in line] == ["wo"] * 3 + ["- ", "  ", "  "] * 2
    assert "\n".join(lines).count("\n\n\n") == 0


@pytest.mark.parametrize("mark", ["%", "%;", "%)", "-", "+", "*", "#", ">", "2018.", "3)"])
def test_no_line_of_a_paragraph_begins_with_a_mark_of_markdown(mark: str) -> None:
    text = " ".join(["a" * 8, mark] * 60)
    lines = pages.wrapped(text).splitlines()
    assert len(lines) > 3
    assert max(map(len, lines)) <= 120
    assert " ".join(lines) == text
    assert not [line for line in lines if line.startswith(mark)]


def test_no_line_of_a_page_is_a_comment_that_is_not_shown() -> None:
    assert [
        f"{page.name}: {line}"
        for page in (ROOT / "docs").rglob("*.md")
        for line in page.read_text("utf-8").splitlines()
        if line.lstrip().startswith("%")
    ] == []


def test_the_summary_counts_runs_that_were_kept_and_names_the_largest_losses(tmp_path: Path) -> None:
    losses = every_metric(5)
    losses["sl-r"] = 0.2  # cross-entropy's own model, but for two runs
    losses.loc[("a9a", "f1", "linear", 0), "sl-r"] = 0.1
    losses.loc[("susy", "auc", "small", 3), "sl-r"] = 0.4
    for (dataset, metric, model, seed), loss in losses["sl-r"].items():
        verdict = {"followed": loss != 0.2, "gain": 0.0, "error": None}
        add(
            Store(tmp_path / "runs.jsonl"),
            run(dataset, metric, "sl-r", seed, model=model, recipe="default-0.1"),
            loss,
            verdict=verdict,
        )
    text = " ".join(when.summary(losses, when.read_records(tmp_path)).split())
    assert "surrogate's model was selected in 1% of the runs" in text
    assert "lower than cross-entropy's in 50% of the runs and higher in 50%." in text
    assert "seeds: 0 of 32 cells; where" in text
    assert "The largest losses: susy/AUC/30 units -20.0%." in text


def test_the_page_of_solved_models_has_the_numbers_that_are_stored() -> None:
    assert solver.page() == (ROOT / "docs" / "solver.md").read_text("utf-8")


# ---- black boxes ---------------------------------------------------------------------------------------------------


def test_the_page_of_black_boxes_has_the_numbers_that_are_stored() -> None:
    assert boxes.page() == (ROOT / "docs" / "black-boxes.md").read_text("utf-8")
    records = list(Store(boxes.RESULTS))
    ran = {(record["run"]["box"], record["run"]["seed"], record["run"]["limit"]) for record in records}
    assert len(ran) == len(records)
    assert min(seed for _, seed, _ in ran) >= FIRST_SEED
    assert all(record["calls"] <= record["run"]["limit"] for record in records)


def test_the_page_of_calls_has_the_numbers_that_are_stored() -> None:
    assert calls.page() == (ROOT / "docs" / "calls.md").read_text("utf-8")


def of_a_box(
    seed: int, ours: float, proxy: float, higher: bool, box: str = "one", limit: int = 4_000
) -> dict[str, object]:
    return {
        "run": {"box": box, "seed": seed, "limit": limit},
        "ours": ours,
        "proxy": proxy,
        "higher_is_better": higher,
        "label": "M",
        "rival": "balanced",
        "calls": 100 + seed,
    }


@pytest.mark.parametrize("higher", [True, False])
def test_a_gain_of_a_box_is_positive_where_it_is_better(higher: bool) -> None:
    sign = 1 if higher else -1
    gains = (0.1, 0.3, -0.1, 0.0, 0.2)
    records = [
        of_a_box(seed, 0.5 + sign * gain, 0.5, higher, box)
        for seed, gain in enumerate(gains)
        for box in ("one", "other")
    ]
    runs = boxes.gains_of([*records, of_a_box(9, 0.9, 0.1, higher)])  # a seed that one box has
    assert runs["share"].mean() == pytest.approx(20)  # 0.1 of 0.5
    found = boxes.outcomes(runs[runs["box"] == "one"])
    (row,) = found.itertuples()
    assert row.gain == pytest.approx(0.1)
    assert row.error == pytest.approx(np.std(gains, ddof=1) / np.sqrt(5))
    assert (row.won, row.lost, row.calls) == (3, 1, 104)
    shown = boxes.table(found).splitlines()[-1]
    assert "+0.100 ± 0.071" in shown
    assert ("(lower is better)" in shown) is not higher
    assert "0.500 (balanced)" in shown


def test_the_page_of_calls_says_what_carries_its_mean() -> None:
    gains = {"large": (40.0, 60.0), "small": (2.0, 4.0), "none": (0.0, 0.0), "worse": (-1.0, -2.0)}
    records = [
        of_a_box(50, 100 + gain, 100.0, True, box, limit)
        for box, (few, many) in gains.items()
        for limit, gain in ((300, few), (1_000, many), (4_000, many))
    ]
    said = calls.carried(boxes.gains_of(records))
    assert (said["largest"], said["carried"], said["none"], said["worse"]) == ("`large`", "97 %", "1", "1")
    assert (said["median_few"], said["median_many"]) == ("+1.0 %", "+2.0 %")
    assert (said["without_few"], said["without_many"]) == ("+0.3 %", "+0.7 %")
    assert (said["difference"], said["error"]) == ("-5.2 %", "5.0 %")  # of -20, -2, 0 and 1
    assert calls.by_seed(boxes.gains_of(records)) == "66 % (seed 50)"


def test_controls_are_compared_in_the_same_runs() -> None:
    def with_losses(metric: str, model: str, first: float, second: float) -> dict[str, object]:
        each = {"followed": False, "largest_weight": 1.0}
        return {
            "run": {"dataset": "a", "metric": metric, "model": model, "seed": 500},
            "by cross-entropy": {"loss": first, "control": first, **each},
            "by metric": {"loss": second, "control": second, **each},
        }

    records = [with_losses(metric, model, 0.25, 0.5) for metric in solver.METRICS for model in solver.MODELS]
    rows = solver.control_table(solver.controls(records)).splitlines()[2:]
    assert len(rows) == 8
    assert all("| 0.2500 | 0.5000 | +0.2500 ± nan | 1 : 0 | 0 % / 0 % |" in row for row in rows)
    assert len(solver.controls(records[:3])) == 0  # a table that has not had all its runs


def test_what_the_surrogate_gains_in_a_loop_is_paired_by_seed() -> None:
    values = [{"plain": 0.5, "surrogate": 0.6}, {"plain": 0.7, "surrogate": 0.7}, {"plain": 0.4, "surrogate": 0.6}]
    records = [{"run": {"example": "a", "seed": seed}, "values": found} for seed, found in enumerate(values)]
    shown = boxes.loop_table([*records, {"run": {"example": "b"}, "values": {}}], "a")
    plain, ours, _, best = shown.splitlines()[2:]
    assert best == "Best on average: surrogate."
    assert plain == "| plain | 0.5333 | +0.1000 ± 0.0577 | 2 : 0 |"
    assert ours == "| surrogate | 0.6333 |  |  |"
    assert boxes.loop_table(records[:2], "a") == "Not run yet."
