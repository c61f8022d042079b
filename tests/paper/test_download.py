import gc
import hashlib
import random
import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from loopback import Server, serving

from metricgrad.paper import download

CONTENT = random.Random(0).randbytes(300_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
fetch = partial(download.fetch, pause=0.001)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def server() -> Iterator[Server]:
    with serving(data=CONTENT) as state:
        yield state


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_is_downloaded_verified_and_nothing_else_is_left(server: Server, tmp_path: Path) -> None:
    path = fetch(server.url + "/data", tmp_path / "new" / "data", SHA256)
    assert path.read_bytes() == CONTENT
    assert names(path.parent) == ["data"]


def test_progress_counts_up_to_the_whole(server: Server, tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    fetch(server.url + "/data", tmp_path / "data", progress=lambda *count: seen.append(count))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert sorted(seen) == seen


def test_a_server_that_gives_no_length_is_read_to_the_end(server: Server, tmp_path: Path) -> None:
    server.lengths = False
    seen: list[tuple[int, int | None]] = []
    fetch(server.url + "/data", tmp_path / "data", SHA256, progress=lambda *count: seen.append(count))
    assert seen[-1] == (len(CONTENT), None)


def test_a_dropped_connection_is_resumed_where_it_dropped(server: Server, tmp_path: Path) -> None:
    server.cut = [150_000, 50_000]
    path = fetch(server.url + "/data", tmp_path / "data", SHA256)
    assert path.read_bytes() == CONTENT
    assert server.asked == [("/data", None), ("/data", "bytes=150000-"), ("/data", "bytes=200000-")]


def test_a_later_call_starts_from_the_beginning(server: Server, tmp_path: Path) -> None:
    server.cut = [100_000]
    with pytest.raises(OSError, match=r"/data could not be downloaded in 1 attempts: .*dropped after 100000 of 300000"):
        fetch(server.url + "/data", tmp_path / "data", SHA256, attempts=1)
    assert names(tmp_path) == []
    fetch(server.url + "/data", tmp_path / "data", SHA256)
    assert server.asked[-1] == ("/data", None)
    assert names(tmp_path) == ["data"]


def test_ctrl_c_leaves_nothing(server: Server, tmp_path: Path) -> None:
    def interrupt(held: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch(server.url + "/data", tmp_path / "data", SHA256, interrupt)
    assert names(tmp_path) == []


def test_a_server_without_ranges_is_asked_for_the_whole_again(server: Server, tmp_path: Path) -> None:
    server.ranges, server.cut = False, [100_000]
    assert fetch(server.url + "/data", tmp_path / "data", SHA256).read_bytes() == CONTENT


def test_a_file_that_changes_between_attempts_is_not_mixed_with_the_old_one(server: Server, tmp_path: Path) -> None:
    def change(held: int, total: int | None) -> None:
        server.files["/data"] = CONTENT[::-1]

    server.cut = [100_000]
    assert fetch(server.url + "/data", tmp_path / "data", progress=change).read_bytes() == CONTENT[::-1]
    assert len(server.asked) == 2


def test_a_server_that_has_no_such_range_any_more_is_asked_for_the_whole(server: Server, tmp_path: Path) -> None:
    server.cut, server.say = [100_000], []

    def refuse_range(held: int, total: int | None) -> None:
        server.say = [416] if not server.say and len(server.asked) == 1 else server.say

    path = fetch(server.url + "/data", tmp_path / "data", SHA256, refuse_range)
    assert path.read_bytes() == CONTENT
    assert [asked for _, asked in server.asked] == [None, "bytes=100000-", None]


def test_a_wrong_file_is_refused_with_both_hashes_and_nothing_kept(server: Server, tmp_path: Path) -> None:
    server.files["/data"] = b"<html>moved</html>"
    got = hashlib.sha256(b"<html>moved</html>").hexdigest()
    message = f"^http://.*/data is not the expected file: .*expected {SHA256} but got {got}"
    with pytest.raises(ValueError, match=message):
        fetch(server.url + "/data", tmp_path / "data", SHA256)
    assert names(tmp_path) == []


def test_a_missing_file_is_named_at_once(server: Server, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="/absent does not exist: the server answered 404 Not Found"):
        fetch(server.url + "/absent", tmp_path / "data")
    assert len(server.asked) == 1


def test_a_refusal_is_not_asked_for_again_but_a_busy_server_is(server: Server, tmp_path: Path) -> None:
    server.say = [403]
    with pytest.raises(OSError, match="/data was refused: the server answered 403 Forbidden"):
        fetch(server.url + "/data", tmp_path / "data")
    server.say = [503, 429]
    assert fetch(server.url + "/data", tmp_path / "data", SHA256).exists()


def test_a_server_that_is_not_there_is_given_up_on(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/data"
        with pytest.raises(OSError, match=f"{url} could not be downloaded in 2 attempts: .*refused"):
            fetch(url, tmp_path / "data", attempts=2)


def test_a_server_that_falls_silent_counts_as_dropped(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/data"
        with pytest.raises(OSError, match=r"in 1 attempts: .*timed out"):
            fetch(url, tmp_path / "data", attempts=1, timeout=0.05)


def test_a_server_that_drips_bytes_counts_as_dropped(server: Server, tmp_path: Path) -> None:
    server.drip = 0.01
    begun = time.monotonic()
    with pytest.raises(OSError, match=r"in 2 attempts: fewer than 1,024 bytes per second over 0 seconds"):
        fetch(server.url + "/data", tmp_path / "data", attempts=2, window=0.3)
    assert time.monotonic() - begun < 10
    assert names(tmp_path) == []
    server.drip = 0.0
    assert fetch(server.url + "/data", tmp_path / "data", SHA256).read_bytes() == CONTENT


def test_a_server_that_drips_headers_without_end_counts_as_dropped(server: Server, tmp_path: Path) -> None:
    server.drip_headers = 0.01
    begun = time.monotonic()
    with pytest.raises(OSError, match=r"in 1 attempts: no complete headers within 0.3 seconds"):
        fetch(server.url + "/data", tmp_path / "data", attempts=1, window=0.3)
    assert time.monotonic() - begun < 10
    assert names(tmp_path) == []


def test_a_slow_server_that_is_fast_enough_is_waited_for(server: Server, tmp_path: Path) -> None:
    server.files["/data"], server.drip = CONTENT[:300], 0.002
    path = fetch(server.url + "/data", tmp_path / "data", attempts=1, window=0.1, min_rate=10)
    assert path.read_bytes() == CONTENT[:300]


def test_a_file_already_there_is_kept_if_right_and_downloaded_again_if_wrong(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(CONTENT)
    assert fetch(server.url + "/data", path, SHA256.upper()) == path
    assert server.asked == []
    path.write_bytes(CONTENT[:-1])
    assert fetch(server.url + "/data", path, SHA256).read_bytes() == CONTENT
    assert server.asked == [("/data", None)]


# ---- servers that answer what no server should ----------------------------------------------------------------------


@contextmanager
def answering(*parts: bytes, forever: bytes = b"") -> Iterator[str]:
    """Answer every connection with the same bytes, the last of them without end; yield the address."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(65_536)
                self.request.sendall(b"".join(parts))
                while forever:
                    self.request.sendall(forever)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/data"
        server.shutdown()
        thread.join()


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("head", "forever"),
    [
        (OK + b"\r\n", b"x" * 65_536),
        (CHUNKED, b"1000\r\n" + b"x" * 4_096 + b"\r\n"),
        (OK + b"Content-Length: 1099511627776\r\n\r\n", b""),
        (OK + b"Content-Length: 300001\r\n\r\n", b"x"),
    ],
    ids=["a body without end", "chunks without end", "a terabyte", "a byte too many"],
)
def test_a_file_larger_than_the_limit_is_refused_and_nothing_kept(tmp_path: Path, head: bytes, forever: bytes) -> None:
    message = "is too large: expected at most 300,000 bytes, got at least "
    with answering(head, forever=forever) as url, pytest.raises(ValueError, match=f"^{url} {message}"):
        fetch(url, tmp_path / "data", max_bytes=300_000)
    assert names(tmp_path) == []


def test_a_file_as_large_as_the_limit_is_downloaded(server: Server, tmp_path: Path) -> None:
    server.cut = [100_000]
    assert fetch(server.url + "/data", tmp_path / "data", SHA256, max_bytes=300_000).read_bytes() == CONTENT


def test_the_rest_of_a_file_counts_together_with_what_came_before(server: Server, tmp_path: Path) -> None:
    server.lengths, server.cut = False, []
    with pytest.raises(ValueError, match="at most 299,999 bytes, got at least 300,000"):
        fetch(server.url + "/data", tmp_path / "data", max_bytes=299_999)
    server.lengths, server.cut = True, [200_000]
    with pytest.raises(ValueError, match="at most 299,999 bytes, got at least 300,000"):
        fetch(server.url + "/data", tmp_path / "data", max_bytes=299_999)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (OK + b"Content-Length: abc\r\n\r\nx", "Content-Length: expected a number of bytes, got 'abc'"),
        (OK + b"Content-Length: -1\r\n\r\nx", "Content-Length: expected a number of bytes, got '-1'"),
        (OK + b"Content-Length: " + b"9" * 5_000 + b"\r\n\r\nx", "expected a number of bytes, got '999"),
        (CHUNKED + b"-5\r\nxx\r\n", ""),
        (CHUNKED + b"zz\r\nxx\r\n", ""),
        (b"HTTP/1.1 302 Found\r\nLocation: http://[::bad/\r\n\r\n", "malformed: Invalid IPv6 URL"),
        (b"HTTP/1.1 416 Range\r\nContent-Range: bytes */0\r\nContent-Length: 0\r\n\r\n", "416"),
    ],
)
def test_a_malformed_answer_is_an_error_that_names_the_address(tmp_path: Path, answer: bytes, message: str) -> None:
    with answering(answer) as url, pytest.raises(OSError, match=f"^{url} could not be downloaded in 2 .*{message}"):
        fetch(url, tmp_path / "data", SHA256, attempts=2)
    gc.collect()  # a connection left open would be a warning
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("status", [b"404", b"403", b"500"])
def test_what_a_server_says_is_shortened_and_kept_on_one_line(tmp_path: Path, status: bytes) -> None:
    reason = b"\x1b[31m" + b"x" * 60_000
    answer = b"HTTP/1.1 " + status + b" " + reason + b"\r\nContent-Length: 0\r\n\r\n"
    with answering(answer) as url, pytest.raises(OSError, match=f"^{url} .*{status.decode()}.*31mxxx") as caught:
        fetch(url, tmp_path / "data", attempts=1)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def test_a_disk_that_cannot_be_written_to_is_named_with_the_address(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(OSError, match=f"^{server.url}/data could not be downloaded to .*data: ") as caught:
        fetch(server.url + "/data", tmp_path / "file" / "data")
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.errno == caught.value.__cause__.errno
    assert caught.value.errno is not None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"url": "ftp://host/data"}, "^ftp://host/data .*the address must start with http:// or https://"),
        ({"attempts": 0}, "attempts must"),
    ],
)
def test_bad_input_is_named(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fetch(**{"url": "http://host/data", "path": tmp_path / "data", **changes})
