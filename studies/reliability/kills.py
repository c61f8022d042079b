"""Killed writers: afterwards the old or the new content is complete, and the next writer succeeds.

Half of the kills come at a random moment; the other half between two file operations, each in turn, so that no gap is
missed: before the rename, after a file was opened and emptied, and so on.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import default_rng

from metricgrad import load, save
from metricgrad.evaluation.store import Store
from metricgrad.paper.cache import checked_digest
from metricgrad.paper.cache import prepare as prepare_cache
from metricgrad.paper.formats import Layout, read_parquet
from metricgrad.paper.report import write_report
from metricgrad.paper.sources import File, Source
from metricgrad.tabular.batch_predict import write_predictions
from studies.reliability.tables import save_models, small_table
from studies.reliability.verdicts import UNCLEAN, USED, Verdict
from studies.reliability.workers import as_record

CASES, SECONDS, PEAK_MB = 180, 60.0, 1_024
"""How many cases, and the most seconds and memory one may take."""
OPERATIONS = ("open", "os.", "shutil.", "tempfile.", "fcntl.")
"""How the names of Python's audit events of file operations begin."""
ROWS = 2_000
LINES = ["a,b,target", *(f"{i},{i % 7},{i % 2}" for i in range(ROWS))]


@dataclass(frozen=True)
class Writer:
    """A writer: it prepares a folder, writes to it, and checks its content afterwards.

    `check` returns None if the old or the new content is complete, else what is wrong.
    """

    before: Callable[[Path, Path], None]
    write: Callable[[Path, Path], None]
    check: Callable[[Path], str | None]


def prepare(work: Path) -> None:
    """Save models, rows to predict and records to report."""
    if not (work / "linear").exists():
        save_models(work)
    small_table(5_000).to_csv(work / "many.csv", index=False)
    (work / "records.jsonl").unlink(missing_ok=True)
    store = Store(work / "records.jsonl")
    for seed in range(2):
        run = {"dataset": "a9a", "metric": "f1", "method": "sl-r", "model": "mlp", "recipe": "default", "seed": seed}
        store.add(run, {"test": {"honest": {"f1": 0.3}, "paper": {"f1": 0.3}}, "seconds": 1.0, "command": "none"})


def attempt(work: Path, seed: int, case: int) -> Mapping[str, Any]:
    """Kill a writer, check what it left, and run another."""
    name = list(WRITERS)[case % len(WRITERS)]
    writer, turn = WRITERS[name], case // len(WRITERS)
    with tempfile.TemporaryDirectory(prefix="metricgrad-attack-") as folder:
        there = Path(folder)
        writer.before(work, there)
        seconds, order = _measured(writer, work, there)
        if turn % 2:
            moment = float(default_rng((seed, case)).uniform(0, seconds))
            kind, killed = f"{name} at a moment", _killed_at(lambda: writer.write(work, there), moment)
        else:
            number = order[turn // 2 % len(order)]
            kind, killed = f"{name} at an operation", _in_child(lambda: _until(writer, work, there, number)) != 0
        for step in ("kill", "next writer"):
            wrong = writer.check(there)
            if wrong:
                return as_record(kind, Verdict(UNCLEAN, f"after the {step}: {wrong}"), killed=killed)
            if step == "kill" and _in_child(lambda: writer.write(work, there)):
                return as_record(kind, Verdict(UNCLEAN, "the next writer failed"), killed=killed)
        return as_record(kind, Verdict(USED), killed=killed)


# ---- killing -------------------------------------------------------------------------------------------------------


def _in_child(call: Callable[[], object]) -> int:
    """Run a call in a forked child and return its exit status, 0 for success."""
    pid = _forked(call)
    return os.waitpid(pid, 0)[1]


def _forked(call: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        call()
        code = 0
    except Exception as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
    finally:
        os._exit(code)


def _killed_at(call: Callable[[], object], moment: float) -> bool:
    """Kill a child after some seconds, and return whether it was still at work."""
    pid = _forked(call)
    time.sleep(moment)
    os.kill(pid, signal.SIGKILL)
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def _until(writer: Writer, work: Path, there: Path, number: int) -> None:
    """Write, and end at the file operation of a number; one that opens a file to write does so before the end."""
    left = number

    def watch(event: str, values: tuple[Any, ...]) -> None:
        nonlocal left
        if not _is_operation(event, values, there):
            return
        left -= 1
        if left == -1:
            with suppress(OSError):  # tempfile opens the folder
                if _opens_to_write(event, values):
                    os.open(values[0], values[2], 0o644)
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    writer.write(work, there)


def _is_operation(event: str, values: tuple[Any, ...], there: Path) -> bool:
    return event == "fcntl.flock" or (event.startswith(OPERATIONS) and any(str(there) in str(one) for one in values))


def _opens_to_write(event: str, values: tuple[Any, ...]) -> bool:
    return event == "open" and isinstance(values[2], int) and bool(values[2] & (os.O_WRONLY | os.O_RDWR))


def _measured(writer: Writer, work: Path, there: Path) -> tuple[float, list[int]]:
    """Return the seconds of a writer and its file operations, the critical ones first."""
    with tempfile.TemporaryDirectory(prefix="metricgrad-attack-") as name:
        copy, noted = Path(name) / "copy", Path(name) / "noted"
        shutil.copytree(there, copy)
        begun = time.perf_counter()
        if _in_child(lambda: _note(writer, work, copy, noted)):
            raise RuntimeError("a writer that is not killed failed")
        events = noted.read_text().split()
        grave = [number for number, event in enumerate(events) if event in ("os.rename", "open-to-write")]
        return time.perf_counter() - begun, [*grave, *(n for n in range(len(events)) if n not in grave)]


def _note(writer: Writer, work: Path, there: Path, out: Path) -> None:
    """Write, and record the names of the file operations."""
    found: list[str] = []

    def watch(event: str, values: tuple[Any, ...]) -> None:
        if _is_operation(event, values, there):
            found.append("open-to-write" if _opens_to_write(event, values) else event)

    sys.addaudithook(watch)
    writer.write(work, there)
    out.write_text(" ".join(found))


# ---- the writers ---------------------------------------------------------------------------------------------------


def _copy_model(work: Path, there: Path) -> None:
    shutil.copytree(work / "small", there / "model")


def _save_model(work: Path, there: Path) -> None:
    save(load(work / "linear"), there / "model")


def _check_model(there: Path) -> str | None:
    try:
        model = load(there / "model")
    except (ValueError, OSError) as error:
        return f"the model cannot be loaded: {error}"
    scores = model.decision_function(small_table(5, seed=1))
    name = model.model_.network_.name
    return None if np.isfinite(scores).all() and name in ("small", "linear") else f"{name} scores {scores}"


OLD_PREDICTIONS = "row,score,label\n1,0.5,left\n"


def _old_predictions(work: Path, there: Path) -> None:
    (there / "out.csv").write_text(OLD_PREDICTIONS)


def _predict(work: Path, there: Path) -> None:
    write_predictions(load(work / "linear"), work / "many.csv", there / "out.csv")


def _check_predictions(there: Path) -> str | None:
    text = (there / "out.csv").read_text() if (there / "out.csv").exists() else ""
    lines = text.splitlines()
    whole = len(lines) == 5_001 and text.endswith("\n") and lines[-1].startswith("5000,")
    return None if whole or text == OLD_PREDICTIONS else f"{len(lines)} lines of predictions"


def _old_records(work: Path, there: Path) -> None:
    store = Store(there / "runs.jsonl")
    for number in range(20):
        store.add({"number": number}, {"loss": 0.5})


def _append(work: Path, there: Path) -> None:
    store = Store(there / "runs.jsonl")
    for number in range(20, 60):
        store.add({"number": number}, {"loss": 0.5, "long": "x" * 20_000})
        if number % 10 == 9:
            store.pack()


def _check_records(there: Path) -> str | None:
    numbers = [record["run"]["number"] for record in Store(there / "runs.jsonl")]
    wanted = set(range(20)) | set(range(20, max(numbers, default=0) + 1))
    return None if wanted <= set(numbers) else f"records lost: {sorted(wanted - set(numbers))[:5]}"


SOURCE = Source(
    "made", "Made", "page", "none", ROWS, 2, "odd", (File("made.csv"),), Layout("csv", 1.0)
)  # a file that a person downloads, so that no server is needed


def _given_file(work: Path, there: Path) -> None:
    (there / "raw" / "made").mkdir(parents=True)
    (there / "raw" / "made" / "made.csv").write_text("\n".join(LINES) + "\n")


def _cache(work: Path, there: Path) -> None:
    prepare_cache(SOURCE, there)


def _check_cache(there: Path) -> str | None:
    path = there / "made.parquet"
    if not (there / "raw" / "made" / "made.csv").exists():
        return "the user's own file is gone"
    if not path.exists():
        return None  # nothing yet, and the next call makes it
    try:
        checked_digest(path)
        rows = len(read_parquet(path).y)
    except ValueError as error:
        return f"the cache cannot be read: {error}"
    return None if rows == ROWS else f"{rows} rows in the cache"


OLD_PAGE = "<!doctype html><title>old</title></html>\n"


def _old_page(work: Path, there: Path) -> None:
    (there / "report.html").write_text(OLD_PAGE)


def _report(work: Path, there: Path) -> None:
    write_report(work / "records.jsonl", there / "report.html", figures=False)


def _check_page(there: Path) -> str | None:
    text = (there / "report.html").read_text("utf-8") if (there / "report.html").exists() else ""
    whole = text.startswith("<!doctype html>") and text.rstrip().endswith("</html>")
    return None if whole else f"a page of {len(text):,} characters that is not whole"


WRITERS: Mapping[str, Writer] = {
    "model": Writer(_copy_model, _save_model, _check_model),
    "predictions": Writer(_old_predictions, _predict, _check_predictions),
    "records": Writer(_old_records, _append, _check_records),
    "cache": Writer(_given_file, _cache, _check_cache),
    "report": Writer(_old_page, _report, _check_page),
}
