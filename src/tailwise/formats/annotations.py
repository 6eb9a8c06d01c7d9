"""COCO and Datumaro data sets: annotations/*.json with the classes and labels, images/ with a folder per split.

Both are made for objects in images; here an image has one class. Objects of one class give the image that class, with a
note; images with objects of several classes are left out and listed.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import BadFile
from .base import Loaded, Record, Sample, Source, all_classes, label_format, safe_name
from .folders import (
    RECORDS,
    SPLITS,
    Copies,
    FolderFormat,
    FoundImage,
    fresh_folder,
    known_hashes,
    listed_records,
    reconciled,
    write_about,
)
from .reading import CLASSES_FILE, CUT, ClassesFile, files_below, read_classes_file, read_json

FOLDER, IMAGES, WHOLE = "annotations", "images", "default"
ROBOFLOW = "_annotations.coco.json"


@dataclass(slots=True)
class Entry:
    """An image as a file of annotations lists it."""

    name: str  # of the image, below the folder of its split
    labels: list[str] = field(default_factory=list)  # classes of the whole image
    objects: list[str] = field(default_factory=list)  # classes of boxes and outlines

    def chosen(self) -> list[str]:
        """The different classes: those of the image, else those of its objects."""
        return list(dict.fromkeys(self.labels or self.objects))


class AnnotationsFormat(FolderFormat):
    """What COCO and Datumaro share."""

    name: str
    keys: tuple[str, ...]  # that the JSON has
    copies = True

    def recognises(self, sample: Sample) -> bool:
        """A JSON file with the right keys, or a folder with such a file in its usual place."""
        if not sample.is_folder:
            return sample.suffix == ".json" and self.fits(sample.json)
        return any(self.fits(sample.json_in(file)) for file in annotation_files(sample.files))

    def fits(self, content: object) -> bool:
        """Whether a JSON text has the keys of this format."""
        return isinstance(content, dict) and all(key in content for key in self.keys)

    def entries(self, content: Mapping[str, object]) -> tuple[Sequence[str], Iterator[Entry]]:
        """The classes of a file, and its images."""
        raise NotImplementedError

    def split_of(self, file: str) -> str:
        """The split that the name or the folder of a file says; empty for none."""
        *folders, name = file.split("/")
        words = [*reversed(re.split(r"[_.]", name.removesuffix(".json"))), *folders]
        return next((word for word in words if word in SPLITS), "")

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:  # noqa: ARG002 - the files name the classes
        """Read all annotations of a folder, or one file."""
        root = path if path.is_dir() else path.parent.parent if path.parent.name == FOLDER else path.parent
        files, problems = files_below(root) if root.is_dir() else ([], [])
        wanted = annotation_files(files) if path.is_dir() else [path.relative_to(root).as_posix()]
        merged: dict[tuple[str, str], Entry] = {}
        names: dict[str, None] = {}
        found_any = False
        for file in wanted:
            content = read_json(root / file)
            if not isinstance(content, dict) or not self.fits(content):
                continue
            found_any = True
            listed, entries = self._parsed(content, root / file)
            names |= dict.fromkeys(listed)
            for entry in entries:
                known = merged.setdefault((self.split_of(file), entry.name), Entry(entry.name))
                known.labels += entry.labels
                known.objects += entry.objects
        if not found_any:
            raise BadFile(f"{path} has no annotations as {self.name} writes them, with {', '.join(self.keys)}; {CUT}")
        found, left_out = _found(merged, Places(files))

        def hashes(these: Sequence[str]) -> list[str]:
            known = known_hashes(root, these)
            return [known.get(file, "") for file in these]

        records, gone = reconciled(found, listed_records(root), hashes)
        about = read_classes_file(root / CLASSES_FILE)
        ordered = about.classes if about else tuple(names)
        return Loaded(records, [*problems, *left_out, *gone], all_classes(ordered, records))

    def _parsed(self, content: Mapping[str, object], path: Path) -> tuple[Sequence[str], list[Entry]]:
        try:
            names, entries = self.entries(content)
            return names, list(entries)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise BadFile(f"{path} is not as {self.name} writes it ({error!r}); {CUT}") from error

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:
        """Copy the images and write their labels; a copy per record, as an image has one label."""
        kept = list(records)
        names = all_classes(classes, kept)
        split = any(record.split for record in kept)
        homes: dict[str, list[tuple[str, Record]]] = {} if kept else {WHOLE: []}
        files = []
        with fresh_folder(out) as folder:
            copies = Copies(folder, source, apart=True, always=True)
            for record in kept:
                home = safe_name(record.split or "train") if split else WHOLE
                file = copies.put(record, f"{IMAGES}/{home}")
                homes.setdefault(home, []).append((file, record))
                files.append(file)
            (folder / FOLDER).mkdir()
            written = [f"{FOLDER}/{self.stem(home)}.json" for home in homes]
            for name, chosen in zip(written, homes.values(), strict=True):
                content = self.content(folder, chosen, names)
                (folder / name).write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8", newline="\n")
            write_about(folder, ClassesFile(self.name, names, len(kept), files=tuple(written)), kept, files)
        return out

    def stem(self, home: str) -> str:
        """The name of the file for a split."""
        return home

    def content(self, folder: Path, chosen: Sequence[tuple[str, Record]], names: Sequence[str], /) -> dict[str, object]:
        """The JSON for some copies with their records."""
        raise NotImplementedError


def annotation_files(files: Iterable[str]) -> list[str]:
    """Where COCO and Datumaro keep annotations: annotations/, or one file in a split's folder or at the top."""
    return [
        file
        for file in files
        if file.lower().endswith(".json")
        and file not in (CLASSES_FILE, RECORDS)
        and (file.count("/") == 0 or file.split("/")[-2] == FOLDER or file.endswith(ROBOFLOW))
    ]


class Places:
    """Where the images that annotations name are: their folders differ from tool to tool."""

    def __init__(self, files: Iterable[str]) -> None:
        self._named: defaultdict[str, list[str]] = defaultdict(list)
        for file in files:
            self._named[file.rsplit("/", 1)[-1]].append(file)

    def find(self, name: str, split: str) -> str:
        """The file of an image: of several with the end of the name, the one in the folder of the split."""
        ends = [file for file in self._named[name.rsplit("/", 1)[-1]] if f"/{file}".endswith(f"/{name}")]
        inside = [file for file in ends if split in file.removesuffix(name).split("/")]
        return (inside or ends)[0] if len(inside or ends) == 1 else name


def _found(entries: Mapping[tuple[str, str], Entry], places: Places) -> tuple[list[FoundImage], list[str]]:
    """The images with at most one class, and what was left out."""
    found, problems = [], []
    by_objects = 0
    for (split, name), entry in entries.items():
        chosen = entry.chosen()
        if len(chosen) > 1:
            problems.append(f"{name}: {len(chosen)} classes ({', '.join(chosen[:3])}), but an image has one class here")
            continue
        by_objects += bool(chosen and not entry.labels)
        found.append(FoundImage(places.find(name, split), name, chosen[0] if chosen else None, split=split))
    if by_objects:
        problems.append(f"{by_objects} images have boxes or outlines of one class: it was taken for the whole image")
    return found, problems


@label_format
class Datumaro(AnnotationsFormat):
    """Datumaro's own format, with copies of the images."""

    name = "datumaro"
    about = "Datumaro: annotations/ with a JSON file per split, images/"
    keys = ("categories", "items")
    priority = 70

    def entries(self, content: Mapping[str, object]) -> tuple[Sequence[str], Iterator[Entry]]:
        """Annotations of type "label" belong to the image, those with a class to objects."""
        categories, items = content["categories"], content["items"]
        if not isinstance(categories, dict) or not isinstance(items, list):
            raise TypeError("categories and items")
        names = [str(one["name"]) for one in categories.get("label", {}).get("labels", [])]
        return names, (self._entry(item, names) for item in items)

    def _entry(self, item: Mapping[str, object], names: Sequence[str]) -> Entry:
        image = item.get("image")
        entry = Entry(str((image.get("path") if isinstance(image, dict) else None) or item["id"]))
        notes = item["annotations"]
        for note in notes if isinstance(notes, list) else []:
            if note.get("label_id") is not None:
                (entry.labels if note["type"] == "label" else entry.objects).append(names[note["label_id"]])
        return entry

    def content(self, _: Path, chosen: Sequence[tuple[str, Record]], names: Sequence[str], /) -> dict[str, object]:
        """As version 1.0 of the format has it."""
        numbers = {name: number for number, name in enumerate(names)}
        labels = [{"name": name, "parent": "", "attributes": []} for name in names]
        items = []
        for file, record in chosen:
            note = {"id": 0, "type": "label", "attributes": {}, "group": 0, "label_id": numbers.get(record.label or "")}
            place = file.split("/", 2)[-1]
            notes = [] if record.label is None else [note]
            items.append({"id": Path(place).stem, "annotations": notes, "image": {"path": place}})
        label = {"labels": labels, "label_groups": [], "attributes": []}
        return {
            "dm_format_version": "1.0",
            "media_type": 2,
            "infos": {},
            "categories": {"label": label},
            "items": items,
        }


@label_format
class Coco(AnnotationsFormat):
    """COCO, with a category per image and no box."""

    name = "coco"
    about = "COCO: annotations/labels_….json with a category per image, images/"
    keys = ("images", "annotations")
    priority = 70

    def stem(self, home: str) -> str:
        """How Datumaro names such files."""
        return f"labels_{home}"

    def entries(self, content: Mapping[str, object]) -> tuple[Sequence[str], Iterator[Entry]]:
        """Annotations with a box, an outline or keypoints belong to objects."""
        categories, images, notes = content.get("categories", []), content["images"], content["annotations"]
        if not isinstance(categories, list) or not isinstance(images, list) or not isinstance(notes, list):
            raise TypeError("categories, images and annotations")
        names = {one["id"]: str(one["name"]) for one in categories}
        entries = {image["id"]: Entry(str(image["file_name"])) for image in images}
        for note in notes:
            if "category_id" in note:
                entry, objects = entries[note["image_id"]], any(note.get(key) for key in ("bbox", "segmentation"))
                (entry.objects if objects else entry.labels).append(names[note["category_id"]])
        return list(names.values()), iter(entries.values())

    def content(self, folder: Path, chosen: Sequence[tuple[str, Record]], names: Sequence[str], /) -> dict[str, object]:
        """Categories and images are counted from 1."""
        numbers = {name: number for number, name in enumerate(names, start=1)}
        images: list[dict[str, object]] = []
        notes: list[dict[str, int]] = []
        for number, (file, record) in enumerate(chosen, start=1):
            images.append({"id": number, "file_name": file.split("/", 2)[-1], **_size(folder / file)})
            if record.label is not None:
                notes.append({"id": len(notes) + 1, "image_id": number, "category_id": numbers[record.label]})
        categories = [{"id": number, "name": name, "supercategory": ""} for name, number in numbers.items()]
        return {"info": {}, "licenses": [], "categories": categories, "images": images, "annotations": notes}


def _size(path: Path) -> dict[str, int]:
    """Width and height; nothing for a file that cannot be read as an image."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            return {"width": image.width, "height": image.height}
    except (OSError, ValueError, Image.DecompressionBombError):
        return {}
