"""Files that are whole or absent: picks and sweeps as .csv, .parquet or .npy, written beside, synced and renamed.

A crash at any moment leaves the old file or the new one, never half of one.
"""

from __future__ import annotations

import csv
import io
import os
import secrets
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np

from ..errors import BadFile, BadInput, MissingExtra
from ..strategies.path import PATH_COLUMNS, BalancePath
from ..types import Selection

PICK_SUFFIXES = (".csv", ".parquet", ".npy")
FIGURE_SUFFIXES = (".png", ".svg", ".pdf")
PATH_SUFFIXES = (*FIGURE_SUFFIXES, ".csv")


def check_writable(path: Path, suffixes: Sequence[str]) -> None:
    """Refuse, before any work is done, a file that could not be written in the end."""
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        raise BadInput(f"cannot write {path.name!r}: its name must end in {', '.join(suffixes)}")
    if path.is_dir():
        raise BadFile(f"cannot write {path}: there is a folder of that name")
    if not path.parent.is_dir():
        raise BadFile(f"cannot write {path}: there is no folder {path.parent}; make it first")
    if not os.access(path.parent, os.W_OK):
        raise BadFile(f"cannot write {path}: no permission to write to the folder {path.parent.resolve()}")
    if suffix == ".parquet":
        _parquet()


def write_picks(batch: Selection, path: Path) -> None:
    """The picks, best first: columns rank (from 1) and index, or in .npy the indices alone."""
    ranks = np.arange(1, len(batch) + 1)
    suffix = path.suffix.lower()
    if suffix == ".npy":
        write_whole(path, npy_bytes(batch.indices))
    elif suffix == ".parquet":
        write_whole(path, _parquet_bytes({"rank": ranks, "index": batch.indices}))
    else:
        write_whole(path, csv_bytes(("rank", "index"), zip(ranks.tolist(), batch.indices.tolist(), strict=True)))


def write_sweep(path: BalancePath, where: Path) -> None:
    """A λ sweep as .csv, one row per λ."""
    columns = [getattr(path, name).tolist() for name in PATH_COLUMNS]
    write_whole(where, csv_bytes(PATH_COLUMNS, zip(*columns, strict=True)))


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
        _sync_folder(final.parent)
    except OSError as error:
        raise BadFile(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        beside.unlink(missing_ok=True)


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


def _parquet_bytes(columns: dict[str, np.ndarray]) -> bytes:
    table, write = _parquet()
    buffer = io.BytesIO()
    write(table(columns), buffer)
    return buffer.getvalue()


def _parquet() -> tuple[Callable[..., object], Callable[..., object]]:
    """pyarrow's table constructor and writer."""
    try:
        from pyarrow import parquet, table
    except ImportError as error:
        raise MissingExtra.named("writing .parquet", "pyarrow", "tables") from error
    return table, parquet.write_table


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
