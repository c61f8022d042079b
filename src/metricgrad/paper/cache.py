"""Cache: published files are downloaded once and kept as one Parquet file, with its SHA-256 beside it.

Most publishers give no hash of their files. Such a file is trusted on first use: it must have the known numbers of
rows, features and positives; its hash is then recorded, and a file with another hash is refused from then on.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pooch

from metricgrad.files import exclusive, write_whole
from metricgrad.paper.download import DownloadProgress, fetch
from metricgrad.paper.formats import outline_parquet, read_blocks, write_parquet
from metricgrad.paper.sources import File, Source

LOG = logging.getLogger(__name__)


def prepare(source: Source, cache: Path, progress: DownloadProgress | None = None) -> Path:
    """Download and convert a dataset into the folder `cache`, once, and return the Parquet file.

    Raises
    ------
    FileNotFoundError
        A file needs an account to be downloaded; the message says from where, and where to put it.
    ValueError
        A file is not the expected one, or differs from an earlier download. If it was downloaded, it is removed.
    """
    path, raw = cache / f"{source.name}.parquet", cache / "raw" / source.name
    cache.mkdir(parents=True, exist_ok=True)
    with open(cache / f"{source.name}.lock", "ab") as lock, exclusive(lock):
        if path.exists():  # made by another process while this one waited
            return path
        manual = {file: _put_by_hand(raw / file.name) for file in source.files if file.url is None}
        if None in manual.values():
            raise FileNotFoundError(how_to_get(source, cache))
        for left in raw.glob("tmp*"):  # by a process that was killed
            left.unlink()
        record = cache / f"{source.name}.downloads.json"
        files = [manual.get(file) or _fetched(file, raw, record, progress) for file in source.files]
        try:
            _convert(source, files, path)
            _trust(source, raw, record)
        except ValueError:
            _remove_downloads(source, raw)
            raise
        _remove_downloads(source, raw)
    return path


def checked_digest(path: Path) -> str:
    """Return a file's SHA-256; a file that differs from the hash beside it is refused."""
    digest: str = pooch.file_hash(str(path))
    if has_hash(path) and digest != (kept := _sidecar(path).read_text().strip()):
        raise ValueError(f"{path} is corrupt: SHA-256 should be {kept}, got {digest}; delete it to have it made again")
    return digest


def has_hash(path: Path) -> bool:
    """Return whether a file has its hash beside it."""
    return _sidecar(path).exists()


def how_to_get(source: Source, cache: Path) -> str:
    """Return what to download and where to put it."""
    own = f"or put {source.name}.parquet into the folder METRICGRAD_DATA"
    manual = [file.name for file in source.files if file.url is None]
    if not manual:
        return f"{source.name} is not on this machine: load it with download=True ({source.page}), {own}"
    return (
        f"{source.name} needs an account to be downloaded: get {', '.join(manual)} from "
        f"{source.page} and put it at {cache / 'raw' / source.name / manual[0]}, {own}"
    )


def _put_by_hand(path: Path) -> Path | None:
    """Return the file a user downloaded, either as it is or still zipped."""
    return next((file for file in (path, path.with_name(path.name + ".zip")) if file.exists()), None)


def _fetched(file: File, raw: Path, record: Path, progress: DownloadProgress | None) -> Path:
    """Download a published file; without a published hash, it must have the recorded one, if there is one."""
    recorded = None if file.sha256 else _recorded(record).get(file.name)
    try:
        return fetch(str(file.url), raw / file.name, file.sha256 or recorded, progress)
    except ValueError as error:
        if recorded is None:
            raise
        raise ValueError(
            f"{error}; the expected hash is that of the first download, since the publisher gives none: "
            f"delete {record} to trust the file as it is now"
        ) from error


def _recorded(record: Path) -> dict[str, str]:
    """Return the hashes of first downloads by file name."""
    if not record.exists():
        return {}
    try:
        return {str(name): str(digest) for name, digest in json.loads(record.read_text("utf-8")).items()}
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{record}: expected hashes of downloaded files in JSON, got {error}") from error


def _trust(source: Source, raw: Path, record: Path) -> None:
    """Record the hashes of downloaded files whose publisher gives none, with a warning the first time."""
    known = _recorded(record)
    new = [file.name for file in source.files if file.url and not file.sha256 and file.name not in known]
    if not new:
        return
    hashes = {**known, **{name: pooch.file_hash(str(raw / name)) for name in new}}
    write_whole(record, (json.dumps(hashes, indent=1) + "\n").encode())
    checked = "rows, features and positives" if source.positives is not None else "rows and features"
    LOG.warning(
        f"{source.name}: no SHA-256 is published for {', '.join(new)}; the number of {checked} is as expected, and the "
        f"hash of this first download is recorded in {record} and checked from now on"
    )


def _convert(source: Source, files: list[Path], path: Path) -> None:
    """Convert published files to one Parquet file with its hash beside it; refuse a file with unexpected counts."""
    if source.layout is None:
        raise ValueError(f"{source.name} has files but no layout to read them by")
    temporary, layout = path.with_name(path.name + ".tmp"), source.layout
    try:
        write_parquet(temporary, (block for file in files for block in read_blocks(file, layout)))
        _check_counts(source, temporary, ", ".join(map(str, files)))
        # The hash goes first: after a crash in between, a hash without a file is ignored.
        write_whole(_sidecar(path), f"{pooch.file_hash(str(temporary))}\n".encode())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _check_counts(source: Source, path: Path, origin: str) -> None:
    """Refuse a dataset with other numbers of rows, features or positives than known: it is truncated or replaced."""
    if not path.exists():
        raise ValueError(f"{source.name} should have {source.rows} rows, got none from {origin}")
    found = outline_parquet(path)
    counts = {
        "rows": (source.rows, found.rows),
        "features": (source.features, found.features),
        "positive rows": (source.positives, round(found.positive_share * found.rows)),
    }
    for what, (expected, got) in counts.items():
        if expected is not None and got != expected:
            raise ValueError(f"{source.name} should have {expected} {what}, got {got} from {origin}")


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + ".sha256")


def _remove_downloads(source: Source, raw: Path) -> None:
    """Remove downloaded files; those without an address are the user's own."""
    for file in source.files:
        if file.url:
            (raw / file.name).unlink(missing_ok=True)
