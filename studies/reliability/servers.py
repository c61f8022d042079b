"""Hostile servers on the loopback address: each download is refused in bounded time and leaves no wrong file behind."""

from __future__ import annotations

import hashlib
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from metricgrad.paper.download import fetch
from studies.reliability.verdicts import UNCLEAN, USED, Verdict, of_call
from studies.reliability.workers import as_record

SECONDS, PEAK_MB = 30.0, 256
"""The most seconds and memory a case may take."""
LIMITS: Mapping[str, Any] = {"attempts": 2, "pause": 0.01, "timeout": 0.5, "window": 1.0, "max_bytes": 50_000_000}
"""How little patience the downloads have, so that all cases are tried soon."""
CONTENT = b"a,b,target\n1,2,0\n" * 1_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
OK, END = b"HTTP/1.1 200 OK\r\n", b"\r\n"
HTML = b"<!doctype html><title>Sign in</title><p>Please sign in to this network.</p>"
Serve = Callable[[socket.socket, int], None]
"""Answers one connection; the number says how many came before it."""


def said(*parts: bytes) -> Serve:
    """Return a server that says something and hangs up."""
    return lambda link, number: link.sendall(b"".join(parts))


def headed(*lines: str, body: bytes = CONTENT, status: str = "200 OK") -> Serve:
    """Return a server that sends a status, some headers and a body."""
    return said(f"HTTP/1.1 {status}\r\n".encode(), *(f"{line}\r\n".encode("latin-1") for line in lines), END, body)


def redirected(*places: str) -> Serve:
    """Return a server that sends one on, each time to the next place."""
    return lambda link, number: headed(f"Location: {places[number % len(places)]}", status="302 Found", body=b"")(
        link, number
    )


def dripped(head: bytes, drop: bytes, every: float = 0.05) -> Serve:
    """Return a server that sends a few bytes at a time, and never ends."""

    def serve(link: socket.socket, number: int) -> None:
        link.sendall(head)
        while True:
            link.sendall(drop)
            time.sleep(every)

    return serve


def silent(link: socket.socket, number: int) -> None:
    """Take the connection, and say nothing."""
    time.sleep(60)


def reset(after: int) -> Serve:
    """Return a server that breaks the connection off after so many bytes."""

    def serve(link: socket.socket, number: int) -> None:
        link.sendall((OK + f"Content-Length: {len(CONTENT)}\r\n\r\n".encode() + CONTENT)[:after])
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    return serve


LENGTH = f"Content-Length: {len(CONTENT)}"
SERVERS: Mapping[str, Serve] = {
    "silent": silent,
    "hangs up": said(),
    "says garbage": said(os.urandom(2_000)),
    "speaks another protocol": said(b"220 mail.example.org ESMTP\r\n"),
    "half a status": said(b"HTTP/1."),
    "status of letters": said(b"HTTP/1.1 abc OK\r\n\r\n"),
    "status 999": headed(status="999 What", body=b""),
    "a header without end": dripped(OK + b"X: ", b"x" * 1_000, 0.0),
    "headers without end": dripped(OK, b"X-A: b\r\n", 0.0),
    "100,000 headers": said(OK, b"X-A: b\r\n" * 100_000, END, CONTENT),
    "longer than it says": headed("Content-Length: 5"),
    "shorter than it says": headed(f"Content-Length: {2 * len(CONTENT)}"),
    "negative length": headed("Content-Length: -1", body=b"x"),
    "length of letters": headed("Content-Length: abc", body=b"x"),
    "length of 30 digits": headed(f"Content-Length: {10**30}", body=b"x"),
    "two lengths": headed("Content-Length: 5", f"Content-Length: {len(CONTENT)}"),
    "nothing": headed("Content-Length: 0", body=b""),
    "bad chunks": said(OK, b"Transfer-Encoding: chunked\r\n\r\nzz\r\nxx\r\n"),
    "a negative chunk": said(OK, b"Transfer-Encoding: chunked\r\n\r\n-5\r\nxx\r\n"),
    "a chunk of 2^64": said(OK, b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nxx\r\n"),
    "reset at once": reset(0),
    "reset in the headers": reset(20),
    "reset in the body": reset(5_000),
    "sends to itself": redirected("/data"),
    "sends back and forth": redirected("/a", "/b"),
    "sends to a file": redirected("file:///etc/hostname"),
    "sends to a folder by FTP": redirected("ftp://127.0.0.1:1/data"),
    "sends to a data address": redirected("data:text/csv,a"),
    "sends to nowhere": redirected(""),
    "sends to a closed port": redirected("http://127.0.0.1:1/data"),
    "sends to a bad address": redirected("http://[::bad/"),
    "sends to letters for a port": redirected("http://127.0.0.1:port/"),
    "HTML instead of data": headed(f"Content-Length: {len(HTML)}", "Content-Type: text/html", body=HTML),
    "another file": headed(LENGTH, body=CONTENT[::-1]),
    "gzip that was not asked for": headed("Content-Encoding: gzip", "Content-Length: 20", body=b"\x1f\x8b" + bytes(18)),
    "part that was not asked for": headed(
        "Content-Range: bytes 5-9/10", "Content-Length: 5", status="206 Partial", body=b"x" * 5
    ),
    "range that lies": headed("Content-Range: bytes 0-x/y", LENGTH, status="206 Partial", body=CONTENT[::-1]),
    "no such range, always": headed("Content-Range: bytes */0", "Content-Length: 0", status="416 Range", body=b""),
    "a tag with a line break": headed('ETag: "a\x0b\x1b[31m"', "Content-Length: 3", body=b"abc"),
    "a tag of 60,000 letters": headed(f'ETag: "{"x" * 60_000}"', "Content-Length: 3", body=b"abc"),
    "500 always": headed("Content-Length: 0", status="500 Oops", body=b""),
    "503, and come back in a year": headed("Retry-After: 31536000", "Content-Length: 0", status="503 Busy", body=b""),
    "401": headed('WWW-Authenticate: Basic realm="x"', "Content-Length: 0", status="401 No", body=b""),
    "404 with terminal codes": headed("Content-Length: 0", status="404 \x1b[31mred\x07", body=b""),
    "a reason of 60,000 letters": headed("Content-Length: 0", status=f"404 {'x' * 60_000}", body=b""),
    "status 100 for ever": dripped(b"", b"HTTP/1.1 100 Continue\r\n\r\n", 0.0),
    "drips its status": dripped(b"", b"H"),
    "drips its headers": dripped(OK, b"X"),
    "drips its body": dripped(OK + b"Content-Length: 1000000000\r\n\r\n", b"x"),
    "drips without a length": dripped(OK + END, b"x"),
    "drips chunks": dripped(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "a body without end": dripped(OK + END, b"x" * 65_536, 0.0),
    "a body without end, in chunks": dripped(
        OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b"x" * 4_096 + END, 0.0
    ),
    "a terabyte": dripped(OK + b"Content-Length: 1099511627776\r\n\r\n", b"x" * 65_536, 0.0),
}
"""Servers, by what each does."""
CASES = len(SERVERS)


def prepare(work: Path) -> None:
    """Take no way around the loopback address."""
    os.environ["no_proxy"] = "*"


def attempt(work: Path, seed: int, case: int) -> Mapping[str, Any]:
    """Download from a hostile server, and then from a friendly one, for which nothing may be in the way."""
    prepare(work)
    name, serve = list(SERVERS.items())[case]
    with tempfile.TemporaryDirectory(prefix="metricgrad-attack-") as folder, serving(serve) as url:
        path = Path(folder) / "data"
        verdict = of_call(lambda: fetch(f"{url}/data", path, SHA256, **LIMITS))
        if verdict.outcome == USED or path.exists():
            return as_record(name, Verdict(UNCLEAN, f"it left {path.stat().st_size:,} bytes as if they were the file"))
        if verdict.outcome == UNCLEAN:
            return as_record(name, verdict)
        if url not in verdict.detail:
            return as_record(name, Verdict(UNCLEAN, f"it does not name the address: {verdict.detail}"))
        with serving(headed(LENGTH)) as friendly:
            later = of_call(lambda: fetch(f"{friendly}/data", path, SHA256, **LIMITS))
        if later.outcome != USED and "not the expected file" in later.detail:
            with serving(headed(LENGTH)) as friendly:  # wrong bytes that were kept are found out, and gone
                later = of_call(lambda: fetch(f"{friendly}/data", path, SHA256, **LIMITS))
        wrong = later.outcome != USED or path.read_bytes() != CONTENT
        return as_record(name, Verdict(UNCLEAN, f"afterwards: {later.detail}") if wrong else verdict)


@contextmanager
def serving(serve: Serve) -> Iterator[str]:
    """Serve connections, each in a thread, until the block ends; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, serve), daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def _accept(listening: socket.socket, serve: Serve) -> None:
    number = 0
    while True:
        try:
            link, _ = listening.accept()
        except OSError:
            return
        threading.Thread(target=_answer, args=(link, serve, number), daemon=True).start()
        number += 1


def _answer(link: socket.socket, serve: Serve, number: int) -> None:
    with link, suppress(OSError):
        link.settimeout(60)
        asked = b""
        while b"\r\n\r\n" not in asked and (more := link.recv(65_536)):
            asked += more
        serve(link, number)
        with suppress(OSError):
            link.shutdown(socket.SHUT_WR)
            link.settimeout(0.2)
            link.recv(1)
