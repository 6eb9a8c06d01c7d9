"""A table of named things: registering twice is an error, asking for an unknown name lists the known ones."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, TypeVar

from .errors import BadInput, UnknownName
from .inputs import shown

Item = TypeVar("Item")


class Registry(Generic[Item]):
    """Names → items, in the order of registration.

    >>> colours: Registry[int] = Registry("colour")
    >>> _ = colours.register("red")(1)
    >>> colours["red"]
    1
    >>> colours["rad"]
    Traceback (most recent call last):
    tailwise.errors.UnknownName: no colour is called 'rad'; did you mean 'red'? Known: red
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, Item] = {}

    def register(self, name: str) -> Callable[[Item], Item]:
        """Decorate a function or a class to file it under a name."""

        def keep(item: Item) -> Item:
            if name in self._items:
                raise ValueError(f"a {self.kind} called {name!r} is registered already")
            self._items[name] = item
            return item

        return keep

    def __getitem__(self, name: str) -> Item:
        if not isinstance(name, str):
            raise UnknownName(f"{shown(name)} is not the name of a {self.kind}. Known: {', '.join(self._items)}")
        if name in self._items:
            return self._items[name]
        near = difflib.get_close_matches(name, self._items, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise UnknownName(f"no {self.kind} is called {shown(name)}{hint} Known: {', '.join(self._items)}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __len__(self) -> int:
        return len(self._items)


def check_settings(owner: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a setting that its owner does not have, and name those that it has.

    >>> check_settings("pool 'digits'", ["size"], [])
    Traceback (most recent call last):
    tailwise.errors.BadInput: pool 'digits' has no setting 'size'; its settings are none
    """
    names = list(known)
    if unknown := sorted(set(given) - set(names)):
        raise BadInput(f"{owner} has no setting {shown(unknown[0])}; its settings are {', '.join(names) or 'none'}")
