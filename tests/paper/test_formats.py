import bz2
import gzip
import lzma
import re
import subprocess
import sys
import time
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from metricgrad.paper.formats import Arrays, Layout, outline_parquet, read_blocks, read_parquet, write_parquet

LIBSVM = b"+1 1:0.5 3:-2\n-1 2:1e-3\n-1 \n+1 1:7 2:8 3:9\n"
SPARSE = Layout("libsvm", positive=1, columns=("a", "b", "c"))
DENSE = [[0.5, 0, -2], [0, 1e-3, 0], [0, 0, 0], [7, 8, 9]]


def whole(path: Path, layout: Layout, rows: int = 3) -> Arrays:
    blocks = list(read_blocks(path, layout, rows))
    assert all(len(block.y) <= rows for block in blocks)
    X, y = np.concatenate([block.X for block in blocks]), np.concatenate([block.y for block in blocks])
    assert (X.dtype, y.dtype) == (np.float32, np.int8)
    return Arrays(X, y, blocks[0].features)


def written(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    ("suffix", "pack"),
    [("", bytes), (".t", bytes), (".bz2", bz2.compress), (".xz", lzma.compress), (".gz", gzip.compress)],
)
def test_libsvm_text_is_read_packed_or_not(tmp_path: Path, suffix: str, pack: type) -> None:
    path = tmp_path / f"data{suffix}"
    path.write_bytes(pack(LIBSVM))
    found = whole(path, SPARSE)
    assert np.array_equal(found.X, np.array(DENSE, dtype=np.float32))
    assert found.y.tolist() == [1, 0, 0, 1]
    assert found.features == ("a", "b", "c")


def test_text_with_a_header_gives_the_features_their_names_and_loses_what_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "train.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("train.csv", "ID_code,target,v0,v1\ntrain_0,0,1.5,-1\ntrain_1,1,2,3\n")
    found = whole(path, Layout("csv", positive=1, drop=("ID_code",)))
    assert found.features == ("v0", "v1")
    assert found.X.tolist() == [[1.5, -1], [2, 3]]
    assert found.y.tolist() == [0, 1]


def test_text_without_a_header_takes_its_names_from_the_layout(tmp_path: Path) -> None:
    path = tmp_path / "data.txt"
    path.write_text("74\t85\t123\t1\n255\t0\t3\t2\n" * 4)
    found = whole(path, Layout("csv", positive=2, columns=("B", "G", "R", "target"), separator="\t"))
    assert found.features == ("B", "G", "R")
    assert found.X.shape == (8, 3)
    assert found.y.tolist() == [0, 1] * 4


def test_arff_is_read_by_its_own_header(tmp_path: Path) -> None:
    path = tmp_path / "data.arff"
    path.write_text(
        '% a comment, 6" long\n'
        "@RELATION 'r'\n@ATTRIBUTE Time REAL\n@attribute 'V1' real\n@ATTRIBUTE Class {'0', '1'}\n\n"
        "@DATA\n0,-1.25,'0'\n1,2.5,'1'\n"
    )
    found = whole(path, Layout("arff", positive=1, target="Class", drop=("Time",)))
    assert found.features == ("V1",)
    assert found.X.tolist() == [[-1.25], [2.5]]
    assert found.y.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("name", "content", "layout", "message"),
    [
        ("a", b"+1 1:x\n", SPARSE, "a cannot be read as libsvm"),
        ("a", b"+1 4:1\n", SPARSE, "a cannot be read as libsvm"),
        ("a.bz2", bz2.compress(LIBSVM)[:-8], SPARSE, "a.bz2 cannot be read as libsvm: Compressed file ended"),
        ("a.xz", b"<html>", SPARSE, "a.xz cannot be read as libsvm"),
        ("a.gz", gzip.compress(b"1,2\n" * 99)[:-9], Layout("csv", 1, ("x", "target")), "a.gz cannot be read as csv"),
        ("a.zip", b"<html>", Layout("csv", 1), "a.zip cannot be read as csv: File is not a zip file"),
        ("a.csv", b"x,target\none,1\n", Layout("csv", 1), "a.csv cannot be read as csv: could not convert"),
        ("a.csv", b"x,y\n1,1\n", Layout("csv", 1), "there must be a column 'target', got .'x', 'y'"),
        ("a.csv", b"x,target\n,1\n", Layout("csv", 1), "feature 'x' must be finite, got nan"),
        ("a.csv", b"x,target\n1,\n", Layout("csv", 1), "every line must have a label in 'target', got 1 without"),
        ("a", b"+1 1152921504606846976:1\n", SPARSE, "a cannot be read as libsvm"),
        ("a.arff", b"@attribute\n@data\n1\n", Layout("arff", 1), "a.arff .* @attribute with a name, got '@attr"),
        ("a.arff", b"@attribute a real\n@attribute target real\n@data\n1,2,0\n", Layout("arff", 1), "more values than"),
        ("a.arff", b"@relation r\n", Layout("arff", 1), "a.arff cannot be read as arff: there must be a line @data"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, content: bytes, layout: Layout, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        list(read_blocks(tmp_path / name, layout))


MANY = ",".join(["a"] * 1_000_000)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize(
    ("content", "layout", "message"),
    [
        (MANY + "\n1\n", Layout("csv", 1), "at most 10,000 columns, got 524,289 or more"),
        (MANY[:99_999] + "\n1\n", Layout("csv", 1), "at most 10,000 columns, got 50,000 or more"),
        ("\n" * 2**20 + MANY[:99_999] + "\n1\n", Layout("csv", 1), "at most 10,000 columns, got 50,000 or more"),
        ('a,"\n",' + MANY[:99_999] + "\n1\n", Layout("csv", 1), "names must end on the line they begin on"),
        ("@attribute a real\n" * 10_001 + "@data\n1\n", Layout("arff", 1), "1 to 10,000 lines @attribute"),
        ("x,target\n" + "1" * 3_000_000, Layout("csv", 1), "a line must have at most 1,048,576 bytes"),
        ("+1 1:" + "1" * 3_000_000, SPARSE, "a line must have at most 1,048,576 bytes"),
        ("@attribute " + "a" * 3_000_000, Layout("arff", 1), "a line must have at most 1,048,576 bytes"),
        ("x,target\n" + "w" * 47_000 + ",1\n", Layout("csv", 1), "could not convert string to float: 'www"),
        ("x" * 47_000 + ",target\n,1\n", Layout("csv", 1), "feature 'xxx.*47,000 characters. must be finite, got nan"),
        ("x" * 47_000 + ",y\n1,1\n", Layout("csv", 1), "a column 'target', got .'xxx.*47,000 characters., 'y'.$"),
        ("+1 " + "x" * 47_000, SPARSE, ""),
        ("@attribute" + "\x1b" * 47_000 + "\n@data\n1\n", Layout("arff", 1), ""),
    ],
    ids=str.split("million 50,000 blank quote attributes csv libsvm arff cell name header word escape"),
)
def test_what_a_hostile_file_says_is_not_repeated_and_soon_refused(
    tmp_path: Path, suffix: str, content: str, layout: Layout, message: str
) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(gzip.compress(content.encode(), 1) if suffix else content.encode())
    began = time.process_time()
    expected = f"^{re.escape(str(path))} cannot be read as {layout.kind}: .*{message}"
    with pytest.raises(ValueError, match=expected) as caught:
        list(read_blocks(path, layout))
    assert time.process_time() - began < 5
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1_000


def test_a_small_archive_of_one_long_line_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("a.csv", b"1" * 50_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"a\.zip cannot be read as csv: a line must have at most"):
            list(read_blocks(path, Layout("csv", 1)))
        assert tracemalloc.get_traced_memory()[1] < 2e7
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_file_of_many_lines_is_read_however_they_end(tmp_path: Path, end: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(end.join(["x,target", *["1.25,1", "2.5,0"] * 150_000]).encode())
    blocks = list(read_blocks(path, Layout("csv", 1)))
    assert sum(len(block.y) for block in blocks) == 300_000
    assert sum(int(block.y.sum()) for block in blocks) == 150_000


def test_messages_about_a_parquet_file_are_short(tmp_path: Path) -> None:
    for columns in ({"x" * 47_000: [1]}, {"x" * 47_000: ["a"], "target": [1]}, {"x" * 47_000: [np.nan], "target": [1]}):
        with pytest.raises(ValueError, match=r"a cannot be read as a Parquet dataset: .*47,000 characters") as caught:
            read_parquet(written(tmp_path / "a", **columns))
        assert len(str(caught.value)) < 1_000


def test_an_archive_must_hold_one_file(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("one.csv", "")
        archive.writestr("two.csv", "")
    with pytest.raises(ValueError, match=r"must hold one file, got \['one.csv', 'two.csv'\]"):
        list(read_blocks(tmp_path / "a.zip", Layout("csv", 1)))


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    for read in (lambda path: list(read_blocks(path, SPARSE)), read_parquet, outline_parquet):
        with pytest.raises(FileNotFoundError, match="absent does not exist"):
            read(tmp_path / "absent")


@settings(deadline=None, max_examples=50)
@given(
    X=hnp.arrays(np.float32, st.tuples(st.integers(1, 40), st.integers(1, 5)), elements=st.floats(-1e6, 1e6, width=32)),
    cut=st.integers(0, 40),
    data=st.data(),
)
def test_what_is_written_in_blocks_is_read_back_whole(
    tmp_path_factory: pytest.TempPathFactory, X: np.ndarray, cut: int, data: st.DataObject
) -> None:
    y = data.draw(hnp.arrays(np.int8, len(X), elements=st.integers(0, 1)))
    features = tuple(f"f{j}" for j in range(X.shape[1]))
    path = tmp_path_factory.mktemp("blocks") / "data.parquet"
    blocks = [Arrays(X[part], y[part], features) for part in (slice(0, cut), slice(cut, None))]
    assert write_parquet(path, (block for block in blocks if len(block.y))) == len(X)
    found = read_parquet(path)
    assert np.array_equal(found.X, X)
    assert np.array_equal(found.y, y)
    assert found.features == features
    assert outline_parquet(path) == found.outline


def test_integers_booleans_and_doubles_become_float32_wherever_the_target_stands(tmp_path: Path) -> None:
    path = written(
        tmp_path / "data.parquet",
        small=pa.array([1, -2, 3], pa.int8()),
        target=pa.array([0, 1, 1], pa.int8()),
        flag=[True, False, True],
        double=[0.1, 0.2, 0.3],
    )
    found = read_parquet(path)
    assert found.features == ("small", "flag", "double")
    assert np.array_equal(found.X, np.array([[1, 1, 0.1], [-2, 0, 0.2], [3, 1, 0.3]], dtype=np.float32))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [1.0], "y": [1]}, "there must be a column 'target', got .'x', 'y'"),
        ({"x": ["one"], "target": [1]}, "column 'x' must be numeric, got string"),
        ({"x": [1.0, 2.0], "target": [1, 2]}, "column 'target' must hold 0 and 1 only, got 2"),
        ({"x": [1.0, 2.0], "target": [1, None]}, "column 'target' must hold 0 and 1 only, got nan"),
        ({"x": [1.0, None], "target": [1, 0]}, "feature 'x' must be finite, got nan"),
        ({"x": [1.0, 1e300], "target": [1, 0]}, "feature 'x' must be finite, got inf"),
        ({"target": [1, 0]}, "at least one row and one feature"),
        ({"x": pa.array([], pa.float32()), "target": pa.array([], pa.int8())}, "at least one row and one feature"),
    ],
)
def test_a_parquet_file_that_is_no_dataset_is_named(tmp_path: Path, columns: dict, message: str) -> None:
    path = written(tmp_path / "data.parquet", **columns)
    with pytest.raises(ValueError, match=f"data.parquet cannot be read as a Parquet dataset: .*{message}"):
        read_parquet(path)


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b"<html>", lambda b: b[: len(b) // 2]])
def test_a_file_that_is_not_parquet_is_named(tmp_path: Path, damage: type) -> None:
    path = written(tmp_path / "data.parquet", x=np.arange(1000.0), target=np.zeros(1000, np.int8))
    path.write_bytes(damage(path.read_bytes()))
    for read in (read_parquet, outline_parquet):
        with pytest.raises(ValueError, match=r"data.parquet cannot be read as a Parquet dataset"):
            read(path)


MEASURE = """
import resource, sys
from pathlib import Path
from metricgrad.paper.formats import read_parquet
unit = 1 if sys.platform == "darwin" else 1024
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
table = read_parquet(Path(sys.argv[1]))
print(table.X.nbytes, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit)
"""
# On Linux a process starts with the peak of the one that started it: a small one in between keeps pytest's out.
BETWEEN = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', *sys.argv[1:]]).returncode)"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="the standard library measures no peak there")
@pytest.mark.parametrize("row_group", [5_000_000, 65_536])
def test_reading_as_much_as_susy_peaks_below_two_and_a_half_times_the_array(tmp_path: Path, row_group: int) -> None:
    path = tmp_path / "large.parquet"
    column = pa.array(np.random.PCG64(0).random_raw(5_000_000).astype(np.float32))
    target = pa.array(np.arange(5_000_000, dtype=np.int64) % 2, pa.int8())
    table = pa.table([*[column] * 18, target], names=[*(f"f{j}" for j in range(18)), "target"])
    pq.write_table(table, path, row_group_size=row_group, use_dictionary=False, compression="none")
    command = [sys.executable, "-c", BETWEEN, MEASURE, str(path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    path.unlink()
    array, peak = map(int, printed.split())
    assert array == 5_000_000 * 18 * 4
    assert array * 0.9 < peak < array * 2.5  # less than the array itself would mean that nothing was measured


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz", ".zip"])
def test_a_published_file_that_unpacks_to_more_than_the_limit_is_refused(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, path = b"a,target\n" + b"1,0\n" * 50_000, tmp_path / f"data.csv{suffix}"
    if suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("data.csv", content)
    else:
        path.write_bytes({".gz": gzip, ".bz2": bz2, ".xz": lzma}[suffix].compress(content))
    monkeypatch.setenv("METRICGRAD_MAX_UNPACKED_GB", "0.0001")
    with pytest.raises(ValueError, match=r"data.csv.* cannot be read as csv: expected at most 0.0001 GB once unpacked"):
        list(read_blocks(path, Layout("csv", positive=1)))
    monkeypatch.setenv("METRICGRAD_MAX_UNPACKED_GB", "0.001")
    assert sum(len(block.y) for block in read_blocks(path, Layout("csv", positive=1))) == 50_000
