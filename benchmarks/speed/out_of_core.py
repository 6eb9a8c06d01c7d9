"""Ten million images, a hundred classes, half precision, from a file: gap, memory, passes beside plain reads.

Once as the base install does it, once with numba.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

from .apart import Answer, call_apart, status_bytes
from .instances import Instance
from .measured import Measured, Row, Run, Sheet
from .timing import timed

NAME = "out-of-core"
BUDGET_SHARE = 100
EVERY = 0.01  # seconds between two looks at the memory
TURNS = 3  # selections whose passes are timed, the first of a process being slower
LOADS, WHOLE_PASSES = 3, 5
PASSES = ("price", "price_roughly", "price_again")  # questions that read all rows to price them
READ_BYTES = 1 << 22
WITH_NUMBA = ", with numba"
LIMITS = {"gap": 1e-4, "memory": 1.5, "throughput": 0.6}


def measure(run: Run) -> Iterator[Measured]:
    """Two gigabytes per seed, in a temporary directory."""
    for seed in run.seeds(full=2):
        instance = Instance(6_000_000 if run.quick else 10_000_000, 100, seed)
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder) / "proba.npy")
            made = call_apart("million:prepare", 1_800, path=path, seed=seed, size=instance.size, dtype="float16")
            for numba in (False, True):
                sheet = Sheet(NAME, f"{instance.name}, float16, from a file{WITH_NUMBA if numba else ''}", seed)
                answer = dict(made)
                for step in ("passes", "solve"):
                    if "error" not in answer:
                        answer |= call_apart(f"out_of_core:{step}", 1_800, path=path, numba=numba)
                yield from _judge(sheet, answer, numba=numba)


def use_numba(*, wanted: bool) -> None:
    """Have this process do with numba, or as if it were not installed; loading it is part of what is measured."""
    if not wanted:
        sys.modules["numba"] = None  # type: ignore[assignment] # an import of it fails
    elif find_spec("numba") is None:
        raise ModuleNotFoundError("numba is not installed")


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


def solve(path: str, *, numba: bool) -> Answer:
    """Select straight from the file, for the first time in this process."""
    use_numba(wanted=numba)
    watch = Watch()
    watch.start()
    with asked_shards() as asked:
        ran = timed(lambda: _select(path))
    watch.done.set()
    watch.join()
    return {
        "gap": ran.result.gap, "status": ran.result.status, "seconds": ran.seconds,
        "memory": watch.resident / 1e9, "own": watch.own / 1e9, "in shards": sum(one.seconds for one in asked),
        "questions": len(asked), "scan": sum(one.seconds for one in asked if one.method == "scan"),
    }  # fmt: skip


def passes(path: str, *, numba: bool) -> Answer:
    """Seconds of each pass u − P·y that a selection makes, and of reading the file right after it, in the same state.

    From the disk, then from memory; `np.load` is what one would write to have the file in memory.
    """
    use_numba(wanted=numba)
    answer: Answer = {}
    for prefix, prepare in (("cold ", forget), ("", read_file)):
        turns = [_passes_once(Beside(path, prepare)) for _ in range(TURNS)]
        answer |= {
            f"{prefix}pass": [mean(one.seconds for one in same) for same in zip(*turns, strict=True)],
            f"{prefix}read": [mean(one.read for one in same) for same in zip(*turns, strict=True)],
        }
    answer |= {"load": median(timed(lambda: np.load(path)).seconds for _ in range(LOADS))}
    answer |= {"again": min(timed(lambda: _select(path)).seconds for _ in range(TURNS))}
    return answer | {"whole pass": median(_whole_passes(path))}


def _whole_passes(path: str) -> list[float]:
    """Seconds of passes that price every row in float64, which a selection makes only where it must; file in memory."""
    from threadpoolctl import threadpool_limits

    from tailwise.matrix.open import open_proba
    from tailwise.matrix.shards import Rows

    rows = Rows(open_proba(path))
    cost, y = rows.hold(np.zeros(rows.size)), np.linspace(-1.0, 1.0, rows.classes)
    with threadpool_limits(limits=1, user_api="blas"):
        return [timed(lambda: rows.priced(cost, y)).seconds for _ in range(WHOLE_PASSES)]


def _passes_once(beside: Beside) -> list[Asked]:
    with asked_shards(beside) as asked:
        _select(beside.path)
    return [one for one in asked if one.method in PASSES]


def _select(path: str) -> Any:  # noqa: ANN401 - a Selection; loaded when used
    import tailwise

    return tailwise.select(path, np.load(path, mmap_mode="r").shape[0] // BUDGET_SHARE, balance=1.0, score="entropy")


@dataclass(frozen=True, slots=True)
class Asked:
    """A question to the shards."""

    method: str
    seconds: float
    read: float = 0.0  # seconds of reading the file, right after a pass


@dataclass(frozen=True, slots=True)
class Beside:
    """A read of the file to compare each pass with, both after the file was brought into memory, or out of it."""

    path: str
    prepare: Callable[[str], None]


@contextmanager
def asked_shards(beside: Beside | None = None) -> Iterator[list[Asked]]:
    """What the shards are asked, and how long they take."""
    from tailwise.matrix.shards import LocalBackend

    call, asked = LocalBackend.call, []

    def timed_call(backend: LocalBackend, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        read, compared = 0.0, beside if method in PASSES else None
        if compared:
            compared.prepare(compared.path)
        ran = timed(lambda: call(backend, method, arguments))
        if compared:
            compared.prepare(compared.path)
            read = timed(lambda: read_file(compared.path)).seconds
        asked.append(Asked(method, ran.seconds, read))
        return ran.result

    LocalBackend.call = timed_call  # type: ignore[method-assign]
    try:
        yield asked
    finally:
        LocalBackend.call = call  # type: ignore[method-assign]


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


def _judge(sheet: Sheet, answer: Answer, *, numba: bool) -> Iterator[Measured]:
    if "error" in answer:
        yield sheet.failed("gap", f"<= {LIMITS['gap']:g}", answer["error"])
        return
    yield sheet.at_most("gap", answer["gap"], LIMITS["gap"], answer["status"])
    yield sheet.at_most("resident memory, GB", answer["memory"], LIMITS["memory"], f"{answer['own']:.2f} GB its own")
    share, limit, note = _beside_reads(answer, "cold ")
    yield sheet.at_least("throughput of the passes relative to plain reads, from the disk", share, limit, note)
    share, limit, note = _beside_reads(answer, "")
    where = "the same where the file is in memory"
    yield sheet.at_least(where, share, limit, note) if numba else sheet.tell(where, share, note)
    yield sheet.tell("the same relative to np.load of the file in memory", answer["load"] / mean(answer["pass"]))
    read = mean(answer["read"])
    whole = read / answer["whole pass"]
    yield sheet.tell("a pass over all rows in float64 relative to a plain read, from memory", whole)
    yield sheet.tell("the scan relative to a plain read, from memory", read / answer["scan"])
    yield sheet.tell("seconds of the first pass, file in memory", answer["pass"][0])
    yield sheet.tell("seconds of a later pass", mean(answer["pass"][1:]))
    yield sheet.tell("seconds of np.load", answer["load"])
    yield sheet.tell("seconds of the scan", answer["scan"])
    yield sheet.tell("seconds", answer["seconds"])
    yield sheet.tell("seconds when asked again in the same process", answer["again"])
    yield sheet.tell("seconds in the shards", answer["in shards"])
    yield sheet.tell("questions to the shards", answer["questions"])


def _beside_reads(answer: Answer, prefix: str) -> tuple[float, float, str]:
    """How fast the passes are beside as many plain reads, the limit, and the seconds of each."""
    made, reads = answer[f"{prefix}pass"], answer[f"{prefix}read"]
    note = f"passes {', '.join(f'{one:.2f}' for one in made)} s, a read {mean(reads):.2f} s"
    return sum(reads) / sum(made), LIMITS["throughput"], note


ROW = Row(
    NAME,
    "gap ≤ 1e-4, less than 1.5 GB resident; the passes have ≥ 60 % of the throughput of reading the file from the disk "
    "and, with numba (`tailwise[fast]`), also where it is in memory",
    measure,
)
