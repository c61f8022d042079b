"""Downloads: pooch fetches and verifies one file; `Downloader` limits what a server may cost in time and bytes."""

from __future__ import annotations

import http.client
import logging
import os
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import pooch

from metricgrad._version import __version__
from metricgrad.tabular.cells import one_line, shortened
from metricgrad.tabular.io import TooLargeError

DownloadProgress = Callable[[int, "int | None"], None]
"""Called with the bytes received so far and, where the server announces it, the size of the file."""
BLOCK = 1 << 16
# Failures of a connection, which another attempt may cure; a full disk, for example, is not among them.
CONNECTION_ERRORS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)
TRANSIENT = (408, 416, 425, 429)
"""HTTP status codes below 500 for which another attempt may help."""


def fetch(
    url: str,
    path: str | os.PathLike[str],
    sha256: str | None = None,
    progress: DownloadProgress | None = None,
    **limits: Any,
) -> Path:
    """Download `url` to `path`, and verify its SHA-256 if given; a file that is there and has that hash is kept.

    Only a complete file gets the name `path`; an interrupted download leaves nothing. `limits` are fields of
    `Downloader`. Raises `FileNotFoundError` if the server has no such file, `ValueError` if it is too large or not the
    expected one, and another `OSError` if every attempt failed.
    """
    path, downloader = Path(path), Downloader(progress, **limits)
    pooch.get_logger().setLevel(logging.WARNING)  # at INFO it asks users to put hashes into their code
    try:
        pooch.retrieve(url, sha256, path.name, path.parent, downloader=downloader)
    except TooLargeError:
        raise
    except ValueError as error:  # from pooch, without the address
        raise ValueError(f"{url} is not the expected file: {error}") from error
    except OSError as error:
        if url in str(error):
            raise
        named = OSError(f"{url} could not be downloaded to {path}: {one_line(error)}")
        named.errno = error.errno
        raise named from error
    return path


@dataclass(frozen=True)
class Downloader:
    """Downloads over HTTP for pooch; a dropped connection is resumed where it dropped."""

    progress: DownloadProgress | None = None
    attempts: int = 4
    pause: float = 0.5  # seconds before the second attempt; doubles each time
    timeout: float = 30.0  # seconds without a byte after which a connection counts as dropped
    window: float = 60.0  # seconds in which all headers must arrive, and over which the rate is measured
    min_rate: int = 1024  # bytes per second below which a connection counts as dropped
    max_bytes: int = 8 * 10**9  # several times the largest file here

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"attempts must be at least 1, got {self.attempts}")

    def __call__(self, url: str, output_file: str, pooch: Any = None) -> None:
        """Write the bytes of an address to a file."""
        if not url.startswith(("http://", "https://")):
            raise ValueError("the address must start with http:// or https://")
        headers: dict[str, str] = {}
        with open(output_file, "ab") as file:
            for attempt in range(self.attempts):
                time.sleep(self.pause * 2 ** (attempt - 1) if attempt else 0.0)
                try:
                    return self._continue(url, file, headers)
                except urllib.error.HTTPError as error:
                    error.close()
                    _raise_if_permanent(url, error)
                    reason: Exception = error
                    if error.code == 416:  # no such range: start from the beginning
                        headers.clear()
                except CONNECTION_ERRORS as error:
                    reason = error
        raise OSError(f"{url} could not be downloaded in {self.attempts} attempts: {one_line(reason)}") from reason

    def _continue(self, url: str, file: IO[bytes], headers: dict[str, str]) -> None:
        """Append what the file lacks; `headers` keeps the tag by which the server knows the file begun."""
        held = file.seek(0, os.SEEK_END)
        resumed = {"Range": f"bytes={held}-", **headers} if held and headers else {}
        request = urllib.request.Request(url, headers={"User-Agent": f"metricgrad/{__version__}", **resumed})
        with _malformed_is_dropped():
            response = _opener(self.window).open(request, timeout=self.timeout)
        with response:
            if not (response.status == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {held}-")):
                file.truncate(held := 0)
            headers.clear()
            if (tag := response.headers.get("ETag", "W/")) and not tag.startswith("W/"):  # If-Range needs a strong tag
                headers["If-Range"] = tag
            length = _content_length(response)
            total = None if length is None else held + length
            self._check_size(url, total or held)
            for block in self._blocks(response):
                held += len(block)
                self._check_size(url, held)
                file.write(block)
                if self.progress:
                    self.progress(held, total)
        if total is not None and held < total:
            raise ConnectionError(f"connection dropped after {held} of {total} bytes")

    def _blocks(self, response: Any) -> Iterator[bytes]:
        """Yield bytes as they arrive; raise `TimeoutError` if they arrive too slowly."""
        since, count = time.monotonic(), 0
        while block := _read_available(response):
            yield block
            count += len(block)
            passed = time.monotonic() - since
            if passed >= self.window:
                if count < self.min_rate * passed:
                    raise TimeoutError(f"fewer than {self.min_rate:,} bytes per second over {passed:.0f} seconds")
                since, count = time.monotonic(), 0

    def _check_size(self, url: str, size: int) -> None:
        if size > self.max_bytes:
            raise TooLargeError(f"{url} is too large: expected at most {self.max_bytes:,} bytes, got at least {size:,}")


def _raise_if_permanent(url: str, error: urllib.error.HTTPError) -> None:
    status = f"the server answered {error.code} {one_line(error.reason)}"
    if error.code in (404, 410):
        raise FileNotFoundError(f"{url} does not exist: {status}") from error
    if error.code < 500 and error.code not in TRANSIENT:
        raise OSError(f"{url} was refused: {status}") from error


def _content_length(response: Any) -> int | None:
    text = response.headers.get("Content-Length")
    if text and not re.fullmatch("[0-9]{1,100}", text):
        raise http.client.HTTPException(f"Content-Length: expected a number of bytes, got {shortened(text)}")
    return int(text) if text else None


def _read_available(response: Any) -> bytes:
    """Return the bytes that have arrived: `read` would wait for a full block, however long that takes."""
    with _malformed_is_dropped():
        found: bytes = response.read1(BLOCK)
    return found


@contextmanager
def _malformed_is_dropped() -> Iterator[None]:
    """Turn the `ValueError` that `urllib` raises for a malformed address or chunk into an `HTTPException`."""
    try:
        yield
    except ValueError as error:
        raise http.client.HTTPException(f"the answer is malformed: {error}") from error


# ---- a deadline for the headers ------------------------------------------------------------------------------------


def _opener(window: float) -> urllib.request.OpenerDirector:
    """Return an opener whose connections must deliver all headers within the window."""

    def connect(kind: Any, *arguments: Any, **named: Any) -> Any:
        connection = kind(*arguments, **named)
        connection.getresponse = partial(_getresponse, connection, connection.getresponse, window)
        return connection

    class Http(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(partial(connect, http.client.HTTPConnection), req)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> Any:
            return self.do_open(partial(connect, http.client.HTTPSConnection), req)

    return urllib.request.build_opener(Http, Https, _Redirects)


def _getresponse(connection: Any, getresponse: Callable[[], Any], window: float) -> Any:
    """Wait for the headers; shutting down the socket ends the wait, however slowly bytes arrive."""
    late, link = threading.Event(), connection.sock

    def shut_down() -> None:
        late.set()
        with suppress(OSError):
            link.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(window, shut_down)
    timer.daemon = True
    timer.start()
    try:
        response = getresponse()
    except (OSError, http.client.HTTPException) as error:
        if not late.is_set():
            raise
        raise TimeoutError(f"no complete headers within {window:g} seconds") from error
    finally:
        timer.cancel()
    if late.is_set():  # headers that are cut off look complete
        response.close()
        raise TimeoutError(f"no complete headers within {window:g} seconds")
    return response


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Closes the connection if the new address is malformed, which `urllib` does not."""

    def http_error_302(self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any) -> Any:
        """Follow a redirect."""
        try:
            return super().http_error_302(req, fp, code, msg, headers)
        except ValueError:
            fp.close()
            raise

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302
