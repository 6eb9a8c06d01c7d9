"""FiftyOne's image classification datasets: data/ with the images and labels.json with classes and labels.

An image is named there by its file name without the ending; its label is the number of a class.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..errors import BadFile
from .base import Loaded, Record, Sample, Source, all_classes, label_format
from .folders import (
    Copies,
    FolderFormat,
    FoundImage,
    fresh_folder,
    known_hashes,
    listed_records,
    read_tree,
    reconciled,
    write_about,
)
from .reading import CLASSES_FILE, ClassesFile, files_below, read_classes_file, read_json

DATA, LABELS, PREDICTIONS = "data", "labels.json", "predictions.json"


@label_format
class FiftyOne(FolderFormat):
    """FiftyOneImageClassificationDataset, with copies of the images."""

    name = "fiftyone"
    about = "FiftyOneImageClassificationDataset: data/ with images, labels.json"
    copies = True
    priority = 50

    def recognises(self, sample: Sample) -> bool:
        """A folder with labels.json, or that file."""
        in_file = sample.suffix == ".json" and isinstance(sample.json, dict) and "labels" in sample.json
        return in_file or sample.has(LABELS)

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:
        """Read such a dataset or its labels.json; a folder without that file is read as a tree of class folders."""
        root, labels = (path, path / LABELS) if path.is_dir() else (path.parent, path)
        if not labels.is_file() and root.is_dir():
            return read_tree(root)
        names, targets = _parsed(read_json(labels), labels, classes)
        places = _places(root)
        found, problems = [], []
        for key, target in targets.items():
            label, fault = _label(target, names)
            file = places.get(key, key)
            if fault:
                problems.append(f"{key}: {fault}")
            else:
                found.append(FoundImage(file, file.removeprefix(f"{DATA}/"), label))

        def hashes(files: Sequence[str]) -> list[str]:
            known = known_hashes(root, files)
            return [known.get(file, "") for file in files]

        records, gone = reconciled(found, listed_records(root), hashes)
        about = read_classes_file(root / CLASSES_FILE)
        return Loaded(records, problems + gone, all_classes(about.classes if about else names, records))

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:
        """Copy the images and write their labels; a copy per record, as a name has one label."""
        kept = list(records)
        names = all_classes(classes, kept)
        with fresh_folder(out) as folder:
            copies = Copies(folder, source, apart=True, always=True)
            files = [copies.put(record, DATA) for record in kept]
            keys = [_key(file) for file in files]
            numbers = {name: number for number, name in enumerate(names)}
            labels = {key: numbers.get(record.label or "") for key, record in zip(keys, kept, strict=True)}
            likely = {key: _likeliest(r.proba, numbers) for key, r in zip(keys, kept, strict=True) if r.proba}
            written: dict[str, object] = {LABELS: labels, **({PREDICTIONS: likely} if likely else {})}
            for name, content in written.items():
                text = json.dumps({"classes": names, "labels": content}, ensure_ascii=False)
                (folder / name).write_bytes(text.encode())
            write_about(folder, ClassesFile(self.name, names, len(kept), files=tuple(written)), kept, files)
        return out


def _likeliest(proba: Mapping[str, float], numbers: Mapping[str, int]) -> dict[str, object]:
    name = max(proba, key=lambda name: proba[name])
    return {"label": numbers.get(name, name), "confidence": proba[name]}


def _parsed(content: object, path: Path, known: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, object]]:
    """The classes and what each image is said to show."""
    labels = content.get("labels") if isinstance(content, dict) else None
    names = content.get("classes") if isinstance(content, dict) else None
    if not isinstance(labels, dict) or not (names is None or isinstance(names, list)):
        raise BadFile(f"{path} is not as FiftyOne writes it: it must hold 'classes' and 'labels'")
    return tuple(map(str, names)) if names is not None else known, labels


def _label(target: object, classes: Sequence[str]) -> tuple[str | None, str]:
    """The class, and what is wrong if it cannot be read."""
    if isinstance(target, list):
        if len(target) > 1:
            return None, f"{len(target)} labels, but an image has one class here"
        target = target[0] if target else None
    if isinstance(target, dict):
        target = target.get("label")
    if target is None or isinstance(target, str):
        return target, ""
    if isinstance(target, int) and not isinstance(target, bool) and 0 <= target < len(classes):
        return classes[target], ""
    return None, f"the label is {target!r}, but there are {len(classes)} classes"


def _places(root: Path) -> dict[str, str]:
    """Name without ending → file below the root, or what data.json says where the images were left in place."""
    manifest = root / "data.json"
    if manifest.is_file():
        content = read_json(manifest)
        return {key: str(place) for key, place in content.items()} if isinstance(content, dict) else {}
    if not (root / DATA).is_dir():
        return {}
    return {_key(file): file for file in (f"{DATA}/{name}" for name in files_below(root / DATA)[0])}


def _key(file: str) -> str:
    name = file.removeprefix(f"{DATA}/")
    folder, slash, last = name.rpartition("/")
    return folder + slash + Path(last).stem
