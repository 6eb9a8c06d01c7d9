"""The one `Campaign` that the command line, the page and Python call; each method calls the module that does the work.

Methods that take long report through `report` (`tailwise.types.Progress`). With `dry_run` a method checks everything,
returns what it would do, and writes nothing.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..errors import BadFile, BadInput
from ..files import usable
from ..inputs import check_settings, listed
from ..types import Progress, no_progress
from .answers import Answer, Conflict, Recorded, Undone, conflicts, is_answered, record, settle, undo
from .classes import (
    ClassRow,
    add_classes,
    check_class_names,
    edit_class,
    find_class,
    list_classes,
    rename_class,
    retire_class,
)
from .database import BACKUPS, BUSY_SECONDS, back_up
from .images import folders_in_use, image_folders, locate
from .indexing import Indexed, index
from .ledger import PURPOSE, Ledger
from .notes import Note, add_note, list_notes
from .rounds import Round, RoundPick, asked_last, list_rounds, read_picks
from .state import Settings, Status, changed_settings, read_settings, read_status, write_settings

if TYPE_CHECKING:
    from ..web.serve import Page
    from .advice import Advice
    from .audit import Audit
    from .choosing import Proposal
    from .doctor import Finding
    from .duplicates import DuplicateGroup
    from .finding import FoundImage, ListedImage
    from .importing import Imported
    from .learning_curve import AnnotatorAgreement, Curve
    from .projection import Projection
    from .relabelling import Relabelled
    from .review import LabelError


log = logging.getLogger(__name__)


@dataclass(repr=False, eq=False)
class Campaign(AbstractContextManager["Campaign"]):
    """Label a folder of images, round after round, and lose nothing; make one with `create` or `open`.

    >>> import tailwise
    >>> from tempfile import mkdtemp
    >>> from PIL import Image
    >>> photos = Path(mkdtemp())
    >>> for shade in (10, 200):
    ...     Image.new("L", (8, 8), shade).save(photos / f"{shade}.png")
    >>> with tailwise.Campaign.create(Path(mkdtemp()) / "birds", photos, ["owl", "kite"]) as campaign:
    ...     _ = campaign.label("10.png", "owl")
    ...     campaign.labels()
    {'10.png': 'owl'}
    """

    ledger: Ledger

    @classmethod
    def create(
        cls, folder: str | Path, images: str | Path | Sequence[str | Path], classes: Sequence[str] = (), *,
        labels: str | Path | None = None, report: Progress = no_progress, purpose: str = PURPOSE,
        **settings: Any,  # noqa: ANN401 - whatever a setting holds; checked
    ) -> Self:  # fmt: skip
        """Make a campaign's folder, index the images where they lie, and import labels that are there already.

        The images are read and never touched. Without classes, those of the labels are taken. `settings` are those
        of `tailwise.campaign.state.Settings`.

        >>> Campaign.create("birds", "no-such-folder", ["owl"])
        Traceback (most recent call last):
        tailwise.errors.BadFile: no folder at ...no-such-folder; name the folder of your images
        """
        home = usable(folder).resolve()
        roots = image_folders(images, home)
        classes = check_class_names(classes)
        changed_settings(Settings(), settings)
        ledger = Ledger.create(home, purpose=purpose)
        try:
            campaign = cls(ledger)
            with ledger.writing():
                write_settings(ledger, **settings)
                add_classes(ledger, classes)
            for root in roots:
                campaign.index(root, report=report)
            if labels is not None:
                campaign.import_labels(labels, report=report, create_classes=not classes)
        except BaseException:
            ledger.close()
            raise
        return campaign

    @classmethod
    def open(
        cls, folder: str | Path, *, read_only: bool = False, purpose: str = PURPOSE, wait: float = BUSY_SECONDS
    ) -> Self:
        """Open a campaign; for writing, which one process does at a time, or for reading alone.

        >>> Campaign.open("no-such-folder")
        Traceback (most recent call last):
        tailwise.errors.BadFile: no campaign in ...no-such-folder; make one with `tailwise init`, or name its folder
        """
        return cls(Ledger.open(folder, read_only=read_only, purpose=purpose, wait=wait))

    def close(self) -> None:
        """Let other processes write; all that was said is on the disk already."""
        self.ledger.close()

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Campaign({str(self.folder)!r})"

    @property
    def folder(self) -> Path:
        """The campaign's folder."""
        return self.ledger.folder

    @property
    def name(self) -> str:
        """What it is called."""
        return self.settings.name or self.folder.name

    @property
    def settings(self) -> Settings:
        """The settings, used where a call does not name its own."""
        return read_settings(self.ledger)

    def configure(self, **changes: Any) -> Settings:  # noqa: ANN401 - whatever a setting holds; checked
        """Change settings, for instance `campaign.configure(budget=200, overlap=2)`."""
        return write_settings(self.ledger, **changes)

    def index(
        self, images: str | Path | None = None, *, dry_run: bool = False, report: Progress = no_progress
    ) -> Indexed:  # fmt: skip
        """Bring the ledger up to date with a folder of images; without one, with all that it knows.

        For instance `campaign.index()` after adding files, or `campaign.index("more-photos")`; with `dry_run`, only
        say what would be found.
        """
        roots = folders_in_use(self.ledger) if images is None else image_folders(images, self.folder)
        with self.ledger.writing(dry_run=True) if dry_run else nullcontext():
            found = _summed([index(self.ledger, root, report) for root in roots])
        log.info("indexed %d folders: %d new images, %d known", len(roots), found.added, found.known)
        if found.quarantined:
            log.warning("%d images cannot be used, such as %s: %s", len(found.quarantined), *found.quarantined[0])
        return found

    def status(self) -> Status:
        """How it stands, for instance `campaign.status().labelled`."""
        return read_status(self.ledger)

    def label(
        self,
        image: str | Path,
        cls: str | int | None,
        *,
        annotator: str = "me",
        key: str | None = None,
        source: str = "api",
    ) -> Recorded:
        """Say what an image shows: `campaign.label("10.png", "owl")`; None for none of the classes.

        The image is named by its path or its key. On return the answer is on the disk, with the last round that asked
        for the image and its model.
        """
        class_id = self._class_in_use(cls)
        kind = "other" if class_id is None else "label"
        return self._say(image, kind, class_id, annotator=annotator, key=key, source=source)

    def skip(
        self, image: str | Path, *, annotator: str = "me", key: str | None = None, source: str = "api"
    ) -> Recorded:  # fmt: skip
        """Leave an image to others: `campaign.skip("10.png")`; no answer, and its annotator is not asked again."""
        return self._say(image, "skip", None, annotator=annotator, key=key, source=source)

    def _say(
        self, image: str | Path, kind: str, class_id: int | None, *, annotator: str, key: str | None, source: str
    ) -> Recorded:  # fmt: skip
        row = locate(self.ledger, image)
        asked = asked_last(self.ledger, row.key)
        round_id, version = (None, None) if asked is None else (asked.round_id, asked.model_version)
        mark = uuid.uuid4().hex if key is None else key
        answer = Answer(mark, row.id, annotator, kind, class_id, None, round_id, version, source)
        return record(self.ledger, [answer])[0]

    def _class_in_use(self, cls: str | int | None) -> int | None:
        klass = None if cls is None else find_class(self.ledger, cls)
        if klass is not None and klass.retired:
            raise BadInput(f"the class {klass.name!r} is retired; restore it, or take another")
        return None if klass is None else klass.id

    def undo(self, annotator: str = "me", *, key: str | None = None) -> Undone | None:
        """Undo the last answer of a person, or the answer or decision with a key; None without an answer to undo."""
        return undo(self.ledger, uuid.uuid4().hex, annotator, undoes_key=key)

    def conflicts(self) -> list[Conflict]:
        """The images that people see differently: `[one.image for one in campaign.conflicts()]`."""
        return conflicts(self.ledger)

    def settle(
        self, image: str | Path, cls: str | int | None, *, annotator: str = "me", key: str | None = None,
        found_by: str | None = None,
    ) -> Recorded:  # fmt: skip
        """Decide an image that people see differently: `campaign.settle("10.png", "owl")`; None: not in any class.

        The answers stay next to the decision, and the last decision counts.
        """
        row = locate(self.ledger, image)
        if not is_answered(self.ledger, row.id):
            raise BadInput(f"asked to settle {row.path}, which nobody has answered; label it instead")
        number = self._class_in_use(cls)
        mark = key or uuid.uuid4().hex
        return settle(
            self.ledger, key=mark, image=row.id, annotator=annotator, class_id=number, found_by=found_by
        )  # fmt: skip

    def review(self, count: int | None = None, *, report: Progress = no_progress) -> list[LabelError]:
        """Labels that are likely wrong, worst first, or so many: `[one.reason for one in campaign.review()]`."""
        from .review import label_errors

        return label_errors(self, count, report=report)

    def duplicates(self, *, report: Progress = no_progress) -> list[DuplicateGroup]:
        """Groups of images that look alike: `[group.labels for group in campaign.duplicates() if group.disagree]`."""
        from .duplicates import find_duplicates

        return find_duplicates(self, report=report)

    def label_group(
        self, images: Sequence[str | Path], cls: str | int | None, *, annotator: str = "me", batch: str = ""
    ) -> list[Recorded]:  # fmt: skip
        """Label look-alikes at once, all or none; `answers.undo_batch` takes a batch back, all or none."""
        from .duplicates import label_group

        return label_group(self, images, self._class_in_use(cls), annotator=annotator, batch=batch or uuid.uuid4().hex)

    def agreement(self, round_id: int | None = None) -> AnnotatorAgreement:
        """How far people agree, over all or over one round: `campaign.agreement().alpha.value`."""
        from .learning_curve import annotator_agreement

        return annotator_agreement(self, round_id)

    def labels(self) -> dict[str, str]:
        """Decided images with their classes, by path: `{"10.png": "owl"}`; with two folders, by whole path."""
        rows = self.ledger.read(
            "SELECT f.path AS folder, i.path, c.name FROM current_label AS l JOIN image AS i ON i.id = l.image_id "
            "JOIN folder AS f ON f.id = i.folder_id JOIN class AS c ON c.id = l.class_id ORDER BY i.id"
        )
        whole = self.ledger.read("SELECT count(DISTINCT folder_id) FROM image")[0][0] > 1
        return {str(Path(row["folder"], row["path"])) if whole else row["path"]: row["name"] for row in rows}

    def gallery(self, *, sort: str = "path", count: int | None = None, **filters: Any) -> list[ListedImage]:  # noqa: ANN401 - those of `finding.list_images_by`
        """Images by what is known of them: `campaign.gallery(state="unlabelled", guess="owl", sort="confidence")`."""
        from .finding import list_images_by

        return list_images_by(self.ledger, sort=sort, count=count, **filters)

    def relabel(
        self, images: Sequence[str | Path], cls: str | int | None, *, annotator: str = "me", **options: Any,  # noqa: ANN401 - those of `relabelling.relabel`
    ) -> Relabelled:  # fmt: skip
        """Label many images at once, all or none: `campaign.relabel(["10.png", "11.png"], "owl").batch`."""
        from .relabelling import relabel

        ids = [locate(self.ledger, one).id for one in listed(images, "images", "a list of paths or keys")]
        return relabel(self.ledger, ids, self._class_in_use(cls), annotator, **options)

    def undo_batch(self, batch: str, *, annotator: str = "me") -> int:
        """Take back a whole `relabel`, and give how many images that changed: `campaign.undo_batch(done.batch)`."""
        from .relabelling import undo_batch

        return len(undo_batch(self.ledger, batch, annotator))

    def find(
        self, like: str | Path | Sequence[str | Path] | None = None, *, text: str | None = None,
        cls: str | int | None = None, count: int = 50, report: Progress = no_progress,
    ) -> list[FoundImage]:  # fmt: skip
        """Images like some, fitting a text, or likeliest of a class: `campaign.find(cls="owl")[0].path`."""
        from .finding import find

        return find(self.ledger, like, text=text, cls=cls, count=count, report=report)

    def picks(self, round: int | str = "open") -> list[RoundPick]:
        """The images of a round, best first, by default of the open one: `[one.path for one in campaign.picks()]`."""
        return read_picks(self.ledger, round)

    def rounds(self) -> list[Round]:
        """All rounds, the first one first: `campaign.rounds()[-1].strategy`."""
        return list_rounds(self.ledger)

    def classes(self, *, retired: bool = False) -> list[ClassRow]:
        """The classes in their order, for instance `[one.name for one in campaign.classes()]`."""
        return list_classes(self.ledger, retired=retired)

    def add_class(self, name: str) -> ClassRow:
        """Add a class behind the others: `campaign.add_class("heron")`."""
        return add_classes(self.ledger, [name])[0]

    def rename_class(self, name: str | int, new: str) -> ClassRow:
        """Give a class another name, and its labels with it: `campaign.rename_class("kite", "red kite")`."""
        return rename_class(self.ledger, name, new)

    def retire_class(self, name: str | int) -> ClassRow:
        """Offer a class no more; its labels are kept: `campaign.retire_class("kite")`."""
        return retire_class(self.ledger, name)

    def restore_class(self, name: str | int) -> ClassRow:
        """Bring a retired class back, with its labels: `campaign.restore_class("kite")`."""
        return retire_class(self.ledger, name, restore=True)

    def edit_class(self, name: str | int, **changes: Any) -> ClassRow:  # noqa: ANN401 - checked by `classes.edit_class`
        """Change `description`, `place`, `hotkey` or `examples`: `campaign.edit_class("kite", place=1, hotkey="k")`."""
        check_settings("a class", changes, ["description", "place", "hotkey", "examples"])
        return edit_class(self.ledger, name, **changes)

    def flag(self, image: str | Path, *, flagged: bool = True, annotator: str = "me") -> Note:
        """Mark an image for others to look at: `campaign.flag("10.png")`; or no more, with `flagged=False`."""
        return add_note(self.ledger, image, "flag" if flagged else "unflag", annotator=annotator)

    def comment(self, image: str | Path, text: str, *, annotator: str = "me") -> Note:
        """Note something about an image: `campaign.comment("10.png", "blurred")`."""
        return add_note(self.ledger, image, "comment", text, annotator=annotator)

    def notes(self, image: str | Path | None = None, *, flagged: bool = False) -> list[Note]:
        """Flags and comments, the oldest first: `[one.text for one in campaign.notes("10.png")]`."""
        return list_notes(self.ledger, image, flagged=flagged)

    def backup(self, out: str | Path | None = None, *, dry_run: bool = False) -> Path:
        """Copy the ledger, whole, into the folder's backups, and give the path: `campaign.backup()`.

        `out` is another folder, or a file that is not there yet. With `dry_run` nothing is written, and the path is the
        file, or the folder that would hold it.
        """
        place = self.folder / BACKUPS if out is None else usable(out)
        if out is not None and place.exists() and not place.is_dir():
            raise BadFile(f"{place} is there already; name a file that is not, or a folder")
        if dry_run:
            return place
        if out is None:
            return self.ledger.back_up()
        with self.ledger.reading() as connection:
            made = back_up(connection, place if place.is_dir() else place.parent, "asked")
        return made if place.is_dir() else made.replace(place)

    def next(
        self, budget: int | None = None, *, strategy: str | None = None, balance: str | float | None = None,
        calibration: str | None = None, seed: int | None = None, overlap: int | None = None, dry_run: bool = False,
        allow_unfinished: bool = False, skipped: bool = False, learner: object = None, audit: float | None = None,
        report: Progress = no_progress,
    ) -> Proposal:  # fmt: skip
        """Train on what is labelled and open the next round: `campaign.next(100)`; with `dry_run`, only propose it.

        What is not given is taken from the settings; the seed is the number of the round. With `allow_unfinished`,
        though the last round has images left; with `skipped`, also of images that people have skipped. `learner` is a
        name, or an object with `fit` and `predict_proba`, such as an estimator of scikit-learn; it gets features.
        `audit` is a share of the round that is drawn at random, such as 0.1 (see `audit`).
        """
        from .choosing import RoundOptions, next_round

        options = RoundOptions(
            budget, strategy, balance, calibration, seed, overlap, dry_run, allow_unfinished, skipped, learner,
            audit,
        )  # fmt: skip
        made = next_round(self, options, report=report)
        opened = "a dry run" if made.round is None else f"round {made.round.id}"
        log.info("%s: %d of %d images by %s", opened, len(made.picks), made.candidates, made.strategy)
        return made

    def import_labels(
        self, path: str | Path, *, format: str | None = None, annotator: str = "import", dry_run: bool = False,
        report: Progress = no_progress, **options: Any,  # noqa: ANN401 - those of `importing.import_file`
    ) -> Imported:  # fmt: skip
        """Read labels that were made elsewhere: `campaign.import_labels("labels.csv")`; the format is guessed."""
        from .importing import import_file

        return import_file(self, path, format=format, annotator=annotator, dry_run=dry_run, report=report, **options)

    def export(
        self, out: str | Path, *, format: str | None = None, dry_run: bool = False, report: Progress = no_progress,
        **options: Any,  # noqa: ANN401 - those of `exporting.export`
    ) -> Path:  # fmt: skip
        """Write the labels for other programs: `campaign.export("labels.csv")`; gives where they are."""
        from .exporting import export

        return export(self, out, format=format, dry_run=dry_run, report=report, **options)

    def doctor(
        self, fix: Sequence[str] = (), *, dry_run: bool = False, mend: Sequence[str] = ()
    ) -> list[Finding]:  # fmt: skip
        """Look for faults, `campaign.doctor()`, or fix those that are named; returns what is found afterwards.

        With `dry_run` nothing is changed, and the findings that would be fixed are returned. `mend` is an older name of
        `fix`.
        """
        from . import doctor

        names = [*listed(fix, "fix", "a list of names of faults"), *mend]
        if dry_run and names:
            return doctor.fixable(self, names)
        return doctor.fix(self, names) if names else doctor.examine(self)

    def advise(self) -> Advice:
        """Whether another round is worth it, `campaign.advise().worth_it`, with the evidence."""
        from .advice import advise

        return advise(self)

    def audit(self, *, wanted: float | None = None, report: Progress = no_progress) -> Audit:
        """What the images drawn at random say: `campaign.audit().accuracy`; and whether labelling can stop.

        `wanted` is the accuracy to reach, by default that of the settings. The draws are made by `next(audit=0.1)`.
        """
        from .audit import audit

        return audit(self, wanted=wanted, report=report)

    def learning_curve(self, *, report: Progress = no_progress) -> Curve:
        """How good the model was after each round, by cross-validation: `campaign.learning_curve().points`."""
        from .learning_curve import learning_curve

        return learning_curve(self, report=report)

    def map(self, method: str = "auto", *, redo: bool = False, report: Progress = no_progress) -> Projection:
        """All usable images in two dimensions, alike ones close together: `campaign.map().xy`, (n, 2) in [0, 1].

        By UMAP where it is installed (`pip install 'tailwise[map]'`), otherwise by PCA. The map is stored: images that
        are added later are placed on it, and `redo` draws it anew.
        """
        from .projection import project

        return project(self, method, redo=redo, report=report)

    def report(self, out: str | Path | None = None, *, dry_run: bool = False, report: Progress = no_progress) -> Path:
        """Write a page with figures and tables, and give its path: `campaign.report()`; with `dry_run`, the path alone.

        It is written into the campaign's folder, or into the one that `out` names.
        """
        from ..report.campaign_page import campaign_report_place, write_campaign_report

        return campaign_report_place(self, out) if dry_run else write_campaign_report(self, out, report=report)

    def serve(self, **options: Any) -> Page:  # noqa: ANN401 - those of `web.serve.Options`
        """Serve the labelling page while a block runs: `with campaign.serve() as page: print(page.link); input()`.

        In a notebook `page = campaign.serve().start()` serves until `page.stop()`, and `page` shows a link without the
        campaign's token, which is of no use afterwards: the notebook can be shared. `options` are those of
        `tailwise label`: `host`, `port`, `blind`, `overlap` and the other fields of `tailwise.web.serve.Options`. The
        block may use the campaign, too; the page ends with it.
        """
        from ..web.serve import Options, Page

        check_settings("the labelling page", options, [one.name for one in fields(Options)])
        return Page(self, Options(**options))


def _summed(parts: Sequence[Indexed]) -> Indexed:
    return Indexed(
        sum(part.added for part in parts), sum(part.known for part in parts), sum(part.moved for part in parts),
        tuple(path for part in parts for path in part.changed), tuple(path for part in parts for path in part.missing),
        sum(part.duplicates for part in parts), tuple(bad for part in parts for bad in part.quarantined),
        tuple(other for part in parts for other in part.passed_over),
    )  # fmt: skip
