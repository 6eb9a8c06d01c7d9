"""The part of `Campaign` that deals with images, labels and classes: say, find, review and correct.

Each method calls the module that does the work; `service.py` has the rest of the campaign.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BadInput
from ..inputs import check_settings, listed
from ..types import Progress, no_progress
from .answers import Answer, Conflict, Recorded, Undone, conflicts, is_answered, record, settle, undo
from .classes import ClassRow, add_classes, edit_class, find_class, list_classes, rename_class, retire_class
from .images import locate
from .ledger import Ledger
from .notes import Note, add_note, list_notes
from .rounds import asked_last

if TYPE_CHECKING:
    from .duplicates import DuplicateGroup
    from .finding import FoundImage, ListedImage
    from .learning_curve import AnnotatorAgreement
    from .relabelling import Relabelled
    from .review import LabelError


@dataclass(repr=False, eq=False)
class Labelling:
    """What people say of the images in a ledger, and how they find images."""

    ledger: Ledger

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
        """Change `description`, `place`, `hotkey` or `examples`: `campaign.edit_class("kite", place=1, hotkey="w")`."""
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
