"""Hugging Face's imagefolder: train/ with the images and metadata.csv, whose `label` column is explicit.

Folder names alone would be dropped by the loader as soon as there is metadata, and its classes would be sorted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import BadFile
from .base import Loaded, Record, Sample, Source, all_classes, label_format, safe_name
from .folders import SPLITS, Copies, FolderFormat, fresh_folder, known_hashes, read_tree
from .reading import CLASSES_FILE, ClassesFile, files_below, json_lines, read_classes_file, read_text
from .tables import PROBABILITY, Table, csv_of, guarded, header_of, parse_csv, records_of, row_of

FILE_NAME = "file_name"
METADATA = ("metadata.csv", "metadata.jsonl")
# Names that the loader, which reads CSV by pandas, would take for a number or for nothing, or that CSV guards.
MISREAD = re.compile(r"[-+=@.#\d\s].*|nan|na|n/a|<na>|none|null|inf|infinity|true|false", re.IGNORECASE | re.DOTALL)


@label_format
class HuggingFace(FolderFormat):
    """A folder per split, with copies and metadata."""

    name = "huggingface"
    about = "Hugging Face imagefolder: a folder per split with images and metadata.csv"
    copies = True
    priority = 20

    def recognises(self, sample: Sample) -> bool:
        """JSON lines, metadata.csv, or a folder with metadata in it or below it."""
        if sample.is_folder:
            return any(name.rsplit("/", 1)[-1] in METADATA for name in sample.files)
        return sample.suffix == ".jsonl" or sample.path.name == METADATA[0]

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:  # noqa: ARG002 - the rows name the classes
        """Read every metadata.csv and metadata.jsonl of a folder, or one; without any, class folders."""
        root = path if path.is_dir() else path.parent
        files, problems = files_below(path) if path.is_dir() else ([path.name], [])
        tables = [file for file in files if file.rsplit("/", 1)[-1] in METADATA or file == path.name]
        if not tables:
            return read_tree(path)
        records = [record for table in tables for record in _split_records(root, table)]
        about = read_classes_file(root / CLASSES_FILE)
        return Loaded(records, problems, all_classes(about.classes if about else (), records))

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:
        """Copy the images and write their metadata; a copy per record, as the loader wants one row per file."""
        kept = list(records)
        names = all_classes(classes, kept)
        header = header_of(kept, names)
        written = []
        with fresh_folder(out) as folder:
            copies = Copies(folder, source, always=True)
            homes = [safe_name(record.split or "train") for record in kept]
            for home in dict.fromkeys(homes):
                chosen = [record for record, its_home in zip(kept, homes, strict=True) if its_home == home]
                files = [copies.put(record, home) for record in chosen]
                rows = [[file.rsplit("/", 1)[-1], *row_of(r, header)] for r, file in zip(chosen, files, strict=True)]
                name, content = metadata([FILE_NAME, *header], rows, names)
                (folder / home / name).write_bytes(content)
                written += [f"{home}/{name}", *files]
            about = ClassesFile(self.name, names, len(kept), files=tuple(written))
            (folder / CLASSES_FILE).write_bytes(about.encoded())
        return out


def metadata(header: Sequence[str], rows: Sequence[Sequence[str]], names: Iterable[str]) -> tuple[str, bytes]:
    """The name and the content of the metadata: CSV, or JSON lines where the loader would misread a name in CSV."""
    odd = any(MISREAD.fullmatch(name) for name in names) or any(guarded(file) != file for file, *_ in rows)
    if not odd:
        return METADATA[0], csv_of(header, rows)
    lines = [{name: _value(name, cell) for name, cell in zip(header, row, strict=True)} for row in rows]
    return METADATA[1], "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def _value(column: str, cell: str) -> object:
    if not cell:
        return None
    return float(cell) if column.startswith(PROBABILITY) else cell


def _split_records(root: Path, table: str) -> Iterator[Record]:
    """The records of one metadata file; images next to it are identified by their bytes."""
    home, _, _ = table.rpartition("/")
    path = root / table
    text = read_text(path)
    rows = _json_table(text, str(path)) if path.suffix == ".jsonl" else parse_csv(text, str(path))
    at = rows.header.index(FILE_NAME) if FILE_NAME in rows.header else -1
    if at < 0:
        raise BadFile(f"{path} has no column {FILE_NAME!r}, by which metadata names its images")
    files = [f"{home}/{cells[at]}".removeprefix("/") for _, cells in rows.rows]
    split = next((part for part in home.split("/") if part in SPLITS), "")
    records = list(records_of(rows))
    hashes = known_hashes(root, (file for file, record in zip(files, records, strict=True) if not record.sha256))
    ours = "split" in rows.header
    for file, record in zip(files, records, strict=True):
        sha256 = record.sha256 or hashes.get(file, "")
        yield replace(record, sha256=sha256, split=record.split if ours else split)


def _json_table(text: str, name: str) -> Table:
    lines = list(json_lines(text, name))
    for number, line in lines:
        if not isinstance(line, dict):
            raise BadFile(f"line {number} of {name} is not a JSON object")
    found: list[tuple[int, Mapping[str, object]]] = [(n, line) for n, line in lines if isinstance(line, dict)]
    header = list(dict.fromkeys(key for _, line in found for key in line))
    return Table(name, header, [(n, [_cell(line.get(key)) for key in header]) for n, line in found])


def _cell(value: object) -> str:
    """A value as a cell; lists and objects, such as boxes, are left out."""
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
