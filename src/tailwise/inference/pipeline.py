"""Probabilities of a whole pool: images and a saved learner in, one shard of probabilities per input shard out.

It can be stopped at any moment: complete shards stay, and the next run computes the others. Every engine gives the same
bits. An image that cannot be decoded has no row: it is listed with the reason.
"""

from __future__ import annotations

import io
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..errors import BadFile, BadInput
from ..files import read_regular
from ..learners.backbone import Backbone
from ..learners.learner import one_core
from ..matrix.stores import reject_url
from ..pools.decode import fault, read_pixels
from ..pools.pool import BadImage, InputArray
from ..processes import alone, cores
from ..ray.cluster import address_of, connect
from ..types import FloatArray, Progress, no_progress
from .sources import BLOCK, SHARD_SIZE, Block, InputShard, Picture, Piece, Source, digest, open_source
from .storage import Manifest, ManifestShard, Predictor, SavedLearner, Shard, ShardStore, find_learner, open_learner

DTYPES = ("float16", "float32")
LOCAL = "local"
AHEAD = 2  # blocks that wait for each thread


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """What is to be done to every block; it is sent to workers."""

    source: Source
    learner: SavedLearner
    embeddings: bool


@dataclass(frozen=True, slots=True)
class Fault:
    """A shard that cannot be read, as opposed to single images of it."""

    shard: int
    reason: str


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """A block whose images are pixels."""

    shard: int
    start: int
    names: tuple[str, ...]  # (n,) of those that could be decoded
    paths: tuple[str, ...]  # (n,)
    bad: tuple[BadImage, ...]
    pixels: InputArray  # (n, size, size, 3) uint8


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a learner says of a block."""

    shard: int
    start: int
    names: tuple[str, ...]
    paths: tuple[str, ...]
    bad: tuple[BadImage, ...]
    proba: FloatArray  # (n, C) float32
    embeddings: FloatArray | None  # (n, d) float32


def decode_block(block: Block, size: int) -> Decoded:
    """Make pixels of all that can be decoded."""
    good: list[Picture] = []
    pixels, bad = [], []
    for picture in block.pictures:
        try:
            pixels.append(_pixels(picture, size))
            good.append(picture)
        except BadFile as error:
            bad.append(BadImage(picture.name, str(error)))
    names, paths = tuple(one.name for one in good), tuple(one.path for one in good)
    stacked = np.stack(pixels) if pixels else np.empty((0, size, size, 3), np.uint8)
    return Decoded(block.shard, block.start, names, paths, tuple(bad), stacked)


def ask(predictor: Predictor, decoded: Decoded, job: Job) -> Answer:
    """Ask a learner about a block; an empty one is not asked about."""
    proba: FloatArray = np.empty((0, job.learner.classes), np.float32)
    embedded: FloatArray | None = None
    if len(decoded.pixels):
        proba, embedded = predictor.answer(decoded.pixels, embeddings=job.embeddings)
    return Answer(decoded.shard, decoded.start, decoded.names, decoded.paths, decoded.bad, proba, embedded)


def _pixels(picture: Picture, size: int) -> InputArray:
    if isinstance(picture.content, str):
        raise BadFile(picture.content)
    content = _bytes(picture.content) if isinstance(picture.content, Path) else picture.content
    try:
        return read_pixels(io.BytesIO(content), size, picture.name)
    except BadFile as error:
        raise BadFile(fault(io.BytesIO(content), decode=True) or str(error)) from error


def _bytes(path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise BadFile(f"it cannot be read ({error.strerror or error})") from error


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What a job will do; nothing is written yet.

    Attributes
    ----------
    job: images, learner, and what is asked of it.
    store: where the shards go.
    dtype: of the probabilities.
    width: d, numbers of an embedding; 0 where none are asked for.
    shards: all shards of the input.
    kept: those that are there already, by number.
    todo: those that are to be computed.
    fingerprints: by number, of all that a shard's probabilities depend on.
    """

    job: Job
    store: ShardStore
    dtype: str
    width: int
    shards: tuple[InputShard, ...]
    kept: dict[int, Shard]
    todo: tuple[InputShard, ...]
    fingerprints: dict[int, str]

    @property
    def images(self) -> int:
        """All images of the pool, good or bad."""
        return sum(shard.rows for shard in self.shards)

    @property
    def bytes(self) -> int:
        """About what the shards take on the disk."""
        return self.images * (self.job.learner.classes * np.dtype(self.dtype).itemsize + 4 * self.width)

    def manifest(self, kept: dict[int, Shard]) -> Manifest:
        """What the folder holds with these shards."""
        learner, shards = self.job.learner, [kept[number] for number in sorted(kept)]
        return Manifest(
            complete=len(kept) == len(self.shards), classes=learner.classes, class_names=learner.class_names,
            dtype=self.dtype, inputs=self.job.source.description, learner=_described(learner),
            shards=tuple(
                ManifestShard(one.file, one.input, one.rows, len(one.bad), one.sha256, one.embeddings_sha256)
                for one in shards
            ),
        )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Predicted:
    """What came of it."""

    folder: Path
    manifest: Manifest
    shards: tuple[Shard, ...]
    computed: int  # shards; the others were there
    seconds: float


def plan_pool(
    images: str | Path, learner: str | Path, out: str | Path, *, shard_size: int = SHARD_SIZE, dtype: str = DTYPES[0],
    embeddings: bool = False, backbone: str | None = None, size: int | None = None, column: str | None = None,
    root: str | Path | None = None,
) -> Plan:  # fmt: skip
    """Look at images, learner and output; whatever is wrong with them is reported here, before any work is done.

    `images` is a folder, which is cut into runs of `shard_size`, or Parquet, each file of which is a shard; `column`
    holds its images, and `root` is where paths in it start. `backbone` and `size` are those of `find_learner`.
    """
    if dtype not in DTYPES:
        raise BadInput(f"dtype is {dtype!r}; it must be {' or '.join(DTYPES)}")
    reject_url(out, "shards")
    saved = find_learner(learner, backbone=backbone, size=size)
    source = open_source(images, shard_size=shard_size, column=column, root=root)
    shards = tuple(source.shards())
    if not any(shard.rows for shard in shards):
        raise BadInput(f"{Path(images)} holds no images; there is nothing to predict")
    store = ShardStore(Path(out).expanduser().resolve())
    wanted = {one.number: digest([one.name, one.fingerprint, saved.checksum, dtype, BLOCK]) for one in shards}
    found = {number: store.find(number, known, embeddings=embeddings) for number, known in wanted.items()}
    kept = {number: shard for number, shard in found.items() if shard is not None}
    todo = tuple(shard for shard in shards if shard.number not in kept)
    width = _try_out(saved, embeddings=embeddings)
    return Plan(Job(source, saved, embeddings), store, dtype, width, shards, kept, todo, wanted)


def predict_pool(
    plan: Plan, *, engine: str = LOCAL, workers: int | None = None, report: Progress = no_progress
) -> Predicted:
    """Compute and write the shards that are missing.

    `engine` is "local" or one of `tailwise.ray.cluster.connect`; `workers` are threads here, or models on a cluster
    (default: one per core). A shard that cannot be read does not stop the others, and is an error in the end.
    """
    started = time.perf_counter()
    if engine != LOCAL:
        address_of(engine)
    if workers is not None and workers < 1:
        raise BadInput(f"workers is {workers}; it must be at least 1")
    try:
        plan.store.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadFile(f"cannot make the folder {plan.store.folder}: {error.strerror or error}") from error
    with alone(plan.store.folder):
        plan.store.remove_halves()
        plan.store.write_manifest(plan.manifest(plan.kept))
        collector = Collector(plan, report, dict(plan.kept))
        with _answers(plan.job, plan.todo, engine, workers) as answers:
            collector.collect(answers)
        plan.store.remove_beyond(len(plan.shards))
        manifest = plan.manifest(collector.kept)
        plan.store.write_manifest(manifest)
    collector.check()
    kept = tuple(collector.kept[number] for number in sorted(collector.kept))
    return Predicted(plan.store.folder, manifest, kept, len(plan.todo), time.perf_counter() - started)


@dataclass(slots=True, eq=False)
class Collector:
    """Puts answers together, in whatever order they come, and writes each shard once it is whole."""

    plan: Plan
    report: Progress
    kept: dict[int, Shard]  # by number: those that were there, and each that is written
    waiting: dict[int, list[Answer]] = field(default_factory=dict)
    faults: dict[int, str] = field(default_factory=dict)
    started: float = field(default_factory=time.perf_counter)

    def collect(self, answers: Iterable[Answer | Fault]) -> None:
        """Take all answers."""
        shards = {shard.number: shard for shard in self.plan.todo}
        total = sum(shard.rows for shard in shards.values())
        done, self.started = 0, time.perf_counter()
        for shard in shards.values():
            if not shard.rows:  # an empty table is a shard without rows
                self._write(shard, [])
        for answer in answers:
            if isinstance(answer, Fault):
                self.faults.setdefault(answer.shard, answer.reason)
                continue
            shard, parts = shards[answer.shard], self.waiting.setdefault(answer.shard, [])
            parts.append(answer)
            done += len(answer.names) + len(answer.bad)
            if sum(len(part.names) + len(part.bad) for part in parts) == shard.rows:
                self._write(shard, self.waiting.pop(shard.number))
            self._report(done, total)

    def check(self) -> None:
        """Say which shards could not be read."""
        for shard in self.plan.todo:
            if shard.number not in self.kept:
                self.faults.setdefault(shard.number, "it gave fewer images than it said; did it change meanwhile?")
        if self.faults:
            names = {shard.number: shard.name for shard in self.plan.shards}
            number, reason = next(iter(sorted(self.faults.items())))
            raise BadFile(
                f"{len(self.faults)} of {len(self.plan.shards)} shards could not be read; "
                f"{names[number]}: {reason}. The others are in "
                f"{self.plan.store.folder}; fix it and run the same command again"
            )

    def _write(self, shard: InputShard, parts: list[Answer]) -> None:
        parts.sort(key=lambda part: part.start)
        names = tuple(name for part in parts for name in part.names)
        paths = tuple(path for part in parts for path in part.paths)
        bad = tuple(image for part in parts for image in part.bad)
        proba = np.concatenate([np.empty((0, self.plan.job.learner.classes)), *(part.proba for part in parts)])
        embedded = [part.embeddings for part in parts if part.embeddings is not None]
        embeddings = np.concatenate([np.empty((0, self.plan.width), np.float32), *embedded])
        record = Shard(
            shard.number, shard.name, self.plan.fingerprints[shard.number], self.plan.dtype, len(names), names,
            paths if any(paths) else (), bad, "",
        )  # fmt: skip
        wanted = embeddings if self.plan.job.embeddings else None
        self.kept[shard.number] = self.plan.store.keep(record, proba.astype(self.plan.dtype), wanted)

    def _report(self, done: int, total: int) -> None:
        seconds = time.perf_counter() - self.started
        pace = f", {done / seconds:,.0f} per second" if seconds > 1 else ""
        self.report(
            done / total, f"{done:,} of {total:,} images, {len(self.kept):,} of {len(self.plan.shards):,} shards{pace}"
        )


@contextmanager
def _answers(
    job: Job, shards: Sequence[InputShard], engine: str, workers: int | None
) -> Iterator[Iterator[Answer | Fault]]:
    """The answers to all blocks; an engine is started only where there is something to ask."""
    if not shards:
        yield iter(())
    elif engine == LOCAL:
        with one_core():
            yield answers_here(job, shards, workers or cores())
    else:
        from ..ray.tasks import map_on_ray

        pieces = [piece for shard in shards for piece in shard.pieces]
        with connect(engine, cpus=workers) as cluster:
            yield map_on_ray(AnswerPiece(job), pieces, workers or cluster.cpus)


def answers_here(job: Job, shards: Sequence[InputShard], workers: int) -> Iterator[Answer | Fault]:
    """In this process, in order; threads decode and ask, each on one core."""
    predictor = open_learner(job.learner)

    def work(block: Block) -> Answer:
        decoded = decode_block(block, job.learner.size)
        return ask(predictor, decoded, job)

    waiting: deque[Future[Answer]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="tailwise-predict")
    try:
        for block in _blocks(job.source, shards):
            if isinstance(block, Fault):
                yield block
                continue
            waiting.append(pool.submit(work, block))
            if len(waiting) >= AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerPiece:
    """What a worker of a cluster does: it reads, decodes and asks about a piece of a shard, block by block."""

    job: Job

    def __call__(self, piece: Piece) -> Iterator[Answer | Fault]:
        """One answer for each block, or the reason why the shard cannot be read."""
        with one_core():
            try:
                predictor = _opened_once(self.job.learner)
            except BadFile as error:
                yield Fault(piece.shard, f"{error}; every machine must see the learner at the same path")
                return
            try:
                for block in self.job.source.blocks(piece):
                    yield ask(predictor, decode_block(block, self.job.learner.size), self.job)
            except BadFile as error:
                yield Fault(piece.shard, str(error))


_predictors: dict[str, Predictor] = {}  # of this process: at most one, by its checksum


def _opened_once(saved: SavedLearner) -> Predictor:
    if saved.checksum not in _predictors:
        _predictors.clear()
        _predictors[saved.checksum] = open_learner(saved)
    return _predictors[saved.checksum]


def _blocks(source: Source, shards: Sequence[InputShard]) -> Iterator[Block | Fault]:
    for shard in shards:
        for piece in shard.pieces:
            try:
                yield from source.blocks(piece)
            except BadFile as error:
                yield Fault(shard.number, str(error))
                break


def _try_out(saved: SavedLearner, *, embeddings: bool) -> int:
    """Ask about one black image: whatever does not fit is reported now; returns the length of an embedding."""
    with one_core():
        black = np.zeros((1, saved.size, saved.size, 3), np.uint8)
        proba, embedded = open_learner(saved).answer(black, embeddings=embeddings)
    if proba.shape != (1, saved.classes):
        raise BadInput(f"the learner in {saved.folder} gives {proba.shape[1]} numbers for {saved.classes} classes")
    return 0 if embedded is None else embedded.shape[1]


def _described(saved: SavedLearner) -> dict[str, object]:
    backbone = saved.backbone.name if isinstance(saved.backbone, Backbone) else saved.backbone
    return {
        "path": saved.folder.as_posix(), "kind": saved.kind, "backbone": backbone, "size": saved.size,
        "sha256": saved.checksum,
    }  # fmt: skip
