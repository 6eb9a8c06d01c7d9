"""A folder of small pictures, and records that try every corner of a format."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from PIL import Image

from tailwise.formats import Record

CLASSES = (
    "zebra",  # not in the order of the alphabet
    "cat",
    "a/b",  # these five would meet in one folder, or in none
    "a_b",
    "..",
    "CON",
    "Cat.",
    "_other",
    "été ✓",
    "=1+1",
    "no images of this one",
)
PEOPLE = ("ann", "Zoë")
MOMENT = 1_700_000_000_123_456


@dataclass(frozen=True)
class Pictures:
    """Images on the disk, each of its own colour, and where a record's image lies."""

    root: Path

    def source(self, record: Record) -> Path:
        return self.root / record.path

    def add(self, path: str, shade: int) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), (shade % 256, shade // 256, 7)).save(place, "PNG")
        return place

    def hashed(self, record: Record) -> Record:
        return replace(record, sha256=hashlib.sha256(self.source(record).read_bytes()).hexdigest())

    def snapshot(self) -> dict[str, tuple[int, bytes]]:
        return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in sorted(self.root.rglob("*")) if p.is_file()}


@pytest.fixture
def pictures(tmp_path: Path) -> Pictures:
    return Pictures(tmp_path / "my pictures")


@pytest.fixture
def records(pictures: Pictures) -> list[Record]:
    """Answers of every kind: paths that collide, odd names, two people at odds, probabilities, nobody's image."""
    made = [
        Record("a/1.png", "zebra", annotator="ann", at=MOMENT),
        Record("b/1.png", "zebra", annotator="ann", at=MOMENT + 1, split="test"),
        Record("b/1.png", "cat", annotator="Zoë", at=MOMENT + 2, split="test"),
        Record("B/1.PNG", "zebra", annotator="Zoë", at=0),
        Record("deep/er/x y,'\"é.png", "a/b", annotator="ann", at=-1),
        Record("=cmd.png", "a_b", annotator="=ann", at=MOMENT),
        Record("2.png", "..", annotator="", at=None),
        Record("3.png", "CON", model_version="m1", proba={"cat": 0.25, "CON": 0.1 + 0.2}),
        Record("4.png", "Cat.", proba={"zebra": 1.0}),
        Record("5.png", "_other", annotator="ann", at=MOMENT),
        Record("6.png", "été ✓", annotator="ann", at=MOMENT, split="train"),
        Record("7.png", "=1+1", annotator="ann", at=MOMENT),
        Record("8.png", None, kind="other", annotator="ann", at=MOMENT),
        Record("9.png", None, kind="skip", annotator="Zoë", at=MOMENT),
        Record("10.png", None, model_version="m2", proba={"zebra": 1 / 3, "cat": 2 / 3}),
        Record("11.png", None),
    ]
    for number, record in enumerate(made):
        pictures.add(record.path, number + 1)
    return [pictures.hashed(record) for record in made]


def in_order(records: Iterable[Record]) -> list[tuple[object, ...]]:
    """Records as rows that can be sorted: formats group images, so the order among them may change."""
    return sorted(
        (r.path, r.kind, r.label or "", r.annotator, r.split, -1 if r.at is None else r.at, r.at is None,
         r.model_version, tuple(sorted((r.proba or {}).items())), r.sha256)
        for r in records
    )  # fmt: skip
