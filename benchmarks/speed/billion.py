"""What a billion images would need, by the numbers that `benchmarks.speed` has stored: written into docs/scale.md.

Usage: python -m benchmarks.speed.billion
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import results
from .cluster import SHARDS, predicted_bytes
from .out_of_core import WITH_NUMBA

SIZE, CLASSES, BUDGET = 1_000_000_000, 100, 10_000_000
MEASURED_SIZE, MEASURED_CORES = 10_000_000, 2
HALF = 2  # bytes of a probability
COLUMNS = 8  # float64 numbers per row that a shard holds at most: three, a spare one, four of classes that fall short
CORES = 16  # of a node
NETWORK = 1.25e9  # bytes per second into the machine that solves: 10 Gbit/s
SORT = 2e-7  # seconds per pick: ten million numbers are put in order in two
NODES = (1, 4, 16, 64, 256)
PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
BEGIN, END = "<!-- billion: written by python -m benchmarks.speed.billion -->", "<!-- end of billion -->"


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured on one machine."""

    row: float  # core-seconds per row in the shards, of all passes and all looks at columns together
    centre: float  # seconds of the one process that asks
    question: float  # seconds of a question to one shard, beside its work
    another: float  # seconds that each further shard adds
    questions: float
    rounds: float


def costs() -> Costs:
    """From the stored results of the base install; of several seeds the mean."""
    stored = [one for one in (kept.measured for kept in results.load()) if not one.instance.endswith(WITH_NUMBA)]

    def mean(row: str, quantity: str) -> float:
        found = [float(one.value) for one in stored if (one.row, one.quantity) == (row, quantity)]
        return sum(found) / len(found)

    shards = mean("out-of-core", "seconds in the shards")
    one, most = (mean("ray", f"milliseconds of one question to {n} shard(s)") / 1e3 for n in (1, SHARDS[-1]))
    return Costs(
        row=shards * MEASURED_CORES / MEASURED_SIZE,
        centre=mean("out-of-core", "seconds") - shards,
        question=one,
        another=max(0.0, most - one) / (SHARDS[-1] - 1),
        questions=mean("out-of-core", "questions to the shards"),
        rounds=mean("ray", "dual rounds with 64 shards"),
    )


def table(unit: Costs) -> Iterator[str]:
    """Nodes, memory and seconds. The centre looks at no more rows than it did when measured, but sorts more picks."""
    yield "| nodes of 16 cores | GB of each | in the shards, s | questions, s | traffic, s | centre, s | all, s |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    centre = unit.centre + BUDGET * SORT
    for nodes in NODES:
        memory = SIZE / nodes * (CLASSES * HALF + 8 * COLUMNS) / 1e9
        shards = SIZE * unit.row / (nodes * CORES)
        asked = unit.questions * (unit.question + unit.another * (nodes - 1))
        travel = predicted_bytes((SIZE, CLASSES), BUDGET, nodes, round(unit.rounds)) / NETWORK
        together = shards + asked + travel + centre
        yield (
            f"| {nodes} | {memory:,.0f} | {shards:,.0f} | {asked:.1f} | {travel:.1f} | {centre:.0f} | {together:,.0f} |"
        )


def text(unit: Costs) -> str:
    """The costs and the table."""
    lines = [
        f"Measured: {1e6 * unit.row:.1f} core-microseconds per row in the shards, {unit.questions:.0f} questions of "
        f"{1e3 * unit.question:.1f} ms and {1e3 * unit.another:.2f} ms for each further shard, {unit.centre:.0f} s at "
        f"the centre, {unit.rounds:.0f} dual rounds.",
        "",
        *table(unit),
    ]
    return "\n".join(lines)


def main() -> None:
    """Write the table into the page."""
    page = PAGE.read_text(encoding="utf-8")
    written = f"{BEGIN}\n{text(costs())}\n{END}"
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: written, page, flags=re.DOTALL), encoding="utf-8")
    print(text(costs()))


if __name__ == "__main__":
    main()
