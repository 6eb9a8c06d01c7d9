"""Work on a real Ray cluster of two processes: the same bits as here, also where a worker is killed in the middle."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from tailwise.cli.output import run
from tailwise.errors import BadFile
from tailwise.experiments.experiment import Experiment, Row, Trial, parse_experiment, read_experiment
from tailwise.experiments.runner import Watcher, collect, run_experiment
from tailwise.experiments.store import NOT_REPEATABLE, Store
from tailwise.inference.pipeline import plan_pool, predict_pool
from tailwise.inference.storage import read_manifest
from tailwise.learners import make_learner
from tailwise.learners.features import simple_features
from tailwise.pools import POOLS
from tailwise.ray.cluster import Cluster
from tailwise.ray.tasks import on_ray

from .conftest import encoded, picture, raylet_of, workers_of

pytestmark = pytest.mark.usefixtures("cluster")


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


@pytest.fixture(scope="session")
def here(photos: Path, head: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What this process makes of the pool."""
    out = tmp_path_factory.mktemp("here")
    predict_pool(plan_pool(photos, head, out, shard_size=60, embeddings=True), workers=1)
    return contents(out)


@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.long), 2])
def test_a_folder_gives_the_same_bits_as_here(
    workers: int, photos: Path, head: Path, here: dict[str, bytes], tmp_path: Path
) -> None:
    plan = plan_pool(photos, head, tmp_path, shard_size=60, embeddings=True)
    heard: list[float] = []
    done = predict_pool(plan, engine="ray", workers=workers, report=lambda share, _: heard.append(share))
    assert contents(tmp_path) == here
    assert (done.computed, done.manifest.rows) == (3, 150)
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


def test_a_learner_that_a_worker_cannot_see_is_told_in_a_line(photos: Path, tmp_path: Path) -> None:
    features = simple_features(np.random.default_rng(7).integers(0, 256, (12, 64, 64, 3), dtype=np.uint8))
    unknown = make_learner("linear").fit(features, np.arange(12) % 3, classes=3, seed=0)
    unknown.save(tmp_path / "unknown")  # to the workers, who keep the one that they have seen
    plan = plan_pool(photos, tmp_path / "unknown", tmp_path / "out", shard_size=60)
    (tmp_path / "unknown").rename(tmp_path / "elsewhere")
    with pytest.raises(BadFile, match="every machine must see the learner at the same path") as told:
        predict_pool(plan, engine="ray")
    assert "\n" not in str(told.value)


@pytest.mark.long
def test_a_killed_worker_is_replaced_and_the_bits_are_the_same(
    cluster: Cluster, photos: Path, head: Path, here: dict[str, bytes], tmp_path: Path
) -> None:
    raylet, killed, over = raylet_of(cluster), list[int](), threading.Event()

    def kill_the_first() -> None:
        while not killed and not over.wait(0.01):
            killed.extend(workers_of(raylet, "MapBatches")[:1])
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_the_first)
    killer.start()
    try:
        predict_pool(plan_pool(photos, head, tmp_path, shard_size=60, embeddings=True), engine="ray")
    finally:
        over.set()
        killer.join()
    assert killed
    assert contents(tmp_path) == here


def test_parquet_gives_the_same_bits_and_a_broken_table_does_not_stop_the_others(head: Path, tmp_path: Path) -> None:
    rng, tables = np.random.default_rng(0), tmp_path / "tables"
    tables.mkdir()
    rows = [encoded(picture(number, rng)) for number in range(80)]
    for name, some in (("a", rows[:50]), ("b", rows[50:]), ("c", [*rows[:70], b"bad"])):
        table = pyarrow.table({"image": pyarrow.array(some, pyarrow.binary())})
        parquet.write_table(table, tables / f"{name}.parquet", row_group_size=30)
    predict_pool(plan_pool(tables, head, tmp_path / "here"), workers=1)
    predict_pool(plan_pool(tables, head, tmp_path / "ray"), engine="ray")
    assert contents(tmp_path / "ray") == contents(tmp_path / "here")
    plan = plan_pool(tables, head, tmp_path / "broken")
    content = (tables / "b.parquet").read_bytes()
    (tables / "b.parquet").write_bytes(content[:100] + bytes(len(content) - 200) + content[-100:])
    with pytest.raises(BadFile, match=r"1 of 3 shards could not be read; b\.parquet"):
        predict_pool(plan, engine="ray")
    assert [shard.rows for shard in read_manifest(tmp_path / "broken").shards] == [50, 70]


def test_shards_that_are_there_are_not_computed_again_on_another_engine(
    photos: Path, head: Path, here: dict[str, bytes], tmp_path: Path
) -> None:
    for name, content in here.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    (tmp_path / "part-00001.npy").unlink()
    plan = plan_pool(photos, head, tmp_path, shard_size=60, embeddings=True)
    assert predict_pool(plan, engine="ray").computed == 1
    assert contents(tmp_path) == here


FILE = """
name = "tiny"
budget = 20
cycles = 2
seeds = [0, 1]
pool = { name = "digits" }
imbalance = { factors = [0.2] }
start = { initial = 30 }
learner = { settings = { strength = 0.05 } }
strategies = [{ name = "random" }, { name = "entropy", balance = ["auto"] }]
"""


@pytest.fixture(scope="session")
def tiny() -> Experiment:
    return parse_experiment(FILE, "test")


def repeatable(rows: list[Row]) -> list[str]:
    """Rows as text, without the times."""
    return [repr({name: value for name, value in asdict(row).items() if name not in NOT_REPEATABLE}) for row in rows]


@pytest.fixture(scope="session")
def on_processes(tiny: Experiment, tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("processes"))
    assert run_experiment(tiny, store, processes=1) == {}
    return store


class Heard(Watcher):
    """A watcher that remembers, and may kill workers."""

    def __init__(self, raylet: int = 0) -> None:
        self.lines: list[str] = []
        self.ended: list[str] = []
        self.failures: list[str] = []
        self.raylet, self.killed = raylet, 0

    def line(self, trial: Trial, done: float, what: str) -> None:
        assert trial.title in what or "λ sweep" in what
        assert 0 <= done <= 1
        self.lines.append(what)
        if self.raylet and not self.killed and "cycle 1" in what:
            for pid in workers_of(self.raylet, "do_task"):
                os.kill(pid, signal.SIGKILL)
                self.killed += 1

    def finished(self, trial: Trial, rows: list[Row]) -> None:
        assert len(rows) == 3
        self.ended.append(trial.title)

    def failed(self, trial: Trial, why: str) -> None:
        self.failures.append(f"{trial.title}: {why}")


@pytest.mark.long
def test_trials_give_the_same_results_as_on_processes_although_workers_are_killed(
    cluster: Cluster, tiny: Experiment, on_processes: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, watcher = Store(tmp_path / "out"), Heard(raylet_of(cluster))
    assert run_experiment(tiny, store, watchers=(watcher,), run_tasks=on_ray("ray")) == {}
    assert watcher.killed
    assert repeatable(collect(tiny, store)) == repeatable(collect(tiny, on_processes))
    assert (len(watcher.ended), watcher.failures) == (4, [])
    assert capfd.readouterr().out == ""  # Ray tells of dead workers on stdout, where a JSON document may be due
    sweeps = [path.read_bytes() for path in sorted((store.folder / "sweeps").iterdir())]
    assert sweeps == [path.read_bytes() for path in sorted((on_processes.folder / "sweeps").iterdir())]


def test_an_experiment_goes_on_with_what_is_there(tiny: Experiment, on_processes: Store, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(on_processes.folder, tmp_path / "copy"))
    trial = sorted((folder / "trials").iterdir())[0]
    (trial / "cycle-02.json").unlink()
    watcher = Heard()
    assert run_experiment(tiny, Store(folder), watchers=(watcher,), run_tasks=on_ray("ray")) == {}
    assert len(watcher.ended) == 1
    assert repeatable(collect(tiny, Store(folder))) == repeatable(collect(tiny, on_processes))


def test_a_trial_that_fails_says_why_and_the_others_go_on(tmp_path: Path) -> None:
    wrong = FILE.replace("seeds = [0, 1]", "seeds = [0]").replace('"random" }', '"bald" }')
    experiment = parse_experiment(wrong.replace("strength = 0.05", "strength = 0.05, dropout = 0.0"), "test")
    watcher = Heard()
    failed = run_experiment(experiment, Store(tmp_path), watchers=(watcher,), run_tasks=on_ray("ray"))
    assert list(failed) == ["trial: step 0.2, seed 0, bald λ=0"]
    assert "dropout is 0: every pass would be the same" in next(iter(failed.values()))
    assert "Traceback" not in next(iter(failed.values()))
    assert len(watcher.ended) == 1


PLUGIN = """
from tailwise.pools import POOLS, load_pool


@POOLS.register("digits-of-a-plugin")
def digits(path=None):
    return load_pool("digits")
"""


@pytest.mark.long
def test_from_the_command_line_with_a_plugin_next_to_the_file(
    tiny: Experiment, on_processes: Store, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("files").mkdir()
    Path("files/ray_plugin.py").write_text(PLUGIN)
    Path("files/tiny.toml").write_text('plugins = ["ray_plugin"]' + FILE.replace('"digits"', '"digits-of-a-plugin"'))
    options = ["--out", "out", "--seeds", "1", "--engine", "ray", "--no-report", "--json"]
    try:
        assert run(["bench", "run", "files/tiny.toml", *options]) == 0
    finally:
        POOLS.pop("digits-of-a-plugin", None)
    printed = capfd.readouterr()
    assert json.loads(printed.out)["rows"] == 6  # stdout is one document
    assert printed.err == ""
    second = tiny.model_copy(update={"seeds": (1,)})
    own = read_experiment("files/tiny.toml", to_run=False).model_copy(update={"seeds": (1,)})
    assert repeatable(collect(own, Store(tmp_path / "out"))) == repeatable(collect(second, on_processes))
