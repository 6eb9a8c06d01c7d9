"""Finds what is wrong with a campaign, and applies fixes by name.

Examining changes nothing. No fix touches an answer or an image.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import BadFile, BadInput, LedgerFault, OlderLedger, TailwiseError, UnknownName
from ..files import usable
from ..inputs import many, shown
from ..learners.features import ShardFault, remove_shard, shard_faults
from .database import BACKUPS, LEDGER_FILE, remedy_for
from .features import FOLDER as FEATURES
from .features import embed
from .images import (
    FileStat,
    ImageRow,
    file_stat,
    folders_in_use,
    image_row,
    is_unchanged,
    list_folders,
    quarantine,
    real_path,
)
from .indexing import CHANGED, MISSING, REPLACED, accept_changed, forget, index, unreferenced
from .leases import MOST_SECONDS, SECOND
from .ledger import CURRENT_SCHEMA, DAMAGED, HasLedger, Ledger, ledger_of, now
from .locks import LOCK_FILE, holder_of
from .models import FOLDER as MODELS
from .models import fault_of, rebuild
from .rounds import list_models
from .state import read_settings

SEVERITIES = ("error", "warning", "note")
SHOWN = 3  # names in a sentence
ALL = "all"
LEDGER, SCHEMA = "ledger", "schema"  # findings that are fixed while the ledger is closed
DECISIONS = {"changed", "folders", LEDGER}  # fixes that are applied only by name


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes
    ----------
    name: of the kind of finding, as `fix` takes it.
    what: in words, with numbers.
    severity: "error": labels are at risk; "warning": something is lost or waits; "note": good to know.
    fix: what the fix does; None where only people can.
    count: how many things are concerned.
    """

    name: str
    what: str
    severity: str
    fix: str | None = None
    count: int = 1


def examine(campaign: HasLedger | Ledger) -> list[Finding]:
    """All that is found, the gravest first; nothing is changed."""
    ledger = ledger_of(campaign)
    found = [finding for check in CHECKS for finding in check(ledger)]
    if newer := _check_newer(ledger):
        found = newer + [replace(finding, fix=None) for finding in found]  # nothing may be written to it
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def fix(campaign: HasLedger | Ledger, names: Sequence[str]) -> list[Finding]:
    """Apply the fixes of findings by their names; gives what is found afterwards.

    "all" is all but those that decide something for people: whether labels hold for changed bytes, whether a folder
    will come back.
    """
    ledger = ledger_of(campaign)
    if LEDGER in names:
        raise BadInput(
            f"a damaged ledger cannot be repaired while it is open; close the campaign and run "
            f"`tailwise doctor {ledger.folder} --fix {LEDGER}`"
        )
    if ledger.read_only:
        raise BadInput(f"the campaign {ledger.folder} was opened read-only; open it for writing to fix it")
    there = {finding.name for finding in fixable(ledger, names)}
    for name, fix in FIXES.items():
        if name in there:
            fix(ledger)
    return examine(ledger)


def fixable(campaign: HasLedger | Ledger, names: Sequence[str]) -> list[Finding]:
    """What is found of these names, or of "all", and has a fix; nothing is changed."""
    given: Sequence[object] = names
    if unknown := [one for one in given if not isinstance(one, str) or (one not in FIXES and one != ALL)]:
        raise UnknownName(f"{shown(unknown[0])} is an unknown fix; there are {', '.join(FIXES)} and {ALL}")
    asked = {*names, *(set(FIXES) - DECISIONS if ALL in names else ())}
    return [finding for finding in examine(campaign) if finding.fix is not None and finding.name in asked]


def diagnose(folder: str | Path) -> list[Finding]:
    """As `examine`, for a folder whose ledger may be too damaged to be opened."""
    home = usable(folder).resolve()
    try:
        with Ledger.open(home, read_only=True) as ledger:
            return examine(ledger)
    except OlderLedger as error:
        return [Finding(SCHEMA, str(error), "warning", "bring it up to date, on a copy, and keep the old file")]
    except BadFile as error:
        return [_unusable(home, error)]


def _unusable(home: Path, error: BadFile) -> Finding:
    """Damaged or gone; a file that the system does not let us read is neither."""
    code = getattr(error.__cause__, "sqlite_errorcode", None)
    if isinstance(error, LedgerFault) and (code is None or code & 0xFF not in DAMAGED):
        return Finding(LEDGER, str(error), "error")
    what = f"{home / LEDGER_FILE} is damaged: {error.__cause__}" if code is not None else str(error)
    remedy = remedy_for(home)
    return Finding(LEDGER, what, "error", None if remedy is None else str(remedy))


def _check_ledger(ledger: Ledger) -> list[Finding]:
    faults = [str(row[0]) for row in ledger.read("PRAGMA integrity_check(10)") if row[0] != "ok"]
    if not faults:
        return []
    remedy = remedy_for(ledger.folder)
    advice = "" if remedy else f"; no backup is sound: keep a copy of {LEDGER_FILE} and ask an expert"
    text = f"the ledger is damaged: {faults[0]}{advice}"
    return [Finding(LEDGER, text, "error", None if remedy is None else str(remedy), len(faults))]


def _check_newer(ledger: Ledger) -> list[Finding]:
    schema = int(ledger.read("PRAGMA user_version")[0][0])
    if schema <= CURRENT_SCHEMA:
        return []
    text = (
        f"the campaign has schema {schema}, written by a newer Tailwise, and this one knows {CURRENT_SCHEMA}: "
        "it can be read, not written, and nothing can be fixed; upgrade Tailwise"
    )
    return [Finding(SCHEMA, text, "warning")]


def _check_references(ledger: Ledger) -> list[Finding]:
    rows = ledger.read("PRAGMA foreign_key_check")
    if not rows:
        return []
    tables = sorted({str(row[0]) for row in rows})
    text = f"{len(rows)} rows of {_some(tables)} point at rows that are not there; keep a copy of the ledger"
    return [Finding("references", text, "error", None, len(rows))]


def _check_settings(ledger: Ledger) -> list[Finding]:
    try:
        read_settings(ledger)
    except TailwiseError as error:
        return [Finding("settings", str(error), "error")]
    return []


def _check_files(ledger: Ledger) -> list[Finding]:
    """Files that went or changed, whether or not the ledger knows of it yet."""
    known = [image_row(row) for row in ledger.read("SELECT * FROM image WHERE trouble IS NULL ORDER BY id")]
    if away := _folders_away(ledger):
        return [_folders_finding(ledger, away, known)]
    moved = [row.path for row in known if not is_unchanged(ledger, row)]
    if not moved:
        return []
    text = f"{many(len(moved), 'file was', 'files were')} moved, changed or deleted since indexing: {_some(moved)}"
    return [Finding("index", text, "warning", "index the folders again, which follows files to new names", len(moved))]


def _folders_away(ledger: Ledger) -> dict[int, Path]:
    """Folders that are not there, and of which images are expected; not those whose images have moved elsewhere."""
    used = set(folders_in_use(ledger))
    return {number: root for number, root in list_folders(ledger).items() if root in used and not root.is_dir()}


def _folders_finding(ledger: Ledger, away: dict[int, Path], known: Sequence[ImageRow]) -> Finding:
    """Its disk may not be mounted: the fix is offered only if another folder is there, and applied only by name."""
    lost = many(sum(row.folder_id in away for row in known), "image")
    text = (
        f"the folder {next(iter(away.values()))} is not there, and {lost} with it; is its disk mounted? "
        f"If it moved: tailwise init {ledger.folder} --images NEW"
    )
    alone = not any(root.is_dir() for root in list_folders(ledger).values())
    fix = None if alone else f"take it for gone for good: {lost} set aside, and what was said of them is kept"
    return Finding("folders", text, "error", fix, len(away))


def _check_troubles(ledger: Ledger) -> list[Finding]:
    rows = [image_row(row) for row in ledger.read("SELECT * FROM image WHERE trouble IS NOT NULL ORDER BY id")]
    folders = list_folders(ledger)
    gone = set(_forgettable(ledger, rows))
    kept = [row for row in rows if row.id not in gone]
    missing = [row for row in kept if row.trouble in (MISSING, REPLACED)]
    changed = [row for row in kept if row.trouble == CHANGED]
    unreadable = [row for row in kept if row.trouble not in (MISSING, REPLACED, CHANGED)]
    back, other = (any(_is_worth_a_look(folders[row.folder_id], row) for row in part) for part in (missing, unreadable))
    advice = "" if other else "; put a good file there or remove it, then run tailwise init"
    return [
        *_trouble("missing", missing, "whose file is", "whose files are", " missing", "look again" if back else None),
        *_trouble(
            "changed", changed, "whose bytes", "whose bytes", " changed after people answered",
            "take the bytes that are there now for those that people spoke of",
        ),
        *_trouble("unreadable", unreadable, "that", "that", " cannot be read", "look again" if other else None, advice),
        *_trouble(
            "gone", [row for row in rows if row.id in gone], "whose file is", "whose files are",
            " gone and unlabelled", "forget them",
        ),
    ]  # fmt: skip


def _trouble(
    name: str, rows: Sequence[ImageRow], one: str, more: str, what: str, fix: str | None, advice: str = ""
) -> list[Finding]:
    """One finding for all images with a trouble of a kind, if there are any."""
    if not rows:
        return []
    shown = [f"{row.path} ({row.trouble})" if name == "unreadable" else row.path for row in rows]
    text = f"{many(len(rows), f'image {one}', f'images {more}')}{what}: {_some(shown)}{advice}"
    return [Finding(name, text, "note" if name == "gone" else "warning", fix, len(rows))]


def _is_worth_a_look(folder: Path, row: ImageRow) -> bool:
    """Whether a file is back, or is not the one that could not be read; the same file is not read again."""
    try:
        found = file_stat(real_path(folder, row.path))
    except BadFile:  # a link that leads out of the folder
        return False
    if found is None or row.trouble in (MISSING, REPLACED):
        return found is not None
    return found != FileStat(row.bytes or 0, row.mtime_ns or 0, row.ctime_ns or 0)


def _forgettable(ledger: Ledger, rows: Sequence[ImageRow]) -> list[int]:
    """Images in trouble that nothing refers to and whose file is not there."""
    folders = list_folders(ledger)
    away = [
        row.id for row in rows
        if "UTF-8" not in (row.trouble or "") and not os.path.lexists(folders[row.folder_id] / row.path)
    ]  # fmt: skip
    return unreferenced(ledger, away)


def _check_features(ledger: Ledger) -> list[Finding]:
    found, faults = [], _feature_faults(ledger)
    damaged = [fault for fault in faults if fault.damaged]
    locked = [fault for fault in faults if not fault.damaged]
    if damaged:
        what = many(len(damaged), "file of features is", "files of features are")
        text = f"{what} damaged: {damaged[0].path.name} {damaged[0].reason}"
        found.append(Finding("features", text, "warning", "remove them, and make the features again", len(damaged)))
    if locked:  # they may be whole: nothing is removed
        what = many(len(locked), "file of features", "files of features")
        text = f"{what} could not be opened: {locked[0].path} {locked[0].reason}; check the permissions and the disk"
        found.append(Finding("locked features", text, "warning", None, len(locked)))
    return found


def _check_models(ledger: Ledger) -> list[Finding]:
    rows = list_models(ledger)
    faults = [(row.version, fault) for row in rows if (fault := fault_of(ledger, row)) is not None]
    found = []
    if faults:
        text = f"{many(len(faults), 'model is', 'models are')} missing or damaged: {faults[0][0]}: {faults[0][1]}"
        found.append(Finding("models", text, "warning", "make them again from the labels", len(faults)))
    if strange := _orphans(ledger):
        which = many(len(strange), "folder of models belongs", "folders of models belong")
        text = f"{which} to no round: {_some([path.name for path in strange])}"
        found.append(Finding("orphans", text, "note", "remove them", len(strange)))
    return found


def _check_lock(ledger: Ledger) -> list[Finding]:
    holder = holder_of(ledger.folder)
    if holder is not None:
        own = holder.pid == os.getpid()
        return [] if own else [Finding("busy", f"{holder} holds the campaign", "note")]
    note = ledger.folder / LOCK_FILE
    if not note.is_file() or not note.stat().st_size:
        return []
    text = "a program that wrote to the campaign ended without closing it; its lock is free"
    return [Finding("lock", text, "note", "clear the note that it left")]


def _check_leases(ledger: Ledger) -> list[Finding]:
    ended = ledger.read("SELECT count(*) FROM lease WHERE until <= ? OR until > ?", _lease_limits())[0][0]
    text = f"{many(ended, 'lease has ended and is', 'leases have ended and are')} still there; the next one clears up"
    return [Finding("leases", text, "note", "clear them", ended)] if ended else []


def _check_conflicts(ledger: Ledger) -> list[Finding]:
    rows = ledger.read("SELECT i.path FROM conflict AS c JOIN image AS i ON i.id = c.image_id ORDER BY i.id")
    paths = [row["path"] for row in rows]
    text = f"people see {many(len(paths), 'image')} differently: {_some(paths)}; settle on the page"
    return [Finding("conflicts", text, "warning", None, len(paths))] if paths else []


def _check_twins(ledger: Ledger) -> list[Finding]:
    """Equal bytes under different labels."""
    rows = ledger.read(
        "SELECT min(i.path) AS path, count(*) AS images FROM current_label AS l JOIN image AS i ON i.id = l.image_id "
        "WHERE i.sha256 IS NOT NULL GROUP BY i.sha256 HAVING count(DISTINCT l.class_id) > 1 ORDER BY 1"
    )
    text = (
        f"{many(len(rows), 'image is', 'images are')} there more than once, with different labels: "
        f"{_some([row['path'] for row in rows])}; not learnt from until the copies are labelled alike"
    )
    return [Finding("twins", text, "warning", None, len(rows))] if rows else []


def _check_leftovers(ledger: Ledger) -> list[Finding]:
    left = _leftovers(ledger)
    which = many(len(left), "file was", "files were")
    text = f"{which} left half written by a crash: {_some([path.name for path in left])}"
    return [Finding("leftovers", text, "note", "remove them", len(left))] if left else []


def _check_backups(ledger: Ledger) -> list[Finding]:
    said = ledger.read("SELECT count(*) FROM event")[0][0]
    if not said or any((ledger.folder / BACKUPS).glob("campaign-*.sqlite")):
        return []
    text = f"{many(said, 'answer is', 'answers are')} kept in one file, and there is no backup"
    return [Finding("backup", text, "note", "make one")]


CHECKS: tuple[Callable[[Ledger], list[Finding]], ...] = (
    _check_ledger, _check_references, _check_settings, _check_files, _check_troubles, _check_features, _check_models,
    _check_lock, _check_leases, _check_conflicts, _check_twins, _check_leftovers, _check_backups,
)  # fmt: skip


def _index_again(ledger: Ledger) -> None:
    for root in folders_in_use(ledger):
        index(ledger, root)


def _give_up_folders(ledger: Ledger) -> None:
    away = _folders_away(ledger)
    known = [image_row(row) for row in ledger.read("SELECT * FROM image WHERE trouble IS NULL")]
    quarantine(ledger, [(row.id, MISSING) for row in known if row.folder_id in away])


def _forget_gone(ledger: Ledger) -> None:
    rows = [image_row(row) for row in ledger.read("SELECT * FROM image WHERE trouble IS NOT NULL")]
    forget(ledger, _forgettable(ledger, rows))


def _repair_features(ledger: Ledger) -> None:
    for fault in _feature_faults(ledger):
        if fault.damaged:
            remove_shard(fault.path)
    embed(ledger, backbone=read_settings(ledger).backbone)


def _rebuild_models(ledger: Ledger) -> None:
    for row in list_models(ledger):
        if fault_of(ledger, row) is not None:
            rebuild(ledger, row)


def _remove_orphans(ledger: Ledger) -> None:
    for path in _orphans(ledger):
        shutil.rmtree(path)


def _clear_leases(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        connection.execute("DELETE FROM lease WHERE until <= ? OR until > ?", _lease_limits())


def _remove_leftovers(ledger: Ledger) -> None:
    for path in _leftovers(ledger):
        path.unlink(missing_ok=True)


FIXES: dict[str, Callable[[Ledger], object]] = {
    "folders": _give_up_folders,
    "index": _index_again,
    "missing": _index_again,
    "unreadable": _index_again,
    "changed": lambda ledger: accept_changed(
        ledger, [row["id"] for row in ledger.read("SELECT id FROM image WHERE trouble = ?", (CHANGED,))]
    ),
    "gone": _forget_gone,
    "features": _repair_features,
    "models": _rebuild_models,
    "orphans": _remove_orphans,
    "lock": lambda _ledger: None,  # opening a ledger for writing has replaced the note
    "leases": _clear_leases,
    "leftovers": _remove_leftovers,
    "backup": lambda ledger: ledger.back_up("doctor"),
}
"""The fixes in the order in which they are applied: images before features, features before models."""


def _feature_faults(ledger: Ledger) -> list[ShardFault]:
    folders = sorted(path for path in (ledger.files / FEATURES).glob("*") if path.is_dir())
    return [fault for folder in folders for fault in shard_faults(folder)]


def _orphans(ledger: Ledger) -> list[Path]:
    known = {row.version for row in list_models(ledger)}
    return sorted(path for path in (ledger.files / MODELS).glob("*") if path.is_dir() and path.name not in known)


def _leftovers(ledger: Ledger) -> list[Path]:
    """Files that a crash left next to their places; only where no other program is writing them now."""
    holder = holder_of(ledger.folder)
    if holder is not None and holder.pid != os.getpid():
        return []
    return sorted(path for path in ledger.folder.rglob(".*.part") if path.is_file())


def _lease_limits() -> tuple[int, int]:
    moment = now()
    return moment, moment + int(MOST_SECONDS * SECOND)


def _some(names: Sequence[str]) -> str:
    """The first of some names.

    >>> _some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:SHOWN]) + (f" and {len(names) - SHOWN} more" if len(names) > SHOWN else "")
