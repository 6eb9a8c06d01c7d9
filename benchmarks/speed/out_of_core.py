"""Ten million images, a hundred classes, half precision, from a file: gap, memory, passes beside plain reads."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from .apart import Answer, call_apart, status_bytes
from .instances import Instance
from .measured import Measured, Row, Run, Sheet
from .timing import timed

NAME = "out-of-core"
BUDGET_SHARE = 100
EVERY = 0.01  # seconds between two looks at the memory
TURNS = 5  # a pass and a read, one after the other
READ_BYTES = 1 << 22
LIMITS = {"gap": 1e-4, "memory": 1.5, "throughput": 0.6}


def measure(run: Run) -> Iterator[Measured]:
    """Two gigabytes per seed, in a temporary directory."""
    for seed in run.seeds(full=2):
        instance = Instance(1_000_000 if run.quick else 10_000_000, 100, seed)
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "proba.npy")
            answer = call_apart("million:prepare", 1_800, path=path, seed=seed, size=instance.size, dtype="float16")
            for step in ("passes", "solve"):
                if "error" not in answer:
                    answer |= call_apart(f"out_of_core:{step}", 1_800, path=path)
        yield from _judge(Sheet(NAME, instance.name + ", float16, from a file", seed), answer)


class Watch(threading.Thread):
    """Remembers the largest resident set, and how much of it was this process's own and not the file's."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.resident = self.own = 0
        self.done = threading.Event()

    def run(self) -> None:
        """Look until told to stop."""
        while not self.done.wait(EVERY):
            self.resident = max(self.resident, status_bytes("VmRSS"))
            self.own = max(self.own, status_bytes("RssAnon"))


def solve(path: str) -> Answer:
    """Select straight from the file."""
    import tailwise

    size = np.load(path, mmap_mode="r").shape[0]
    watch = Watch()
    watch.start()
    with asked_shards() as asked:
        ran = timed(lambda: tailwise.select(path, size // BUDGET_SHARE, balance=1.0))
    watch.done.set()
    watch.join()
    return {
        "gap": ran.result.gap, "status": ran.result.status, "seconds": ran.seconds,
        "memory": watch.resident / 1e9, "own": watch.own / 1e9, "in shards": sum(asked), "questions": len(asked),
    }  # fmt: skip


@contextmanager
def asked_shards() -> Iterator[list[float]]:
    """The seconds that each question to the shards takes."""
    from tailwise.solve.shards import LocalHands

    ask, seconds = LocalHands.ask, []

    def timed_ask(hands: LocalHands, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        ran = timed(lambda: ask(hands, method, arguments))
        seconds.append(ran.seconds)
        return ran.result

    LocalHands.ask = timed_ask  # type: ignore[method-assign]
    try:
        yield seconds
    finally:
        LocalHands.ask = ask  # type: ignore[method-assign]


def passes(path: str) -> Answer:
    """Seconds of a pass u − P·y, and of reading the file, in turns, so that both see the same machine."""
    from threadpoolctl import threadpool_limits

    from tailwise.score.softmax import entropy
    from tailwise.solve.shards import Rows
    from tailwise.solve.source import open_proba

    rows = Rows(open_proba(path))
    cost, y = rows.hold(np.zeros(rows.size)), np.linspace(-1.0, 1.0, rows.classes)
    answer: Answer = {"scan": timed(lambda: rows.scan(entropy, tolerance=5e-3)).seconds}
    with threadpool_limits(limits=1, user_api="blas"):
        for prefix, before in (("cold ", forget), ("", read_file)):
            pairs = [
                (_after(before, path, lambda: rows.priced(cost, y)), _after(before, path, lambda: read_file(path)))
                for _ in range(TURNS)
            ]
            answer |= {
                f"{prefix}pass": median(one for one, _ in pairs),
                f"{prefix}read": median(two for _, two in pairs),
            }
    return answer


def _after(before: Callable[[str], None], path: str, call: Callable[[], object]) -> float:
    """Seconds of a call on a file that was brought into memory, or out of it, before."""
    before(path)
    return timed(call).seconds


def forget(path: str) -> None:
    """Have the system drop what it holds of a file in memory, so that the next read is from the disk."""
    with Path(path).open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_file(path: str) -> None:
    """The whole file, once, in one thread, into a buffer that is used again."""
    buffer = bytearray(READ_BYTES)
    with Path(path).open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


def _judge(sheet: Sheet, answer: Answer) -> Iterator[Measured]:
    if "error" in answer:
        yield sheet.failed("gap", f"<= {LIMITS['gap']:g}", answer["error"])
        return
    yield sheet.at_most("gap", answer["gap"], LIMITS["gap"], answer["status"])
    yield sheet.at_most("resident memory, GB", answer["memory"], LIMITS["memory"], f"{answer['own']:.2f} GB its own")
    share = answer["cold read"] / answer["cold pass"]
    note = f"a pass {answer['cold pass']:.2f} s, a read {answer['cold read']:.2f} s"
    yield sheet.at_least("throughput of a pass beside a plain read, from the disk", share, LIMITS["throughput"], note)
    cached = f"a pass {answer['pass']:.2f} s, a read {answer['read']:.2f} s"
    yield sheet.at_least(
        "the same where the file is in memory", answer["read"] / answer["pass"], LIMITS["throughput"], cached
    )
    yield sheet.tell("throughput of the scan, where the file is in memory", answer["read"] / answer["scan"])
    yield sheet.tell("seconds of a pass", answer["pass"])
    yield sheet.tell("seconds of the scan", answer["scan"])
    yield sheet.tell("seconds", answer["seconds"])
    yield sheet.tell("seconds in the shards", answer["in shards"])
    yield sheet.tell("questions to the shards", answer["questions"])


ROW = Row(
    NAME,
    "gap ≤ 1e-4, less than 1.5 GB resident; a pass has ≥ 60 % of the throughput of reading the file, from "
    "the disk and from memory",
    measure,
)
