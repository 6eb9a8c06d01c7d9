"""Routes of the classes view and of notes: guidelines for all, changes of classes for the owner, flags and comments."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import Field

from ..campaign import answers, classes, notes
from ..campaign.images import SEAL_DIGITS
from ..campaign.ledger import Ledger
from . import schemas, views
from .routes import ERRORS, OWNER, WRITE_ERRORS, CurrentService
from .schemas import Annotator, ClassId, Count, ImageKey, Key, RequestBody, ResponseBody

MOST_SHOWN = 200  # images to choose examples from

classes_api = APIRouter(prefix="/api", responses=ERRORS)


class ShownImage(ResponseBody):
    """An image by its key, and the seal of its bytes."""

    image: str
    seal: str


class ClassDetails(schemas.LabelClass):
    """A class with its guidelines."""

    description: str
    examples: list[ShownImage]
    labelled: Count = Field(description="decided images")


class Classes(ResponseBody):
    """All classes: those in use in their order, then the retired ones."""

    items: list[ClassDetails]
    version: Count = Field(description="counts up with each change of a class; `classes_version` of the state")
    command_keys: str = Field(description="characters that cannot be the key of a class, as the page uses them")


class AddClass(RequestBody):
    """Adds a class behind the others."""

    name: str = Field(min_length=1, max_length=classes.MOST_CLASS)


class EditClass(RequestBody):
    """Changes a class; what is left out stays as it is."""

    class_id: ClassId
    name: str | None = Field(default=None, min_length=1, max_length=classes.MOST_CLASS)
    retired: bool | None = None
    description: str | None = Field(default=None, max_length=4 * classes.MOST_DESCRIPTION)
    place: int | None = Field(default=None, ge=1, le=schemas.FAR, description="among those in use, from 1")
    hotkey: str | None = Field(default=None, max_length=8, description="one character; empty: none of its own")
    examples: list[ImageKey] | None = Field(default=None, max_length=classes.MOST_EXAMPLES)


class LabelledQuery(schemas.Query):
    """A class, and how many of its images."""

    class_id: int = Field(ge=1, le=schemas.FAR)
    limit: int = Field(default=60, ge=1, le=MOST_SHOWN)


class LabelledImages(ResponseBody):
    """Images that are labelled as a class, the latest first."""

    items: list[ShownImage]


class AddNote(RequestBody):
    """A flag, the end of a flag, or a comment."""

    annotator: Annotator
    key: Key
    image: ImageKey
    kind: Literal["flag", "unflag", "comment"]
    text: str = Field(default="", max_length=4 * notes.MOST_COMMENT)


class NotesQuery(schemas.Query):
    """The image whose notes are asked for."""

    image: ImageKey


class NoteShown(ResponseBody):
    """What somebody noted about an image."""

    id: int
    annotator: str
    kind: str
    text: str
    at: int  # microseconds since 1970

    @classmethod
    def of(cls, one: notes.Note) -> NoteShown:
        """Without the path of its image."""
        return cls(id=one.id, annotator=one.annotator, kind=one.kind, text=one.text, at=one.at)


class Notes(ResponseBody):
    """Comments on an image, the oldest first, and whether it is flagged."""

    flagged: bool
    items: list[NoteShown]


@classes_api.get("/classes")
async def all_classes(service: CurrentService) -> Classes:
    """All classes with their guidelines."""
    return await service.read(read_classes)


@classes_api.post("/classes/add", responses=WRITE_ERRORS, dependencies=OWNER)
async def add_class(service: CurrentService, body: AddClass) -> Classes:
    """Add a class; pages that are open show it within seconds."""

    def add(ledger: Ledger) -> Classes:
        classes.add_classes(ledger, [body.name])
        return read_classes(ledger)

    return await service.write(add)


@classes_api.post("/classes/edit", responses=WRITE_ERRORS, dependencies=OWNER)
async def edit_class(service: CurrentService, body: EditClass) -> Classes:
    """Rename, retire, restore, describe or move a class, change its key or examples: all of it, or nothing."""

    def edit(ledger: Ledger) -> Classes:
        with ledger.writing():
            if body.name is not None:
                classes.rename_class(ledger, body.class_id, body.name)
            if body.retired is not None:
                classes.retire_class(ledger, body.class_id, restore=not body.retired)
            classes.edit_class(
                ledger, body.class_id, description=body.description, place=body.place, hotkey=body.hotkey,
                examples=body.examples,
            )  # fmt: skip
        return read_classes(ledger)

    return await service.write(edit)


@classes_api.get("/classes/labelled")
async def labelled(service: CurrentService, query: Annotated[LabelledQuery, Query()]) -> LabelledImages:
    """Images of a class, to choose examples from."""
    return await service.read(lambda ledger: labelled_images(ledger, query.class_id, query.limit))


@classes_api.get("/notes")
async def image_notes(service: CurrentService, query: Annotated[NotesQuery, Query()]) -> Notes:
    """Flags and comments of one image."""
    return await service.read(lambda ledger: notes_of(ledger, query.image))


@classes_api.post("/note", responses=WRITE_ERRORS)
async def add_note(service: CurrentService, body: AddNote) -> Notes:
    """Flag, unflag or comment on an image; the same key twice is recorded once."""

    def add(ledger: Ledger) -> Notes:
        notes.add_note(ledger, body.image, body.kind, body.text, annotator=body.annotator, key=body.key)
        return notes_of(ledger, body.image)

    return await service.write(add)


def read_classes(ledger: Ledger) -> Classes:
    """Everything about the classes."""
    examples: dict[int, list[ShownImage]] = {}
    for one in classes.list_examples(ledger):
        examples.setdefault(one.class_id, []).append(ShownImage(image=one.key, seal=one.seal))
    labels = answers.counts(ledger)
    known = {one.id: one for one in classes.list_classes(ledger, retired=True)}
    items = [
        ClassDetails(
            **shown.model_dump(), description=known[shown.id].description, examples=examples.get(shown.id, []),
            labelled=labels.get(shown.id, 0),
        )
        for shown in views.label_classes(ledger)
    ]  # fmt: skip
    return Classes(items=items, version=views.classes_version(ledger), command_keys=classes.COMMAND_KEYS)


def labelled_images(ledger: Ledger, class_id: int, limit: int) -> LabelledImages:
    """Decided images of a class that can be shown, those answered last first."""
    rows = ledger.read(
        "SELECT i.key, substr(coalesce(i.sha256, ''), 1, ?) AS seal FROM current_label AS l "
        "JOIN image AS i ON i.id = l.image_id WHERE l.class_id = ? AND i.trouble IS NULL "
        "ORDER BY (SELECT max(e.id) FROM event AS e WHERE e.image_id = i.id) DESC LIMIT ?",
        (SEAL_DIGITS, class_id, limit),
    )
    return LabelledImages(items=[ShownImage(image=row["key"], seal=row["seal"]) for row in rows])


def notes_of(ledger: Ledger, image: str) -> Notes:
    """The comments, and the last flag where it stands."""
    found = notes.list_notes(ledger, image)
    flags = [one for one in found if one.kind != "comment"]
    flagged = bool(flags) and flags[-1].kind == "flag"
    shown = [one for one in found if one.kind == "comment" or (flagged and one is flags[-1])]
    return Notes(flagged=flagged, items=[NoteShown.of(one) for one in shown])
