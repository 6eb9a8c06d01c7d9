"""Label Studio as a client: its labelling configuration, its annotations as answers, predictions for its tasks.

Images are matched by path; nothing that a task names is ever fetched. The key of an answer contains the id of its
annotation: sent twice it counts once, and deleted in Label Studio it is undone here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..campaign import answers, leases
from ..campaign.answers import LATEST, Answer, Refused
from ..campaign.classes import ClassRow, clean_annotator, find_class, list_classes
from ..campaign.images import Matcher
from ..campaign.ledger import Ledger
from ..campaign.models import newest_model
from ..campaign.rounds import current_round, round_picks
from ..errors import BadInput, TailwiseError, UnknownName
from ..formats.base import Record
from ..formats.label_studio import task_records
from ..formats.label_studio_api import (
    KEY_VARIABLE,
    Connection,
    Control,
    PlaceOf,
    Studio,
    bring_round,
    read_control,
)
from .predictions import ModelPredictions
from .settings import get_log
from .views import Read

log = get_log(__name__)

NO_MODEL = "untrained"
ANNOTATOR = "label-studio"  # of annotations that name nobody
SOURCE = "import"
KEY_DIGITS = 24
MOST_NUMBER = 1 << 63
MOST_PROJECTS = 1000
MOST_NAME = 40
MOST_TASKS = 10_000


@dataclass(frozen=True, slots=True)
class Controls:
    """The controls of known projects; a message without a configuration uses the last one of its project."""

    known: dict[str, Control] = field(default_factory=dict)

    def learn(self, project: object, config: str | None) -> Control:
        """The control of a project, updated where the message has a configuration."""
        number = _project_id(project)
        if config:
            found = read_control(config)
            if number in self.known or len(self.known) < MOST_PROJECTS:
                self.known[number] = found
            return found
        return self.known.get(number, Control())


def _project_id(project: object) -> str:
    """Label Studio names a project by an object with its id, by its id, or by "id.moment".

    >>> _project_id({"id": 3}), _project_id(3), _project_id("3.1762905600")
    ('3', '3', '3')
    """
    name = project.get("id") if isinstance(project, dict) else project
    return str(name)[:MOST_NAME].partition(".")[0]


# Messages of the ML backend protocol, as far as they are used.


class Sent(BaseModel):
    """Base of messages from Label Studio; unknown fields, which differ by version, are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Health(BaseModel):
    """The server is up."""

    status: Literal["UP"] = "UP"
    model_class: Literal["Tailwise"] = "Tailwise"


class Setup(Sent):
    """A project is being connected."""

    project: Any = None
    label_schema: str | None = Field(default=None, alias="schema")  # the labelling configuration, XML


class SetupDone(BaseModel):
    """The model that predicts."""

    model_config = ConfigDict(protected_namespaces=())

    model_version: str


class Predict(Sent):
    """Tasks to predict."""

    tasks: list[dict[str, Any]] = Field(max_length=MOST_TASKS)
    project: Any = None
    label_config: str | None = None


class Choices(BaseModel):
    """The class, as the project's configuration calls it."""

    choices: list[str]


class Region(BaseModel):
    """A prediction, as a result of the control."""

    from_name: str
    to_name: str
    type: Literal["choices"] = "choices"
    value: Choices
    score: float


class Prediction(BaseModel):
    """For one task; empty where its image is not in the campaign, or before the first model."""

    model_config = ConfigDict(protected_namespaces=())

    result: list[Region]
    score: float = Field(ge=0, le=1)
    model_version: str


class Predictions(BaseModel):
    """One for each task, in their order."""

    model_config = ConfigDict(protected_namespaces=())

    results: list[Prediction]
    model_version: str


class Webhook(Sent):
    """Something happened in a project; annotations come one by one or many at once."""

    action: str = Field(max_length=100)
    project: Any = None
    annotation: Any = None
    annotations: Any = None
    task: Any = None
    tasks: Any = None


class Accepted(BaseModel):
    """What was done with a message."""

    accepted: int = Field(default=0, ge=0, description="annotations that are recorded")
    taken_back: int = Field(default=0, ge=0, description="deleted annotations whose answers are undone")
    left_out: list[str] = Field(default=[], description="why annotations were not recorded; at most twenty")
    training: str | None = Field(default=None, description='"started", or why not')


# Annotations.


def annotated_tasks(message: Webhook) -> list[dict[str, Any]]:
    """Tasks with their annotations in a message; each annotation names its task, or there is one task only."""
    annotations = objects_in(message.annotation, message.annotations)
    tasks = {_number(one.get("id")): one for one in objects_in(message.task, message.tasks)}
    if not tasks or not annotations:
        return []
    only = next(iter(tasks.values())) if len(tasks) == 1 else {}
    paired = [(tasks.get(_task_id(one), only), one) for one in annotations]
    return [{"id": task.get("id"), "data": task.get("data"), "annotations": [one]} for task, one in paired if task]


def objects_in(*fields: object) -> list[dict[str, Any]]:
    """The objects in fields of a message, each of which holds one value, many or none.

    >>> objects_in({"id": 1}, [{"id": 2}, 3], None)
    [{'id': 1}, {'id': 2}]
    """
    values = [one for value in fields for one in (value if isinstance(value, list) else [value])]
    return [one for one in values if isinstance(one, dict)]


def _task_id(annotation: Mapping[str, Any]) -> int | str | None:
    task = annotation.get("task")
    return _number(task.get("id") if isinstance(task, dict) else task)


def _number(value: object) -> int | str | None:
    return value if isinstance(value, int | str) else None


def config_of(project: object) -> str | None:
    """The configuration in a message, where there is one."""
    config = project.get("label_config") if isinstance(project, dict) else None
    return config if isinstance(config, str) else None


@dataclass(frozen=True, slots=True)
class Annotations:
    """The annotations of one message, as answers."""

    answers: tuple[Answer, ...]  # those that fit
    left_out: tuple[str, ...]  # why the others do not


def read_annotations(
    ledger: Ledger, images: Matcher, tasks: Iterable[Mapping[str, Any]], control: Control
) -> Annotations:  # fmt: skip
    """The answers in tasks with one annotation each; nothing is written."""
    classes = [one.name for one in list_classes(ledger)]
    connection = Connection.read(ledger.folder)
    people = {} if connection is None else connection.people
    fitting, left_out = [], []
    for number, task in enumerate(tasks, start=1):
        records, problems = task_records(task, number, classes)
        left_out += problems
        for record in records:
            try:
                known = replace(record, annotator=people.get(record.annotator, record.annotator))
                fitting.append(_answer(ledger, images, known, task["annotations"][0], control))
            except (BadInput, UnknownName) as error:
                left_out.append(f"task {task.get('id', number)} ({record.path}): {error}")
    return Annotations(tuple(fitting), tuple(left_out))


def record_annotations(ledger: Ledger, given: Sequence[Answer]) -> list[str]:
    """Record answers that are new; returns why others were rejected."""
    new = (answer for answer in given if not _is_recorded(ledger, answer))
    outcomes = [one for answer in new for one in answers.record_each(ledger, [answer])]
    return [one.reason for one in outcomes if isinstance(one, Refused)]


def take_back(ledger: Ledger, annotations: Iterable[object]) -> list[str]:
    """Undo the answers of annotations, by their ids; returns those that have none here."""
    left_out = []
    for number in annotations:
        given = _given(ledger, number)
        for row in given:
            answers.undo(ledger, f"gone-{row['key']}", row["annotator"], undoes_key=row["key"], source=SOURCE)
            leases.release(ledger, row["annotator"], [row["image_id"]])  # nobody waits here to answer it again
        if not given:
            left_out.append(f"annotation {number}: no answer here came from it, or it is undone already")
    return left_out


def _answer(
    ledger: Ledger, images: Matcher, record: Record, annotation: Mapping[str, Any], control: Control
) -> Answer:  # fmt: skip
    place = images.find(record)
    if isinstance(place, str):
        raise BadInput(place)
    annotator = clean_annotator(record.annotator or ANNOTATOR)
    class_id = None if record.label is None else _class(ledger, record.label, control).id
    at = record.at if record.at is not None and 0 <= record.at < LATEST else None
    known = ledger.read("SELECT 1 FROM model WHERE version = ?", (record.model_version,))
    version = record.model_version if known else None
    facts = [place.key, annotator, record.kind, class_id, annotation.get("updated_at", annotation.get("created_at"))]
    digest = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:KEY_DIGITS]
    key = f"{_prefix(annotation.get('id'))}{digest}"
    return Answer(key, place.id, annotator, record.kind, class_id, at, model_version=version, source=SOURCE)


def _class(ledger: Ledger, choice: str, control: Control) -> ClassRow:
    """The class of a choice: by its name in the configuration, else by the choice itself."""
    try:
        found = find_class(ledger, control.shown(choice))
    except UnknownName:
        found = find_class(ledger, choice)
    if found.retired:
        raise BadInput(f"the class {found.name!r} is retired; restore it with `tailwise classes`")
    return found


def _prefix(number: object) -> str:
    """How the keys of an annotation's answers begin.

    >>> _prefix(12), _prefix("12"), _prefix(None)
    ('ls-12-', 'ls-x-', 'ls-x-')
    """
    known = isinstance(number, int) and not isinstance(number, bool) and 0 <= number < MOST_NUMBER
    return f"ls-{number}-" if known else "ls-x-"


def _is_recorded(ledger: Ledger, answer: Answer) -> bool:
    """Whether this annotator has given this answer already."""
    rows = ledger.read(
        "SELECT 1 FROM answer WHERE image_id = ? AND annotator = ? AND kind = ? AND class_id IS ?",
        (answer.image, answer.annotator, answer.kind, answer.class_id),
    )
    return bool(rows)


def _given(ledger: Ledger, number: object) -> Sequence[Mapping[str, Any]]:
    """The valid answers that came from an annotation, the latest first."""
    prefix = _prefix(number)
    if prefix == _prefix(None):
        return []
    rows = ledger.read(
        "SELECT key, annotator, image_id FROM standing WHERE key >= ? AND key < ? AND source = ? ORDER BY id DESC",
        (prefix, f"{prefix[:-1]}.", SOURCE),  # a full stop comes right after a hyphen
    )
    return [dict(row) for row in rows]


# Predictions.


@dataclass(frozen=True, slots=True)
class OpenRound:
    """The images of the open round by rank, and those that need no more answers: first and last in Label Studio."""

    number: int = 0  # 0: none is open
    ranks: Mapping[int, int] = field(default_factory=dict)  # image → rank, from 1
    done: frozenset[int] = frozenset()

    @classmethod
    def read(cls, ledger: Ledger, images: Sequence[int] = ()) -> OpenRound:
        """As it is now; which of these images are done."""
        current = current_round(ledger)
        if current is None:
            return cls()
        picks = round_picks(ledger, current.id)
        wanted = {pick.image: pick.wanted for pick in picks}
        rows = ledger.read(
            "SELECT image_id, sum(kind <> 'skip') FROM answer WHERE image_id IN (SELECT value FROM json_each(?)) "
            "GROUP BY image_id", (json.dumps(list(images)),),
        )  # fmt: skip
        done = frozenset(image for image, answers in rows if answers >= wanted.get(image, 1))
        return cls(current.id, {pick.image: rank for rank, pick in enumerate(picks, start=1)}, done)

    def score(self, image: int, share: float) -> float:
        """Label Studio shows the lowest score first: the round by rank, then images the model is unsure of.

        >>> one = OpenRound(3, {7: 1, 5: 2, 6: 3}, frozenset({6}))
        >>> [one.score(image, 0.8) for image in (7, 5, 9, 6)]
        [0.125, 0.25, 0.9, 1.0]
        """
        if not self.number:
            return share
        if image in self.done:
            return 1.0
        if image in self.ranks:
            return 0.5 * self.ranks[image] / (len(self.ranks) + 1)
        return 0.5 + 0.5 * share


def version_now(ledger: Ledger) -> str | None:
    """The version of the newest model; None before the first."""
    try:
        return newest_model(ledger).version
    except BadInput:
        return None


def version_shown(ledger: Ledger) -> str:
    """The version by which Label Studio distinguishes predictions: before the first model, that of the round.

    It fetches predictions again only when this changes.
    """
    current = current_round(ledger)
    untrained = NO_MODEL if current is None or current.id == 1 else f"{NO_MODEL}-{current.id}"
    return version_now(ledger) or untrained


def predictions(
    read: Read,
    images: Matcher,
    tasks: Iterable[Mapping[str, Any]],
    predicted: ModelPredictions | None,
    control: Control,
    *,
    blind: bool = False,
) -> Predictions:
    """One prediction for each task; its score is its place in the queue, its region's the probability.

    Where people label blind, the place alone.
    """
    names = {one.id: one.name for one in read(lambda ledger: list_classes(ledger, retired=True))}
    version = read(version_shown) if predicted is None else predicted.version
    found = [_image_id(images, task) for task in tasks]
    current = read(lambda ledger: OpenRound.read(ledger, [image for image in found if image is not None]))
    results = []
    for image in found:
        top = [] if predicted is None or image is None or blind else predicted.top(image)
        named = [(names[number], min(max(share, 0.0), 1.0)) for number, share in top[:1]]
        score = 1.0 if image is None and current.number else current.score(image or 0, named[0][1] if named else 0.0)
        results.append(_prediction(named, score, version, control))
    return Predictions(results=results, model_version=version)


def _image_id(images: Matcher, task: Mapping[str, Any]) -> int | None:
    records, _ = task_records({**task, "annotations": []}, 0, ())
    place = images.find(records[0]) if records else "no image"
    return None if isinstance(place, str) else place.id


def _prediction(top: list[tuple[str, float]], score: float, version: str, control: Control) -> Prediction:
    regions = [
        Region(
            from_name=control.from_name, to_name=control.to_name, score=share,
            value=Choices(choices=[control.choices.get(name, name)]),
        )
        for name, share in top
    ]  # fmt: skip
    return Prediction(result=regions, score=score, model_version=version)


# The open round, brought to a connected Label Studio.


def place_of(ledger: Ledger) -> PlaceOf:
    """Round and rank of the image of a task; None outside the open round."""
    current, images = OpenRound.read(ledger), Matcher(ledger)

    def place(task: Mapping[str, Any]) -> tuple[int, int] | None:
        rank = current.ranks.get(_image_id(images, task) or 0)
        return None if rank is None else (current.number, rank)

    return place


def follow_round(read: Read, folder: Path, key: str | None) -> None:
    """Bring the open round to the Label Studio that the campaign is connected with, if any; problems are logged."""
    try:
        connection = Connection.read(folder)
        if connection is None:
            return
        if not key:
            log.warning("Label Studio keeps its order: run `tailwise connect` again, or set %s here", KEY_VARIABLE)
            return
        tasks, found, version = bring_round(Studio(connection.url, key), connection.project, read(place_of))
        log.info("brought the open round to Label Studio: %d of %d tasks, model %s", found, tasks, version)
    except TailwiseError as error:
        log.warning("could not bring the open round to Label Studio: %s", error)
