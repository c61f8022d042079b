import bz2
import gzip
import hashlib
import json
import lzma
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from loopback import Server, serving

from metricgrad.paper import datasets
from metricgrad.paper.datasets import SOURCES, Dataset, cache_folder, describe, load_dataset, names, table1
from metricgrad.paper.formats import Layout
from metricgrad.paper.sources import File, Source

REAL = os.environ.get("METRICGRAD_DATA")
LINES = b"+1 1:0.5 2:1\n-1 2:3\n-1 1:4\n"
MORE = b"-1 1:1 2:2\n+1 2:0.25\n"
TINY = Source(
    name="tiny",
    title="Tiny",
    page="https://example.org/tiny",
    licence="none",
    rows=5,
    features=2,
    positive="label 1",
    layout=Layout("libsvm", positive=1, columns=("f1", "f2")),
)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every test out of the user's own folders and off the network."""
    monkeypatch.setenv("METRICGRAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("METRICGRAD_DATA", raising=False)
    monkeypatch.setenv("no_proxy", "*")
    return tmp_path / "cache"


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(
        **{"tiny": LINES, "tiny.t": MORE, "tiny.bz2": bz2.compress(LINES), "tiny.t.xz": lzma.compress(MORE)}
    ) as s:
        yield s


def served(server: Server, *names: str, **changes: object) -> dict[str, Source]:
    files = tuple(File(name, f"{server.url}/{name}") for name in names)
    return {"tiny": replace(TINY, **{"files": files, **changes})}


def put(folder: Path, name: str, rows: int, features: int) -> Path:
    """Write a made-up dataset to a folder as Parquet."""
    folder.mkdir(exist_ok=True)
    columns = {f"f{j}": np.arange(rows, dtype=np.float32) for j in range(features)}
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({**columns, "target": (np.arange(rows) % 2).astype(np.int8)}), path)
    return path


def contents(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


# The table of sources


def test_the_papers_nine_and_two_that_need_no_file_are_known() -> None:
    nine = ["a9a", "ccfraud", "codrna", "covtype", "ijcnn1", "porto", "santander", "skin", "susy"]
    assert names() == (*nine, "digits8", "breast_cancer")
    assert [source.name for source in SOURCES.values() if source.paper] == nine


def test_every_source_says_where_it_comes_from_and_under_what_terms() -> None:
    for source in SOURCES.values():
        assert source.page.startswith("https://")
        assert source.licence
        assert source.positive
        assert bool(source.files) == bool(source.layout) == bool(source.paper)
        assert all(len(digest) == 64 for digest in source.copies)
        if source.layout and source.layout.columns:
            assert len([name for name in source.layout.columns if name != "target"]) == source.features


def test_the_papers_table_is_as_printed_and_ours_has_the_ijcnn_rows_once() -> None:
    assert sum(source.paper.rows for source in SOURCES.values() if source.paper) == 7_600_176
    for source in SOURCES.values():
        if source.paper and source.name != "ijcnn1":
            assert (source.rows, source.features) == (source.paper.rows, source.paper.features)
    ijcnn = describe("ijcnn1")
    assert ijcnn.paper
    assert ijcnn.paper.rows - ijcnn.rows == 14_990
    assert [file.name for file in ijcnn.files] == ["ijcnn1.bz2", "ijcnn1.t.bz2"]
    assert "twice" in ijcnn.remark


@pytest.mark.parametrize(
    ("name", "near"), [("ijcnn", "ijcnn1"), ("A9A", "a9a"), ("digits", "digits8"), ("xyzzy", "a9a, ccfraud, codrna")]
)
def test_an_unknown_name_gets_the_near_ones(name: str, near: str) -> None:
    with pytest.raises(ValueError, match=f"name must be a known dataset, got '{name}'; similar names: {near}"):
        load_dataset(name)


# Sets that need no file


@pytest.mark.parametrize(
    ("name", "shape", "share"), [("digits8", (1797, 64), 174 / 1797), ("breast_cancer", (569, 30), 212 / 569)]
)
def test_embedded_sets_need_no_folder(
    name: str, shape: tuple[int, int], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("METRICGRAD_DATA", "/nowhere/at/all")
    found = load_dataset(name, download=False)
    assert (found.X.shape, found.X.dtype, found.y.dtype) == (shape, np.float32, np.int8)
    assert found.positive_share == pytest.approx(share)
    assert len(found.features) == shape[1]
    assert (found.subset, found.verified, found.path, found.label) == (None, True, None, name)


# The user's folder


def test_a_folder_comes_before_the_cache_and_an_argument_before_the_variable(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [put(folder, "skin", 10, 3) for folder in (cache, tmp_path / "variable", tmp_path / "argument")]
    assert load_dataset("skin").path == paths[0]
    monkeypatch.setenv("METRICGRAD_DATA", str(tmp_path / "variable"))
    assert load_dataset("skin").path == paths[1]
    assert load_dataset("skin", tmp_path / "argument").path == paths[2]


def test_a_users_own_file_is_used_but_not_called_verified(tmp_path: Path) -> None:
    path = put(tmp_path / "own", "skin", 2450, 3)
    found = load_dataset("skin", tmp_path / "own")
    assert not found.verified
    assert found.subset == "1 % of the rows"
    known = {"skin": replace(SOURCES["skin"], copies={hashlib.sha256(path.read_bytes()).hexdigest(): "a known part"})}
    found = load_dataset("skin", tmp_path / "own", sources=known)
    assert found.verified
    assert found.label == "skin (subset: a known part)"
    assert "a known part" in repr(found)


@pytest.mark.parametrize(
    ("rows", "features", "subset"),
    [
        (1000, 3, None),
        (999, 3, "all but 1 rows"),
        (6, 3, "0.6 % of the rows"),
        (500, 2, "50 % of the rows, 2 of 3 features"),
    ],
)
def test_a_subset_says_what_it_lacks(tmp_path: Path, rows: int, features: int, subset: str | None) -> None:
    put(tmp_path / "own", "skin", rows, features)
    source = {"skin": replace(SOURCES["skin"], rows=1000)}
    assert load_dataset("skin", tmp_path / "own", sources=source).subset == subset
    [row] = table1(tmp_path / "own", sources=source)
    assert row.status == (f"subset: {subset}" if subset else "complete")
    assert row.ours
    assert (row.ours.rows, row.ours.features) == (rows, features)


def test_rows_given_twice_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "own", "ijcnn1", 156_681, 22)
    with pytest.raises(ValueError, match=r"ijcnn1.parquet has 156681 rows, but the whole of ijcnn1 has 141691"):
        load_dataset("ijcnn1", tmp_path / "own")


@pytest.mark.parametrize("use", [load_dataset, lambda name, folder=None: table1(folder)])
def test_a_folder_that_is_not_there_is_named(use: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError, match=r"data_dir must be a folder of Parquet files, got '.*absent'"):
        use("a9a", tmp_path / "absent")
    monkeypatch.setenv("METRICGRAD_DATA", str(tmp_path / "gone"))
    with pytest.raises(FileNotFoundError, match=r"METRICGRAD_DATA must be a folder of Parquet files, got '.*gone'"):
        use("a9a")


def test_an_unreadable_file_is_named_by_load_and_shown_in_the_table(tmp_path: Path) -> None:
    put(tmp_path / "own", "skin", 10, 3).write_bytes(b"<html>")
    with pytest.raises(ValueError, match=r"skin.parquet cannot be read as a Parquet dataset"):
        load_dataset("skin", tmp_path / "own")
    row = {row.name: row for row in table1(tmp_path / "own")}["skin"]
    assert row.ours is None
    assert row.status.startswith("unreadable: ")
    assert "skin.parquet" in row.status


# The cache and the public source


@pytest.mark.parametrize("files", [("tiny", "tiny.t"), ("tiny.bz2", "tiny.t.xz")])
def test_a_set_is_downloaded_converted_once_and_then_read_from_the_cache(
    server: Server, cache: Path, files: tuple[str, str]
) -> None:
    source = served(server, *files)
    seen: list[tuple[int, int | None]] = []
    found = load_dataset("tiny", sources=source, progress=lambda *count: seen.append(count))
    assert found.X.tolist() == [[0.5, 1], [0, 3], [4, 0], [1, 2], [0, 0.25]]
    assert found.y.tolist() == [1, 0, 0, 0, 1]
    assert (found.features, found.subset, found.verified) == (("f1", "f2"), None, True)
    assert seen
    assert contents(cache) == ["tiny.downloads.json", "tiny.lock", "tiny.parquet", "tiny.parquet.sha256"]
    asked = list(server.asked)
    again = load_dataset("tiny", sources=source, download=False)
    assert np.array_equal(again.X, found.X)
    assert server.asked == asked
    [row] = table1(sources=source)
    assert (row.status, row.verified, row.ours and row.ours.rows) == ("complete", True, 5)


def test_asked_for_from_many_places_at_once_a_set_is_downloaded_once(server: Server) -> None:
    source = served(server, "tiny", "tiny.t")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: load_dataset("tiny", sources=source), range(8)))
    assert all(one.verified and len(one.y) == 5 for one in found)
    assert sorted(server.asked) == [("/tiny", None), ("/tiny.t", None)]


LOADING = """
import sys
from metricgrad.paper.datasets import load_dataset
from metricgrad.paper.formats import Layout
from metricgrad.paper.sources import File, Source
layout = Layout("libsvm", positive=1, columns=("f1", "f2"))
files = tuple(File(name, f"{sys.argv[1]}/{name}") for name in ("tiny", "tiny.t"))
tiny = Source("tiny", "Tiny", "page", "none", 5, 2, "label 1", files, layout)
print(len(load_dataset("tiny", sources={"tiny": tiny}).y))
"""


def test_asked_for_by_several_processes_at_once_a_set_is_downloaded_once(server: Server) -> None:
    command = [sys.executable, "-c", LOADING, server.url]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [process.communicate()[0].strip() for process in running] == ["5"] * 3
    assert sorted(server.asked) == [("/tiny", None), ("/tiny.t", None)]


def test_what_a_killed_download_left_is_removed(server: Server, cache: Path) -> None:
    left = cache / "raw" / "tiny" / "tmp1a2b3c"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half")
    load_dataset("tiny", sources=served(server, "tiny", "tiny.t"))
    assert not left.exists()


def test_the_old_name_of_the_function_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="metricgrad.datasets.load is now load_dataset"):
        found = datasets.load("digits8")
    assert found.X.shape == (1797, 64)
    with pytest.raises(AttributeError, match="has no attribute 'fetch_all'"):
        _ = datasets.fetch_all


def test_a_dropped_connection_does_not_show(server: Server) -> None:
    server.cut = [10]
    assert len(load_dataset("tiny", sources=served(server, "tiny", "tiny.t")).y) == 5


def test_a_corrupt_cache_file_is_named_and_made_again_once_deleted(server: Server, cache: Path) -> None:
    source = served(server, "tiny", "tiny.t")
    path = load_dataset("tiny", sources=source).path
    assert path
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    with pytest.raises(ValueError, match=r"tiny.parquet is corrupt: SHA-256 should be \w{64}, got \w{64}; delete it"):
        load_dataset("tiny", sources=source)
    [row] = table1(sources=source)
    assert row.status.startswith(f"unreadable: {path} is corrupt")
    path.unlink()
    assert load_dataset("tiny", sources=source).verified


def test_a_wrong_file_is_refused_by_its_hash(server: Server, cache: Path) -> None:
    wrong = (File("tiny", server.url + "/tiny.t", sha256="0" * 64),)
    with pytest.raises(ValueError, match=f"tiny.t is not the expected file: .*expected {'0' * 64} but got"):
        load_dataset("tiny", sources=served(server, files=wrong))
    assert contents(cache) == ["tiny.lock"]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"<html>moved</html>", "tiny cannot be read as libsvm"), (LINES[:20], "tiny should have 5 rows, got 4 from")],
)
def test_a_wrong_file_without_a_hash_is_refused_by_what_is_in_it(
    server: Server, cache: Path, content: bytes, message: str
) -> None:
    right, server.files["/tiny"] = server.files["/tiny"], content
    source = served(server, "tiny", "tiny.t")
    with pytest.raises(ValueError, match=message):
        load_dataset("tiny", sources=source)
    assert contents(cache) == ["tiny.lock"]
    server.files["/tiny"] = right
    assert len(load_dataset("tiny", sources=source).y) == 5


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"positives": 3}, r"tiny should have 3 positive rows, got 2 from .*tiny"),
        ({"features": 3}, r"tiny should have 3 features, got 2 from .*tiny"),
    ],
)
def test_a_file_with_other_counts_than_are_known_is_refused_and_not_trusted(
    server: Server, cache: Path, changes: dict[str, int], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        load_dataset("tiny", sources=served(server, "tiny", "tiny.t", **changes))
    assert contents(cache) == ["tiny.lock"]


def test_a_file_without_a_published_hash_is_trusted_on_first_use_and_refused_once_it_changes(
    server: Server, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = served(server, "tiny", "tiny.t", positives=2)
    path = load_dataset("tiny", sources=source).path
    [said] = caplog.messages
    assert "tiny: no SHA-256 is published for tiny, tiny.t; the number of rows, features and positives is as" in said
    record = cache / "tiny.downloads.json"
    assert str(record) in said
    digests = {name: hashlib.sha256(server.files[f"/{name}"]).hexdigest() for name in ("tiny", "tiny.t")}
    assert json.loads(record.read_text()) == digests
    path.unlink()
    load_dataset("tiny", sources=source)
    assert len(caplog.messages) == 1
    path.unlink()
    server.files["/tiny"] = LINES.replace(b"0.5", b"0.6")  # rows, features and positives are the same
    with pytest.raises(ValueError, match=f"/tiny is not the expected file: .*expected {digests['tiny']}") as e:
        load_dataset("tiny", sources=source)
    assert f"the expected hash is that of the first download, since the publisher gives none: delete {record}" in str(
        e.value
    )
    assert not path.exists()
    record.unlink()
    assert load_dataset("tiny", sources=source).X[0, 0] == np.float32(0.6)


def test_a_published_hash_needs_no_record(server: Server, cache: Path, caplog: pytest.LogCaptureFixture) -> None:
    files = tuple(
        File(name, f"{server.url}/{name}", hashlib.sha256(server.files[f"/{name}"]).hexdigest())
        for name in ("tiny", "tiny.t")
    )
    load_dataset("tiny", sources=served(server, files=files))
    assert caplog.messages == []
    assert contents(cache) == ["tiny.lock", "tiny.parquet", "tiny.parquet.sha256"]


def test_a_damaged_record_of_hashes_is_named(server: Server, cache: Path) -> None:
    cache.mkdir()
    (cache / "tiny.downloads.json").write_text("[1")
    with pytest.raises(ValueError, match=r"tiny.downloads.json: expected hashes of downloaded files in JSON, got"):
        load_dataset("tiny", sources=served(server, "tiny", "tiny.t"))


def test_a_file_that_moved_is_named(server: Server) -> None:
    with pytest.raises(FileNotFoundError, match=r"/gone does not exist: the server answered 404"):
        load_dataset("tiny", sources=served(server, "gone"))


def test_nothing_is_downloaded_unless_allowed(server: Server) -> None:
    source = served(server, "tiny")
    with pytest.raises(
        FileNotFoundError, match=r"tiny is not on this machine: load it with download=True .*METRICGRAD_DATA"
    ):
        load_dataset("tiny", download=False, sources=source)
    [row] = table1(sources=source)
    assert row.status.startswith("missing: tiny is not on this machine")
    assert server.asked == []


@pytest.mark.parametrize("name", ["porto", "santander"])
@pytest.mark.parametrize("download", [True, False])
def test_what_only_a_person_can_download_is_explained(name: str, download: bool, cache: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        load_dataset(name, download=download)
    for part in ("train.csv", describe(name).page, str(cache / "raw" / name / "train.csv"), f"{name}.parquet"):
        assert part in str(caught.value)


@pytest.mark.parametrize("packed", [False, True])
def test_what_a_person_put_there_is_converted_and_left_alone(cache: Path, packed: bool) -> None:
    raw = cache / "raw" / "santander"
    raw.mkdir(parents=True)
    text = "ID_code,target,var_0,var_1\ntrain_0,0,1,2\ntrain_1,1,3,4\n"
    if packed:
        with zipfile.ZipFile(raw / "train.csv.zip", "w") as archive:
            archive.writestr("train.csv", text)
    else:
        (raw / "train.csv").write_text(text)
    small = {"santander": replace(SOURCES["santander"], rows=2, features=2)}
    found = load_dataset("santander", sources=small)
    assert found.X.tolist() == [[1, 2], [3, 4]]
    assert len(contents(raw)) == 1
    (cache / "santander.parquet").unlink()
    with pytest.raises(ValueError, match=r"santander should have 200000 rows, got 2 from .*train.csv"):
        load_dataset("santander")
    assert len(contents(raw)) == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("skin", b"1\t2\t3\t1\n4\t5\t6\t2\n"),
        (
            "susy",
            gzip.compress(b"".join(b"%d.0e+00," % y + b",".join([b"%d.5e-01" % (y + 1)] * 18) + b"\n" for y in (0, 1))),
        ),
        ("covtype", gzip.compress(b"".join(b",".join([b"7"] * 54) + b",%d\n" % kind for kind in (1, 2)))),
        (
            "ccfraud",
            b"@relation c\n@attribute Time real\n"
            + b"".join(b"@attribute V%d real\n" % i for i in range(1, 29))
            + b"@attribute Amount real\n@attribute Class {'0','1'}\n@data\n"
            + b"".join(b",".join([b"0.5"] * 30) + b",'%d'\n" % y for y in (0, 1)),
        ),
    ],
)
def test_each_published_layout_gives_the_features_the_source_promises(name: str, content: bytes) -> None:
    with serving(file=content) as server:
        file = File(SOURCES[name].files[0].name, server.url + "/file")
        found = load_dataset(name, sources={name: replace(SOURCES[name], rows=2, positives=1, files=(file,))})
    assert found.X.shape == (2, SOURCES[name].features)
    assert found.y.tolist() == [0, 1]
    assert found.subset is None


def test_the_cache_is_where_the_variable_says_or_else_the_users_own(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cache_folder() == cache
    assert cache_folder("elsewhere") == Path("elsewhere")
    monkeypatch.delenv("METRICGRAD_CACHE")
    assert "metricgrad" in cache_folder().parts


# Table 1


def test_the_table_has_a_row_for_each_set_whatever_is_missing() -> None:
    rows = table1()
    assert [row.name for row in rows] == list(names())
    assert all(row.status.startswith("missing: ") and row.ours is None and row.source.paper for row in rows[:9])
    assert all(row.status == "complete" and row.verified and row.ours and not row.source.paper for row in rows[9:])


def test_the_data_layer_does_not_import_torch() -> None:
    code = "import sys, metricgrad.paper.datasets, metricgrad.training.splits; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# The real files, where there are any


@pytest.mark.skipif(not REAL, reason="METRICGRAD_DATA is not set")
@pytest.mark.parametrize("name", names()[:9])
def test_real_files_have_the_shape_and_share_of_the_paper(name: str) -> None:
    assert REAL
    if not (Path(REAL) / f"{name}.parquet").exists():
        pytest.skip(f"no {name}.parquet in METRICGRAD_DATA")
    found: Dataset = load_dataset(name, REAL, download=False)
    source = describe(name)
    assert source.paper
    assert found.positive_share == pytest.approx(source.paper.positive_share, rel=0.2)
    assert found.X.flags.c_contiguous
    if found.subset is None:
        assert found.X.shape == (source.rows, source.features)
        assert found.y.sum() == source.positives
    if name == "ijcnn1":
        assert len(np.unique(found.X, axis=0)) == len(found.X) == 141_691
