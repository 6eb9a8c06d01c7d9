"""CVAT's "CVAT for images 1.1": one XML file with an <image> per image and a <tag> per label.

What CVAT has no place for stands in attributes and elements that it passes over: who, when, 'other' and 'skip'.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ...errors import BadFile, BadInput
from ...files import open_regular, write_whole
from ...pool.decode import read_header
from .base import FORMATS, Kind, Loaded, Record, Source, all_classes, by_image, from_iso, to_iso
from .single_file import check_file
from .table import share_of
from .untrusted import member, opened_zip, read_bytes, xml_of

FILE = "annotations.xml"
HEAD = b"<?xml version='1.0' encoding='utf-8'?>\n<!-- written by tailwise -->\n"
UNWRITABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
BY_MACHINE = "auto"
NO_SUBSET = "default"


class CvatXml:
    """An XML file; the images stay where they are."""

    name = "cvat-xml"
    about = "CVAT for images 1.1: one XML file with a tag per image"
    suffix = ".xml"
    copies = False

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

    def check(self, out: Path) -> None:
        """Refuse a file that is not ours, or that cannot be written."""
        check_file(out, self.suffix, b"tailwise")

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
    """What is told of tags that a model has made; they are left out, and those of people count."""
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
        path, None, split="" if subset == NO_SUBSET else subset, model_version=image.get("model_version", ""),
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


FORMATS.register(CvatXml.name)(CvatXml())
