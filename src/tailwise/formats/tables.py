"""Tables with a row per record: CSV with the classes in a file next to it, Parquet with the classes in its metadata.

The columns are path, label, kind, split, annotator, time, model_version, prob_…, flagged and comments where there are
any, sha256; a table from elsewhere needs only a path and a label under one of their usual names.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import BadFile, BadInput, MissingExtra
from ..files import write_whole
from .base import (
    ANY,
    KINDS,
    FileFormat,
    Kind,
    Loaded,
    Record,
    Source,
    all_classes,
    as_exported,
    check_file,
    from_iso,
    label_format,
    to_iso,
)
from .reading import (
    CLASSES_SUFFIX,
    CUT,
    ClassesFile,
    parse_classes_file,
    read_bytes,
    read_classes_file,
    read_text,
    text_of,
)

PLAIN = ("path", "label", "kind", "split", "annotator", "time", "model_version")
NOTES = ("flagged", "comments")  # written where an image has some, and not read
LAST = "sha256"  # a row that was cut off shows here
FILE = "file"  # where an export has its copy of the image
PROBABILITY = "prob_"
ALSO_CALLED = {
    "path": ("path", "file_name", "filename", "filepath", "file_path", "image_path", "image", "file"),
    "label": ("label", "class", "class_name", "category", "choice"),
    "kind": ("kind",),
    "split": ("split", "subset"),
    "annotator": ("annotator", "labeller", "labeler"),
    "time": ("time", "at", "created_at", "timestamp"),
    "model_version": ("model_version",),
    "sha256": ("sha256",),
}
SEPARATORS = (",", ";", "\t")
# A cell that a spreadsheet would run as a formula. Quotes in front count, so that the guard can be undone.
FORMULA = re.compile(r"'*[=+\-@\t\r]")
METADATA_KEY = b"tailwise"  # of our Parquet files, with the classes
SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Table:
    """A header and its rows, each with the number of its line."""

    name: str  # for messages
    header: list[str]
    rows: list[tuple[int, list[str]]]


def guarded(cell: str) -> str:
    """A cell that no spreadsheet takes for a formula.

    >>> guarded("=1+1"), guarded("'=1"), guarded("it's")
    ("'=1+1", "''=1", "it's")
    """
    return f"'{cell}" if FORMULA.match(cell) else cell


def unguarded(cell: str) -> str:
    """The cell as it was.

    >>> unguarded("'=1+1"), unguarded("''=1"), unguarded("'tis")
    ('=1+1', "'=1", "'tis")
    """
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def header_of(records: Sequence[Record], classes: Sequence[str]) -> list[str]:
    """The columns; those of probabilities and of notes only where a record has any, the known classes first."""
    seen = dict.fromkeys(name for record in records for name in record.proba or ())
    order = dict.fromkeys([*(name for name in classes if name in seen), *seen])
    noted = NOTES if any(record.flagged or record.comments for record in records) else ()
    return [*PLAIN, *(PROBABILITY + name for name in order), *noted, LAST]


def row_of(record: Record, header: Sequence[str]) -> list[str]:
    """The cells of a record under a header."""
    cells = {
        "path": record.path,
        "label": record.label or "",
        "kind": record.kind if record.answered else "",
        "split": record.split,
        "annotator": record.annotator,
        "time": "" if record.at is None else to_iso(record.at),
        "model_version": record.model_version,
        "flagged": "yes" if record.flagged else "",
        "comments": record.comments,
        LAST: record.sha256,
    }
    cells |= {PROBABILITY + name: repr(float(share)) for name, share in (record.proba or {}).items()}
    return [cells.get(column, "") for column in header]


def csv_of(header: Sequence[str], rows: Iterable[Sequence[str]]) -> bytes:
    """A table as CSV in UTF-8, its cells guarded."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")  # the standard's; with \n alone, a \r in a name is not quoted
    writer.writerow([guarded(cell) for cell in header])
    writer.writerows([guarded(cell) for cell in row] for row in rows)
    return text.getvalue().encode()


def parse_csv(text: str, name: str) -> Table:
    """A CSV with , ; or a tab between its cells, as the header shows."""
    first, _, rest = text.partition("\n")
    named = re.fullmatch(r"sep=(.)\r?", first)  # a first line that only a spreadsheet understands
    body = rest if named else text
    separator = named[1] if named else _separator(first, name)
    reader = csv.reader(io.StringIO(body, newline=""), delimiter=separator, strict=True)
    skipped = 1 if named else 0
    rows: list[tuple[int, list[str]]] = []
    try:
        header = [unguarded(cell).strip() for cell in next(reader, [])]
        begins = reader.line_num
        for cells in reader:
            if cells:
                rows.append((begins + 1 + skipped, _fitted(cells, len(header), begins + 1 + skipped, name)))
            begins = reader.line_num
    except csv.Error as error:
        raise BadFile(f"{name} is not valid CSV: {error} in line {reader.line_num + skipped}; {CUT}") from error
    if rows and not rows[-1][1][-1] and not body.endswith(("\n", "\r")):  # what a cut after a separator leaves
        raise BadFile(f"the last line of {name} has no end and no last cell; {CUT} If not, end the line")
    return Table(name, header, rows)


def records_of(table: Table) -> Iterator[Record]:
    """The records of a table, whatever order its columns have."""
    where = columns_of(table)
    foreign = "annotation_id" in table.header
    shares = [(at, name[len(PROBABILITY) :]) for at, name in enumerate(table.header) if name.startswith(PROBABILITY)]
    for line, cells in table.rows:
        got = {column: cells[at] for column, at in where.items()}
        try:
            record = _record(got, {name: cells[at] for at, name in shares if cells[at]})
            yield _from_label_studio(record, dict(zip(table.header, cells, strict=True))) if foreign else record
        except BadInput as error:
            raise BadFile(f"line {line} of {table.name}: {error}") from error


def _from_label_studio(record: Record, cells: Mapping[str, str]) -> Record:
    """A row of Label Studio's CSV: annotators by number, as in its JSON; answers that we exported are unchanged.

    It does not mark imported annotations, but those that people made took time.
    """
    named = replace(record, annotator=f"user {record.annotator}") if record.annotator.isdigit() else record
    try:
        note = json.loads(cells.get("tailwise") or "null")
    except ValueError:
        return named
    return named if cells.get("lead_time") else as_exported(named, note, ANY)


def columns_of(table: Table) -> dict[str, int]:
    """Where each of our columns stands in a table, under the first of its usual names."""
    found = _find_columns(table.header)
    if "path" not in found:
        raise BadFile(
            f"{table.name} has no column 'path'; its first line must name the columns, such as path,label "
            f"(it reads {','.join(table.header)[:80]!r})"
        )
    return found


def files_of(table: Table) -> list[str]:
    """The cells of the column that says where an export has its copies."""
    if FILE not in table.header:
        raise BadFile(f"{table.name} has no column {FILE!r}; was it changed? Export again")
    at = table.header.index(FILE)
    return [cells[at] for _, cells in table.rows]


def _find_columns(header: Sequence[str]) -> dict[str, int]:
    places = {name.strip().lower(): at for at, name in reversed(list(enumerate(header)))}
    found: dict[str, int] = {}
    for column, names in ALSO_CALLED.items():
        known = [places[name] for name in names if name in places]
        if known:
            found[column] = known[0]
    return found


def _separator(first: str, name: str) -> str:
    for separator in SEPARATORS:
        cells = next(csv.reader([first], delimiter=separator), [])
        if "path" in _find_columns([unguarded(cell) for cell in cells]):
            return separator
    raise BadFile(
        f"{name} has no column 'path'; its first line must name the columns, such as path,label "
        f"(it reads {first.strip()[:80]!r})"
    )


def _fitted(cells: list[str], width: int, line: int, name: str) -> list[str]:
    """The row without the guards; empty cells beyond the header are spreadsheets' way to end a row."""
    if len(cells) < width or any(cells[width:]):
        raise BadFile(f"line {line} of {name} has {len(cells)} cells, but the header has {width}; {CUT}")
    return [unguarded(cell) for cell in cells[:width]]


def _record(cells: Mapping[str, str], shares: Mapping[str, str]) -> Record:
    path, label = cells["path"], cells.get("label", "")
    if not path:
        raise BadInput("there is no path; give one or drop the row")
    sha256 = cells.get("sha256", "")
    if sha256 and not SHA256.fullmatch(sha256):
        raise BadInput(f"the sha256 {sha256!r} is not 64 hexadecimal digits; {CUT}")
    time = cells.get("time", "")
    kind = _kind(cells.get("kind", ""), label)
    return Record(
        path,
        label or None,
        split=cells.get("split", ""),
        annotator=cells.get("annotator", ""),
        at=from_iso(time) if time else None,
        model_version=cells.get("model_version", ""),
        proba={name: share_of(text) for name, text in shares.items()} or None,
        kind=kind,
        sha256=sha256,
    )


def _kind(text: str, label: str) -> Kind:
    for kind in KINDS:
        if text == kind and (kind == "label") == bool(label):
            return kind
    if text in KINDS:
        raise BadInput(f"the kind is {text!r} and the label is {label!r}; only the kind 'label' has a label")
    if text:
        raise BadInput(f"the kind is {text!r}; it must be one of {', '.join(KINDS)}, or nothing")
    return "label"


def share_of(text: str) -> float:
    """A probability."""
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 <= share <= 1:
        raise BadInput(f"{text!r} is not a probability between 0 and 1")
    return share


# The formats.


@label_format
class Csv(FileFormat):
    """A CSV file; the images stay where they are."""

    name = "csv"
    about = "one CSV file: path, label, kind, split, annotator, time, model_version, probabilities, sha256"
    suffix, suffixes = ".csv", (".csv", ".tsv")
    mark = ",".join(PLAIN).encode()
    copies = False
    priority = 10

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:  # noqa: ARG002 - the rows name the classes
        """Read a CSV with a column for paths and one for labels, under any of their usual names."""
        records = list(records_of(parse_csv(read_text(path), str(path))))
        about = read_classes_file(path.with_name(path.stem + CLASSES_SUFFIX))
        problems = []
        if about is not None and about.format and about.records != len(records):
            problems.append(
                f"{path} has {len(records)} rows, but {about.records} were written; were rows added, or is it cut off?"
            )
        return Loaded(records, problems, all_classes(about.classes if about else (), records))

    def check(self, out: Path) -> None:
        """Refuse a file that is not ours, or that cannot be written."""
        FileFormat.check(self, out)
        check_file(out.with_name(out.stem + CLASSES_SUFFIX), ".json", b'"tailwise"')

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:  # noqa: ARG002 - no image is copied
        """Write the table, and next to it the order of the classes, which no CSV can hold."""
        kept = list(records)
        names = all_classes(classes, kept)
        self.check(out)
        header = header_of(kept, names)
        write_whole(out.with_name(out.stem + CLASSES_SUFFIX), ClassesFile(self.name, names, len(kept)).encoded())
        write_whole(out, csv_of(header, (row_of(record, header) for record in kept)))
        return out


@label_format
class Parquet(FileFormat):
    """A Parquet file; the images stay where they are."""

    name = "parquet"
    about = "one Parquet file with the columns of the CSV; needs pyarrow"
    suffix, suffixes = ".parquet", (".parquet",)
    mark = b"PAR1"
    copies = False
    priority = 10

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:  # noqa: ARG002 - the rows name the classes
        """Read a table with a column for paths and one for labels, under any of their usual names."""
        arrow, parquet = need_arrow()
        try:
            file = parquet.ParquetFile(io.BytesIO(read_bytes(path)))
            wanted = [name for name in file.schema_arrow.names if is_wanted(name)]
            columns = {name: file.read([name]).column(0).to_pylist() for name in wanted}
            metadata = file.schema_arrow.metadata or {}
        except (arrow.ArrowException, OSError, ValueError) as error:
            raise BadFile(f"{path} cannot be read as Parquet: {error}; {CUT}") from error
        cells = zip(*columns.values(), strict=True)
        rows = [(number, [cell_text(cell, path) for cell in row]) for number, row in enumerate(cells, start=1)]
        records = list(records_of(Table(str(path), list(columns), rows)))
        about = (
            parse_classes_file(text_of(metadata[METADATA_KEY], str(path)), str(path))
            if METADATA_KEY in metadata
            else None
        )
        return Loaded(records, [], all_classes(about.classes if about else (), records))

    def check(self, out: Path) -> None:
        """Refuse a file that is not ours, or that cannot be written."""
        _, parquet = need_arrow()
        FileFormat.check(self, out)
        if not out.exists() or not out.stat().st_size:
            return
        try:
            ours = METADATA_KEY in (parquet.read_schema(out).metadata or {})
        except (OSError, ValueError):
            ours = False
        if not ours:
            raise BadFile(f"{out} is there already, and no export has written it; name another file or move it away")

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:  # noqa: ARG002 - no image is copied
        """Write the table; nothing is guarded, as no spreadsheet opens it."""
        arrow, parquet = need_arrow()
        kept = list(records)
        names = all_classes(classes, kept)
        self.check(out)
        table = _typed(arrow, kept, header_of(kept, names))
        about = ClassesFile(self.name, names, len(kept)).encoded()
        buffer = io.BytesIO()
        parquet.write_table(table.replace_schema_metadata({METADATA_KEY: about}), buffer)
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


def is_wanted(name: str) -> bool:
    """Not every column: one may hold the images themselves."""
    known = {alias for aliases in ALSO_CALLED.values() for alias in aliases}
    return name.lower() in known or name.startswith(PROBABILITY)


def cell_text(cell: object, path: Path) -> str:
    """A value of an Arrow column as text; lists and structures are rejected."""
    if cell is None:
        return ""
    if isinstance(cell, datetime):
        return cell.isoformat()
    if isinstance(cell, str | int | float):
        return cell if isinstance(cell, str) else repr(cell)
    raise BadFile(f"{path} has a cell of the kind {type(cell).__name__} where text or a number was expected")
