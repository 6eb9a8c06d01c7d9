"""JSON from strangers: bytes in, a value out, or the reason why not.

Refused are deep nesting, NaN and infinities, numbers too long, lone surrogates, and anything but UTF-8.

Connections that cannot use up the server: their number is limited, and none may wait for ever.

uvicorn limits neither the time that a request's head takes nor the number of connections, and asyncio logs each of
thousands of failed accepts when file descriptors run out.
"""

from __future__ import annotations

import asyncio
import errno
import json
import math
import os
import re
import socket
import time
from collections.abc import Callable
from typing import NoReturn

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from ..errors import BadInput
from .errors import get_log
from .settings import Limits

MOST_DEPTH = 32
# Possessive, and an open string ends with the text: so a body of a million quotes is still scanned once.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")


def parse(body: bytes) -> object:
    r"""The value of a JSON text.

    >>> parse(b'{"seconds": 1.5}')
    {'seconds': 1.5}
    >>> parse(b'[NaN]')
    Traceback (most recent call last):
    ...
    tailwise.errors.BadInput: the body contains NaN, which is no JSON; send null or a number
    """
    openings = body.count(b"[") + body.count(b"{")
    if openings > MOST_DEPTH and depth(body) > MOST_DEPTH:  # most bodies have too few brackets to be deep
        raise BadInput(f"the body is nested more than {MOST_DEPTH} deep; send a flatter one")
    try:
        value: object = json.loads(body.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
        # A lone surrogate can only be written as an escape; it parses, but no file and no database can hold it.
        if b"\\u" in body:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except BadInput:
        raise
    except UnicodeDecodeError:
        raise BadInput("the body is not UTF-8; send JSON as UTF-8") from None
    except UnicodeEncodeError:
        raise BadInput("the body contains half of a surrogate pair, which is no text; send whole characters") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is no JSON: {error}") from None
    return value


def depth(body: bytes) -> int:
    """How deep arrays and objects are nested, brackets in strings left out; counts no further than one too many.

    >>> depth(b'{"a": [1, "[["]}')
    2
    """
    deepest = level = 0
    for bracket in _BRACKETS.finditer(_STRING.sub(b"", body)):
        level += 1 if bracket.group() in b"[{" else -1
        deepest = max(deepest, level)
        if deepest > MOST_DEPTH:
            break
    return deepest


def _no_constant(name: str) -> NoReturn:
    raise BadInput(f"the body contains {name}, which is no JSON; send null or a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadInput(f"the body contains the number {text[:40]}, which is too large")
    return value


log = get_log(__name__)

OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, getattr(errno, "WSAEMFILE", errno.EMFILE)}
GLANCE = 0.05  # seconds between two looks for room, while every connection has a request under way
QUIET = 60.0  # seconds until the same trouble is logged again


class LimitedProtocol(H11Protocol):
    """One connection. Its requests must begin in time, and their responses must be taken in time."""

    def __init__(self, config: Config, state: ServerState, app_state: dict[str, object], limits: Limits) -> None:
        super().__init__(config, state, app_state)
        self._limits = limits
        self._header: asyncio.TimerHandle | None = None  # runs while a request's head is waited for
        self._writing: asyncio.TimerHandle | None = None  # runs while nothing of a response is taken
        self.idle_since: float | None = None  # None while a request is under way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first request must begin in time, too."""
        super().connection_made(transport)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        """A part of a head does not prolong the time for the whole of it."""
        super().data_received(data)
        self._wait_for_request()

    def on_response_complete(self) -> None:
        """From here on it waits for the next request; uvicorn limits that until its first byte."""
        super().on_response_complete()
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """No timer outlives its connection."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._stop_timers()

    def pause_writing(self) -> None:
        """The other side takes nothing: not for ever."""
        super().pause_writing()
        self._abort_later()

    def resume_writing(self) -> None:
        """It does."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def timeout_keep_alive_handler(self) -> None:
        """What is left to send must be taken in time as well: closing alone would wait for that."""
        super().timeout_keep_alive_handler()
        self._abort_later()

    def _wait_for_request(self) -> None:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if cycle is not None and not cycle.response_complete:
            self.idle_since = None
            if self._header is not None:
                self._header.cancel()
                self._header = None
            return
        if self.idle_since is None:
            self.idle_since = self.loop.time()
        if self._header is None and self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self._header = self.loop.call_later(self._limits.header_timeout, self.timeout_keep_alive_handler)

    def _abort_later(self) -> None:
        if self._writing is None:
            self._writing = self.loop.call_later(self._limits.write_timeout, self.transport.abort)

    def _stop_timers(self) -> None:
        for timer in (self._header, self._writing):
            if timer is not None:
                timer.cancel()
        self._header = self._writing = None


class Acceptor:
    """Takes connections from a listening socket, as many as there may be at once."""

    def __init__(
        self, listener: socket.socket, make: Callable[[], LimitedProtocol], state: ServerState, limits: Limits
    ) -> None:
        self._listener = listener
        self._make = make
        self._state = state
        self._limits = limits
        self._most = most_connections(limits.max_connections)
        self._logged: dict[str, float] = {}  # when each trouble was logged

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        while True:
            try:
                line, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                await self._failed(error)
                continue
            try:
                await self._have_room()
                await loop.connect_accepted_socket(self._make, line)
            except OSError:  # it is gone already
                line.close()
            except asyncio.CancelledError:
                line.close()
                raise

    async def _have_room(self) -> None:
        """For one that waits: an idle connection is closed for it, or it waits until a request is done."""
        while len(self._state.connections) >= self._most:
            self._log_once("limit", f"{self._most} connections are open, which is the limit: idle ones are closed")
            await asyncio.sleep(0 if self._close_longest_idle() else GLANCE)

    async def _failed(self, error: OSError) -> None:
        """Without descriptors, or with a fault of the network: one line, and a pause."""
        if error.errno in OUT_OF_RESOURCES:
            self._close_longest_idle()
        self._log_once("accept", f"cannot accept connections: {error.strerror or error}; trying again every second")
        await asyncio.sleep(self._limits.accept_pause)

    def _close_longest_idle(self) -> bool:
        idle = [
            (one.idle_since, one) for one in self._state.connections
            if isinstance(one, LimitedProtocol) and one.idle_since is not None
        ]  # fmt: skip
        if not idle:
            return False
        _, longest = min(idle, key=lambda pair: pair[0])
        longest.idle_since = None  # chosen once
        longest.transport.abort()
        return True

    def _log_once(self, what: str, text: str) -> None:
        moment = time.monotonic()
        if moment >= self._logged.get(what, -QUIET) + QUIET:
            self._logged[what] = moment
            log.warning("%s", text)


def most_connections(wanted: int) -> int:
    """At most half of the descriptors that the process may have open: the ledger and the images need some."""
    allowed = os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else -1  # Windows allows many
    return wanted if allowed < 0 else max(1, min(wanted, allowed // 2))
