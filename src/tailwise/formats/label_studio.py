"""Label Studio: tasks with annotations and predictions, and the labelling configuration; exports as JSON or JSON_MIN.

Label Studio keeps a task's data, so the note that we write there identifies the image even if its address changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from ..errors import BadFile, BadInput
from .base import (
    ANSWERS,
    ANY,
    KINDS,
    Kind,
    Loaded,
    Record,
    Sample,
    Source,
    all_classes,
    as_exported,
    by_image,
    from_iso,
    label_format,
    to_iso,
)
from .folders import FolderFormat, fresh_folder
from .reading import CLASSES_FILE, ClassesFile, read_bytes, read_classes_file, read_json, xml_of
from .tables import SHA256

TASKS, CONFIG = "tasks.json", "label_config.xml"
CONTROL, OBJECT = "label", "image"
RESULT = {"from_name": CONTROL, "to_name": OBJECT, "type": "choices"}
NOTE = "tailwise"
OTHER = "__other__"
LOCAL_FILES = "/data/local-files/?d="
UPLOAD = re.compile(r"/?(?:data/)?upload/(?:\d+/)?(?:[0-9a-f]{8}-)?(?P<name>[^/]+)")
UPLOAD_DROPS = re.compile(r"[^-\w.]")  # what Label Studio takes out of the name of an uploaded file, after spaces → _
IMAGE = re.compile(r"\.(jpe?g|png|gif|bmp|tiff?|webp)$", re.IGNORECASE)
IMAGE_KEYS = ("image", "img", "url", "file", "path")
CHOICE_KEYS = ("choice", "label", "class", "choices", "category")
MIN_KEYS = {
    "id",
    "annotator",
    "annotation_id",
    "created_at",
    "updated_at",
    "lead_time",
    "agreement",
    "round",
    "rank",
    NOTE,
}

Json = Mapping[str, object]


@label_format
class LabelStudio(FolderFormat):
    """A folder with tasks.json to import and label_config.xml to paste; the images stay where they are."""

    name = "label-studio"
    about = "Label Studio: tasks.json with annotations and predictions, label_config.xml"
    copies = False
    priority = 60

    def recognises(self, sample: Sample) -> bool:
        """A folder with tasks.json, or a JSON file with a task or a list of tasks."""
        if sample.suffix != ".json":
            return sample.has(TASKS)
        first = sample.json[0] if isinstance(sample.json, list) and sample.json else sample.json
        return isinstance(first, dict | list) and not (isinstance(sample.json, dict) and "labels" in sample.json)

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:
        """Read an export (JSON or JSON_MIN), or a folder of ours."""
        root, tasks = (path, path / TASKS) if path.is_dir() else (path.parent, path)
        content = read_json(tasks)
        items = content if isinstance(content, list) else [content]
        about = read_classes_file(root / CLASSES_FILE)
        ours = about.classes if about else ()
        configured = () if ours else _configured(root / CONFIG)
        choices = tuple(choice.name for choice in configured)
        known = ours or choices or classes
        called = _called_here(configured, classes)
        records: list[Record] = []
        problems: list[str] = []
        for number, item in enumerate(items, start=1):
            if not isinstance(item, dict):
                raise BadFile(f"{tasks} is not as Label Studio writes it: item {number} is not a task")
            found, faults = task_records(item, number, known)
            records += [_renamed(record, called) for record in found]
            problems += faults
        named = tuple(called.get(name, name) for name in choices)
        return Loaded(records, problems, all_classes(ours or named, records))

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
            (folder / CLASSES_FILE).write_bytes(about.encoded())
        return out


# Reading tasks.


def task_records(task: Json, number: int, classes: Sequence[str]) -> tuple[list[Record], list[str]]:
    """The answers in a task, and what could not be read; a task without any is an image that nobody has answered."""
    name = f"task {task.get('id', number)}"
    records, problems = [], []
    try:
        if isinstance(task.get("data"), dict):
            bare = _image_of(_dict(task["data"]), task)
            annotations = task.get("annotations", task.get("completions"))
            said = [_dict(item) for item in annotations] if isinstance(annotations, list) else []
        else:
            bare, said = _image_of(task, task), [_from_min(task)]
    except BadInput as error:
        return [], [f"{name}: {error}"]
    for item in said:
        try:
            records.append(_as_exported(_answer(item, bare, classes), item, task))
        except BadInput as error:
            problems.append(f"{name} ({bare.path}): {error}")
    return records if said else [bare], problems


def path_of_address(address: str) -> str:
    """The path in an address as Label Studio keeps them; nothing is fetched.

    >>> path_of_address("/data/local-files/?d=pets/a%20b.jpg"), path_of_address("/data/upload/3/1f0c2a9b-cat.jpg")
    ('pets/a b.jpg', 'cat.jpg')
    >>> path_of_address("s3://bucket/pets/1.jpg"), path_of_address("https://example.org/pets/1.jpg?x=1")
    ('pets/1.jpg', 'pets/1.jpg')
    >>> path_of_address("pets/1.jpg")
    'pets/1.jpg'
    """
    _, mark, local = address.partition("local-files/?d=")
    if mark:
        return unquote(local)
    _, scheme, rest = address.partition("://")  # urllib's own parser fails on some
    path = unquote(re.split("[?#]", rest.partition("/")[2])[0]) if scheme else address
    upload = UPLOAD.fullmatch(path)
    return upload["name"] if upload else path


def uploaded_name(path: str) -> str:
    """What Label Studio calls a file after its upload, without the eight digits that it puts in front.

    >>> uploaded_name("pets/my cat (2).jpg")
    'my_cat_2.jpg'
    """
    return UPLOAD_DROPS.sub("", path.rpartition("/")[2].strip().replace(" ", "_"))


def _image_of(data: Json, task: Json) -> Record:
    """The image of a task, with the model's guess."""
    note = data.get(NOTE)
    if isinstance(note, dict) and isinstance(note.get("path"), str):
        return _noted(note)
    address = _address(data)
    if address is None:
        raise BadInput(f"no image among its data ({', '.join(data) or 'none'})")
    path = path_of_address(address)
    if not path:
        raise BadInput(f"{address!r} names no file")
    proba, version = _guess(task)
    return Record(path, None, proba=proba, model_version=version)


def _noted(note: Json) -> Record:
    shares, sha256 = note.get("proba"), str(note.get("sha256", ""))
    proba = {str(name): _share(share) for name, share in shares.items()} if isinstance(shares, dict) else None
    if sha256 and not SHA256.fullmatch(sha256):
        raise BadInput(f"the sha256 {sha256!r} is not 64 hexadecimal digits")
    return Record(
        str(note["path"]),
        None,
        split=str(note.get("split", "")),
        proba=proba,
        model_version=str(note.get("model_version", "")),
        sha256=sha256,
    )


def _address(data: Json) -> str | None:
    texts = {key: value for key, value in data.items() if isinstance(value, str) and value}
    named = [texts[key] for key in IMAGE_KEYS if key in texts]
    like = [value for value in texts.values() if IMAGE.search(value) or IMAGE.search(value.split("?")[0])]
    return next(iter(named or like), None)


def _guess(task: Json) -> tuple[dict[str, float] | None, str]:
    """The first prediction that is a choice with a score; others are ignored."""
    predictions = task.get("predictions")
    for item in predictions if isinstance(predictions, list) else ():
        if isinstance(item, dict) and item.get("score") is not None:
            try:
                result = item.get("result")
                own = [one.get("score") for one in result if isinstance(one, dict)] if isinstance(result, list) else []
                score = next((one for one in own if one is not None), item["score"])  # ours puts the round first
                return {_choice(result): _share(score)}, str(item.get("model_version") or "")
            except BadInput:
                continue
    return None, ""


def _answer(item: Json, bare: Record, classes: Sequence[str]) -> Record:
    note = item.get(NOTE)
    ours: Json = note if isinstance(note, dict) else {}
    skipped = bool(item.get("was_cancelled") or item.get("skipped"))
    choice = None if skipped else _choice(item.get("result"))
    kind: Kind = "skip" if skipped else _kind(choice, ours.get("kind"), classes)
    created = item.get("created_at")
    return replace(
        bare,
        label=choice if kind == "label" else None,
        kind=kind,
        annotator=str(ours["annotator"]) if "annotator" in ours else _person(item.get("completed_by")),
        at=from_iso(created) if isinstance(created, str) and created else None,
        model_version=str(ours.get("model_version", bare.model_version)),
    )


def _as_exported(record: Record, item: Json, task: Json) -> Record:
    """With the annotator of an answer that we exported and that is unchanged; Label Studio names its importer."""
    data = task.get("data", task)
    note = data.get(NOTE) if isinstance(data, dict) else None
    if "import_id" in item or item.get("lead_time") is not None:  # JSON_MIN has no import_id; people take time
        return as_exported(record, note, item.get("import_id"))
    return as_exported(record, note, ANY)


def _kind(choice: str | None, noted: object, classes: Sequence[str]) -> Kind:
    for kind in KINDS:
        if noted == kind:
            return kind
    return "other" if choice == OTHER and OTHER not in classes else "label"


def _choice(result: object) -> str:
    """The one choice of an annotation."""
    items = [item for item in result if isinstance(item, dict)] if isinstance(result, list) else []
    values = [item.get("value") for item in items if item.get("type") == "choices"]
    lists = [value.get("choices") for value in values if isinstance(value, dict)]
    chosen = [choice for choices in lists if isinstance(choices, list) for choice in choices]
    if len(chosen) != 1 or not isinstance(chosen[0], str) or not chosen[0]:
        raise BadInput(f"{len(chosen)} choices ({', '.join(map(str, chosen)) or 'none'}); an image has one class here")
    return chosen[0]


def _person(who: object) -> str:
    """The name of the annotator: Label Studio gives a number or a person's details."""
    if isinstance(who, dict):
        named = who.get("email") or who.get("username")
        return str(named) if named else _person(who.get("id"))
    if isinstance(who, int) and not isinstance(who, bool):
        return f"user {who}"
    return who if isinstance(who, str) else ""


def _from_min(task: Json) -> Json:
    """JSON_MIN's flat item as an annotation; the choice stands under the name of the control."""
    address = _address(task)
    rest = {key: value for key, value in task.items() if key not in MIN_KEYS and value != address}
    named = [rest[key] for key in CHOICE_KEYS if key in rest]
    chosen = named or [
        value for value in rest.values() if isinstance(value, str) or (isinstance(value, dict) and "choices" in value)
    ]
    if len(chosen) > 1 and not named:
        raise BadInput(f"which of {', '.join(rest)} is the class is unclear; export as JSON instead")
    result = [
        {"type": "choices", "value": value if isinstance(value, dict) else {"choices": [value]}} for value in chosen[:1]
    ]
    return {"result": result, "completed_by": task.get("annotator"), "created_at": task.get("created_at")} | {
        key: task[key] for key in ("lead_time",) if key in task
    }


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadInput(f"the score {value!r} is not a probability between 0 and 1")
    return float(value)


def _dict(value: object) -> Json:
    if not isinstance(value, dict):
        raise BadInput("not as Label Studio writes it: an object was expected")
    return value


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


# Writing tasks.


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
        ANSWERS: [_noted_answer(record) for record in group if record.answered],
    }
    place = {} if first.rank is None else {"round": first.round, "rank": first.rank}  # columns to sort and filter by
    answered = [record for record in group if record.answered]
    task: dict[str, object] = {
        "data": {
            "image": _address_of(first.within or first.path, origin),
            **place,
            NOTE: {key: value for key, value in note.items() if value},
        },
        "annotations": [_annotation(record, other, number) for number, record in enumerate(answered, start=1)],
    }
    if first.proba:
        name, score = max(first.proba.items(), key=lambda share: share[1])
        result = [RESULT | {"value": {"choices": [name]}}]
        task["predictions"] = [{"model_version": first.model_version, "score": score, "result": result}]
    return task


def _address_of(path: str, origin: Path) -> str:
    """Where Label Studio serves the image, its document root being the folder that the images' folder lies in."""
    place = origin.as_posix()
    folder = place.removesuffix(path).rstrip("/").rpartition("/")[2] if place.endswith(f"/{path}") else ""
    return LOCAL_FILES + quote(f"{folder}/{path}".lstrip("/"))


def _noted_answer(record: Record) -> dict[str, object]:
    said: dict[str, object] = {"annotator": record.annotator, "kind": record.kind, "label": record.label}
    return said | ({} if record.at is None else {"time": to_iso(record.at)})


def _annotation(record: Record, other: str, number: int) -> dict[str, object]:
    """An annotation; `completed_by` is left out, as Label Studio refuses people that it does not know.

    Of the rest Label Studio keeps only the result and the id, as `import_id`.
    """
    chosen = {"label": record.label, "other": other, "skip": None}[record.kind]
    said: dict[str, object] = {
        "id": number,
        "result": [] if chosen is None else [RESULT | {"value": {"choices": [chosen]}}],
        "was_cancelled": record.kind == "skip",
        "ground_truth": False,
        NOTE: {"annotator": record.annotator, "kind": record.kind, "model_version": record.model_version},
    }
    return said | ({} if record.at is None else {"created_at": to_iso(record.at)})
