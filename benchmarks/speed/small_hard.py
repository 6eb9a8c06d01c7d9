"""2,000 images, where rounding is hardest: our objective in five seconds against SCIP's in sixty."""

from __future__ import annotations

from collections.abc import Iterator

from .apart import call_apart
from .instances import Instance, generate, objective
from .measured import Measured, Row, Run, Sheet
from .small_pool import warm_up
from .timing import timed

NAME = "small-hard"
SIZES = ((2_000, 10), (2_000, 100))


def measure(run: Run) -> Iterator[Measured]:
    """Every seed with its peer."""
    warm_up()
    for size, classes in SIZES:
        for seed in run.seeds(full=5, quick=2):
            yield from _one(Instance(size, classes, seed), run)


def _one(instance: Instance, run: Run) -> Iterator[Measured]:
    import tailwise

    proba, _ = generate(instance)
    sheet = Sheet(NAME, instance.name, instance.seed)
    run_once = timed(lambda: tailwise.select(proba, instance.budget, balance=1.0, gap=1e-5, score="entropy"))
    batch = run_once.result
    yield sheet.at_most("seconds", run_once.seconds, 5.0)
    yield sheet.tell("processor seconds", run_once.processor_seconds)
    yield sheet.tell("gap", batch.gap, batch.status)
    ours = objective(instance, proba, batch.indices)
    yield sheet.tell("objective", ours)
    if run.peers:
        yield from _beside(sheet, instance, ours, 10.0 if run.quick else 60.0)


def _beside(sheet: Sheet, instance: Instance, ours: float, limit: float) -> Iterator[Measured]:
    answer = call_apart(
        "solvers:scip", 2 * limit + 120, size=instance.size, classes=instance.classes, seed=instance.seed, limit=limit
    )
    if "error" in answer:
        yield sheet.undecided("objective above SCIP's, relative", "<= 1e-09", answer["error"])
        return
    theirs = answer["objective"]
    yield sheet.tell("SCIP: objective", theirs, answer["status"])
    yield sheet.tell("SCIP: seconds", answer["seconds"])
    worse = (ours - theirs) / max(1.0, abs(ours))
    yield sheet.at_most("objective above SCIP's, relative", worse, 1e-9, f"SCIP had {limit:.0f} s")


ROW = Row(NAME, "objective no worse than SCIP's after 60 s, in ≤ 5 s", measure)
