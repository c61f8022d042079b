"""Downloads: fetch one file over HTTP so that a dropped connection, a wrong file or a crash leaves nothing broken."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from metricgrad._version import __version__
from metricgrad.locking import exclusive
from metricgrad.tabular.manifest import one_line, shortened

Progress = Callable[[int, "int | None"], None]
"""Called with the bytes held so far and, where the server says so, the bytes in all."""

BLOCK = 1 << 16
LARGEST = 8 * 10**9
"""Bytes of a download: several times the largest file here, and far less than a server without end would send."""
# What a network does to a healthy download; anything else (a full disk, say) is not helped by asking again.
DROPPED = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


class Patience(NamedTuple):
    """How long to wait for a server, and how much to take from it: see `fetch`."""

    timeout: float
    slowest: int
    window: float
    largest: int


def fetch(
    url: str,
    path: str | os.PathLike[str],
    sha256: str | None = None,
    progress: Progress | None = None,
    *,
    attempts: int = 4,
    pause: float = 0.5,
    timeout: float = 30.0,
    slowest: int = 1024,
    window: float = 60.0,
    largest: int = LARGEST,
) -> Path:
    """Download `url` to `path`, going on from where an earlier attempt was cut off.

    The bytes gather in `<path>.part`, are verified, and only then take the name `path`: a file of that name is whole.

    Parameters
    ----------
    url : str
        An http or https address.
    path : path-like
        Where the file goes; a file already there is kept if its hash is right (or unknown).
    sha256 : str, optional
        What the file must hash to, in hexadecimal.
    progress : callable, optional
        Called as `progress(bytes_so_far, bytes_in_all_or_None)`.
    attempts : int
        How often to ask before giving up on a connection that drops.
    pause : float
        Seconds before the second attempt; doubles each time.
    timeout : float
        Seconds without a byte after which a connection counts as dropped.
    slowest, window : int, float
        A connection that delivers fewer than `slowest` bytes a second over `window` seconds counts as dropped too, and
        so does a server that takes longer than `window` to answer.
    largest : int
        Bytes of the file; one that is larger, or said to be, is refused.

    Returns
    -------
    Path
        The path of the whole, verified file.

    Raises
    ------
    FileNotFoundError
        The server has no such file.
    ValueError
        The file came whole but is not the expected one, or the one already at `path` is not, or it is too large.
    OSError
        The connection dropped in every attempt, or the answers were malformed; what came is kept for the next call.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url must start with http:// or https://, got {url!r}")
    if attempts < 1:
        raise ValueError(f"attempts must be at least 1, got {attempts}")
    path = Path(path)
    if path.exists():
        check_hash(path, sha256, what=f"{path} (from {url})")
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        _gather(url, part, progress, attempts, pause, Patience(timeout, slowest, window, largest))
        check_hash(part, sha256, what=url)
    except ValueError:
        # Going on from wrong bytes can never come right, so the next call must start afresh.
        _forget(part)
        raise
    part.replace(path)
    _tag(part).unlink(missing_ok=True)
    return path


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file in hexadecimal, reading it in blocks."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def check_hash(path: Path, sha256: str | None, what: str) -> None:
    """Raise `ValueError`, naming `what`, unless the file hashes to `sha256`; with None nothing is asked."""
    if sha256 is not None and (found := file_sha256(path)) != sha256.lower():
        raise ValueError(f"{what} is not the expected file: SHA-256 should be {sha256.lower()}, got {found}")


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock file, so that two processes do not download or convert the same thing at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file, exclusive(file):
        yield


def _gather(url: str, part: Path, progress: Progress | None, attempts: int, pause: float, patience: Patience) -> None:
    """Fill `part` with all the bytes of `url`, asking again while the connection drops."""
    for attempt in range(attempts):
        try:
            _continue(url, part, progress, patience)
            return
        except urllib.error.HTTPError as error:
            error.close()
            if _lacks_nothing(part, error):
                return
            _judge(url, part, error)
            reason: Exception = error
        except DROPPED as error:
            reason = error
        except OSError as error:
            named = OSError(f"{url} could not be downloaded to {part}: {one_line(error)}")
            named.errno = error.errno
            raise named from error
        if attempt + 1 < attempts:
            time.sleep(pause * 2**attempt)
    kept = f"{part.stat().st_size} bytes are kept in {part} to go on from" if part.exists() else "nothing came"
    raise OSError(f"{url} could not be downloaded in {attempts} attempts ({kept}): {one_line(reason)}") from reason


def _continue(url: str, part: Path, progress: Progress | None, patience: Patience) -> None:
    """Ask for what `part` lacks and append it; raise `ConnectionError` if the server stops short."""
    held = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": f"metricgrad/{__version__}"})
    if held:
        request.add_header("Range", f"bytes={held}-")
        if _tag(part).exists():
            # The server then sends the rest only if the file is still the one begun, and all of it otherwise.
            request.add_header("If-Range", _tag(part).read_text())
    opener = urllib.request.build_opener(_Http(patience.window), _Https(patience.window), _Redirects())
    with _malformed_is_dropped():
        response = opener.open(request, timeout=patience.timeout)
    with response:
        if not (response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {held}-")):
            held = 0
        if not held:
            _remember(part, response.headers.get("ETag"))
        length = _length(response.headers.get("Content-Length"))
        total = None if length is None else held + length
        _check_size(url, total or held, patience.largest)
        with open(part, "ab" if held else "wb") as file:
            for block in _blocks(response, patience):
                held += len(block)
                _check_size(url, held, patience.largest)
                file.write(block)
                if progress:
                    progress(held, total)
    if total is not None and held < total:
        raise ConnectionError(f"connection dropped after {held} of {total} bytes")


def _length(said: str | None) -> int | None:
    """Return the bytes that a server says will come."""
    if not said:
        return None
    if not re.fullmatch("[0-9]{1,100}", said):
        raise http.client.HTTPException(f"Content-Length: expected a number of bytes, got {shortened(said)}")
    return int(said)


def _check_size(url: str, size: int, largest: int) -> None:
    """Refuse a file that is too large."""
    if size > largest:
        raise ValueError(f"{url} is too large: expected at most {largest:,} bytes, got at least {size:,}")


@contextmanager
def _malformed_is_dropped() -> Iterator[None]:
    """Raise what `urllib` raises for an address or a chunk that is none as an `HTTPException`."""
    try:
        yield
    except ValueError as error:
        raise http.client.HTTPException(f"the answer is malformed: {error}") from error


def _blocks(response: Any, patience: Patience) -> Iterator[bytes]:
    """Yield the bytes of an answer as they come; raise `TimeoutError` while there are too few of them."""
    since, count = time.monotonic(), 0
    while block := _block(response):
        yield block
        count += len(block)
        passed = time.monotonic() - since
        if passed >= patience.window:
            if count < patience.slowest * passed:
                raise TimeoutError(
                    f"fewer than {patience.slowest:,} bytes a second came over {passed:.0f} seconds ({count:,} in all)"
                )
            since, count = time.monotonic(), 0


def _block(response: Any) -> bytes:
    """Return the bytes that have come: `read` would wait for a full block, however long that takes."""
    with _malformed_is_dropped():
        found: bytes = response.read1(BLOCK)
    return found


class _Deadline:
    """A connection whose answer must begin, with all its headers, within the window."""

    window = 0.0
    sock: Any

    def getresponse(self) -> Any:
        """Wait for the answer; a socket that is shut down meanwhile ends the waiting."""
        late = threading.Event()
        timer = threading.Timer(self.window, partial(_shut_down, self.sock, late))
        timer.daemon = True
        timer.start()
        said = f"no complete answer within {self.window:g} seconds"
        try:
            response = super().getresponse()  # type: ignore[misc]
        except (OSError, http.client.HTTPException) as error:
            if late.is_set():
                raise TimeoutError(said) from error
            raise
        finally:
            timer.cancel()
        if late.is_set():  # headers that are cut off look complete
            response.close()
            raise TimeoutError(said)
        return response


def _shut_down(connection: Any, late: threading.Event) -> None:
    late.set()
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Http(urllib.request.HTTPHandler):
    """Opens http addresses with a deadline."""

    def __init__(self, window: float) -> None:
        super().__init__()
        self._connection: Any = type("_", (_Deadline, http.client.HTTPConnection), {"window": window})

    def http_open(self, req: urllib.request.Request) -> Any:
        """Open an address."""
        return self.do_open(self._connection, req)


class _Https(urllib.request.HTTPSHandler):
    """Opens https addresses with a deadline; certificates are checked as `urllib` does by itself."""

    def __init__(self, window: float) -> None:
        super().__init__()
        self._connection: Any = type("_", (_Deadline, http.client.HTTPSConnection), {"window": window})

    def https_open(self, req: urllib.request.Request) -> Any:
        """Open an address."""
        return self.do_open(self._connection, req)


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects as `urllib` does by itself, and closes the connection if the new address is malformed."""

    def http_error_302(self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Follow a redirect."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


def _lacks_nothing(part: Path, error: urllib.error.HTTPError) -> bool:
    """Say whether the server refused to go on because `part` has it all, as after a crash before the renaming."""
    if error.code != 416 or not part.exists():
        return False
    return bool(error.headers.get("Content-Range") == f"bytes */{part.stat().st_size}")


def _judge(url: str, part: Path, error: urllib.error.HTTPError) -> None:
    """Raise if asking again cannot help; a range that does not exist means `part` is not of this file."""
    said = f"the server says {error.code} {one_line(error.reason)}"
    if error.code == 416:
        _forget(part)
    elif error.code in (404, 410):
        raise FileNotFoundError(f"{url} does not exist: {said}") from error
    elif error.code < 500 and error.code not in (408, 425, 429):
        raise OSError(f"{url} was refused: {said}") from error


def _tag(part: Path) -> Path:
    """Return where the server's tag for the file in `part` is kept."""
    return part.with_name(part.name + ".etag")


def _remember(part: Path, tag: str | None) -> None:
    """Keep the tag of the file begun, if it is a strong one: `If-Range` takes no other."""
    _tag(part).unlink(missing_ok=True)
    if tag and not tag.startswith("W/"):
        _tag(part).write_text(tag)


def _forget(part: Path) -> None:
    """Remove a partial file and its tag."""
    part.unlink(missing_ok=True)
    _tag(part).unlink(missing_ok=True)
