"""Who may come in: pure checks of a request's head (ASGI scope) against the settings, each giving a Refusal or None.

Host against rebinding, Origin against other sites, the token against everybody else, the type against plain forms.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re
from collections.abc import Iterable
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from .refusal import Refusal
from .settings import WebSettings

if TYPE_CHECKING:
    from starlette.types import Scope

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
