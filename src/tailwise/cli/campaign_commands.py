"""What init, next, label, status and advise do: check the options, call the library, print."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from ..campaign.classes import MOST_CLASS, add_classes, clean_name, list_classes
from ..campaign.database import LEDGER_FILE, back_up
from ..campaign.images import find_image, folders_in_use
from ..campaign.service import Campaign
from ..errors import BadFile, BadInput, TailwiseError
from ..inputs import many
from .output import Form, WrongUsage, progress_shown

if TYPE_CHECKING:
    from ..campaign.choosing import Proposal
    from ..campaign.classes import ClassRow
    from ..campaign.importing import Imported
    from ..campaign.indexing import Indexed
    from ..campaign.learning_curve import Agreement
    from ..campaign.state import Status
    from ..types import Progress
    from ..web.serve import Serving


Document = dict[str, Any]  # what --json prints


@dataclass(frozen=True, slots=True)
class Init:
    """What `tailwise init` was asked for."""

    folder: Path
    images: tuple[Path, ...] = ()
    classes: str | None = None
    classes_file: Path | None = None
    labels: Path | None = None
    backbone: str | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """What `tailwise init` did."""

    created: bool
    indexed: tuple[tuple[Path, Indexed], ...]  # by folder
    classes: tuple[str, ...]  # those in use
    new_classes: tuple[str, ...]
    imported: Imported | None
    status: Status


def run_init(asked: Init, form: Form) -> None:
    """`tailwise init`."""
    home = folder_of(asked.folder)
    is_new = not (home / LEDGER_FILE).exists()
    names = class_names(asked.classes, asked.classes_file)
    _check_init(asked, home, names, is_new=is_new)
    with progress_shown(quiet=form is Form.QUIET) as report:
        if asked.dry_run:
            with dry_run_copy(home, empty=is_new) as place:
                begun = _begin(asked, place, names, report, is_new=is_new)
        else:
            begun = _begin(asked, home, names, report, is_new=is_new)
    if form is Form.JSON:
        print(json.dumps(begun_json(begun, home, dry_run=asked.dry_run)))
    elif form is Form.SUMMARY:
        from .campaign_output import show_begun

        show_begun(begun, asked)


def folder_of(folder: Path) -> Path:
    """The campaign's absolute folder; a file is an error."""
    home = folder.expanduser().resolve()
    if home.exists() and not home.is_dir():
        raise BadFile(f"{folder} is a file; name the folder of the campaign")
    return home


@contextmanager
def opened(folder: Path, purpose: str = "") -> Iterator[Campaign]:
    """A campaign; read-only, unless a purpose for writing is given."""
    home = folder_of(folder)
    with Campaign.open(home, purpose=purpose) if purpose else Campaign.open(home, read_only=True) as campaign:
        yield campaign


@contextmanager
def dry_run_copy(home: Path, *, empty: bool = False) -> Iterator[Path]:
    """A copy of a campaign's ledger in a temporary folder, or an empty folder for a new campaign."""
    with TemporaryDirectory(prefix="tailwise-") as folder:
        place = Path(folder).resolve() / home.name
        if not empty:
            with Campaign.open(home, read_only=True) as campaign, campaign.ledger.reading() as connection:
                back_up(connection, place, "dry_run_copy").replace(place / LEDGER_FILE)
        try:
            yield place
        except TailwiseError as error:  # a fault of the copy is a fault of the campaign
            raise type(error)(str(error).replace(str(place), str(home))) from error


def class_names(text: str | None, file: Path | None) -> tuple[str, ...]:
    """The classes that `--classes` and `--classes-file` name; each must be a name, and none come twice."""
    named = text.split(",") if text is not None else []
    if file is not None:
        named += [line for line in _text_of(file).splitlines() if line.strip()]
    cleaned = [clean_name("class", name, MOST_CLASS) for name in named]
    seen: set[str] = set()
    for name in cleaned:
        if name.casefold() in seen:
            raise BadInput(f"the class {name!r} is named twice; names must differ by more than their case")
        seen.add(name.casefold())
    if (file is not None or text is not None) and not cleaned:
        raise BadInput(f"{file or '--classes'} names no class; give at least one")
    return tuple(cleaned)


def _text_of(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadFile(f"cannot read the classes in {file}: {reason}; give a text file, one name per line") from error


def _check_init(asked: Init, home: Path, names: Sequence[str], *, is_new: bool) -> None:
    """Reject what cannot be done before anything is written."""
    if is_new and not asked.images:
        raise WrongUsage(f"there is no campaign in {asked.folder} yet; to make one, say where its --images are")
    if is_new and not names and asked.labels is None:
        raise WrongUsage("a new campaign needs --classes or --classes-file, or --labels whose classes it can take")
    for folder in asked.images:
        _check_images(folder, home)
    if asked.labels is not None:
        from ..formats import guess_format

        guess_format(asked.labels.expanduser())
    if asked.backbone is not None:
        from ..campaign.features import find_extractor

        find_extractor(asked.backbone)


def _check_images(folder: Path, home: Path) -> None:
    from ..campaign.indexing import scan

    root = folder.expanduser().resolve()
    if root.exists() and not root.is_dir():
        raise BadFile(f"{folder} is a file; name the folder of your images")
    if root == home:
        raise BadInput(
            f"{folder} is to be the campaign and holds the images; put the campaign into a folder of its own"
        )
    found = scan(root)
    if not found.files:
        others = ", ".join(f"{count} × {suffix or 'no ending'}" for suffix, count in found.passed_over)
        raise BadFile(
            f"there is no image in {folder}{f' (only {others})' if others else ''}; name the folder of your images"
        )


def _begin(asked: Init, home: Path, names: Sequence[str], report: Progress, *, is_new: bool) -> Begun:
    purpose = "`tailwise init`"
    settings: dict[str, Any] = {} if asked.backbone is None else {"backbone": asked.backbone}
    if is_new:
        campaign = Campaign.create(home, (), names, purpose=purpose, **settings)
    else:
        campaign = Campaign.open(home, purpose=purpose)
    with campaign:
        fresh = tuple(names) if is_new else _add_missing(campaign, names)
        if settings and not is_new:
            campaign.configure(**settings)
        with _kept_when_interrupted(campaign, asked):
            indexed, imported = _read_in(campaign, asked, report)
        used = tuple(one.name for one in campaign.classes())
        return Begun(is_new, indexed, used, fresh, imported, campaign.status())


def _add_missing(campaign: Campaign, names: Sequence[str]) -> tuple[str, ...]:
    """Add the classes that are not there; one that is retired stays so."""
    known = {one.name.casefold() for one in list_classes(campaign.ledger, retired=True)}
    missing = [name for name in names if name.casefold() not in known]
    add_classes(campaign.ledger, missing)
    return tuple(missing)


def _read_in(
    campaign: Campaign, asked: Init, report: Progress
) -> tuple[tuple[tuple[Path, Indexed], ...], Imported | None]:
    """Index the folders that were named, or all that are known; then import.

    The labels bring the classes where the campaign has none; later an unknown class may be a slip of the pen.
    """
    from ..campaign.importing import import_file

    folders = asked.images or tuple(folders_in_use(campaign.ledger))
    indexed = tuple((folder, campaign.index(folder, report=report)) for folder in folders)
    if asked.labels is None:
        return indexed, None
    none_yet = not campaign.classes(retired=True)
    return indexed, import_file(campaign, asked.labels, create_classes=none_yet, report=report)


@contextmanager
def _kept_when_interrupted(campaign: Campaign, asked: Init) -> Iterator[None]:
    """Say what Ctrl-C has left, and how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if not asked.dry_run:
            from .campaign_output import command

            kept = campaign.status().images
            images = [word for folder in asked.images for word in ("--images", str(folder))]
            again = command("init", asked.folder, *images)
            print(f"{many(kept, 'image is', 'images are')} indexed and kept; go on with: {again}", file=sys.stderr)
        raise


def run_next(folder: Path, wishes: Mapping[str, Any], form: Form) -> None:
    """`tailwise next`."""
    _check_balance(wishes["balance"])
    with opened(folder, "" if wishes["dry_run"] else "`tailwise next`") as campaign:
        with progress_shown(quiet=form is Form.QUIET) as report:
            proposal = campaign.next(**wishes, report=report)
        if form is Form.JSON:
            print(json.dumps(proposal_json(proposal, campaign), allow_nan=False))
        elif form is Form.SUMMARY:
            from .campaign_output import show_proposal

            names = {one.id: one.name for one in campaign.classes(retired=True)}
            show_proposal(proposal, names, folder)


def _check_balance(balance: str | None) -> None:
    from ..solver.path import parse_balance

    if balance is None or balance == "none":
        return
    try:
        parse_balance(balance)
    except BadInput as error:
        raise WrongUsage(f"--balance: {error}") from error


def run_label(folder: Path, options: Mapping[str, Any], form: Form, facts: Mapping[str, Any] | None = None) -> None:
    """`tailwise label`; `facts` come first in its JSON."""
    from ..web.serve import Options, run

    with opened(folder, "`tailwise label`") as campaign:  # for writing, which brings an older ledger up to date
        name, before = campaign.name, campaign.status()

    def announce(serving: Serving) -> None:
        if form is Form.JSON:
            found = {**(facts or {}), "link": serving.link, "annotator_link": serving.annotator_link,
                     "url": serving.url, "port": serving.port}  # fmt: skip
            print(json.dumps(found), flush=True)
        elif form is Form.QUIET:
            print(serving.link, flush=True)
        else:
            from .campaign_output import show_serving

            show_serving(serving, name, before, host=options.get("host", "127.0.0.1"))

    run(folder_of(folder), Options(**options), announce)
    if form is Form.SUMMARY:
        from .campaign_output import show_stopped

        with opened(folder) as campaign:
            show_stopped(before, campaign.status(), folder)


def run_label_dry(folder: Path, options: Mapping[str, Any], form: Form) -> None:
    """`tailwise label --dry-run`: what would be changed and where the page would be; nothing is served."""
    from ..web.serve import PLACEHOLDER_TOKEN
    from ..web.settings import WebSettings

    token = PLACEHOLDER_TOKEN if options["with_token"] else None
    WebSettings(token, options["host"], other_names=options["other_names"])  # refuses what would let strangers in
    with opened(folder) as campaign:
        name, before, overlap = campaign.name, campaign.status(), campaign.settings.overlap
    wanted = overlap if options["overlap"] is None else options["overlap"]
    if form is Form.JSON:
        facts = {"host": options["host"], "port": options["port"], "overlap": wanted, "new_token": options["new_token"]}
        print(json.dumps({**facts, "dry_run": True}))
    elif form is Form.SUMMARY:
        from .campaign_output import show_serving_dry

        changes = [f"overlap {overlap} → {wanted}, from the next round on"] if wanted != overlap else []
        changes += ["a new token; links that were given out would end"] if options["new_token"] else []
        show_serving_dry(name, before, options["host"], options["port"], changes)


def run_status(folder: Path, form: Form) -> None:
    """`tailwise status`."""
    from ..campaign.learning_curve import annotator_agreement

    with opened(folder) as campaign:
        status, classes = campaign.status(), campaign.classes(retired=True)
        agreement = annotator_agreement(campaign).alpha
        if form is Form.JSON:
            print(json.dumps(status_json(campaign, status, agreement)))
        elif form is Form.QUIET:
            from .campaign_output import status_line

            print(status_line(status))
        else:
            from .campaign_output import show_status

            show_status(campaign.name, status, classes, agreement, folder)


def run_advise(folder: Path, form: Form) -> None:
    """`tailwise advise`."""
    from ..campaign.advice import advise

    with opened(folder) as campaign, progress_shown(quiet=form is Form.QUIET) as report:
        advice = advise(campaign, report=report)
    if form is Form.JSON:
        print(json.dumps(asdict(advice)))
    elif form is Form.QUIET:
        print(advice.worth_it)
    else:
        from .campaign_output import show_advice

        show_advice(advice, folder)


# What --json prints.


def begun_json(begun: Begun, home: Path, *, dry_run: bool) -> Document:
    """Of `tailwise init`."""
    return {
        "campaign": str(home),
        "created": begun.created,
        "dry_run": dry_run,
        "folders": [{"folder": str(folder), **indexed_json(found)} for folder, found in begun.indexed],
        "classes": list(begun.classes),
        "new_classes": list(begun.new_classes),
        "labels": None if begun.imported is None else asdict(begun.imported),
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
    return [
        {"name": one.name, "labelled": labels.get(one.id, 0), "retired": one.retired, "hotkey": one.hotkey,
         "description": one.description}
        for one in classes
    ]  # fmt: skip
