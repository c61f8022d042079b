"""Datasets: the paper's nine and two small ones, by name, from a folder of yours, the cache or their public source.

A dataset is looked for in three places, in this order:

1. `<name>.parquet` in the folder `data_dir`, or else `METRICGRAD_DATA`. A file that is not a known copy is taken as it
   is, and marked as not verified;
2. `<name>.parquet` in the cache, `METRICGRAD_CACHE` or else the user's cache folder. It must match the hash beside it;
3. its public source: files are downloaded and verified, and converted to that Parquet file, once.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

import numpy as np
import platformdirs
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits

from metricgrad.paper.cache import checked_digest, has_hash, how_to_get, prepare
from metricgrad.paper.download import Progress
from metricgrad.paper.formats import Outline, Table, outline_parquet, read_parquet
from metricgrad.paper.sources import SOURCES as SOURCES
from metricgrad.paper.sources import PaperRow as PaperRow
from metricgrad.paper.sources import Source as Source

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset in memory.

    Parameters
    ----------
    name : str
        What it was loaded by.
    X : ndarray of shape (n, d)
        Features, float32, not scaled.
    y : ndarray of shape (n,)
        Targets, int8, 1 for positive.
    features : tuple of str
        Names of the columns of `X`.
    subset : str or None
        What part of the public set this is, if not all of it: `"0.6 % of the rows"`.
    verified : bool
        Whether its SHA-256 is that of a known copy or of what was downloaded.
    path : Path or None
        The file it was read from.
    """

    name: str
    X: NDArray[np.float32] = field(repr=False)
    y: NDArray[np.int8] = field(repr=False)
    features: tuple[str, ...] = field(repr=False)
    subset: str | None = None
    verified: bool = True
    path: Path | None = None

    @property
    def label(self) -> str:
        """The name to show beside any number: it says so if this is a subset."""
        return f"{self.name} (subset: {self.subset})" if self.subset else self.name

    @property
    def positive_share(self) -> float:
        """The share of positive rows."""
        return float(self.y.mean())


@dataclass(frozen=True)
class TableRow:
    """A row of Table 1: what is held here, beside what the paper prints.

    `ours` is None if nothing can be read, and `status` then says what to do: `"complete"`, `"subset: ..."`,
    `"missing: ..."` or `"unreadable: ..."`.
    """

    source: Source
    ours: Outline | None
    status: str
    verified: bool = False

    @property
    def name(self) -> str:
        """What `load` finds the dataset by."""
        return self.source.name

    @property
    def paper(self) -> PaperRow | None:
        """What the paper prints, if it uses the dataset."""
        return self.source.paper

    @property
    def remark(self) -> str:
        """Why ours differs from the paper's, if it does."""
        return self.source.remark


def names() -> tuple[str, ...]:
    """Return every name `load` knows: the paper's nine, then those that need no file."""
    return tuple(SOURCES)


def describe(name: str, *, sources: Mapping[str, Source] = SOURCES) -> Source:
    """Return where a dataset comes from: page, files, terms, and the paper's numbers.

    Examples
    --------
    >>> describe("skin").paper
    PaperRow(train=196045, test=49012, features=3, positive_share=0.7919)
    """
    if name not in sources:
        near = difflib.get_close_matches(str(name).lower(), sources, n=3, cutoff=0.5) or list(sources)
        raise ValueError(f"name must be a known dataset, got {name!r}; near are {', '.join(near)}")
    return sources[name]


def load(
    name: str,
    data_dir: PathLike | None = None,
    download: bool = True,
    *,
    cache: PathLike | None = None,
    progress: Progress | None = None,
    sources: Mapping[str, Source] = SOURCES,
) -> Dataset:
    """Load a dataset by name.

    Parameters
    ----------
    name : str
        One of `names()`.
    data_dir : path-like, optional
        Folder of Parquet files to look in first; `METRICGRAD_DATA` if not given.
    download : bool
        Whether to download what is in neither folder.
    cache : path-like, optional
        Folder to keep what was downloaded; `METRICGRAD_CACHE`, or else the user's cache folder, if not given.
    progress : callable, optional
        Called as `progress(bytes_so_far, bytes_in_all_or_None)` while a file is downloaded.
    sources : mapping
        Sources by name, for sets of your own.

    Returns
    -------
    Dataset
        Features, targets, and whether this is all of the public set.

    Raises
    ------
    ValueError
        The name is not known, or a file is not what it should be.
    FileNotFoundError
        The folder does not exist, or the dataset is nowhere and cannot be downloaded.
    OSError
        The download failed.

    Examples
    --------
    >>> digits = load("digits8")
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
    table = read_parquet(path)
    subset = _subset(source, table.outline, digest, path)
    return Dataset(name, *table, subset, _is_verified(source, path, digest), path)


def digest(name: str) -> str:
    """Return a short digest of the file that `load` would read, nothing if there is none; embedded sets have a name.

    Examples
    --------
    >>> digest("digits8")
    'embedded'
    """
    source = describe(name)
    if source.name in EMBEDDED:
        return "embedded"
    path = _find(source, data_folder(), cache_folder())
    return "" if path is None else _digest_of(path, path.stat().st_mtime_ns, path.stat().st_size)


@lru_cache(maxsize=64)
def _digest_of(path: Path, changed: int, size: int) -> str:
    """Return the digest of a file as it is now; one that has changed since is read again."""
    return checked_digest(path)[:16]


def table1(
    data_dir: PathLike | None = None, *, cache: PathLike | None = None, sources: Mapping[str, Source] = SOURCES
) -> list[TableRow]:
    """Return a row for each dataset: what is held here beside the paper's Table 1; nothing is downloaded.

    Parameters
    ----------
    data_dir : path-like, optional
        As for `load`.
    cache : path-like, optional
        As for `load`.
    sources : mapping
        Sources by name, for sets of your own.

    Returns
    -------
    list of TableRow
        In the paper's order. A file that cannot be used is reported in its row, not raised.
    """
    folder = data_folder(data_dir)
    return [_row(source, folder, cache_folder(cache)) for source in sources.values()]


def data_folder(data_dir: PathLike | None = None) -> Path | None:
    """Return the folder to look in first, `data_dir` or else `METRICGRAD_DATA`; it must exist if it is named."""
    name, origin = (data_dir, "data_dir") if data_dir else (os.environ.get("METRICGRAD_DATA"), "METRICGRAD_DATA")
    if not name:
        return None
    if not Path(name).is_dir():
        raise FileNotFoundError(f"{origin} must be a folder of Parquet files, got {os.fspath(name)!r}, which is none")
    return Path(name)


def cache_folder(cache: PathLike | None = None) -> Path:
    """Return where downloads are kept: `cache`, or `METRICGRAD_CACHE`, or the user's cache folder."""
    return Path(cache or os.environ.get("METRICGRAD_CACHE") or platformdirs.user_cache_dir("metricgrad", False))


def _digits8() -> Table:
    """Return scikit-learn's digits, eight against the rest."""
    found = load_digits()
    X = found.data.astype(np.float32)
    return Table(X, (found.target == 8).astype(np.int8), tuple(map(str, found.feature_names)))


def _breast_cancer() -> Table:
    """Return scikit-learn's breast cancer set; what one looks for, a malignant tumour, is positive."""
    found = load_breast_cancer()
    X = found.data.astype(np.float32)
    return Table(X, (found.target == 0).astype(np.int8), tuple(map(str, found.feature_names)))


EMBEDDED = {"digits8": _digits8, "breast_cancer": _breast_cancer}


def _find(source: Source, folder: Path | None, cache: Path) -> Path | None:
    """Return the Parquet file of a dataset, from the user's folder or else the cache."""
    places = [place / f"{source.name}.parquet" for place in (folder, cache) if place]
    return next((path for path in places if path.exists()), None)


def _is_verified(source: Source, path: Path, digest: str) -> bool:
    """Say whether a file is a known copy, or in the cache with its hash."""
    return digest in source.copies or has_hash(path)


def _subset(source: Source, found: Outline, digest: str, path: Path) -> str | None:
    """Say what part of the public set a file holds, or None if all of it; more than all of it is refused."""
    if found.rows > source.rows:
        raise ValueError(
            f"{path} has {found.rows} rows, but the whole of {source.name} has {source.rows}: "
            "rows given twice would leak from training into test"
        )
    if digest in source.copies:
        return source.copies[digest]
    missing = []
    if found.rows < source.rows:
        share = 100 * found.rows / source.rows
        missing.append(f"{share:.2g} % of the rows" if share < 99 else f"all but {source.rows - found.rows} rows")
    if found.features != source.features:
        missing.append(f"{found.features} features for {source.features}")
    return ", ".join(missing) or None


def _row(source: Source, folder: Path | None, cache: Path) -> TableRow:
    """Return a dataset's row of Table 1."""
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
