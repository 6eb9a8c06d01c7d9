"""classes.json: which classes there are, in which order, in which folders; the mark of our own exports."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

from ...errors import BadFile
from .untrusted import json_of, read_text

NAME = "classes.json"
BESIDE = ".classes.json"  # the ending of the same file beside a single table
VERSION = 1


@dataclass(frozen=True, slots=True)
class ClassesFile:
    """What an export says about itself."""

    format: str
    classes: tuple[str, ...]
    records: int = 0
    folders: Mapping[str, str] = field(default_factory=dict)  # class → the folder with its images
    files: tuple[str, ...] = ()  # what was written besides images, classes.json and records.csv

    def encoded(self) -> bytes:
        """The file."""
        listed = [{"name": name} | _folder(self.folders, name) for name in self.classes]
        content = {
            "tailwise": VERSION,
            "format": self.format,
            "classes": listed,
            "records": self.records,
            "files": list(self.files),
        }
        return json.dumps(content, indent=1, ensure_ascii=False).encode() + b"\n"


def read_classes_file(path: Path) -> ClassesFile | None:
    """The file, if it is there and ours; a plain list of names from elsewhere gives their order alone."""
    return from_text(read_text(path), str(path)) if path.is_file() else None


def from_text(text: str, name: str) -> ClassesFile | None:
    """What the text of such a file says; None where it is another kind of JSON."""
    content = json_of(text, name)
    if _all_text(content):
        return ClassesFile("", tuple(content))
    if not isinstance(content, dict) or "tailwise" not in content:
        return None
    if content["tailwise"] != VERSION:
        raise BadFile(f"{name} is of version {content['tailwise']!r}, this Tailwise reads {VERSION}; update Tailwise")
    return _from_content(content, name)


def _from_content(content: Mapping[str, object], name: str) -> ClassesFile:
    listed, files, count = content.get("classes"), content.get("files"), content.get("records")
    kind = content.get("format")
    good = isinstance(listed, list) and all(isinstance(entry, dict) and _named(entry) for entry in listed)
    if not good or not isinstance(listed, list) or not _all_text(files) or not isinstance(count, int):
        raise BadFile(f"{name} is not as Tailwise writes it; was it changed? Export again, or remove it")
    names = tuple(str(entry["name"]) for entry in listed)
    folders = {str(entry["name"]): str(entry["folder"]) for entry in listed if "folder" in entry}
    return ClassesFile(str(kind), names, count, folders, tuple(files))


def _folder(folders: Mapping[str, str], name: str) -> dict[str, str]:
    return {"folder": folders[name]} if name in folders else {}


def _named(entry: Mapping[str, object]) -> bool:
    return isinstance(entry.get("name"), str) and isinstance(entry.get("folder", ""), str)


def _all_text(content: object) -> TypeGuard[list[str]]:
    return isinstance(content, list) and all(isinstance(item, str) for item in content)
