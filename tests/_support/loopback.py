"""A small HTTP server on the loopback address, with Range, ETag, and the failures of real ones on request."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    """What is served, how it fails, and what was asked of it."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    cut: list[int] = field(default_factory=list)
    """For each of the next answers: close the connection after so many bytes of it."""
    say: list[int] = field(default_factory=list)
    """For each of the next answers: this status and nothing else."""
    drip: float = 0.0
    """Seconds between the bytes of a body, which then come one at a time."""
    drip_headers: float = 0.0
    """Seconds between header lines, of which there is then no end."""
    ranges: bool = True
    lengths: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and Range header of each request."""


@contextmanager
def serving(**files: bytes) -> Iterator[Server]:
    """Serve `files` by name until the block ends."""
    state = Server(files={"/" + name: content for name, content in files.items()})

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self, state)

        def log_message(self, *_: object) -> None:
            pass

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    state.url = f"http://127.0.0.1:{httpd.server_port}"
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def answer(request: BaseHTTPRequestHandler, state: Server) -> None:
    """Answer one GET."""
    asked = request.headers.get("Range")
    state.asked.append((request.path, asked))
    if state.say:
        return refuse(request, state.say.pop(0))
    if request.path not in state.files:
        return refuse(request, 404)
    content = state.files[request.path]
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    start = 0
    if state.ranges and asked and request.headers.get("If-Range", tag) == tag:
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
    if start and start >= len(content):
        return refuse(request, 416, {"Content-Range": f"bytes */{len(content)}"})
    request.send_response(206 if start else 200)
    if state.drip_headers:
        return drip(request, (b"X-More: 1\r\n" for _ in range(10_000)), state.drip_headers)
    request.send_header("ETag", tag)
    if start:
        request.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    if state.lengths:
        request.send_header("Content-Length", str(len(content) - start))
    request.end_headers()
    if state.drip:
        return drip(request, (content[i : i + 1] for i in range(start, len(content))), state.drip)
    request.wfile.write(content[start:][: state.cut.pop(0) if state.cut else None])
    return None


def drip(request: BaseHTTPRequestHandler, pieces: Iterable[bytes], pause: float) -> None:
    """Send one piece after the other, slowly, until the client has had enough."""
    request.flush_headers()
    with suppress(OSError):
        for piece in pieces:
            request.wfile.write(piece)
            time.sleep(pause)


def refuse(request: BaseHTTPRequestHandler, status: int, headers: dict[str, str] | None = None) -> None:
    """Answer with a status and no content."""
    request.send_response(status)
    for name, value in {"Content-Length": "0", **(headers or {})}.items():
        request.send_header(name, value)
    request.end_headers()
