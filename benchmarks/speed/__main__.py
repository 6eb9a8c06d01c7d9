"""Measures the rows of docs/speed.md, prints each number beside its promise, and stores them.

Usage: python -m benchmarks.speed [--only ROW] [--quick] [--no-peers] [--list]
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
import time

from . import (
    boundary_million,
    cluster,
    command_line,
    default_call,
    gallery,
    growth,
    indexing,
    kcenter,
    kcenter_million,
    labelling,
    libraries,
    map_view,
    million,
    next_round,
    out_of_core,
    results,
    small_hard,
    small_pool,
    training,
    wide,
)
from .measured import Measured, Row, Run, Sheet
from .page import machine, missing_peers, shown, write_page

MODULES = (
    small_pool,
    default_call,
    million,
    wide,
    small_hard,
    command_line,
    kcenter,
    kcenter_million,
    boundary_million,
    libraries,
    training,
    labelling,
    map_view,
    gallery,
    indexing,
    next_round,
    out_of_core,
    growth,
    cluster,
)
ROWS = [module.ROW for module in MODULES]


def main() -> None:
    """Run what was asked for."""
    asked = _parse()
    if asked.list:
        for row in ROWS:
            print(f"{row.name:16} {row.must_show}")
        return
    run = Run(quick=asked.quick, peers=not asked.no_peers)
    if run.peers and (missing := missing_peers()):
        sys.exit(f"not installed: {', '.join(missing)}; use make bench-speed, which installs them, or add --no-peers")
    print(machine())
    found: list[Measured] = []
    for row in ROWS:
        if not asked.only or row.name in asked.only:
            before = results.source_state()
            fresh = _measure(row, run)
            found += fresh
            # After every row: hours of measuring are not lost to a later fault.
            _keep(fresh, run, _one_state(before, results.source_state()))
    _sum_up(found)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description="Measure the speed of Tailwise.")
    parser.add_argument(
        "--only",
        action="append",
        choices=[row.name for row in ROWS],
        help="measure one row; may be given more than once",
    )
    parser.add_argument("--quick", action="store_true", help="fewer seeds, shorter limits for peers")
    parser.add_argument("--no-peers", action="store_true", help="leave out other solvers and libraries")
    parser.add_argument("--list", action="store_true", help="show the rows and stop")
    return parser.parse_args()


def _measure(row: Row, run: Run) -> list[Measured]:
    print(f"\n{row.name}: must show {row.must_show}", flush=True)
    started = time.perf_counter()
    load = Sheet(row.name, "this machine").tell("load average before", os.getloadavg()[0])
    found = []
    for one in itertools.chain([load], row.measure(run)):
        found.append(one)
        seed = "" if one.seed is None else f"seed {one.seed}"
        limit = f"[{one.limit}]" if one.limit else ""
        print(f"  {one.instance:28} {seed:7} {one.quantity:46} {shown(one)} {limit} {one.verdict}", flush=True)
    print(f"  ({time.perf_counter() - started:.0f} s)")
    return found


def _one_state(before: str, after: str) -> str:
    return before if before == after else f"changed while measured: {before} to {after}"


def _keep(found: list[Measured], run: Run, source: str) -> None:
    merged, stay = results.merge(results.load(), results.dated(found, run, source))
    results.store(merged)
    write_page(merged, ROWS)
    for row in stay:
        print(f"  not stored: {row} has results of a fuller run")


def _sum_up(found: list[Measured]) -> None:
    judged = [one for one in found if one.limit]
    missed = [one for one in judged if one.met is False]
    print(f"\n{sum(one.met is True for one in judged)} met, {len(missed)} NOT met, of {len(judged)}")
    for one in missed:
        print(f"  NOT met: {one.row}, {one.instance}, seed {one.seed}: {one.quantity} {shown(one)} {one.limit}")


if __name__ == "__main__":
    main()
