"""The formats of CVAT: "ImageNet 1.0" (archives of class folders or lists) and "CVAT for images 1.1" (one XML file).

Of the first we write both forms: imagenet.zip makes a new dataset, annotations.zip labels an existing task.
What CVAT cannot store (annotator, time, 'other', 'skip') is written in attributes and elements that it ignores.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePosixPath
from xml.etree.ElementTree import Element, SubElement, indent, tostring
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from ..errors import BadFile, BadInput
from ..files import open_regular, write_whole
from ..pools.decode import read_header
from .base import (
    FORMATS,
    FileFormat,
    Kind,
    Loaded,
    Record,
    Sample,
    Source,
    UniqueNames,
    all_classes,
    by_image,
    class_folders,
    from_iso,
    label_format,
    safe_name,
    stem_and_ending,
    to_iso,
)
from .folders import (
    FolderFormat,
    class_tree,
    copy_image,
    fresh_folder,
    home_of,
    listed_records,
    reconciled,
    write_about,
)
from .reading import (
    CLASSES_FILE,
    ClassesFile,
    member,
    opened_zip,
    read_bytes,
    read_classes_file,
    read_text,
    text_of,
    xml_of,
)
from .tables import share_of

IMAGES, LISTS = "imagenet.zip", "annotations.zip"
NO_LABEL, SYNSETS, SUBSET = "no_label", "synsets.txt", "default"
UNLISTABLE = re.compile(r'["\r\n]')
FILE = "annotations.xml"
HEAD = b"<?xml version='1.0' encoding='utf-8'?>\n<!-- written by tailwise -->\n"
UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
BY_MACHINE = "auto"
LINE = re.compile(r'(?:"(?P<quoted>[^"]*)"(?P<ending>\S*)|(?P<plain>[^\s"]+))(?P<numbers>(?:\s+\d+)*)\s*')


# ImageNet 1.0.


@label_format
class CvatImageNet(FolderFormat):
    """Two archives that CVAT takes, and what it cannot carry in records.csv and classes.json."""

    name = "cvat-imagenet"
    about = "CVAT ImageNet 1.0: imagenet.zip with class folders, annotations.zip with lists"
    copies = True
    priority = 30

    def recognises(self, sample: Sample) -> bool:
        """A .zip, or a folder with what is in one."""
        unpacked = sample.has(SYNSETS) or sample.has(IMAGES) or (sample.is_folder and (sample.path / NO_LABEL).is_dir())
        return unpacked or sample.suffix == ".zip"

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:
        """Read an archive from CVAT, the folder that it was unpacked to, or an export of ours."""
        if path.is_dir():
            archive = path / IMAGES
            if archive.is_file():
                return _read_ours(path, archive)
            return _read_unpacked(path, classes)
        with opened_zip(path) as archive_file:
            return _read_archive(archive_file)

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
    taken: dict[str, UniqueNames] = {}
    made: dict[tuple[str, Path], str] = {}
    for record in records:
        home = home_of(record, homes, unlabelled=NO_LABEL) if record.kind != "other" else NO_LABEL
        origin = source(record)
        if (home, origin) not in made:
            name = f"{home}/{taken.setdefault(home, UniqueNames()).give(*stem_and_ending(record.path))}"
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
    quoted = f'"{stem}"' if len(stem.split()) > 1 else stem
    return f"{quoted}{ending} {' '.join(numbers)}\n"


def _subset(split: str) -> str:
    name = safe_name(split or SUBSET)
    return f"{name}_" if f"{name}.txt" == SYNSETS else name


def _read_ours(path: Path, images: Path) -> Loaded:
    about = read_classes_file(path / CLASSES_FILE)
    odd = {folder: name for name, folder in about.folders.items()} if about else {}
    with opened_zip(images) as archive:
        found, strays = class_tree(sorted(archive.namelist()), odd, split=False)
        records, gone = reconciled(found, listed_records(path), partial(_hashes, archive))
    classes = about.classes if about else sorted({one.label for one in found if one.label is not None})
    return Loaded(records, strays + gone, all_classes(classes, records))


def _read_archive(archive: ZipFile) -> Loaded:
    """The names in the archive hold the labels; nothing is unpacked."""
    names = sorted(info.filename for info in archive.infolist() if not info.is_dir())
    texts = [name for name in names if "/" not in name and name.endswith(".txt")]
    if texts:
        return _from_lists({name: text_of(member(archive, name), f"{archive.filename}/{name}") for name in texts})
    climbing = [f"{name}: it leads out of the archive" for name in names if ".." in name.split("/")]
    shown = [name for name in names if not any(part.startswith((".", "__MACOSX")) for part in name.split("/"))]
    found, strays = class_tree(shown, {}, split=False)
    if not found:
        raise BadFile(f"{archive.filename} holds neither class folders nor lists; was it exported as ImageNet 1.0?")
    records, _ = reconciled(found, (), partial(_hashes, archive))
    return Loaded(records, climbing + strays, tuple(sorted({one.label for one in found if one.label is not None})))


def _read_unpacked(path: Path, classes: tuple[str, ...]) -> Loaded:
    texts = sorted(file for file in path.glob("*.txt") if file.is_file())
    if texts:
        return _from_lists({file.name: read_text(file) for file in texts})
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


def _hashes(archive: ZipFile, names: Sequence[str]) -> Iterator[str]:
    for name in names:
        yield hashlib.sha256(member(archive, name)).hexdigest()


# CVAT for images 1.1.


@label_format
class CvatXml(FileFormat):
    """An XML file; the images stay where they are."""

    name = "cvat-xml"
    about = "CVAT for images 1.1: one XML file with a tag per image"
    suffix = ".xml"
    mark = b"tailwise"
    copies = False
    priority = 40

    def recognises(self, sample: Sample) -> bool:
        """An XML file, or a folder or .zip with annotations.xml."""
        return sample.suffix == ".xml" or sample.has(FILE) or (sample.suffix == ".zip" and FILE in sample.files)

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:  # noqa: ARG002 - the file names its classes
        """Read annotations.xml, the .zip or the folder that it lies in."""
        root = xml_of(*_content(path))
        if root.tag != "annotations":
            raise BadFile(f"{path} is not as CVAT writes it: its root is <{root.tag}>, not <annotations>")
        records: list[Record] = []
        problems = [f"{path} has tracks of videos, which are not read"] if root.find("track") is not None else []
        for image in root.iter("image"):
            problems += _machine_made(image)
            try:
                records += _records(image)
            except BadInput as error:
                problems.append(f"{image.get('name')}: {error}")
        names = (name.text or "" for name in root.findall("./meta//labels/label/name"))
        return Loaded(records, problems, all_classes(tuple(names), records))

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:
        """Write the file as CVAT would, sizes of the images included."""
        kept = list(records)
        names = all_classes(classes, kept)
        self.check(out)
        groups = by_image(kept)
        root = Element("annotations")
        SubElement(root, "version").text = "1.1"
        root.append(_meta(names, len(groups)))
        for number, group in enumerate(groups):
            root.append(_image(number, group, source(group[0])))
        indent(root)
        write_whole(out, HEAD + tostring(root, encoding="utf-8") + b"\n")
        return out


def _content(path: Path) -> tuple[bytes, str]:
    if path.is_dir():
        return read_bytes(path / FILE), str(path / FILE)
    if path.suffix.lower() != ".zip":
        return read_bytes(path), str(path)
    with opened_zip(path) as archive:
        if FILE not in archive.namelist():
            raise BadFile(f"{path} holds no {FILE}; export it from CVAT as 'CVAT for images 1.1'")
        return member(archive, FILE), f"{path}/{FILE}"


def _meta(classes: Sequence[str], images: int) -> Element:
    meta = Element("meta")
    task = SubElement(meta, "task")
    SubElement(task, "size").text = str(images)
    SubElement(task, "mode").text = "annotation"
    labels = SubElement(task, "labels")
    for name in classes:
        label = SubElement(labels, "label")
        SubElement(label, "name").text = _writable(name)
        SubElement(label, "type").text = "tag"
        SubElement(label, "attributes")
    return meta


def _image(number: int, group: Sequence[Record], origin: Path) -> Element:
    first = group[0]
    width, height = _size(origin)
    image = Element("image", id=str(number), name=_writable(first.path))
    _set(image, width=width, height=height)
    _set(image, subset=first.split, sha256=first.sha256, model_version="" if first.answered else first.model_version)
    for record in group:
        if not record.answered:
            continue
        if record.label is not None:
            answer = SubElement(image, "tag", label=_writable(record.label), source="manual")
        else:
            answer = SubElement(image, "answer", kind=record.kind)
        time = "" if record.at is None else to_iso(record.at)
        _set(answer, annotator=record.annotator, time=time, model_version=record.model_version)
    for name, share in (first.proba or {}).items():
        SubElement(image, "prediction", label=_writable(name), probability=repr(float(share)))
    return image


def _set(element: Element, **attributes: str) -> None:
    for name, value in attributes.items():
        if value:
            element.set(name, _writable(value))


def _writable(text: str) -> str:
    odd = UNWRITABLE.search(text)
    if odd:
        raise BadInput(f"{text!r} holds U+{ord(odd[0]):04X}, which XML cannot carry; export to another format")
    return text


def _size(origin: Path) -> tuple[str, str]:
    """Width and height of the upright image, by its header; nothing where it cannot be read: its label still holds."""
    try:
        with open_regular(origin) as file:
            header = read_header(file)
    except (OSError, BadFile):
        return "", ""
    return str(header.width), str(header.height)


def _machine_made(image: Element) -> list[str]:
    """One problem per tag that a model has made; such tags are left out."""
    labels = [tag.get("label") for tag in image.findall("tag") if tag.get("source") == BY_MACHINE]
    return [
        f"{image.get('name')}: the tag {label} was made by a model (source=auto), not by a person" for label in labels
    ]


def _records(image: Element) -> Iterator[Record]:
    """The answers to one image; without any, and no tag by a model, the image as one that nobody has answered."""
    path = image.get("name")
    if not path:
        raise BadInput("an <image> without a name")
    subset = image.get("subset", "")
    shares = {p.get("label", ""): share_of(p.get("probability", "")) for p in image.findall("prediction")}
    bare = Record(
        path, None, split="" if subset == SUBSET else subset, model_version=image.get("model_version", ""),
        proba=shares or None, sha256=image.get("sha256", ""),
    )  # fmt: skip
    answers = list(_answers(image, bare))
    signed = len({record.annotator for record in answers}) == len(answers)
    if not signed and len({record.label for record in answers}) > 1:
        labels = ", ".join(sorted(str(record.label) for record in answers))
        raise BadInput(f"tags {labels}, but an image has one class here")
    yield from (answers if signed else answers[:1]) or ([] if _machine_made(image) else [bare])


def _answers(image: Element, bare: Record) -> Iterator[Record]:
    for element in image:
        if element.tag not in ("tag", "answer") or element.get("source") == BY_MACHINE:
            continue
        label = element.get("label")
        time = element.get("time", "")
        yield replace(
            bare,
            label=label if element.tag == "tag" else None,
            kind=_kind(element),
            at=from_iso(time) if time else None,
            annotator=element.get("annotator", ""),
            model_version=element.get("model_version", ""),
        )


def _kind(element: Element) -> Kind:
    if element.tag == "tag":
        if not element.get("label"):
            raise BadInput("a <tag> without a label")
        return "label"
    kind = element.get("kind")
    if kind == "other":
        return "other"
    if kind == "skip":
        return "skip"
    raise BadInput(f"an <answer> of the kind {kind!r}; it must be 'other' or 'skip'")
