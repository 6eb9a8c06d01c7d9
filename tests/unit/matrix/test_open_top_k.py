"""A sparse softmax is solved like a whole one; its certificate holds for every softmax that could be behind it."""

from __future__ import annotations

import pickle
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

import tailwise
from tailwise import TopK
from tailwise.errors import BadFile, BadInput, BadProbabilities
from tailwise.score import entropy
from tailwise.types import Float64Array


def softmax_rows(size: int, classes: int, seed: int, spread: float = 0.5) -> Float64Array:
    return np.random.default_rng(seed).dirichlet(np.full(classes, spread), size=size)


def concentrated(sparse: TopK, rng: np.random.Generator) -> Float64Array:
    """A softmax that keeps the same as `sparse`, its remainder on as few random classes as can hold it."""
    dense = np.zeros(sparse.shape)
    for row in range(len(sparse)):
        kept, limit = sparse.classes[row], float(sparse.values[row].min())
        dense[row, kept] = sparse.values[row]
        left = max(0.0, 1.0 - float(dense[row].sum()))
        for cls in rng.permutation(np.setdiff1d(np.arange(sparse.shape[1]), kept)):
            dense[row, cls] = min(limit, left)
            left -= dense[row, cls]
    return dense


def best_value(proba: Float64Array, scores: Float64Array, budget: int, lam: float, omega: Float64Array) -> float:
    """The smallest objective over every batch."""
    batches = np.array(list(combinations(range(len(proba)), budget)))
    l1 = np.abs(omega - proba[batches].sum(axis=1)).sum(axis=1)
    return float((lam * l1 - scores[batches].sum(axis=1)).min())


@pytest.mark.parametrize("lam", [0.0, 0.3, 2.0])
@pytest.mark.parametrize("kept", [1, 3, 7, 8])
@pytest.mark.parametrize(("seed", "budget"), [(0, 4), (1, 4), (2, 4), (3, 13), (4, 13), (5, 13)])
def test_the_certificate_holds_for_every_softmax_that_keeps_the_same(
    seed: int, budget: int, kept: int, lam: float
) -> None:
    rng = np.random.default_rng(seed)
    dense = softmax_rows(13, 8, seed)
    sparse = TopK.of(dense, kept)
    batch = tailwise.select(sparse, budget, balance=lam, score="entropy")
    omega = np.full(8, budget / 8)
    for true in (dense, *(concentrated(sparse, rng) for _ in range(6))):
        scores = entropy(true)
        value = lam * np.abs(omega - true[batch.indices].sum(axis=0)).sum() - scores[batch.indices].sum()
        assert value <= batch.objective + batch.hidden + 1e-9
        assert best_value(true, scores, budget, lam, omega) >= batch.bound - 1e-9
    most = batch.objective + batch.hidden
    assert batch.gap == pytest.approx((most - batch.bound) / (batch.informativeness + lam * batch.l1), abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_pseudo_labels_are_known_of_a_sparse_softmax_but_not_their_entropies(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dense = softmax_rows(12, 6, seed, spread=2.0)
    sparse = TopK.of(dense, 3)
    chooser = tailwise.strategies.make("entropy-l1-pseudo-label", balance=0.7)
    batch = chooser.select(tailwise.Predictions(sparse), 4)
    for true in (dense, *(concentrated(sparse, rng) for _ in range(6))):
        one_hot, scores = np.eye(6)[true.argmax(axis=1)], entropy(true)
        omega = np.full(6, 4 / 6)
        value = 0.7 * np.abs(omega - one_hot[batch.indices].sum(axis=0)).sum() - scores[batch.indices].sum()
        assert value <= batch.objective + batch.hidden + 1e-9
        assert best_value(one_hot, scores, 4, 0.7, omega) >= batch.bound - 1e-9
    assert batch.hidden > 0.01
    assert batch.status == "best found"


def test_one_kept_but_all_is_the_whole_softmax() -> None:
    dense = softmax_rows(400, 6, seed=1).astype(np.float32)
    whole, sparse = (tailwise.select(proba, 40, balance=1.0, score="entropy") for proba in (dense, TopK.of(dense, 6)))
    assert sparse.hidden == pytest.approx(0.0, abs=1e-4)
    assert sparse.bound == pytest.approx(whole.bound, rel=1e-5)
    assert sparse.objective == pytest.approx(whole.objective, rel=whole.gap + 1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rows_products_and_the_kept_classes_are_those_of_the_even_softmax(dtype: type) -> None:
    dense = softmax_rows(50, 40, seed=2, spread=0.1).astype(dtype)
    sparse = TopK.of(dense, 5)
    rows = sparse[:].astype(np.float64)
    order = np.argsort(-dense.astype(np.float64), axis=1, kind="stable")[:, :5]
    for row in range(50):
        kept = dense[row, order[row]].astype(np.float64)
        even = max(0.0, 1 - kept.sum()) / 35
        meant = np.full(40, even)
        meant[order[row]] = kept
        np.testing.assert_allclose(np.sort(rows[row]), np.sort(meant), rtol=1e-6, atol=1e-7)
    y = np.random.default_rng(3).normal(size=40)
    np.testing.assert_allclose(sparse.times(slice(0, 50), y), rows @ y, atol=1e-6)


def test_what_is_hidden_is_reached_by_some_softmax() -> None:
    sparse, y = TopK.of(softmax_rows(200, 12, seed=4, spread=2.0), 3), np.random.default_rng(5).normal(size=12)
    even = sparse[:].astype(np.float64)
    most, l1 = sparse.most_hidden(slice(0, 200), y), sparse.hidden_l1(slice(0, 200))
    reached_y, reached_l1 = np.zeros(200), np.zeros(200)
    for seed in range(200):
        true = concentrated(sparse, np.random.default_rng(seed))
        reached_y = np.maximum(reached_y, (true - even) @ y)
        reached_l1 = np.maximum(reached_l1, np.abs(true - even).sum(axis=1))
    assert (reached_y <= most + 1e-9).all()
    np.testing.assert_allclose(reached_l1, l1, atol=1e-9)
    assert (
        np.median(reached_y / most) > 0.5
    )  # the kept classes are not left out of the largest y: a bound, not a maximum


def test_a_saved_sparse_softmax_is_mapped_again_and_travels_as_its_place(tmp_path: Path) -> None:
    sparse = TopK.of(softmax_rows(500, 30, seed=6).astype(np.float16), 4)
    sparse.save(tmp_path / "pool")
    opened = TopK.open(tmp_path / "pool")
    travelled = pickle.loads(pickle.dumps(opened))
    assert len(pickle.dumps(opened)) < 500
    assert np.array_equal(opened[10:20], sparse[10:20])
    assert np.array_equal(travelled[np.array([3, 499])], sparse[np.array([3, 499])])
    here, there = (tailwise.select(proba, 20, balance=0.5, score="entropy") for proba in (sparse, tmp_path / "pool"))
    assert here.indices.tolist() == there.indices.tolist()


def test_a_folder_that_lost_a_part_is_rejected(tmp_path: Path) -> None:
    TopK.of(softmax_rows(9, 5, seed=7), 2).save(tmp_path)
    (tmp_path / "classes.npy").unlink()
    with pytest.raises(BadFile, match="sparse softmax"):
        tailwise.select(tmp_path, 2, score="entropy")


def test_numbers_that_make_no_sparse_softmax_are_rejected() -> None:
    good = TopK.of(softmax_rows(9, 5, seed=8), 2)
    with pytest.raises(BadInput, match=r"two matrices .* of integers"):
        TopK(good.values, good.values, 5)
    with pytest.raises(BadInput, match="2 probabilities are kept of each row, but there are 1"):
        TopK(good.values, good.classes, 1)
    with pytest.raises(BadInput, match="asked to keep 6 of 5"):
        TopK.of(softmax_rows(3, 5, seed=0), 6)
    with pytest.raises(BadProbabilities, match="but there are 3"):
        tailwise.select(TopK(good.values, np.full((9, 2), 7), 3), 2, score="entropy")
    with pytest.raises(BadProbabilities, match="row 0 sums to"):
        tailwise.select(TopK(np.full((9, 2), 0.4), np.zeros((9, 2), dtype=int), 3), 2, score="entropy")
    with pytest.raises(BadInput, match="margins"):
        tailwise.select(TopK.of(softmax_rows(9, 5, seed=8), 1), 2, score="margin")


def test_the_largest_of_a_file_are_those_of_the_array(tmp_path: Path) -> None:
    dense = softmax_rows(50, 8, 0)
    np.save(tmp_path / "p.npy", dense)
    one, other = TopK.of(dense, 3), TopK.of(tmp_path / "p.npy", 3)
    assert np.array_equal(one.values, other.values)
    assert np.array_equal(one.classes, other.classes)
