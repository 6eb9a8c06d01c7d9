"""Algorithm 2 in a pool of a million: exact picks, from files, in bounded time and memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from .apart import Answer, call_apart, peak_memory
from .instances import Array, Instance, blocks, write
from .kcenter import LAM, Case
from .measured import Measured, Row, Run, Sheet
from .timing import timed

NAME = "kcenter-million"
LIMITS = {"seconds": 1_800.0, "memory": 4.0}
FULL = Case(1_000_000, 10_000, 256, 10, 10_000, checked=3)
QUICK = replace(FULL, size=100_000, labelled=1_000, budget=1_000)
STRIP = 1_024  # rows and centres in one product of the check
TIE = 1e-9  # what the products of the check may lose of a price


def measure(run: Run) -> Iterator[Measured]:
    """Write the files, pick and check, each in a process of its own."""
    case = QUICK if run.quick else FULL
    for seed in run.seeds(full=1):
        with tempfile.TemporaryDirectory() as folder:
            answer: Answer = {}
            for step, wall in (("prepare", 900), ("pick", 7_200), ("check", 7_200)):
                if "error" not in answer:
                    given = call_apart(f"kcenter_million:{step}", wall, folder=folder, seed=seed, case=asdict(case))
                    answer = {**answer, **given}
        yield from _judge(Sheet(NAME, case.name, seed), case, answer)


def prepare(folder: str, seed: int, case: dict[str, int]) -> Answer:
    """Class centres plus noise; the pool long-tailed, the labelled set of uniform classes."""
    sizes, place = Case(**case), Path(folder)
    instance = Instance(sizes.size, sizes.classes, seed)
    write(instance, place / "proba.npy", "float32")
    rng = np.random.default_rng((seed, sizes.features))
    centres = rng.standard_normal((sizes.classes, sizes.features), dtype=np.float32)

    def around(classes: Array) -> Array:
        return centres[classes] + rng.standard_normal((len(classes), sizes.features), dtype=np.float32)

    shape = (sizes.size, sizes.features)
    pool = np.lib.format.open_memmap(place / "pool.npy", mode="w+", dtype=np.dtype("float32"), shape=shape)
    for where, _, classes in blocks(instance):
        pool[where] = around(classes)
    pool.flush()
    classes = rng.integers(sizes.classes, size=sizes.labelled)
    np.save(place / "labelled.npy", around(classes))
    np.save(place / "counts.npy", np.bincount(classes, minlength=sizes.classes))
    return {}


def pick(folder: str, seed: int, case: dict[str, int]) -> Answer:  # noqa: ARG001 - every step is given the same
    """Select from the files, and keep the picks beside them."""
    from tailwise import Predictions, strategies

    place = Path(folder)
    chooser = strategies.make("kcenter", balance=LAM)
    predictions = Predictions(
        place / "proba.npy",
        embeddings=place / "pool.npy",
        labelled_embeddings=place / "labelled.npy",
    )
    counts = np.load(place / "counts.npy")
    found = timed(lambda: chooser.select(predictions, Case(**case).budget, counts=counts))
    np.save(place / "picks.npy", found.result.indices)
    return {
        "seconds": found.seconds, "processor": found.processor_seconds, "memory": peak_memory() / 1e9,
        "method": found.result.method,
    }  # fmt: skip


def check(folder: str, seed: int, case: dict[str, int]) -> Answer:  # noqa: ARG001 - every step is given the same
    """How many rows of the whole pool were cheaper than the first, the middle and the last pick when it was made."""
    from threadpoolctl import threadpool_limits

    place, sizes = Path(folder), Case(**case)
    pool, proba = (np.load(place / name, mmap_mode="r") for name in ("pool.npy", "proba.npy"))
    labelled, counts, picks = (np.load(place / name) for name in ("labelled.npy", "counts.npy", "picks.npy"))
    omega = np.maximum((counts.sum() + sizes.budget) / sizes.classes - counts, 0.0)  # Eq. 4
    centres = np.concatenate([labelled, pool[picks]]).astype(np.float64)
    turns = np.linspace(0, sizes.budget - 1, sizes.checked).astype(int)
    strips = [slice(start, start + STRIP) for start in range(0, sizes.size, STRIP)]
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor() as threads:
        found = list(threads.map(lambda where: _distances(pool[where], centres, len(labelled) + turns), strips))
    distances = np.concatenate(found, axis=1)  # (turns, N)
    cheaper = 0
    for turn, distance in zip(turns, distances, strict=True):
        left = omega - proba[np.sort(picks[:turn])].sum(axis=0, dtype=np.float64)
        price = LAM * np.concatenate([np.abs(left - proba[where]).sum(axis=1) for where in strips]) - distance
        price[picks[:turn]] = np.inf
        cheaper += int((price < price[picks[turn]] - TIE).sum())
    return {"cheaper": cheaper}


def _distances(points: Array, centres: Array, known: Array) -> Array:
    """Distance of each point to the nearest of the first `known` centres, for each such number, (len(known), n)."""
    wide = np.asarray(points, dtype=np.float64)
    norms = (wide**2).sum(axis=1)
    least, found, start = np.full(len(wide), np.inf), [], 0
    for stop in known:
        for first in range(start, stop, STRIP):
            some = centres[first : min(first + STRIP, stop)]
            squared = (some**2).sum(axis=1) - 2 * (wide @ some.T)
            least = np.minimum(least, squared.min(axis=1) + norms)
        found.append(np.sqrt(np.maximum(least, 0.0)))
        start = stop
    return np.array(found)


def _judge(sheet: Sheet, case: Case, answer: Answer) -> Iterator[Measured]:
    if "seconds" in answer:
        yield sheet.at_most("seconds", answer["seconds"], LIMITS["seconds"], answer["method"])
        yield sheet.tell("processor seconds", answer["processor"])
        yield sheet.at_most("peak memory of the whole process, GB", answer["memory"], LIMITS["memory"])
    if "error" in answer:
        yield sheet.failed("seconds", f"<= {LIMITS['seconds']:g}", answer["error"])
        return
    what = f"rows cheaper than a pick when it was made, at {case.checked} picks of all"
    yield sheet.at_most(what, answer["cheaper"], 0)


ROW = Row(
    NAME,
    "exact picks of Algorithm 2 for N 1,000,000, L 10,000, d 256, b 10,000, C 10, λ 0.5, read from .npy files, in "
    "≤ 30 minutes and ≤ 4 GB on 2 cores",
    measure,
)
