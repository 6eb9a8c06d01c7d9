"""One uvicorn server around one app: runs in whatever thread calls it, tells when it is up, stops when it is told."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from .connections import Acceptor, LimitedProtocol
from .logs import get_log
from .settings import Limits

log = get_log(__name__)

GRACE = 3  # seconds for requests under way when the server stops


class Server(uvicorn.Server):
    """Leaves signals to the caller, and trusts no header that a proxy may have set."""

    def __init__(
        self, app: ASGIApp, listener: socket.socket, announce: Callable[[], None], limits: Limits | None = None
    ) -> None:
        self._limits = limits or Limits()
        super().__init__(
            uvicorn.Config(
                app, http="h11", ws="none", loop="asyncio", lifespan="on", log_config=None, access_log=False,
                server_header=False, proxy_headers=False, timeout_keep_alive=self._limits.keep_alive,
                timeout_graceful_shutdown=GRACE,
            )
        )  # fmt: skip
        self._listener = listener
        self._announce = announce
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - ours is known
        """As uvicorn does, but accept connections within limits; and say so."""
        await super().startup(sockets=[])
        if self.started:
            acceptor = Acceptor(self._listener, self._make_protocol, self.server_state, self._limits)
            self._accepting = asyncio.create_task(acceptor.run())
            self._accepting.add_done_callback(self._stop_after)
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """No connection is accepted any more, then as uvicorn does."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        await super().shutdown(sockets)

    def _stop_after(self, accepting: asyncio.Task[None]) -> None:
        """A server that nobody can reach would only look as if it ran."""
        if not accepting.cancelled():
            log.error("the server stops: it cannot accept connections", exc_info=accepting.exception())
            self.stop()

    def _make_protocol(self) -> LimitedProtocol:
        return LimitedProtocol(self.config, self.server_state, self.lifespan.state, self._limits)

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
