"""Memory that is used again: each thread has its own, and what is too large is not kept."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np

from tailwise.matrix.blocks import widen
from tailwise.processes import Scratch
from tailwise.score import entropy


def test_threads_do_not_share_it() -> None:
    room, both = Scratch(), Barrier(2)

    def write(value: float) -> bool:
        mine = room.array((1_000,), np.float64)
        both.wait()
        mine[:] = value
        both.wait()
        return bool((mine == value).all())

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(write, [1.0, 2.0])) == [True, True]


def test_what_is_too_large_is_made_anew() -> None:
    room = Scratch(most_bytes=800)
    assert np.shares_memory(room.array((100,), np.float64), room.array((10, 20), np.float32))
    assert not np.shares_memory(room.array((101,), np.float64), room.array((101,), np.float64))


def test_an_answer_outlives_the_next_question() -> None:
    first, second = np.full((4, 3), 1 / 3), np.eye(4, 3)
    scores = entropy(first)
    entropy(second)
    np.testing.assert_allclose(scores, np.log(3), rtol=1e-12)


def test_a_block_that_is_widened_into_reused_memory_is_the_block() -> None:
    rng = np.random.default_rng(0)
    for shape in ((3, 5), (40, 7), (2, 2)):  # smaller than the one before, too
        half = rng.random(shape).astype(np.float16)
        np.testing.assert_array_equal(widen(half, reuse=True), widen(half))
        np.testing.assert_array_equal(widen(half, reuse=True), half.astype(np.float32))
    odd = np.array([[-0.0, 1.0], [np.inf, -2.0]], dtype=np.float16)
    np.testing.assert_array_equal(widen(odd, reuse=True), odd.astype(np.float32))
