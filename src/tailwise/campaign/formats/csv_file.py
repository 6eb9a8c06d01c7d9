"""One CSV with a row per record, and beside it the classes in order; what spreadsheets and scripts read."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ...files import write_whole
from . import classes_file
from .base import FORMATS, Loaded, Record, Source, all_classes
from .classes_file import ClassesFile, read_classes_file
from .single_file import check_file
from .table import PLAIN, csv_of, header_of, parse_csv, records_of, row_of
from .untrusted import read_text

OURS = ",".join(PLAIN).encode()


class Csv:
    """A CSV file; the images stay where they are."""

    name = "csv"
    about = "one CSV file: path, label, kind, split, annotator, time, model_version, probabilities, sha256"
    suffix = ".csv"
    copies = False

    def read(self, path: Path, classes: tuple[str, ...]) -> Loaded:  # noqa: ARG002 - the rows name the classes
        """Read a CSV with a column for paths and one for labels, under any of their usual names."""
        records = list(records_of(parse_csv(read_text(path), str(path))))
        about = read_classes_file(beside(path))
        problems = []
        if about is not None and about.format and about.records != len(records):
            problems.append(
                f"{path} has {len(records)} rows, but {about.records} were written; were rows added, or is it cut off?"
            )
        return Loaded(records, problems, all_classes(about.classes if about else (), records))

    def check(self, out: Path) -> None:
        """Refuse a file that is not ours, or that cannot be written."""
        check_file(out, self.suffix, OURS)
        check_file(beside(out), ".json", b'"tailwise"')

    def write(self, records: Iterable[Record], out: Path, source: Source, classes: tuple[str, ...]) -> Path:  # noqa: ARG002 - no image is copied
        """Write the table, and beside it the order of the classes, which no CSV can hold."""
        kept = list(records)
        names = all_classes(classes, kept)
        self.check(out)
        header = header_of(kept, names)
        write_whole(beside(out), ClassesFile(self.name, names, len(kept)).encoded())
        write_whole(out, csv_of(header, (row_of(record, header) for record in kept)))
        return out


def beside(path: Path) -> Path:
    """Where the classes of a table are: labels.csv has labels.classes.json."""
    return path.with_name(path.stem + classes_file.BESIDE)


FORMATS.register(Csv.name)(Csv())
