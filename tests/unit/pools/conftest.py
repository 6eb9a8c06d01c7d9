"""A real web server on the loopback address, which can send ranges, break off, and keep its lengths to itself."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class Site:
    """What the server gives, how it behaves, and what it was asked for."""

    port: int
    pages: dict[str, bytes] = field(default_factory=dict)
    breaks_after: int | None = None
    sends_ranges: bool = True
    sends_lengths: bool = True
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port}/{name}"


@pytest.fixture
def site() -> Iterator[Site]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.site = Site(server.server_port)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.site  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


class Answers(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...

    def do_GET(self) -> None:
        site: Site = self.server.site  # type: ignore[attr-defined]
        wanted = self.headers["Range"]
        site.asked.append((self.path, wanted))
        page = site.pages.get(self.path[1:])
        if page is None:
            self.send_error(404)
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and site.sends_ranges else 0
        if start and start >= len(page):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(page) - 1}/{len(page)}")
        if site.sends_lengths:
            self.send_header("Content-Length", str(len(page) - start))
        self.end_headers()
        with contextlib.suppress(ConnectionError):  # the client may have heard enough
            self.wfile.write(page[start : site.breaks_after])
