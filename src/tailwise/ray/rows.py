"""Rows in the actors of a Ray cluster, with the same answers and picks as in one process.

Each actor holds one shard. An actor that dies is built again: its rows are read again, and the columns still in use are
computed again by the calls that made them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..errors import ClusterLost
from ..matrix import blocks
from ..matrix.open import TopK
from ..matrix.shard import Shard
from ..matrix.shards import Rows, shard_bounds
from ..types import FloatArray, IntArray
from .cluster import OBJECT_STORE, Cluster, connect, ray_module

if TYPE_CHECKING:
    from ..matrix.open import Matrix


# Methods of a shard that make a column, its key being their first argument, and where they name columns that they need.
MAKING: dict[str, tuple[int, ...]] = {
    "hold": (), "scan": (), "price": (1,), "price_roughly": (1,), "price_again": (1, 3), "subtract_hidden": (1,),
    "hidden": (), "distance": (1,), "minus_classes": (),
}  # fmt: skip
Keys: TypeAlias = tuple[Any, ...]  # of the columns that one call makes
Recipe: TypeAlias = tuple[str, Sequence[tuple[Any, ...]]]  # a method, and its arguments for each shard
MOST_REBUILDS = 8  # in a row, of one shard
PATIENCE = 120.0  # seconds for an actor to be placed


@dataclass(frozen=True, slots=True, eq=False)
class Excerpt:
    """Rows of a matrix in memory, numbered as in the whole."""

    array: FloatArray
    first: int

    @property
    def shape(self) -> tuple[int, int]:
        """That of the excerpt."""
        return self.array.shape[0], self.array.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        """That of the whole."""
        return self.array.dtype

    def __getitem__(self, where: slice | IntArray) -> FloatArray:
        if isinstance(where, slice):
            return self.array[where.start - self.first : where.stop - self.first]
        return self.array[where - self.first]


class ShardActor:
    """A shard in a process of its own."""

    def __init__(self, matrix: Matrix, start: int, stop: int, threads: int, *, compiled: bool) -> None:
        loops = blocks.compiled_loops() if compiled else None
        self.shard = Shard(matrix, start, stop, threads, loops=loops)

    def process(self) -> int:
        """The number by which the system knows this process."""
        return os.getpid()

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:  # noqa: ANN401 - as the method answers
        """Call a method of the shard."""
        return getattr(self.shard, method)(*arguments)


class RayBackend:
    """Shards in actors, spread over the nodes of a cluster."""

    def __init__(
        self, matrix: Matrix, cluster: Cluster, shards: int | None = None, *, threads: int | None = None
    ) -> None:
        self.ray, self._cluster = ray_module(), cluster
        nodes = cluster.workers
        count = shards or len(nodes)
        self.bounds = shard_bounds(*matrix.shape, count)
        self.classes, self.dtype = int(matrix.shape[1]), matrix.dtype
        self.sparse = isinstance(matrix, TopK)
        self._homes = [nodes[at % len(nodes)] for at in range(count)]
        self._shares = [home.cpus / self._homes.count(home) for home in self._homes]  # of its node's cores, per shard
        self._moved = [False] * count  # to a node that was not meant for it
        self._threads = threads
        self._sources = [self._source(matrix, *ends) for ends in pairwise(self.bounds.tolist())]
        self.recipes: dict[Keys, Recipe] = {}  # columns → the call that makes them, in the order of the calls
        self._dropped: set[Any] = set()  # keys of columns that are gone, though others were made from them
        self.actors = [self.build(at) for at in range(count)]
        self._wait_for(self.actors)

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Call a method of every shard at once; a shard that was lost on the way is built again and asked again."""
        pending = [actor.call.remote(method, given) for actor, given in zip(self.actors, arguments, strict=True)]
        answers = [self._answer(at, pending[at], method, arguments[at]) for at in range(len(pending))]
        self._remember(method, arguments)
        return answers

    def close(self) -> None:
        """Let go of the actors."""
        for actor in self.actors:
            self.ray.kill(actor)

    def _answer(self, at: int, pending: Any, method: str, given: tuple[Any, ...]) -> Any:  # noqa: ANN401 - Ray's, the shard's
        for _ in range(MOST_REBUILDS):
            try:
                return self.ray.get(pending)
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self._lost:
                self._rebuild(at)
                pending = self.actors[at].call.remote(method, given)
        raise ClusterLost(f"shard {at} was lost {MOST_REBUILDS} times in a row; look at the cluster's memory and logs")

    def _remember(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> None:
        if method in MAKING:
            keys = arguments[0][0]
            self.recipes[keys if isinstance(keys, tuple) else (keys,)] = method, arguments
        elif method == "drop":
            self._dropped.update(arguments[0][0])
            self.recipes = needed(self.recipes, self._dropped)
            self._dropped &= {key for keys in self.recipes for key in keys}

    @property
    def _lost(self) -> tuple[type[Exception], ...]:
        """What Ray says of a process, a machine or an answer that is gone."""
        known = self.ray.exceptions
        return (known.RayActorError, known.NodeDiedError, known.ObjectLostError, known.WorkerCrashedError)

    def _rebuild(self, at: int) -> None:
        """A new actor for a shard, with every column that is in use."""
        self.ray.kill(self.actors[at])  # where it was only its answer that was lost
        nodes = self._cluster.workers
        if nodes and self._homes[at].id not in {node.id for node in nodes}:
            self._homes[at], self._moved[at] = nodes[at % len(nodes)], True
        self.actors[at] = self.build(at)
        self._wait_for([self.actors[at]])
        for method, arguments in self.recipes.values():
            self.actors[at].call.remote(method, arguments[at])  # calls of one actor run in the order in which they came
        self.actors[at].call.remote("drop", (list(self._dropped),))

    def build(self, at: int) -> Any:  # noqa: ANN401 - an actor
        """A new actor for a shard, without columns."""
        home, share = self._homes[at], self._shares[at]
        threads = self._threads or max(1, int(share))
        affinity = self.ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(home.id, soft=True)
        # Where its node is gone, others are full: a shard goes in with theirs, which is slower and goes on.
        cpus = 0 if self._moved[at] else min(share, max(1, int(share)))
        kind = self.ray.remote(num_cpus=cpus, max_restarts=0, scheduling_strategy=affinity)(ShardActor)
        compiled = not self.sparse and bool(self.bounds[-1] * self.classes >= blocks.LEAST_ELEMENTS)
        return kind.remote(self._sources[at], *self.bounds[at : at + 2].tolist(), threads, compiled=compiled)

    def _source(self, matrix: Matrix, start: int, stop: int) -> Any:  # noqa: ANN401 - a matrix, or a reference to one
        """What an actor reads its rows from: the place where they are, or, from memory, a copy that Ray keeps."""
        if isinstance(matrix, TopK) and matrix.folder is None:
            values, classes = (Excerpt(np.asarray(all_[start:stop]), start) for all_ in (matrix.values, matrix.classes))
            return self.ray.put(TopK.of_parts(values, classes, matrix.shape[1]))
        if isinstance(matrix, np.ndarray):
            return self.ray.put(Excerpt(np.asarray(matrix[start:stop]), start))
        return matrix

    def _wait_for(self, actors: Sequence[Any]) -> None:
        ready = [actor.process.remote() for actor in actors]
        _, missing = self.ray.wait(ready, num_returns=len(ready), timeout=PATIENCE)
        if missing:
            raise ClusterLost(
                f"{len(missing)} of {len(ready)} shards could not be placed on the cluster within {PATIENCE:g} s; "
                "free some of its cores, or ask for fewer shards"
            )


def needed(recipes: dict[Keys, Recipe], dropped: set[Any]) -> dict[Keys, Recipe]:
    """Recipes of the columns that are in use, and of those from which they are made.

    >>> calls = [("hold", 1), ("price", 2, 1), ("price_again", 3, 1, [], 2), ("distance", 4, 2)]
    >>> made = {(given[0],): (method, [tuple(given)]) for method, *given in calls}
    >>> list(needed(made, {2, 4})), list(needed(made, {2, 3})), list(needed(made, {2, 3, 4}))
    ([(1,), (2,), (3,)], [(1,), (2,), (4,)], [(1,)])
    """
    wanted: set[Any] = set()
    for keys, (method, arguments) in reversed(recipes.items()):  # what a column is made from was made before it
        if not dropped.issuperset(keys) or not wanted.isdisjoint(keys):
            wanted.update(keys, (arguments[0][place] for place in MAKING[method]))
    return {keys: made for keys, made in recipes.items() if not wanted.isdisjoint(keys)}


@contextmanager
def ray_rows(matrix: Matrix, engine: str, shards: int | None) -> Iterator[Rows]:
    """Rows on a Ray cluster, which is started or joined as `engine` says, for as long as the context lasts."""
    held = (matrix.values, matrix.classes) if isinstance(matrix, TopK) else (matrix,)
    in_memory = sum(array.nbytes for array in held if isinstance(array, np.ndarray))
    with connect(engine, object_store=max(OBJECT_STORE, int(1.2 * in_memory))) as cluster:
        backend = RayBackend(matrix, cluster, shards)
        try:
            yield Rows(backend=backend)
        finally:
            backend.close()
