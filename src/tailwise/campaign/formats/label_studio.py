"""Label Studio: tasks with predictions and annotations, and the labelling configuration; exports as JSON or JSON_MIN.

Label Studio keeps a task's data, so our note there finds the image again whatever became of its address.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ...errors import BadFile
from . import classes_file
from .base import FORMATS, Loaded, Record, Source, all_classes, by_image, to_iso
from .classes_file import ClassesFile, read_classes_file
from .copies import check_folder, fresh_folder
from .label_studio_tasks import LOCAL_FILES, NOTE, OTHER, task_records
from .untrusted import read_bytes, read_json, xml_of

TASKS, CONFIG = "tasks.json", "label_config.xml"
CONTROL, OBJECT = "label", "image"


class LabelStudio:
    """A folder with tasks.json to import and label_config.xml to paste; the images stay where they are."""

    name = "label-studio"
    about = "Label Studio: tasks.json with annotations and predictions, label_config.xml"
    suffix = ""
    copies = False

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:
        """Read an export (JSON or JSON_MIN), or a folder of ours."""
        root, tasks = (path, path / TASKS) if path.is_dir() else (path.parent, path)
        content = read_json(tasks)
        items = content if isinstance(content, list) else [content]
        about = read_classes_file(root / classes_file.NAME)
        ours = about.classes if about else ()
        configured = () if ours else _configured(root / CONFIG)
        choices = tuple(choice.name for choice in configured)
        known = ours or choices or classes
        called = _called_here(configured, classes)
        records: list[Record] = []
        problems: list[str] = []
        for number, item in enumerate(items, start=1):
            if not isinstance(item, dict):
                raise BadFile(f"{tasks} is not as Label Studio writes it: item {number} is no task")
            found, faults = task_records(item, number, known)
            records += [_renamed(record, called) for record in found]
            problems += faults
        named = tuple(called.get(name, name) for name in choices)
        return Loaded(records, problems, all_classes(ours or named, records))

    def check(self, out: Path) -> None:
        """Refuse a folder that is not ours, or that cannot be made."""
        check_folder(out)

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:
        """Write tasks and configuration; addresses are for Label Studio's local files, below the images' folder."""
        kept = list(records)
        names = all_classes(classes, kept)
        other = other_choice(names)
        groups = by_image(kept)
        tasks = [_task(group, source(group[0]), other) for group in groups]
        with fresh_folder(out) as folder:
            (folder / TASKS).write_bytes((json.dumps(tasks, indent=1, ensure_ascii=False) + "\n").encode())
            (folder / CONFIG).write_bytes(label_config(names))
            about = ClassesFile(self.name, names, len(kept), files=(TASKS, CONFIG))
            (folder / classes_file.NAME).write_bytes(about.encoded())
        return out


def label_config(classes: Sequence[str]) -> bytes:
    """The labelling configuration: one choice per class, in order, and one for none of them."""
    view = Element("View")
    SubElement(view, "Image", name=OBJECT, value="$image")
    choices = SubElement(view, "Choices", name=CONTROL, toName=OBJECT, choice="single-radio", required="true")
    for name in classes:
        SubElement(choices, "Choice", value=name)
    SubElement(choices, "Choice", value="None of these", alias=other_choice(classes))
    indent(view)
    text: bytes = tostring(view, encoding="utf-8")
    return text + b"\n"


def other_choice(classes: Sequence[str]) -> str:
    """The choice that stands for none of the classes, unlike all of them."""
    name = OTHER
    while name in classes:
        name += "_"
    return name


def _task(group: Sequence[Record], origin: Path, other: str) -> dict[str, object]:
    first = group[0]
    version = "" if first.answered else first.model_version
    note = {
        "path": first.path,
        "sha256": first.sha256,
        "split": first.split,
        "model_version": version,
        "proba": dict(first.proba) if first.proba else None,
    }
    task: dict[str, object] = {
        "data": {
            "image": _address(first.within or first.path, origin),
            NOTE: {key: value for key, value in note.items() if value},
        },
        "annotations": [_annotation(record, other) for record in group if record.answered],
    }
    if first.proba:
        name, score = max(first.proba.items(), key=lambda share: share[1])
        task["predictions"] = [{"model_version": first.model_version, "score": score, "result": _result(name)}]
    return task


def _address(path: str, origin: Path) -> str:
    """Where Label Studio serves the image, its document root being the folder that the images' folder lies in."""
    place = origin.as_posix()
    folder = place.removesuffix(path).rstrip("/").rpartition("/")[2] if place.endswith(f"/{path}") else ""
    return LOCAL_FILES + quote(f"{folder}/{path}".lstrip("/"))


def _annotation(record: Record, other: str) -> dict[str, object]:
    """An annotation; `completed_by` is left out, as Label Studio refuses people that it does not know."""
    chosen = {"label": record.label, "other": other, "skip": None}[record.kind]
    said: dict[str, object] = {
        "result": [] if chosen is None else _result(chosen),
        "was_cancelled": record.kind == "skip",
        "ground_truth": False,
        NOTE: {"annotator": record.annotator, "kind": record.kind, "model_version": record.model_version},
    }
    return said | ({} if record.at is None else {"created_at": to_iso(record.at)})


def _result(choice: str) -> list[dict[str, object]]:
    return [{"from_name": CONTROL, "to_name": OBJECT, "type": "choices", "value": {"choices": [choice]}}]


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of a labelling configuration."""

    name: str  # what annotations hold: the alias, where there is one
    value: str  # what people see


def _configured(path: Path) -> tuple[Choice, ...]:
    """The choices of a labelling configuration, in order, without that for none of the classes."""
    if not path.is_file():
        return ()
    found = xml_of(read_bytes(path), str(path)).iter("Choice")
    choices = (Choice(one.get("alias") or one.get("value") or "", one.get("value") or "") for one in found)
    return tuple(choice for choice in choices if choice.name and choice.name != OTHER)


def _called_here(choices: Iterable[Choice], classes: Iterable[str]) -> dict[str, str]:
    """Alias → value, where a class is called as people see the choice and none is called as annotations hold it.

    >>> _called_here([Choice("k1", "Red kite"), Choice("owl", "An owl")], ("red kite", "owl"))
    {'k1': 'Red kite'}
    """
    known = {name.casefold() for name in classes}
    return {
        choice.name: choice.value
        for choice in choices
        if choice.value.casefold() in known and choice.name.casefold() not in known
    }


def _renamed(record: Record, called: Mapping[str, str]) -> Record:
    if not called:
        return record
    label = None if record.label is None else called.get(record.label, record.label)
    proba = {called.get(name, name): share for name, share in record.proba.items()} if record.proba else record.proba
    return replace(record, label=label, proba=proba)


FORMATS.register(LabelStudio.name)(LabelStudio())
