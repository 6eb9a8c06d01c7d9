"""A million images, a hundred classes, in memory: gap, time in passes over the matrix, memory in matrices."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from .apart import Answer, call_apart, peak_memory
from .instances import Array, Instance, write
from .measured import Measured, Row, Run, Sheet

NAME = "million"
LIMITS = {"gap": 1e-5, "passes": 150.0, "memory": 1.6}


def measure(run: Run) -> Iterator[Measured]:
    """Each seed in a fresh process, from a file that another process has written."""
    for seed in run.seeds(full=3):
        instance = Instance(1_000_000, 100, seed)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "proba.npy"
            answer = call_apart("million:prepare", 900, path=str(path), seed=seed, size=instance.size, dtype="float32")
            if "error" not in answer:
                answer = call_apart("million:solve", 1800, path=str(path), budget=instance.budget)
        yield from _judge(Sheet(NAME, instance.name, seed), answer)


def prepare(path: str, seed: int, size: int, dtype: str, classes: int = 100) -> Answer:
    """Write the matrix."""
    write(Instance(size, classes, seed), Path(path), dtype)
    return {}


def solve(path: str, budget: int) -> Answer:
    """Load, time one pass, select."""
    import tailwise

    proba = np.load(path)
    one_pass = pass_seconds(proba)
    started = time.perf_counter()
    batch = tailwise.select(proba, budget, balance=1.0, gap=1e-5, score="entropy")
    seconds = time.perf_counter() - started
    return {
        "gap": batch.gap, "status": batch.status, "seconds": seconds, "pass": one_pass,
        "passes": seconds / one_pass, "memory": peak_memory() / proba.nbytes,
    }  # fmt: skip


def pass_seconds(proba: Array) -> float:
    """Seconds of `proba @ y` on one thread, median of five."""
    from threadpoolctl import threadpool_limits

    y = np.ones(proba.shape[1], dtype=proba.dtype)
    times = []
    with threadpool_limits(limits=1, user_api="blas"):
        for _ in range(5):
            started = time.perf_counter()
            proba @ y
            times.append(time.perf_counter() - started)
    return float(np.median(times))


def _judge(sheet: Sheet, answer: Answer) -> Iterator[Measured]:
    if "error" in answer:
        yield sheet.failed("gap", f"<= {LIMITS['gap']:g}", answer["error"])
        return
    yield sheet.at_most("gap", answer["gap"], LIMITS["gap"], answer["status"])
    yield sheet.at_most("time in single-thread passes", answer["passes"], LIMITS["passes"])
    yield sheet.tell("seconds", answer["seconds"])
    yield sheet.tell("seconds of one pass", answer["pass"])
    yield sheet.at_most("peak memory in sizes of the matrix", answer["memory"], LIMITS["memory"])


ROW = Row(
    NAME,
    "gap ≤ 1e-5 within 150 × the time of one single-thread pass `proba @ y`; peak memory of the whole process ≤ 1.6 × "
    "the matrix",
    measure,
)
