"""Tables: cells from the right records, ranks and wins from the cells, and nothing mixed."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from made_up import add, printed, run
from scipy.stats import rankdata, sem

from metricgrad.evaluation.records import Setting, read_records
from metricgrad.evaluation.store import Store
from metricgrad.paper.layouts import result_table
from metricgrad.paper.printed import LOSSES, MODES, PRINTED_WINS, TABLE2, TABLE3, TABLE3_METHODS
from metricgrad.paper.tables import PaperTable, losses, table1, table2, table3
from metricgrad.reporting.tables import as_markdown


@pytest.fixture(scope="module")
def as_printed(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return printed(tmp_path_factory.mktemp("printed"))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs.jsonl")


# ---- the printed tables, fed through -------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["honest", "paper"])
def test_the_printed_tables_come_out_as_they_went_in(as_printed: Store, protocol: str) -> None:
    for made, expected in ((table2(as_printed, protocol), TABLE2), (table3(as_printed, protocol), TABLE3)):
        assert made.datasets == tuple(TABLE2)
        for cell in made.frame.reset_index().itertuples():
            assert cell.mean == cell.printed == expected[cell.dataset][cell.metric][cell.method]
            assert math.isnan(cell.error)
            assert cell.seeds == (0,)


def test_ranks_of_the_printed_table_follow_from_its_cells(as_printed: Store) -> None:
    ranks = table2(as_printed, "paper").ranks
    for metric in LOSSES:
        matrix = np.array([[TABLE2[d][metric][mode] for mode in MODES] for d in TABLE2])
        expected = np.mean([rankdata(row) for row in matrix], axis=0)
        assert list(ranks[metric].values()) == pytest.approx(expected.tolist())
    assert all(ranks[metric]["sl-u"] == 3.0 for metric in ("eer", "error_rate", "mcc", "jaccard"))


def test_wins_of_the_printed_table_are_those_printed(as_printed: Store) -> None:
    assert table3(as_printed, "paper").wins == {metric: dict(PRINTED_WINS[metric]) for metric in TABLE3_METHODS}


def test_the_best_of_a_cell_are_marked_and_ties_share_it(as_printed: Store) -> None:
    table = table2(as_printed, "paper")
    assert [mode for mode in MODES if table.cell("a9a", "auc", mode).best] == ["sl-u"]
    assert [mode for mode in MODES if table.cell("ccfraud", "mcc", mode).best] == ["sl-r", "sl-s"]
    assert table.frame["best"].sum() >= len(TABLE2) * len(LOSSES)


# ---- cells ---------------------------------------------------------------------------------------------------------


def test_mean_and_standard_error_are_over_seeds(store: Store) -> None:
    values = [0.21, 0.25, 0.2]
    for seed, loss in enumerate(values):
        add(store, run("a9a", "f1", "sl-r", seed), loss)
    cell = table2(store).cell("a9a", "f1", "sl-r")
    assert cell["mean"] == pytest.approx(0.22)
    assert cell.error == pytest.approx(sem(values))
    assert cell.seeds == (0, 1, 2)
    assert cell.printed == 0.3134
    assert not cell.best


def test_a_model_is_judged_by_the_metric_it_was_trained_for(store: Store) -> None:
    add(store, run("a9a", "f1", "sl-r"), 0.2, test={"honest": {"f1": 0.2, "auc": 0.01}})
    add(store, run("a9a", "auc", "sl-r"), 0.1)
    assert table2(store).cell("a9a", "auc", "sl-r")["mean"] == 0.1


def test_jaccard_of_the_paper_is_the_second_run_of_the_error_rate(store: Store) -> None:
    add(store, run("a9a", "error_rate", "sl-r"), 0.15)
    add(store, run("a9a", "error_rate", "sl-r", replicate=1), 0.16)
    add(store, run("a9a", "jaccard", "sl-r"), 0.4)
    add(store, run("a9a", "error_rate", "lovasz-softmax", replicate=1), 0.17)
    paper, honest = table2(store, "paper").cell, table2(store, "honest").cell
    assert (paper("a9a", "error_rate", "sl-r")["mean"], paper("a9a", "jaccard", "sl-r")["mean"]) == (0.15, 0.16)
    assert (honest("a9a", "error_rate", "sl-r")["mean"], honest("a9a", "jaccard", "sl-r")["mean"]) == (0.15, 0.4)
    assert table3(store, "paper").cell("a9a", "jaccard", "lovasz-softmax")["mean"] == 0.17
    assert paper("a9a", "jaccard", "sl-r")["comparable"]
    assert not honest("a9a", "jaccard", "sl-r")["comparable"]


def test_what_was_not_run_is_empty_and_keeps_what_was_printed(store: Store) -> None:
    add(store, run("a9a", "f1", "sl-r"), 0.2)
    table = table2(store)
    missing = table.cell("susy", "f1", "sl-s")
    assert math.isnan(missing["mean"])
    assert math.isnan(missing.error)
    assert (missing.seeds, missing.printed) == ((), 0.2294)
    assert table.ranks == table.wins == {}
    assert table.counted["f1"] == 0


def test_ranks_are_over_datasets_that_have_every_mode(store: Store) -> None:
    for dataset, trio in {"a9a": (0.3, 0.2, 0.1), "susy": (0.1, 0.2, 0.3), "skin": (0.1, 0.2)}.items():
        for mode, loss in zip(MODES, trio, strict=False):
            add(store, run(dataset, "f1", mode), loss)
    table = table2(store)
    assert table.ranks == {"f1": {"sl-u": 2.0, "sl-r": 2.0, "sl-s": 2.0}}
    assert table.counted["f1"] == 2
    assert table.cell("skin", "f1", "sl-u").best


# ---- rows, settings, notes -----------------------------------------------------------------------------------------


def test_other_datasets_come_after_the_papers_which_are_shown_only_if_any_was_run(store: Store) -> None:
    add(store, run("digits8", "f1", "sl-r"), 0.1)
    assert table2(store).datasets == ("digits8",)
    assert table2(store).cell("digits8", "f1", "sl-r").isna()["printed"]
    add(store, run("susy", "f1", "sl-r"), 0.1)
    assert table2(store).datasets == (*TABLE2, "digits8")
    assert table2(store, datasets=["susy", "a9a"]).datasets == ("a9a", "susy")


def test_settings_are_never_mixed(store: Store) -> None:
    add(store, run("a9a", "f1", "sl-r"), 0.2)
    add(store, run("a9a", "f1", "sl-r", seed=1, changes={"rounds": 5}), 0.4)
    quick = Setting("mlp", "default", (("rounds", "5"),))
    assert table2(store, setting=quick).cell("a9a", "f1", "sl-r")["mean"] == 0.4
    assert table2(store, "paper", quick).title == "Table 2, protocol paper, mlp, recipe default with rounds = 5"
    with pytest.raises(ValueError, match=r"setting: expected one of those that were stored \(mlp, recipe default; mlp"):
        table2(store)
    with pytest.raises(ValueError, match="got 'linear, recipe default'"):
        table3(store, setting=Setting("linear", "default"))


def test_no_records_and_unknown_protocols_are_refused(store: Store) -> None:
    with pytest.raises(
        ValueError, match=r"setting: expected one of those that were stored \(there is none\), got none"
    ):
        table2([])
    add(store, run("a9a", "f1", "sl-r"), 0.2)
    with pytest.raises(ValueError, match="protocol: expected one of paper, honest or a Protocol, got 'best'"):
        table2(store, "best")


def test_datasets_held_in_part_say_what_part(store: Store) -> None:
    add(store, run("codrna", "f1", "sl-r"), 0.2, subset="68 % of the rows")
    add(store, run("a9a", "f1", "sl-r"), 0.2)
    assert table2(store).subsets == {"codrna": "68 % of the rows"}
    add(store, run("codrna", "f1", "sl-r", seed=1), 0.2)
    assert table2(store).subsets == {"codrna": "68 % of the rows and the whole"}


def test_known_problems_of_the_paper_are_ours_too_only_where_we_score_as_it_did(as_printed: Store) -> None:
    ours = {p: {note.name: note.ours for note in table2(as_printed, p).notes} for p in ("paper", "honest")}
    assert ours["paper"].keys() == ours["honest"].keys()
    assert {name for name, both in ours["paper"].items() if both} == {"test-threshold", "floor", "accuracy", "mcc"}
    assert {name for name, both in ours["honest"].items() if both} == {"mcc"}
    assert "under-trained" in {note.name for note in table3(as_printed).notes}
    assert table2(as_printed).cell("ccfraud", "f1", "sl-u").notes == ("test-threshold", "floor", "ranks", "slip")


def test_a_dataset_that_is_not_the_papers_has_only_the_problems_of_scoring(store: Store) -> None:
    add(store, run("digits8", "f1", "sl-r"), 0.1)
    assert table2(store, "honest").notes == ()
    assert {note.name for note in table2(store, "paper").notes} == {"test-threshold"}


def test_table_1_has_what_was_held_beside_what_was_printed(store: Store) -> None:
    add(store, run("digits8", "f1", "sl-r"), 0.1)
    add(store, run("ijcnn1", "f1", "sl-r"), 0.1, subset="half")
    add(store, run("ijcnn1", "auc", "sl-r"), 0.1, subset="half")
    first, second = table1(store).itertuples(index=False)
    assert first == ("ijcnn1", "IJCNN", 1000, 0.25, "half", 156_681, first.printed_share)
    assert second == ("digits8", second.title, 1000, 0.25, None, None, None)


def test_losses_are_of_every_dataset_metric_and_method(as_printed: Store) -> None:
    found = losses(read_records(as_printed), "paper")
    assert len(found) == len(TABLE2) * len(LOSSES)
    assert found["a9a", "auc"] == {**TABLE2["a9a"]["auc"], **TABLE3["a9a"]["auc"]}
    assert found["a9a", "jaccard"]["lovasz-softmax"] == TABLE3["a9a"]["jaccard"]["lovasz-softmax"]


def followed(loss: float, was_kept: bool) -> dict:
    """Return what is stored of a model that followed its loss, and of whether it was kept."""
    other = {"test": {p: {"f1": loss} for p in ("honest", "paper")}, "validation_loss": loss}
    return {"verdict": {"followed": was_kept}, "followed": None if was_kept else other}


def test_the_modes_are_the_models_that_followed_the_surrogate_kept_or_not(store: Store) -> None:
    add(store, run("a9a", "f1", "sl-r", seed=0), 0.2, **followed(0.4, was_kept=False))
    add(store, run("a9a", "f1", "sl-r", seed=1), 0.3, **followed(0.3, was_kept=True))
    add(store, run("a9a", "f1", "sl-s", seed=0), 0.2, **followed(0.2, was_kept=True))
    table = table2(store)
    cell = table.cell("a9a", "f1", "sl-r")
    assert table.followed
    assert cell["mean"] == pytest.approx(0.35)
    assert cell.preferred == 1
    assert table.preferred(None, "sl-r", "a9a") == (1, 2)
    assert table.preferred("f1", "sl-s") == (1, 1)
    assert table.preferred(None, "sl-u") == (0, 0)
    assert losses(store, "honest")["a9a", "f1"] == {"sl-r": pytest.approx(0.35), "sl-s": 0.2}
    text = as_markdown(result_table(table2(store, datasets=["a9a"])))
    assert "| 50% |" in text
    assert "The models are those that followed their loss" in text


def test_records_without_the_followed_models_show_those_that_were_kept_and_say_so(store: Store) -> None:
    store.add(run("a9a", "f1", "sl-r"), {"test": {"honest": {"f1": 0.2}}, "verdict": {"followed": False}})
    add(store, run("a9a", "f1", "sl-s"), 0.2, **followed(0.4, was_kept=False))
    table = table2(store)
    assert not table.followed
    assert table.cell("a9a", "f1", "sl-s")["mean"] == 0.2
    assert "The models are those that were kept on validation rows" in as_markdown(result_table(table))


def test_seeds_on_other_data_or_from_another_surrogate_are_named(store: Store) -> None:
    add(store, run("a9a", "f1", "sl-r", seed=0, data="1", surrogate="2"), 0.2)
    add(store, run("a9a", "f1", "sl-r", seed=1, data="1", surrogate="3"), 0.2)
    add(store, run("a9a", "f1", "sl-s", seed=0, data="1"), 0.2)
    table = table2(store)
    assert table.mixed == (("a9a", "f1", "sl-r"),)
    assert "Seeds on different files or from different surrogates in: a9a F1 SL-R." in as_markdown(result_table(table))


# ---- against the printed -------------------------------------------------------------------------------------------


def counts(table: PaperTable, by: str | None = None) -> dict[str, list[int]]:
    return {name: counted for name, *counted in table.tally(by).itertuples()}


def test_the_printed_tables_agree_with_themselves(tmp_path: Path) -> None:
    store = printed(tmp_path)
    assert counts(table2(store, "paper")) == {"all": [189, 189, 0, 189, 0]}
    assert counts(table3(store, "paper")) == {"all": [81, 81, 0, 81, 0]}
    assert counts(table2(store, "honest")) == {"all": [162, 162, 0, 162, 0]}


def test_cells_are_counted_by_method_and_dataset(tmp_path: Path) -> None:
    store = Store(tmp_path / "runs.jsonl")
    add(store, run("a9a", "auc", "sl-r"), 0.0900)  # printed 0.0983
    add(store, run("a9a", "f1", "sl-r"), 0.31344)  # printed 0.3134: the same in four digits
    add(store, run("susy", "f1", "sl-r"), 0.2400)  # printed 0.2289
    add(store, run("susy", "f1", "sl-u"), 0.2600)  # printed 0.2507, noisy
    add(store, run("digits8", "f1", "sl-u"), 0.1)  # not printed
    table = table2(store)
    assert table.tally().columns.tolist() == ["cells", "at or below", "better", "within noise", "worse"]
    assert counts(table, "method") == {"sl-r": [3, 2, 1, 1, 1], "sl-u": [1, 0, 0, 1, 0]}
    assert counts(table, "dataset") == {"a9a": [2, 2, 1, 1, 0], "susy": [2, 0, 0, 1, 1]}
    assert counts(table) == {"all": [4, 2, 1, 2, 1]}
    assert set(table.compared["dataset"]) == {"a9a", "susy"}
