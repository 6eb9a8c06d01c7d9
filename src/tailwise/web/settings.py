"""What the server is told when it starts: who may come in, and how people label.

The secret of a campaign's page: made once, kept in the campaign's folder, readable by its owner alone.
"""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadFile, BadInput

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERYWHERE = frozenset({"0.0.0.0", "::", ""})
FIRST_PORT = 8765
SHORTEST_TOKEN = 16
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f]{0,4}(:[0-9A-Fa-f.]{0,15}){2,8}")


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections there may be, and how long one may wait for the other side."""

    max_connections: int = 256  # a browser opens up to six
    header_timeout: float = 15.0  # for the whole head of a request
    keep_alive: int = 30  # between two requests; the page looks every five
    write_timeout: float = 60.0  # without taking anything of a response
    accept_pause: float = 1.0  # after a connection could not be accepted

    def __post_init__(self) -> None:
        """Numbers that a server can work with."""
        for name in ("max_connections", "header_timeout", "keep_alive", "write_timeout", "accept_pause"):
            if not getattr(self, name) > 0:
                raise BadInput(f"the limit {name} is {getattr(self, name)}; it must be above 0")


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Of one running server."""

    token: str | None  # None: whoever reaches the port may label; only on this machine
    host: str = "127.0.0.1"
    port: int = FIRST_PORT
    other_names: tuple[str, ...] = ()  # more host names by which people reach this server
    blind: bool = False  # show no pre-labels, so that they cannot sway anybody
    ml_backend: bool = False  # speak Label Studio's protocol as well
    body_bytes: int = 1 << 20
    ml_body_bytes: int = 8 << 20

    def __post_init__(self) -> None:
        """Refuse what would let strangers in."""
        if self.token is None and self.host not in LOOPBACK:
            raise BadInput(
                f"asked to listen on {self.host or 'every address'} without a token, but then everybody in the network "
                "could label; leave out --no-token, or listen on 127.0.0.1"
            )
        if self.token is not None and not re.fullmatch(rf"[A-Za-z0-9_-]{{{SHORTEST_TOKEN},200}}", self.token):
            raise BadInput(
                f"the token must be {SHORTEST_TOKEN} to 200 letters, digits, - or _; "
                "delete the campaign's file `token` to get a new one"
            )
        for name in (*self.other_names, *({self.host} - EVERYWHERE)):
            if not is_host_name(name):
                raise BadInput(
                    f"{name!r} is no host name; give a name such as lab.example.org, without http:// or port"
                )

    @property
    def cookie(self) -> str:
        """Cookies ignore the port, so the name keeps two campaigns on one machine apart."""
        return f"tailwise_{self.port}"

    @property
    def names(self) -> frozenset[str]:
        """Host names that are ours, in lower case."""
        return LOOPBACK | {name.lower() for name in (self.host, *self.other_names) if name not in EVERYWHERE}

    @property
    def any_address(self) -> bool:
        """Whether every numeric address is ours: listening everywhere, and no foreign name can stand for a number."""
        return self.host in EVERYWHERE


def is_host_name(text: str) -> bool:
    """Whether a text is a name or an address, and nothing more.

    >>> is_host_name("lab.example.org"), is_host_name("::1"), is_host_name("http://lab"), is_host_name("lab:80")
    (True, True, False, False)
    """
    return _HOST_NAME.fullmatch(text) is not None


TOKEN_FILE = "token"
TOKEN_BYTES = 24


def campaign_token(folder: Path, *, renew: bool = False) -> str:
    """The token of a campaign; with `renew`, a new one, and links with the old one no longer work."""
    path = folder / TOKEN_FILE
    try:
        if renew:
            path.unlink(missing_ok=True)
        _make(path)
        path.chmod(0o600)  # whoever could read it could label
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadFile(f"cannot use the token in {path}: {reason}; delete it to get a new one") from error


def _make(path: Path) -> None:
    """Never over one that is there, which a running server may be using; whole, whenever this process may die."""
    if path.exists():
        return
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as out:
            out.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
            out.flush()
            os.fsync(out.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
