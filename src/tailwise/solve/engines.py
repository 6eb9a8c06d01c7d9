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
from ..inputs import shown, whole_number
from .shards import LocalHands, Rows, shard_bounds

if TYPE_CHECKING:
    from .matrices import Matrix

Engine: TypeAlias = "Callable[[Matrix, str, int | None], AbstractContextManager[Rows]]"
GROUP = "tailwise.engines"
LOCAL = "local"
ADDRESS, ADDRESS_OF = re.compile(r"auto|[^\s/=]+:\d+"), "ray"  # an address alone is one of Ray's


@contextmanager
def rows_on(matrix: Matrix, engine: str = LOCAL, shards: int | None = None) -> Iterator[Rows]:
    """Rows on an engine: "local", or the name of another, perhaps with an address ("ray=host:6379")."""
    if shards is not None:
        shards = min(whole_number(shards, "shards", least=1, but=", or None"), max(1, matrix.shape[0]))
    named: object = engine
    if isinstance(named, str) and named == LOCAL:
        yield Rows(hands=LocalHands(matrix, shard_bounds(*matrix.shape, shards or 1)))
        return
    with _find(engine)(matrix, engine, shards) as rows:
        yield rows


def _find(engine: str) -> Engine:
    """The engine that a name, a name with an address, or an address alone belongs to."""
    if not isinstance(engine, str):
        raise BadInput(f"the engine is {shown(engine)}; it must be a name such as {LOCAL!r} or 'ray'")
    name = ADDRESS_OF if ADDRESS.fullmatch(engine) else re.split(r"\W", engine, maxsplit=1)[0]
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in known:
        forms = [LOCAL, *(f"{one}, {one}=HOST:PORT" for one in sorted(known))]
        raise UnknownName(f"no engine is called {shown(engine)}; known: {', '.join(forms)}")
    found: Engine = known[name].load()
    return found
