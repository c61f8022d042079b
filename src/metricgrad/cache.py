"""Cache: what was published is downloaded once and kept as one Parquet file, with its SHA-256 beside it."""

from __future__ import annotations

from pathlib import Path

from metricgrad.download import Progress, fetch, file_sha256, locked
from metricgrad.formats import read_blocks, write_parquet
from metricgrad.sources import File, Source


def prepare(source: Source, cache: Path, progress: Progress | None = None) -> Path:
    """Download and convert a dataset into the folder `cache`, and return the Parquet file made.

    Raises
    ------
    FileNotFoundError
        Some file can only be downloaded by a person; the message says which, from where, and where to put it.
    ValueError
        A file is not what it should be. If it was downloaded, it is removed.
    """
    path = cache / f"{source.name}.parquet"
    raw = cache / "raw" / source.name
    with locked(cache / f"{source.name}.lock"):
        if path.exists():  # another process made it while this one waited
            return path
        given = {file: _given(raw / file.name) for file in source.files if file.url is None}
        if None in given.values():
            raise FileNotFoundError(how_to_get(source, cache))
        files = [given.get(file) or _fetched(file, raw, progress) for file in source.files]
        downloaded = [raw / file.name for file in source.files if file.url]  # the others are the user's own
        try:
            _convert(source, files, path)
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


def _fetched(file: File, raw: Path, progress: Progress | None) -> Path:
    """Download a published file."""
    if file.url is None:
        raise FileNotFoundError(f"{file.name} has no address to download it from")
    return fetch(file.url, raw / file.name, file.sha256, progress)


def _convert(source: Source, files: list[Path], path: Path) -> None:
    """Turn published files into one Parquet file with its hash beside it; a wrong number of rows is refused."""
    if source.layout is None:
        raise ValueError(f"{source.name} has files but no layout to read them by")
    temporary = path.with_name(path.name + ".tmp")
    layout = source.layout
    try:
        rows = write_parquet(temporary, (block for file in files for block in read_blocks(file, layout)))
        if rows != source.rows:
            # Most sources publish no hash: the number of rows is what tells a cut file from a whole one.
            held = ", ".join(map(str, files))
            raise ValueError(f"{source.name} should have {source.rows} rows, got {rows} from {held}")
        # The hash goes first: a crash in between leaves a hash without a file, which is nothing, not the reverse.
        _sidecar(path).write_text(file_sha256(temporary) + "\n")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _sidecar(path: Path) -> Path:
    """Return where the hash of a file is kept."""
    return path.with_name(path.name + ".sha256")


def _remove(paths: list[Path]) -> None:
    """Remove files no longer needed."""
    for path in paths:
        path.unlink(missing_ok=True)
