"""One Parquet file with the columns of the CSV, typed, and the classes in order in its metadata."""

from __future__ import annotations

import io
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from ...errors import BadFile, MissingExtra
from ...files import write_whole
from .base import FORMATS, Loaded, Record, Source, all_classes
from .classes_file import ClassesFile, from_text
from .single_file import check_file
from .table import ALSO_CALLED, PROBABILITY, Table, header_of, records_of, row_of
from .untrusted import CUT, read_bytes, text_of

MARK = b"tailwise"


class Parquet:
    """A Parquet file; the images stay where they are."""

    name = "parquet"
    about = "one Parquet file with the columns of the CSV; needs pyarrow"
    suffix = ".parquet"
    copies = False

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:  # noqa: ARG002 - the rows name the classes
        """Read a table with a column for paths and one for labels, under any of their usual names."""
        arrow, parquet = need_arrow()
        try:
            file = parquet.ParquetFile(io.BytesIO(read_bytes(path)))
            wanted = [name for name in file.schema_arrow.names if _wanted(name)]
            columns = {name: file.read([name]).column(0).to_pylist() for name in wanted}
            metadata = file.schema_arrow.metadata or {}
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise BadFile(f"{path} cannot be read as Parquet: {error}; {CUT}") from error
        cells = zip(*columns.values(), strict=True)
        rows = [(number, [_text(cell, path) for cell in row]) for number, row in enumerate(cells, start=1)]
        records = list(records_of(Table(str(path), list(columns), rows)))
        about = from_text(text_of(metadata[MARK], str(path)), str(path)) if MARK in metadata else None
        return Loaded(records, [], all_classes(about.classes if about else (), records))

    def check(self, out: Path) -> None:
        """Refuse a file that is not ours, or that cannot be written."""
        _, parquet = need_arrow()
        check_file(out, self.suffix, b"PAR1")
        if out.exists() and out.stat().st_size:
            check_ours(out, parquet)

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:  # noqa: ARG002 - no image is copied
        """Write the table; nothing is guarded, as no spreadsheet opens it."""
        arrow, parquet = need_arrow()
        kept = list(records)
        names = all_classes(classes, kept)
        self.check(out)
        table = _typed(arrow, kept, header_of(kept, names))
        about = ClassesFile(self.name, names, len(kept)).encoded()
        buffer = io.BytesIO()
        parquet.write_table(table.replace_schema_metadata({MARK: about}), buffer)
        write_whole(out, buffer.getvalue())
        return out


def need_arrow() -> tuple[ModuleType, ModuleType]:
    """pyarrow and its reader and writer of Parquet."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra.named("the format parquet", "pyarrow", "tables") from error
    return pyarrow, parquet


def check_ours(out: Path, parquet: ModuleType) -> None:
    """Refuse to replace a table that no export has written."""
    try:
        ours = MARK in (parquet.read_schema(out).metadata or {})
    except (OSError, ValueError):
        ours = False
    if not ours:
        raise BadFile(f"{out} is there already, and no export has written it; name another file or move it away")


def _typed(arrow: ModuleType, records: list[Record], header: list[str]) -> Any:  # noqa: ANN401 - pyarrow has no types
    rows = [row_of(record, header) for record in records]
    columns = []
    for at, name in enumerate(header):
        if name == "time":
            columns.append(arrow.array([record.at for record in records], arrow.timestamp("us", "UTC")))
        elif name.startswith(PROBABILITY):
            shares = [(record.proba or {}).get(name[len(PROBABILITY) :]) for record in records]
            columns.append(arrow.array(shares, arrow.float64()))
        else:
            columns.append(arrow.array([row[at] or None for row in rows], arrow.string()))
    return arrow.Table.from_arrays(columns, header)


def _wanted(name: str) -> bool:
    """Not every column: one may hold the images themselves."""
    known = {alias for aliases in ALSO_CALLED.values() for alias in aliases}
    return name.lower() in known or name.startswith(PROBABILITY)


def _text(cell: object, path: Path) -> str:
    if cell is None:
        return ""
    if isinstance(cell, datetime):
        return cell.isoformat()
    if isinstance(cell, str | int | float):
        return cell if isinstance(cell, str) else repr(cell)
    raise BadFile(f"{path} has a cell of the kind {type(cell).__name__} where text or a number was expected")


FORMATS.register(Parquet.name)(Parquet())
