"""Messages without the server's folders: errors name files by their full path, which is for the log alone.

How the server says no: one shape for every error, {"error": {"code": ..., "message": ...}}, and what maps to it.

The server's log: one line per event, whatever others have sent.

Ids, names and paths come from outside. A line feed in one could forge a line, an escape sequence could command the
terminal: what cannot be printed is shown escaped.
"""

from __future__ import annotations

import json
import logging
import re
import tempfile
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ..errors import BadInput, LedgerBusy, LedgerFault, LedgerReplaced, NewerLedger, TailwiseError, UnknownName

_SLASH = r"[\\/]+"
_END = r"(?![\w-]|\.\w)"  # the name of a folder ends here
_NAME = r"[^\s'\"`;:,()<>|\\/]"
_ABSOLUTE = re.compile(rf"(?<![\w.~:\\/-])(?:[A-Za-z]:[\\/]|[\\/])[\\/]*(?:{_NAME}+{_SLASH})+({_NAME}*)")


class PublicText:
    """Shortens paths: below a known folder to what is relative to it, any other to its last name.

    >>> public = PublicText(Path("/home/ann lee/birds"), [Path("/data/photos")])
    >>> public("cannot read /home/ann lee/birds/models/7; is /data/photos there? See '/etc/ssl/cert.pem'")
    "cannot read models/7; is photos there? See 'cert.pem'"
    """

    def __init__(self, folder: Path, roots: Iterable[Path] = ()) -> None:
        known = {folder, *roots, Path(tempfile.gettempdir()), *_home()}
        longest_first = sorted(known, key=lambda path: -len(path.parts))
        self._known = [(_pattern(path), path.name) for path in longest_first if path.name]

    def __call__(self, text: str) -> str:
        """The same message, for everybody."""
        for pattern, name in self._known:
            text = pattern.sub(lambda found, name=name: "" if found["below"] else name, text)  # type: ignore[misc]
        return _ABSOLUTE.sub(lambda found: str(found[1]), text)


def _home() -> list[Path]:
    try:
        return [Path.home()]
    except RuntimeError:  # a user without one
        return []


def _pattern(path: Path) -> re.Pattern[str]:
    """A folder, with either kind of slash, doubled where the message shows it escaped; and the slash after it."""
    names = _SLASH.join(re.escape(part.strip("\\/")) for part in path.parts if part.strip("\\/"))
    start = _SLASH if path.parts[0].startswith(("/", "\\")) else ""
    return re.compile(rf"(?<![\w.]){start}{names}(?:(?P<below>{_SLASH})(?=[\w.])|{_END})")


LONGEST_MESSAGE = 1000  # a message may quote what was asked, but is no echo of a megabyte


@dataclass(frozen=True, slots=True)
class Refusal:
    """One answer that is not what was asked for."""

    status: int
    code: str
    message: str

    def body(self) -> bytes:
        """The JSON that is sent; what cannot be encoded is shown escaped."""
        told = {"code": self.code, "message": self.message[:LONGEST_MESSAGE]}
        return json.dumps({"error": told}, ensure_ascii=False).encode("utf-8", "backslashreplace")


def refusal_of(error: TailwiseError) -> Refusal:
    """What an error of the library is on the wire.

    >>> refusal_of(UnknownName("there is no image 'abc'")).status
    404
    """
    message = str(error)
    if isinstance(error, UnknownName):
        return Refusal(404, "unknown", message)
    if isinstance(error, LedgerBusy):
        return Refusal(409, "busy", message)
    if isinstance(error, NewerLedger):
        return Refusal(409, "newer_ledger", message)
    if isinstance(error, LedgerReplaced):  # the page knows this code: it keeps its answers until the server is back
        return Refusal(503, "ledger_replaced", message)
    if isinstance(error, LedgerFault):  # not the sender's mistake: whoever waits may send the same again
        return Refusal(500, "storage", message)
    if isinstance(error, BadInput):
        return Refusal(400, "bad_input", message)
    return Refusal(409, "impossible", message)


LONGEST = 4000  # characters of one message; a body may have millions
INDENT = "    "  # of a traceback: none of its lines looks like one of the log's own


def get_log(name: str) -> logging.Logger:
    """A logger that escapes; every module of the server takes its logger from here."""
    log = logging.getLogger(name)
    if not any(isinstance(one, Escaping) for one in log.filters):
        log.addFilter(Escaping())
    return log


class Escaping(logging.Filter):
    """Makes a record safe to write, for every handler."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Always True: nothing is left out."""
        record.msg, record.args = escaped(record.getMessage()), None
        if isinstance(record.exc_info, tuple):
            lines = "".join(traceback.format_exception(*record.exc_info)).splitlines()
            record.exc_text = "\n".join(f"{INDENT}{escaped(line)}" for line in lines)
        return True


def escaped(text: str) -> str:
    r"""A text in which nothing but printable characters is left.

    >>> escaped("id 7\n\x1b[2J ok\u202e")
    'id 7\\n\\x1b[2J ok\\u202e'
    """
    short = text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text):,} characters)"
    if short.isprintable():
        return short
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in short)
