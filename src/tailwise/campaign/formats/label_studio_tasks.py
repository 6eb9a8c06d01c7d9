"""One task of a Label Studio export as records: JSON with annotations, or JSON_MIN with one annotation spread out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from urllib.parse import unquote

from ...errors import BadInput
from .base import KINDS, Kind, Record, from_iso
from .table import SHA256

NOTE = "tailwise"
OTHER = "__other__"
LOCAL_FILES = "/data/local-files/?d="
UPLOAD = re.compile(r"/?(?:data/)?upload/(?:\d+/)?(?:[0-9a-f]{8}-)?(?P<name>[^/]+)")
IMAGE = re.compile(r"\.(jpe?g|png|gif|bmp|tiff?|webp)$", re.IGNORECASE)
IMAGE_KEYS = ("image", "img", "url", "file", "path")
CHOICE_KEYS = ("choice", "label", "class", "choices", "category")
MIN_KEYS = {"id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement", NOTE}

Json = Mapping[str, object]


def task_records(task: Json, number: int, classes: Sequence[str]) -> tuple[list[Record], list[str]]:
    """The answers in a task, and what could not be read; a task without any is an image that nobody has answered."""
    name = f"task {task.get('id', number)}"
    records, problems = [], []
    try:
        if isinstance(task.get("data"), dict):
            bare = _image_of(_dict(task["data"]), task)
            said = [_dict(item) for item in _list(task.get("annotations", task.get("completions")))]
        else:
            bare, said = _image_of(task, task), [_from_min(task)]
    except BadInput as error:
        return [], [f"{name}: {error}"]
    for item in said:
        try:
            records.append(_answer(item, bare, classes))
        except BadInput as error:
            problems.append(f"{name} ({bare.path}): {error}")
    return records if said else [bare], problems


def path_of(address: str) -> str:
    """The path in an address as Label Studio keeps them; nothing is fetched.

    >>> path_of("/data/local-files/?d=pets/a%20b.jpg"), path_of("/data/upload/3/1f0c2a9b-cat.jpg")
    ('pets/a b.jpg', 'cat.jpg')
    >>> path_of("s3://bucket/pets/1.jpg"), path_of("https://example.org/pets/1.jpg?x=1"), path_of("pets/1.jpg")
    ('pets/1.jpg', 'pets/1.jpg', 'pets/1.jpg')
    """
    _, mark, local = address.partition("local-files/?d=")
    if mark:
        return unquote(local)
    _, scheme, rest = address.partition("://")  # urllib's own parser fails on some
    path = unquote(re.split("[?#]", rest.partition("/")[2])[0]) if scheme else address
    upload = UPLOAD.fullmatch(path)
    return upload["name"] if upload else path


def _image_of(data: Json, task: Json) -> Record:
    """The image of a task, with the model's guess."""
    note = data.get(NOTE)
    if isinstance(note, dict) and isinstance(note.get("path"), str):
        return _noted(note)
    address = _address(data)
    if address is None:
        raise BadInput(f"no image among its data ({', '.join(data) or 'none'})")
    path = path_of(address)
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
    """The first prediction that is a choice with a score; foreign ones that are not are no concern of ours."""
    for item in _list(task.get("predictions")):
        if isinstance(item, dict) and item.get("score") is not None:
            try:
                return {_choice(_list(item.get("result"))): _share(item["score"])}, str(item.get("model_version") or "")
            except BadInput:
                continue
    return None, ""


def _answer(item: Json, bare: Record, classes: Sequence[str]) -> Record:
    note = item.get(NOTE)
    ours: Json = note if isinstance(note, dict) else {}
    skipped = bool(item.get("was_cancelled") or item.get("skipped"))
    choice = None if skipped else _choice(_list(item.get("result")))
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


def _kind(choice: str | None, noted: object, classes: Sequence[str]) -> Kind:
    for kind in KINDS:
        if noted == kind:
            return kind
    return "other" if choice == OTHER and OTHER not in classes else "label"


def _choice(result: Sequence[object]) -> str:
    """The one choice of an annotation."""
    values = [item.get("value") for item in result if isinstance(item, dict) and item.get("type") == "choices"]
    chosen = [choice for value in values if isinstance(value, dict) for choice in _list(value.get("choices"))]
    if len(chosen) != 1 or not isinstance(chosen[0], str) or not chosen[0]:
        raise BadInput(f"{len(chosen)} choices ({', '.join(map(str, chosen)) or 'none'}); an image has one class here")
    return chosen[0]


def _person(who: object) -> str:
    """A name for whoever has answered: Label Studio gives a number or a person's details."""
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
    chosen = named or [value for value in rest.values() if _is_choice(value)]
    if len(chosen) > 1 and not named:
        raise BadInput(f"which of {', '.join(rest)} is the class cannot be told; export as JSON instead")
    result = [{"type": "choices", "value": _spread(value)} for value in chosen[:1]]
    return {"result": result, "completed_by": task.get("annotator"), "created_at": task.get("created_at")}


def _is_choice(value: object) -> bool:
    return isinstance(value, str) or (isinstance(value, dict) and "choices" in value)


def _spread(value: object) -> Json:
    return value if isinstance(value, dict) else {"choices": [value]}


def _share(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise BadInput(f"the score {value!r} is no probability between 0 and 1")
    return float(value)


def _dict(value: object) -> Json:
    if not isinstance(value, dict):
        raise BadInput("not as Label Studio writes it: an object was expected")
    return value


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else []
