"""Who may come in: pure checks of a request's head (ASGI scope) against the settings, each giving a Refusal or None.

Host against rebinding, Origin against other sites, the token against everybody else, the type against plain forms.

The guard in front of the app, as pure ASGI: turns bad requests away and dresses every answer, errors included.

A body is read here, counted while it streams and checked as JSON; the app behind sees only requests that passed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import ipaddress
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from ..errors import BadInput
from . import connections
from .errors import Refusal, get_log
from .settings import WebSettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send


TOKEN_HEADER = b"x-tailwise-token"
READING = frozenset({"GET", "HEAD"})
ML_PATHS = frozenset({"/health", "/setup", "/predict", "/webhook"})
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")


def refused(scope: Scope, settings: WebSettings) -> Refusal | None:
    """The first reason to turn a request away for whom it comes from."""
    checks = (wrong_host, wrong_origin, wrong_token)
    return next((no for check in checks if (no := check(scope, settings))), None)


def refused_body(scope: Scope, settings: WebSettings) -> Refusal | None:
    """The first reason not to read a body, by what its headers say."""
    return wrong_type(scope) or too_long(scope, settings)


def wrong_host(scope: Scope, settings: WebSettings) -> Refusal | None:
    """A page of another site that has its name point here (DNS rebinding) still sends its own name."""
    hosts = headers(scope, b"host")
    match = _AUTHORITY.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if match is None:
        return Refusal(400, "bad_host", "the request names no host; open the link that `tailwise label` printed")
    name = match.group(1).strip("[]").lower()
    if name in settings.names or (settings.any_address and _is_address(name)):
        return None
    return Refusal(
        403,
        "foreign_host",
        f"this server is not {name[:100]!r}; open the printed link, or start it with that name allowed",
    )


def wrong_origin(scope: Scope, settings: WebSettings) -> Refusal | None:
    """Browsers name the page that asks; only ours may write. Programs name none, and show the token, not a cookie."""
    origins = headers(scope, b"origin")
    if not origins:
        by_cookie = _cookies(scope, settings.cookie) and not headers(scope, TOKEN_HEADER) and not _basic(scope)
        if scope["method"] in READING or not by_cookie:
            return None
        return Refusal(
            403, "no_origin", "a request that changes something must name its Origin or send the token header"
        )
    host = headers(scope, b"host")[0].lower()
    if len(origins) == 1 and origins[0].lower() in (f"http://{host}", f"https://{host}"):
        return None
    return Refusal(
        403, "foreign_origin", f"requests from {origins[0][:100]!r} are not allowed; use the page of this server"
    )


def wrong_token(scope: Scope, settings: WebSettings) -> Refusal | None:
    """Compared in constant time; any of the ways to show it will do."""
    if settings.token is None or is_health(scope, settings) or link_token(scope) is not None:
        return None
    shown = [*headers(scope, TOKEN_HEADER), *_cookies(scope, settings.cookie)]
    if settings.ml_backend and scope["path"] in ML_PATHS:
        shown += _basic(scope)
    if any(same(token, settings.token) for token in shown):
        return None
    what = "the token is not that of this campaign (any more)" if shown else "no token was sent"
    return Refusal(401, "no_token", f"{what}; open the link that `tailwise label` printed")


def wrong_type(scope: Scope) -> Refusal | None:
    """A form of another site can post text/plain without asking; it cannot post JSON."""
    kinds = headers(scope, b"content-type")
    kind, _, charset = kinds[0].lower().partition(";") if len(kinds) == 1 else ("", "", "")
    utf8 = charset.strip().replace('"', "") in ("", "charset=utf-8")
    if kind.strip() == "application/json" and utf8 and not headers(scope, b"content-encoding"):
        return None
    return Refusal(415, "not_json", "only Content-Type: application/json, UTF-8 and not compressed, is read")


def too_long(scope: Scope, settings: WebSettings) -> Refusal | None:
    """By what the header claims; the guard counts as well."""
    lengths = headers(scope, b"content-length")
    if lengths and not (lengths[0].isascii() and lengths[0].isdigit()):
        return Refusal(400, "bad_length", "Content-Length is no number")
    limit = body_limit(scope, settings)
    return over_limit(limit) if lengths and int(lengths[0][:20]) > limit else None


def over_limit(limit: int) -> Refusal:
    """For a body that is, or says it is, too long."""
    return Refusal(413, "too_large", f"the body is longer than {limit:,} bytes; send fewer answers at once")


def body_limit(scope: Scope, settings: WebSettings) -> int:
    """Label Studio sends whole tasks; nobody else needs much."""
    return settings.ml_body_bytes if settings.ml_backend and scope["path"] in ML_PATHS else settings.body_bytes


def link_token(scope: Scope) -> str | None:
    """The token in the printed link /?token=…, None for any other request."""
    if scope["method"] != "GET" or scope["path"] != "/" or b"token=" not in scope["query_string"]:
        return None
    query: bytes = scope["query_string"]
    return parse_qs(query.decode("latin-1")).get("token", [""])[0]


def is_health(scope: Scope, settings: WebSettings) -> bool:
    """Whether somebody asks only if the server is up, which is no secret."""
    return settings.ml_backend and scope["path"] == "/health" and scope["method"] in READING


def from_another_site(scope: Scope) -> bool:
    """Whether a person followed a link of another site: then browsers hold the cookie (SameSite=Strict) back."""
    return headers(scope, b"sec-fetch-mode") == ["navigate"] and headers(scope, b"sec-fetch-site") == ["cross-site"]


def same(token: str, true: str) -> bool:
    """Whether they are equal, in a time that does not tell how much of it was right."""
    return hmac.compare_digest(token.encode("utf-8", "surrogateescape"), true.encode())


def headers(scope: Scope, name: bytes) -> list[str]:
    """Every value sent under a name."""
    sent: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return [value.decode("latin-1").strip() for key, value in sent if key == name]


def _cookies(scope: Scope, name: str) -> list[str]:
    found = []
    for header in headers(scope, b"cookie"):
        try:
            found += [morsel.value for key, morsel in SimpleCookie(header).items() if key == name]
        except CookieError:  # another program's cookie on this host name; ours may be in the next header
            continue
    return found


def _basic(scope: Scope) -> list[str]:
    """Passwords of HTTP Basic, the one way in which Label Studio can show a token."""
    found = []
    for header in headers(scope, b"authorization"):
        kind, _, coded = header.partition(" ")
        if kind.lower() == "basic":
            try:
                found.append(base64.b64decode(coded.strip(), validate=True).decode("utf-8").partition(":")[2])
            except (binascii.Error, ValueError):
                continue
    return found


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


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
        refusal = refused(scope, self.settings)
        if refusal is not None:
            await self._turn_away(scope, send, refusal)
        elif (token := link_token(scope)) is not None:
            await self._let_in(scope, send, token)
        elif scope["method"] == "POST" and scope["path"] in self.posts:
            await self._with_body(scope, receive, send)
        else:
            await self._pass_on(scope, replay(b"", receive), send)

    async def _with_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        limit = body_limit(scope, self.settings)
        body = refused_body(scope, self.settings) or await read_body(receive, limit)
        if isinstance(body, Refusal):
            await (refuse_and_linger(receive, send, body) if body.status == 413 else refuse(send, body))
        else:
            await self._pass_on(scope, replay(body, receive), send)

    async def _turn_away(self, scope: Scope, send: Send, refusal: Refusal) -> None:
        """As JSON; a person at the front door gets a page, or a second try without the other site behind it."""
        if refusal.status != 401 or scope["path"] != "/":
            await refuse(send, refusal)
        elif from_another_site(scope):
            await answer(send, 200, COME_IN, PLAIN, [(b"refresh", b"0; url=/")])
        else:
            await answer(send, 401, NO_ENTRY, PLAIN)

    async def _let_in(self, scope: Scope, send: Send, token: str) -> None:
        """The link becomes a cookie, and the token leaves the address bar."""
        true = self.settings.token
        if true is not None and not same(token, true):
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
                    return over_limit(limit)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        return Refusal(400, "too_slow", f"the body did not arrive within {seconds:g} s")
    try:
        connections.parse(bytes(body))
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
