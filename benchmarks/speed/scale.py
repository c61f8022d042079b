"""Five million rows from Parquet, and how a fit grows with rows, features and classes: python -m benchmarks.speed.scale

A script's table, 5,000,000 x 50 in single precision, is written to Parquet in a temporary folder. Memory is counted in
tables: the size of the file's columns, the label included, as a pandas frame, whatever a process holds them as. New
processes read the file into an array, fit a linear model to it, fit one by the function behind `metricgrad fit`, and
score the file by the one behind `metricgrad predict`; each reports its processor time and its peak memory. Also draws
docs/images/scale.png.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import torch

from benchmarks.speed.growth import FIXED_BYTES, peak_memory
from benchmarks.speed.measuring import CHUNK, claim, made_up_table, parser_of, say, spread, store_parts, stored
from metricgrad import MetricClassifier, TableClassifier, load, save
from studies.pages import DOCS, ROOT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "scale"
PICTURE = DOCS / "images" / "scale.png"
ROWS, FEATURES, POSITIVES = 5_000_000, 50, 0.1
MAX_READS, MAX_COPIES, MIN_RATE = 10.0, 1.3, 200_000
GROWTH: Mapping[str, Sequence[int]] = {
    "rows": (5_000, 20_000, 80_000, 320_000),
    "features": (10, 30, 100, 300),
    "classes": (3, 6, 12, 24),
}
"""What is varied, from 20,000 rows, 30 features and two classes."""
LABEL = "label"
READ_AT_ONCE = 1 << 20
"""Bytes of a column."""


# ---- from a file -----------------------------------------------------------------------------------------------------


def write_parquet(path: Path, rows: int, features: int) -> None:
    """Write a synthetic table to Parquet in parts, so that it is never whole in memory."""
    schema = pa.schema([*((f"f{i}", pa.float32()) for i in range(features)), (LABEL, pa.int8())])
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        for number, start in enumerate(range(0, rows, 16 * CHUNK)):
            X, y = made_up_table(min(16 * CHUNK, rows - start), features, POSITIVES, seed=number)
            writer.write_table(pa.table([*(pa.array(column) for column in X.T), pa.array(y)], schema=schema))


def read_parquet(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read features and labels into arrays, part by part; nothing is read ahead, and Arrow keeps nothing."""
    file = pyarrow.parquet.ParquetFile(path, buffer_size=READ_AT_ONCE, pre_buffer=False)
    rows, features = file.metadata.num_rows, file.metadata.num_columns - 1
    X, y, done = np.empty((rows, features), np.float32), np.empty(rows, np.int8), 0
    for batch in file.iter_batches(CHUNK):
        part = slice(done, done + len(batch))
        X[part] = np.stack([batch.column(place).to_numpy() for place in range(features)]).T
        y[part] = batch.column(features).to_numpy()
        done += len(batch)
    pa.default_memory_pool().release_unused()
    return X, y


def run_array(path: Path, model: str) -> dict[str, Any]:
    """Read a file into an array and fit a model to it."""
    begun = time.process_time()
    X, y = read_parquet(path)
    read = time.process_time()
    MetricClassifier("f1", "sl-r", model=model, random_state=0).fit(X, y)
    return {"read_seconds": read - begun, "seconds": time.process_time() - read, "bytes": X.nbytes + y.nbytes}


def run_fit(path: Path, model: str) -> dict[str, Any]:
    """Do what `metricgrad fit` does: read a table of any columns, infer their kinds, encode and fit."""
    from metricgrad.tabular.io import read_table

    begun = time.process_time()
    held = [read_table(path, text_columns=[LABEL])]
    read = time.process_time()
    size = int(held[0].memory_usage(index=False).sum())
    fitted = TableClassifier("f1", "sl-r", model=model, random_state=0).fit(
        held.pop(), LABEL
    )  # as the command: held nowhere
    save(fitted, path.with_suffix(".model"))
    return {"read_seconds": read - begun, "seconds": time.process_time() - read, "bytes": size}


def run_predict(path: Path, model: str) -> dict[str, Any]:
    """Do what `metricgrad predict` does with the model that `run_fit` saved."""
    from metricgrad.tabular.batch_predict import write_predictions

    fitted = load(path.with_suffix(".model"))
    begun = time.process_time()
    rows = write_predictions(fitted, path, path.with_suffix(".csv"))
    return {"rows": rows, "seconds": time.process_time() - begun}


RUNS = {"array": run_array, "fit": run_fit, "predict": run_predict}


def in_new_process(run: str, path: Path, model: str) -> dict[str, Any]:
    """Carry out one of the runs in a process of its own, and return what it measured."""
    say(f"{run}: {model}, {path.name}")
    asked = [sys.executable, "-m", f"benchmarks.speed.{NAME}", "--run", run, "--path", str(path), "--model", model]
    done = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def from_file(rows: int, features: int, model: str) -> dict[str, Any]:
    """Write a table, and carry out all runs on it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.parquet"
        say(f"writing {rows:,} x {features}")
        write_parquet(path, rows, features)
        found = {run: in_new_process(run, path, model) for run in RUNS}
        return {"rows": rows, "features": features, "model": model, "file_bytes": path.stat().st_size, **found}


# ---- growth ----------------------------------------------------------------------------------------------------------


def class_table(rows: int, features: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return a synthetic table of several classes."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, features), np.float32)
    drift = X @ rng.standard_normal((features, classes)) / features**0.5
    return X, (2 * drift + rng.gumbel(size=drift.shape)).argmax(1)


def fit_seconds(varied: str, value: int, model: str, method: str) -> float:
    """Return the processor time of a fit in which one size is changed."""
    size = {"rows": 20_000, "features": 30, "classes": 2, varied: value}
    if size["classes"] > 2:
        X, y = class_table(size["rows"], size["features"], size["classes"])
    else:
        X, y = made_up_table(size["rows"], size["features"], POSITIVES)
    metric = "macro_f1" if size["classes"] > 2 else "f1"
    begun = time.process_time()
    MetricClassifier(metric, method, model, random_state=0).fit(X, y)
    return time.process_time() - begun


def growth(models: Sequence[str], repeats: int) -> list[dict[str, Any]]:
    """Time fits of growing size: the least of some, since whatever else runs only adds to it."""
    found = []
    for varied, values in GROWTH.items():
        for model in models:
            for value in values:
                say(f"{model}: {value:,} {varied}")
                seconds = min(fit_seconds(varied, value, model, "sl-r") for _ in range(repeats))
                found.append({"varied": varied, "model": model, "value": value, "seconds": seconds})
    return found


def slope(values: Sequence[float], seconds: Sequence[float]) -> float:
    """Return the exponent of growth: the slope of a line through the logarithms."""
    return float(np.polyfit(np.log(values), np.log(seconds), 1)[0])


def slopes(cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the exponent for each varied size and model, overall and over the last step."""
    found = []
    for varied in GROWTH:
        for model in dict.fromkeys(case["model"] for case in cases):
            own = [case for case in cases if (case["varied"], case["model"]) == (varied, model)]
            values, seconds = [case["value"] for case in own], [case["seconds"] for case in own]
            both = {"slope": slope(values, seconds), "last_slope": slope(values[-2:], seconds[-2:])}
            found.append({"varied": varied, "model": model, **both})
    return found


def draw(record: Mapping[str, Any]) -> Figure:
    """Draw seconds against rows, features and classes, with the slope of each line."""
    import matplotlib.pyplot as plt  # the processes that are measured draw nothing

    figure, panels = plt.subplots(1, len(GROWTH), figsize=(10, 3.4), layout="constrained", sharey=True)
    for panel, varied in zip(panels, GROWTH, strict=True):
        for line in record["slopes"]:
            if line["varied"] == varied:
                own = [c for c in record["cases"] if (c["varied"], c["model"]) == (varied, line["model"])]
                points = [c["value"] for c in own], [c["seconds"] for c in own]
                panel.plot(*points, marker="o", label=f"{line['model']}, slope {line['slope']:.2f}")
        panel.set(xscale="log", yscale="log", xlabel=varied)
        panel.set_xticks(GROWTH[varied], [f"{value:,}" for value in GROWTH[varied]], fontsize=8)
        panel.minorticks_off()
        panel.legend(frameon=False, fontsize=8)
    panels[0].set_ylabel("seconds of fit")
    return figure


def claims_of(record: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Compare what was measured on the large table with the bars."""
    large = record["large"]
    size = f"{large['rows']:,} x {large['features']}"
    claims = []
    for way, says in (("array", "fit, linear, of an array"), ("fit", "metricgrad fit, linear")):
        one = large[way]
        times, copies = one["seconds"] / one["read_seconds"], copies_of(one)
        claims += [
            claim(f"{says}, {size}, times as long as reading it from Parquet", spread([times]), at_most=MAX_READS),
            claim(f"{says}, {size}, peak memory less 600 MB, in tables", spread([copies]), at_most=MAX_COPIES),
        ]
    rate = large["predict"]["rows"] / large["predict"]["seconds"]
    says = "rows that predict streams from Parquet to CSV in a second"
    return [*claims, claim(says, spread([rate]), at_least=MIN_RATE)]


def copies_of(one: Mapping[str, Any]) -> float:
    """Return the peak memory of a run in tables, less what a process takes without any."""
    return float((one["peak_bytes"] - FIXED_BYTES) / one["bytes"])


def main() -> int:
    parser = parser_of(__doc__, repeats=2)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--parts", default="large,growth", help="what to measure; others stay as they are stored")
    parser.add_argument("--models", default="linear,mlp", help="whose growth is measured")
    parser.add_argument("--run", choices=RUNS, help="only this, and print what it measured")
    parser.add_argument("--path", type=Path)
    parser.add_argument("--model", default="linear")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    if asked.run:
        print(json.dumps({**RUNS[asked.run](asked.path, asked.model), "peak_bytes": peak_memory()}))
        return 0
    found: dict[str, Any] = {}
    if "large" in asked.parts.split(","):
        found["large"] = from_file(asked.rows, FEATURES, asked.model)
    if "growth" in asked.parts.split(","):
        cases = growth(asked.models.split(","), asked.repeats)
        found |= {"cases": cases, "slopes": slopes(cases)}
    missed = store_parts(NAME, found, claims_of, asked.folder)
    draw(stored(NAME, asked.folder)).savefig(PICTURE, dpi=130)
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
