"""The folder of results: what was kept is read back, what is damaged counts as absent."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadFile
from tailwise.experiments.experiment import Row, Trial, parse_experiment, trials_of
from tailwise.experiments.store import Cycle, PoolRecord, Store, read_rows, write_rows

TRIAL: Trial = next(
    trials_of(
        parse_experiment(
            'name = "mine"\nbudget = 2\ncycles = 2\npool = { name = "digits" }\nstart = { initial = 20 }\n'
            'strategies = [{ name = "entropy" }]',
            "test",
        )
    )
)


def row(cycle: int, *, picks: int = 2, left: int = 10) -> Row:
    return Row(
        "mine", "digits", "step 0.1", 0.1, "linear", "entropy", "0", 0, cycle, 20 + 2 * cycle, 0.1, 0.5, 0.55, 0.4,
        math.nan, 0.25, (0.5, math.nan), (10, 10), (left, 0), picks, 0.0, math.nan, 1.5, 0.1, 0.2, (1.25, 0.75), (1, 1),
        1.0, 0.1, 0.2, 0.3, "0", "within gap",
    )  # fmt: skip


def cycle(number: int, *, picks: int = 2, left: int = 10) -> Cycle:
    return Cycle(row(number, picks=picks, left=left), np.arange(picks) + 10 * number)


def same(first: Row, second: Row) -> bool:
    return repr(first) == repr(second)  # NaN equals NaN in words


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path)
    for one in (cycle(0), cycle(1), cycle(2, picks=0)):
        made.keep(TRIAL, one)
    return made


def test_what_was_kept_is_read_back_bit_by_bit(store: Store) -> None:
    found = list(store.cycles(TRIAL))
    assert [one.row.cycle for one in found] == [0, 1, 2]
    assert all(same(one.row, row(i, picks=0 if i == 2 else 2)) for i, one in enumerate(found))
    assert found[1].picks.tolist() == [10, 11]
    assert store.is_complete(TRIAL)


@pytest.mark.parametrize("suffix", [".json", ".npy"])
@pytest.mark.parametrize("damage", [b"", b"{", None])
def test_a_damaged_cycle_and_those_after_it_count_as_absent(store: Store, suffix: str, damage: bytes | None) -> None:
    path = store.trial(TRIAL) / f"cycle-01{suffix}"
    if damage is None:
        path.unlink()
    else:
        path.write_bytes(damage)
    assert [one.row.cycle for one in store.cycles(TRIAL)] == [0]
    assert not store.is_complete(TRIAL)


def test_picks_of_another_run_do_not_pass_for_those_of_the_row(store: Store) -> None:
    folder = store.trial(TRIAL)
    (folder / "cycle-01.npy").write_bytes((folder / "cycle-00.npy").read_bytes())
    assert len(list(store.cycles(TRIAL))) == 1


def test_the_last_cycle_of_a_shorter_experiment_is_done_again_in_a_longer_one(store: Store) -> None:
    longer = replace(TRIAL, experiment=TRIAL.experiment.model_copy(update={"cycles": 3}))
    assert longer.folder == TRIAL.folder
    assert [one.row.cycle for one in store.cycles(longer)] == [0, 1]


def test_an_exhausted_pool_ends_a_trial_early(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.keep(TRIAL, cycle(0))
    store.keep(TRIAL, cycle(1, picks=0, left=0))
    assert [one.row.cycle for one in store.cycles(TRIAL)] == [0, 1]
    assert store.is_complete(TRIAL)


def test_rows_survive_a_table(tmp_path: Path) -> None:
    rows = [row(0), row(1, picks=0)]
    write_rows(rows, tmp_path / "results.csv")
    assert all(same(first, second) for first, second in zip(read_rows(tmp_path / "results.csv"), rows, strict=True))


def test_results_from_before_there_was_a_status_are_still_read(store: Store) -> None:
    later = ("status", "settings", "seconds_calibrate", "seconds_test")
    for path in store.trial(TRIAL).glob("*.json"):
        content = json.loads(path.read_bytes())
        for name in later:
            del content["row"][name]
        path.write_text(json.dumps(content))
    found = [one.row for one in store.cycles(TRIAL)]
    assert [(one.cycle, one.status) for one in found] == [(0, ""), (1, ""), (2, "")]
    assert all(one.settings == "" and math.isnan(one.seconds_test) for one in found)
    write_rows(found, store.folder / "results.csv")
    lines = (store.folder / "results.csv").read_text().splitlines()
    (store.folder / "old.csv").write_text("\n".join(line.rsplit(",", len(later))[0] for line in lines))
    assert all(same(first, second) for first, second in zip(read_rows(store.folder / "old.csv"), found, strict=True))


def test_a_trial_is_complete_with_its_last_cycle_or_without_a_pool(store: Store) -> None:
    assert not store.is_complete(TRIAL, [])
    assert not store.is_complete(TRIAL, [cycle(0), cycle(1)])
    assert store.is_complete(TRIAL, [cycle(0), cycle(1), cycle(2, picks=0)])
    assert store.is_complete(TRIAL, [cycle(0), cycle(1, left=0)])


def record(name: str, content: str, class_names: tuple[str, ...], place: str = "/a") -> PoolRecord:
    return PoolRecord(content, "features", {"scale": True}, "a", place, "3 4", name, class_names)


def test_class_names_are_kept_by_pool_whatever_they_are_written_in(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.class_names() == {}
    store.keep_pool(record("zoo", "1", ("Bär", "猫", 'a "b"')))
    store.keep_pool(record("digits", "2", ("0", "1")))
    assert store.class_names() == {"zoo": ("Bär", "猫", 'a "b"'), "digits": ("0", "1")}
    assert store.class_names("2") == {"digits": ("0", "1")}


def test_what_was_recorded_of_a_pool_is_read_back_and_the_latest_comes_last(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = record("zoo", "1", ("a",)), record("zoo", "2", ("b",))
    for one in (first, second, first):
        store.keep_pool(one)
    assert store.pool_records() == [second, first]
    store.keep_pool(record("moved", "1", ("a",), "/b"))
    assert [store.pool_name(content) for content in ("1", "2", "3")] == ["moved", "zoo", ""]
    assert store.other_data(record("zoo", "3", ())) == first
    assert store.other_data(first) is None


@pytest.mark.parametrize("damage", [b"", b"{", b"[1]", b'{"zoo": 3}', b"\xff", b'{"pools": 3}'])
@pytest.mark.parametrize("file", ["pools.json", "classes.json"])
def test_damaged_class_names_leave_the_classes_without_names(tmp_path: Path, file: str, damage: bytes) -> None:
    (tmp_path / file).write_bytes(damage)
    assert Store(tmp_path).class_names() == {}
    assert Store(tmp_path).pool_records() == []


def test_class_names_of_older_versions_are_read(tmp_path: Path) -> None:
    (tmp_path / "classes.json").write_text('{"zoo": ["Bär", "猫"]}', encoding="utf-8")
    assert Store(tmp_path).class_names("") == {"zoo": ("Bär", "猫")}


def test_a_parquet_table_holds_the_same(tmp_path: Path) -> None:
    from pyarrow import parquet

    write_rows([row(0), row(1)], tmp_path / "results.parquet")
    found = parquet.read_table(tmp_path / "results.parquet").to_pylist()
    assert [one["cycle"] for one in found] == [0, 1]
    assert found[0]["expected"] == [1.25, 0.75]


def test_a_table_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadFile, match="cannot read results"):
        read_rows(tmp_path / "results.csv")
