"""Datasets: the paper's nine and two small ones, by name, from a folder of yours, the cache or their public source.

A dataset is looked for in three places, in this order:

1. `<name>.parquet` in the folder `data_dir`, or else `METRICGRAD_DATA`. A file that is not a known copy is used as it
   is, and marked as not verified;
2. `<name>.parquet` in the cache, `METRICGRAD_CACHE` or else the user's cache folder. It must match the hash beside it;
3. its public source: files are downloaded, verified and converted to that Parquet file, once.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits

from metricgrad.paper.cache import checked_digest, has_hash, how_to_get, prepare
from metricgrad.paper.download import DownloadProgress
from metricgrad.paper.formats import Arrays, Outline, outline_parquet, read_parquet
from metricgrad.paper.sources import SOURCES as SOURCES
from metricgrad.paper.sources import Source
from metricgrad.paper.sources import describe as describe
from metricgrad.paper.sources import names as names

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset in memory."""

    name: str
    X: NDArray[np.float32] = field(repr=False)  # (n, d), not scaled
    y: NDArray[np.int8] = field(repr=False)  # (n,), 1 for positive
    features: tuple[str, ...] = field(repr=False)
    subset: str | None = None  # which part of the public set this is, if not all: "0.6 % of the rows"
    verified: bool = True  # whether its SHA-256 is that of a known copy or of what was downloaded
    path: Path | None = None

    @property
    def label(self) -> str:
        """The name to show beside any number, marked if this is a subset."""
        return f"{self.name} (subset: {self.subset})" if self.subset else self.name

    @property
    def positive_share(self) -> float:
        """The share of positive rows."""
        return float(self.y.mean())


@dataclass(frozen=True)
class TableRow:
    """A row of Table 1: the dataset on this machine beside the numbers in the paper.

    `status` is `"complete"`, `"subset: ..."`, `"missing: ..."` or `"unreadable: ..."`; in the last two cases `ours` is
    None.
    """

    source: Source
    ours: Outline | None
    status: str
    verified: bool = False

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self.source.name


def load_dataset(
    name: str,
    data_dir: PathLike | None = None,
    download: bool = True,
    *,
    cache: PathLike | None = None,
    progress: DownloadProgress | None = None,
    sources: Mapping[str, Source] = SOURCES,
) -> Dataset:
    """Load a dataset by name.

    Parameters
    ----------
    name : str
        One of `names()`.
    data_dir : path-like, optional
        Folder of Parquet files to look in first; default `METRICGRAD_DATA`.
    download : bool
        Whether to download what is in neither folder.
    cache : path-like, optional
        Folder for downloads; default `METRICGRAD_CACHE`, or else the user's cache folder.
    progress : callable, optional
        Called as `progress(bytes_so_far, total_bytes_or_None)` while a file is downloaded.
    sources : mapping
        Sources by name, for datasets of your own.

    Raises
    ------
    ValueError
        The name is not known, or a file is not the expected one.
    OSError
        The dataset is in no folder, and was not or could not be downloaded.

    Examples
    --------
    >>> digits = load_dataset("digits8")
    >>> digits.X.shape, round(digits.positive_share, 4)
    ((1797, 64), 0.0968)
    """
    source = describe(name, sources=sources)
    if source.name in EMBEDDED:
        return Dataset(name, *EMBEDDED[source.name]())
    cache = cache_folder(cache)
    path = _find(source, data_folder(data_dir), cache)
    if path is None:
        if not download:
            raise FileNotFoundError(how_to_get(source, cache))
        path = prepare(source, cache, progress)
    digest = checked_digest(path)
    arrays = read_parquet(path)
    subset = _subset(source, arrays.outline, digest, path)
    return Dataset(name, *arrays, subset, _is_verified(source, path, digest), path)


def __getattr__(name: str) -> Any:
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("metricgrad.datasets.load is now load_dataset", DeprecationWarning, stacklevel=2)
    return load_dataset


def dataset_digest(name: str) -> str:
    """Return a short digest of the file that `load_dataset` would read: empty if there is none, or `"embedded"`.

    Examples
    --------
    >>> dataset_digest("digits8")
    'embedded'
    """
    source = describe(name)
    if source.name in EMBEDDED:
        return "embedded"
    path = _find(source, data_folder(), cache_folder())
    return "" if path is None else _file_digest(path, path.stat().st_mtime_ns, path.stat().st_size)


@lru_cache(maxsize=64)
def _file_digest(path: Path, changed: int, size: int) -> str:
    """Return the digest of a file; one that has changed is read again."""
    return checked_digest(path)[:16]


def table1(
    data_dir: PathLike | None = None, *, cache: PathLike | None = None, sources: Mapping[str, Source] = SOURCES
) -> list[TableRow]:
    """Return a row for each dataset, in the paper's order; nothing is downloaded, and bad files are only reported."""
    folder = data_folder(data_dir)
    return [_row(source, folder, cache_folder(cache)) for source in sources.values()]


def _row(source: Source, folder: Path | None, cache: Path) -> TableRow:
    if source.name in EMBEDDED:
        return TableRow(source, EMBEDDED[source.name]().outline, "complete", verified=True)
    path = _find(source, folder, cache)
    if path is None:
        return TableRow(source, None, f"missing: {how_to_get(source, cache)}")
    try:
        digest = checked_digest(path)
        outline = outline_parquet(path)
        subset = _subset(source, outline, digest, path)
    except (ValueError, OSError) as error:
        return TableRow(source, None, f"unreadable: {error}")
    return TableRow(source, outline, f"subset: {subset}" if subset else "complete", _is_verified(source, path, digest))


def data_folder(data_dir: PathLike | None = None) -> Path | None:
    """Return the folder to look in first, `data_dir` or else `METRICGRAD_DATA`; it must exist if it is given."""
    name, origin = (data_dir, "data_dir") if data_dir else (os.environ.get("METRICGRAD_DATA"), "METRICGRAD_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise FileNotFoundError(f"{origin} must be a folder of Parquet files, got {os.fspath(name)!r}, which is none")
    return Path(name)


def cache_folder(cache: PathLike | None = None) -> Path:
    """Return the folder for downloads: `cache`, or `METRICGRAD_CACHE`, or the user's cache folder."""
    return Path(cache or os.environ.get("METRICGRAD_CACHE") or platformdirs.user_cache_dir("metricgrad", False))


def _embedded(read: Callable[[], Any], positive: int) -> Arrays:
    """Return a dataset of scikit-learn's, one class against the rest."""
    found = read()
    y = (found.target == positive).astype(np.int8)
    return Arrays(found.data.astype(np.float32), y, tuple(map(str, found.feature_names)))


EMBEDDED = {"digits8": partial(_embedded, load_digits, 8), "breast_cancer": partial(_embedded, load_breast_cancer, 0)}


def _find(source: Source, folder: Path | None, cache: Path) -> Path | None:
    """Return the Parquet file of a dataset, from the user's folder or else the cache."""
    paths = [place / f"{source.name}.parquet" for place in (folder, cache) if place]
    return next((path for path in paths if path.exists()), None)


def _is_verified(source: Source, path: Path, digest: str) -> bool:
    return digest in source.copies or has_hash(path)


def _subset(source: Source, found: Outline, digest: str, path: Path) -> str | None:
    """Return what part of the public set a file holds, None if all of it; a file with more rows is refused."""
    if found.rows > source.rows:
        raise ValueError(
            f"{path} has {found.rows} rows, but the whole of {source.name} has {source.rows}: "
            "duplicated rows would leak from training into test"
        )
    if digest in source.copies:
        return source.copies[digest]
    missing = []
    if found.rows < source.rows:
        share = 100 * found.rows / source.rows
        missing.append(f"{share:.2g} % of the rows" if share < 99 else f"all but {source.rows - found.rows} rows")
    if found.features != source.features:
        missing.append(f"{found.features} of {source.features} features")
    return ", ".join(missing) or None
