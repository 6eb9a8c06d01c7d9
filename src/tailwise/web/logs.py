r"""The server's log: one line per event, whatever others have sent.

Ids, names and paths come from outside. A line feed in one could forge a line, an escape sequence could command the
terminal: what cannot be printed is shown escaped.
"""

from __future__ import annotations

import logging
import traceback

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
