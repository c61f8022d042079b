"""Damaged input files of every format that is read: each is read as a table, or refused in one line."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.random import Generator, default_rng
from sklearn.datasets import dump_svmlight_file

from metricgrad.paper.formats import Layout, read_blocks, read_parquet
from metricgrad.tabular.io import read_table
from metricgrad.tabular.schema import infer_columns
from studies.reliability.damage import DAMAGES
from studies.reliability.tables import save_models, small_table
from studies.reliability.verdicts import REFUSED, of_call, of_command, worse
from studies.reliability.workers import as_record

CASES, SECONDS, PEAK_MB = 2_000, 60.0, 1_024
"""How many cases, and the most seconds and memory one may take."""
BETWEEN = 50
"""Of so many cases one is not damaged by chance but made to do harm, until each of these was tried."""
EVERY = 4
"""Of so many damaged tables of a user's one is also given to the command, which takes longer."""
ROWS = 200
LABELS = Layout("libsvm", 1.0, ("a", "b", "c"))
PLAIN, ARFF = Layout("csv", 1.0), Layout("arff", 1.0)
Pack = Callable[[bytes], bytes]


def zipped(content: bytes) -> bytes:
    """Pack a file in a zip archive."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data", content)
    return out.getvalue()


PACKS: Mapping[str, Pack] = {
    "": lambda content: content,
    ".gz": lambda content: gzip.compress(content, mtime=0),
    ".zip": zipped,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
}


def prepare(work: Path) -> None:
    """Save the model that files are given to by the command."""
    if not (work / "linear").exists():
        save_models(work)


def attempt(work: Path, seed: int, case: int) -> Mapping[str, Any]:
    """Damage a file in one or two ways and read it: a table of a user's, or a dataset as it is published."""
    rng = default_rng((seed, case))
    with tempfile.TemporaryDirectory(prefix="metricgrad-attack-") as name:
        harmful = case % BETWEEN == 0 and case // BETWEEN < len(HARMFUL)
        kind, path = (_harmful if harmful else _damaged)(Path(name), rng, case)
        if path.name.startswith("set."):
            return as_record(kind, of_call(lambda: _read_published(path), _wrong_with_blocks))
        verdict = of_call(lambda: read_table(path), _wrong_with_table)
        if (harmful or case % EVERY == 0) and verdict.outcome == REFUSED:
            verdict = worse(verdict, of_command(["predict", str(work / "linear"), str(path)]))
        return as_record(kind, verdict)


def _damaged(folder: Path, rng: Generator, case: int) -> tuple[str, Path]:
    kind, path = (_published if case % 2 else _own_table)(folder, rng)
    for _ in range(int(rng.integers(1, 3))):
        change = DAMAGES[int(rng.integers(0, len(DAMAGES)))]
        kind += f"+{change.__name__}"
        path.write_bytes(change(path.read_bytes(), rng))
    return kind, path


def _harmful(folder: Path, rng: Generator, case: int) -> tuple[str, Path]:
    kind, name, content = HARMFUL[case // BETWEEN]
    path = folder / name
    path.write_bytes(content())
    return kind, path


# ---- files ---------------------------------------------------------------------------------------------------------


def _own_table(folder: Path, rng: Generator) -> tuple[str, Path]:
    """Write a table as users have them, and return what it is called and where it is."""
    frame = small_table(ROWS, seed=int(rng.integers(0, 5)))
    text = frame.to_csv(index=False, sep=str(rng.choice([",", "\t", ";"])))
    written: Mapping[str, Callable[[], bytes]] = {
        "csv": lambda: text.encode(str(rng.choice(["utf-8", "utf-8-sig", "utf-16", "latin-1"]))),
        "parquet": lambda: _parquet(frame, str(rng.choice(["snappy", "gzip", "zstd", "none"]))),
        "feather": lambda: _feather(frame),
    }
    form = str(rng.choice(list(written), p=[0.5, 0.35, 0.15]))
    suffix = str(rng.choice(["", ".gz", ".zip"]))
    path = folder / f"table.{form}{suffix}"
    path.write_bytes(PACKS[suffix](written[form]()))
    return f"{form}{suffix}", path


def _published(folder: Path, rng: Generator) -> tuple[str, Path]:
    """Write a dataset as they are published, and return what it is called and where it is."""
    numbers = rng.normal(size=(ROWS, 3)).round(4).astype(np.float32)
    target = (rng.random(ROWS) < 0.3).astype(np.int8)
    frame = pd.DataFrame(numbers, columns=["a", "b", "c"]).assign(target=target)
    svm = io.BytesIO()
    dump_svmlight_file(numbers, target, svm, zero_based=False)
    csv = frame.to_csv(index=False).encode()
    head = b"@relation r\n" + b"".join(f"@attribute '{name}' numeric\n".encode() for name in frame) + b"@data\n"
    written = {
        "libsvm": svm.getvalue(),
        "csv": csv,
        "arff": head + csv.split(b"\n", 1)[1],
        "parquet": _parquet(frame, "zstd"),
    }
    form = str(rng.choice(list(written)))
    suffix = str(rng.choice(list(PACKS))) if form != "parquet" else ""
    path = folder / f"set.{form}{suffix}"
    path.write_bytes(PACKS[suffix](written[form]))
    return f"published {form}{suffix}", path


def _parquet(frame: pd.DataFrame, compression: str) -> bytes:
    out = io.BytesIO()
    frame.to_parquet(out, index=False, compression=None if compression == "none" else compression)  # type: ignore[call-overload]
    return out.getvalue()


def _feather(frame: pd.DataFrame) -> bytes:
    out = io.BytesIO()
    frame.to_feather(out)
    return out.getvalue()


# ---- reading -------------------------------------------------------------------------------------------------------


def _read_published(path: Path) -> list[Any]:
    if ".parquet" in path.name:
        return [read_parquet(path)]
    layout = LABELS if ".libsvm" in path.name else ARFF if ".arff" in path.name else PLAIN
    return list(read_blocks(path, layout))


def _wrong_with_blocks(blocks: list[Any]) -> str | None:
    for block in blocks:
        if not np.isfinite(block.X).all() or not np.isin(block.y, (0, 1)).all() or len(block.X) != len(block.y):
            return "features that are not finite, or targets other than 0 and 1"
    return None


def _wrong_with_table(frame: pd.DataFrame) -> str | None:
    if not len(frame) or frame.columns.has_duplicates:
        return f"{len(frame)} rows, columns {list(frame.columns)[:5]}"
    infer_columns(frame)  # what `fit` does first with any table
    return None


# ---- files that are made to do harm --------------------------------------------------------------------------------


def _bomb(pack: Pack, unpacked: int) -> bytes:
    """Pack a text of one line, of so many MB."""
    return pack(b"a,b\n" + bytes(unpacked << 20))


def _chain(pack: Pack) -> bytes:
    """Pack a GB of zeros, 16 MB at a time: a packed file may be many, one after the other."""
    return pack(b"a,b\n") + pack(bytes(1 << 24)) * 64


def _lying_zip(size: int) -> bytes:
    """Return an archive that says its file is of another size than it is."""
    content = bytearray(zipped(b"a,b\n1,2\n" * 100))
    central = content.rfind(b"PK\x01\x02")
    content[central + 24 : central + 28] = size.to_bytes(4, "little")
    return bytes(content)


def _locked_zip() -> bytes:
    """Return an archive that says its file is encrypted."""
    content = bytearray(zipped(b"a,b\n1,2\n"))
    content[6] |= 1
    content[content.rfind(b"PK\x01\x02") + 8] |= 1
    return bytes(content)


def _many_members() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(500):
            archive.writestr(f"{'../' * 9}{number}", b"a,b\n1,2\n")
    return out.getvalue()


def _claims_rows() -> bytes:
    """Return a Parquet file whose footer claims other numbers of rows than there are."""
    content = _parquet(small_table(ROWS), "none")
    tail = content[-2_000:]
    return content[:-2_000] + tail.replace(b"\x90\x03", b"\xfe\xff\xff\xff\x0f")


HARMFUL: tuple[tuple[str, str, Callable[[], bytes]], ...] = (
    ("gzip of gzip", "table", lambda: gzip.compress(gzip.compress(b"a,b\n1,2\n"))),
    ("zip that says 4 GB", "table", lambda: _lying_zip(2**32 - 1)),
    ("zip that says 0 bytes", "table", lambda: _lying_zip(0)),
    ("zip with a password", "table", _locked_zip),
    ("zip of 500 files", "table", _many_members),
    ("a million columns", "table", lambda: b",".join(b"c%d" % number for number in range(1_000_000)) + b"\n1,2\n"),
    ("a cell of 50 MB", "table", lambda: b"a,b\n1," + b"x" * (50 << 20) + b"\n"),
    ("an open quote", "table", lambda: b'a,b\n1,"' + b"x,\n" * 100_000),
    ("quotes only", "table", lambda: b'"' * 1_000_001),
    ("separators only", "table", lambda: b"," * 1_000_000 + b"\n" + b"," * 1_000_000),
    ("zeros", "table", lambda: bytes(1 << 20)),
    ("line breaks", "table", lambda: b"\n" * 1_000_000),
    ("terminal codes for names", "table", lambda: b"\x1b[2J\x1b[31m,b\n1\n"),
    ("one very long name", "table", lambda: b"a" * 1_000_000 + b",b\n1\n"),
    ("Parquet that says more rows", "table", _claims_rows),
    ("Parquet of 4 bytes", "table", lambda: b"PAR1"),
    (
        "Parquet with a footer of 2 GB",
        "table",
        lambda: b"PAR1" + bytes(100) + (2**31 - 1).to_bytes(4, "little") + b"PAR1",
    ),
    ("Feather of 6 bytes", "table", lambda: b"ARROW1"),
    (
        "Feather with a footer of 2 GB",
        "table",
        lambda: b"ARROW1\0\0" + bytes(64) + (2**31 - 1).to_bytes(4, "little") + b"ARROW1",
    ),
    ("LIBSVM with an index of 2^60", "set.libsvm", lambda: b"1 1152921504606846976:1\n"),
    ("LIBSVM with an index of 0", "set.libsvm", lambda: b"1 0:1\n"),
    ("gzip of 200 MB without a break", "table", lambda: _bomb(PACKS[".gz"], 200)),
    ("zip of 200 MB without a break", "table", lambda: _bomb(zipped, 200)),
    ("gzip of a GB", "table", lambda: _chain(PACKS[".gz"])),
    ("published gzip of a GB", "set.csv.gz", lambda: _chain(PACKS[".gz"])),
    ("published bzip2 of a GB", "set.libsvm.bz2", lambda: _chain(PACKS[".bz2"])),
    ("published xz of a GB", "set.arff.xz", lambda: _chain(PACKS[".xz"])),
    ("published zip of 200 MB without a break", "set.csv.zip", lambda: _bomb(zipped, 200)),
    ("published zip with a password", "set.csv.zip", _locked_zip),
    ("published CSV of a million columns", "set.csv", lambda: b",".join([b"c"] * 1_000_000) + b"\n"),
    ("ARFF without data", "set.arff", lambda: b"@attribute a numeric\n" * 10_000),
    ("ARFF in one long line", "set.arff", lambda: b"@attribute " * 1_000_000),
    ("nothing", "table", lambda: b""),
    ("published nothing", "set.libsvm", lambda: b""),
)
"""Files made to do harm: what each is, its name, and its bytes."""
