"""The check before one file is written: that its place is free, or holds an earlier export of ours."""

from __future__ import annotations

from pathlib import Path

from ...errors import BadFile, BadInput
from ...files import open_regular

HEAD = 4096


def check_file(out: Path, suffix: str, ours: bytes) -> None:
    """Refuse a place that cannot be written, or whose file does not begin like ours: `ours` must be in its head."""
    if out.suffix.lower() != suffix:
        raise BadInput(f"cannot write {out.name!r}: its name must end in {suffix}")
    head = _head(out)
    if not out.parent.is_dir():
        raise BadFile(f"cannot write {out}: there is no folder {out.parent}; make it first")
    if head and ours not in head:
        raise BadFile(f"{out} is there already, and no export has written it; name another file or move it away")


def _head(path: Path) -> bytes:
    """The first bytes; none where there is no file."""
    try:
        with open_regular(path) as file:
            return file.read(HEAD)
    except FileNotFoundError:
        return b""
    except IsADirectoryError as error:
        raise BadFile(f"cannot write {path}: there is a folder of that name") from error
    except OSError as error:
        raise BadFile(f"cannot write {path}: {error.strerror or error}") from error
