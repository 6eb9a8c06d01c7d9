"""The leaderboard on the embedded digits: what runs, what is kept, and the page."""

from __future__ import annotations

import doctest
import json
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from benchmarks.quality.leaderboard import analysis, rows, statistics, tables
from benchmarks.quality.leaderboard.analysis import Analysis, Setup
from benchmarks.quality.leaderboard.command import Wanted, chosen_methods, run_studies, whole_trials
from benchmarks.quality.leaderboard.page import page_text, write_page
from benchmarks.quality.leaderboard.rows import (
    FILE,
    FIRST_SET,
    RANDOM,
    RANDOM_LONG,
    Method,
    Score,
    read_scores,
    tail_recall,
    write_scores,
)
from benchmarks.quality.leaderboard.study import (
    LEFT_OUT,
    Board,
    Runs,
    Source,
    board,
    collect_scores,
    default_method,
    few,
    merged,
    more,
    registered_methods,
    run_board,
)
from tailwise.errors import BadInput
from tailwise.experiments.store import read_rows
from tailwise.strategies import STRATEGIES

MARGIN, ENTROPY = Method("margin"), Method("entropy", "auto")
DIGITS = replace(few(Source("digits", "Digits", "", 10, 0.1)), rounds=2)
STUDY = Board("test", (DIGITS,), (RANDOM, MARGIN, ENTROPY), ((0,), (1,)))
SETUP = Setup(ENTROPY, (MARGIN,), {"digits": "Digits"}, (DIGITS.key,))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    made = Runs(tmp_path_factory.mktemp("runs"), Path(), processes=1)
    assert run_board(STUDY, made) == {}
    return made


@pytest.fixture(scope="module")
def scores(runs: Runs) -> list[Score]:
    return collect_scores(STUDY, runs)


def test_every_method_of_a_seed_begins_with_the_same_labels(runs: Runs) -> None:
    for seed in (0, 1):
        trials = sorted((runs.store(DIGITS).folder / "trials").glob(f"*seed-{seed}_*"))
        assert len(trials) == 4  # three methods, and random selection with more labels
        starts = [json.loads((trial / "cycle-00.json").read_bytes())["row"] for trial in trials]
        assert len({(tuple(row["counts"]), tuple(row["recalls"])) for row in starts}) == 1


def test_scores_are_those_of_the_trials(runs: Runs, scores: list[Score]) -> None:
    assert [one.labels for one in scores if one.method == MARGIN and one.seed == 0] == [40, 60]
    assert next(one.labels for one in scores if one.method == RANDOM_LONG and one.seed == 0) == 20 + 2 * 20
    assert sorted((one.seed, one.round, one.labels) for one in scores if one.method == FIRST_SET) == [
        (0, 0, 20),
        (1, 0, 20),
    ]
    long = read_rows(runs.store(DIGITS).folder / "results.csv")  # of the run that came last
    for row in long[1:]:
        own = next(
            one for one in scores if one.method == RANDOM_LONG and one.labels == row.labelled and one.seed == row.seed
        )
        assert (own.balanced, own.adjusted) == (row.balanced_accuracy, row.adjusted_balanced_accuracy)
        assert own.classes == np.count_nonzero(row.counts)


def test_the_tail_half_is_the_rarer_half_of_the_pool(runs: Runs) -> None:
    row = read_rows(runs.store(DIGITS).folder / "results.csv")[0]
    images = [a + b for a, b in zip(row.counts, row.pool_counts, strict=True)]
    rarest = sorted(range(10), key=lambda cls: images[cls])[:5]
    assert tail_recall(row) == pytest.approx(np.mean([row.recalls[cls] for cls in rarest]))
    odd = replace(row, counts=(1, 1, 1), pool_counts=(9, 0, 5), recalls=(0.9, 0.1, 0.4))
    assert tail_recall(odd) == pytest.approx(0.25)


def test_what_is_done_or_published_is_not_run_again(
    runs: Runs, scores: list[Score], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_board(STUDY, runs) == {}
    assert "trials" not in capsys.readouterr().err
    published = whole_trials((one for one in scores if one.seed == 0), [STUDY])
    assert len(published) == 4
    again = Runs(tmp_path, Path(), published, processes=1)
    assert run_board(STUDY, again) == {}
    new = collect_scores(STUDY, again)
    assert {one.seed for one in new} == {1}
    together = merged([one for one in scores if one.seed == 0], new)
    assert sorted(map(_without_time, together), key=repr) == sorted(map(_without_time, scores), key=repr)


def _without_time(score: Score) -> Score:
    return replace(score, seconds=0.0)


def test_anew_forgets_the_trials_of_its_methods_alone(runs: Runs, tmp_path: Path) -> None:
    kept = replace(runs, folder=tmp_path)
    study = replace(STUDY, methods=(RANDOM, MARGIN), seeds=((0,),))
    run_board(study, kept)
    picks = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("cycle-00.npy")}
    run_board(replace(study, methods=(MARGIN,)), replace(kept, anew=True))
    changed = [file for file, time in picks.items() if file.stat().st_mtime_ns != time]
    assert len(changed) == 1
    assert "margin" in str(changed[0])


@pytest.mark.parametrize("name", ["results.csv", FILE])
def test_the_file_gives_back_what_was_written_to_three_digits(scores: list[Score], tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_scores(scores, path)
    back = {(one.trial, one.round): one for one in read_scores(path)}
    assert len(back) == len(scores)
    for one in scores:
        same = back[one.trial, one.round]
        assert (same.labels, same.classes) == (one.labels, one.classes)
        assert [same.balanced, same.adjusted, same.tail] == pytest.approx(
            [one.balanced, one.adjusted, one.tail], abs=5e-4
        )
        assert math.isnan(same.seconds) == (one.method == FIRST_SET)
    first = path.read_bytes()
    write_scores(read_scores(path)[::-1], path)
    assert path.read_bytes() == first
    assert read_scores(tmp_path / "none.csv") == []


def test_the_page_shows_losses_and_is_the_same_for_the_same_scores(scores: list[Score], tmp_path: Path) -> None:
    text = write_page(scores, SETUP, tmp_path).read_text(encoding="utf-8")
    for heading in ("Where it loses", "The default against everyone", "All methods", "Gains by cell", "How to read"):
        assert f"## {heading}" in text
    assert "**Entropy-CB**" in text
    files = {file.name for file in tmp_path.iterdir()}
    assert files == {"README.md", FILE, "gains.png", "curves.png"}  # one cell gives no mean ranks
    assert all(f"({name})" in text for name in files - {"README.md"})
    first = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for again in (list(reversed(scores)), read_scores(tmp_path / FILE)):
        write_page(again, SETUP, tmp_path)
        assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == first


def test_the_command_continues_from_its_own_file_and_drops_unknown_strategies(
    runs: Runs, scores: list[Score], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one_seed = [one for one in scores if one.seed == 0]
    gone = [replace(one, strategy="gone") for one in one_seed if one.method == MARGIN]
    write_scores([*one_seed, *gone], tmp_path / "page" / FILE)
    study = replace(STUDY, methods=(MARGIN,), seeds=((0,),))
    wanted = Wanted(Path(), tmp_path / "runs", tmp_path / "page", processes=1)
    assert run_studies([study], [STUDY], wanted) is False
    assert not (tmp_path / "runs").exists()  # all of it was published
    assert "do not run again; --anew runs them" in capsys.readouterr().err
    assert {one.strategy for one in read_scores(tmp_path / "page" / FILE)} == {
        "random", "margin", "entropy", "start",
    }  # fmt: skip
    assert run_studies([STUDY], [STUDY], replace(wanted, runs=runs.folder, run=False)) is False
    assert len(read_scores(tmp_path / "page" / FILE)) == len(scores)


def test_a_trial_that_fails_is_reported_and_the_others_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = replace(STUDY, methods=(RANDOM, Method("margin", "nonsense")), seeds=((0,),))
    assert run_studies([study], [study], Wanted(Path(), tmp_path / "runs", tmp_path / "page", processes=1)) is True
    assert "FAILED: digits few trial: exponential 0.1 random, seed 0, margin λ=nonsense" in capsys.readouterr().err
    assert {one.method for one in read_scores(tmp_path / "page" / FILE)} == {RANDOM, RANDOM_LONG, FIRST_SET}


def test_a_default_that_has_not_run_is_said_so_and_the_others_are_shown(scores: list[Score], tmp_path: Path) -> None:
    setup = replace(SETUP, default=Method("boundary", "auto"))
    text = write_page(scores, setup, tmp_path).read_text(encoding="utf-8")
    assert "has not run yet" in text
    assert "## Where it loses" not in text
    assert "| Entropy-CB | " in text.split("## All methods")[1]


def test_a_method_with_too_few_seeds_is_not_shown() -> None:
    cell = ("digits", "few")
    seeds = {"random": 10, "boundary": 10, "margin": 8, "badge": 3}
    found = [
        Score(*cell, name, "auto" if name == "boundary" else "", seed, 1, 20, 0.5 + 0.01 * seed, 0.5, 0.5, 10, 0.1)
        for name, count in seeds.items() for seed in range(count)
    ]  # fmt: skip
    setup = Setup(Method("boundary", "auto"), (), {"digits": "Digits"}, (cell,))
    text = page_text(Analysis(found, setup))
    assert "Stored, but not shown with fewer than 8 seeds in half of the cells: BADGE." in text
    assert "3 methods on 1 pool" in text
    assert "| BADGE |" not in text


def test_the_summary_names_the_strongest_of_the_other_strategies() -> None:
    default, badge = Method("boundary", "auto"), Method("badge")
    levels = {RANDOM: 0.5, default: 0.6, Method("boundary"): 0.63, MARGIN: 0.53, badge: 0.62}
    cell = ("digits", "few")
    found = [
        Score(*cell, method.strategy, method.settings, seed, 1, 20, level + 0.001 * seed, level, 0.5, 10, 0.1)
        for method, level in levels.items() for seed in range(8)
    ]  # fmt: skip
    for rivals in ((MARGIN,), (MARGIN, badge)):
        text = page_text(Analysis(found, Setup(default, rivals, {"digits": "Digits"}, (cell,))))
        assert [line.split(" points")[0] for line in text.splitlines() if line.startswith("- **Against")] == [
            "- **Against BADGE, the strongest of the other strategies:** −2.0 ± 0.0",
            "- **Against Margin:** +7.0 ± 0.0",
        ]


def test_a_clear_loss_is_listed(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    scores = [
        Score(
            *DIGITS.key, method.strategy, method.settings, seed, 1, 40, level + rng.normal(0, 1e-3), level, 0, 9, 0.1
        )
        for seed in range(6)
        for method, level in ((RANDOM, 0.5), (MARGIN, 0.6 + 0.001 * seed), (ENTROPY, 0.55))
    ]  # fmt: skip
    text = write_page(scores, SETUP, tmp_path).read_text(encoding="utf-8")
    losses = text.split("## Where it loses")[1].split("## ")[0]
    assert "| digits few | Margin | **−5.2" in losses
    assert "Random" not in losses
    assert "significantly worse in 2" in text


def test_a_variant_of_a_strategy_runs_and_shows_what_its_part_adds(
    scores: list[Score], runs: Runs, tmp_path: Path
) -> None:
    variant = Method("entropy", "auto gap=0.05, shards=1")
    study = replace(STUDY, methods=(variant,))
    own = replace(runs, folder=tmp_path / "runs")
    assert run_board(study, own) == {}
    found = collect_scores(study, own)
    assert {one.method for one in found} == {variant, FIRST_SET}
    setup = replace(SETUP, parts={variant: "a wide gap", Method("entropy"): "never ran"})
    text = write_page(merged(scores, found), setup, tmp_path / "page").read_text(encoding="utf-8")
    parts = text.split("## What each part contributes")[1].split("\n## ")[0]
    assert "| a wide gap | " in parts
    assert "never ran" not in parts
    assert "wide gap" not in text.replace(parts, "")
    assert "3 methods on 1 pool, with" in text


def test_the_study_has_every_strategy_with_and_without_balance_where_it_has_one() -> None:
    methods = registered_methods()
    assert {one.strategy for one in methods} == set(STRATEGIES) - set(LEFT_OUT)
    assert {Method("margin"), Method("margin", "auto"), Method("entropy-l1-pseudo-label", "auto")} <= set(methods)
    assert Method("entropy-l1-pseudo-label") not in methods
    study = board("leaderboard")
    assert len(study.cells) == 20
    assert len({cell.key for cell in study.cells}) == 20
    assert default_method() in study.nearest
    assert [seed for seeds, chosen in study.parts() if default_method() in chosen for seed in seeds] == list(range(20))
    assert [seed for seeds, chosen in study.parts() if ENTROPY in chosen for seed in seeds][:10] == list(range(10))


@pytest.mark.parametrize("module", [analysis, rows, statistics, tables])
def test_examples_in_docstrings_are_true(module: ModuleType) -> None:
    found = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 0
    assert found.failed == 0


def test_regimes_have_the_sizes_that_the_page_describes() -> None:
    flowers, fish = Source("flowers", "", "x", 102), Source("fish", "", "x", 22)
    assert [(one.initial, one.budget, one.rounds) for one in (few(flowers), more(flowers))] == [
        (102, 102, 6),
        (400, 100, 5),
    ]
    assert [(one.initial, one.budget, one.rounds) for one in (few(fish), more(fish))] == [(22, 22, 6), (300, 100, 5)]
    cifar = Source("cifar.1", "", "x", 10, 0.1)
    assert [(one.initial, one.budget, one.rounds) for one in (few(cifar), more(cifar))] == [(20, 20, 6), (100, 100, 6)]


def test_an_unknown_strategy_is_rejected_with_the_known_ones() -> None:
    assert chosen_methods(()) is None
    assert chosen_methods(("margin",)) == (MARGIN, Method("margin", "auto"))
    with pytest.raises(BadInput, match=r"no strategy 'margn' in the leaderboard; choose from .*margin"):
        chosen_methods(("margn",))
