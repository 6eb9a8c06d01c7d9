"""Where a Ray that we start keeps its sockets and logs: a private folder, gone afterwards, even after a `kill -9`.

Ray lets every user write into the folder that it is given. So that folder lies in another one, which only this user can
enter. The outer one is locked while its process lives; what a killed process left behind is removed by the next.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..processes import lock_file, unlock_file

PREFIX = "tailwise-ray-"
LOCK_FILE = "lock"
INNER = "s"
LONGEST = 15  # bytes: the path of a socket may have 103 on macOS; our names take 24 of them, those of Ray up to 64
LEFT_ALONE = 60.0  # seconds: a younger folder may be about to be locked


@contextmanager
def session_folder() -> Iterator[Path]:
    """A new folder that only this user can reach."""
    home = _home()
    remove_left_behind(home)
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
    descriptor = lock_file(folder / LOCK_FILE)
    try:
        inner = folder / INNER
        inner.mkdir()
        yield inner
    finally:
        if descriptor is not None:  # nobody else could lock a folder that is this new
            unlock_file(descriptor)
        shutil.rmtree(folder, ignore_errors=True)  # a process that is still ending may write a last line of log


def remove_left_behind(home: Path) -> None:
    """Remove this user's folders whose process is gone."""
    for folder in home.glob(f"{PREFIX}*"):
        with suppress(OSError):  # somebody else's, gone meanwhile, or held
            facts = folder.lstat()
            if _is_mine(facts) and time.time() - facts.st_mtime > LEFT_ALONE and not folder.is_symlink():
                _remove_unless_held(folder)


def _remove_unless_held(folder: Path) -> None:
    descriptor = lock_file(folder / LOCK_FILE)
    if descriptor is not None:
        unlock_file(descriptor)  # Windows does not remove an open file; no process uses a folder again
        shutil.rmtree(folder, ignore_errors=True)


def _is_mine(facts: os.stat_result) -> bool:
    return not hasattr(os, "getuid") or facts.st_uid == os.getuid()  # on Windows, all of the user's temporary folder


def _home() -> Path:
    """The usual place, where it leaves room for the names of sockets, which Ray has not on Windows."""
    usual = Path(tempfile.gettempdir())
    return usual if os.name == "nt" or len(os.fsencode(usual)) <= LONGEST else Path("/tmp")
