"""Files and folders that only their owner can read: what people said is nobody else's business.

On Windows the modes mean nothing: a campaign is as private as the folder above it.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

FILE = 0o600
FOLDER = 0o700


def make_folder(folder: Path) -> None:
    """Make a private folder; one that is there stays as it is."""
    folder.mkdir(FOLDER, parents=True, exist_ok=True)


def make_home(folder: Path) -> None:
    """Make the folder of a campaign; one that is there becomes private only if it is empty."""
    make_folder(folder)
    if not any(folder.iterdir()):
        _change(folder, FOLDER)


def make_file(path: Path, like: Path | None = None) -> None:
    """Make an empty private file; where it is to replace another one, with the mode that its owner gave to that."""
    mode = FILE if like is None or not like.exists() else stat.S_IMODE(like.stat().st_mode)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE))
    if mode != FILE:
        _change(path, mode)


def _change(path: Path, mode: int) -> None:
    with suppress(OSError):  # a disk without modes, or the folder of somebody else
        path.chmod(mode)
