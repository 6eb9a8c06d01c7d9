"""Rows in the actors of a real Ray cluster: the picks of the local engine, whatever happens to the actors."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tailwise
from tailwise import Predictions, TopK, strategies
from tailwise.errors import BadFile, BadInput, BadProbabilities, ClusterLost, UnknownName
from tailwise.matrix.open import open_proba
from tailwise.matrix.shards import Rows
from tailwise.ray.cluster import Cluster
from tailwise.ray.rows import RayBackend, ray_rows
from tailwise.selection import Selection


def softmax_rows(size: int = 20_000, classes: int = 12, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.geomspace(0.6, 0.05, classes), size=size).astype(np.float32)


def facts(batch: Selection) -> tuple[Any, ...]:
    return batch.indices.tolist(), batch.objective, batch.bound, batch.l1, batch.informativeness


@pytest.fixture(scope="module")
def pool() -> np.ndarray:
    return softmax_rows()


@pytest.fixture(scope="module")
def here(pool: np.ndarray) -> Selection:
    return tailwise.select(pool, 700, balance=0.8, score="entropy")


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize("shards", [None, 2, 8])  # None: one per machine, here 1
def test_picks_and_certificate_are_those_of_the_local_engine(
    pool: np.ndarray, here: Selection, shards: int | None
) -> None:
    there = tailwise.select(pool, 700, balance=0.8, engine="ray", shards=shards, score="entropy")
    assert facts(there) == facts(here)


@pytest.mark.usefixtures("cluster")
def test_files_are_read_where_the_shards_are(pool: np.ndarray, here: Selection, tmp_path: Path) -> None:
    for number, part in enumerate(np.array_split(pool, 3)):
        np.save(tmp_path / f"part-{number}.npy", part)
    assert facts(tailwise.select(tmp_path, 700, balance=0.8, engine="ray", shards=2, score="entropy")) == facts(here)


@pytest.mark.usefixtures("cluster")
def test_compiled_loops_pick_the_same_in_actors(
    pool: np.ndarray, here: Selection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "halves.npy", pool.astype(np.float16))
    monkeypatch.setattr("tailwise.matrix.blocks.LEAST_ELEMENTS", 0)
    near, far = (
        tailwise.select(tmp_path / "halves.npy", 700, balance=0.8, engine=engine, shards=3, score="entropy")
        for engine in ("local", "ray")
    )
    assert facts(far) == facts(near)
    assert near.bound == pytest.approx(here.bound, rel=1e-3)  # of the same pool in float32


@pytest.mark.usefixtures("cluster")
def test_the_rows_nearest_to_class_borders_are_those_of_the_local_engine(pool: np.ndarray) -> None:
    near = Rows(open_proba(pool)).nearest_borders(50)
    with ray_rows(open_proba(pool), "ray", 3) as there:
        far = there.nearest_borders(50)
    assert np.array_equal(far[0], near[0])
    assert np.array_equal(far[1], near[1])


@pytest.mark.usefixtures("cluster")
def test_copies_in_other_shards_do_not_fill_a_batch(pool: np.ndarray) -> None:
    copied = np.tile(pool[:500], (40, 1))
    near, far = (tailwise.select(copied, 300, strategy="base", engine=engine, shards=3) for engine in ("local", "ray"))
    assert facts(far) == facts(near)
    assert len(set((far.indices % 500).tolist())) == 300


@pytest.mark.usefixtures("cluster")
def test_a_sparse_softmax_and_scores_of_ones_own_travel_too(pool: np.ndarray) -> None:
    sparse, scores = TopK.of(pool[:2_000], 4), np.random.default_rng(1).random(2_000)
    for proba, score in ((sparse, "entropy"), (pool[:2_000], scores)):
        near, far = (
            tailwise.select(proba, 100, score=score, balance=0.5, engine=engine, shards=2)
            for engine in ("local", "ray")
        )
        assert facts(far) == facts(near)
        assert far.hidden == near.hidden


MAIN = ["margin", "kcenter", "base", "boundary"]
OTHERS = ["entropy-l1-pseudo-label", "random", "pcb", "uherding", "badge", "falcun", "refine"]


@pytest.mark.parametrize("names", [MAIN, pytest.param(OTHERS, marks=pytest.mark.long)], ids=["main", "others"])
def test_strategies_run_on_the_cluster(
    names: list[str], pool: np.ndarray, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = np.random.default_rng(2).normal(size=(3_000, 6)).astype(np.float32)
    predictions = Predictions(pool[:3_000], embeddings=points, labelled_embeddings=points[:4])
    actors, closed = RayBackend(predictions.proba, cluster, 2), []  # each strategy would start processes of its own
    close = actors.close
    monkeypatch.setattr("tailwise.ray.rows.RayBackend", lambda *_, **__: actors)
    monkeypatch.setattr(actors, "close", lambda: closed.append(1))
    near, far = ({name: picks_of(name, engine, predictions) for name in names} for engine in ("local", "ray"))
    close()
    assert far == near
    assert len(closed) == len(names)


def picks_of(strategy: str, engine: str, predictions: Predictions) -> list[int]:
    return list(strategies.make(strategy, balance=0.5, engine=engine).select(predictions, 60).indices.tolist())


@pytest.mark.usefixtures("cluster")
def test_a_balance_path_is_the_same_on_the_cluster(pool: np.ndarray) -> None:
    near, far = (tailwise.balance_path(pool[:3_000], 60, lams=[0.2, 1.0], engine=engine) for engine in ("local", "ray"))
    assert near.to_dict() == far.to_dict()


class Assassin:
    """A backend that loses an actor just before chosen calls."""

    def __init__(self, backend: RayBackend, before: set[int]) -> None:
        self.backend, self.before, self.asked, self.killed = backend, before, 0, 0
        self.bounds, self.classes = backend.bounds, backend.classes
        self.dtype, self.sparse = backend.dtype, backend.sparse

    def call(self, method: str, arguments: list[tuple[Any, ...]]) -> list[Any]:
        self.asked += 1
        if self.asked in self.before:
            self.kill(self.killed % len(self.backend.actors))
        return self.backend.call(method, arguments)

    def kill(self, shard: int) -> None:
        ray = self.backend.ray
        os.kill(ray.get(self.backend.actors[shard].process.remote()), signal.SIGKILL)
        self.killed += 1


@pytest.fixture
def backend(cluster: Cluster, pool: np.ndarray) -> Iterator[RayBackend]:
    made = RayBackend(pool, cluster, 2)
    yield made
    made.close()


def test_an_actor_killed_in_mid_solve_is_built_again_and_the_result_does_not_change(
    backend: RayBackend, here: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assassin = Assassin(backend, before={3, 9, 10, 40, 75})
    monkeypatch.setattr("tailwise.ray.rows.RayBackend", lambda *_: assassin)
    monkeypatch.setattr(Assassin, "close", lambda _: None, raising=False)
    there = tailwise.select(softmax_rows(), 700, balance=0.8, engine="ray", score="entropy")
    assert assassin.killed == 5
    assert facts(there) == facts(here)


def test_a_column_that_nobody_needs_is_not_made_again(backend: RayBackend) -> None:
    rows = Rows(backend=backend)
    kept = rows.hold(np.arange(rows.size, dtype=float))
    for _ in range(3):
        rows.hold(np.zeros(rows.size)).extent()
    kept.extent()
    assert list(backend.recipes) == [(kept.key,)]


def test_a_column_made_from_one_that_is_gone_is_made_again_all_the_same(backend: RayBackend, pool: np.ndarray) -> None:
    rows, y = Rows(backend=backend), np.linspace(-1.0, 1.0, 12)
    costs = rows.hold(np.zeros(rows.size))
    found = rows.priced(costs, y)
    for step in (1.1, 1.2):
        found = rows.priced_again(costs, step * y, found, -0.3)  # the one before is dropped with the next question
    before = found.values()
    assert len(backend.recipes) == 4
    Assassin(backend, before=set()).kill(1)
    assert np.array_equal(found.values(), before)
    with pytest.raises(KeyError):
        backend.call("extent", [(next(iter(backend.recipes))[0] + 1,)] * 2)  # what was priced first is gone
    np.testing.assert_allclose(before[before <= -0.3], (-pool.astype(float) @ (1.2 * y))[before <= -0.3], atol=1e-12)


@pytest.mark.long
def test_a_shard_that_is_lost_again_and_again_is_an_error(backend: RayBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    build = backend.build

    def build_and_kill(shard: int) -> object:
        actor = build(shard)
        os.kill(backend.ray.get(actor.process.remote()), signal.SIGKILL)
        return actor

    monkeypatch.setattr(backend, "build", build_and_kill)
    monkeypatch.setattr("tailwise.ray.rows.MOST_REBUILDS", 2)
    os.kill(backend.ray.get(backend.actors[0].process.remote()), signal.SIGKILL)
    with pytest.raises(ClusterLost, match="shard 0 was lost 2 times in a row"):
        Rows(backend=backend).hold(np.zeros(20_000))


@pytest.mark.usefixtures("cluster")
def test_bad_rows_and_lost_files_are_told_as_they_are_at_home(pool: np.ndarray, tmp_path: Path) -> None:
    bad = pool[:9_000].copy()
    bad[8_500] = 0.5
    with pytest.raises(BadProbabilities, match="row 8500 sums to 6"):
        tailwise.select(bad, 10, engine="ray", shards=2, score="entropy")
    np.save(tmp_path / "p.npy", pool)
    with ray_rows(open_proba(tmp_path / "p.npy"), "ray", 2) as rows:
        (tmp_path / "p.npy").unlink()
        with pytest.raises(BadFile, match=r"p\.npy"):
            rows.scan(None, 1e-3)


def test_an_unknown_engine_names_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="'spark'; known: local, ray"):
        tailwise.select(softmax_rows(50), 3, engine="spark", score="entropy")
    for shards in (0, 2.5, "2", True):
        with pytest.raises(BadInput, match=f"shards is {shards!r}"):
            tailwise.select(softmax_rows(50), 3, shards=shards, score="entropy")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="the engine is None"):
        tailwise.select(softmax_rows(50), 3, engine=None, score="entropy")  # type: ignore[arg-type]


def test_an_address_alone_is_one_of_ray(cluster: Cluster, pool: np.ndarray, here: Selection) -> None:
    assert facts(tailwise.select(pool, 700, balance=0.8, engine=cluster.address, score="entropy")) == facts(here)
    with pytest.raises(BadInput, match=r"already; call ray\.shutdown\(\) before joining 127\.0\.0\.1:9"):
        tailwise.select(pool, 700, balance=0.8, engine="127.0.0.1:9", score="entropy")


def test_a_sparse_softmax_in_memory_is_cut_like_any_other(cluster: Cluster, pool: np.ndarray) -> None:
    backend = RayBackend(TopK.of(pool, 3), cluster, 4)
    sizes = [backend.ray.get(source).values.shape[0] for source in backend._sources]
    backend.close()
    assert sizes == np.diff(backend.bounds).tolist()
