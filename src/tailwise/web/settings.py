"""Settings of a server, the campaign's access tokens, and the server's log with what may be shown of its messages."""

from __future__ import annotations

import hmac
import logging
import os
import re
import secrets
import socket
import tempfile
import traceback
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from ..errors import BadFile, BadInput

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
EVERYWHERE = frozenset({"0.0.0.0", "::", ""})
FIRST_PORT = 8765
SHORTEST_TOKEN = 16
ANY_ADDRESS = ("192.0.2.1", 9)  # reserved for documentation; a datagram socket "connects" without sending anything
TOKEN_FILE = "token"  # of the owner
ANNOTATOR_TOKEN_FILE = "token-annotator"
TOKEN_BYTES = 24
Role: TypeAlias = Literal["owner", "annotator"]  # annotators label; the rest is for the owner
_HOST_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?|[0-9A-Fa-f]{0,4}(:[0-9A-Fa-f.]{0,15}){2,8}")


@dataclass(frozen=True, slots=True)
class Limits:
    """How many connections there may be, and how long one may wait for the other side."""

    max_connections: int = 256  # a browser opens up to six
    header_timeout: float = 15.0  # for all headers of a request
    keep_alive: int = 30  # between two requests; the page asks every five
    write_timeout: float = 60.0  # while the client reads nothing of a response
    accept_pause: float = 1.0  # after a connection could not be accepted

    def __post_init__(self) -> None:
        """Every limit must be positive."""
        for name in ("max_connections", "header_timeout", "keep_alive", "write_timeout", "accept_pause"):
            if not getattr(self, name) > 0:
                raise BadInput(f"the limit {name} is {getattr(self, name)}; it must be above 0")

    def most_connections(self) -> int:
        """At most half of the descriptors that the process may have open: the ledger and the images need some."""
        allowed = os.sysconf("SC_OPEN_MAX") if hasattr(os, "sysconf") else -1  # Windows allows many
        return self.max_connections if allowed < 0 else max(1, min(self.max_connections, allowed // 2))


@dataclass(frozen=True, slots=True)
class WebSettings:
    """Settings of one running server."""

    token: str | None  # the owner's; None: anyone who reaches the port is the owner; only on this machine
    host: str = "127.0.0.1"
    port: int = FIRST_PORT
    other_names: tuple[str, ...] = ()  # more host names by which people reach this server
    blind: bool = False  # show no predictions, so that they cannot influence anyone
    ml_backend: bool = False  # also serve Label Studio's ML backend protocol
    body_bytes: int = 1 << 20
    ml_body_bytes: int = 8 << 20
    ticket: str = field(default_factory=lambda: secrets.token_urlsafe(TOKEN_BYTES), compare=False, repr=False)
    """Opens the page like the owner's token, but ends with this server."""
    annotator_token: str | None = None  # opens the page for labelling alone; None: nobody has such a link
    names: frozenset[str] = field(init=False)  # host names of this server, in lower case
    cookie: str = field(init=False)  # name of the cookie with the token
    roles: tuple[tuple[Role, bytes], ...] = field(init=False, repr=False)  # with their tokens

    def __post_init__(self) -> None:
        """Reject settings that would give strangers access."""
        if self.token is None and self.host not in LOOPBACK:
            raise BadInput(
                f"asked to listen on {self.host or 'every address'} without a token, but then everybody in the network "
                "could label; leave out --no-token, or listen on 127.0.0.1"
            )
        for token, file in ((self.token, TOKEN_FILE), (self.annotator_token, ANNOTATOR_TOKEN_FILE)):
            if token is not None and not re.fullmatch(rf"[A-Za-z0-9_-]{{{SHORTEST_TOKEN},200}}", token):
                raise BadInput(
                    f"the token must be {SHORTEST_TOKEN} to 200 letters, digits, - or _; "
                    f"delete the campaign's file `{file}` to get a new one"
                )
        if self.token is not None and self.token == self.annotator_token:
            raise BadInput(f"the owner's and the annotators' token are equal; delete the file `{ANNOTATOR_TOKEN_FILE}`")
        for name in (*self.other_names, *({self.host} - EVERYWHERE)):
            if not is_host_name(name):
                raise BadInput(
                    f"{name!r} is not a host name; give a name such as lab.example.org, without http:// or port"
                )

        # Computed once, as every request is checked against them. Cookies ignore the port, so the cookie's name keeps
        # two campaigns on one machine apart.
        names = {name.lower() for name in (self.host, *self.other_names) if name not in EVERYWHERE}
        object.__setattr__(self, "names", LOOPBACK | names)
        object.__setattr__(self, "cookie", f"tailwise_{self.port}")
        known = (("owner", self.token), ("annotator", self.annotator_token))
        object.__setattr__(self, "roles", tuple((role, token.encode()) for role, token in known if token is not None))

    def url(self) -> str:
        """The page's address, as others in the network see it where it listens everywhere."""
        host = own_address() if self.host in EVERYWHERE else self.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def role_of(self, sent: str) -> Role | None:
        """Whose token was sent, compared in constant time; None for any other text."""
        if is_token(sent, self.token):
            return "owner"
        return "annotator" if is_token(sent, self.annotator_token) else None


def is_token(sent: str, token: str | None) -> bool:
    """Compared in constant time."""
    return token is not None and hmac.compare_digest(sent.encode("utf-8", "surrogateescape"), token.encode())


def is_host_name(text: str) -> bool:
    """Whether a text is a host name or an address, and nothing more.

    >>> is_host_name("lab.example.org"), is_host_name("::1"), is_host_name("http://lab"), is_host_name("lab:80")
    (True, True, False, False)
    """
    return _HOST_NAME.fullmatch(text) is not None


def own_address() -> str:
    """The address under which others in the network see this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(ANY_ADDRESS)
            return str(probe.getsockname()[0])
        except OSError:  # no network at all
            return "127.0.0.1"


def campaign_token(folder: Path, *, role: Role = "owner", renew: bool = False) -> str:
    """The campaign's token, made once and readable by its owner alone; `renew` replaces it, which ends old links."""
    path = folder / (TOKEN_FILE if role == "owner" else ANNOTATOR_TOKEN_FILE)
    try:
        if renew:
            path.unlink(missing_ok=True)
        if not path.exists():  # a running server may be using the one that exists
            _write_token(path)
        path.chmod(0o600)  # anyone who can read it can label
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadFile(f"cannot use the token in {path}: {reason}; delete it to get a new one") from error


def campaign_tokens(folder: Path, *, renew: bool = False) -> tuple[str, str]:
    """The owner's token and the annotators'; `renew` replaces both."""
    return campaign_token(folder, renew=renew), campaign_token(folder, role="annotator", renew=renew)


def _write_token(path: Path) -> None:
    """Atomically: the file is complete even if this process is killed."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as out:
            out.write(secrets.token_urlsafe(TOKEN_BYTES) + "\n")
            out.flush()
            os.fsync(out.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


# The log: one line per event. Ids, names and paths come from outside: a line feed in one could forge a line, an escape
# sequence could command the terminal, so characters that cannot be printed are escaped.

LONGEST = 4000  # characters of one message; a body may have millions
INDENT = "    "  # of a traceback, so that none of its lines looks like a log line


def get_log(name: str) -> logging.Logger:
    """A logger that escapes; every module of the server takes its logger from here."""
    log = logging.getLogger(name)
    if not any(isinstance(one, EscapeFilter) for one in log.filters):
        log.addFilter(EscapeFilter())
    return log


class EscapeFilter(logging.Filter):
    """Makes a record safe to write, for every handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True: every record is logged."""
        record.msg, record.args = escaped(record.getMessage()), None
        if isinstance(record.exc_info, tuple):
            lines = "".join(traceback.format_exception(*record.exc_info)).splitlines()
            record.exc_text = "\n".join(f"{INDENT}{escaped(line)}" for line in lines)
        return True


def escaped(text: str) -> str:
    r"""A text of printable characters alone.

    >>> escaped("id 7\n\x1b[2J ok\u202e")
    'id 7\\n\\x1b[2J ok\\u202e'
    """
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text):,} characters)"
    if short.isprintable():
        return short
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in short)


# Errors of the library name files by their full path. The log shows it; responses do not.

_SLASH = r"[\\/]+"
_END = r"(?![\w-]|\.\w)"  # the name of a folder ends here
_NAME = r"[^\s'\"`;:,()<>|\\/]"
_ABSOLUTE = re.compile(rf"(?<![\w.~:\\/-])(?:[A-Za-z]:[\\/]|[\\/])[\\/]*(?:{_NAME}+{_SLASH})+({_NAME}*)")


class PublicText:
    """Shortens paths in messages: below a known folder to the relative path, any other to its last name.

    >>> public = PublicText(Path("/home/ann lee/birds"), [Path("/data/photos")])
    >>> public("cannot read /home/ann lee/birds/models/7; is /data/photos there? See '/etc/ssl/cert.pem'")
    "cannot read models/7; is photos there? See 'cert.pem'"
    """

    def __init__(self, folder: Path, roots: Iterable[Path] = ()) -> None:
        known = {folder, *roots, Path(tempfile.gettempdir())}
        with suppress(RuntimeError):  # a user without one
            known.add(Path.home())
        longest_first = sorted(known, key=lambda path: -len(path.parts))
        self._known = [(_folder_pattern(path), path.name) for path in longest_first if path.name]

    def __call__(self, text: str) -> str:
        """The message without the server's folders."""
        for pattern, name in self._known:
            text = pattern.sub(lambda found, name=name: "" if found["below"] else name, text)  # type: ignore[misc]
        return _ABSOLUTE.sub(lambda found: str(found[1]), text)


def _folder_pattern(path: Path) -> re.Pattern[str]:
    """A folder and the slash after it, with either kind of slash, doubled where the message shows it escaped."""
    names = _SLASH.join(re.escape(part.strip("\\/")) for part in path.parts if part.strip("\\/"))
    start = _SLASH if path.parts[0].startswith(("/", "\\")) else ""
    return re.compile(rf"(?<![\w.]){start}{names}(?:(?P<below>{_SLASH})(?=[\w.])|{_END})")
