"""What classes, import, export, report, doctor and backup do, and how their results look on a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, RenderableType
from rich.table import Table

from ..campaign.database import BACKUPS, LEDGER_FILE
from ..campaign.doctor import DECISIONS, FIXES, LEDGER, SCHEMA, diagnose
from ..campaign.service import Campaign
from ..errors import BadFile
from ..inputs import many
from .campaign_commands import Document, classes_json, dry_run_copy, folder_of, opened
from .campaign_output import MOST_LISTED, class_table, command, nearer, reasons_listed
from .output import FAILED, Form, WrongUsage, frameless, plain, printable, progress_shown

if TYPE_CHECKING:
    from ..campaign.classes import ClassRow
    from ..campaign.doctor import Finding
    from ..campaign.exporting import Exported
    from ..campaign.importing import Imported

SEVERITY = {"error": "[bold red]✗ error[/]", "warning": "[yellow]! warning[/]", "note": "[cyan]· note[/]"}


@dataclass(frozen=True, slots=True)
class ClassChanges:
    """What is to be done to the classes."""

    add: tuple[str, ...] = ()
    rename: tuple[str, ...] = ()  # OLD=NEW
    retire: tuple[str, ...] = ()
    restore: tuple[str, ...] = ()
    describe: tuple[str, ...] = ()  # NAME=TEXT
    move: tuple[str, ...] = ()  # NAME=PLACE
    hotkey: tuple[str, ...] = ()  # NAME=KEY, NAME= for none
    example: tuple[str, ...] = ()  # NAME=IMAGE
    remove_example: tuple[str, ...] = ()  # NAME=IMAGE

    def __bool__(self) -> bool:
        return any(getattr(self, one.name) for one in fields(self))


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
        print(json.dumps(asdict(done)))
    elif form is Form.SUMMARY:
        show_imported(done)
    elif left := len(done.unmatched) + len(done.problems) + sum(one.records for one in done.unknown_classes):
        name = printable(str(file))
        print(f"tailwise: {left:,} records of {name} could not be taken; --json lists them", file=sys.stderr)


def run_connect(
    folder: Path, url: str, project: int, key: str, server: str, options: Mapping[str, Any], form: Form
) -> None:  # fmt: skip
    """`tailwise connect label-studio`."""
    from ..campaign.classes import list_classes
    from ..formats.label_studio_api import Server, Studio, connect, read_annotator_map
    from ..web.label_studio import place_of
    from ..web.settings import campaign_token

    people = read_annotator_map(options["annotator_map"]) if options["annotator_map"] else {}
    with opened(folder) as campaign:
        place, classes = place_of(campaign.ledger), [one.name for one in list_classes(campaign.ledger)]
        home = campaign.folder
    done = connect(
        Studio(url, key), project, Server(server.rstrip("/"), campaign_token(home)), classes, place=place,
        annotators=people, write_config=options["write_config"],
    )  # fmt: skip
    done.connection.write(home)
    if form is Form.JSON:
        print(json.dumps(asdict(done)))
    elif form is Form.SUMMARY:
        written = "written from the campaign's classes" if done.config_written else "fits the campaign's classes"
        print(f"Connected {printable(done.title)!r} (project {project}) with {home.name}.")
        print(f"  labelling configuration  {written}")
        print(f"  ML backend, webhook      {server} with the campaign's token")
        print(
            f"  tasks                    {done.tasks:,}, of them {done.in_round:,} in the open round, which come first"
        )
        print(f"  predictions              model {printable(done.model_version) or '(none yet)'}")
        print(f"  annotators               {printable(', '.join(sorted(set(done.connection.people.values()))))}")


def pair_of(text: str, option: str, *, empty: bool = False) -> tuple[str, str]:
    """The two names in OLD=NEW; the second may be missing where `empty` allows it.

    >>> pair_of("kite = red kite", "--rename")
    ('kite', 'red kite')
    """
    old, sign, new = (part.strip() for part in text.partition("="))
    if not sign or not old or not (new or empty):
        raise WrongUsage(f"{option} is {text!r}; give two names such as 'kite=red kite'")
    return old, new


def run_export(
    folder: Path, out: Path, format: str | None, options: Mapping[str, Any], split: str | None, form: Form, *,
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
        print(json.dumps(exported_json(done, conflicts, dry_run=dry_run)))
    elif form is Form.SUMMARY:
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
        with dry_run_copy(folder_of(folder)) as place, Campaign.open(place) as campaign:
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
        done += _edit_classes(campaign, changes)
    return tuple(done)


def _edit_classes(campaign: Campaign, changes: ClassChanges) -> Iterator[str]:
    """Guidelines, order and keys, after the names."""
    from ..campaign.classes import add_example, remove_example

    for name, text in (pair_of(one, "--describe", empty=True) for one in changes.describe):
        yield f"described {campaign.edit_class(name, description=text).name}"
    for name, text in (pair_of(one, "--move") for one in changes.move):
        if not text.isdecimal():
            raise WrongUsage(f"--move is {name}={text!r}; give a whole number, such as {name}=1")
        yield f"moved {campaign.edit_class(name, place=int(text)).name} to place {int(text)}"
    for name, text in (pair_of(one, "--hotkey", empty=True) for one in changes.hotkey):
        one = campaign.edit_class(name, hotkey=text)
        yield f"{one.name} has the key {one.hotkey}" if one.hotkey else f"{one.name} has no key of its own"
    for name, image in (pair_of(one, "--remove-example") for one in changes.remove_example):
        yield f"removed the example {image} of {remove_example(campaign.ledger, name, image).name}"
    for name, image in (pair_of(one, "--example") for one in changes.example):
        yield f"{image} is an example of {add_example(campaign.ledger, name, image).name}"


def _show_classes(campaign: Campaign, done: Sequence[str], form: Form, *, dry_run: bool) -> None:
    classes, labels = campaign.classes(retired=True), campaign.status().labels
    if form is Form.JSON:
        print(json.dumps({"classes": classes_json(classes, labels), "done": list(done), "dry_run": dry_run}))
    elif form is Form.SUMMARY:
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
        show_report(page, dry_run=dry_run)
    if open_browser and not dry_run:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def run_doctor(folder: Path, fix: Sequence[str], form: Form, *, fix_all: bool, dry_run: bool) -> None:
    """`tailwise doctor`; ends with an error while labels are at risk."""
    home = folder_of(folder)
    if not (home / LEDGER_FILE).exists() and not (home / BACKUPS).is_dir():
        raise BadFile(f"no campaign in {home}; name its folder")
    names = [name for text in fix for name in text.split(",")]
    _check_fixes(names)
    before = diagnose(home)
    wanted = [one for one in before if one.fix and (one.name in names or (fix_all and one.name not in DECISIONS))]
    after = before if dry_run or not wanted else _fix(home, [one.name for one in wanted])
    left = {one.name for one in after}
    fixed = wanted if dry_run else [one for one in wanted if one.name not in left]
    if form is Form.JSON:
        found = {"findings": [asdict(one) for one in after], "mended": [one.name for one in fixed]}
        print(json.dumps({**found, "dry_run": dry_run}))
    elif form is Form.SUMMARY:
        show_findings(after, fixed, folder, dry_run=dry_run)
    if any(one.severity == "error" for one in after):
        raise typer.Exit(FAILED)


def _check_fixes(names: Sequence[str]) -> None:
    known = sorted({*FIXES, LEDGER, SCHEMA})
    if unknown := [name for name in names if name not in known]:
        raise WrongUsage(f"unknown fix {unknown[0]!r}; the fixes are {', '.join(known)}")


def _fix(home: Path, names: Sequence[str]) -> list[Finding]:
    """The findings after the fixes; a damaged ledger is fixed first, and alone."""
    from ..campaign.database import repair_ledger
    from ..campaign.doctor import fix

    if LEDGER in names:
        repair_ledger(home)
        return diagnose(home)
    with opened(home, "`tailwise doctor`") as campaign:  # which brings an older ledger up to date
        return fix(campaign, [name for name in names if name != SCHEMA])


def exported_json(done: Exported, conflicts: int, *, dry_run: bool) -> Document:
    """Of `tailwise export`."""
    return {
        "path": str(done.path),
        "format": done.format,
        "records": done.records,
        "images": done.images,
        "left_out": [{"path": path, "reason": reason} for path, reason in done.left_out],
        "retired": dict(done.retired),
        "copies": done.copies,
        "conflicts": conflicts,
        "dry_run": dry_run,
    }


# Terminal output.


def show_imported(done: Imported) -> None:
    """What was taken over, and all that did not fit."""
    console = Console(highlight=False)
    if done.dry_run:
        console.print("[yellow]A dry run: nothing was changed.[/]")
    for line in imported_lines(done):
        console.print(line)


def imported_lines(done: Imported) -> Iterator[RenderableType]:
    """Numbers first; then what needs a look, each with why and what to do."""
    yield _import_counts(done)
    if done.new_classes:
        yield f"[green]{many(len(done.new_classes), 'class', 'classes')} added:[/] {plain(', '.join(done.new_classes))}"
    unknown = [(one.name, f"{many(one.records, 'record')}: {one.reason}") for one in done.unknown_classes]
    advice = "Take them with tailwise import --create-classes, or say what they are called here with --rename OLD=NEW."
    yield from _part("unknown class", "why", unknown, advice)
    yield from _part("no image found for", "why", [(one.path, one.reason) for one in done.unmatched], "")
    changed = [(one.path, f"{one.annotator}: {one.before} → {one.after}") for one in done.changed]
    advice = "" if done.overwritten else "They stay as they were; --overwrite lets the file change them."
    yield from _part("said differently before", "", changed, advice)
    conflicts = [(one.path, ", ".join(f"{who}: {what}" for who, what in one.answers)) for one in done.conflicts]
    yield from _part("people differ on", "answers", conflicts, "Settle them on the page: tailwise label.")
    yield from _part("problem", "", [(problem, "") for problem in done.problems], "")


def _import_counts(done: Imported) -> Table:
    would = "would be " if done.dry_run else ""
    rows = [
        (done.added, f"{'answer' if done.added == 1 else 'answers'} {would}added", "green"),
        (done.same, "were there already", "dim"),
        (done.overwritten, f"{would}overwritten", "yellow"),
        (done.unanswered, "records without an answer", "dim"),
    ]
    grid = Table.grid(padding=(0, 1))
    grid.add_column(justify="right", min_width=7)
    grid.add_column()
    for count, what, style in [row for row in rows if row[0]] or rows[:1]:
        grid.add_row(f"[bold {style}]{count:,}[/]", f"[{style}]{what}[/]")
    return grid


def _part(title: str, why: str, pairs: Sequence[tuple[str, str]], advice: str) -> Iterator[RenderableType]:
    if not pairs:
        return
    table = frameless()
    table.add_column(f"{title} ({len(pairs):,})", overflow="fold")
    table.add_column(why, overflow="fold")
    for name, reason in pairs[:MOST_LISTED]:
        table.add_row(plain(name), f"[dim]{plain(reason)}[/]")
    yield ""
    yield table
    if len(pairs) > MOST_LISTED:
        yield f"[dim]… and {len(pairs) - MOST_LISTED:,} more; --json lists all[/]"
    if advice:
        yield f"[yellow]{plain(advice)}[/]"


def show_exported(done: Exported, conflicts: int, *, dry_run: bool) -> None:
    """What was written, and what is not in it."""
    console = Console(highlight=False)
    verb = "Would write" if dry_run else "Wrote"
    what = f"{many(done.records, 'record')} of {many(done.images, 'image')}"
    console.print(f"[green]{verb}[/] {what} to [bold]{plain(str(done.path))}[/] ({done.format})", soft_wrap=True)
    if conflicts:
        have = "has" if conflicts == 1 else "have"
        console.print(f"[yellow]note:[/] {many(conflicts, 'image')} on which people differ {have} no label in it")
    for name, count in done.retired:
        has = "has" if count == 1 else "have"
        console.print(f"[yellow]note:[/] {many(count, 'record')} {has} the class {plain(name)}, which is retired")
    if done.copies:
        files = many(done.copies, "file is", "files are")
        console.print(f"[yellow]note:[/] {files} not listed: copies, byte for byte, of images that are")
    reasons_listed(console, "left out", done.left_out)


def show_classes(classes: Sequence[ClassRow], labels: Mapping[int, int], done: Sequence[str], *, dry_run: bool) -> None:
    """What was done, then all classes."""
    console = Console(highlight=False)
    if dry_run and done:
        console.print("[yellow]A dry run: nothing was changed.[/]")
    for line in done:
        console.print(f"[green]✓[/] {plain(line)}")
    if done:
        console.print()
    console.print(class_table(labels, classes))


def show_findings(found: Sequence[Finding], fixed: Sequence[Finding], folder: Path, *, dry_run: bool) -> None:
    """What was fixed, what is left, and how to fix it."""
    console = Console(highlight=False)
    if dry_run and fixed:
        console.print("[yellow]A dry run: nothing was changed. What would be fixed:[/]")
    for one in fixed:
        console.print(f"[green]{'·' if dry_run else '✓'}[/] {one.name}: {plain(one.fix or '')}")
    if fixed:
        console.print()
    if not found:
        console.print("[green]✓ All is well.[/]")
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    for one in found:
        fix = f"\n[dim]fix:[/] {plain(one.fix)}" if one.fix else ""
        grid.add_row(SEVERITY[one.severity], f"[bold]{one.name}[/]", f"{plain(one.what)}{fix}")
    console.print(grid)
    fixes = [one.name for one in found if one.fix]
    by_name = [name for name in fixes if name in DECISIONS]
    if fixes:
        line = f"\nFix one with [bold cyan]{plain(command('doctor', folder, '--fix', 'NAME'))}[/]"
        console.print(f"{line}, or all: --fix-all" if len(by_name) < len(fixes) else line)
    if by_name:
        console.print(f"[dim]For people to decide, and fixed by name alone: {', '.join(by_name)}.[/]")


def show_backup(path: Path, size: int, *, dry_run: bool) -> None:
    """Where it is, and how it is used."""
    console = Console(highlight=False)
    verb = "Would write" if dry_run else "Wrote"
    into = "into " if dry_run and path.is_dir() else ""
    console.print(f"[green]{verb}[/] {into}[bold]{plain(nearer(path))}[/] ({_size(size)})", soft_wrap=True)
    if dry_run:
        return
    console.print(
        "[dim]To go back to it: stop what uses the campaign, delete campaign.sqlite-journal and "
        "campaign.sqlite-wal, and copy it over campaign.sqlite.[/]"
    )


def show_report(page: Path, *, dry_run: bool) -> None:
    """Where it is."""
    verb = "Would write" if dry_run else "Wrote"
    Console(highlight=False).print(f"[green]{verb}[/] [bold]{plain(nearer(page))}[/]", soft_wrap=True)


def _size(count: int) -> str:
    """Bytes as people say them.

    >>> _size(900), _size(45_000), _size(3_200_000)
    ('900 bytes', '45 kB', '3.2 MB')
    """
    if count < 1000:
        return f"{count} bytes"
    return f"{count / 1000:.0f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"
