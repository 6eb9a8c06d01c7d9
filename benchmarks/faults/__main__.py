"""`python -m benchmarks.faults [--kills 200] [--seed N] [--quick]`: hurt campaigns, and show that nothing is lost."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from tailwise.files import csv_bytes, write_whole

from .choosing import Choosing, Job
from .clock_jump import clock_jump
from .disk_full import disk_full
from .importing import Importing
from .labelling import Labelling
from .migrating import Migrating
from .relabelling import Relabelling
from .stage import Stage, stage
from .strikes import Attack, Line, Struck, Sum, attack, sums

RESULTS = Path(__file__).with_name("results.csv")
COLUMNS = (
    "verb", "killed after", "undisturbed", "at", "acknowledged", "lost", "doubled", "went on", "faults", "left files",
    "left bytes",
)  # fmt: skip
KILLS, QUICK_KILLS = 200, 12
IMAGES, QUICK_IMAGES = 400, 200
SHARES = {
    "label": 0.3, "import": 0.15, "next": 0.2, "migrate": 0.15, "next, by the server": 0.1, "relabel": 0.1,
}  # of all kills  # fmt: skip


def main() -> int:
    """Hurt what was asked for; the exit code is 1 where anything was lost, doubled or broken."""
    given = _parse()
    kills = given.kills or (QUICK_KILLS if given.quick else KILLS)
    started = time.monotonic()
    with stage(QUICK_IMAGES if given.quick else IMAGES) as place:
        lines = list(_told(hurt(place, kills, given.seed)))
    found = sums(lines)
    print("\n" + "\n".join(table(found)))
    seconds = time.monotonic() - started
    print(f"\n{sum(one.kills for one in found)} kills, seed {given.seed}, {seconds:.0f} s")
    if not given.quick:
        write_whole(RESULTS, csv_bytes(COLUMNS, [_row(line) for line in lines]))
    return 0 if all(line.struck.sound for line in lines) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument(
        "--kills", type=int, default=None, help=f"how often to kill; {KILLS}, or {QUICK_KILLS} with --quick"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the moments of the kills, and of what people do")
    parser.add_argument("--quick", action="store_true", help="fewer images and kills, and nothing is stored")
    return parser.parse_args()


def hurt(place: Stage, kills: int, seed: int) -> Iterator[Line]:
    """Every verb killed its share of times, then the other faults."""
    rng = np.random.default_rng(seed)
    attacks: dict[str, Callable[[], Attack]] = {
        "label": lambda: Labelling(place, rng),
        "import": lambda: Importing(place),
        "next": lambda: Choosing(place),
        "migrate": lambda: Migrating(place),
        "next, by the server": lambda: Job(place),
        "relabel": lambda: Relabelling(place),
    }
    for verb, number in shared_out(kills).items():
        if number:
            yield from attack(attacks[verb](), number, rng)
    for verb, struck in (*disk_full(place), clock_jump(place)):
        yield Line(verb, float("nan"), float("nan"), struck)


def shared_out(kills: int) -> dict[str, int]:
    """How many of the kills fall on each verb; the first gets what rounding leaves.

    >>> shared_out(200), sum(shared_out(12).values())
    ({'label': 60, 'import': 30, 'next': 40, 'migrate': 30, 'next, by the server': 20, 'relabel': 20}, 12)
    """
    numbers = {verb: int(share * kills) for verb, share in SHARES.items()}
    numbers["label"] += kills - sum(numbers.values())
    return numbers


def _told(lines: Iterator[Line]) -> Iterator[Line]:
    """Each with a word on the way."""
    for line in lines:
        verdict = "sound" if line.struck.sound else f"NOT SOUND: {problem(line.struck)}"
        when = "" if np.isnan(line.moment) else f" killed after {line.moment:.2f} of {line.seconds:.2f} s"
        print(f"{line.verb}{when} ({line.struck.at}): {verdict}", file=sys.stderr, flush=True)
        yield line


def problem(struck: Struck) -> str:
    """What came of it, in words."""
    words = [f"{struck.lost} lost", f"{struck.doubled} doubled", "did not go on" if not struck.went_on else "went on"]
    return "; ".join([*words, *struck.faults])


def table(found: Sequence[Sum]) -> Iterator[str]:
    """As Markdown; acknowledged are the answers that were looked for after each kill."""
    yield "| verb | kills | acknowledged | lost | doubled | went on | other faults | files left |"
    yield "|---|---:|---:|---:|---:|---:|---:|---:|"
    for one in found:
        yield (
            f"| {one.verb} | {one.kills} | {one.acknowledged:,} | {one.lost} | {one.doubled} | {one.went_on} | "
            f"{len(one.faults)} | {one.left[0]} |"
        )


def _row(line: Line) -> Sequence[object]:
    struck = line.struck
    return (
        line.verb, f"{line.moment:.3f}", f"{line.seconds:.3f}", struck.at, struck.acknowledged, struck.lost,
        struck.doubled, struck.went_on, "; ".join(struck.faults), *struck.left,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
