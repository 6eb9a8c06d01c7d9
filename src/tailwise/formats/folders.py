"""One folder per class, perhaps below one per split; copies of the images. What torchvision, Keras and people read.

Moving an image to another class folder and importing the folder again is a way to correct labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..errors import BadFile
from ..pools.folder import in_threads
from .base import (
    OTHER,
    UNLABELLED,
    Loaded,
    Record,
    Sample,
    Source,
    all_classes,
    class_folders,
    label_format,
    safe_name,
)
from .copies import (
    RECORDS,
    Copies,
    FolderFormat,
    class_tree,
    fresh_folder,
    listed_records,
    reconciled,
    sha256_of,
    write_about,
)
from .reading import CLASSES_FILE, ClassesFile, files_below, read_classes_file


@label_format
class Folders(FolderFormat):
    """Class folders with copies, records.csv and classes.json."""

    name = "folders"
    about = "one folder per class, with copies of the images"
    copies = True
    priority = 0

    def recognises(self, sample: Sample) -> bool:
        """A folder that holds files in other folders."""
        return sample.is_folder and any("/" in name for name in sample.files)

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:  # noqa: ARG002 - the folders name the classes
        """Read class folders, also those below train/ and test/, and those that another tool has made."""
        if not path.is_dir():
            raise BadFile(f"there is no folder {path}; name a folder of class folders")
        return read_tree(path)

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:
        """Copy each image into the folder of its class; images without a class go to _other and _unlabelled."""
        kept = list(records)
        names = all_classes(classes, kept)
        homes = class_folders(names)
        split = any(record.split for record in kept)
        with fresh_folder(out) as folder:
            copies = Copies(folder, source)
            files = [copies.put(record, home_of(record, homes, split=split)) for record in kept]
            write_about(folder, ClassesFile(self.name, names, len(kept), homes), kept, files)
        return out


def home_of(record: Record, homes: Mapping[str, str], *, split: bool = False, unlabelled: str = UNLABELLED) -> str:
    """The folder for a record's image; where some records have a split, the others are for training."""
    aside = OTHER if record.kind == "other" else unlabelled
    home = aside if record.label is None else homes[record.label]
    return f"{safe_name(record.split or 'train')}/{home}" if split else home


def read_tree(path: Path) -> Loaded:
    """The records of a tree of class folders."""
    about = read_classes_file(path / CLASSES_FILE)
    files, problems = files_below(path)
    ours = {CLASSES_FILE, RECORDS} if about else set()
    odd = {folder: name for name, folder in about.folders.items()} if about else {}
    listed = listed_records(path)
    split = any(record.split for _, record in listed) if listed else None
    found, strays = class_tree([file for file in files if file not in ours], odd, split=split)
    records, gone = reconciled(found, listed, lambda names: in_threads(lambda name: sha256_of(path / name), names))
    if not found and about is None:
        raise BadFile(f"{path} holds no class folder with images; put them into one folder per class")
    ordered = about.classes if about else sorted({one.label for one in found if one.label is not None})
    classes = all_classes(ordered, records)
    return Loaded(records, [*problems, *strays, *gone], classes)
