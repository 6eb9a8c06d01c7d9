"""Run the leaderboard's studies and write its page: what `python -m benchmarks.quality --only leaderboard` does."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality.leaderboard.analysis import Setup
from benchmarks.quality.leaderboard.page import write_page
from benchmarks.quality.leaderboard.rows import FILE, START, Key, Method, Score, read_scores
from benchmarks.quality.leaderboard.study import (
    BOARDS,
    LEFT_OUT,
    LONG_TAILS,
    NEVER_BALANCED,
    PARTS,
    RIVALS,
    SOURCES,
    Board,
    Runs,
    board,
    collect_scores,
    default_method,
    merged,
    quick_board,
    registered_methods,
    run_board,
)
from tailwise.errors import BadInput
from tailwise.strategies import STRATEGIES


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to run, and where."""

    data: Path
    runs: Path  # trials are kept here
    results: Path  # the page; its results.csv.gz counts as done
    strategies: tuple[str, ...] = ()  # only these; all where empty
    processes: int | None = None
    minutes: float | None = None  # begin nothing after so many
    anew: bool = False
    run: bool = True  # else only write the page
    quick: bool = False


def run_leaderboard(names: Sequence[str], wanted: Wanted) -> bool:
    """Run the studies of these names and write the page; whether a trial failed."""
    methods = chosen_methods(wanted.strategies)
    if wanted.quick:
        quick = [quick_board(methods)]
        return run_studies(quick, quick, wanted)
    return run_studies(
        [board(name, methods) for name in names], [board(name, registered_methods()) for name in BOARDS], wanted
    )


def run_studies(studies: Sequence[Board], shown: Sequence[Board], wanted: Wanted) -> bool:
    """Run what is missing of some studies, and write the page from all that are shown; whether a trial failed."""
    published = read_scores(wanted.results / FILE)
    known = frozenset[Key]() if wanted.anew else whole_trials(published, studies)
    if known and wanted.run:
        print(f"{len(known):,} trials of {wanted.results / FILE} do not run again; --anew runs them", file=sys.stderr)
    runs = Runs(wanted.runs, wanted.data, known, wanted.processes, wanted.anew)
    failed: dict[str, str] = {}
    for study in studies if wanted.run else []:
        failed |= run_board(study, runs, wanted.minutes)
    found = [score for study in shown for score in collect_scores(study, runs)]
    scores = [
        one
        for one in merged(published, found)
        if one.strategy == START
        or (one.strategy in STRATEGIES and not (one.strategy in NEVER_BALANCED and one.settings))
    ]
    if scores:
        page = write_page(scores, setup_of(shown), wanted.results)
        print(f"{len(scores):,} rows; {page}", file=sys.stderr)
    for title, why in failed.items():
        print(f"FAILED: {title}: {why}", file=sys.stderr)
    return bool(failed)


def chosen_methods(strategies: Sequence[str]) -> tuple[Method, ...] | None:
    """The methods of these strategies, in their order; None where none is named."""
    if not strategies:
        return None
    known = registered_methods()
    if missing := [name for name in strategies if name not in {one.strategy for one in known}]:
        names = ", ".join(dict.fromkeys(one.strategy for one in known))
        raise BadInput(f"no strategy {missing[0]!r} in the leaderboard; choose from {names}")
    return tuple(one for name in strategies for one in known if one.strategy == name)


def whole_trials(scores: Iterable[Score], studies: Sequence[Board]) -> frozenset[Key]:
    """Trials that have all rounds of their cell."""
    rounds = {cell.key: cell.rounds for study in studies for cell in study.cells}
    return frozenset(one.trial for one in scores if one.round >= rounds.get(one.cell, sys.maxsize))


def setup_of(studies: Sequence[Board]) -> Setup:
    """What the page shows of some studies."""
    cells = dict.fromkeys(cell.key for study in studies for cell in study.cells)
    return Setup(
        default_method(), tuple(Method(name) for name in RIVALS if name != "random"),
        {source.name: source.shown for source in (*SOURCES, *LONG_TAILS)},
        tuple(cell for cell in cells if cell[1] != "long"), tuple(cell for cell in cells if cell[1] == "long"),
        {name: why for name, why in LEFT_OUT.items() if name in STRATEGIES}, PARTS,
    )  # fmt: skip
