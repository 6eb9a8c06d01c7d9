"""The secret of a campaign's page: made once, kept in the campaign's folder, readable by its owner alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from ..errors import BadFile

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
