"""The folder in which an export is prepared, next to its final place, and what killed exports left there.

Such a folder is locked while its process lives and holds a note that says who made it. A later export removes those
whose lock is free, and nothing that has no note of ours.
"""

from __future__ import annotations

import json
import os
import platform
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ...files import read_regular
from ...processes import lock_file, unlock_file

NAME = re.compile(r"\.(?P<final>.+)\.[0-9a-f]{8}\.part", re.DOTALL)
LOCK, NOTE = "tailwise-export.lock", "tailwise-export.json"
CONTENT, OLD = "new", "old"


@contextmanager
def staging_folder(final: Path) -> Iterator[Path]:
    """A new folder next to `final`, with an empty folder CONTENT in it; removed at the end.

    An earlier export that was moved to OLD in it goes back to its place if nothing has taken that place.
    """
    remove_stale(final.parent)
    folder = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    folder.mkdir()
    lock = None
    try:
        with suppress(OSError):  # a disk without locks: there is no note either, and a killed export stays
            lock = lock_file(folder / LOCK)
        if lock is not None:
            (folder / NOTE).write_text(json.dumps(_note()), encoding="utf-8")
        (folder / CONTENT).mkdir()
        yield folder
    finally:
        if lock is not None:
            unlock_file(lock)
        _remove(folder, final)


def remove_stale(parent: Path) -> None:
    """Remove what killed exports left in a folder: ours, of this user and machine, and in use by no process."""
    try:
        folders = sorted(path for path in parent.iterdir() if NAME.fullmatch(path.name) and _is_ours(path))
    except OSError:  # it cannot be listed; writing there will say why
        return
    for folder in folders:
        with suppress(OSError):  # another process removes it too
            lock = lock_file(folder / LOCK)
            if lock is not None:
                unlock_file(lock)  # Windows does not remove an open file; no process uses such a folder again
                _remove(folder, _final_of(folder))


def _final_of(folder: Path) -> Path:
    named = NAME.fullmatch(folder.name)
    return folder.with_name(named["final"] if named else folder.name)


def _remove(folder: Path, final: Path) -> None:
    old = folder / OLD
    if old.is_dir() and not os.path.lexists(final):  # it ended between two renames: put the earlier export back
        old.rename(final)
    shutil.rmtree(folder, ignore_errors=True)


def _note() -> dict[str, str]:
    return {"made by": "tailwise export", "machine": platform.node()}


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds our note, of this machine: a lock may not be seen by other machines."""
    try:
        facts = folder.lstat()
        mine = not hasattr(os, "getuid") or facts.st_uid == os.getuid()
        is_folder = folder.is_dir() and not folder.is_symlink()
        return mine and is_folder and json.loads(read_regular(folder / NOTE)) == _note()
    except (OSError, ValueError, RecursionError):
        return False
