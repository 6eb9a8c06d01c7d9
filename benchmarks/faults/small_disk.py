"""A disk that can be filled up and freed: a tmpfs of a few megabytes where one may mount it, or else a limit.

The limit is that of a process on the size of its files: the system then refuses to let the ledger grow.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

FILLER = "filler"
BLOCK = 4096


class SmallDisk(Protocol):
    """Where a campaign lies that is to run out of room."""

    kind: str

    @property
    def campaign(self) -> Path:
        """Its folder."""
        ...

    def fill(self, pid: int) -> None:
        """Leave no room for what the process writes."""
        ...

    def free(self, pid: int) -> None:
        """Give it room again."""
        ...


@dataclass(slots=True)
class Tmpfs:
    """A file system of its own."""

    folder: Path
    kind: str = "tmpfs"

    @property
    def campaign(self) -> Path:
        """On it."""
        return self.folder / "campaign"

    def fill(self, pid: int) -> None:  # noqa: ARG002 - the disk is full for everybody
        """Write until there is no byte left."""
        with (self.folder / FILLER).open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(BLOCK))

    def free(self, pid: int) -> None:  # noqa: ARG002
        """Take it away."""
        (self.folder / FILLER).unlink()


@dataclass(slots=True)
class Limit:
    """No file may become larger."""

    folder: Path
    kind: str = "file size limit"

    @property
    def campaign(self) -> Path:
        """On the disk that everything else is on."""
        return self.folder / "campaign"

    def fill(self, pid: int) -> None:
        """Nothing may be written beyond the first block of a file."""
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (BLOCK, resource.RLIM_INFINITY))

    def free(self, pid: int) -> None:
        """Any size; a process that has ended needs none."""
        with suppress(ProcessLookupError):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@contextmanager
def small_disk(source: Path, place: Path, megabytes: int = 16, *, may_mount: bool = True) -> Iterator[SmallDisk]:
    """A copy of a campaign on a small disk at `place`; its own is untouched."""
    place.mkdir()
    mounted = may_mount and os.geteuid() == 0 and _mount(place, megabytes)
    disk: SmallDisk = Tmpfs(place) if mounted else Limit(place)
    try:
        shutil.copytree(source, disk.campaign)
        yield disk
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(place)], check=True)


def _mount(place: Path, megabytes: int) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tailwise-faults", str(place)]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
