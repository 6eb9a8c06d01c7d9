"""CVAT's "ImageNet 1.0": a .zip of class folders, or the lists default.txt and synsets.txt; read as CVAT exports them.

We write both: imagenet.zip makes a new dataset, annotations.zip labels the images of a task that CVAT has already.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from ...errors import BadFile
from . import classes_file
from .base import FORMATS, Loaded, Record, Source, all_classes
from .classes_file import ClassesFile, read_classes_file
from .copies import check_folder, copy_image, fresh_folder, listed_records, write_about
from .folders import home_of
from .found import class_names, class_tree, reconciled
from .safe_names import Taken, class_folders, safe_name, stem_and_ending
from .untrusted import member, opened_zip, read_bytes, text_of

IMAGES, LISTS = "imagenet.zip", "annotations.zip"
NO_LABEL, SYNSETS, SUBSET = "no_label", "synsets.txt", "default"
UNLISTABLE = re.compile(r'["\r\n]')
LINE = re.compile(r'(?:"(?P<quoted>[^"]*)"(?P<ending>\S*)|(?P<plain>[^\s"]+))(?P<numbers>(?:\s+\d+)*)\s*')


class CvatImageNet:
    """Two archives that CVAT takes, and what it cannot carry in records.csv and classes.json."""

    name = "cvat-imagenet"
    about = "CVAT ImageNet 1.0: imagenet.zip with class folders, annotations.zip with lists"
    suffix = ""
    copies = True

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:
        """Read an archive from CVAT, the folder that it was unpacked to, or an export of ours."""
        if path.is_dir():
            archive = path / IMAGES
            if archive.is_file():
                return _read_ours(path, archive)
            return _read_unpacked(path, classes)
        with opened_zip(path) as archive_file:
            return _read_archive(archive_file)

    def check(self, out: Path) -> None:
        """Refuse a folder that is not ours, or that cannot be made."""
        check_folder(out)

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:
        """Write both archives; in the first, images without a class are in no_label/."""
        kept = list(records)
        names = all_classes(classes, kept)
        homes = class_folders(names)
        with fresh_folder(out) as folder:
            with ZipFile(folder / IMAGES, "w", ZIP_STORED) as archive:
                files = list(_packed(archive, kept, homes, source))
            with ZipFile(folder / LISTS, "w", ZIP_STORED) as archive:
                for name, content in lists(kept, names).items():
                    archive.writestr(ZipInfo(name), content)
            write_about(folder, ClassesFile(self.name, names, len(kept), homes, (IMAGES, LISTS)), kept, files)
        return out


def _packed(archive: ZipFile, records: Sequence[Record], homes: Mapping[str, str], source: Source) -> Iterator[str]:
    """Put each image into the folder of its class, once; the names in the archive."""
    taken: dict[str, Taken] = {}
    made: dict[tuple[str, Path], str] = {}
    for record in records:
        home = home_of(record, homes, unlabelled=NO_LABEL) if record.kind != "other" else NO_LABEL
        origin = source(record)
        if (home, origin) not in made:
            name = f"{home}/{taken.setdefault(home, Taken()).give(*stem_and_ending(record.path))}"
            with archive.open(ZipInfo(name), "w", force_zip64=True) as file:
                copy_image(origin, file, record)
            made[home, origin] = name
        yield made[home, origin]


def lists(records: Iterable[Record], classes: Sequence[str]) -> dict[str, str]:
    r"""File name → text: the classes in order, and per split a line per image with the numbers of its classes.

    An image with a quote or a line break in its name is left out: CVAT would refuse the whole list.

    >>> lists([Record("a b.jpg", "dog"), Record("c.jpg", None)], ("cat", "dog"))
    {'synsets.txt': 'cat\ndog\n', 'default.txt': '"a b".jpg 1\nc.jpg \n'}
    """
    numbers = {name: str(number) for number, name in enumerate(classes)}
    subsets: dict[str, dict[str, dict[str, None]]] = {}
    for record in records:
        if UNLISTABLE.search(record.path):
            continue
        images = subsets.setdefault(_subset(record.split), {})
        labels = images.setdefault(record.path, {})
        if record.label is not None:
            labels[numbers[record.label]] = None
    texts = {f"{split}.txt": "".join(_line(path, labels) for path, labels in s.items()) for split, s in subsets.items()}
    return {SYNSETS: "".join(f"{name}\n" for name in classes)} | texts


def _line(path: str, numbers: Iterable[str]) -> str:
    ending = PurePosixPath(path).suffix
    stem = path.removesuffix(ending)
    return f"{_quoted(stem)}{ending} {' '.join(numbers)}\n"


def _subset(split: str) -> str:
    name = safe_name(split or SUBSET)
    return f"{name}_" if f"{name}.txt" == SYNSETS else name


def _quoted(stem: str) -> str:
    return f'"{stem}"' if len(stem.split()) > 1 else stem


def _read_ours(path: Path, images: Path) -> Loaded:
    about = read_classes_file(path / classes_file.NAME)
    odd = {folder: name for name, folder in about.folders.items()} if about else {}
    with opened_zip(images) as archive:
        found, strays = class_tree(sorted(archive.namelist()), odd, split=False)
        records, gone = reconciled(found, listed_records(path), lambda files: [_hash(archive, file) for file in files])
    return Loaded(records, strays + gone, all_classes(about.classes if about else class_names(found), records))


def _read_archive(archive: ZipFile) -> Loaded:
    """Names are enough to tell the labels; nothing is unpacked."""
    names = sorted(info.filename for info in archive.infolist() if not info.is_dir())
    texts = [name for name in names if "/" not in name and name.endswith(".txt")]
    if texts:
        return _from_lists({name: text_of(member(archive, name), f"{archive.filename}/{name}") for name in texts})
    climbing = [f"{name}: it leads out of the archive" for name in names if ".." in name.split("/")]
    found, strays = class_tree(filter(_shown, names), {}, split=False)
    if not found:
        raise BadFile(f"{archive.filename} holds neither class folders nor lists; was it exported as ImageNet 1.0?")
    records, _ = reconciled(found, (), lambda files: [_hash(archive, file) for file in files])
    return Loaded(records, climbing + strays, class_names(found))


def _read_unpacked(path: Path, classes: tuple[str, ...]) -> Loaded:
    texts = sorted(file for file in path.glob("*.txt") if file.is_file())
    if texts:
        return _from_lists({file.name: text_of(read_bytes(file), str(file)) for file in texts})
    return FORMATS["folders"].read(path, classes)


def _from_lists(texts: Mapping[str, str]) -> Loaded:
    if SYNSETS not in texts:
        raise BadFile(f"there are lists of images ({', '.join(texts)}), but no {SYNSETS} with the names of the classes")
    classes = tuple(line.strip() for line in texts[SYNSETS].splitlines())
    records, problems = [], []
    for name, text in texts.items():
        if name == SYNSETS:
            continue
        split = name.removesuffix(".txt")
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                path, labels = _parsed(line, f"line {number} of {name}", classes)
                if len(labels) > 1:
                    problems.append(f"{path}: {len(labels)} labels, but an image has one class here")
                else:
                    label = labels[0] if labels else None
                    records.append(Record(path, label, split="" if split == SUBSET else split))
    return Loaded(records, problems, classes)


def _parsed(line: str, where: str, classes: Sequence[str]) -> tuple[str, list[str]]:
    parts = LINE.fullmatch(line)
    if parts is None:
        raise BadFile(f"{where} reads {line.strip()!r}; an image and the numbers of its classes were expected")
    numbers = [int(number) for number in parts["numbers"].split()]
    if any(number >= len(classes) for number in numbers):
        raise BadFile(f"{where} names class {max(numbers)}, but {SYNSETS} has {len(classes)}")
    path = parts["plain"] if parts["plain"] is not None else parts["quoted"] + parts["ending"]
    return path, [classes[number] for number in numbers]


def _hash(archive: ZipFile, name: str) -> str:
    return hashlib.sha256(member(archive, name)).hexdigest()


def _shown(name: str) -> bool:
    return not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))


FORMATS.register(CvatImageNet.name)(CvatImageNet())
