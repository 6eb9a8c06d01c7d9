"""Which format a file or a folder is in: a path in, the name of a format out, by its names and its first words."""

from __future__ import annotations

from pathlib import Path

from ..errors import BadFile
from . import reading as classes_file
from .base import FORMATS
from .copies import files_below
from .reading import opened_zip, read_classes_file, read_json

BY_SUFFIX = {
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".xml": "cvat-xml",
    ".jsonl": "huggingface",
}


def guess_format(path: Path) -> str:
    """The format of a file or a folder, told without reading more of it than is needed."""
    if path.is_dir():
        return _of_folder(path)
    if not path.exists():
        raise BadFile(f"there is no file or folder {path}")
    suffix = path.suffix.lower()
    if suffix == ".json":
        return _of_json(path)
    if suffix == ".zip":
        return _of_zip(path)
    if path.name == "metadata.csv":
        return "huggingface"
    if suffix in BY_SUFFIX:
        return BY_SUFFIX[suffix]
    raise BadFile(f"the format of {path} cannot be told; {_advice()}")


def _of_folder(path: Path) -> str:
    about = read_classes_file(path / classes_file.NAME)
    if about is not None and about.format in FORMATS:
        return about.format
    if (path / "tasks.json").is_file():
        return "label-studio"
    if (path / "labels.json").is_file():
        return "fiftyone"
    if (path / "annotations.xml").is_file():
        return "cvat-xml"
    if (path / "synsets.txt").is_file() or (path / "no_label").is_dir() or (path / "imagenet.zip").is_file():
        return "cvat-imagenet"
    names = files_below(path)[0]
    if any(name.rsplit("/", 1)[-1] in ("metadata.csv", "metadata.jsonl") for name in names):
        return "huggingface"
    if any("/" in name for name in names):
        return "folders"
    raise BadFile(f"the format of the folder {path} cannot be told; {_advice()}")


def _of_json(path: Path) -> str:
    content = read_json(path)
    if isinstance(content, dict) and "labels" in content:
        return "fiftyone"
    first = content[0] if isinstance(content, list) and content else content
    if isinstance(first, dict | list):
        return "label-studio"
    raise BadFile(f"the format of {path} cannot be told; {_advice()}")


def _of_zip(path: Path) -> str:
    with opened_zip(path) as archive:
        return "cvat-xml" if "annotations.xml" in archive.namelist() else "cvat-imagenet"


def _advice() -> str:
    return f"say which it is: {', '.join(FORMATS)}"
