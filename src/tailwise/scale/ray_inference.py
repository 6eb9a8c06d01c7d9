"""Predictions as a Ray Data pipeline: pieces of shards in, answers out, in whatever order they are ready.

A row of the dataset is a whole block of images, so that it does not matter how Ray cuts and joins its batches.
"""

from __future__ import annotations

import importlib
import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import BadFile
from ..learn.threads import one_core
from .saved_learner import Predictor, SavedLearner, open_learner
from .shard_answers import Answer, Fault, Job, ask, decode_block
from .sources import InputShard, Piece

COLUMN = "rows"
MOST_TASKS = 2_000  # one that is lost is done again from its start, but a million would keep Ray busy with itself


def answers_on_ray(job: Job, shards: list[InputShard], workers: int) -> Iterator[Answer | Fault]:
    """Read, decode and ask on at most `workers` cores of the cluster; a task whose worker dies is done again by Ray."""
    data: Any = importlib.import_module("ray.data")
    pieces = [{COLUMN: pickle.dumps(piece)} for shard in shards for piece in shard.pieces]
    if not pieces:
        return
    with _silent(data):
        # Tasks rather than actors: a worker keeps the model all the same, and there is no pool of actors to start.
        tasks = min(len(pieces), MOST_TASKS)
        answers = data.from_items(pieces, override_num_blocks=tasks).map_batches(
            Asking(job), batch_size=1, batch_format="pyarrow", num_cpus=1,
            compute=data.TaskPoolStrategy(min(workers, tasks)),
        )  # fmt: skip
        for table in answers.iter_batches(batch_size=None, batch_format="pyarrow"):
            yield from _unpacked(table)


class Asking:
    """What a worker does to a piece: read it, decode it and ask about it, block by block."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def __call__(self, table: Any) -> Iterator[Any]:  # noqa: ANN401 - tables of pyarrow, which has no types
        """A table of pieces in, a table of one answer for each of their blocks out."""
        with one_core():
            for piece in _unpacked(table):
                yield from map(_packed, self._answers(piece))

    def _answers(self, piece: Piece) -> Iterator[Answer | Fault]:
        try:
            predictor = _opened(self.job.learner)
        except BadFile as error:
            yield Fault(piece.shard, f"{error}; every machine must see the learner at the same path")
            return
        try:
            for block in self.job.source.blocks(piece):
                yield ask(predictor, decode_block(block, self.job.learner.size), self.job)
        except BadFile as error:
            yield Fault(piece.shard, str(error))


_learners: dict[str, Predictor] = {}  # of this worker: one at most, by its checksum


def _opened(saved: SavedLearner) -> Predictor:
    if saved.checksum not in _learners:
        _learners.clear()
        _learners[saved.checksum] = open_learner(saved)
    return _learners[saved.checksum]


def _packed(row: object) -> Any:  # noqa: ANN401 - a table of pyarrow, which has no types
    import pyarrow

    return pyarrow.table({COLUMN: pyarrow.array([pickle.dumps(row)], pyarrow.large_binary())})


def _unpacked(table: Any) -> Iterator[Any]:  # noqa: ANN401 - a table of pyarrow, which has no types
    """What was packed; only our own workers write it, and Ray would pickle it anyway."""
    for row in table.column(COLUMN):
        yield pickle.loads(row.as_buffer())


@contextmanager
def _silent(data: Any) -> Iterator[None]:  # noqa: ANN401 - the module
    """No progress bars and no log on the terminal: both would run into our own."""
    context, log = data.DataContext.get_current(), logging.getLogger("ray.data")
    wanted = {"enable_progress_bars": False, "print_on_execution_start": False}
    before, level = {name: getattr(context, name) for name in wanted}, log.level
    log.setLevel(logging.ERROR)
    for name, value in wanted.items():
        setattr(context, name, value)
    try:
        yield
    finally:
        log.setLevel(level)
        for name, value in before.items():
            setattr(context, name, value)
