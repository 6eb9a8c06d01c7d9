"""`python -m benchmarks.quality --data FOLDER`: run the studies, go on where they were, write docs/results."""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.quality.defaults import defaults_table
from benchmarks.quality.leaderboard.command import Wanted, run_leaderboard
from benchmarks.quality.leaderboard.study import BOARDS
from benchmarks.quality.published import Continued, by_trial, read_published, write_published
from benchmarks.quality.studies import STUDIES, Study
from tailwise.cli.bench import ProgressLines
from tailwise.errors import TailwiseError
from tailwise.experiments.experiment import Experiment, Row
from tailwise.experiments.runner import keep_results, run_experiment, status_of
from tailwise.experiments.trial_run import kept_sweeps
from tailwise.files import write_whole
from tailwise.report.experiment import write_report
from tailwise.report.names import sweep_of
from tailwise.report.tables import markdown

RESULTS = Path("docs/results")
RUNS = Path("tailwise-runs/quality")
ROWS = "results.csv.gz"


def main() -> int:
    """Run what is asked for; the exit code is the number of studies with failures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quality", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the feature files and CIFAR-10")
    names = [*(study.name for study in STUDIES), *BOARDS]
    parser.add_argument(
        "--only", action="append", default=[], choices=names, metavar="STUDY", help="may be given more than once"
    )
    parser.add_argument("--strategy", action="append", default=[], help="run only these")
    parser.add_argument("--quick", action="store_true", help="of the leaderboard: two pools, two rounds, two seeds")
    parser.add_argument("--runs", type=Path, default=RUNS, help="folder for the trials")
    parser.add_argument("--minutes", type=float, default=None, help="start no study after so many minutes")
    parser.add_argument("--processes", type=int, default=None, help="one per core, unless told otherwise")
    parser.add_argument("--anew", action="store_true", help="run also what is published under docs/results")
    parser.add_argument("--report-only", action="store_true", help="write the results of what is there")
    parser.add_argument("--list", action="store_true", help="show the studies and stop")
    given = parser.parse_args()
    wanted = [study for study in STUDIES if not given.only or study.name in given.only]
    boards = [name for name in BOARDS if not given.only or name in given.only]
    if given.list:
        print("\n".join([*(study.name for study in wanted), *boards]))
        return 0
    started, failures = time.monotonic(), 0
    found: dict[Study, list[Row]] = {}
    for study in wanted:
        late = given.minutes is not None and time.monotonic() - started > 60 * given.minutes
        store = Continued(given.runs / study.name, {} if given.anew else by_trial(published_rows(study)))
        run = not (given.report_only or late)
        found[study], failed = run_study(study, given.data, store, given.processes, tuple(given.strategy), run=run)
        failures += failed
    if any(study.compares for study in wanted):
        publish_defaults(found)
    late = given.minutes is not None and time.monotonic() - started > 60 * given.minutes
    return failures + (run_leaderboard(boards, leaderboard_options(given, run=not late)) if boards else 0)


def leaderboard_options(given: argparse.Namespace, *, run: bool) -> Wanted:
    """What the command line says of the leaderboard; a quick one is not published."""
    name = "leaderboard-quick" if given.quick else "leaderboard"
    results = given.runs / f"{name}-page" if given.quick else RESULTS / name
    return Wanted(
        given.data, given.runs / name, results, tuple(given.strategy), given.processes, given.minutes, given.anew,
        run and not given.report_only, given.quick,
    )  # fmt: skip


def published_rows(study: Study) -> list[Row]:
    """The published rows of a study; the variants of the defaults share one file."""
    folder = "defaults" if study.compares else study.name
    return [row for row in read_published(RESULTS / folder / ROWS) if row.experiment == study.name]


def run_study(
    study: Study, data: Path, store: Continued, processes: int | None, strategies: Sequence[str] = (), *, run: bool
) -> tuple[list[Row], bool]:
    """Run a study, or some of its strategies, and write all that is there; all rows, and whether a trial failed."""
    experiment = at(study, data)
    failed: dict[str, str] = {}
    wanted = limited(experiment, strategies)
    if run and wanted is not None:
        status = status_of(wanted, store)
        print(f"\n{study.name}: {status.complete} of {status.trials} trials are done", file=sys.stderr)
        lines = ProgressLines(status.trials - status.complete)
        failed = run_experiment(wanted, store, processes=processes, watchers=(lines,), adopt=True)
    if not store.folder.is_dir():
        store.folder.mkdir(parents=True)
    rows = keep_results(experiment, store)
    if rows and not study.compares:
        write_published(rows, RESULTS / study.name / ROWS)
        rows = published_rows(study)  # rounded: tables and figures can be made again from what is published
        sweeps = [sweep_of(content) for content in kept_sweeps(experiment, store)]
        page = write_report(
            rows, store.folder, title=study.name, sweeps=sweeps, config=experiment.to_toml(),
            class_names=store.class_names(),
        )  # fmt: skip
        publish(store.folder, RESULTS / study.name, sweeps=bool(sweeps))
        write_whole(RESULTS / study.name / "experiment.toml", at(study, Path()).to_toml().encode())
        print(f"{study.name}: {len(rows)} rows; {page}", file=sys.stderr)
    if study.page:
        (RESULTS / study.name).mkdir(parents=True, exist_ok=True)
        write_whole(RESULTS / study.name / "README.md", study.page(study.make(), rows).encode())
    return rows, bool(failed)


def limited(experiment: Experiment, strategies: Sequence[str]) -> Experiment | None:
    """An experiment with only these strategies, all without a name; None where it has none of them."""
    parts = tuple(part for part in experiment.strategies if not strategies or part.name in strategies)
    return experiment.model_copy(update={"strategies": parts}) if parts else None


def at(study: Study, data: Path) -> Experiment:
    """The experiment of a study on a folder of data."""
    experiment = study.make()
    pool = experiment.pool.model_copy(update={"path": str(data / study.data)})
    return experiment.model_copy(update={"pool": pool})


def publish_defaults(found: Mapping[Study, Sequence[Row]]) -> None:
    """All variants in one table, including those published before, with the rows behind it."""
    variants = [study for study in STUDIES if study.compares]
    known = {study: found.get(study) or published_rows(study) for study in variants}
    known = {study: rows for study, rows in known.items() if rows}
    if known:
        target = RESULTS / "defaults"
        write_published([row for rows in known.values() for row in rows], target / ROWS, expected=False)
        write_whole(target / "defaults.md", markdown(defaults_table(known)).encode())


def publish(source: Path, target: Path, *, sweeps: bool) -> None:
    """Replace the tables (Markdown) and figures (PNG) of a study; without λ sweeps their earlier figures stay."""
    for pattern in ("tables/*.md", "figures/*.png"):
        for file in target.glob(pattern):
            if sweeps or not file.name.startswith("balance-path"):
                file.unlink()
        for file in sorted(source.glob(pattern)):
            place = target / file.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, place)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TailwiseError as error:
        sys.exit(f"python -m benchmarks.quality: {error}")
