"""A Label Studio configuration: XML in, the control that asks for the class and its choices out.

What Label Studio sends to an ML backend, as far as it is used, and what it wants back; the rest is passed over.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..errors import BadFile, BadInput
from ..formats.label_studio import CONTROL, OBJECT
from ..formats.reading import xml_of

MOST_PROJECTS = 1000
MOST_NAME = 40


@dataclass(frozen=True, slots=True)
class Control:
    """Where a prediction goes; as `tailwise export` names it where nothing else is said."""

    from_name: str = CONTROL
    to_name: str = OBJECT
    choices: Mapping[str, str] = field(default_factory=dict)  # as shown → as kept, which an alias makes another

    def choice(self, name: str) -> str:
        """What a class is called in results."""
        return self.choices.get(name, name)

    def shown(self, choice: str) -> str:
        """What people see for a choice of a result: the other way round.

        >>> Control(choices={"owl": "o", "gull": "gull"}).shown("o")
        'owl'
        """
        return next((name for name, kept in self.choices.items() if kept == choice), choice)


class Controls:
    """The controls of the projects that were heard of; a message without a configuration is read by the last one."""

    def __init__(self) -> None:
        self._kept: dict[str, Control] = {}

    def learn(self, project: object, config: str | None) -> Control:
        """The control of a project, by its configuration where there is one."""
        number = _number(project)
        if config:
            found = read_control(config)
            if number in self._kept or len(self._kept) < MOST_PROJECTS:
                self._kept[number] = found
            return found
        return self._kept.get(number, Control())


def _number(project: object) -> str:
    """Label Studio names a project by an object with its id, by its id, or by "id.moment".

    >>> _number({"id": 3}), _number(3), _number("3.1762905600")
    ('3', '3', '3')
    """
    name = project.get("id") if isinstance(project, dict) else project
    return str(name)[:MOST_NAME].partition(".")[0]


def read_control(config: str | None) -> Control:
    """The first control with choices.

    >>> read_control('<View><Choices name="kind" toName="img"><Choice value="owl" alias="o"/></Choices></View>')
    Control(from_name='kind', to_name='img', choices={'owl': 'o'})
    """
    if not config:
        return Control()
    try:
        root = xml_of(config.encode("utf-8"), "the labelling configuration")
    except BadFile as error:
        raise BadInput(str(error)) from error
    tag = next(root.iter("Choices"), None)
    if tag is None:
        return Control()
    values = {name: one.get("alias") or name for one in tag.iter("Choice") if (name := one.get("value"))}
    return Control(tag.get("name", CONTROL), tag.get("toName", OBJECT), values)


MOST_TASKS = 10_000


class Sent(BaseModel):
    """A message of Label Studio, whose versions differ in what else they send."""

    model_config = ConfigDict(frozen=True, extra="ignore", protected_namespaces=())


class Health(BaseModel):
    """That the server is up, and nothing else."""

    status: Literal["UP"] = "UP"
    model_class: Literal["Tailwise"] = "Tailwise"


class Setup(Sent):
    """A project is being connected."""

    project: Any = None
    label_schema: str | None = Field(default=None, alias="schema")  # the labelling configuration, XML


class SetupDone(BaseModel):
    """Which model answers."""

    model_config = ConfigDict(protected_namespaces=())

    model_version: str


class Predict(Sent):
    """Tasks to be guessed."""

    tasks: list[dict[str, Any]] = Field(max_length=MOST_TASKS)
    project: Any = None
    label_config: str | None = None


class Choices(BaseModel):
    """The class, as the project's configuration calls it."""

    choices: list[str]


class Region(BaseModel):
    """A guess, as a result of the control that asks for it."""

    from_name: str
    to_name: str
    type: Literal["choices"] = "choices"
    value: Choices
    score: float


class Prediction(BaseModel):
    """For one task; without a result where its image is not in the campaign, or no model is there yet."""

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
    """What came of a message."""

    accepted: int = Field(default=0, ge=0, description="annotations that are recorded")
    taken_back: int = Field(default=0, ge=0, description="deleted annotations whose answers are undone")
    left_out: list[str] = Field(default=[], description="of annotations that were not, why; at most twenty")
    training: str | None = Field(default=None, description='"started", or why not')
