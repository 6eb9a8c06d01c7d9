"""One uvicorn server around one app: runs in whatever thread calls it, tells when it is up, stops when it is told.

Runs the page of a campaign: a folder and a few options in, a server on a free port until it is told to stop.

Nothing is printed here: the link goes to the caller's `tell`.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn
from starlette.types import ASGIApp

from ..campaign.service import Campaign
from ..errors import BadInput, MissingExtra
from .connections import Acceptor, LimitedProtocol
from .errors import get_log
from .settings import EVERYWHERE, FIRST_PORT, Limits, WebSettings, campaign_token, is_host_name

if TYPE_CHECKING:
    from fastapi import FastAPI


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


PORTS_TRIED = 20
STOPPING = ("SIGINT", "SIGTERM", "SIGBREAK")  # the last on Windows
TAKEN = (errno.EADDRINUSE, getattr(errno, "WSAEACCES", errno.EADDRINUSE))  # Windows has two errors for a taken port
LAST_PORT = 65_535
PURPOSE = "the labelling page"
START_SECONDS = 30.0
BACKLOG = 1024  # connections that wait to be accepted; systems lower it to what they allow
NOWHERE = ("192.0.2.1", 9)  # an address for documentation; a datagram socket "connects" without sending anything
UNKNOWN_YET = "x" * 32  # in place of the token, while the other settings are checked


@dataclass(frozen=True, slots=True)
class Options:
    """How to serve a campaign."""

    host: str = "127.0.0.1"
    port: int | None = None  # None: 8765, or one of the next that is free; 0: any
    with_token: bool = True
    new_token: bool = False  # links that were given out before no longer work
    other_names: tuple[str, ...] = ()  # more host names by which people reach the server
    overlap: int | None = None  # answers wanted per image, from the next round on; None: as the campaign has it
    blind: bool = False
    ml_backend: bool = False
    open_browser: bool = False
    limits: Limits = field(default_factory=Limits)  # of its connections

    def __post_init__(self) -> None:
        """Programs give what they like; the command line has looked already."""
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
    """A server that is up."""

    link: str  # opens the page; carries the token
    url: str
    port: int
    token: str | None


Tell = Callable[[Serving], None]


def run(folder: str | Path, options: Options | None = None, tell: Tell = lambda _: None) -> None:
    """Serve a campaign until SIGINT or SIGTERM; every answer that was called saved is on the disk by then."""
    with _prepared(folder, options or Options(), tell) as (server, _), _stopped_by_signals(server):
        server.serve_until_stopped()


@contextlib.contextmanager
def running(campaign: Campaign | str | Path, options: Options | None = None) -> Iterator[Serving]:
    """Serve a campaign, open or named by its folder, in a thread while the block runs; no server is left afterwards."""
    up = threading.Event()
    with _prepared(campaign, options or Options(), lambda _: up.set()) as (server, serving):
        thread = threading.Thread(target=server.serve_until_stopped, name="tailwise-server")
        thread.start()
        try:
            if not up.wait(START_SECONDS):
                raise BadInput(f"the server was not up after {START_SECONDS:g} s; its log says why")
            yield serving
        finally:
            server.stop()
            thread.join()


@contextlib.contextmanager
def _prepared(named: Campaign | str | Path, options: Options, tell: Tell) -> Iterator[tuple[Server, Serving]]:
    """A server with its campaign and its port; what is opened here is closed at the end."""
    settings = _settings(options)  # first of all: what is refused is refused before anything is opened
    make_app, Server = _web_parts()
    with _opened(named) as campaign, _listening(options.host, options.port) as listener:
        if options.overlap is not None:
            campaign.configure(overlap=options.overlap)
        token = campaign_token(campaign.folder, renew=options.new_token) if options.with_token else None
        settings = replace(settings, token=token, port=listener.getsockname()[1])
        serving = _serving(settings)
        app = make_app(campaign, settings)
        yield Server(app, listener, lambda: _announce(serving, options, tell), options.limits), serving


def _opened(named: Campaign | str | Path) -> contextlib.AbstractContextManager[Campaign]:
    """The campaign of a folder, for the length of a block, or one that is open and stays so."""
    if not isinstance(named, Campaign):
        return Campaign.open(named, purpose=PURPOSE)
    if named.ledger.read_only:
        raise BadInput("the campaign is open for reading alone; open it for writing to serve its page")
    return contextlib.nullcontext(named)


def _web_parts() -> tuple[Callable[[Campaign, WebSettings], FastAPI], type[Server]]:
    """What needs the extra `web`, or the command that installs it."""
    try:
        from .app import make_app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "starlette", "uvicorn"):
            raise
        raise MissingExtra.named("the labelling page", error.name or "fastapi", "web") from error
    return make_app, Server


def _settings(options: Options) -> WebSettings:
    """With the machine's own name where it listens everywhere: others will call it by that."""
    own = socket.gethostname() if options.host in EVERYWHERE else ""
    names = (*options.other_names, *([own] if is_host_name(own) else []))
    return WebSettings(
        UNKNOWN_YET if options.with_token else None, options.host, other_names=names, blind=options.blind,
        ml_backend=options.ml_backend,
    )  # fmt: skip


def _serving(settings: WebSettings) -> Serving:
    host = _own_address() if settings.any_address else settings.host
    url = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}/"
    link = f"{url}?token={settings.token}" if settings.token else url
    return Serving(link, url, settings.port, settings.token)


def _own_address() -> str:
    """The address under which others in the network see this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(NOWHERE)
            return str(probe.getsockname()[0])
        except OSError:  # no network at all
            return "127.0.0.1"


def _announce(serving: Serving, options: Options, tell: Tell) -> None:
    tell(serving)
    if options.open_browser:  # in a thread: some browsers hold their caller up
        threading.Thread(target=webbrowser.open, args=(serving.link,), name="tailwise-browser", daemon=True).start()


@contextlib.contextmanager
def _listening(host: str, port: int | None) -> Iterator[socket.socket]:
    """A port to listen on: the one that was asked for, or the first free one."""
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

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.stop()

    breaks = [signal.Signals[name] for name in STOPPING if name in signal.Signals.__members__]
    before = {number: signal.signal(number, stop) for number in breaks}
    try:
        yield
    finally:
        for number, action in before.items():
            signal.signal(number, action)
