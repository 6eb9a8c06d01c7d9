"""The default strategy in a pool of a million, from files: class quotas, and covering the pool while labels are few."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from .apart import Answer, call_apart, peak_memory
from .kcenter import Case
from .measured import Measured, Row, Run, Sheet
from .timing import timed

NAME = "boundary-million"
LIMITS = {"processor": 120.0, "memory": 4.0, "gap": 1e-3}  # of two idle cores it needs no more seconds than of one
FULL = Case(1_000_000, 5_000, 256, 100, 10_000, checked=0)
QUICK = replace(FULL, size=100_000, budget=1_000)
FEW = 150  # labels: fewer than two per class


def measure(run: Run) -> Iterator[Measured]:
    """Write the files and pick, each in a process of its own, with many labels and with few."""
    case = QUICK if run.quick else FULL
    for seed in run.seeds(full=1):
        for labels in (case.labelled, FEW):
            given = {"seed": seed, "case": asdict(replace(case, labelled=labels))}
            with tempfile.TemporaryDirectory() as folder:
                answer = call_apart("kcenter_million:prepare", 900, folder=folder, **given)
                if "error" not in answer:
                    answer = call_apart("boundary_million:pick", 7_200, folder=folder, **given)
            yield from _judge(Sheet(NAME, replace(case, labelled=labels).name, seed), answer, quotas=labels != FEW)


def pick(folder: str, seed: int, case: dict[str, int]) -> Answer:
    """Select from the files."""
    from tailwise import Predictions, strategies

    place = Path(folder)
    given = Predictions(place / "proba.npy", embeddings=place / "pool.npy", labelled_embeddings=place / "labelled.npy")
    chooser = strategies.make("boundary", balance="auto")
    counts = np.load(place / "counts.npy")
    found = timed(lambda: chooser.select(given, Case(**case).budget, counts=counts, seed=seed))
    return {
        "seconds": found.seconds, "processor": found.processor_seconds, "memory": peak_memory() / 1e9,
        "gap": found.result.gap, "status": found.result.status,
    }  # fmt: skip


def _judge(sheet: Sheet, answer: Answer, *, quotas: bool) -> Iterator[Measured]:
    if "error" in answer:
        yield sheet.failed("processor seconds", f"<= {LIMITS['processor']:g}", answer["error"])
        return
    yield sheet.at_most("processor seconds", answer["processor"], LIMITS["processor"], answer["status"])
    yield sheet.tell("seconds", answer["seconds"])
    yield sheet.at_most("peak memory of the whole process, GB", answer["memory"], LIMITS["memory"])
    if quotas:
        yield sheet.at_most("gap, over all candidates", answer["gap"], LIMITS["gap"])
    else:
        yield sheet.tell("gap, over all images", answer["gap"])


ROW = Row(
    NAME,
    "the default strategy for N 1,000,000, d 256, C 100, b 10,000, read from .npy files, with 5,000 labels and with "
    "150, in ≤ 120 processor seconds, so ≤ 2 minutes on any idle machine like this, and ≤ 4 GB",
    measure,
)
