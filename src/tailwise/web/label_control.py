"""A Label Studio configuration: XML in, the control that asks for the class and its choices out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..campaign.formats.label_studio import CONTROL, OBJECT
from ..campaign.formats.untrusted import xml_of
from ..errors import BadFile, BadInput

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
