"""docs/speed.md: stored results in, the table between two marks of the page out; what stands around it is kept."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import numpy as np

from .measured import Measured, Row
from .results import Kept

PAGE = Path(__file__).parents[2] / "docs" / "speed.md"
BEGIN = "<!-- results: written by python -m benchmarks.speed -->"
END = "<!-- end of results -->"
PEERS = ("cvxpy", "pyscipopt", "scikit-activeml")
PACKAGES = ("tailwise", "numpy", "scipy", "highspy", "numba", *PEERS)
ABSENT = "(not installed)"

FRAME = f"""\
# Speed

What Tailwise promises about its speed, and what was measured. Every promise is listed with its value, met or not.

```sh
make bench-speed                            # everything: about an hour and a half, mostly for the other solvers
.venv-bench/bin/python -m benchmarks.speed --quick          # ten to fifteen minutes
.venv-bench/bin/python -m benchmarks.speed --only million   # one row
.venv-bench/bin/python -m benchmarks.speed --list           # the rows
```

The pools are synthetic softmax matrices with a long tail (the rarest class is a hundredth as common as the most common
one), in which similar classes are confused with each other. b = N/18 and λ = 1 unless a row gives other values. Ratios
compare times of the same run. Every objective, including those of other solvers, is recomputed in float64 from the
picks. A general solver gets the same problem, all cores, and our objective as its goal, so that it can stop as soon as
it reaches it; the time to build its model does not count. For promises that are tested on several seeds, the worst is
shown; for other numbers, the median. Every seed is in `benchmarks/speed/results.csv`.

{BEGIN}
{END}
"""


def write_page(results: list[Kept], rows: list[Row]) -> None:
    """Put the results between the marks."""
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else FRAME
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    PAGE.parent.mkdir(exist_ok=True)
    body = "\n".join(_lines(results, rows))
    PAGE.write_text(f"{before}{BEGIN}\n{body}\n{END}{after}", encoding="utf-8")


def machine() -> str:
    """Processor, cores, memory and versions, in one sentence each."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
    cores = len(os.sched_getaffinity(0))
    return f"{model}, {cores} cores, {memory:.0f} GB. Python {platform.python_version()}, {versions}."


def missing_peers() -> list[str]:
    """What is compared with, but not installed."""
    return [name for name in PEERS if _version(name) == ABSENT]


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ABSENT


def _lines(results: list[Kept], rows: list[Row]) -> Iterator[str]:
    yield f"Last run on: {machine()}"
    states = {kept.source for kept in results}
    if len(states) > 1:
        yield "\nThe rows below were not all measured on one state of the source.\n"
    judged = [kept.measured for kept in results if kept.measured.limit]
    missed = sum(one.met is False for one in judged)
    undecided = sum(one.met is None for one in judged)
    yield f"Of {len(judged)} promises measured, {len(judged) - missed - undecided} are met, {missed} are NOT met"
    yield f"and {undecided} are undecided (a quick run's limits for peers are too short)."
    for row in rows:
        own = [kept for kept in results if kept.measured.row == row.name]
        yield from _section(row, own)


def _section(row: Row, own: list[Kept]) -> Iterator[str]:
    yield f"\n## {row.name}\nMust show: {row.must_show}.\n"
    if not own:
        yield "Not measured yet."
        return
    yield f"Measured {own[0].date}, {own[0].mode} run; source {own[0].source}.\n"
    yield "| pool | quantity | limit | measured | |\n|---|---|---|---|---|"
    for group in _groups([kept.measured for kept in own]):
        worst = _worst(group)
        seeds = f" ({len(group)} seeds)" if len(group) > 1 else ""
        verdict = f"**{worst.verdict}**" if worst.verdict == "NOT met" else worst.verdict
        yield f"| {worst.instance} | {worst.quantity} | {_limit(worst)} | {shown(worst)}{seeds} | {verdict} |"


def _groups(measured: list[Measured]) -> list[list[Measured]]:
    """The seeds of each quantity together, in order of appearance."""
    groups: dict[tuple[str, str], list[Measured]] = {}
    for one in measured:
        groups.setdefault((one.instance, one.quantity), []).append(one)
    return list(groups.values())


def _worst(group: list[Measured]) -> Measured:
    """The seed that is farthest from its promise; of numbers that are only told, the median one."""
    missed = [one for one in group if one.met is False]
    undecided = [one for one in group if one.met is None and one.limit]
    ranked = sorted(missed or undecided or group, key=_order)
    if not ranked[0].limit:
        return ranked[(len(ranked) - 1) // 2]
    return ranked[0] if ranked[0].limit.startswith(">=") else ranked[-1]


def _order(one: Measured) -> float:
    return one.value if isinstance(one.value, float | int) and not np.isnan(one.value) else np.inf


def _limit(one: Measured) -> str:
    return one.limit.replace("<=", "≤").replace(">=", "≥")


def shown(one: Measured) -> str:
    """A value as people read it, with its note."""
    mark = "≥ " if one.note == "≥" else ""
    value = one.value if isinstance(one.value, str) else f"{one.value:.4g}"
    note = f"; {one.note}" if one.note and not mark else ""
    return f"{mark}{value}{note}".replace("|", "\\|")
