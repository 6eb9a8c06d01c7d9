"""Imports labels that were made elsewhere, as answers in the ledger, and lists everything that did not fit.

Importing twice changes nothing, and an interrupted import is finished by importing again: the key of an answer is made
of its content. Answers that differ are kept side by side; no conflict is resolved silently.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

from ..errors import BadInput
from ..files import usable
from ..formats import FORMATS, Record, guess_format
from ..formats.label_studio_api import Connection, read_annotator_map
from ..inputs import many
from ..types import Progress, no_progress
from .answers import LATEST, Answer, record
from .classes import MOST_CLASS, add_classes, clean_annotator, clean_name, list_classes
from .images import KnownImage, Matcher
from .ledger import HasLedger, Ledger, ledger_of

CHUNK = 500  # answers of one transaction
ANNOTATOR = "import"
UNDONE = "undone"

Said: TypeAlias = tuple[str, str]
"""The kind of an answer and its class; no class is an empty name."""

Standing: TypeAlias = defaultdict[int, dict[str, Said]]
"""Image → annotator → what stands."""


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A record whose image is not in the campaign, or ambiguous."""

    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class UnknownClass:
    """A label that no class of the campaign has."""

    name: str
    records: int
    reason: str


@dataclass(frozen=True, slots=True)
class Change:
    """An answer that its own annotator has given differently before; written with `overwrite` alone."""

    path: str
    annotator: str
    before: str  # a class, "other", "skip" or "undone"
    after: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An image that people see differently; the answers stand side by side until somebody settles it."""

    path: str
    answers: tuple[tuple[str, str], ...]  # annotator, and a class or "other"
    settled: str | None = None  # what was decided before the import


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import did, or would do where it was a dry run."""

    added: int = 0
    same: int = 0  # said already
    overwritten: int = 0
    unanswered: int = 0  # records of images that nobody has answered
    conflicts: tuple[Disagreement, ...] = ()
    changed: tuple[Change, ...] = ()  # not written, unless they are counted as overwritten
    unmatched: tuple[Unmatched, ...] = ()
    unknown_classes: tuple[UnknownClass, ...] = ()
    new_classes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Options:
    """How to import."""

    annotator: str = ANNOTATOR  # of records that name nobody
    rename: Mapping[str, str] = field(default_factory=dict)  # label → the class that it is called here
    create_classes: bool = False
    overwrite: bool = False
    by_name: bool = False  # trust names, even of images with other bytes
    dry_run: bool = False
    people: Mapping[str, str] = field(default_factory=dict)  # what a record calls its annotator → the name here


@dataclass(frozen=True, slots=True)
class Claim:
    """A record that fits: one answer of one person to one image of the campaign."""

    image: KnownImage
    annotator: str
    said: Said
    at: int | None
    model_version: str

    def key(self, class_id: int | None, after: int = 0) -> str:
        """The same answer has the same key; `after` is the event that it follows, where it changes an answer."""
        content = [self.image.key, self.annotator, self.said[0], class_id, self.at, after]
        return "import-" + hashlib.sha256(json.dumps(content).encode()).hexdigest()[:40]


@dataclass(slots=True)
class Tally:
    """What was found on the way."""

    problems: list[str] = field(default_factory=list)
    unmatched: list[Unmatched] = field(default_factory=list)
    unknown: Counter[tuple[str, str]] = field(default_factory=Counter)  # by name and reason
    changed: list[Change] = field(default_factory=list)
    unanswered: int = 0
    same: int = 0
    added: int = 0
    overwritten: int = 0


def import_file(
    campaign: HasLedger | Ledger, path: str | Path, *, format: str | None = None, annotator: str = ANNOTATOR,
    rename: Mapping[str, str] | None = None, create_classes: bool = False, overwrite: bool = False,
    by_name: bool = False, annotator_map: str | Mapping[str, str] = "", dry_run: bool = False,
    report: Progress = no_progress,
) -> Imported:  # fmt: skip
    """Import a file or a folder in one of the formats, by default the one that `guess_format` finds.

    Parameters
    ----------
    annotator: who has made the labels of which the file does not say so.
    rename: label in the file → name of the class here.
    create_classes: add the file's classes that the campaign does not have, in the file's order.
    overwrite: let a file change what the same annotator has said before.
    by_name: match images by their names even where their bytes are others.
    annotator_map: accounts of the file → annotators here, as {"1": "anna"}, "1=anna,2=ben" or a file with such pairs;
        by default those that `tailwise connect` found in Label Studio.
    dry_run: write nothing, only say what would be done.
    """
    ledger, place = ledger_of(campaign), usable(path)
    report(0.0, f"reading {place}")
    known = tuple(one.name for one in list_classes(ledger))
    loaded = FORMATS[guess_format(place) if format is None else format].read(place, known)
    options = Options(
        annotator, rename or {}, create_classes, overwrite, by_name, dry_run, _people(ledger, annotator_map)
    )  # fmt: skip
    done = import_records(ledger, loaded.records, options, classes=loaded.classes, report=report)
    return replace(done, problems=(*loaded.problems, *done.problems))


def import_records(
    ledger: Ledger, records: Iterable[Record], options: Options, *, classes: Sequence[str] = (),
    report: Progress = no_progress,
) -> Imported:  # fmt: skip
    """Import records; `classes` are those of the file they come from, in order, with or without images."""
    kept, tally = list(records), Tally()
    clean_annotator(options.annotator)
    made = _new_classes(ledger, kept, options, classes)
    if made and not options.dry_run:
        add_classes(ledger, made)
    claims = _latest(_claims(ledger, kept, options, made, tally), tally)
    standing = _read_standing(ledger)
    wanted = _plan(ledger, claims, standing, options, tally)
    if not options.dry_run:
        _write(ledger, wanted, report)
    return Imported(
        added=tally.added,
        same=tally.same,
        overwritten=tally.overwritten,
        unanswered=tally.unanswered,
        conflicts=tuple(_disagreements(ledger, claims, standing)),
        changed=tuple(tally.changed),
        unmatched=tuple(tally.unmatched),
        unknown_classes=tuple(UnknownClass(name, number, why) for (name, why), number in tally.unknown.items()),
        new_classes=tuple(made),
        problems=tuple(tally.problems),
        dry_run=options.dry_run,
    )


def _people(ledger: Ledger, given: str | Mapping[str, str]) -> dict[str, str]:
    """The annotators of accounts: those of the connected Label Studio, and over them those that are given."""
    connection = Connection.read(ledger.folder)
    pairs = given if isinstance(given, str) else ",".join(f"{account}={name}" for account, name in given.items())
    return {**(connection.people if connection else {}), **(read_annotator_map(pairs) if pairs else {})}


def _new_classes(ledger: Ledger, records: Iterable[Record], options: Options, classes: Sequence[str]) -> list[str]:
    """The classes to add, in the file's order; invalid names are reported later, with their records."""
    if not options.create_classes:
        return []
    known = {_folded(one.name) for one in list_classes(ledger, retired=True)}
    labels = [*classes, *(record.label for record in records if record.label is not None)]
    made = []
    for label in dict.fromkeys(labels):
        name = options.rename.get(label, label)
        if _folded(name) not in known and not _fault(name):
            known.add(_folded(name))
            made.append(clean_name("class", name, MOST_CLASS))
    return made


def _claims(
    ledger: Ledger, records: Iterable[Record], options: Options, made: Iterable[str], tally: Tally
) -> Iterator[Claim]:
    """The records that fit; of the others, why not."""
    matcher = Matcher(ledger)
    names = {_folded(name): name for name in [*(one.name for one in list_classes(ledger, retired=True)), *made]}
    unused = set(options.rename)
    for entry in records:
        unused.discard(entry.label or "")
        if not entry.answered:
            tally.unanswered += 1
            continue
        image = matcher.find(entry, by_name=options.by_name)
        if isinstance(image, str):
            tally.unmatched.append(Unmatched(entry.path, image))
            continue
        name = "" if entry.label is None else names.get(_folded(options.rename.get(entry.label, entry.label)))
        if name is None:
            tally.unknown[entry.label or "", _why_unknown(entry.label or "", options.rename)] += 1
            continue
        try:
            person = clean_annotator(options.people.get(entry.annotator, entry.annotator) or options.annotator)
        except BadInput as error:
            tally.problems.append(f"{entry.path}: {error}")
            continue
        yield Claim(image, person, (entry.kind, name), _moment(entry, tally), entry.model_version)
    tally.problems += [f"asked to rename {name!r}, but no record has that label" for name in sorted(unused)]


def _latest(claims: Iterable[Claim], tally: Tally) -> list[Claim]:
    """One claim per person and image: the last one by its time, else by its place in the file."""
    groups: defaultdict[tuple[int, str], list[Claim]] = defaultdict(list)
    for claim in claims:
        groups[claim.image.id, claim.annotator].append(claim)
    kept = []
    for group in groups.values():
        ordered = sorted(group, key=lambda claim: -1 if claim.at is None else claim.at)
        kept.append(ordered[-1])
        answers = list(dict.fromkeys(_shown(claim.said) for claim in ordered))
        tally.same += sum(claim.said == ordered[-1].said for claim in ordered[:-1])
        if len(answers) > 1:
            who, path = ordered[-1].annotator, ordered[-1].image.shown
            tally.problems.append(f"{path}: {who} answers more than once ({', '.join(answers)}); the last one counts")
    return kept


def _plan(ledger: Ledger, claims: Sequence[Claim], standing: Standing, options: Options, tally: Tally) -> list[Answer]:
    """The answers to write; `standing` becomes what it will be then."""
    classes = {one.name: one for one in list_classes(ledger, retired=True)}
    ids = {name: one.id for name, one in classes.items()}
    used = _used_keys(ledger, [claim.key(ids.get(claim.said[1])) for claim in claims])
    last = _last_events(ledger) if options.overwrite else {}
    models = {row["version"] for row in ledger.read("SELECT version FROM model")}
    wanted = []
    for claim in claims:
        before = standing[claim.image.id].get(claim.annotator)
        key = claim.key(ids.get(claim.said[1]))
        if before == claim.said:
            tally.same += 1
            continue
        if claim.said[1] in classes and classes[claim.said[1]].retired:
            tally.unknown[claim.said[1], "the class is retired; restore it, or rename the label"] += 1
            continue
        if before is not None or key in used:
            tally.changed.append(Change(claim.image.shown, claim.annotator, _shown(before), _shown(claim.said)))
            if not options.overwrite:
                continue
            key = claim.key(ids.get(claim.said[1]), last.get((claim.image.id, claim.annotator), 0))
            tally.overwritten += 1
        standing[claim.image.id][claim.annotator] = claim.said
        wanted.append(_answer(claim, key, ids, models))
    tally.added = len(wanted) - tally.overwritten
    return wanted


def _answer(claim: Claim, key: str, ids: Mapping[str, int], models: Container[str]) -> Answer:
    """The answer for the ledger; the version of a model that it does not know is left out."""
    kind, name = claim.said
    version = claim.model_version if claim.model_version in models else None
    class_id = ids.get(name) if kind == "label" else None
    return Answer(
        key, claim.image.id, claim.annotator, kind, class_id, claim.at, model_version=version, source="import"
    )  # fmt: skip


def _write(ledger: Ledger, wanted: Sequence[Answer], report: Progress) -> None:
    """Short transactions: a kill loses the one under way, which the next import writes."""
    for start in range(0, len(wanted), CHUNK):
        report(start / len(wanted), f"importing {many(len(wanted), 'answer')}")
        record(ledger, wanted[start : start + CHUNK])
    report(1.0, f"imported {many(len(wanted), 'answer')}")


def _disagreements(ledger: Ledger, claims: Iterable[Claim], standing: Standing) -> Iterator[Disagreement]:
    """The images of the import on which people differ, or differ from what was decided."""
    rows = ledger.read("SELECT s.image_id, c.name FROM settled AS s LEFT JOIN class AS c ON c.id = s.class_id")
    decided = {row["image_id"]: ("label" if row["name"] else "other", row["name"] or "") for row in rows}
    images = {c.image.id: c.image.shown for c in claims if standing[c.image.id].get(c.annotator) == c.said}
    for image, path in images.items():
        said = {who: answer for who, answer in sorted(standing[image].items()) if answer[0] != "skip"}
        opinions = set(said.values()) | ({decided[image]} if image in decided else set())
        if len(opinions) > 1:
            settled = _shown(decided[image]) if image in decided else None
            yield Disagreement(path, tuple((who, _shown(what)) for who, what in said.items()), settled)


def _read_standing(ledger: Ledger) -> Standing:
    standing: Standing = defaultdict(dict)
    rows = ledger.read(
        "SELECT a.image_id, a.annotator, a.kind, c.name FROM answer AS a LEFT JOIN class AS c ON c.id = a.class_id"
    )
    for row in rows:
        standing[row["image_id"]][row["annotator"]] = (row["kind"], row["name"] or "")
    return standing


def _used_keys(ledger: Ledger, keys: Sequence[str]) -> set[str]:
    """Those that are in the ledger; an answer that was undone since is among them."""
    used: set[str] = set()
    for start in range(0, len(keys), CHUNK):
        part = keys[start : start + CHUNK]
        marks = ", ".join("?" * len(part))
        used.update(row["key"] for row in ledger.read(f"SELECT key FROM event WHERE key IN ({marks})", part))
    return used


def _last_events(ledger: Ledger) -> dict[tuple[int, str], int]:
    rows = ledger.read("SELECT image_id, annotator, max(id) AS last FROM event GROUP BY image_id, annotator")
    return {(row["image_id"], row["annotator"]): row["last"] for row in rows}


def _moment(record: Record, tally: Tally) -> int | None:
    if record.at is not None and not 0 <= record.at < LATEST:
        tally.problems.append(f"{record.path}: its time lies before 1970 or far ahead, and is left out")
        return None
    return record.at


def _why_unknown(label: str, rename: Mapping[str, str]) -> str:
    name = rename.get(label, label)
    fault = _fault(name)
    if fault:
        return fault
    return "no class is called so" if name == label else f"it is renamed to {name!r}, and no class is called so"


def _fault(name: str) -> str:
    """Why a name cannot be that of a class; empty where it can."""
    try:
        clean_name("class", name, MOST_CLASS)
    except BadInput as error:
        return str(error)
    return ""


def _folded(name: str) -> str:
    """Names of classes differ by more than case, so labels are matched in any case."""
    return unicodedata.normalize("NFC", name).strip().casefold()


def _shown(said: Said | None) -> str:
    """An answer in a word: its class, or its kind; one that was taken back is undone."""
    return UNDONE if said is None else said[1] or said[0]
