"""The guard in front of the app, as pure ASGI: turns bad requests away and dresses every answer, errors included.

A body is read here, counted while it streams and checked as JSON; the app behind sees only requests that passed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ..errors import BadInput
from . import doors, strict_json
from .logs import get_log
from .refusal import Refusal
from .settings import WebSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = get_log(__name__)

LINGER_BYTES = 64 << 20
LINGER_SECONDS = 3.0
BODY_SECONDS = 30.0  # whoever sends a megabyte more slowly is not labelling
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
DRESS = {
    b"content-security-policy": CSP.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"cache-control": b"no-store",  # an answer may say otherwise: images never change
}
BROKEN = Refusal(500, "broken", "something failed inside the server; its log says what, and no answer was lost")
PLAIN = b"text/html; charset=utf-8"
NO_ENTRY = (
    b"<!doctype html><html lang=en><meta charset=utf-8><title>Tailwise</title>"
    b"<p>Open the link that <code>tailwise label</code> printed: it carries the key to this page.</p></html>"
)
COME_IN = (
    b"<!doctype html><html lang=en><meta charset=utf-8><title>Tailwise</title><p><a href=/>Tailwise</a></p></html>"
)


class Guard:
    """Stands in front of an ASGI app."""

    def __init__(self, app: ASGIApp, settings: WebSettings, posts: frozenset[str]) -> None:
        self.app = app
        self.settings = settings
        self.posts = posts  # the paths that read a body; any other never sees one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Of HTTP what passes the checks; of anything else only the app's own start and end."""
        if scope["type"] == "http":
            await self._http(scope, receive, dressed(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self.app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = doors.refused(scope, self.settings)
        if refusal is not None:
            await self._turn_away(scope, send, refusal)
        elif (token := doors.link_token(scope)) is not None:
            await self._let_in(scope, send, token)
        elif scope["method"] == "POST" and scope["path"] in self.posts:
            await self._with_body(scope, receive, send)
        else:
            await self._pass_on(scope, replay(b"", receive), send)

    async def _with_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = doors.body_limit(scope, self.settings)
        body = doors.refused_body(scope, self.settings) or await read_body(receive, limit)
        if isinstance(body, Refusal):
            await (refuse_and_linger(receive, send, body) if body.status == 413 else refuse(send, body))
        else:
            await self._pass_on(scope, replay(body, receive), send)

    async def _turn_away(self, scope: Scope, send: Send, refusal: Refusal) -> None:
        """As JSON; a person at the front door gets a page, or a second try without the other site behind it."""
        if refusal.status != 401 or scope["path"] != "/":
            await refuse(send, refusal)
        elif doors.from_another_site(scope):
            await answer(send, 200, COME_IN, PLAIN, [(b"refresh", b"0; url=/")])
        else:
            await answer(send, 401, NO_ENTRY, PLAIN)

    async def _let_in(self, scope: Scope, send: Send, token: str) -> None:
        """The link becomes a cookie, and the token leaves the address bar."""
        true = self.settings.token
        if true is not None and not doors.same(token, true):
            await answer(send, 401, NO_ENTRY, PLAIN)
            return
        # Without Max-Age it goes with the browser; HttpOnly keeps it from scripts, Strict from other sites.
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        cookie = f"{self.settings.cookie}={true or ''}; Path=/; HttpOnly; SameSite=Strict{secure}"
        kept = [(b"set-cookie", cookie.encode())] if true else []
        await answer(send, 303, b"", PLAIN, [(b"location", b"/"), *kept])

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            if not started:
                await refuse(send, BROKEN)


async def read_body(receive: Receive, limit: int, seconds: float = BODY_SECONDS) -> bytes | Refusal:
    """All of a body that is short enough, comes soon enough and is sound JSON."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return Refusal(400, "cut", "the connection ended before the body did")
                body += message.get("body", b"")
                if len(body) > limit:
                    return doors.over_limit(limit)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        return Refusal(400, "too_slow", f"the body did not arrive within {seconds:g} s")
    try:
        strict_json.parse(bytes(body))
    except BadInput as error:
        return Refusal(400, "bad_json", str(error))
    return bytes(body)


def replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body once, and then whatever comes."""
    message: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def replayed() -> Message:
        nonlocal message
        if message is None:
            return await receive()
        first, message = message, None
        return first

    return replayed


def dressed(send: Send) -> Send:
    """A send that adds the security headers which an answer does not set itself."""

    async def dressing(message: Message) -> None:
        if message["type"] == "http.response.start":
            sent = [(bytes(name).lower(), value) for name, value in message.get("headers", [])]
            own = {name for name, _ in sent}
            message = {**message, "headers": [*sent, *((k, v) for k, v in DRESS.items() if k not in own)]}
        await send(message)

    return dressing


async def refuse(send: Send, refusal: Refusal) -> None:
    """Send an error."""
    await answer(send, refusal.status, refusal.body(), b"application/json")


async def refuse_and_linger(receive: Receive, send: Send, refusal: Refusal) -> None:
    """Send an error at once, then read on for a while without keeping anything, and close.

    Whoever is still sending when a connection is closed may lose the answer with it.
    """
    await begin(send, refusal.status, refusal.body(), b"application/json", [(b"connection", b"close")])
    left = LINGER_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(LINGER_SECONDS):
            while left > 0:
                message = await receive()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    break
    await send({"type": "http.response.body", "body": b""})


async def answer(
    send: Send, status: int, body: bytes, kind: bytes, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:  # fmt: skip
    """Send a whole answer."""
    await begin(send, status, body, kind, more)
    await send({"type": "http.response.body", "body": b""})


async def begin(
    send: Send, status: int, body: bytes, kind: bytes, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:  # fmt: skip
    """Send all of an answer but its end."""
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
