"""Where results are kept: benchmarks/speed/results.csv, one measured number per line.

A run replaces the rows that it measured; a quick run, or one without peers, never replaces a row of a fuller run.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from .measured import Measured, Run

FILE = Path(__file__).parent / "results.csv"
COLUMNS = ("row", "instance", "seed", "quantity", "value", "limit", "met", "note", "mode", "date", "source")
FULLNESS = {"full": 3, "quick": 2, "full, no peers": 1, "quick, no peers": 0}
ENGINE = ("balance", "cli", "score", "solve", "strategies")  # the rooms whose speed is measured


@dataclass(frozen=True, slots=True)
class Kept:
    """A measurement with the run that it comes from."""

    measured: Measured
    mode: str
    date: str
    source: str  # which state of the library: two rows with different ones are not of one and the same solver


def dated(found: Iterable[Measured], run: Run, source: str) -> list[Kept]:
    """Today's measurements, of a state of the library."""
    return [Kept(one, run.mode, date.today().isoformat(), source) for one in found]


def source_state() -> str:
    """A short digest of the engine's source files, uncommitted changes included."""
    import tailwise

    home = Path(tailwise.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(path for room in ENGINE for path in (home / room).rglob("*.py")):
        digest.update(path.relative_to(home).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:10]


def merge(old: list[Kept], new: list[Kept]) -> tuple[list[Kept], list[str]]:
    """Old and new results together, and the names of the rows whose older, fuller results stay."""
    fuller = {kept.measured.row: FULLNESS[kept.mode] for kept in old}
    measured = {kept.measured.row: FULLNESS[kept.mode] for kept in new}
    stay = {row for row, fullness in measured.items() if fuller.get(row, -1) > fullness}
    kept = [one for one in old if one.measured.row in stay or one.measured.row not in measured]
    return kept + [one for one in new if one.measured.row not in stay], sorted(stay)


def load() -> list[Kept]:
    """What is stored; nothing where there is no file."""
    if not FILE.exists():
        return []
    with FILE.open(encoding="utf-8", newline="") as file:
        return [_read(line) for line in csv.DictReader(file)]


def store(results: list[Kept]) -> None:
    """Write the file anew."""
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(_line(kept) for kept in results)


def _line(kept: Kept) -> list[object]:
    one = kept.measured
    seed = "" if one.seed is None else one.seed
    value = f"{one.value:.9g}" if isinstance(one.value, float) else one.value
    met = {True: "yes", False: "no", None: ""}[one.met]
    return [
        one.row,
        one.instance,
        seed,
        one.quantity,
        value,
        one.limit,
        met,
        one.note,
        kept.mode,
        kept.date,
        kept.source,
    ]


def _read(line: dict[str, str]) -> Kept:
    measured = Measured(
        line["row"], line["instance"], int(line["seed"]) if line["seed"] else None, line["quantity"],
        _number(line["value"]), line["limit"], {"yes": True, "no": False, "": None}[line["met"]], line["note"],
    )  # fmt: skip
    return Kept(measured, line["mode"], line["date"], line["source"])


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
