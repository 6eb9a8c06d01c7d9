"""Which file a path leads to: device and inode, to notice when the file of an open ledger is deleted or replaced.

SQLite goes on writing to the file that it has opened. Once that has lost its name, what is written there is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Identity:
    """A path and the file that it led to."""

    path: Path
    device: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Identity | None:
        """None where there is no file. Never opens it: closing it again would end SQLite's locks."""
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return cls(path, found.st_dev, found.st_ino)

    def holds(self) -> bool:
        """Whether the path still leads to this file."""
        return Identity.of(self.path) == self
