"""Connections that say nothing, half of something, or take nothing: none stays, and none is in the way of others."""

from __future__ import annotations

import contextlib
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tailwise.campaign.service import Campaign
from tailwise.errors import BadInput
from tailwise.web.serve import Options
from tailwise.web.settings import Limits

from .api_client import Api, read_answer, reopened, request, serving_api
from .conftest import Plan, make_campaign, until

PATIENCE = 60.0
FOR_EVER = 3600.0
HALF = b"GET /api/job HTTP/1.1\r\nHost: localhost\r\nX-Half: "


@contextlib.contextmanager
def serving(home: Path, **limits: float) -> Iterator[Api]:
    """A server with some limits that a test can wait for; the others are never reached."""
    usual = {"header_timeout": FOR_EVER, "keep_alive": int(FOR_EVER), "write_timeout": FOR_EVER, "max_connections": 100}
    with serving_api(home, Options(port=0, limits=Limits(**{**usual, **limits})), images=2) as api:  # type: ignore[arg-type]
        yield api


def connect(api: Api) -> socket.socket:
    return socket.create_connection(("127.0.0.1", api.serving.port), timeout=PATIENCE)


def whole(api: Api, method: str = "GET", path: str = "/api/job", length: int = 0, **more: str) -> bytes:
    """The head of a request, which is all of one that has no body."""
    headers = {"Host": "localhost", "X-Tailwise-Token": api.serving.token or "", **more}
    if method == "POST":
        headers |= {"Content-Type": "application/json", "Content-Length": str(length)}
    return request(method, path, headers)


def answered(api: Api, head: bytes, first: bytes) -> socket.socket:
    """A connection whose head the server has answered; this machine may be slower than the time for a head."""
    for _ in range(100):
        line = connect(api)
        with contextlib.suppress(ConnectionError):
            line.sendall(head)
            if line.recv(len(first)) == first:
                return line
        line.close()
    raise AssertionError("no head was in time")


def ends(line: socket.socket) -> bool:
    """Waits until the server closes; False where it says something first."""
    try:
        return line.recv(1) == b""
    except ConnectionError:
        return True


def test_a_connection_that_says_nothing_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path, header_timeout=0.2) as api, connect(api) as line:
        assert ends(line)


def test_a_connection_that_sends_half_a_head_is_closed(tmp_path: Path) -> None:
    with serving(tmp_path, header_timeout=0.2) as api, connect(api) as line:
        line.sendall(HALF)
        assert ends(line)


def test_a_head_that_comes_byte_by_byte_has_no_more_time(tmp_path: Path) -> None:
    with serving(tmp_path, header_timeout=0.5) as api, connect(api) as line:
        line.sendall(HALF)
        end = time.monotonic() + PATIENCE
        with contextlib.suppress(ConnectionError):
            while time.monotonic() < end and not select.select([line], [], [], 0.02)[0]:
                line.sendall(b"x")
        assert time.monotonic() < end
        assert ends(line)


def test_half_a_head_after_a_whole_request_is_closed_too(tmp_path: Path) -> None:
    with serving(tmp_path, header_timeout=0.2) as api, answered(api, whole(api), b"H") as line:
        assert read_answer(line, b"H").status == 200
        line.sendall(HALF)
        assert ends(line)


def test_between_two_requests_there_is_the_time_for_idling(tmp_path: Path) -> None:
    with serving(tmp_path, header_timeout=0.1) as api, answered(api, whole(api), b"H") as line:
        assert read_answer(line, b"H").status == 200
        for _ in range(2):
            time.sleep(0.3)
            line.sendall(whole(api))
            assert read_answer(line).status == 200
    other = tmp_path / "other"
    other.mkdir()
    with serving(other, keep_alive=1) as api, connect(api) as line:
        line.sendall(whole(api))
        assert read_answer(line).status == 200
        assert ends(line)


def test_a_body_may_come_later_than_its_head(tmp_path: Path) -> None:
    body = b'{"annotator": "ada", "count": 1}'
    with serving(tmp_path, header_timeout=0.1) as api:
        head = whole(api, "POST", "/api/lease", len(body), Expect="100-continue")
        with answered(api, head, b"HTTP/1.1 100 ") as line:
            while not line.recv(1000).endswith(b"\r\n\r\n"):
                pass
            time.sleep(0.5)
            line.sendall(body)
            assert read_answer(line).status == 200


def test_silent_connections_give_way_when_there_are_too_many(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(tmp_path, max_connections=4) as api, contextlib.ExitStack() as stack:
        silent = [stack.enter_context(connect(api)) for _ in range(12)]
        assert api.get("/api/job")["state"] == "idle"
        assert all(ends(line) for line in silent[:8])  # the first ones, as they have waited longest
    lines = [one for one in caplog.records if "which is the limit" in one.getMessage()]
    assert len(lines) == 1


def test_a_request_under_way_is_never_given_up_for_a_new_one(tmp_path: Path) -> None:
    body = b'{"annotator": "ada", "count": 1}'
    with serving(tmp_path, max_connections=3) as api, contextlib.ExitStack() as stack:
        under_way = [stack.enter_context(connect(api)) for _ in range(3)]
        for line in under_way:
            line.sendall(whole(api, "POST", "/api/lease", length=len(body), Expect="100-continue"))
            assert line.recv(1000).startswith(b"HTTP/1.1 100 ")  # the server has begun with it
        found: list[str] = []
        waiting = threading.Thread(target=lambda: found.append(api.get("/api/job")["state"]))
        waiting.start()
        waiting.join(0.5)
        assert found == []
        for line in under_way:
            line.sendall(body)
            assert read_answer(line).status == 200
        waiting.join(PATIENCE)
        assert found == ["idle"]


FILES = Path("/proc/self/fd")


@pytest.mark.skipif(not FILES.exists(), reason="the open files of this process are counted in /proc")
def test_a_connection_that_takes_nothing_of_its_response_is_closed(tmp_path: Path) -> None:
    make_campaign(tmp_path, Plan(images=1))
    noise = np.random.default_rng(0).integers(0, 256, (1600, 1600, 3), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "images" / "000_0.png")
    with Campaign.open(tmp_path / "campaign") as campaign:
        campaign.index()
    limits = Limits(header_timeout=FOR_EVER, keep_alive=int(FOR_EVER), write_timeout=0.3)
    with reopened(tmp_path / "campaign", Options(port=0, limits=limits)) as api, socket.socket() as line:
        path = f"/image/{api.rows('SELECT key FROM image')[0][0]}?size=2048"
        size = len(api.client.get(path).content)
        assert size > 500_000
        before = len(list(FILES.iterdir()))
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", api.serving.port))
        line.sendall(whole(api, path=path) * 20)  # more than any buffer in between takes
        assert line.recv(1) == b"H"  # it has begun to answer
        until(lambda: len(list(FILES.iterdir())) <= before, "the server has let go of it", PATIENCE)
        assert api.get("/api/job")["state"] == "idle"


WITHOUT_DESCRIPTORS = """
import logging, os, resource, sys
from tailwise.web.serve import Options, running
from tailwise.web.settings import Limits
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
limits = Limits(header_timeout=3600.0, accept_pause=0.1)
logging.basicConfig(format="%(message)s")  # the library is silent by itself
with running(sys.argv[1], Options(port=0, with_token=False, limits=limits)) as serving:
    print(serving.port, flush=True)
    sys.stdin.readline()
    taken = []
    try:
        while True:
            taken.append(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        print(error.strerror, flush=True)
    sys.stdin.readline()
    for one in taken:
        os.close(one)
    print("freed", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit to set")
def test_without_descriptors_the_log_gets_one_line_and_the_server_comes_back(tmp_path: Path) -> None:
    make_campaign(tmp_path, Plan(images=1))
    log = tmp_path / "log"
    with log.open("wb") as errors, subprocess.Popen(
        [sys.executable, "-c", WITHOUT_DESCRIPTORS, str(tmp_path / "campaign")], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, stderr=errors, text=True,
    ) as server:  # fmt: skip
        assert server.stdin is not None
        assert server.stdout is not None

        def say() -> None:
            assert server.stdin is not None
            server.stdin.write("go on\n")
            server.stdin.flush()

        try:
            port = int(server.stdout.readline())
            say()
            assert "Too many open files" in server.stdout.readline()
            with contextlib.ExitStack() as stack:
                for _ in range(30):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=PATIENCE))
                until(lambda: b"cannot accept connections" in log.read_bytes(), "the log says so", PATIENCE)
                time.sleep(1.5)  # fifteen more tries, each of which asyncio would have logged two thousand times
                assert log.read_bytes().count(b"\n") < 5, log.read_text()
                say()
                assert server.stdout.readline() == "freed\n"
                with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as line:
                    line.sendall(b"GET /api/job HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    assert read_answer(line).status == 200
            say()
            assert server.wait(PATIENCE) == 0
        finally:
            server.kill()
    assert log.read_bytes().count(b"\n") < 5, log.read_text()


def test_half_of_the_descriptors_stay_for_the_ledger_and_the_images() -> None:
    resource = pytest.importorskip("resource")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert Limits(1).most_connections() == 1
    assert Limits(10**9).most_connections() <= (10**9 if soft == resource.RLIM_INFINITY else soft // 2)


@pytest.mark.parametrize("name", ["max_connections", "header_timeout", "keep_alive", "write_timeout", "accept_pause"])
def test_a_limit_that_would_let_nobody_in_is_rejected(name: str) -> None:
    for value in (0, -1, float("nan")):
        with pytest.raises(BadInput, match=f"the limit {name} is"):
            Limits(**{name: value})
