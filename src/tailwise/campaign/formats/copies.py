"""A folder of copies, whole or absent: written next to its place, moved there at the end. Images are only copied.

The folder says what it holds in classes.json and, row by row, in records.csv.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ...errors import BadFile
from ...files import open_regular
from ...pool.tree import names_below
from . import classes_file
from .base import Record, Source
from .classes_file import ClassesFile, read_classes_file
from .safe_names import Taken, stem_and_ending
from .staging import CONTENT, OLD, staging_folder
from .table import FILE, csv_of, files_of, header_of, parse_csv, records_of, row_of
from .untrusted import CUT, read_text

RECORDS = "records.csv"
FILE_ENDINGS = {".csv", ".json", ".jsonl", ".parquet", ".txt", ".xml", ".zip"}  # that no folder is meant by
CHUNK = 1 << 20


@contextmanager
def fresh_folder(out: Path) -> Iterator[Path]:
    """A folder to fill, which takes the place of `out` if nothing fails; an export of ours there is replaced."""
    final = out.resolve()
    try:
        check_free(final)
        with staging_folder(final) as staged:
            yield staged / CONTENT
            check_free(final)  # an export takes long enough for somebody to put something there
            if final.exists():
                final.rename(staged / OLD)
            (staged / CONTENT).rename(final)
    except OSError as error:
        raise BadFile(f"cannot write {out}: {error.strerror or error}") from error


def check_folder(out: Path) -> None:
    """Refuse a place that `fresh_folder` would refuse; nothing is made."""
    try:
        check_free(out.resolve())
    except OSError as error:
        raise BadFile(f"cannot write {out}: {error.strerror or error}") from error


def check_free(out: Path) -> None:
    """Refuse a place where writing would destroy what is not ours."""
    if not out.parent.is_dir():
        raise BadFile(f"cannot write {out}: there is no folder {out.parent}; make it first")
    if not out.exists():
        if out.suffix.lower() in FILE_ENDINGS:
            raise BadFile(
                f"cannot write {out.name}: this format is a folder with several files; name one, such as {out.stem}"
            )
        return
    if not out.is_dir():
        raise BadFile(f"cannot write the folder {out}: there is a file of that name; name another folder")
    if not any(out.iterdir()):
        return
    ours = _written(out)
    if ours is None:
        raise BadFile(f"{out} holds files that no export has written; name a new or empty folder")
    strange = sorted(set(names_below(out)) - ours)
    if strange:
        raise BadFile(
            f"{out} is an earlier export, but files such as {strange[0]} were put there since ({len(strange)} in all); "
            "import them or move them away, or name another folder"
        )


def _written(out: Path) -> set[str] | None:
    """Every file of an earlier export; None where the folder is not one."""
    about = read_classes_file(out / classes_file.NAME)
    if about is None or not about.format:
        return None
    fixed = {classes_file.NAME, RECORDS, *about.files}
    return fixed | {file for file, _ in listed_records(out)}


class Copies:
    """Copies of images in an export: each once per folder there, under a name of its own."""

    def __init__(self, root: Path, source: Source, *, apart: bool = False, always: bool = False) -> None:
        """`apart`: no two stems alike in a folder; `always`: a copy for every record, also of the same image."""
        self._root, self._source, self._apart, self._always = root, source, apart, always
        self._taken: defaultdict[str, Taken] = defaultdict(Taken)
        self._made: dict[tuple[str, Path], str] = {}

    def put(self, record: Record, folder: str) -> str:
        """Copy a record's image into a folder of the export; where it is, below the root, with /."""
        origin = self._source(record)
        known = self._made.get((folder, origin))
        if known is not None and not self._always:
            return known
        stem, ending = stem_and_ending(record.path)
        name = f"{folder}/{self._taken[folder].give(stem, ending, apart=self._apart)}"
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            copy_image(origin, file, record)
        self._made[folder, origin] = name
        return name


def copy_image(origin: Path, target: IO[bytes], record: Record) -> None:
    """Copy an image's bytes, and refuse others than those that the label speaks of."""
    digest = hashlib.sha256()
    try:
        opened = open_regular(origin)
    except FileNotFoundError as error:
        raise BadFile(f"the image {origin} is gone; put it back, or export to a table such as CSV") from error
    except OSError as error:
        raise BadFile(
            f"cannot read the image {origin}: {error.strerror or error}; put it back, or export to a table such as CSV"
        ) from error
    with opened as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            target.write(chunk)
    if record.sha256 and digest.hexdigest() != record.sha256:
        raise BadFile(f"the image {origin} has changed since it was read; index the images again, then export")


def write_about(folder: Path, about: ClassesFile, records: Sequence[Record], files: Sequence[str]) -> None:
    """classes.json, and records.csv with where each record's copy is."""
    header = header_of(records, about.classes)
    rows = ([*row_of(record, header), file] for record, file in zip(records, files, strict=True))
    # The path of the copy stands before the hash, which stays last: a row that was cut off shows there.
    swapped = ([*cells[:-2], cells[-1], cells[-2]] for cells in rows)
    (folder / RECORDS).write_bytes(csv_of([*header[:-1], FILE, header[-1]], swapped))
    (folder / classes_file.NAME).write_bytes(about.encoded())


def listed_records(folder: Path) -> list[tuple[str, Record]]:
    """What records.csv says, in order: where the copy is, and the record; nothing where the folder is not ours."""
    path = folder / RECORDS
    about = read_classes_file(folder / classes_file.NAME)
    if about is None or not about.format or not path.is_file():
        return []  # a file of that name from elsewhere is none of ours
    table = parse_csv(read_text(path), str(path))
    if about.records != len(table.rows):
        raise BadFile(f"{path} has {len(table.rows)} rows, but {about.records} were written; {CUT}")
    return list(zip(files_of(table), records_of(table), strict=True))
