"""The page about ranking says what is stored, and its arithmetic is right."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from metricgrad.evaluation.store import Store
from studies.ranking import page as ranking_page

ROOT = Path(__file__).parents[2]
OURS, BY_HAND = [0.20, 0.22, 0.24], {"ranknet": [0.3] * 3, "listnet": [0.25, 0.2, 0.24], "lambdarank": [0.26] * 3}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = Store(tmp_path_factory.mktemp("ranking") / "ranking.jsonl")
    for method, losses in {"sl-r": OURS, **BY_HAND}.items():
        for seed, loss in enumerate(losses):
            for model in ("linear", "mlp"):
                run = {"dataset": "mq", "metric": "map", "model": model, "seed": seed, "method": method}
                shift = 0.1 if (model, method) == ("mlp", "sl-r") else 0.0
                store.add(run, {"loss": loss + shift, "followed": seed == 0, "cosine": 0.5, "command": "python x"})
    for seed in range(3):
        run = {"dataset": "mq", "metric": "map", "model": "trees", "seed": seed, "method": "lightgbm"}
        store.add(run, {"loss": 0.1, "command": "python x"})
    return store.path


def test_the_page_has_the_numbers_that_are_stored() -> None:
    assert ranking_page.page() == (ROOT / "docs" / "ranking.md").read_text("utf-8")


def test_trees_stand_beside_every_model(stored: Path) -> None:
    frame = ranking_page.losses(stored)
    assert set(frame.index.get_level_values("model")) == {"linear", "mlp"}
    assert (frame["lightgbm"] == 0.1).all()


def test_the_best_baseline_is_the_one_with_the_least_mean_loss(stored: Path) -> None:
    found = ranking_page.compared(ranking_page.losses(stored), tuple(BY_HAND))
    linear = found.loc[("mq", "map", "linear")]
    saved = np.subtract(BY_HAND["listnet"], OURS)
    assert linear["best"] == "listnet"
    assert linear["difference"] == pytest.approx(saved.mean())
    assert linear["error"] == pytest.approx(saved.std(ddof=1) / 3**0.5)
    assert linear["seeds"] == 3


def test_worse_is_by_more_than_one_standard_error_over_seeds(stored: Path) -> None:
    found = ranking_page.compared(ranking_page.losses(stored), tuple(BY_HAND))
    assert ranking_page.worse(found).index.tolist() == [("mq", "map", "mlp")]
    found["error"] = 1.0
    assert len(ranking_page.worse(found)) == 0


def test_only_seeds_that_all_have_are_compared(stored: Path, tmp_path: Path) -> None:
    copy = tmp_path / "more.jsonl"
    copy.write_bytes(stored.read_bytes())
    run = {"dataset": "mq", "metric": "map", "model": "linear", "seed": 9, "method": "sl-r"}
    Store(copy).add(run, {"loss": 0.9, "followed": False, "cosine": 0.5, "command": "python x"})
    assert ranking_page.compared(ranking_page.losses(copy), ("listnet",))["seeds"].tolist() == [3, 3]


def test_a_page_says_where_it_is_worse(stored: Path) -> None:
    text = ranking_page.page(stored)
    assert "| mq | MAP | linear | 0.7800 | 0.7000 | 0.7700 | 0.7400 | 0.9000 | +0.0100 ± 0.0208 |" in text
    assert "better by more than one standard error in 0 of 2 cells, worse by more than one in 1: mq MAP mlp" in text
    assert "kept in 33% of the runs" in text


@pytest.mark.slow  # trains a ranker
def test_the_example_of_the_page_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (program,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "ranking.md").read_text("utf-8"), re.DOTALL)
    assert len(program.splitlines()) <= 10
    exec(program, {})
    value, _, verdict = capsys.readouterr().out.partition(" ")
    assert float(value) > 0.9
    assert verdict.startswith("kept ")


# ---- beside a published benchmark ------------------------------------------------------------------------------------


def test_ndcg_is_that_of_the_benchmark() -> None:
    """Oracle: scikit-learn, given gains, where no scores are equal."""
    pytest.importorskip("lightgbm")
    from studies.ranking.published import ndcg

    rng = np.random.default_rng(0)
    queries = np.repeat(np.arange(20), 15)
    grades, scores = rng.integers(0, 5, 300).astype(float), rng.normal(size=300)
    grades[:15] = 0  # without relevant documents: counts 1
    expected = [
        ndcg_score([2 ** grades[queries == one] - 1], [scores[queries == one]], k=10) if one else 1.0
        for one in range(20)
    ]
    assert ndcg(scores, grades, queries) == pytest.approx(np.mean(expected))


def test_of_equal_scores_the_worst_comes_first() -> None:
    pytest.importorskip("lightgbm")
    from studies.ranking.published import ndcg

    grades, queries = np.array([2.0, 0.0, 1.0]), np.zeros(3)
    best, worst = (sum(g / np.log2(place + 2) for place, g in enumerate(order)) for order in ((3, 1, 0), (0, 1, 3)))
    assert ndcg(np.ones(3), grades, queries) == pytest.approx(worst / best)


def test_queries_that_choose_are_whole_and_of_the_training_rows() -> None:
    pytest.importorskip("lightgbm")
    from studies.ranking.published import Part, held_out

    rows = Part(np.zeros((40, 1)), np.zeros(40), np.repeat(np.arange(10), 4))
    kept = held_out(rows, 0)
    assert kept.sum() == 8
    assert set(rows.queries[kept]).isdisjoint(rows.queries[~kept])
    assert rows.sizes.tolist() == [4] * 10
