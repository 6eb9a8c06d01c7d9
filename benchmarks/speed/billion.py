"""What a billion images would need, by the numbers that `benchmarks.speed` has stored: the table of docs/scale.md.

Usage: python -m benchmarks.speed.billion
"""

from __future__ import annotations

from dataclasses import dataclass

from . import results
from .cluster import predicted_bytes

SIZE, CLASSES, BUDGET = 1_000_000_000, 100, 10_000_000
HALF = 2  # bytes of a probability
COLUMNS = 4  # float64 numbers per row that a shard holds at most, but for classes that fall short
CORES = 16  # of a node
NETWORK = 1.25e9  # bytes per second into the machine that solves: 10 Gbit/s
MEASURED_CORES = 2


@dataclass(frozen=True, slots=True)
class Costs:
    """Measured on one machine."""

    scan: float  # core-seconds per probability
    a_pass: float  # core-seconds per probability
    question: float  # seconds, of one shard
    another: float  # seconds that each further shard adds
    questions: float
    passes: float
    rounds: float


def costs() -> Costs:
    """From the stored results."""
    stored = [kept.measured for kept in results.load()]
    found = {(one.row, one.quantity): float(one.value) for one in stored if one.row in ("out-of-core", "ray")}
    elements = 10_000_000 * 100 / MEASURED_CORES
    one, two = (found["ray", f"milliseconds of one question to {shards} shard(s)"] / 1e3 for shards in (1, 2))
    return Costs(
        found["out-of-core", "seconds of the scan"] / elements, found["out-of-core", "seconds of a pass"] / elements,
        one, max(0.0, two - one), found["ray", "questions with 64 shards"], found["ray", "passes with 64 shards"],
        found["ray", "dual rounds with 64 shards"],
    )  # fmt: skip


def main() -> None:
    """Print the table."""
    unit = costs()
    print(f"{unit}\n")
    print("| nodes of 16 cores | GB of each | scan, s | passes, s | questions, s | traffic, s | together, s |")
    print("|---:|---:|---:|---:|---:|---:|---:|")
    for nodes in (1, 4, 16, 64, 256):
        memory = SIZE / nodes * (CLASSES * HALF + 8 * COLUMNS) / 1e9
        scan, passes = (
            SIZE * CLASSES * seconds / (nodes * CORES) for seconds in (unit.scan, unit.a_pass * unit.passes)
        )
        asked = unit.questions * (unit.question + unit.another * (nodes - 1))
        travel = predicted_bytes((SIZE, CLASSES), BUDGET, nodes, round(unit.rounds)) / NETWORK
        together = scan + passes + asked + travel
        print(f"| {nodes} | {memory:.0f} | {scan:.0f} | {passes:.0f} | {asked:.1f} | {travel:.1f} | {together:.0f} |")


if __name__ == "__main__":
    main()
