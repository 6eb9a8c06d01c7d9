"""Files that are whole or absent: written beside, synced and renamed.

A crash at any moment leaves the old file or the new one, never half of one.
"""

from __future__ import annotations

import csv
import difflib
import io
import os
import secrets
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

import numpy as np

from .errors import BadFile

NAMES_LOOKED_AT = 1_000  # of a folder: one of a million images would take a minute to go through


def write_whole(path: Path, content: bytes) -> None:
    """Write beside the file, flush to the disk, then rename over it; a link is followed, not replaced."""
    final = path.resolve()
    beside = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    try:
        # os.open rather than tempfile: the file gets the permissions that any new file of the user gets.
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(final)
        sync(final.parent)
    except OSError as error:
        raise BadFile(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):  # a name that is too long cannot be removed either: the first error is the one to tell
            beside.unlink(missing_ok=True)


def no_file(path: str | Path) -> str:
    """Says that a file is missing, and what the reader may have meant.

    >>> no_file("/no-such-folder/p.npy")
    'no file at /no-such-folder/p.npy: there is no folder /no-such-folder; check the path'
    """
    asked = Path(path).expanduser()
    if asked.is_dir():
        return f"no file at {path}: it is a folder; name a file in it"
    if not asked.parent.is_dir():
        return f"no file at {path}: there is no folder {asked.parent}; check the path"
    names: list[str] = []
    with suppress(OSError):  # a folder that may not be listed
        names = [one.name for one in islice(asked.parent.iterdir(), NAMES_LOOKED_AT) if one.name != asked.name]
    near = difflib.get_close_matches(asked.name, names, n=1)
    return f"no file at {path}; " + (f"did you mean {asked.with_name(near[0])}?" if near else "check the path")


def csv_bytes(header: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    r"""A table as UTF-8 CSV with plain line ends.

    >>> csv_bytes(("rank", "index"), [(1, 7)])
    b'rank,index\n1,7\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(rows)
    return text.getvalue().encode()


def npy_bytes(array: np.ndarray) -> bytes:
    """An array in the .npy format, never pickled."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def sync(path: Path) -> None:
    """Have the disk hold a file, or the names in a folder, which makes a rename durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
