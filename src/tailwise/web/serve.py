"""Serves the page of a campaign: options, a free port, limited connections, a link for the caller.

uvicorn limits neither how long the headers of a request may take nor the number of connections, and asyncio logs each
of thousands of failed accepts when file descriptors run out: so connections are accepted and timed here. Nothing is
printed: the link goes to the caller's `on_start`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeAlias

from ..campaign.service import Campaign
from ..errors import BadInput, MissingExtra

try:
    import uvicorn
except ModuleNotFoundError as error:
    raise MissingExtra.named("the labelling page", "uvicorn", "web") from error
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from .settings import EVERYWHERE, FIRST_PORT, Limits, WebSettings, campaign_tokens, get_log, is_host_name

log = get_log(__name__)

PORTS_TRIED = 20
STOPPING = ("SIGINT", "SIGTERM", "SIGBREAK")  # the last on Windows
TAKEN = (errno.EADDRINUSE, getattr(errno, "WSAEACCES", errno.EADDRINUSE))  # Windows has two errors for a port in use
LAST_PORT = 65_535
PURPOSE = "the labelling page"
START_SECONDS = 30.0
BACKLOG = 1024  # connections that wait to be accepted; systems lower it to what they allow
PLACEHOLDER_TOKEN = "x" * 32  # while the other settings are checked
GRACE = 3  # seconds for requests under way when the server stops
OUT_OF_RESOURCES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, getattr(errno, "WSAEMFILE", errno.EMFILE)}
POLL = 0.05  # seconds between two looks for an idle connection
LOG_PAUSE = 60.0  # seconds until the same problem is logged again


@dataclass(frozen=True, slots=True)
class Options:
    """How to serve a campaign."""

    host: str = "127.0.0.1"
    port: int | None = None  # None: 8765, or one of the next that is free; 0: any
    with_token: bool = True
    new_token: bool = False  # old links no longer work
    other_names: tuple[str, ...] = ()  # more host names by which people reach the server
    overlap: int | None = None  # answers wanted per image, from the next round on; None: the campaign's setting
    blind: bool = False
    ml_backend: bool = False
    open_browser: bool = False
    limits: Limits = field(default_factory=Limits)  # of its connections

    def __post_init__(self) -> None:
        """Check the types; the command line has done so already."""
        port: object = self.port
        if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= LAST_PORT):
            raise BadInput(f"the port is {port!r}; it must be a whole number from 0 to {LAST_PORT:,}, or None")
        for name in (self.host, *self.other_names):
            if not isinstance(name, str):
                raise BadInput(f"the host is {name!r}; it must be a name or an address such as '127.0.0.1'")
        if isinstance(self.other_names, str):
            raise BadInput(f"the other names are {self.other_names!r}; give a tuple of host names")


@dataclass(frozen=True, slots=True)
class Serving:
    """A running server; printed and in notebooks it does not show its token."""

    link: str = field(repr=False)  # opens the page; carries the token
    url: str
    port: int
    token: str | None = field(repr=False)  # the owner's
    ticket: str | None = field(default=None, repr=False, compare=False)  # like the token, while the server runs
    annotator_link: str | None = field(default=None, repr=False)  # to share: opens the page for labelling alone
    annotator_token: str | None = field(default=None, repr=False)

    def _repr_html_(self) -> str:
        link = self.url if self.ticket is None else f"{self.url}?token={self.ticket}"
        end = "" if self.ticket is None else " The link works while the page is served, and never afterwards."
        return f"<p><a href='{link}' target='_blank' rel='noopener'>Open the labelling page</a> at {self.url}.{end}</p>"


class Page(contextlib.AbstractContextManager[Serving]):
    """The labelling page of a campaign: served while a block runs, or from `start()` to `stop()`."""

    def __init__(self, campaign: Campaign, options: Options) -> None:
        self._block = running(campaign, options)
        self.serving: Serving | None = None  # None before and after

    def __enter__(self) -> Serving:
        self.serving = self._block.__enter__()
        return self.serving

    def __exit__(self, *error: Any) -> None:  # noqa: ANN401 - as of every block
        self.serving = None
        self._block.__exit__(*error)

    def start(self) -> Self:
        """Serve until `stop`; the last line of a notebook's cell then shows the link."""
        self.__enter__()
        return self

    def stop(self) -> None:
        """End the server; every saved answer is on the disk."""
        self.__exit__(None, None, None)

    def _repr_html_(self) -> str:
        return "<p>The labelling page is not served.</p>" if self.serving is None else self.serving._repr_html_()


OnStart: TypeAlias = Callable[[Serving], None]


def run(folder: str | Path, options: Options | None = None, on_start: OnStart = lambda _: None) -> None:
    """Serve a campaign until SIGINT or SIGTERM; every saved answer is on the disk by then."""
    with _prepared(folder, options or Options(), on_start) as (server, _), _stopped_by_signals(server):
        server.run()


@contextlib.contextmanager
def running(campaign: Campaign | str | Path, options: Options | None = None) -> Iterator[Serving]:
    """Serve a campaign, open or named by its folder, in a thread while the block runs; no server is left afterwards."""
    up = threading.Event()
    with _prepared(campaign, options or Options(), lambda _: up.set()) as (server, serving):
        thread = threading.Thread(target=server.run, name="tailwise-server")
        thread.start()
        try:
            if not up.wait(START_SECONDS):
                raise BadInput(f"the server was not up after {START_SECONDS:g} s; its log says why")
            yield serving
        finally:
            server.stop()
            thread.join()


@contextlib.contextmanager
def _prepared(named: Campaign | str | Path, options: Options, on_start: OnStart) -> Iterator[tuple[Server, Serving]]:
    """A server with its campaign and its port; whatever is opened here is closed at the end."""
    settings = _settings(options)  # first: invalid options are rejected before anything is opened
    make_app = _make_app()
    with _opened(named) as campaign, _listening(options.host, options.port) as listener:
        if options.overlap is not None:
            campaign.configure(overlap=options.overlap)
        tokens = campaign_tokens(campaign.folder, renew=options.new_token) if options.with_token else (None, None)
        settings = replace(settings, token=tokens[0], annotator_token=tokens[1], port=listener.getsockname()[1])
        serving = _serving(settings)
        app = make_app(campaign, settings)
        yield Server(app, listener, lambda: _announce(serving, options, on_start), options.limits), serving


def _opened(named: Campaign | str | Path) -> contextlib.AbstractContextManager[Campaign]:
    """The campaign of a folder, for the length of a block, or one that is open and stays so."""
    if not isinstance(named, Campaign):
        return Campaign.open(named, purpose=PURPOSE)
    if named.ledger.read_only:
        raise BadInput("the campaign is open read-only; open it for writing to serve its page")
    return contextlib.nullcontext(named)


def _make_app() -> Callable[[Campaign, WebSettings], ASGIApp]:
    """What needs the extra `web`, or the command that installs it."""
    try:
        from .app import make_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "starlette", "uvicorn"):
            raise
        raise MissingExtra.named("the labelling page", error.name or "fastapi", "web") from error
    return make_app


def _settings(options: Options) -> WebSettings:
    """With the machine's own name where it listens everywhere: others use it."""
    own = socket.gethostname() if options.host in EVERYWHERE else ""
    names = (*options.other_names, *([own] if is_host_name(own) else []))
    return WebSettings(
        PLACEHOLDER_TOKEN if options.with_token else None, options.host, other_names=names, blind=options.blind,
        ml_backend=options.ml_backend,
    )  # fmt: skip


def _serving(settings: WebSettings) -> Serving:
    url = settings.url()
    if settings.token is None:
        return Serving(url, url, settings.port, None)
    link, shared = (f"{url}?token={token}" for token in (settings.token, settings.annotator_token))
    return Serving(link, url, settings.port, settings.token, settings.ticket, shared, settings.annotator_token)


def _announce(serving: Serving, options: Options, on_start: OnStart) -> None:
    on_start(serving)
    if options.open_browser:  # in a thread: some browsers block their caller
        threading.Thread(target=webbrowser.open, args=(serving.link,), name="tailwise-browser", daemon=True).start()


@contextlib.contextmanager
def _listening(host: str, port: int | None) -> Iterator[socket.socket]:
    """A port to listen on: the requested one, or the first free one."""
    tries = [*range(FIRST_PORT, FIRST_PORT + PORTS_TRIED), 0] if port is None else [port]
    listener = next((bound for one in tries if (bound := _bound(host, one))), None)
    if listener is None:
        raise BadInput(f"port {port} of {host or 'this machine'} is taken; stop what uses it, or leave out --port")
    with listener:
        yield listener


def _bound(host: str, port: int) -> socket.socket | None:
    """A socket with this port; None where the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Named TCP: only then does asyncio send small answers at once, instead of 40 ms later (Nagle's algorithm).
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # Windows, where SO_REUSEADDR lets two servers share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        else:  # the port of a server that has just stopped can be used again
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        # Listening shows whether another has the port: two may bind it.
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno in TAKEN:
            return None
        what = error.strerror or str(error)
        raise BadInput(f"cannot listen on {host or 'this machine'}, port {port}: {what}; take another") from error
    return listener


@contextlib.contextmanager
def _stopped_by_signals(server: Server) -> Iterator[None]:
    """SIGINT, SIGTERM and Ctrl-Break stop the server softly; afterwards they mean what they meant before."""
    breaks = [signal.Signals[name] for name in STOPPING if name in signal.Signals.__members__]
    before = {number: signal.signal(number, lambda _number, _frame: server.stop()) for number in breaks}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)


# The server and its connections.


class Server(uvicorn.Server):
    """uvicorn with limited connections; leaves signals to the caller, and ignores headers of proxies."""

    def __init__(
        self, app: ASGIApp, listener: socket.socket, announce: Callable[[], None], limits: Limits | None = None
    ) -> None:
        self._limits = limits or Limits()
        super().__init__(uvicorn.Config(
            app, http="h11", ws="none", loop="asyncio", lifespan="on", log_config=None, access_log=False,
            server_header=False, proxy_headers=False, timeout_keep_alive=self._limits.keep_alive,
            timeout_graceful_shutdown=GRACE,
        ))  # fmt: skip
        self._listener = listener
        self._announce = announce
        self._accepting: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - ours is known
        """As uvicorn does, but accept connections within limits, then announce it."""
        await super().startup(sockets=[])
        if self.started:
            make = partial(LimitedProtocol, self.config, self.server_state, self.lifespan.state, self._limits)
            acceptor = Acceptor(self._listener, make, self.server_state, self._limits)
            self._accepting = asyncio.create_task(acceptor.run())
            self._accepting.add_done_callback(self._stop_after)
            self._announce()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:  # noqa: ARG002 - ours is known
        """Stop accepting connections, then as uvicorn does: accepted requests are done first."""
        if self._accepting is not None:
            self._accepting.cancel()
            await asyncio.wait([self._accepting])
        await super().shutdown([self._listener])

    def _stop_after(self, accepting: asyncio.Task[None]) -> None:
        """A server that cannot accept connections stops, rather than seem to run."""
        if not accepting.cancelled():
            log.error("the server stops: it cannot accept connections", exc_info=accepting.exception())
            self.stop()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """No-op: uvicorn would raise them again at the end, before the ledger is closed."""
        yield

    def stop(self) -> None:
        """From any thread or signal."""
        self.should_exit = True


class LimitedProtocol(H11Protocol):
    """One connection: its requests must arrive in time, and the client must read the responses in time."""

    def __init__(
        self, config: uvicorn.Config, state: ServerState, app_state: dict[str, object], limits: Limits
    ) -> None:
        super().__init__(config, state, app_state)
        self._limits = limits
        self._header: asyncio.TimerHandle | None = None  # runs while the headers of a request are awaited
        self._writing: asyncio.TimerHandle | None = None  # runs while the client reads nothing
        self.idle_since: float | None = None  # None while a request is under way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """The first request must arrive in time, too."""
        super().connection_made(transport)
        self._wait_for_request()

    def data_received(self, data: bytes) -> None:
        """Partial headers do not extend the timeout."""
        super().data_received(data)
        self._wait_for_request()

    def on_response_complete(self) -> None:
        """From here on it waits for the next request; uvicorn times that until its first byte."""
        super().on_response_complete()
        self._wait_for_request()

    def connection_lost(self, exc: Exception | None) -> None:
        """No timer outlives its connection."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._stop_timers()

    def pause_writing(self) -> None:
        """The client reads nothing; that is limited."""
        super().pause_writing()
        self._abort_later()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def timeout_keep_alive_handler(self) -> None:
        """Abort if the client does not read the rest in time: closing alone would wait for it."""
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
    """Accepts connections from a listening socket, up to a limit."""

    def __init__(
        self, listener: socket.socket, make: Callable[[], LimitedProtocol], state: ServerState, limits: Limits
    ) -> None:
        self._listener = listener
        self._make = make
        self._state = state
        self._limits = limits
        self._max = limits.most_connections()
        self._logged: dict[str, float] = {}  # when each problem was logged

    async def run(self) -> None:
        """Until it is cancelled."""
        loop = asyncio.get_running_loop()
        self._listener.setblocking(False)
        while True:
            try:
                connection, _ = await loop.sock_accept(self._listener)
            except OSError as error:
                await self._on_accept_error(error)
                continue
            try:
                await self._wait_for_slot()
                await loop.connect_accepted_socket(self._make, connection)
            except OSError:  # it was closed meanwhile
                connection.close()
            except asyncio.CancelledError:
                connection.close()
                raise

    async def _wait_for_slot(self) -> None:
        """Close an idle connection for a new one, or wait until a request is done."""
        while len(self._state.connections) >= self._max:
            self._log_once("limit", f"{self._max} connections are open, which is the limit: idle ones are closed")
            await asyncio.sleep(0 if self._close_longest_idle() else POLL)

    async def _on_accept_error(self, error: OSError) -> None:
        """Out of descriptors, or a network fault: log one line, and pause."""
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
        if moment >= self._logged.get(what, -LOG_PAUSE) + LOG_PAUSE:
            self._logged[what] = moment
            log.warning("%s", text)
