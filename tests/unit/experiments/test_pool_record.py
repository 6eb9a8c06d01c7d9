"""Whose results they are: data is known by its content, wherever it is, and a report finds them when it is gone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tailwise.errors import BadFile, BadInput
from tailwise.experiments import trial_run
from tailwise.experiments.experiment import Experiment, parse_experiment, trials_of
from tailwise.experiments.runner import collect, run_experiment, status_of
from tailwise.experiments.store import OLDER, Store, identify, read_pool, recorded_content
from tailwise.experiments.trial_run import kept_sweeps

FILE = """
name = "mine"
budget = 6
cycles = 1
seeds = [0]
pool = { name = "features", path = "PATH" }
imbalance = { factors = [0.5] }
start = { initial = 9 }
strategies = [{ name = "random" }, { name = "entropy", balance = [0.6] }]
calibration = { kind = "none" }
"""  # version 0.1.0 calibrated only where the file asked for it

pytestmark = pytest.mark.usefixtures("quick_sweeps")


def write(path: Path, seed: int) -> Path:
    """Features of three classes."""
    rng = np.random.default_rng(seed)
    labels = {"y_train": np.arange(90) % 3, "y_test": np.arange(30) % 3}
    inputs = {f"x_{half[2:]}": np.eye(3, 5)[y] + rng.normal(size=(len(y), 5)) for half, y in labels.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **labels, **inputs)
    return path


def experiment(path: Path | str, change: str = "") -> Experiment:
    old, _, new = change.partition("→")
    return parse_experiment(FILE.replace("PATH", str(path).replace("\\", "/")).replace(old, new), "test")


def accuracies(one: Experiment, store: Store) -> list[float]:
    return [row.accuracy for row in collect(one, store)]


def run(one: Experiment, store: Store, *, adopt: bool = False) -> list[float]:
    assert run_experiment(one, store, processes=1, adopt=adopt) == {}
    return accuracies(one, store)


def forbid_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(trial_run, "fit", never)


def test_two_files_of_one_name_never_share_results(tmp_path: Path) -> None:
    first, second = (experiment(write(tmp_path / f"v{seed}" / "features.npz", seed)) for seed in (1, 2))
    store = Store(tmp_path / "out")
    of_first, of_second = run(first, store), run(second, store)
    assert of_first != of_second
    assert of_second == run(second, Store(tmp_path / "alone"))
    assert accuracies(first, store) == of_first
    assert status_of(first, store).complete == status_of(second, store).complete == 2


def test_data_that_was_moved_and_renamed_keeps_its_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = write(tmp_path / "features.npz", 1)
    store = Store(tmp_path / "out")
    before = run(experiment(here), store)
    forbid_training(monkeypatch)
    there = tmp_path / "elsewhere" / "renamed.npz"
    there.parent.mkdir()
    shutil.move(here, there)
    assert accuracies(experiment(there), store) == before  # found by reading it, before any run
    assert run(experiment(there), store) == before
    assert {row.pool for row in collect(experiment(there), store)} == {"renamed"}
    assert [sweep["pool"] for sweep in kept_sweeps(experiment(there), store)] == ["renamed"]


def test_data_that_changes_in_its_place_gets_results_of_its_own(tmp_path: Path) -> None:
    one = experiment(write(tmp_path / "features.npz", 1))
    store = Store(tmp_path / "out")
    before, content = run(one, store), identify(one.pool).content
    write(tmp_path / "features.npz", 2)
    found = recorded_content(one, store)
    assert (found.content, "has changed since these results were computed" in found.note) == (content, True)
    changed = store.other_data(identify(one.pool))
    assert changed is not None
    assert changed.content == content
    assert run(one, store) != before
    write(tmp_path / "features.npz", 1)
    assert run(one, store) == before


def test_results_are_found_when_the_data_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, store = experiment(write(tmp_path / "features.npz", 1)), Store(tmp_path / "out")
    before = run(one, store)
    (tmp_path / "features.npz").unlink()
    assert accuracies(one, store) == before
    assert accuracies(experiment(""), store) == before  # no path at all: there is one data set
    with pytest.raises(BadInput, match=r"has no results for .*other\.npz, but for .*features\.npz"):
        collect(experiment(tmp_path / "other.npz"), store)
    monkeypatch.chdir(tmp_path)
    relative = experiment(write(Path("near/features.npz"), 3))
    of_relative = run(relative, store)
    shutil.rmtree("near")
    (tmp_path / "deeper").mkdir()
    monkeypatch.chdir(tmp_path / "deeper")
    assert accuracies(relative, store) == of_relative  # by the path as it was given


def test_several_data_sets_in_a_folder_must_be_told_apart(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    for seed in (1, 2):
        run(experiment(write(tmp_path / f"v{seed}" / "features.npz", seed)), store)
    with pytest.raises(BadInput, match=r"several data sets; name one with --data: .*v1.*v2"):
        collect(experiment(""), store)
    third = experiment(write(tmp_path / "v3" / "features.npz", 3))
    with pytest.raises(BadInput, match=r"no results for .*v3"):
        collect(third, store)


def test_class_names_are_those_of_the_data(tmp_path: Path) -> None:
    store = Store(tmp_path / "out")
    contents = []
    for seed, names in ((1, ["a", "b", "c"]), (2, ["x", "y", "z"])):
        path = write(tmp_path / f"v{seed}" / "features.npz", seed)
        np.savez(path, **dict(np.load(path)), class_names=np.array(names))
        run(experiment(path), store)
        contents.append(identify(experiment(path).pool).content)
    assert [store.class_names(content)["features"] for content in contents] == [("a", "b", "c"), ("x", "y", "z")]


def test_data_that_changes_under_a_run_is_refused(tmp_path: Path) -> None:
    one = experiment(write(tmp_path / "features.npz", 1))
    content = identify(one.pool).content
    assert len(read_pool(one.pool, content).train) == 90
    write(tmp_path / "features.npz", 2)
    identify(one.pool)  # another process reads it anew
    with pytest.raises(BadFile, match="is not the data that this run began with"):
        read_pool(one.pool, content)


# Results of a version that did not record their data


def make_older(one: Experiment, store: Store) -> None:
    """Turn a folder into one that such a version wrote."""
    content = recorded_content(one, store).content
    for before, now in zip(trials_of(one), trials_of(one, content), strict=True):
        store.trial(now).rename(store.trial(before))
        if store.sweep(now.folder).is_file():
            store.sweep(now.folder).rename(store.sweep(before.folder))
    for path in store.folder.glob("trials/*/*.json"):
        kept = json.loads(path.read_bytes())
        for name in ("settings", "seconds_calibrate", "seconds_test"):
            del kept["row"][name]
        path.write_text(json.dumps(kept))
    (store.folder / "pools.json").unlink()
    (store.folder / "classes.json").write_text(json.dumps({"features": ["a", "b", "c"]}))


def test_the_names_of_trials_without_recorded_data_are_those_of_version_0_1_0() -> None:
    as_then = experiment("v1/features.npz").model_copy(update={"target": "paper"})
    assert [trial.folder for trial in trials_of(as_then)] == [
        "step-0.5_seed-0_random_0_345042b88d61",
        "step-0.5_seed-0_entropy_0.6_92ef0df92a91",
    ]


@pytest.fixture
def older(tmp_path: Path) -> tuple[Experiment, Store, list[float]]:
    one, store = experiment(write(tmp_path / "features.npz", 1)), Store(tmp_path / "out")
    before = run(one, store)
    make_older(one, store)
    return one, store, before


def test_older_results_can_be_reported_without_the_data_and_are_said_to_be_old(
    older: tuple[Experiment, Store, list[float]], tmp_path: Path
) -> None:
    one, store, before = older
    (tmp_path / "features.npz").unlink()
    assert accuracies(one, store) == before
    assert recorded_content(one, store).note == OLDER
    assert store.class_names("") == {"features": ("a", "b", "c")}
    assert len(kept_sweeps(one, store)) == 1


def test_older_results_are_not_continued_unless_that_is_asked_for(
    older: tuple[Experiment, Store, list[float]],
) -> None:
    one, store, before = older
    with pytest.raises(BadFile, match=r"did not record the data.*--adopt.*another --out"):
        run_experiment(one, store, processes=1)
    assert accuracies(one, store) == before
    assert not (store.folder / "pools.json").exists()


def test_adopted_results_are_continued_and_need_no_asking_again(
    older: tuple[Experiment, Store, list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, store, before = older
    forbid_training(monkeypatch)
    assert run(one, store, adopt=True) == before
    assert run(one, store) == before
    assert recorded_content(one, store).content == identify(one.pool).content


def test_older_results_of_other_labels_are_not_adopted(
    older: tuple[Experiment, Store, list[float]], tmp_path: Path
) -> None:
    one, store, before = older
    arrays = dict(np.load(tmp_path / "features.npz"))
    arrays["y_train"] = np.repeat([0, 1, 2], [50, 20, 20])
    np.savez(tmp_path / "features.npz", **arrays)
    with pytest.raises(BadFile, match=r"cannot be adopted.*computed from other data"):
        run_experiment(one, store, processes=1, adopt=True)
    assert accuracies(one, store) == before
