"""Studies: what is published whole is not run again, some strategies can be run alone, pages show measured gains."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.quality import __main__ as command
from benchmarks.quality import from_scratch
from benchmarks.quality.defaults import defaults_table
from benchmarks.quality.published import Continued, by_trial, read_published, write_published
from benchmarks.quality.studies import STUDIES, Study
from tailwise.experiments.experiment import Experiment, Row, Trial, parse_experiment, trials_of
from tailwise.experiments.runner import collect, run_experiment, status_of
from tailwise.experiments.store import identify, read_rows
from tailwise.report.gain_tables import study_tables
from tailwise.report.summary import Results
from tailwise.report.tables import markdown

FILE = """
name = "tiny"
budget = 20
cycles = 1
seeds = [0, 1]
pool = { name = "digits" }
imbalance = { factors = [0.2] }
start = { initial = 30 }
learner = { settings = { strength = 0.05 } }
strategies = [{ name = "random" }, { name = "entropy" }]
"""

pytestmark = pytest.mark.usefixtures("quick_sweeps")


@pytest.fixture(scope="module")
def tiny() -> Experiment:
    return parse_experiment(FILE, "test")


@pytest.fixture(scope="module")
def rows(tiny: Experiment, tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    folder = tmp_path_factory.mktemp("whole")
    assert run_experiment(tiny, Continued(folder), processes=1) == {}
    return read_rows(folder / "results.csv")


def trial(tiny: Experiment, seed: int, strategy: str) -> Trial:
    trials = trials_of(tiny, identify(tiny.pool).content)
    (found,) = (one for one in trials if (one.seed, one.part.name) == (seed, strategy))
    return found


def test_only_what_is_not_published_is_run(tiny: Experiment, rows: list[Row], tmp_path: Path) -> None:
    marked = [replace(row, accuracy=0.125) for row in rows if (row.seed, row.strategy) != (1, "entropy")]
    store = Continued(tmp_path / "on", by_trial(marked))
    assert status_of(tiny, store).complete == 3
    assert run_experiment(tiny, store, processes=1) == {}
    assert {path.name.split("_")[2] for path in (store.folder / "trials").iterdir()} == {"entropy"}
    found = {(row.seed, row.strategy, row.cycle): row.accuracy for row in collect(tiny, store)}
    assert len(found) == len(rows)
    for row in rows:
        fresh = (row.seed, row.strategy) == (1, "entropy")
        assert found[row.seed, row.strategy, row.cycle] == (row.accuracy if fresh else 0.125)


def test_a_trial_that_is_published_in_part_is_run(tiny: Experiment, rows: list[Row], tmp_path: Path) -> None:
    store = Continued(tmp_path, by_trial(row for row in rows if row.cycle == 0))
    assert not any(store.is_complete(one) for one in trials_of(tiny))


def test_what_the_folder_holds_whole_comes_first(tiny: Experiment, rows: list[Row], tmp_path: Path) -> None:
    store = Continued(tmp_path, by_trial(replace(row, accuracy=0.125) for row in rows))
    assert not list(Continued(tmp_path).cycles(trial(tiny, 0, "random")))
    assert [cycle.row.accuracy for cycle in store.cycles(trial(tiny, 0, "random"))] == [0.125, 0.125]
    assert run_experiment(tiny, Continued(tmp_path), processes=1) == {}
    kept = [row.accuracy for row in rows if (row.seed, row.strategy) == (0, "random")]
    assert [cycle.row.accuracy for cycle in store.cycles(trial(tiny, 0, "random"))] == kept


def test_where_nothing_is_published_there_are_no_rows(tmp_path: Path) -> None:
    assert read_published(tmp_path / command.ROWS) == []


# Class names come with the files of a pool, which are not here.
NAMES = {"cifar10": ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]}


def tables(rows: list[Row]) -> dict[str, str]:
    results = Results.of(rows)
    grids = [
        grid for study in results.studies for grid in study_tables(results, study, published=True, class_names=NAMES)
    ]
    return {grid.name: markdown(grid) for grid in grids}


def test_published_rows_are_small_and_give_the_same_tables(rows: list[Row], tmp_path: Path) -> None:
    write_published(reversed(rows), tmp_path / "small.csv.gz")
    small = read_published(tmp_path / "small.csv.gz")
    assert (tmp_path / "small.csv.gz").stat().st_size < 3000
    made, before = tables(small), tables(rows)
    assert made.keys() == before.keys()
    assert {name for name in made if made[name] != before[name]} <= {"counts-digits-linear"}  # rounded: last digits
    whole = {(row.seed, row.strategy, row.cycle): row for row in rows}
    for row in small:
        one = whole[row.seed, row.strategy, row.cycle]
        assert (row.counts, row.pool_counts, row.realised) == (one.counts, one.pool_counts, one.realised)
        assert row.expected == pytest.approx(one.expected, abs=0.0051)
        assert row.accuracy == pytest.approx(one.accuracy, rel=1e-4)
        assert row.l1_score == one.l1_score


def test_published_rows_count_as_done(tiny: Experiment, rows: list[Row], tmp_path: Path) -> None:
    path = tmp_path / "small.csv.gz"
    write_published((row for row in rows if row.seed == 0 or row.cycle == 0), path, expected=False)
    store = Continued(tmp_path, by_trial(read_published(path)))
    assert {one.seed for one in trials_of(tiny) if store.is_complete(one)} == {0}


def test_earlier_sweep_figures_stay_until_there_are_new_ones(tmp_path: Path) -> None:
    for name in ("target/figures/balance-path-a.png", "target/figures/old.png", "source/figures/new.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    command.publish(tmp_path / "source", tmp_path / "target", sweeps=False)
    assert {path.name for path in (tmp_path / "target/figures").iterdir()} == {"balance-path-a.png", "new.png"}
    command.publish(tmp_path / "source", tmp_path / "target", sweeps=True)
    assert {path.name for path in (tmp_path / "target/figures").iterdir()} == {"new.png"}


@pytest.mark.usefixtures("quick_figures")
def test_only_the_wanted_strategies_are_run_and_all_that_is_there_is_shown(
    tiny: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # results are written below the current folder
    study = Study("tiny", "", lambda: tiny, page=from_scratch.page)
    runs = {}
    for names in (["random"], ["entropy", "margin"], ["margin"]):
        found, failed = command.run_study(study, tmp_path, Continued(tmp_path / "runs"), 1, names, run=True)
        runs[names[0]] = {row.strategy for row in found}
        assert not failed
    assert runs == {"random": {"random"}, "entropy": {"random", "entropy"}, "margin": {"random", "entropy"}}
    assert "4 of 4 trials are complete" in (tmp_path / "docs/results/tiny/README.md").read_text(encoding="utf-8")


def at_cycles(rows: list[Row], strategy: str, balance: str, accuracies: dict[int, list[float]]) -> list[Row]:
    """Rows of the paper's pool with these accuracies, by seed and cycle, and twice as high where adjusted."""
    return [
        replace(
            rows[0], pool="cifar10", learner="resnet10", setting="step 0.1", imbalance=0.1, strategy=strategy,
            balance=balance, seed=seed, cycle=cycle, accuracy=accuracy, adjusted_accuracy=2 * accuracy,
        )
        for seed, curve in accuracies.items() for cycle, accuracy in enumerate(curve)
    ]  # fmt: skip


def test_a_page_shows_gains_over_random_and_the_published_gain_of_balance(tiny: Experiment, rows: list[Row]) -> None:
    found = [
        *at_cycles(rows, "random", "0", {0: [0.2, 0.30, 0.40], 1: [0.2, 0.30, 0.44]}),
        *at_cycles(rows, "entropy", "0", {0: [0.2, 0.31, 0.42], 1: [0.2, 0.31, 0.44]}),
        *at_cycles(rows, "entropy", "auto", {0: [0.2, 0.33, 0.45], 1: [0.2, 0.34, 0.49]}),
        *at_cycles(rows, "boundary", "auto", {0: [0.2, 0.35, 0.47], 1: [0.2, 0.35]}),  # seed 1 is not complete
    ]
    page = from_scratch.page(tiny.model_copy(update={"cycles": 2, "seeds": (0, 1, 2, 3)}), found)
    assert "7 of 8 trials are complete" in page
    # Per seed (1 + 2) / 2 and (1 + 0) / 2 points over the cycles, 2 and 0 in the last; adjusted twice that.
    assert "| Entropy | **+1.00 ± 0.50** | +1.00 ± 1.00 | **+2.00 ± 1.00** | +2.00 ± 2.00 | 2 |" in page
    assert "| Entropy-CB | **+4.25 ± 0.25** | **+5.00 ± 0.00** | " in page
    assert "| Boundary-CB | +6.00 ± – | +7.00 ± – | +12.00 ± – | +14.00 ± – | 1 |" in page
    assert "| step 0.1 | Entropy-CB | **+2.50 ± 0.50** | +0.54 | **+4.00 ± 1.00** | +0.86 |" in page


def test_a_page_without_results_says_so_and_the_one_in_the_repository_is_made_from_its_rows() -> None:
    (study,) = (one for one in STUDIES if one.page)
    experiment = study.make()
    assert "**Not yet run**" in from_scratch.page(experiment, [])
    folder = Path(__file__).parents[3] / "docs" / "results" / study.name
    stored = (folder / "README.md").read_text(encoding="utf-8")
    assert stored == from_scratch.page(experiment, read_published(folder / command.ROWS))


@pytest.mark.parametrize("study", [one for one in STUDIES if not one.compares], ids=lambda study: study.name)
def test_the_tables_in_the_repository_are_made_from_their_rows(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    stored = {path.stem: path.read_text(encoding="utf-8") for path in Path("docs/results", study.name).glob("tables/*")}
    rows = command.published_rows(study)
    assert stored == (tables(rows) if rows else {})


def test_the_table_of_the_defaults_in_the_repository_is_made_from_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[3])
    found = {study: command.published_rows(study) for study in STUDIES if study.compares}
    assert all(found.values())
    stored = Path("docs/results/defaults/defaults.md").read_text(encoding="utf-8")
    assert stored == markdown(defaults_table(found))
