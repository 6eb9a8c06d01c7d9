"""Where the work is done: rows in this process, or in an engine that another package brings along.

An engine is an entry point of the group `tailwise.engines`: a function (matrix, engine, shards) → context manager that
gives `Rows`. `tailwise[ray]` brings "ray".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, TypeAlias

from ..errors import BadInput, UnknownName
from .shards import LocalHands, Rows, shard_bounds

if TYPE_CHECKING:
    from .matrices import Matrix

Engine: TypeAlias = "Callable[[Matrix, str, int | None], AbstractContextManager[Rows]]"
GROUP = "tailwise.engines"
LOCAL = "local"


@contextmanager
def rows_on(matrix: Matrix, engine: str = LOCAL, shards: int | None = None) -> Iterator[Rows]:
    """Rows on an engine: "local", or the name of another, perhaps with an address ("ray=host:6379")."""
    if shards is not None and not shards >= 1:
        raise BadInput(f"shards is {shards!r}; it must be a whole number above 0, or None")
    if engine == LOCAL:
        yield Rows(hands=LocalHands(matrix, shard_bounds(*matrix.shape, shards or 1)))
        return
    with _find(engine)(matrix, engine, shards) as rows:
        yield rows


def _find(engine: str) -> Engine:
    """The engine that a name, or a name with an address, belongs to."""
    name = re.split(r"\W", engine, maxsplit=1)[0]
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in known:
        raise UnknownName(f"no engine is called {engine!r}; known: {', '.join([LOCAL, *sorted(known)])}")
    found: Engine = known[name].load()
    return found
