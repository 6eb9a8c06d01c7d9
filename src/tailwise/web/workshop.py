"""A place where a child process can train and choose: a copy of the ledger, beside the campaign's features and models.

The child writes to the copy; the server, which alone writes to the ledger, takes over what came of it.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..campaign.ledger import LEDGER_FILE, Ledger

PREFIX = ".job-"
SHARED = ("features", "models")  # caches of files that are whole or absent; two processes may add to them


@contextmanager
def workshop(ledger: Ledger) -> Iterator[Path]:
    """A folder that is a campaign of its own, removed at the end."""
    folder = ledger.folder / f"{PREFIX}{secrets.token_hex(8)}"
    folder.mkdir()
    try:
        for name in SHARED:
            (ledger.folder / name).mkdir(exist_ok=True)
            (folder / name).symlink_to(ledger.folder / name, target_is_directory=True)
        ledger.back_up("job").replace(folder / LEDGER_FILE)
        yield folder
    finally:
        remove(folder)


def remove_left_over(ledger: Ledger) -> int:
    """Clear away what servers that were killed have left; gives how many places there were."""
    left = list(ledger.folder.glob(f"{PREFIX}*"))
    for folder in left:
        remove(folder)
    return len(left)


def remove(folder: Path) -> None:
    """Without the features and models, which are the campaign's own."""
    for name in SHARED:
        with suppress(FileNotFoundError):
            (folder / name).unlink()
    shutil.rmtree(folder, ignore_errors=True)
