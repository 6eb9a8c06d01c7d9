"""Files from elsewhere, read without trust: bytes in, text, JSON or XML out, or an error that names the line.

Nothing is expanded, followed or fetched; a file that was cut off is told from one that is empty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat
from zipfile import BadZipFile, ZipFile
from zlib import error as ZlibError

from ...errors import BadFile
from ...files import open_regular, read_regular

MOST_DEPTH = 64  # of XML; the files that we read have five levels
MOST_MEMBER = 1 << 28  # bytes of one file in a .zip, which could otherwise unpack to anything
CUT = "was the file cut off?"
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


def json_of(text: str, name: str) -> object:
    """What a JSON text holds; NaN, half characters and bottomless nesting are refused."""
    try:
        value: object = json.loads(text, parse_constant=_refuse_constant)
        if HALF_CHARACTER.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise BadFile(f"{name} is no JSON: {error.msg} in line {error.lineno}; {CUT}") from error
    except UnicodeEncodeError as error:
        raise BadFile(f"{name} holds half a character (a lone surrogate), which no file can carry") from error
    except RecursionError as error:
        raise BadFile(f"{name} is nested too deeply to be a file of labels") from error
    except ValueError as error:
        raise BadFile(f"{name} is no JSON: {error}") from error
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
        raise BadFile(f"{name} is no XML: {error}; {CUT}") from error
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


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no number")
