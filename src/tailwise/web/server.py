"""One uvicorn server around one app: runs in whatever thread calls it, tells when it is up, stops when it is told."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

GRACE = 3  # seconds for requests under way when the server stops
KEEP_ALIVE = 30  # seconds; the page looks every five


class Server(uvicorn.Server):
    """Leaves signals to the caller, and trusts no header that a proxy may have set."""

    def __init__(self, app: ASGIApp, listener: socket.socket, announce: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app, http="h11", ws="none", loop="asyncio", lifespan="on", log_config=None, access_log=False,
                server_header=False, proxy_headers=False, timeout_keep_alive=KEEP_ALIVE,
                timeout_graceful_shutdown=GRACE,
            )
        )  # fmt: skip
        self._listener = listener
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """As uvicorn does, and say so."""
        await super().startup(sockets)
        if self.started:
            self._announce()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: uvicorn would raise them again at the end, before the ledger is closed."""
        yield

    def serve_until_stopped(self) -> None:
        """Serve; returns when all that was taken on is done."""
        self.run(sockets=[self._listener])

    def stop(self) -> None:
        """From any thread or signal."""
        self.should_exit = True
