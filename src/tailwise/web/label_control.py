"""A Label Studio configuration: XML in, the control that asks for the class and its choices out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..campaign.formats.label_studio import CONTROL, OBJECT
from ..campaign.formats.untrusted import xml_of
from ..errors import BadFile, BadInput


@dataclass(frozen=True, slots=True)
class Control:
    """Where a prediction goes; as `tailwise export` names it where nothing else is said."""

    from_name: str = CONTROL
    to_name: str = OBJECT
    choices: Mapping[str, str] = field(default_factory=dict)  # as shown → as kept, which an alias makes another

    def choice(self, name: str) -> str:
        """What a class is called in results."""
        return self.choices.get(name, name)


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
