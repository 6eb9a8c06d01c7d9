"""Reads Hugging Face data sets that are stored as tables: Parquet files, and folders that `save_to_disk` has written.

The features in a table's schema name the classes in order. Images inside the table are hashed, not kept.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import BadFile, BadInput
from ..files import open_regular
from .folders import SPLITS, lies_in
from .reading import CUT, read_json
from .tables import ALSO_CALLED, METADATA_KEY, Table, cell_text, is_wanted, need_arrow

STATE, SPLIT_LIST = "state.json", "dataset_dict.json"  # of save_to_disk: one data set, or one per split
FEATURES_KEY = b"huggingface"  # in the schema's metadata
ROWS = 256  # read at once: a row may hold an image of some megabytes
NO_LABEL = -1  # how `datasets` marks an image without a class
SHARD = re.compile(r"(?P<split>\w+(\.\w+)*)-\d+-of-\d+")


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One file of a data set, below its root, and the split that its name or its folder says."""

    file: str
    split: str = ""


@dataclass(frozen=True, slots=True)
class ArrowRows:
    """What a file holds: rows under our own column names, and the classes of its features."""

    table: Table
    classes: tuple[str, ...]
    problems: list[str]


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` has written a folder."""
    one = (folder / STATE).is_file() and (folder / "dataset_info.json").is_file()
    return one or (folder / SPLIT_LIST).is_file()


def has_features(path: Path) -> bool:
    """Whether a Parquet file comes from `datasets`, and not from our own export."""
    try:
        _, parquet = need_arrow()
        metadata = parquet.read_schema(path).metadata or {}
    except (ImportError, OSError, ValueError):  # reading it as a plain table says what is wrong
        return False
    return FEATURES_KEY in metadata and METADATA_KEY not in metadata


def stored_tables(root: Path, files: Sequence[str]) -> list[StoredTable]:
    """The tables of a folder: those that `save_to_disk` lists, else every Parquet file."""
    if (root / SPLIT_LIST).is_file():
        content = read_json(root / SPLIT_LIST)
        splits = content.get("splits") if isinstance(content, dict) else None
        if not isinstance(splits, list) or not all(isinstance(split, str) for split in splits):
            raise BadFile(f"{root / SPLIT_LIST} does not list its splits; {CUT}")
        return [StoredTable(file, split) for split in splits for file in _saved_files(root, f"{split}/")]
    if (root / STATE).is_file():
        return [StoredTable(file) for file in _saved_files(root, "")]
    return [StoredTable(file, _split_of(file)) for file in files if file.lower().endswith(".parquet")]


def _saved_files(root: Path, home: str) -> list[str]:
    state = root / f"{home}{STATE}"
    content = read_json(state)
    listed = content.get("_data_files") if isinstance(content, dict) else None
    if not isinstance(listed, list) or not all(isinstance(one, dict) and "filename" in one for one in listed):
        raise BadFile(f"{state} does not list its files; {CUT}")
    files = [f"{home}{one['filename']}" for one in listed]
    missing = next((file for file in files if not lies_in(root, file)), None)
    if missing is not None:
        raise BadFile(f"{state} lists {missing}, which is not in {root}; copy the whole folder")
    return files


def _split_of(file: str) -> str:
    """The split of a Parquet file.

    >>> [_split_of(file) for file in ("data/train-00000-of-00002.parquet", "test/0000.parquet", "birds.parquet")]
    ['train', 'test', '']
    """
    *folders, name = file.removesuffix(".parquet").split("/")
    shard = SHARD.fullmatch(name)
    return shard["split"] if shard else next((part for part in [name, *reversed(folders)] if part in SPLITS), "")


def read_rows(path: Path) -> ArrowRows:
    """The rows of one .parquet or .arrow file."""
    arrow, parquet = need_arrow()
    rows: list[tuple[int, list[str]]] = []
    problems: list[str] = []
    try:
        with open_regular(path) as file:
            is_parquet = path.suffix.lower() == ".parquet"
            opened = parquet.ParquetFile(file) if is_parquet else arrow.ipc.open_stream(file)
            columns = Columns.of(opened.schema_arrow if is_parquet else opened.schema, path)
            batches = opened.iter_batches(ROWS, columns=columns.read) if is_parquet else opened
            number = 0
            for batch in batches:
                for row in batch.select(columns.read).to_pylist():
                    number += 1
                    try:
                        rows.append((number, columns.cells(row, path, number)))
                    except NoSingleClass as error:
                        problems.append(f"row {number} of {path}: {error}")
    except (arrow.ArrowException, OSError) as error:
        raise BadFile(f"{path} cannot be read as an Arrow table: {error}; {CUT}") from error
    return ArrowRows(Table(str(path), columns.header, rows), columns.classes, problems)


class NoSingleClass(BadInput):
    """A row that does not give one class."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of a file are read, and as what."""

    plain: tuple[str, ...]  # texts and numbers
    label: str | None
    image: str | None  # a structure of bytes and path
    classes: tuple[str, ...]  # of the label's feature; empty where the label is a text

    @classmethod
    def of(cls, schema: Any, path: Path) -> Columns:  # noqa: ANN401 - pyarrow has no types
        """Choose the columns by their names, types and features."""
        arrow, _ = need_arrow()
        structures = [one.name for one in schema if arrow.types.is_struct(one.type)]
        images = [name for name in structures if {"bytes", "path"} <= {part.name for part in schema.field(name).type}]
        image = next((name for name in ("image", *images) if name in images), None)
        features = _features(schema.metadata or {}, path)
        named = {name: tuple(names) for name, one in features.items() if (names := _class_names(one))}
        label = _label_column(schema.names, list(named), path)
        plain = tuple(name for name in schema.names if is_wanted(name) and name not in (*structures, label))
        return cls(plain, label, image, named.get(label or "", ()))

    @property
    def read(self) -> list[str]:
        """Their names in the file."""
        return [*self.plain, *(name for name in (self.label, self.image) if name is not None)]

    @property
    def header(self) -> list[str]:
        """The names of the cells: an image gives a path, and a hash where the table has none."""
        hashed = self.image is not None and "sha256" not in self.plain
        more = {"label": self.label is not None, "image": self.image is not None, "sha256": hashed}
        return [*self.plain, *(name for name, present in more.items() if present)]

    def cells(self, row: Mapping[str, object], path: Path, number: int) -> list[str]:
        """The cells of a row."""
        found = {name: cell_text(row[name], path) for name in self.plain}
        if self.label is not None:
            found["label"] = self._class_of(row[self.label])
        if self.image is not None:
            image = row[self.image]
            content, place = (image["bytes"], image["path"]) if isinstance(image, dict) else (None, None)
            found["image"] = place or f"{path.name}, row {number}"
            found.setdefault("sha256", hashlib.sha256(content).hexdigest() if content else "")
        return [found[name] for name in self.header]

    def _class_of(self, value: object) -> str:
        """The name of a class; empty where the image has none."""
        if isinstance(value, list):
            if len(value) > 1:
                raise NoSingleClass(f"{len(value)} labels, but an image has one class here")
            value = value[0] if value else None
        if value is None or (self.classes and value == NO_LABEL):
            return ""
        if not self.classes:
            return value if isinstance(value, str) else repr(value)
        if isinstance(value, int) and 0 <= value < len(self.classes):
            return self.classes[value]
        raise NoSingleClass(f"the label is {value!r}, but there are {len(self.classes)} classes")


def _features(metadata: Mapping[bytes, bytes], path: Path) -> Mapping[str, object]:
    try:
        content = json.loads(metadata.get(FEATURES_KEY, b"{}"))
        features = content.get("info", {}).get("features", {})
    except (ValueError, AttributeError, RecursionError) as error:
        raise BadFile(f"the features in {path} cannot be read: {error}") from error
    return features if isinstance(features, dict) else {}


def _class_names(feature: object) -> list[str]:
    """The classes of a feature, or of a list of such."""
    if isinstance(feature, list):
        return _class_names(feature[0]) if feature else []
    if not isinstance(feature, dict):
        return []
    names = feature.get("names")
    if feature.get("_type") == "ClassLabel" and isinstance(names, list):
        return [str(name) for name in names]
    return _class_names(feature.get("feature"))


def _label_column(names: Sequence[str], with_classes: Sequence[str], path: Path) -> str | None:
    """The column under one of the usual names, else the only one with classes."""
    usual = (*ALSO_CALLED["label"], "labels")
    known = [name for alias in usual for name in names if name.lower() == alias]
    if known:
        return next((name for name in known if name in with_classes), known[0])
    if len(with_classes) > 1:
        raise BadFile(
            f"{path} has several columns of classes: {', '.join(with_classes)}; rename the one to import to 'label' "
            "(dataset.rename_column) and save it again"
        )
    return with_classes[0] if with_classes else None
