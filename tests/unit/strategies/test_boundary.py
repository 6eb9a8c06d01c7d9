"""The default strategy against a literal transcription of its rule."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import tailwise
from tailwise.errors import BadInput
from tailwise.solve.coverage import unit_rows
from tailwise.solve.engines import rows_on
from tailwise.solve.source import open_proba
from tailwise.strategies import make
from tailwise.strategies.boundary import Filling, pool_coverage
from tailwise.strategies.kcenter import both_matrices
from tailwise.strategies.task import make_task


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
        filling = Filling(task, pool, pool_coverage(task, pool, unit_rows(labelled[:])), quota, 6, lam)
        filling.run()
    return np.bincount(filling.places, minlength=len(quota))


def test_quotas_are_exact_and_the_less_lambda_the_freer() -> None:
    given, counts = make_pool(3)
    quota = np.array([0, 2, 3, 8, 12])
    exact, strict, soft, free = (places_of(given, counts, lam, quota) for lam in (np.inf, 50.0, 0.02, 0.0))
    assert exact.tolist() == strict.tolist() == quota.tolist()
    assert free.sum() == soft.sum() == 25
    assert 0 < np.abs(soft - quota).sum() < np.abs(free - quota).sum()


def test_files_and_shards_give_the_same_batch(tmp_path: Path) -> None:
    given, counts = make_pool(4)
    paths = {}
    for name in ("proba", "embeddings", "labelled_embeddings"):
        paths[name] = tmp_path / f"{name}.npy"
        np.save(paths[name], getattr(given, name))
    batch = make("boundary", balance="auto").select(given, 20, counts=counts)
    again = make("boundary", balance="auto", shards=3).select(tailwise.Predictions(**paths), 20, counts=counts)
    assert again.indices.tolist() == batch.indices.tolist()


def test_a_sparse_softmax_is_rejected_with_a_reason() -> None:
    given, counts = make_pool(5)
    proba = np.asarray(given.proba)
    classes = np.argsort(-proba, axis=1)[:, :3]
    top = tailwise.TopK(np.take_along_axis(proba, classes, axis=1), classes, 5)
    with pytest.raises(BadInput, match="give the whole softmax"):
        make("boundary", balance="auto").select(replace(given, proba=top), 20, counts=counts)


def test_copies_do_not_fill_a_batch() -> None:
    given, counts = make_pool(0, size=100)
    copied = tailwise.Predictions(
        np.repeat(np.asarray(given.proba), 20, axis=0),
        embeddings=np.repeat(np.asarray(given.embeddings), 20, axis=0),
        labelled_embeddings=given.labelled_embeddings,
    )
    batch = make("boundary", balance="auto").select(copied, 40, counts=counts)
    assert len(set((batch.indices // 20).tolist())) >= 38
