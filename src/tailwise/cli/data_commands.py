"""What the commands do that bring labels in and out and look after a campaign: check, call the library, print."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..campaign.database import BACKUPS, LEDGER_FILE
from ..campaign.service import Campaign
from ..errors import BadFile
from .campaign_commands import folder_of, opened, rehearsal
from .output import FAILED, WrongUsage, printable
from .select import Form
from .select_output import progress_shown

if TYPE_CHECKING:
    from ..campaign.doctor import Finding


@dataclass(frozen=True, slots=True)
class ClassChanges:
    """What is to be done to the classes."""

    add: tuple[str, ...] = ()
    rename: tuple[str, ...] = ()  # OLD=NEW
    retire: tuple[str, ...] = ()
    restore: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.add or self.rename or self.retire or self.restore)


def run_import(
    folder: Path, file: Path, options: Mapping[str, Any], rename: Sequence[str], form: Form
) -> None:  # fmt: skip
    """`tailwise import`."""
    from ..campaign.importing import import_file

    pairs = dict(pair_of(text, "--rename") for text in rename)
    with (
        opened(folder, "" if options["dry_run"] else "`tailwise import`") as campaign,
        progress_shown(quiet=form is Form.QUIET) as report,
    ):
        done = import_file(campaign, file, rename=pairs, **options, report=report)
    if form is Form.JSON:
        from .data_output import imported_json

        print(json.dumps(imported_json(done)))
    elif form is Form.SUMMARY:
        from .data_output import show_imported

        show_imported(done)
    elif left := len(done.unmatched) + len(done.problems) + sum(one.records for one in done.unknown_classes):
        name = printable(str(file))
        print(f"tailwise: {left:,} records of {name} could not be taken; --json lists them", file=sys.stderr)


def pair_of(text: str, option: str) -> tuple[str, str]:
    """The two names in OLD=NEW.

    >>> pair_of("kite = red kite", "--rename")
    ('kite', 'red kite')
    """
    old, sign, new = (part.strip() for part in text.partition("="))
    if not sign or not old or not new:
        raise WrongUsage(f"{option} is {text!r}; give two names such as 'kite=red kite'")
    return old, new


def run_export(
    folder: Path, out: Path, format: str | None, options: Mapping[str, bool], split: str | None, form: Form, *,
    dry_run: bool,
) -> None:  # fmt: skip
    """`tailwise export`."""
    from ..campaign.exporting import write_export

    shares = None if split is None else split_shares(split)
    with opened(folder) as campaign:
        with progress_shown(quiet=form is Form.QUIET) as report:
            done = write_export(
                campaign, out, format=format, split=shares, dry_run=dry_run, report=report, **options
            )  # fmt: skip
        conflicts = campaign.status().conflicts
    if form is Form.JSON:
        from .data_output import exported_json

        print(json.dumps(exported_json(done, conflicts, dry_run=dry_run)))
    elif form is Form.SUMMARY:
        from .data_output import show_exported

        show_exported(done, conflicts, dry_run=dry_run)


def split_shares(text: str) -> float | dict[str, float]:
    """A share for testing, or names with shares.

    >>> split_shares("0.2"), split_shares("train=0.9, test=0.1")
    (0.2, {'train': 0.9, 'test': 0.1})
    """
    try:
        if "=" not in text:
            return float(text)
        parts = [pair_of(part, "--split") for part in text.split(",")]
        shares = {name: float(share) for name, share in parts}
    except ValueError:
        raise WrongUsage(f"--split is {text!r}; give a share such as 0.2, or train=0.8,test=0.2") from None
    if len(shares) < len(parts):
        raise WrongUsage(f"--split is {text!r}, which names a split twice")
    return shares


def run_classes(folder: Path, changes: ClassChanges, form: Form, *, dry_run: bool) -> None:
    """`tailwise classes`."""
    if not changes:
        with opened(folder) as campaign:
            _show_classes(campaign, (), form, dry_run=dry_run)
    elif dry_run:
        with rehearsal(folder_of(folder)) as place, Campaign.open(place) as campaign:
            _show_classes(campaign, _change_classes(campaign, changes), form, dry_run=True)
    else:
        with opened(folder, "`tailwise classes`") as campaign:
            _show_classes(campaign, _change_classes(campaign, changes), form, dry_run=False)


def _change_classes(campaign: Campaign, changes: ClassChanges) -> tuple[str, ...]:
    """All of it in one transaction; gives what was done, in words."""
    pairs = [pair_of(text, "--rename") for text in changes.rename]
    done = []
    with campaign.ledger.writing():
        for old, new in pairs:
            done.append(f"renamed {old} to {campaign.rename_class(old, new).name}")
        done += [f"restored {campaign.restore_class(name).name}" for name in changes.restore]
        done += [f"retired {campaign.retire_class(name).name}" for name in changes.retire]
        done += [f"added {campaign.add_class(name).name}" for name in changes.add]
    return tuple(done)


def _show_classes(campaign: Campaign, done: Sequence[str], form: Form, *, dry_run: bool) -> None:
    classes, labels = campaign.classes(retired=True), campaign.status().labels
    if form is Form.JSON:
        from .data_output import classes_json

        print(json.dumps({"classes": classes_json(classes, labels), "done": list(done), "dry_run": dry_run}))
    elif form is Form.SUMMARY:
        from .data_output import show_classes

        show_classes(classes, labels, done, dry_run=dry_run)
    elif not done:
        print("\n".join(one.name for one in classes if not one.retired))


def run_backup(folder: Path, out: Path | None, form: Form, *, dry_run: bool) -> None:
    """`tailwise backup`."""
    with opened(folder) as campaign:
        try:
            path = campaign.backup(out, dry_run=dry_run)
            size = (campaign.ledger.path if dry_run else path).stat().st_size
        except OSError as error:
            place = out or campaign.folder
            raise BadFile(f"cannot write a backup to {place}: {error.strerror or error}; name another --out") from error
    if form is Form.JSON:
        print(json.dumps({"backup": str(path), "bytes": size, "dry_run": dry_run}))
    elif form is Form.QUIET:
        print(path)
    else:
        from .data_output import show_backup

        show_backup(path, size, dry_run=dry_run)


def run_report(folder: Path, out: Path | None, form: Form, *, open_browser: bool, dry_run: bool) -> None:
    """`tailwise report`."""
    from ..report.campaign_page import campaign_report_place, write_campaign_report

    with opened(folder) as campaign, progress_shown(quiet=form is Form.QUIET) as report:
        page = campaign_report_place(campaign, out)
        if not dry_run:
            page = write_campaign_report(campaign, out, report=report)
    if form is Form.JSON:
        print(json.dumps({"report": str(page), "dry_run": dry_run}))
    elif form is Form.QUIET:
        print(page)
    else:
        from .data_output import show_report

        show_report(page, dry_run=dry_run)
    if open_browser and not dry_run:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def run_doctor(folder: Path, fix: Sequence[str], form: Form, *, fix_all: bool, dry_run: bool) -> None:
    """`tailwise doctor`; ends with an error while labels are at risk."""
    from ..campaign.doctor import DECISIONS, diagnose

    home = folder_of(folder)
    if not (home / LEDGER_FILE).exists() and not (home / BACKUPS).is_dir():
        raise BadFile(f"no campaign in {home}; name its folder")
    names = [name for text in fix for name in text.split(",")]
    _check_fixes(names)
    before = diagnose(home)
    wanted = [one for one in before if one.fix and (one.name in names or (fix_all and one.name not in DECISIONS))]
    after = before if dry_run or not wanted else _mended(home, [one.name for one in wanted])
    left = {one.name for one in after}
    mended = wanted if dry_run else [one for one in wanted if one.name not in left]
    if form is Form.JSON:
        from .data_output import findings_json

        print(json.dumps(findings_json(after, mended, dry_run=dry_run)))
    elif form is Form.SUMMARY:
        from .data_output import show_findings

        show_findings(after, mended, folder, dry_run=dry_run)
    if any(one.severity == "error" for one in after):
        raise typer.Exit(FAILED)


def _check_fixes(names: Sequence[str]) -> None:
    from ..campaign.doctor import FIXES, LEDGER, SCHEMA

    known = sorted({*FIXES, LEDGER, SCHEMA})
    if unknown := [name for name in names if name not in known]:
        raise WrongUsage(f"nothing that can be mended is called {unknown[0]!r}; there are {', '.join(known)}")


def _mended(home: Path, names: Sequence[str]) -> list[Finding]:
    """What is found after mending; a damaged or an older ledger comes first, and alone."""
    from ..campaign.database import repair_ledger
    from ..campaign.doctor import LEDGER, SCHEMA, diagnose, fix

    if LEDGER in names:
        repair_ledger(home)
        return diagnose(home)
    with opened(home, "`tailwise doctor`") as campaign:  # which brings an older ledger up to date
        return fix(campaign, [name for name in names if name != SCHEMA])
