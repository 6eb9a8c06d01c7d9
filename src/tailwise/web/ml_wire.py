"""What Label Studio sends to an ML backend, as far as it is used, and what it wants back; the rest is passed over."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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
