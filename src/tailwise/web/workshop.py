"""A place where a child process can train and choose: a folder in the campaign's, with a copy of the ledger.

The child writes to the copy; the server, which alone writes to the ledger, takes over what came of it.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..campaign.ledger import LEDGER_FILE, Ledger
from ..campaign.private import make_folder

PREFIX = ".job-"


@contextmanager
def workshop(ledger: Ledger) -> Iterator[Path]:
    """A folder that is a campaign of its own, removed at the end."""
    folder = ledger.folder / f"{PREFIX}{secrets.token_hex(8)}"
    make_folder(folder)
    try:
        ledger.back_up("job").replace(folder / LEDGER_FILE)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_over(ledger: Ledger) -> int:
    """Clear away what servers that were killed have left; gives how many places there were."""
    left = list(ledger.folder.glob(f"{PREFIX}*"))
    for folder in left:
        shutil.rmtree(folder, ignore_errors=True)
    return len(left)
