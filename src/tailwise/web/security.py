"""Access control and request bodies: host, origin and token checks, security headers, strict JSON.

`SecurityMiddleware` runs in front of the app (pure ASGI). It checks each request, reads and checks its body, and adds
security headers to every response, errors included; the app sees only requests that passed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hmac
import ipaddress
import json
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import parse_qs

from ..errors import BadInput
from .pages import NO_TOKEN_PAGE, RELOAD_PAGE, TOKEN_PAGE_CSP, WRONG_TOKEN_PAGE
from .settings import EVERYWHERE, WebSettings, get_log, is_token

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = get_log(__name__)

TOKEN_HEADER = b"x-tailwise-token"
READING = frozenset({"GET", "HEAD"})
ML_PATHS = frozenset({"/health", "/setup", "/predict", "/webhook"})
LONGEST_MESSAGE = 1000  # characters: a message may quote the request, but not echo a megabyte
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::\d{1,5})?")


@dataclass(frozen=True, slots=True)
class ErrorResponse:
    """An error as it is sent: {"error": {"code": ..., "message": ...}}."""

    status: int
    code: str
    message: str

    def body(self) -> bytes:
        """The JSON that is sent; characters that cannot be encoded are escaped."""
        error = {"code": self.code, "message": self.message[:LONGEST_MESSAGE]}
        return json.dumps({"error": error}, ensure_ascii=False).encode("utf-8", "backslashreplace")


# Checks of a request's headers (ASGI scope); each gives an ErrorResponse or None.


def check_access(scope: Scope, settings: WebSettings) -> ErrorResponse | None:
    """The first reason to reject a request for who sent it."""
    checks = (check_host, check_origin, check_token)
    return next((no for check in checks if (no := check(scope, settings))), None)


def check_host(scope: Scope, settings: WebSettings) -> ErrorResponse | None:
    """A page of another site that has its name point here (DNS rebinding) still sends its own name."""
    hosts = headers(scope, b"host")
    match = _AUTHORITY.fullmatch(hosts[0]) if len(hosts) == 1 else None
    if match is None:
        return ErrorResponse(400, "bad_host", "no valid Host header; open the link that `tailwise label` printed")
    name = match.group(1).strip("[]").lower()
    if name in settings.names:
        return None
    if settings.host in EVERYWHERE and _is_address(name):  # any numeric address: rebinding needs a name
        return None
    return ErrorResponse(
        403,
        "foreign_host",
        f"this server is not {name[:100]!r}; open the printed link, or start it with that name allowed",
    )


def check_origin(scope: Scope, settings: WebSettings) -> ErrorResponse | None:
    """Browsers send the Origin of the page that asks; only ours may write. Programs send the token, not a cookie."""
    origins = headers(scope, b"origin")
    if not origins:
        by_cookie = (
            _cookies(scope, settings.cookie) and not headers(scope, TOKEN_HEADER) and not _basic_passwords(scope)
        )
        if scope["method"] in READING or not by_cookie:
            return None
        return ErrorResponse(
            403, "no_origin", "a request that changes something must name its Origin or send the token header"
        )
    host = headers(scope, b"host")[0].lower()
    if len(origins) == 1 and origins[0].lower() in (f"http://{host}", f"https://{host}"):
        return None
    return ErrorResponse(
        403, "foreign_origin", f"requests from {origins[0][:100]!r} are not allowed; use the page of this server"
    )


def check_token(scope: Scope, settings: WebSettings) -> ErrorResponse | None:
    """In a header, in the cookie, or for Label Studio as the password of HTTP Basic."""
    is_health = settings.ml_backend and scope["path"] == "/health" and scope["method"] in READING  # needs no token
    scope["role"] = "owner"  # as everybody is without a token
    if settings.token is None or is_health or link_token(scope) is not None:
        return None
    sent = [*headers(scope, TOKEN_HEADER), *_cookies(scope, settings.cookie)]
    if settings.ml_backend and scope["path"] in ML_PATHS:
        sent += _basic_passwords(scope)
    codes = [token.encode("utf-8", "surrogateescape") for token in sent]
    roles = {role for role, token in settings.roles for code in codes if hmac.compare_digest(code, token)}
    if roles:
        scope["role"] = "owner" if "owner" in roles else "annotator"
        return None
    what = "the token is not that of this campaign (any more)" if sent else "no token was sent"
    return ErrorResponse(401, "no_token", f"{what}; open the link that `tailwise label` printed")


def check_content_type(scope: Scope) -> ErrorResponse | None:
    """A form of another site can post text/plain without CORS; it cannot post JSON."""
    kinds = headers(scope, b"content-type")
    kind, _, charset = kinds[0].lower().partition(";") if len(kinds) == 1 else ("", "", "")
    utf8 = charset.strip().replace('"', "") in ("", "charset=utf-8")
    if kind.strip() == "application/json" and utf8 and not headers(scope, b"content-encoding"):
        return None
    return ErrorResponse(415, "not_json", "only Content-Type: application/json, UTF-8 and not compressed, is read")


def check_length(scope: Scope, limit: int) -> ErrorResponse | None:
    """By the Content-Length header; `read_body` counts as well."""
    lengths = headers(scope, b"content-length")
    if lengths and not (lengths[0].isascii() and lengths[0].isdigit()):
        return ErrorResponse(400, "bad_length", "Content-Length is not a number")
    return over_limit(limit) if lengths and int(lengths[0][:20]) > limit else None


def over_limit(limit: int) -> ErrorResponse:
    """The error for a body that is too long."""
    return ErrorResponse(413, "too_large", f"the body is longer than {limit:,} bytes; send fewer answers at once")


def link_token(scope: Scope) -> str | None:
    """The token in the printed link /?token=…, None for any other request."""
    if scope["method"] != "GET" or scope["path"] != "/" or b"token=" not in scope["query_string"]:
        return None
    query: bytes = scope["query_string"]
    sent = parse_qs(query.decode("latin-1")).get("token", [""])[0].strip()
    pasted = sent.partition("?")[2].partition("#")[0]  # the whole link, from the page that asks for it
    return parse_qs(pasted).get("token", [""])[0] if "token=" in pasted else sent


def headers(scope: Scope, name: bytes) -> list[str]:
    """Every value of a header."""
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


def _basic_passwords(scope: Scope) -> list[str]:
    """Passwords of HTTP Basic, the only way in which Label Studio can send a token."""
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


def log_refused(scope: Scope, error: ErrorResponse, settings: WebSettings) -> None:
    """Label Studio shows nobody why its requests were refused, so the log does; what was sent stays out of it."""
    if settings.ml_backend and scope["path"] in ML_PATHS:
        sender, message = (scope.get("client") or ("?",))[0], error.message[:LONGEST_MESSAGE]
        log.warning("refused %s %s of %s: %d %s", scope["method"], scope["path"], sender, error.status, message)


# The middleware.

DRAIN_BYTES = 64 << 20
DRAIN_SECONDS = 3.0
BODY_SECONDS = 30.0  # a client that sends a megabyte more slowly is not labelling
CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    b"content-security-policy": CSP.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-resource-policy": b"same-origin",
    b"cross-origin-opener-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
    b"cache-control": b"no-store",  # a response may say otherwise: images never change
}
BROKEN = ErrorResponse(500, "broken", "something failed inside the server; its log says what, and no answer was lost")
HTML = b"text/html; charset=utf-8"


class SecurityMiddleware:
    """Checks every request of an ASGI app."""

    def __init__(self, app: ASGIApp, settings: WebSettings, posts: frozenset[str]) -> None:
        self.app = app
        self.settings = settings
        self.posts = posts  # paths that read a body; other routes never get one

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """HTTP that passes the checks, and the app's own start and end; no websockets."""
        if scope["type"] == "http":
            await self._http(scope, receive, adding_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await self.app(scope, receive, send)

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = check_access(scope, self.settings)
        if error is not None:
            await self._reject(scope, send, error)
        elif (token := link_token(scope)) is not None:
            await self._log_in(scope, send, token)
        elif scope["method"] == "POST" and scope["path"] in self.posts:
            await self._read_and_forward(scope, receive, send)
        else:
            await self._forward(scope, replay(b"", receive), send)

    async def _read_and_forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = self.settings
        # Label Studio sends whole tasks; the page sends little.
        limit = known.ml_body_bytes if known.ml_backend and scope["path"] in ML_PATHS else known.body_bytes
        body = check_content_type(scope) or check_length(scope, limit) or await read_body(receive, limit)
        if isinstance(body, ErrorResponse):
            log_refused(scope, body, known)
            await send_error(send, body, unread=receive if body.status == 413 else None)
        else:
            await self._forward(scope, replay(body, receive), send)

    async def _reject(self, scope: Scope, send: Send, error: ErrorResponse) -> None:
        """As JSON; at / as a page, which reloads itself once where a link of another site was followed.

        After such a link browsers do not send the cookie (SameSite=Strict).
        """
        log_refused(scope, error, self.settings)
        fetch = headers(scope, b"sec-fetch-mode"), headers(scope, b"sec-fetch-site")
        if error.status != 401 or scope["path"] != "/":
            await send_error(send, error)
        elif fetch == (["navigate"], ["cross-site"]):
            await send_response(send, 200, RELOAD_PAGE, HTML, [(b"refresh", b"0; url=/")])
        else:
            await send_token_page(send, NO_TOKEN_PAGE)

    async def _log_in(self, scope: Scope, send: Send, token: str) -> None:
        """Set the cookie, and redirect so that the token leaves the address bar."""
        known = self.settings
        true = token if known.role_of(token) else known.token if is_token(token, known.ticket) else None
        if known.token is not None and true is None:
            await send_token_page(send, WRONG_TOKEN_PAGE if token else NO_TOKEN_PAGE)
            return
        # No Max-Age: it ends with the browser. HttpOnly keeps it from scripts, Strict from other sites.
        secure = "; Secure" if scope.get("scheme") == "https" else ""
        cookie = f"{known.cookie}={true or ''}; Path=/; HttpOnly; SameSite=Strict{secure}"
        kept = [(b"set-cookie", cookie.encode())] if true else []
        await send_response(send, 303, b"", HTML, [(b"location", b"/"), *kept])

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
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
                await send_error(send, BROKEN)


# Bodies.


MAX_DEPTH = 32
# Possessive, and an open string ends with the text: so a body of a million quotes is still scanned once.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_BRACKETS = re.compile(rb"[\[\]{}]")


def parse_json(body: bytes) -> object:
    r"""The value of a JSON text.

    >>> parse_json(b'{"seconds": 1.5}')
    {'seconds': 1.5}
    >>> parse_json(b'[NaN]')
    Traceback (most recent call last):
    ...
    tailwise.errors.BadInput: the body contains NaN, which is not valid JSON; send null or a number
    """
    openings = body.count(b"[") + body.count(b"{")
    if openings > MAX_DEPTH and depth(body) > MAX_DEPTH:  # most bodies have too few brackets to be deep
        raise BadInput(f"the body is nested more than {MAX_DEPTH} deep; send a flatter one")
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
        raise BadInput("the body contains half of a surrogate pair, which is not text; send whole characters") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(f"the body is not valid JSON: {error}") from None
    return value


def depth(body: bytes) -> int:
    """How deep arrays and objects are nested, without brackets in strings; stops counting above MAX_DEPTH."""
    deepest = level = 0
    for bracket in _BRACKETS.finditer(_STRING.sub(b"", body)):
        level += 1 if bracket.group() in b"[{" else -1
        deepest = max(deepest, level)
        if deepest > MAX_DEPTH:
            break
    return deepest


def _no_constant(name: str) -> NoReturn:
    raise BadInput(f"the body contains {name}, which is not valid JSON; send null or a number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadInput(f"the body contains the number {text[:40]}, which is too large")
    return value


async def read_body(receive: Receive, limit: int, seconds: float = BODY_SECONDS) -> bytes | ErrorResponse:
    """The whole body, or an error where it is too long, too slow or not valid JSON."""
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return ErrorResponse(400, "cut", "the connection ended before the body did")
                body += message.get("body", b"")
                if len(body) > limit:
                    return over_limit(limit)
                if not message.get("more_body", False):
                    break
    except TimeoutError:
        return ErrorResponse(400, "too_slow", f"the body did not arrive within {seconds:g} s")
    try:
        parse_json(bytes(body))
    except BadInput as error:
        return ErrorResponse(400, "bad_json", str(error))
    return bytes(body)


def replay(body: bytes, receive: Receive) -> Receive:
    """A receive that gives the body once, then the messages that follow."""
    message: Message | None = {"type": "http.request", "body": body, "more_body": False}

    async def replayed() -> Message:
        nonlocal message
        if message is None:
            return await receive()
        first, message = message, None
        return first

    return replayed


def adding_headers(send: Send) -> Send:
    """A send that adds the security headers which a response does not set itself."""

    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            sent = [(bytes(name).lower(), value) for name, value in message.get("headers", [])]
            own = {name for name, _ in sent}
            message = {**message, "headers": [*sent, *((k, v) for k, v in SECURITY_HEADERS.items() if k not in own)]}
        await send(message)

    return add


async def send_error(send: Send, error: ErrorResponse, unread: Receive | None = None) -> None:
    """Send an error; where a body is `unread`, read on for a while without keeping anything, then close.

    A client that is still sending when its connection is closed may lose the response with it.
    """
    close = [] if unread is None else [(b"connection", b"close")]
    await start_response(send, error.status, error.body(), b"application/json", close)
    left = 0 if unread is None else DRAIN_BYTES
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            while unread is not None and left > 0:
                message = await unread()
                left -= len(message.get("body", b""))
                if not message.get("more_body", False):
                    break
    await send({"type": "http.response.body", "body": b""})


async def send_response(
    send: Send, status: int, body: bytes, kind: bytes, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:  # fmt: skip
    """Send a whole response."""
    await start_response(send, status, body, kind, more)
    await send({"type": "http.response.body", "body": b""})


async def send_token_page(send: Send, page: bytes) -> None:
    """Send a page that asks for the link, under a policy of its own."""
    await send_response(send, 401, page, HTML, [(b"content-security-policy", TOKEN_PAGE_CSP.encode())])


async def start_response(
    send: Send, status: int, body: bytes, kind: bytes, more: Iterable[tuple[bytes, bytes]] = ()
) -> None:  # fmt: skip
    """Send all of a response but its end."""
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": True})
