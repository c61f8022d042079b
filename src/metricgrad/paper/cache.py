"""Cache: what was published is downloaded once and kept as one Parquet file, with its SHA-256 beside it.

Most publishers give no hash of their files. Such a file is trusted on first use: it must have the rows, features and
positives that are known of the dataset, its hash is then recorded, and another file is refused from then on.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path

from metricgrad.paper.download import Progress, fetch, file_sha256, locked
from metricgrad.paper.formats import outline_parquet, read_blocks, write_parquet
from metricgrad.paper.sources import File, Source
from metricgrad.reporting.atomic import write_whole

LOG = logging.getLogger(__name__)


def prepare(source: Source, cache: Path, progress: Progress | None = None) -> Path:
    """Download and convert a dataset into the folder `cache`, and return the Parquet file made.

    Raises
    ------
    FileNotFoundError
        Some file can only be downloaded by a person; the message says which, from where, and where to put it.
    ValueError
        A file is not what it should be, or not the one of an earlier download. If it was downloaded, it is removed.
    """
    path = cache / f"{source.name}.parquet"
    raw = cache / "raw" / source.name
    with locked(cache / f"{source.name}.lock"):
        if path.exists():  # another process made it while this one waited
            return path
        given = {file: _given(raw / file.name) for file in source.files if file.url is None}
        if None in given.values():
            raise FileNotFoundError(how_to_get(source, cache))
        record = _record(source, cache)
        files = [given.get(file) or _fetched(file, raw, record, progress) for file in source.files]
        downloaded = [raw / file.name for file in source.files if file.url]  # the others are the user's own
        try:
            _convert(source, files, path)
            _trust(source, raw, record)
        except ValueError:
            # Kept, a wrong file would be found again and fail for ever.
            _remove(downloaded)
            raise
        _remove(downloaded)
    return path


def checked_digest(path: Path) -> str:
    """Return a file's SHA-256; a file that does not match the hash beside it is corrupt, and named."""
    digest = file_sha256(path)
    if has_hash(path) and digest != (kept := _sidecar(path).read_text().strip()):
        raise ValueError(f"{path} is corrupt: SHA-256 should be {kept}, got {digest}; delete it to have it made again")
    return digest


def has_hash(path: Path) -> bool:
    """Say whether a file has its hash beside it."""
    return _sidecar(path).exists()


def how_to_get(source: Source, cache: Path) -> str:
    """Say what to download and where to put it."""
    own = f"or put {source.name}.parquet into the folder METRICGRAD_DATA names"
    by_hand = [file.name for file in source.files if file.url is None]
    if not by_hand:
        return f"{source.name} is not on this machine: load it with download=True ({source.page}), {own}"
    return (
        f"{source.name} can only be downloaded by a person with an account: get {', '.join(by_hand)} from "
        f"{source.page} and put it at {cache / 'raw' / source.name / by_hand[0]}, {own}"
    )


def _given(path: Path) -> Path | None:
    """Return the file a person downloaded, as it is or in the archive it may come in."""
    return next((there for there in (path, path.with_name(path.name + ".zip")) if there.exists()), None)


def _fetched(file: File, raw: Path, record: Path, progress: Progress | None) -> Path:
    """Download a published file; without a published hash, it must have the one recorded, if there is one."""
    if file.url is None:
        raise FileNotFoundError(f"{file.name} has no address to download it from")
    recorded = None if file.sha256 else _recorded(record).get(file.name)
    try:
        return fetch(file.url, raw / file.name, file.sha256 or recorded, progress)
    except ValueError as error:
        if recorded is None:
            raise
        raise ValueError(
            f"{error}; its publisher gives no hash, and this is the one of the first download: "
            f"delete {record} to trust the file as it is now"
        ) from error


def _record(source: Source, cache: Path) -> Path:
    """Return where the hashes of first downloads are recorded."""
    return cache / f"{source.name}.downloads.json"


def _recorded(record: Path) -> dict[str, str]:
    """Return the hashes of first downloads by the names of the files."""
    if not record.exists():
        return {}
    try:
        return {str(name): str(digest) for name, digest in json.loads(record.read_text("utf-8")).items()}
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{record}: expected hashes of downloaded files in JSON, got {error}") from error


def _trust(source: Source, raw: Path, record: Path) -> None:
    """Record the hashes of downloaded files whose publisher gives none, and say so the first time."""
    known = _recorded(record)
    new = [file.name for file in source.files if file.url and not file.sha256 and file.name not in known]
    if not new:
        return
    hashes = {**known, **{name: file_sha256(raw / name) for name in new}}
    write_whole(record, (json.dumps(hashes, indent=1) + "\n").encode())
    checked = "rows, features and positives" if source.positives is not None else "rows and features"
    LOG.warning(
        "%s: no SHA-256 is published for %s; the number of %s is as expected, and the hash of this first download is "
        "recorded in %s and checked from now on",
        source.name,
        ", ".join(new),
        checked,
        record,
    )


def _convert(source: Source, files: list[Path], path: Path) -> None:
    """Turn published files into one Parquet file with its hash beside it; a file with other counts is refused."""
    if source.layout is None:
        raise ValueError(f"{source.name} has files but no layout to read them by")
    temporary = path.with_name(path.name + ".tmp")
    layout = source.layout
    try:
        write_parquet(temporary, (block for file in files for block in read_blocks(file, layout)))
        _check_counts(source, temporary, ", ".join(map(str, files)))
        # The hash goes first: a crash in between leaves a hash without a file, which is nothing, not the reverse.
        write_whole(_sidecar(path), f"{file_sha256(temporary)}\n".encode())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _check_counts(source: Source, path: Path, origin: str) -> None:
    """Refuse a converted dataset without the rows, features or positives it is known to have.

    Most publishers give no hash: this is what tells a file that is cut short or replaced from the right one.
    """
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
    """Return where the hash of a file is kept."""
    return path.with_name(path.name + ".sha256")


def _remove(paths: list[Path]) -> None:
    """Remove files no longer needed."""
    for path in paths:
        path.unlink(missing_ok=True)
