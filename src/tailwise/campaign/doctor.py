"""What is wrong with a campaign, and what can be mended: a campaign in, findings out; fixes are applied when named.

Looking changes nothing. No fix touches what people said, or an image.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from ..errors import BadFile, BadInput, TailwiseError, UnknownName
from ..learn.feature_cache import remove_shard, shard_faults
from .features import FOLDER as FEATURES
from .features import embed
from .images import image_row, index, is_as_it_was, list_folders
from .indexing import CHANGED, MISSING, REPLACED, accept_changed
from .leases import MOST_SECONDS, SECOND
from .ledger import BACKUPS, LEDGER_FILE, Ledger, now
from .locks import LOCK_FILE, holder_of, take_lock
from .migrating import connect
from .models import FOLDER as MODELS
from .models import fault_of, rebuild
from .past import HasLedger, ledger_of
from .rounds import list_models
from .state import read_settings
from .wording import many

SEVERITIES = ("error", "warning", "note")
SHOWN = 3  # names in a sentence
ALL = "all"
DECISIONS = {"changed"}  # fixes that are applied only by name


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that is not as it should be.

    Attributes
    ----------
    name: of the kind of finding; what `mend` is told.
    what: in words, with numbers.
    severity: "error": labels are at risk; "warning": something is lost or waits; "note": good to know.
    fix: what mending it does; None where only people can.
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
    return sorted(found, key=lambda finding: SEVERITIES.index(finding.severity))


def mend(campaign: HasLedger | Ledger, names: Sequence[str]) -> list[Finding]:
    """Apply the fixes of findings by their names; gives what is found afterwards.

    "all" is all but those that decide something for people: whether labels hold for changed bytes.
    """
    ledger = ledger_of(campaign)
    if unknown := [name for name in names if name not in FIXES and name != ALL]:
        raise UnknownName(f"{unknown[0]!r} is nothing that can be mended; there are {', '.join(FIXES)} and {ALL}")
    if ledger.read_only:
        raise BadInput(f"the campaign {ledger.folder} was opened read-only; open it for writing to mend it")
    asked = {*names, *(set(FIXES) - DECISIONS if ALL in names else ())}
    there = {finding.name for finding in examine(ledger) if finding.fix is not None}
    for name, fix in FIXES.items():
        if name in there & asked:
            fix(ledger)
    return examine(ledger)


def diagnose(folder: str | Path) -> list[Finding]:
    """As `examine`, for a folder whose ledger may be too damaged to be opened."""
    home = Path(folder).expanduser().resolve()
    try:
        with Ledger.open(home, read_only=True) as ledger:
            return examine(ledger)
    except BadFile as error:
        sound = sound_backups(home)
        fix = f"put {sound[-1].name} in its place, and keep the damaged file beside it" if sound else None
        return [Finding("ledger", str(error), "error", fix)]


def restore_backup(folder: str | Path) -> Path:
    """Put the newest sound backup in the place of a damaged ledger, which is kept; gives where it is kept.

    What was said after the backup is in the damaged file alone: an expert may be able to read it.
    """
    home = Path(folder).expanduser().resolve()
    sound = sound_backups(home)
    if not sound:
        raise BadFile(f"no backup in {home / BACKUPS} is sound; keep {home / LEDGER_FILE} and ask an expert")
    lock = take_lock(home, "doctor", wait=5.0)
    try:
        with lock.turn:
            ledger = home / LEDGER_FILE
            kept = home / BACKUPS / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S%fZ}.sqlite"
            new = home / f".{LEDGER_FILE}.part"
            shutil.copyfile(sound[-1], new)
            _sync(new)
            if ledger.exists():
                ledger.replace(kept)
            for end in ("-journal", "-wal", "-shm"):  # of the damaged file; would be played back into the new one
                beside = home / f"{LEDGER_FILE}{end}"
                if beside.exists():
                    beside.replace(kept.with_name(f"{kept.name}{end}"))
            new.replace(ledger)
            _sync(home)
    finally:
        lock.release()
    return kept


def sound_backups(folder: Path) -> list[Path]:
    """Backups of the ledger that are whole, the newest last."""
    return [path for path in sorted((folder / BACKUPS).glob("campaign-*.sqlite")) if _is_sound(path)]


def _is_sound(path: Path) -> bool:
    try:
        with closing(connect(path, "ro")) as connection:
            whole = connection.execute("PRAGMA integrity_check(1)").fetchone()[0] == "ok"
            return whole and connection.execute("SELECT count(*) FROM event").fetchone() is not None
    except sqlite3.DatabaseError:
        return False


def _check_ledger(ledger: Ledger) -> list[Finding]:
    faults = [str(row[0]) for row in ledger.read("PRAGMA integrity_check(10)") if row[0] != "ok"]
    if not faults:
        return []
    text = f"the ledger is damaged: {faults[0]}; close the campaign and restore a backup"
    return [Finding("ledger", text, "error", None, len(faults))]


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
    missing_roots = [str(root) for root in list_folders(ledger).values() if not root.is_dir()]
    if missing_roots:
        text = f"the folder {missing_roots[0]} is not there; is its disk mounted?"
        return [Finding("folders", text, "error", None, len(missing_roots))]
    known = [image_row(row) for row in ledger.read("SELECT * FROM image WHERE trouble IS NULL ORDER BY id")]
    moved = [row.path for row in known if not is_as_it_was(ledger, row)]
    if not moved:
        return []
    text = f"{many(len(moved), 'file was', 'files were')} moved, changed or deleted since indexing: {_some(moved)}"
    return [Finding("index", text, "warning", "index the folders again, which follows files to new names", len(moved))]


def _check_troubles(ledger: Ledger) -> list[Finding]:
    rows = ledger.read("SELECT path, trouble FROM image WHERE trouble IS NOT NULL ORDER BY id")
    kinds = {
        "missing": [row["path"] for row in rows if row["trouble"] in (MISSING, REPLACED)],
        "changed": [row["path"] for row in rows if row["trouble"] == CHANGED],
        "unreadable": [
            f"{row['path']} ({row['trouble']})" for row in rows
            if row["trouble"] not in (MISSING, REPLACED, CHANGED)
        ],
    }  # fmt: skip
    words = {
        "missing": ("whose file is missing", "whose files are missing", "look again in the folders"),
        "changed": (
            "whose bytes changed after people answered", "whose bytes changed after people answered",
            "take the bytes that are there now for those that people spoke of",
        ),
        "unreadable": ("that cannot be read", "that cannot be read", "look again"),
    }  # fmt: skip
    return [
        Finding(name, f"{_images(len(paths), *words[name][:2])}: {_some(paths)}", "warning", words[name][2], len(paths))
        for name, paths in kinds.items()
        if paths
    ]


def _images(count: int, one: str, more: str) -> str:
    return many(count, f"image {one}", f"images {more}")


def _check_features(ledger: Ledger) -> list[Finding]:
    faults = _feature_faults(ledger)
    if not faults:
        return []
    path, reason = faults[0]
    text = f"{many(len(faults), 'file of features is', 'files of features are')} damaged: {path.name} {reason}"
    return [Finding("features", text, "warning", "remove them, and make the features again", len(faults))]


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
    for root in list_folders(ledger).values():
        index(ledger, root)


def _accept_changes(ledger: Ledger) -> None:
    accept_changed(ledger, [row["id"] for row in ledger.read("SELECT id FROM image WHERE trouble = ?", (CHANGED,))])


def _mend_features(ledger: Ledger) -> None:
    for path, _ in _feature_faults(ledger):
        remove_shard(path)
    embed(ledger, backbone=read_settings(ledger).backbone)


def _mend_models(ledger: Ledger) -> None:
    for row in list_models(ledger):
        if fault_of(ledger, row) is not None:
            rebuild(ledger, row)


def _remove_orphans(ledger: Ledger) -> None:
    for path in _orphans(ledger):
        shutil.rmtree(path)


def _clear_leases(ledger: Ledger) -> None:
    with ledger.writing() as connection:
        connection.execute("DELETE FROM lease WHERE until <= ? OR until > ?", _lease_limits())


def _clear_lock(ledger: Ledger) -> None:
    """Nothing is left to do: whoever opens a ledger for writing has put a note of its own there."""


def _remove_leftovers(ledger: Ledger) -> None:
    for path in _leftovers(ledger):
        path.unlink(missing_ok=True)


def _make_backup(ledger: Ledger) -> None:
    ledger.back_up("doctor")


FIXES: dict[str, Callable[[Ledger], None]] = {
    "index": _index_again, "missing": _index_again, "unreadable": _index_again, "changed": _accept_changes,
    "features": _mend_features, "models": _mend_models, "orphans": _remove_orphans, "lock": _clear_lock,
    "leases": _clear_leases, "leftovers": _remove_leftovers, "backup": _make_backup,
}  # fmt: skip
"""What can be mended, in the order in which it is: images before features, features before models."""


def _feature_faults(ledger: Ledger) -> list[tuple[Path, str]]:
    folders = sorted(path for path in (ledger.folder / FEATURES).glob("*") if path.is_dir())
    return [fault for folder in folders for fault in shard_faults(folder)]


def _orphans(ledger: Ledger) -> list[Path]:
    known = {row.version for row in list_models(ledger)}
    return sorted(path for path in (ledger.folder / MODELS).glob("*") if path.is_dir() and path.name not in known)


def _leftovers(ledger: Ledger) -> list[Path]:
    """Files that a crash left beside their places; only where no other program is writing them now."""
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


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
