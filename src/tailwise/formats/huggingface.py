"""Hugging Face's imagefolder: a folder per split with the images and metadata.jsonl, and a README.md with the features.

`load_dataset(folder)` reads the classes and their order from README.md. JSON lines have types: in CSV, a column that is
empty in one split fails to load. Data sets that `datasets` stored as Parquet or by `save_to_disk` are read too.
"""

from __future__ import annotations

import glob
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import BadFile
from .arrow import NO_LABEL, has_features, is_saved, read_rows, stored_tables
from .base import Loaded, Record, Sample, Source, all_classes, label_format, safe_name
from .folders import SPLITS, Copies, FolderFormat, fresh_folder, known_hashes, read_tree
from .reading import CLASSES_FILE, ClassesFile, files_below, json_lines, read_classes_file, read_text
from .tables import PROBABILITY, Table, header_of, parse_csv, records_of, row_of

FILE_NAME = "file_name"
METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet")
CARD = "README.md"


@label_format
class HuggingFace(FolderFormat):
    """A folder per split, with copies and metadata."""

    name = "huggingface"
    about = "Hugging Face imagefolder: a folder per split with images and metadata.jsonl, README.md with the classes"
    copies = True
    priority = 20

    def recognises(self, sample: Sample) -> bool:
        """JSON lines, metadata.csv, Parquet by `datasets`; a folder with metadata or Parquet, or by `save_to_disk`."""
        if sample.is_folder:
            tables = (*METADATA, ".parquet")
            return is_saved(sample.path) or any(name.rsplit("/", 1)[-1].endswith(tables) for name in sample.files)
        by_datasets = sample.suffix == ".parquet" and has_features(sample.path)
        return sample.suffix == ".jsonl" or sample.path.name == "metadata.csv" or by_datasets

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:  # noqa: ARG002 - rows and features name the classes
        """Read every table of a folder, or one; without any, class folders."""
        if path.is_dir() and is_saved(path):
            return _stored(path, ())
        root = path if path.is_dir() else path.parent
        files, problems = files_below(path) if path.is_dir() else ([path.name], [])
        tables = [file for file in files if file.rsplit("/", 1)[-1] in METADATA]
        parquet = [file for file in files if file.lower().endswith(".parquet")]
        if parquet and not tables:
            loaded = _stored(root, parquet)
            return replace(loaded, problems=problems + loaded.problems)
        about = read_classes_file(root / CLASSES_FILE)
        if path.is_dir() and not tables and (about is None or about.format != self.name):
            return read_tree(path)
        tables = tables if path.is_dir() else [path.name]
        records = [record for table in tables for record in _split_records(root, table)]
        return Loaded(records, problems, all_classes(about.classes if about else (), records))

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:
        """Copy the images and write their metadata; a copy per record, as the loader wants one row per file."""
        kept = list(records)
        names = all_classes(classes, kept)
        homes: dict[str, list[Record]] = {}
        for record in sorted(kept, key=lambda one: one.label is None):  # the loader takes types from the first rows
            homes.setdefault(safe_name(record.split or "train"), []).append(record)
        columns = Metadata.of(homes.values(), header_of(kept, names))
        written = [CARD]
        with fresh_folder(out) as folder:
            copies = Copies(folder, source, always=True)
            for home, chosen in homes.items():
                files = [copies.put(record, home) for record in chosen]
                table = f"{home}/{METADATA[0]}"
                (folder / table).write_bytes(columns.lines(chosen, [file.rsplit("/", 1)[-1] for file in files]))
                written += [table, *files]
            (folder / CARD).write_text(card(list(homes), columns, names), encoding="utf-8", newline="\n")
            about = ClassesFile(self.name, names, len(kept), files=tuple(written))
            (folder / CLASSES_FILE).write_bytes(about.encoded())
        return out


@dataclass(frozen=True, slots=True)
class Metadata:
    """The columns of metadata.jsonl, of one type in all splits: the loader rejects one that is null in a split."""

    header: Sequence[str]
    texts: frozenset[str]  # probabilities that are written as text: a split has none
    no_class: str | None  # the label of an image without a class

    @classmethod
    def of(cls, splits: Iterable[Sequence[Record]], header: Sequence[str]) -> Metadata:
        """Choose the types that all splits can have."""
        groups = list(splits)
        shares = [{name for record in group for name in record.proba or ()} for group in groups]
        full = set.intersection(*shares) if shares else set()
        labelled = [any(record.label is not None for record in group) for group in groups]
        odd = {name for name in header if name.startswith(PROBABILITY) and name[len(PROBABILITY) :] not in full}
        return cls(header, frozenset(odd), str(NO_LABEL) if any(labelled) and not all(labelled) else None)

    def lines(self, records: Sequence[Record], files: Sequence[str]) -> bytes:
        """One JSON object per record."""
        rows = (self._values(record, file) for record, file in zip(records, files, strict=True))
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()

    def _values(self, record: Record, file: str) -> dict[str, object]:
        cells = dict(zip(self.header, row_of(record, self.header), strict=True))
        values: dict[str, object] = {FILE_NAME: file, **cells, "label": record.label or self.no_class}
        for name in self.header:
            if name.startswith(PROBABILITY) and name not in self.texts:
                values[name] = (record.proba or {}).get(name[len(PROBABILITY) :])
        return values

    def features(self, names: Sequence[str]) -> list[dict[str, object]]:
        """The features as `datasets` writes them to README.md."""
        classes = {"class_label": {"names": {str(number): name for number, name in enumerate(names)}}}
        kinds: dict[str, object] = {name: "float64" for name in self.header if name.startswith(PROBABILITY)}
        kinds |= dict.fromkeys(self.texts, "string") | ({"label": classes} if names else {})
        return [
            {"name": "image", "dtype": "image"},
            *({"name": n, "dtype": kinds.get(n, "string")} for n in self.header),
        ]


def card(homes: Sequence[str], columns: Metadata, names: Sequence[str]) -> str:
    """README.md: its first part is YAML, of which JSON is a part."""
    files = [{"split": split, "path": f"{glob.escape(home)}/**"} for split, home in _split_names(homes).items()]
    config = {"config_name": "default", "data_files": files, "features": columns.features(names)}
    header = f"configs:\n- {_yaml(config)}\n" if homes else ""
    note = "Exported by Tailwise. `datasets.load_dataset` reads this folder, with its classes in order."
    return f"---\n{header}---\n{note}\n"


def _split_names(homes: Iterable[str]) -> dict[str, str]:
    """Names that `datasets` accepts for splits, with their folders.

    >>> _split_names(["train", "fold 1", "fold-1"])
    {'train': 'train', 'fold_1': 'fold 1', 'fold_1_2': 'fold-1'}
    """
    found: dict[str, str] = {}
    for home in homes:
        name = stem = re.sub(r"\W+", "_", home)
        number = 1
        while name in found:
            number += 1
            name = f"{stem}_{number}"
        found[name] = home
    return found


def _yaml(value: object) -> str:
    """JSON that YAML reads as the same: what is not printable is escaped."""
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in json.dumps(value, ensure_ascii=False))


def _stored(root: Path, parquet: Sequence[str]) -> Loaded:
    """The records of Parquet files, or of a folder that `save_to_disk` has written."""
    records: list[Record] = []
    problems: list[str] = []
    classes: dict[str, None] = {}
    for stored in stored_tables(root, parquet):
        rows = read_rows(root / stored.file)
        own = "split" in rows.table.header
        found = list(records_of(rows.table))
        records += found if own else [replace(record, split=stored.split) for record in found]
        problems += rows.problems
        classes |= dict.fromkeys(rows.classes)
    return Loaded(records, problems, all_classes(tuple(classes), records))


def _split_records(root: Path, table: str) -> Iterator[Record]:
    """The records of one metadata file; images next to it are identified by their bytes."""
    home, _, _ = table.rpartition("/")
    path = root / table
    rows = _rows(path)
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


def _rows(path: Path) -> Table:
    if path.suffix == ".parquet":
        return read_rows(path).table
    text = read_text(path)
    return _json_table(text, str(path)) if path.suffix == ".jsonl" else parse_csv(text, str(path))


def _json_table(text: str, name: str) -> Table:
    lines = list(json_lines(text, name))
    for number, line in lines:
        if not isinstance(line, dict):
            raise BadFile(f"line {number} of {name} is not a JSON object")
    found: list[tuple[int, Mapping[str, object]]] = [(n, line) for n, line in lines if isinstance(line, dict)]
    header = list(dict.fromkeys(key for _, line in found for key in line))
    return Table(name, header, [(n, [_cell(_known(line, key)) for key in header]) for n, line in found])


def _known(line: Mapping[str, object], key: str) -> object:
    """A value of a line; -1 is not a label where our own column `kind` says that there is no class."""
    unlabelled = key == "label" and line.get(key) == str(NO_LABEL) and line.get("kind", "label") != "label"
    return None if unlabelled else line.get(key)


def _cell(value: object) -> str:
    """A value as a cell; lists and objects, such as boxes, are left out."""
    if isinstance(value, str):
        return value
    return repr(value) if isinstance(value, int | float) and not isinstance(value, bool) else ""
