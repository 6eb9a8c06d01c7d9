"""The one `Campaign` that the command line, the page and Python call; each method calls the module that does the work.

Methods that take long report through `report` (`tailwise.types.Progress`). With `dry_run` a method checks everything,
returns what it would do, and writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from ..errors import BadFile
from ..files import usable
from ..inputs import check_settings, listed
from ..types import Progress, no_progress
from .classes import (
    add_classes,
    check_class_names,
)
from .database import BACKUPS, BUSY_SECONDS, back_up
from .images import folders_in_use, image_folders
from .indexing import Indexed, index
from .labelling import Labelling
from .ledger import PURPOSE, Ledger
from .rounds import Round, RoundPick, list_rounds, read_picks
from .state import Settings, Status, changed_settings, read_settings, read_status, write_settings

if TYPE_CHECKING:
    from ..web.serve import Page
    from .advice import Advice
    from .audit import Audit
    from .choosing import Proposal
    from .doctor import Finding
    from .importing import Imported
    from .learning_curve import Curve
    from .projection import Projection


log = logging.getLogger(__name__)


@dataclass(repr=False, eq=False)
class Campaign(Labelling, AbstractContextManager["Campaign"]):
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

    def picks(self, round: int | str = "open") -> list[RoundPick]:
        """The images of a round, best first, by default of the open one: `[one.path for one in campaign.picks()]`."""
        return read_picks(self.ledger, round)

    def rounds(self) -> list[Round]:
        """All rounds, the first one first: `campaign.rounds()[-1].strategy`."""
        return list_rounds(self.ledger)

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
