"""A million images, a thousand classes, float16 on disk: gap, own memory and minutes."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from .apart import Answer, call_apart, status_bytes
from .instances import Instance
from .measured import Measured, Row, Run, Sheet
from .timing import timed

NAME = "wide"
EVERY = 0.02  # seconds between two looks at the memory


def measure(run: Run) -> Iterator[Measured]:
    """Two gigabytes per seed, in a temporary directory."""
    for seed in run.seeds(full=2):
        instance = Instance(1_000_000, 1_000, seed)
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "proba.npy")
            answer = call_apart(
                "million:prepare", 1800, path=path, seed=seed, size=instance.size, classes=1_000, dtype="float16"
            )
            if "error" not in answer:
                answer = call_apart("wide:solve", 3600, path=path, budget=instance.budget)
        yield from _judge(Sheet(NAME, instance.name + ", float16, memory-mapped", seed), answer)


class Watch(threading.Thread):
    """Remembers the largest memory that is this process's own: the page cache behind a mapped file is not."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak = 0
        self.done = threading.Event()

    def run(self) -> None:
        """Look until told to stop."""
        while not self.done.wait(EVERY):
            self.peak = max(self.peak, status_bytes("RssAnon", "RssShmem"))


def solve(path: str, budget: int) -> Answer:
    """Select straight from the file."""
    import tailwise

    watch = Watch()
    watch.start()
    ran = timed(lambda: tailwise.select(path, budget, balance=1.0, gap=1e-4, score="entropy"))
    watch.done.set()
    watch.join()
    return {
        "gap": ran.result.gap, "status": ran.result.status, "minutes": ran.seconds / 60,
        "processor minutes": ran.processor_seconds / 60, "memory": watch.peak / 1e9,
    }  # fmt: skip


def _judge(sheet: Sheet, answer: Answer) -> Iterator[Measured]:
    if "error" in answer:
        yield sheet.failed("gap", "<= 0.0001", answer["error"])
        return
    yield sheet.at_most("gap", answer["gap"], 1e-4, answer["status"])
    yield sheet.at_most("peak own memory, GB", answer["memory"], 1.0)
    yield sheet.tell("minutes", answer["minutes"])
    yield sheet.tell("processor minutes", answer["processor minutes"])


ROW = Row(NAME, "gap ≤ 1e-4; peak resident memory ≤ 1 GB above the page cache; the time is reported", measure)
