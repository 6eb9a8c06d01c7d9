"""Picks and sweeps as .csv, .parquet or .npy, each whole or absent."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import BadFile, BadInput, MissingExtra
from ..files import csv_bytes, npy_bytes, write_whole
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


def write_picks(batch: Selection, path: Path, names: Sequence[str] | None = None) -> None:
    """The picks, best first: columns rank (from 1), index and, where known, name; in .npy the indices alone."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        write_whole(path, npy_bytes(batch.indices))
        return
    columns: dict[str, Sequence[int | str]] = {
        "rank": range(1, len(batch) + 1), "index": batch.indices.tolist(), **({} if names is None else {"name": names}),
    }  # fmt: skip
    if suffix == ".parquet":
        write_whole(path, _parquet_bytes({name: list(values) for name, values in columns.items()}))
    else:
        write_whole(path, csv_bytes(tuple(columns), zip(*columns.values(), strict=True)))


def write_sweep(path: BalancePath, where: Path) -> None:
    """A λ sweep as .csv, one row per λ."""
    columns = [getattr(path, name).tolist() for name in PATH_COLUMNS]
    write_whole(where, csv_bytes(PATH_COLUMNS, zip(*columns, strict=True)))


def _parquet_bytes(columns: dict[str, list[int | str]]) -> bytes:
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
