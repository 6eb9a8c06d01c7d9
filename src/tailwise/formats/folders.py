"""One folder per class, and what every export with copies of images shares.

Copies are written to a folder next to the final place, which is whole or absent. That folder is locked and holds a note
of who made it, so that a later export can remove what a killed one left. An export says what it holds in classes.json
and, row by row, in records.csv. Read back, the place of an image decides its label, and records.csv adds what a folder
cannot say: who, when, which path. Moving an image to another class folder and importing again corrects its label.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ..errors import BadFile
from ..files import open_regular, read_regular
from ..pools.folder import in_threads, names_below
from ..processes import lock_file, unlock_file
from .base import (
    NO_CLASS,
    OTHER,
    UNLABELLED,
    Kind,
    Loaded,
    Record,
    Sample,
    Source,
    UniqueNames,
    all_classes,
    class_folders,
    label_format,
    safe_name,
    stem_and_ending,
)
from .reading import CLASSES_FILE, CUT, ClassesFile, files_below, read_classes_file, read_text
from .tables import FILE, csv_of, files_of, header_of, parse_csv, records_of, row_of

NAME = re.compile(r"\.(?P<final>.+)\.[0-9a-f]{8}\.part", re.DOTALL)
LOCK, NOTE = "tailwise-export.lock", "tailwise-export.json"
CONTENT, OLD = "new", "old"
OWNER = {"made by": "tailwise export", "machine": platform.node()}  # what the note says
RECORDS = "records.csv"
FILE_ENDINGS = {".csv", ".json", ".jsonl", ".parquet", ".txt", ".xml", ".zip"}  # that no folder is meant by
CHUNK = 1 << 20
SPLITS = {"train", "test", "val", "valid", "validation", "dev", "eval"}


# The folder in which an export is prepared.


@contextmanager
def staging_folder(final: Path) -> Iterator[Path]:
    """A new folder next to `final`, with an empty folder CONTENT in it; removed at the end.

    An earlier export that was moved to OLD in it goes back to its place if nothing has taken that place.
    """
    remove_stale(final.parent)
    folder = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    folder.mkdir()
    lock = None
    try:
        with suppress(OSError):  # a disk without locks: there is no note either, and a killed export stays
            lock = lock_file(folder / LOCK)
        if lock is not None:
            (folder / NOTE).write_text(json.dumps(OWNER), encoding="utf-8")
        (folder / CONTENT).mkdir()
        yield folder
    finally:
        if lock is not None:
            unlock_file(lock)
        _remove(folder, final)


def remove_stale(parent: Path) -> None:
    """Remove what killed exports left in a folder: ours, of this user and machine, and in use by no process."""
    try:
        folders = sorted(path for path in parent.iterdir() if NAME.fullmatch(path.name) and _is_ours(path))
    except OSError:  # it cannot be listed; writing there will say why
        return
    for folder in folders:
        with suppress(OSError):  # another process removes it too
            lock = lock_file(folder / LOCK)
            if lock is not None:
                unlock_file(lock)  # Windows does not remove an open file; no process uses such a folder again
                _remove(folder, _final_of(folder))


def _final_of(folder: Path) -> Path:
    named = NAME.fullmatch(folder.name)
    return folder.with_name(named["final"] if named else folder.name)


def _remove(folder: Path, final: Path) -> None:
    old = folder / OLD
    if old.is_dir() and not os.path.lexists(final):  # it ended between two renames: put the earlier export back
        old.rename(final)
    shutil.rmtree(folder, ignore_errors=True)


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds our note, of this machine: a lock may not be seen by other machines."""
    try:
        facts = folder.lstat()
        mine = not hasattr(os, "getuid") or facts.st_uid == os.getuid()
        is_folder = folder.is_dir() and not folder.is_symlink()
        return mine and is_folder and json.loads(read_regular(folder / NOTE)) == OWNER
    except (OSError, ValueError, RecursionError):
        return False


# Writing an export.


@contextmanager
def fresh_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `out` if nothing fails; an export of ours there is replaced."""
    final = out.resolve()
    try:
        check_free(final)
        with staging_folder(final) as staged:
            yield staged / CONTENT
            check_free(final)  # an export takes long enough for somebody to put something there
            if final.exists():
                final.rename(staged / OLD)
            (staged / CONTENT).rename(final)
    except OSError as error:
        raise BadFile(f"cannot write {out}: {error.strerror or error}") from error


class FolderFormat:
    """A format that writes a folder."""

    suffix = ""

    def check(self, out: Path) -> None:
        """Reject a place that `fresh_folder` would reject; nothing is made."""
        try:
            check_free(out.resolve())
        except OSError as error:
            raise BadFile(f"cannot write {out}: {error.strerror or error}") from error


def check_free(out: Path) -> None:
    """Refuse a place where writing would destroy what is not ours."""
    if not out.parent.is_dir():
        raise BadFile(f"cannot write {out}: there is no folder {out.parent}; make it first")
    if not out.exists():
        if out.suffix.lower() in FILE_ENDINGS:
            raise BadFile(
                f"cannot write {out.name}: this format is a folder with several files; name one, such as {out.stem}"
            )
        return
    if not out.is_dir():
        raise BadFile(f"cannot write the folder {out}: there is a file of that name; name another folder")
    if not any(out.iterdir()):
        return
    ours = _written(out)
    if ours is None:
        raise BadFile(f"{out} holds files that no export has written; name a new or empty folder")
    strange = sorted(set(names_below(out)) - ours)
    if strange:
        raise BadFile(
            f"{out} is an earlier export, but files such as {strange[0]} were put there since ({len(strange)} in all); "
            "import them or move them away, or name another folder"
        )


def _written(out: Path) -> set[str] | None:
    """Every file of an earlier export; None where the folder is not one."""
    about = read_classes_file(out / CLASSES_FILE)
    if about is None or not about.format:
        return None
    fixed = {CLASSES_FILE, RECORDS, *about.files}
    return fixed | {file for file, _ in listed_records(out)}


class Copies:
    """Copies of images in an export: each once per folder there, under a name of its own."""

    def __init__(self, root: Path, source: Source, *, apart: bool = False, always: bool = False) -> None:
        """`apart`: no two stems alike in a folder; `always`: a copy for every record, also of the same image."""
        self._root, self._source, self._apart, self._always = root, source, apart, always
        self._taken: defaultdict[str, UniqueNames] = defaultdict(UniqueNames)
        self._made: dict[tuple[str, Path], str] = {}

    def put(self, record: Record, folder: str) -> str:
        """Copy a record's image into a folder of the export; where it is, below the root, with /."""
        origin = self._source(record)
        known = self._made.get((folder, origin))
        if known is not None and not self._always:
            return known
        stem, ending = stem_and_ending(record.path)
        name = f"{folder}/{self._taken[folder].give(stem, ending, apart=self._apart)}"
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            copy_image(origin, file, record)
        self._made[folder, origin] = name
        return name


def copy_image(origin: Path, target: IO[bytes], record: Record) -> None:
    """Copy an image's bytes, and refuse others than those that the label speaks of."""
    digest = hashlib.sha256()
    try:
        opened = open_regular(origin)
    except FileNotFoundError as error:
        raise BadFile(f"the image {origin} is gone; put it back, or export to a table such as CSV") from error
    except OSError as error:
        raise BadFile(
            f"cannot read the image {origin}: {error.strerror or error}; put it back, or export to a table such as CSV"
        ) from error
    with opened as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            target.write(chunk)
    if record.sha256 and digest.hexdigest() != record.sha256:
        raise BadFile(f"the image {origin} has changed since it was read; index the images again, then export")


def write_about(folder: Path, about: ClassesFile, records: Sequence[Record], files: Sequence[str]) -> None:
    """classes.json, and records.csv with where each record's copy is."""
    header = header_of(records, about.classes)
    rows = ([*row_of(record, header), file] for record, file in zip(records, files, strict=True))
    # The path of the copy stands before the hash, which stays last: a row that was cut off shows there.
    swapped = ([*cells[:-2], cells[-1], cells[-2]] for cells in rows)
    (folder / RECORDS).write_bytes(csv_of([*header[:-1], FILE, header[-1]], swapped))
    (folder / CLASSES_FILE).write_bytes(about.encoded())


def listed_records(folder: Path) -> list[tuple[str, Record]]:
    """What records.csv says, in order: where the copy is, and the record; nothing where the folder is not ours."""
    path = folder / RECORDS
    about = read_classes_file(folder / CLASSES_FILE)
    if about is None or not about.format or not path.is_file():
        return []  # a file of that name that we did not write
    table = parse_csv(read_text(path), str(path))
    if about.records != len(table.rows):
        raise BadFile(f"{path} has {len(table.rows)} rows, but {about.records} were written; {CUT}")
    return list(zip(files_of(table), records_of(table), strict=True))


# Reading an export, or a folder from elsewhere.


@dataclass(frozen=True, slots=True)
class FoundImage:
    """One image in a folder or an archive, and what its place there says."""

    file: str  # below the root, with /
    path: str  # what is left of it without split and class
    label: str | None
    kind: Kind = "label"
    split: str = ""


def class_tree(
    files: Iterable[str], folders: dict[str, str], *, split: bool | None = None
) -> tuple[list[FoundImage], list[str]]:
    """Images in class folders, perhaps below train/, test/ …; `folders` says which class an odd folder is.

    Without `split`, the names of the uppermost folders decide whether they are splits.
    """
    names = [file.split("/") for file in files]
    split = has_splits(names) if split is None else split
    found, strays = [], []
    for parts in names:
        base, rest = (parts[0], parts[1:]) if split else ("", parts)
        if len(rest) < 2:
            strays.append(f"{'/'.join(parts)}: not in a class folder")
            continue
        label, kind = _meaning(rest[0], folders)
        found.append(FoundImage("/".join(parts), "/".join(rest[1:]), label, kind, base))
    return found, strays


def has_splits(names: Sequence[Sequence[str]]) -> bool:
    """Whether the uppermost folders are splits: "train" may be a class too, so all must be, with folders below."""
    tops = {parts[0] for parts in names if len(parts) > 1}
    deep = all(len(parts) > 2 for parts in names if len(parts) > 1)
    return bool(tops) and tops <= SPLITS and deep


def reconciled(
    found: Sequence[FoundImage], listed: Sequence[tuple[str, Record]], hashes: Callable[[Sequence[str]], Iterable[str]]
) -> tuple[list[Record], list[str]]:
    """Records for the images found: as they were listed where nothing was moved, else by where they lie now."""
    here = {item.file: item for item in found}
    kept = [record for file, record in listed if file in here and here[file].label == record.label]
    known = {file for file, record in listed if file in here and here[file].label == record.label}
    relabelled = {file: record for file, record in listed if file in here and file not in known}
    moved = [item for item in found if item.file not in known and item.file not in relabelled]
    paths = {record.sha256: record.path for _, record in listed if record.sha256}
    now = [(here[file], record.path, record.sha256) for file, record in relabelled.items()]
    taken = set()
    for item, sha256 in zip(moved, hashes([item.file for item in moved]), strict=True):
        taken.add(sha256)
        now.append((item, paths.get(sha256, item.path), sha256))
    renewed = [Record(path, one.label, split=one.split, kind=one.kind, sha256=sha256) for one, path, sha256 in now]
    return kept + renewed, _gone(listed, here.keys(), taken)


def known_hashes(root: Path, files: Iterable[str]) -> dict[str, str]:
    """Hashes of those files that lie in the folder, on all cores: labels may come without images."""
    present = [file for file in files if lies_in(root, file)]
    return dict(zip(present, in_threads(lambda file: sha256_of(root / file), present), strict=True))


def sha256_of(path: Path) -> str:
    """The hash of a file's bytes."""
    digest = hashlib.sha256()
    try:
        with open_regular(path) as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror or error}") from error
    return digest.hexdigest()


def lies_in(root: Path, file: str) -> bool:
    """Whether a name from elsewhere is that of a file in a folder, not of one that it climbs or links to."""
    path = root / file
    try:
        return path.is_file() and path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError, ValueError):  # a circle of links, or no path at all
        return False


def _gone(listed: Sequence[tuple[str, Record]], here: Iterable[str], moved: set[str]) -> list[str]:
    """What is listed and nowhere to be found; an image that was moved is found by its bytes."""
    there = set(here)
    missing: defaultdict[str, str] = defaultdict(str)
    for file, record in listed:
        if file not in there and record.sha256 not in moved:
            missing[file] = f"{file}: listed in records.csv, but not there"
    return list(missing.values())


def _meaning(folder: str, folders: dict[str, str]) -> tuple[str | None, Kind]:
    if folder in folders:
        return folders[folder], "label"
    if folder in NO_CLASS:
        return None, "other" if folder == OTHER else "label"
    return folder, "label"


# -- one folder per class, perhaps below one per split --------------------------------------------


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
        kind = object_data_set(files_below(path)[0])
        if kind and read_classes_file(path / CLASSES_FILE) is None:
            raise BadFile(
                f"{path} is a data set with objects in images ({kind}), not class folders; convert it to class "
                "folders (datum convert -f imagenet), COCO or Datumaro, or write a CSV file of paths and labels"
            )
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


def object_data_set(files: Sequence[str]) -> str:
    """What kind of data set its folders show: annotations that are neither images nor classes; empty for none.

    >>> object_data_set(["images/train/1.jpg", "labels/train/1.txt"]), object_data_set(["images/1.jpg", "labels/2.jpg"])
    ('YOLO', '')
    """
    tops = {file.split("/")[0].lower() for file in files if "/" in file}
    below = {(file.split("/")[0].lower(), Path(file).suffix.lower()) for file in files if "/" in file}
    if "jpegimages" in tops and tops & {"annotations", "imagesets"}:
        return "Pascal VOC"
    if ("labels", ".txt") in below or {"obj.names", "data.yaml"} & set(files):
        return "YOLO"
    inside = {Path(file).suffix.lower() for file in files if "annotations" in file.split("/")[:-1]}
    return "annotations/" if inside & {".json", ".xml", ".txt"} else ""


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
