"""The attacks: a few cases of each are clean, a stop loses nothing, and the page says what is stored."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from studies.reliability import figures, growth, hostile_texts, page, specs, verdicts
from studies.reliability.workers import Job, Journal, run_jobs

pytestmark = pytest.mark.slow  # starts workers, kills them and lets attacks run

ROOT = Path(__file__).parents[2]
FEW = 10
"""Cases of each attack that are tried here; `make attack` tries all."""


def started(*words: Any, module: str = "run") -> subprocess.Popen[str]:
    """Start attacks in a process of their own, which forks."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    return subprocess.Popen(
        [sys.executable, "-m", f"studies.reliability.{module}", *map(str, words)],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*words: Any, code: int | None = 0, module: str = "run") -> str:
    """Run attacks to their end, and return what they print."""
    with started(*words, module=module) as process:
        out, err = process.communicate()
    assert code in (None, process.returncode), out + err
    return out


def children(process: int) -> list[int]:
    """Return the processes that a process has forked."""
    path = Path(f"/proc/{process}/task/{process}/children")
    return [int(child) for child in path.read_text().split()] if path.exists() else []


# ---- a few cases of each -------------------------------------------------------------------------------------------


def test_a_few_cases_of_each_attack_are_clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("folders", "inputs", "kills", "specs", "servers")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run(*names, "--cases", FEW, "--work", tmp_path, "--out", tmp_path / "figures.json", code=None)
    stored = figures.stored(tmp_path / "figures.json")
    assert {name: stored[name]["examples"] for name in names} == {name: [] for name in names}
    for name in names:
        assert stored[name]["cases"] == stored[name][verdicts.USED] + stored[name][verdicts.REFUSED] == FEW
        assert stored[name]["command"] == f"python -m studies.reliability.run {name} --cases={FEW}"
        assert stored[name]["made_by"]["metricgrad"]
    assert not list(tmp_path.glob("metricgrad-attack-*"))


def test_a_few_fits_leave_no_tensor_thread_or_file_behind(tmp_path: Path) -> None:
    found = growth.attempt(tmp_path, 0, 0, fits=6)
    assert found["fits"] == 6
    assert all(count <= 0 for count in found["more"].values())


def test_what_grows_from_fit_to_fit_is_found_out() -> None:
    steady = [{"kb": 1_000, "tensors": 3, "threads": 1, "files": 5}] * 40
    assert growth.judged(steady, 40)["outcome"] == verdicts.USED
    leaking = [{**one, "kb": 1_000 + 100 * n, "tensors": n} for n, one in enumerate(steady)]
    found = growth.judged(leaking, 40)
    assert found["slope_kb"] == pytest.approx(100)
    assert (found["outcome"], found["detail"]) == (verdicts.UNCLEAN, "30 more tensors, 100.0 KB a fit")
    assert growth.judged(leaking, 200, every=5)["slope_kb"] == pytest.approx(20)
    before = growth.held()["tensors"]
    kept = [torch.zeros(1) for _ in range(7)]
    assert growth.held()["tensors"] - before == len(kept)


def test_there_are_enough_hostile_texts_and_none_twice() -> None:
    texts = hostile_texts.texts()
    assert len(texts) >= 205
    assert len(set(texts)) == len(texts)
    assert max(map(len, texts)) > 1_000_000


# ---- what is clean -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (ValueError("x: expected 1, got 2"), verdicts.REFUSED),
        (FileNotFoundError(2, "No such file", "x"), verdicts.REFUSED),
        (ValueError(), verdicts.UNCLEAN),
        (ValueError("x" * 10_000), verdicts.UNCLEAN),
        (KeyError("x"), verdicts.UNCLEAN),
        (RecursionError("too deep"), verdicts.UNCLEAN),
        (OSError(27, "File too large"), verdicts.UNCLEAN),
    ],
)
def test_only_an_error_with_a_message_is_clean(error: Exception, outcome: str) -> None:
    def fail() -> None:
        raise error

    assert verdicts.of_call(fail).outcome == outcome


def test_a_result_is_clean_if_nothing_is_wrong_with_it() -> None:
    assert verdicts.of_call(lambda: 1).outcome == verdicts.USED
    assert verdicts.of_call(lambda: 1, lambda found: "one") == verdicts.Verdict(verdicts.UNCLEAN, "one")


def test_a_command_is_clean_if_it_ends_well_or_in_one_line(tmp_path: Path) -> None:
    assert verdicts.of_command(["--version"]).outcome == verdicts.USED
    refused = verdicts.of_command(["predict", str(tmp_path), "data.csv"])
    assert refused.outcome == verdicts.REFUSED
    assert refused.detail.startswith("metricgrad: error: ")


def test_python_and_the_command_have_to_agree() -> None:
    used, refused = verdicts.Verdict(verdicts.USED), verdicts.Verdict(verdicts.REFUSED, "no")
    assert verdicts.worse(used, used) == used
    assert verdicts.worse(refused, refused) == refused
    assert verdicts.worse(used, refused).outcome == verdicts.UNCLEAN


# ---- workers, journals and figures ---------------------------------------------------------------------------------


def test_a_line_that_was_cut_short_costs_no_other(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "a.jsonl", {"key": 1})
    journal.add({"case": 0, "outcome": "used"})
    with journal.path.open("a") as file:
        file.write('\n{"case": 1, "outc')
    journal.add({"case": 2, "outcome": "used"})
    assert sorted(Journal(journal.path, {"key": 1}).cases) == [0, 2]
    assert Journal(journal.path, {"key": 2}).cases == {}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_case_that_hangs_or_ends_its_worker_is_written_down_and_the_others_are_tried(tmp_path: Path) -> None:
    def attempt(case: int) -> dict[str, Any]:
        if case == 1:
            time.sleep(60)
        if case == 2:
            os.abort()
        if case == 3:
            bytearray(8 << 30)
        return {"kind": "", "outcome": "used", "detail": ""}

    journal = Journal(tmp_path / "a.jsonl", {"key": 1})
    run_jobs([Job(journal, attempt, range(5), 0.5)], 1, time.monotonic() + 20, lambda: None)
    found = {case: (line["outcome"], line["detail"]) for case, line in journal.cases.items()}
    assert found == {
        0: ("used", ""),
        1: ("unclean", "not done in 0.5 s"),
        2: ("unclean", "ended by signal 6"),
        3: ("unclean", "wanted more than 4,096 MB"),
        4: ("used", ""),
    }


def test_figures_count_what_took_too_long_or_too_much_as_not_clean() -> None:
    clean = {"case": 0, "kind": "a", "outcome": "used", "detail": "", "seconds": 1.0, "peak_mb": 10.0}
    cases = [clean, {**clean, "case": 1, "seconds": 9.0}, {**clean, "case": 2, "peak_mb": 99.0}]
    cases += [{**clean, "case": 3, "outcome": "unclean", "detail": "KeyError: '/tmp/metricgrad-attack-a1_b/model'"}]
    found = figures.summed(cases, seconds=5, peak_mb=50)
    assert (found["cases"], found["used"], found["unclean"]) == (4, 1, 3)
    assert [one["detail"] for one in found["examples"]] == ["took 9.0 s", "took 99 MB", "KeyError: 'FOLDER/model'"]
    assert (found["slowest_seconds"], found["peak_mb"]) == (9.0, 99.0)


def test_a_run_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    words = ("specs", "--cases", 3, "--work", tmp_path, "--out", tmp_path / "figures.json")
    stopped = run(*words, "--minutes", 0, code=1)
    assert f"0 of {specs.CASES}" in stopped
    with (tmp_path / "specs.jsonl").open("a") as file:
        line = {"case": 1, "kind": "kept", "outcome": "used", "detail": "", "seconds": 0.0}
        file.write(f"\n{json.dumps(line)}\n")
    run(*words)
    stored = figures.stored(tmp_path / "figures.json")["specs"]
    assert (stored["used"], stored["refused"]) == (1, 2)  # the kept one was not tried again
    run(*words)
    assert figures.stored(tmp_path / "figures.json")["specs"]["used"] == 0  # all were done, so all are tried again


def _ended(attack: subprocess.Popen[str]) -> str:
    """End a program, and return what it wrote; a signal within an import or a finaliser is lost, so it is repeated."""
    for _ in range(6):
        attack.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            return attack.communicate(timeout=20)[1]
    raise AssertionError("it does not end")


def test_a_run_that_is_ended_ends_its_workers_and_stores_what_it_has(tmp_path: Path) -> None:
    words = ("growth", "--work", tmp_path, "--out", tmp_path / "figures.json")
    with started(*words) as attack:
        workers: list[int] = []
        while not workers and attack.poll() is None:
            time.sleep(0.1)
            if (tmp_path / "growth.jsonl").exists():
                workers = children(attack.pid)
        said = _ended(attack)
    assert attack.returncode == 1
    assert "stopped; the same command continues from here" in said
    assert workers
    assert not any(Path(f"/proc/{worker}").exists() for worker in workers)
    assert figures.stored(tmp_path / "figures.json")["growth"]["cases"] == 0


def test_fuzzing_counts_the_examples_that_held_and_goes_on_with_the_other_properties(tmp_path: Path) -> None:
    words = ("--examples", 66, "--work", tmp_path, "--out", tmp_path / "figures.json", "--pytest", "-n0", "-k")
    run(*words, "exact_fractions", module="fuzz")
    stored = figures.stored(tmp_path / "figures.json")["fuzz"]
    assert (stored["wanted"], stored["properties"], stored["examples"], stored["failures"]) == (66, 1, 2, 0)
    again = run(*words, "exact_fractions or brute_force", module="fuzz")
    assert "1 passed" in again
    assert figures.stored(tmp_path / "figures.json")["fuzz"]["examples"] == 4


# ---- the page ------------------------------------------------------------------------------------------------------


def test_the_page_says_what_is_stored() -> None:
    assert page.page() == (ROOT / "docs" / "reliability.md").read_text("utf-8")
    assert {*page.ATTACKS, "growth", "fuzz"} <= set(figures.stored())


def test_the_page_shows_what_is_not_clean() -> None:
    made_by = {"metricgrad": "1", "commit": "abc", "date": "2026-01-01"}
    record = {
        "command": "c",
        "seed": 0,
        "made_by": made_by,
        "cases": 3,
        "wanted": 4,
        "used": 1,
        "refused": 1,
        "unclean": 1,
        "slowest_seconds": 1.25,
        "peak_mb": 20.0,
        "limits": {"seconds": 10.0, "mb": 512},
        "killed": 0,
        "examples": [{"case": 2, "kind": "flip", "detail": "KeyError: `\x1b[31m`"}],
    }
    text = page.page({"folders": record})
    assert "| folders | 3 of 4 | 1 | 1 | **1** | 1.2 s of 10 | 20 MB of 512 |" in text
    assert "- folders, case 2: `flip KeyError: ??[31m?`" in text
    assert "## Fuzzing" not in text
    assert "## Fits" not in text
