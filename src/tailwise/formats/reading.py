"""Reads files from other programs without trusting them: text, JSON, XML, .zip, and our own classes.json.

Nothing is expanded, followed or downloaded; errors name the line. classes.json marks our exports and holds
the classes in order.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

from ..errors import BadFile
from ..files import open_regular, read_regular
from ..pools.folder import DROPPINGS

MOST_DEPTH = 64  # of XML; the files that we read have five levels
MOST_MEMBER = 1 << 28  # bytes of one file in a .zip, which could otherwise unpack to anything
CUT = "was the file cut off?"
CLASSES_FILE = "classes.json"
CLASSES_SUFFIX = ".classes.json"  # ends the name of the same file next to a single table
VERSION = 1  # of classes.json
HALF_CHARACTER = re.compile(r"\\u[dD][89a-fA-F]")


def read_bytes(path: Path) -> bytes:
    """The bytes of a file."""
    try:
        return read_regular(path)
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror or error}") from error


def text_of(content: bytes, name: str) -> str:
    """UTF-8 as text, without the mark that some programs put in front."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadFile(f"line {line} of {name} is not UTF-8; save the file as UTF-8") from error


def read_text(path: Path) -> str:
    """The text of a file in UTF-8."""
    return text_of(read_bytes(path), str(path))


def files_below(root: Path) -> tuple[list[str], list[str]]:
    """Every file below a folder, ascending, and what was left out; links are not followed."""
    files, problems = [], []
    errors: list[OSError] = []
    for folder, below, names in os.walk(root, onerror=errors.append):
        hidden = {name for name in (*below, *names) if name.startswith(".") or name.lower() in DROPPINGS}
        below[:] = sorted(set(below) - hidden)
        inside = Path(folder).relative_to(root)
        links = {name for name in below if Path(folder, name).is_symlink()}
        for name in sorted((set(names) | links) - hidden):
            path = Path(folder, name)
            if path.is_symlink() or not path.is_file():
                problems.append(f"{path}: not a regular file, or a link; links are not followed")
            else:
                files.append((inside / name).as_posix())
    for error in errors:
        raise BadFile(f"cannot list {error.filename}: {error.strerror}") from error
    return sorted(files), problems


def json_of(text: str, name: str) -> object:
    """What a JSON text holds; NaN, half characters and bottomless nesting are refused."""

    def reject(constant: str) -> NoReturn:
        raise ValueError(f"{constant} is not a number")

    try:
        value: object = json.loads(text, parse_constant=reject)
        if HALF_CHARACTER.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise BadFile(f"{name} is not valid JSON: {error.msg} in line {error.lineno}; {CUT}") from error
    except UnicodeEncodeError as error:
        raise BadFile(f"{name} holds half a character (a lone surrogate), which no file can carry") from error
    except RecursionError as error:
        raise BadFile(f"{name} is nested too deeply to be a file of labels") from error
    except ValueError as error:
        raise BadFile(f"{name} is not valid JSON: {error}") from error
    return value


def read_json(path: Path) -> object:
    """What a JSON file holds."""
    return json_of(read_text(path), str(path))


def json_lines(text: str, name: str) -> Iterator[tuple[int, object]]:
    """Each line's number and what it holds; empty lines are passed over."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, json_of(line, f"line {number} of {name}")


def xml_of(content: bytes, name: str) -> Element:
    """The root of an XML text; one with a DOCTYPE, which could define entities, is refused."""
    parser = expat.ParserCreate()
    builder = TreeBuilder()
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MOST_DEPTH:
            raise BadFile(f"{name} is nested too deeply to be a file of labels")
        builder.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(tag)

    def refuse(*_: object) -> NoReturn:
        raise BadFile(f"{name} has a DOCTYPE, which is not read: it could make a small file fill the memory")

    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = builder.data, refuse
    try:
        parser.Parse(content, True)
    except BadFile:
        raise
    except (expat.ExpatError, ValueError, LookupError) as error:
        raise BadFile(f"{name} is not valid XML: {error}; {CUT}") from error
    return builder.close()


@contextmanager
def opened_zip(path: Path) -> Iterator[ZipFile]:
    """An archive to read from; whatever is wrong in it becomes one kind of error."""
    try:
        with open_regular(path) as file, ZipFile(file) as archive:
            yield archive
    except OSError as error:
        raise BadFile(f"cannot read {path}: {error.strerror or error}") from error
    except (BadZipFile, EOFError, NotImplementedError, RuntimeError, ZlibError) as error:
        raise BadFile(f"{path} cannot be read as a .zip: {error}; {CUT}") from error


def member(archive: ZipFile, name: str) -> bytes:
    """One file of an archive, which may not claim or turn out to be huge."""
    with archive.open(name) as file:
        content = file.read(MOST_MEMBER + 1)
    if len(content) > MOST_MEMBER:
        raise BadFile(f"{name} in {archive.filename} unpacks to more than the {MOST_MEMBER:,} bytes allowed")
    return content


@dataclass(frozen=True, slots=True)
class ClassesFile:
    """What an export says about itself."""

    format: str
    classes: tuple[str, ...]
    records: int = 0
    folders: Mapping[str, str] = field(default_factory=dict)  # class → the folder with its images
    files: tuple[str, ...] = ()  # files other than images, classes.json and records.csv

    def encoded(self) -> bytes:
        """The file."""
        listed = [
            {"name": name} | ({"folder": self.folders[name]} if name in self.folders else {}) for name in self.classes
        ]
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
    return parse_classes_file(read_text(path), str(path)) if path.is_file() else None


def parse_classes_file(text: str, name: str) -> ClassesFile | None:
    """What the text of such a file says; None where it is another kind of JSON."""
    content = json_of(text, name)
    if isinstance(content, list) and all(isinstance(item, str) for item in content):
        return ClassesFile("", tuple(content))
    if not isinstance(content, dict) or "tailwise" not in content:
        return None
    if content["tailwise"] != VERSION:
        raise BadFile(f"{name} is of version {content['tailwise']!r}, this Tailwise reads {VERSION}; update Tailwise")
    listed, files, count = content.get("classes"), content.get("files"), content.get("records")
    if not (
        isinstance(listed, list) and isinstance(files, list) and isinstance(count, int)
        and all(isinstance(file, str) for file in files)
        and all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in listed)
        and all(isinstance(entry.get("folder", ""), str) for entry in listed)
    ):  # fmt: skip
        raise BadFile(f"{name} is not as Tailwise writes it; was it changed? Export again, or remove it")
    folders = {entry["name"]: entry["folder"] for entry in listed if "folder" in entry}
    names = tuple(entry["name"] for entry in listed)
    return ClassesFile(str(content.get("format")), names, count, folders, tuple(files))
