"""How the server says no: one shape for every error, {"error": {"code": ..., "message": ...}}, and what maps to it."""

from __future__ import annotations

import json
from dataclasses import dataclass

from ..errors import BadInput, LedgerBusy, LedgerFault, LedgerReplaced, NewerLedger, TailwiseError, UnknownName

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
