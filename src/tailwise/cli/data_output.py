"""How imports, exports, classes, backups and findings look on a terminal.

What a campaign's commands print with --json: results in, plain dictionaries out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType
from rich.table import Table

from ..campaign.doctor import DECISIONS
from ..campaign.images import find_image
from ..inputs import many
from .campaign_output import MOST_LISTED, class_table, command, nearer, reasons_listed
from .select_output import frameless, plain

if TYPE_CHECKING:
    from ..campaign.choosing import Proposal
    from ..campaign.classes import ClassRow
    from ..campaign.doctor import Finding
    from ..campaign.exporting import Exported
    from ..campaign.images import Indexed
    from ..campaign.importing import Imported
    from ..campaign.quality import Agreement
    from ..campaign.service import Campaign
    from ..campaign.state import Status
    from .campaign_commands import Begun


SEVERITY = {"error": "[bold red]✗ error[/]", "warning": "[yellow]! warning[/]", "note": "[cyan]· note[/]"}


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


def show_findings(found: Sequence[Finding], mended: Sequence[Finding], folder: Path, *, dry_run: bool) -> None:
    """What was mended, what is left, and what can be mended how."""
    console = Console(highlight=False)
    if dry_run and mended:
        console.print("[yellow]A dry run: nothing was changed. What would be mended:[/]")
    for one in mended:
        console.print(f"[green]{'·' if dry_run else '✓'}[/] {one.name}: {plain(one.fix or '')}")
    if mended:
        console.print()
    if not found:
        console.print("[green]✓ All is well.[/]")
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    for one in found:
        fix = f"\n[dim]mend it:[/] {plain(one.fix)}" if one.fix else ""
        grid.add_row(SEVERITY[one.severity], f"[bold]{one.name}[/]", f"{plain(one.what)}{fix}")
    console.print(grid)
    fixes = [one.name for one in found if one.fix]
    by_name = [name for name in fixes if name in DECISIONS]
    if fixes:
        line = f"\nMend one with [bold cyan]{plain(command('doctor', folder, '--fix', 'NAME'))}[/]"
        console.print(f"{line}, or all: --fix-all" if len(by_name) < len(fixes) else line)
    if by_name:
        console.print(f"[dim]For people to decide, and mended by name alone: {', '.join(by_name)}.[/]")


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


Document = dict[str, Any]


def begun_json(begun: Begun, home: Path, *, dry_run: bool) -> Document:
    """Of `tailwise init`."""
    return {
        "campaign": str(home),
        "created": begun.created,
        "dry_run": dry_run,
        "folders": [{"folder": str(folder), **indexed_json(found)} for folder, found in begun.indexed],
        "classes": list(begun.classes),
        "new_classes": list(begun.new_classes),
        "labels": None if begun.imported is None else imported_json(begun.imported),
        "images": begun.status.images,
        "usable": begun.status.usable,
    }


def indexed_json(found: Indexed) -> Document:
    """What a folder held."""
    return {
        "new": found.added,
        "known": found.known,
        "moved": found.moved,
        "duplicates": found.duplicates,
        "changed": list(found.changed),
        "gone": list(found.missing),
        "quarantined": [{"path": path, "reason": reason} for path, reason in found.quarantined],
        "passed_over": dict(found.passed_over),
    }


def proposal_json(made: Proposal, campaign: Campaign) -> Document:
    """Of `tailwise next`: the round, the certificate and the images, best first."""
    names = {one.id: one.name for one in campaign.classes(retired=True)}
    facts = {
        name: getattr(made, name)
        for name in ("budget", "strategy", "balance", "seed", "cold_start", "lam", "gap", "status", "candidates",
                     "labels", "model_version", "backbone")
    }  # fmt: skip
    return {
        "round": None if made.round is None else made.round.id,
        **facts,
        "classes": _class_counts(made, names),
        "unreachable": [
            {"class": names[number], "wanted": wanted, "reachable": reachable}
            for number, wanted, reachable in made.unreachable
        ],
        "seconds": dict(made.seconds),
        "notes": list(made.notes),
        "images": _images(made, campaign, names),
    }


def _class_counts(made: Proposal, names: Mapping[int, str]) -> list[Document]:
    empty = [None] * len(made.class_ids)
    rows = zip(
        made.class_ids, made.why["counts"], made.target or empty, made.expected_counts or empty, strict=True
    )  # fmt: skip
    return [
        {"class": names[number], "labelled": labelled, "target": target, "expected": expected}
        for number, labelled, target, expected in rows
    ]


def _images(made: Proposal, campaign: Campaign, names: Mapping[int, str]) -> list[Document]:
    with campaign.ledger.reading():
        return [
            {
                "path": find_image(campaign.ledger, pick.image).path,
                "guess": None if pick.predicted is None else names[pick.predicted],
                "confidence": pick.confidence,
            }
            for pick in made.picks
        ]


def status_json(campaign: Campaign, status: Status, agreement: Agreement) -> Document:
    """Of `tailwise status`."""
    counted = ("images", "usable", "duplicates", "quarantined", "labelled", "aside", "other", "skipped", "conflicts",
               "rounds")  # fmt: skip
    return {
        "campaign": campaign.name,
        "folder": str(campaign.folder),
        **{name: getattr(status, name) for name in counted},
        "classes": classes_json(campaign.classes(retired=True), status.labels),
        "round": _round_json(status),
        "annotators": dict(status.annotators),
        "agreement": asdict(agreement),
        "settings": asdict(campaign.settings),
    }


def _round_json(status: Status) -> Document | None:
    if status.round is None or status.progress is None:
        return None
    facts = {name: getattr(status.round, name) for name in ("id", "opened_at", "budget", "strategy", "balance", "seed")}
    found = status.progress
    return facts | {
        "images": found.images, "done": found.done, "remaining": found.remaining, "answers": found.answers,
        "complete": found.complete,
    }  # fmt: skip


def classes_json(classes: Sequence[ClassRow], labels: Mapping[int, int]) -> list[Document]:
    """All classes by position."""
    return [{"name": one.name, "labelled": labels.get(one.id, 0), "retired": one.retired} for one in classes]


def imported_json(done: Imported) -> Document:
    """Of `tailwise import`."""
    return asdict(done)


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


def findings_json(found: Sequence[Finding], mended: Sequence[Finding], *, dry_run: bool) -> Document:
    """Of `tailwise doctor`."""
    return {"findings": [asdict(one) for one in found], "mended": [one.name for one in mended], "dry_run": dry_run}
