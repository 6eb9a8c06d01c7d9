"""The default strategy against a literal transcription of its rule."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from scipy.optimize import linear_sum_assignment

import tailwise
from tailwise.errors import BadInput
from tailwise.matrix import nearest
from tailwise.matrix.blocks import rows_per_block
from tailwise.matrix.open import open_proba
from tailwise.matrix.shards import rows_on
from tailwise.strategies import boundary, coverage, make
from tailwise.strategies.boundary import Filling, pool_coverage, pool_weights
from tailwise.strategies.coverage import unit_rows
from tailwise.strategies.strategy import both_matrices, make_task


def make_pool(
    seed: int, size: int = 300, classes: int = 5, labels: int = 30
) -> tuple[tailwise.Predictions, np.ndarray]:
    """A pool of blobs with a long tail, the softmax of distances to their centres, and labelled images."""
    rng = np.random.default_rng(seed)
    centres = 2 * rng.normal(size=(classes, 8))
    shares = 0.5 ** np.arange(classes)
    true = rng.choice(classes, size + labels, p=shares / shares.sum())
    rows = centres[true] + rng.normal(size=(size + labels, 8))
    logits = -((rows[:, None] - centres) ** 2).sum(axis=2) / 6
    proba = np.exp(logits - logits.max(axis=1, keepdims=True))
    proba /= proba.sum(axis=1, keepdims=True)
    counts = np.bincount(true[size:], minlength=classes)
    given = tailwise.Predictions(proba[:size], embeddings=rows[:size], labelled_embeddings=rows[size:])
    return given, counts


class Literal:
    """The rule, step by step, with every image as a reference."""

    def __init__(self, given: tailwise.Predictions, counts: np.ndarray) -> None:
        self.proba, rows, labelled = (np.asarray(x) for x in (given.proba, given.embeddings, given.labelled_embeddings))
        self.rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        labelled = labelled / np.linalg.norm(labelled, axis=1, keepdims=True)
        distances = self.squared(labelled, labelled)
        np.fill_diagonal(distances, np.inf)
        self.width = float(np.median(distances.min(axis=1)))
        shares = (counts + self.proba.sum(axis=0)) / (counts.sum() + len(rows))
        top = np.sort(self.proba, axis=1)
        rarity = (self.proba / shares).sum(axis=1) / len(shares)
        weights = (1 - top[:, -1] + top[:, -2]) * np.minimum(rarity, 5)
        self.weights = weights / weights.sum()
        self.covered = np.exp(-self.squared(self.rows, labelled) / self.width).max(axis=1)

    @staticmethod
    def squared(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
        return ((rows[:, None] - others[None]) ** 2).sum(axis=2)

    def similarity(self, row: int) -> np.ndarray:
        return np.exp(-self.squared(self.rows, self.rows[[row]])[:, 0] / self.width)

    def gain(self, row: int) -> float:
        return float(self.weights @ np.maximum(self.similarity(row) - self.covered, 0))

    def add(self, row: int) -> None:
        self.covered = np.maximum(self.covered, self.similarity(row))

    def herd(self, budget: int) -> list[int]:
        picks: list[int] = []
        for _ in range(budget):
            gains = [-1.0 if row in picks else self.gain(row) for row in range(len(self.rows))]
            picks.append(int(np.argmax(gains)))
            self.add(picks[-1])
        return picks

    def nearness(self, quota: np.ndarray, times: int) -> np.ndarray:
        """1 for the image nearest to the border of a class, falling to ½ for the last candidate, 0 beyond."""
        size, classes = self.proba.shape
        best = self.proba.argmax(axis=1)
        distance = np.log(self.proba.max(axis=1))[:, None] - np.log(self.proba)
        for row in range(size):
            distance[row, best[row]] = min(distance[row, k] for k in range(classes) if k != best[row])
        nearness = np.zeros((size, classes))
        for cls in range(classes):
            candidates = np.argsort(distance[:, cls], kind="stable")[: times * quota[cls]]
            for rank, row in enumerate(candidates):
                nearness[row, cls] = 1 - 0.5 * rank / (times * quota[cls])
        return nearness

    def fill(self, quota: np.ndarray, times: int) -> list[int]:
        nearness, left, picks = self.nearness(quota, times), quota.copy(), []
        chunk = int(np.ceil(quota.sum() / 10))
        while left.sum():
            share = shares_of(left, min(chunk, left.sum()))
            gains = np.array([self.gain(row) for row in range(len(self.rows))])
            values = nearness * gains[:, None]
            values[picks] = -1.0
            places = np.repeat(np.arange(len(quota)), share)
            at, rows = linear_sum_assignment(values[:, places].T, maximize=True)
            for one in sorted(range(len(at)), key=lambda j: -gains[rows[j]]):
                if self.gain(rows[one]) >= 0.5 * gains[rows[one]]:
                    picks.append(int(rows[one]))
                    self.add(rows[one])
                    left[places[at[one]]] -= 1
        return picks


def shares_of(left: np.ndarray, size: int) -> np.ndarray:
    wanted = left * size / left.sum()
    whole = np.floor(wanted + 1e-9).astype(int)
    for cls in np.argsort(-(wanted - whole).round(9), kind="stable")[: size - whole.sum()]:
        whole[cls] += 1
    return whole


def water_filling(counts: np.ndarray, budget: int) -> np.ndarray:
    """Raise the classes with the fewest labels to one level; a class without labels has no border, and gets nothing."""
    labelled = np.sort(counts[counts > 0])
    levels = [(labelled[:lowest].sum() + budget) / lowest for lowest in range(1, len(labelled) + 1)]
    return np.where(counts > 0, np.maximum(min(levels) - counts, 0), 0)


@pytest.fixture(params=[False, True], ids=["products anew", "similarities kept"])
def kept(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Both ways to gains: computed anew where many similarities matter, from those that are kept where few do."""
    monkeypatch.setattr(coverage, "DENSEST_KEPT", 1.0 if request.param else -1.0)
    return bool(request.param)


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("seed", range(6))
def test_quotas_are_filled_as_the_rule_says(seed: int) -> None:
    given, counts = make_pool(seed)
    batch = make("boundary", balance="auto", near=6).select(given, 25, counts=counts)
    quota = shares_of(water_filling(counts, 25), 25)
    assert sorted(batch.indices.tolist()) == sorted(Literal(given, counts).fill(quota, 6))
    assert batch.status == "optimal chunks"
    assert 0 < batch.lam < np.inf  # quotas are exact, but what is reported must be a number that JSON can hold
    kept = make("boundary", balance=1.001 * batch.lam, near=6).select(given, 25, counts=counts)
    assert kept.indices.tolist() == batch.indices.tolist()
    assert batch.gap < 1e-9


@pytest.mark.usefixtures("kept")
def test_a_larger_pool_with_more_classes_is_filled_as_the_rule_says() -> None:
    given, counts = make_pool(11, size=1_400, classes=9, labels=80)
    batch = make("boundary", balance="auto").select(given, 90, counts=counts)
    quota = shares_of(water_filling(counts, 90), 90)
    assert sorted(batch.indices.tolist()) == sorted(Literal(given, counts).fill(quota, 20))


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("seed", range(4))
def test_with_few_labels_the_pool_is_covered_greedily(seed: int) -> None:
    given, counts = make_pool(seed, size=150, labels=6)
    batch = make("boundary", balance="auto").select(given, 8, counts=counts)
    assert batch.indices.tolist() == Literal(given, counts).herd(8)
    assert 0 < batch.gap < 1
    assert batch.bound < batch.objective


def places_of(given: tailwise.Predictions, counts: np.ndarray, lam: float, quota: np.ndarray) -> np.ndarray:
    """How many places of each class a batch takes."""
    with rows_on(open_proba(given.proba)) as rows:
        task, _ = make_task(rows, int(quota.sum()), counts=counts)
        pool, labelled = both_matrices(task, given)
        start, _ = pool_coverage(task, pool, unit_rows(labelled[:]), pool_weights(task))
        filling = Filling(task, pool, start, quota, 6, lam)
        filling.run()
    return np.bincount(filling.places, minlength=len(quota))


@pytest.mark.parametrize("seed", [0, 1])
def test_while_the_model_is_unsure_of_most_images_the_pool_is_covered(seed: int) -> None:
    given, counts = make_pool(seed, labels=60)
    flat = np.asarray(given.proba) ** 0.3
    unsure = replace(given, proba=flat / flat.sum(axis=1, keepdims=True))
    confidence = float(np.asarray(unsure.proba).max(axis=1).mean())
    assert confidence < 0.7 < float(np.asarray(given.proba).max(axis=1).mean())
    assert counts.sum() >= 2 * len(counts)
    covered = make("boundary", balance="auto", sure=confidence + 1e-6).select(unsure, 20, counts=counts)
    assert covered.status == "greedy"
    assert covered.indices.tolist() == Literal(unsure, counts).herd(20)
    filled = make("boundary", balance="auto", sure=confidence - 1e-6).select(unsure, 20, counts=counts)
    assert filled.status == "optimal chunks"
    assert make("boundary", balance="auto").select(given, 20, counts=counts).status == "optimal chunks"


def test_quotas_are_exact_and_the_less_lambda_the_freer() -> None:
    given, counts = make_pool(3)
    quota = np.array([0, 2, 3, 8, 12])
    exact, strict, soft, free = (places_of(given, counts, lam, quota) for lam in (np.inf, 50.0, 0.02, 0.0))
    assert exact.tolist() == strict.tolist() == quota.tolist()
    assert free.sum() == soft.sum() == 25
    assert 0 < np.abs(soft - quota).sum() < np.abs(free - quota).sum()


def as_array(array: np.ndarray, _: Path) -> object:
    return array


def as_npy(array: np.ndarray, path: Path) -> object:
    np.save(path.with_suffix(".npy"), array)
    return path.with_suffix(".npy")


def as_memmap(array: np.ndarray, path: Path) -> object:
    return np.load(str(as_npy(array, path)), mmap_mode="r")


def as_npy_folder(array: np.ndarray, path: Path) -> object:
    path.mkdir()
    for number, part in enumerate(np.array_split(array, 3)):
        np.save(path / f"part-{number}.npy", part)
    return path


def as_parquet(array: np.ndarray, path: Path) -> object:
    columns = {f"column_{at}": array[:, at] for at in range(array.shape[1])}
    parquet.write_table(pyarrow.table(columns), path.with_suffix(".parquet"), row_group_size=7_000)
    return path.with_suffix(".parquet")


@pytest.mark.parametrize("labels", [60, 150], ids=["few labels", "quotas"])
@pytest.mark.parametrize(
    ("written", "shards"), [(as_array, 3), (as_npy, 1), (as_memmap, 2), (as_npy_folder, 3), (as_parquet, 2)]
)
def test_files_and_shards_give_the_same_batch(
    written: Callable[[np.ndarray, Path], object], shards: int, labels: int, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(boundary, "HERDED", 2_000)  # so that candidates are drawn
    given, counts = make_pool(4, size=30_000, classes=40, labels=labels)
    assert rows_per_block(40) < 15_000  # three blocks
    names = ("proba", "embeddings", "labelled_embeddings")
    there = tailwise.Predictions(**{name: written(getattr(given, name), tmp_path / name) for name in names})
    here = make("boundary", balance="auto").select(given, 120, counts=counts, seed=3)
    batch = make("boundary", balance="auto", shards=shards).select(there, 120, counts=counts, seed=3)
    assert batch.indices.tolist() == here.indices.tolist()
    assert (batch.objective, batch.bound) == (here.objective, here.bound)


@pytest.mark.parametrize("labels", [15, 150], ids=["few labels", "quotas"])
def test_embeddings_in_a_file_are_never_in_memory_as_a_whole(
    labels: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(boundary, "HERDED", 2_000)  # candidates are in memory
    monkeypatch.setattr(nearest, "LEAST_WAITING", 1 << 12)
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.full(10, 0.3), size=60_000).astype(np.float32)
    rows = rng.normal(size=(60_000, 384)).astype(np.float32)
    paths = {"proba": as_npy(proba, tmp_path / "proba"), "embeddings": as_npy(rows, tmp_path / "rows")}
    counts = np.full(10, labels // 10)
    given = tailwise.Predictions(**paths, labelled_embeddings=rows[:labels] + 0.1)
    size = rows.nbytes
    del proba, rows
    tracemalloc.start()
    make("boundary", balance="auto").select(given, 50, counts=counts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.75 * size  # about 40 MB, whatever the number of features and images


def test_a_sparse_softmax_is_rejected_with_a_reason() -> None:
    given, counts = make_pool(5)
    proba = np.asarray(given.proba)
    classes = np.argsort(-proba, axis=1)[:, :3]
    top = tailwise.TopK(np.take_along_axis(proba, classes, axis=1), classes, 5)
    with pytest.raises(BadInput, match="give the whole softmax"):
        make("boundary", balance="auto").select(replace(given, proba=top), 20, counts=counts)


def copied(given: tailwise.Predictions, times: int) -> tailwise.Predictions:
    proba, rows = (np.repeat(np.asarray(x), times, axis=0) for x in (given.proba, given.embeddings))
    return replace(given, proba=proba, embeddings=rows)


@pytest.mark.parametrize("labels", [8, 30], ids=["few labels", "quotas"])
@pytest.mark.parametrize("budget", [40, 100])
def test_every_image_is_picked_once_before_any_copy(labels: int, budget: int) -> None:
    given, counts = make_pool(0, size=100, labels=labels)
    batch = make("boundary", balance="auto").select(copied(given, 100), budget, counts=counts)
    assert len(set((batch.indices // 100).tolist())) == budget


@pytest.mark.parametrize("labels", [8, 30], ids=["few labels", "quotas"])
def test_copies_fill_what_is_left_when_every_image_is_picked(labels: int) -> None:
    given, counts = make_pool(0, size=20, labels=labels)
    batch = make("boundary", balance="auto").select(copied(given, 30), 50, counts=counts)
    assert len(set(batch.indices.tolist())) == 50
    assert len(set((batch.indices // 30).tolist())) == 20


@pytest.mark.parametrize("seed", range(3))
def test_a_pool_of_copies_is_certified(seed: int) -> None:
    given, counts = make_pool(seed, size=100)
    assert make("boundary", balance="auto").select(copied(given, 100), 40, counts=counts).gap < 1e-3


@pytest.mark.parametrize("seed", range(3))
def test_with_few_labels_copies_do_not_loosen_the_certificate(seed: int) -> None:
    given, counts = make_pool(seed, size=100, labels=8)
    once, often = (make("boundary", balance=0).select(copied(given, times), 12, counts=counts) for times in (1, 100))
    assert 0 <= once.gap < 0.02
    assert 0 <= often.gap < once.gap + 0.005  # copies make common classes commoner, so weights differ a little


def test_candidates_of_a_large_cold_start_cover_as_much_as_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    given, counts = make_pool(6, size=9_000, classes=12, labels=20)
    exact = make("boundary", balance=0).select(given, 60, counts=counts)
    monkeypatch.setattr(boundary, "HERDED", 200)
    sampled = make("boundary", balance=0).select(given, 60, counts=counts)
    assert sampled.indices.tolist() != exact.indices.tolist()
    assert sampled.informativeness > 0.98 * exact.informativeness
    assert -sampled.bound >= exact.informativeness  # it bounds the batches of all rows, not only of the candidates
    monkeypatch.setattr(boundary, "MOST_SCANNED", 0)
    assert -make("boundary", balance=0).select(given, 60, counts=counts).bound >= -sampled.bound
