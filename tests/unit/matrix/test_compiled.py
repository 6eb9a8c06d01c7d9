"""Compiled loops say what numpy says in float64, the same to the bit for any shards; without numba, numpy does it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tailwise
from tailwise.matrix import blocks, compiled
from tailwise.matrix.shards import LocalBackend, Rows, shard_bounds
from tailwise.score import entropy

DTYPES = (np.float16, np.float32, np.float64)
SHARDS_AND_THREADS = ((1, 1), (1, 2), (3, 2), (8, None))


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pool is large enough."""
    monkeypatch.setattr(blocks, "LEAST_ELEMENTS", 0)


def softmax_rows(size: int, classes: int, dtype: type, spread: float = 0.1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(classes, spread), size=size).astype(dtype)


def rows_in(array: np.ndarray, shards: int = 1, threads: int | None = None) -> Rows:
    return Rows(backend=LocalBackend(array, shard_bounds(*array.shape, shards), threads))


# -- what the loops compute ------------------------------------------------------------------------------------------


def test_every_half_that_may_be_a_probability_is_read_exactly() -> None:
    every = np.append(np.arange(0x7C00, dtype=np.uint16), np.uint16(0x8000)).view(np.float16)  # the last is −0.0
    found = np.empty(len(every))
    compiled.price(every[:, None], np.array([-1.0]), np.zeros(len(every)), found)
    assert np.array_equal(found, every.astype(np.float64))
    with np.errstate(over="ignore"):
        by_bits = [compiled.from_bits(bits) for bits in every.view(np.uint16)]
    assert np.array_equal(np.array(by_bits), every.astype(np.float32))


@given(
    st.sampled_from(DTYPES), st.integers(1, 300), st.floats(0.005, 5.0), st.sampled_from([0.0, 1e-3, 1.0, 1e6]),
    st.integers(0, 1000),
)  # fmt: skip
def test_a_price_is_that_in_float64(dtype: type, classes: int, spread: float, scale: float, seed: int) -> None:
    rng, block = np.random.default_rng(seed), softmax_rows(40, classes, dtype, spread, seed)
    y, cost, found = scale * rng.normal(size=classes), rng.normal(size=40), np.empty(40)
    compiled.price(block, y, cost, found)
    exact = cost - block.astype(np.longdouble) @ y.astype(np.longdouble)
    np.testing.assert_allclose(found, exact.astype(float), rtol=0, atol=1e-14 * max(1.0, np.abs(y).max()))


@given(st.integers(1, 300), st.floats(0.005, 5.0), st.integers(0, 1000))
def test_the_entropy_of_halves_is_that_in_float64(classes: int, spread: float, seed: int) -> None:
    block, found = softmax_rows(40, classes, np.float16, spread, seed), np.empty(40)
    assert compiled.minus_entropy(block, 0.1, found)
    np.testing.assert_allclose(found, -entropy(block.astype(np.float64)), rtol=1e-12, atol=1e-14)
    assert not np.signbit(found[found == 0]).any()


@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf, -0.1, -0.0, 0.9], ids=str)
def test_halves_that_are_no_probabilities_or_need_a_second_look_are_noticed(odd: float) -> None:
    block = np.full((300, 4), 0.25, dtype=np.float16)
    assert compiled.minus_entropy(block, 5e-3, np.empty(300))
    block[211, 2] = odd
    assert not compiled.minus_entropy(block, 5e-3, np.empty(300))


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_probabilities_are_counted_and_added_up(dtype: type) -> None:
    block = np.random.default_rng(3).choice([-0.0, 0.0, 0.25, 0.5, 0.75, 1.0], size=(300, 7)).astype(dtype)
    counts, sums = compiled.above(block, 0.5)
    assert counts.tolist() == (block > 0.5).sum(axis=0).tolist()
    assert sums.tolist() == np.where(block > 0.5, block, 0).astype(np.float64).sum(axis=0).tolist()


def test_a_processor_without_an_instruction_for_halves_gets_the_same_numbers(tmp_path: Path) -> None:
    block, y = softmax_rows(2_000, 30, np.float16), np.linspace(-1, 1, 30)
    np.savez(tmp_path / "given.npz", block=block, y=y)
    script = f"""
import numpy as np
from tailwise.matrix import compiled
given, found = np.load({str(tmp_path / "given.npz")!r}), np.empty(2_000)
assert not compiled._has_instruction()
compiled.price(given["block"], given["y"], np.zeros(2_000), found)
np.save({str(tmp_path / "found.npy")!r}, found)
"""
    run(script, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="", NUMBA_CACHE_DIR=str(tmp_path))
    np.testing.assert_allclose(np.load(tmp_path / "found.npy"), -(block.astype(np.float64) @ y), atol=1e-14)


# -- rows that are worked on by them ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_answer_the_same_bit_for_bit_for_any_number_of_shards_and_threads(dtype: type) -> None:
    array, y = softmax_rows(70_000, 31, dtype), np.linspace(-2, 1, 31)

    def answers(rows: Rows) -> list[np.ndarray]:
        costs, problems = rows.scan(entropy, 5e-3)
        assert problems == (0, [])
        exact, rough = rows.priced(costs, y), rows.priced(costs, y, roughly=True)
        return [one.values() for one in (costs, exact, rough, rows.priced_again(costs, 1.1 * y, exact, -0.4))]

    first = answers(rows_in(array, 1, 1))
    wide = array.astype(np.float64)
    np.testing.assert_allclose(first[0], -entropy(wide), rtol=2e-6, atol=1e-6)
    for found, at in zip(first[1:], (y, y, 1.1 * y), strict=True):  # rough ones and later ones are exact, too
        np.testing.assert_allclose(found, first[0] - wide @ at, atol=1e-13)
    for shards, threads in SHARDS_AND_THREADS:
        assert all(map(np.array_equal, answers(rows_in(array, shards, threads)), first))


@pytest.mark.usefixtures("always")
def test_rows_that_cannot_be_written_or_lie_column_by_column_are_read_all_the_same() -> None:
    array, y = softmax_rows(9_000, 20, np.float16), np.linspace(-1, 1, 20)
    frozen, by_columns = array.copy(), np.asfortranarray(array)
    frozen.flags.writeable = False
    unaligned = np.frombuffer(b"." + array.tobytes(), dtype=np.uint8)[1:].view(np.float16).reshape(array.shape)
    for given_array in (frozen, by_columns, unaligned):
        rows = rows_in(given_array)
        costs, _ = rows.scan(entropy, 5e-3)
        np.testing.assert_allclose(rows.priced(costs, y).values(), costs.values() - array.astype(float) @ y, atol=1e-13)


@pytest.mark.usefixtures("always")
@pytest.mark.parametrize("odd", [np.nan, np.inf, -0.1, 0.9], ids=str)
def test_bad_rows_are_named_as_without_the_loops(odd: float, monkeypatch: pytest.MonkeyPatch) -> None:
    array = softmax_rows(30_000, 40, np.float16, spread=1.0)
    array[20_000, 3] = odd
    _, found = rows_in(array, 2).scan(entropy, 5e-3)
    monkeypatch.setattr(blocks, "LEAST_ELEMENTS", np.inf)
    assert found == rows_in(array, 2).scan(entropy, 5e-3)[1]
    assert found[0] == 1
    assert found[1][0].startswith("row 20000 ")


@pytest.mark.parametrize("score", ["entropy", "margin"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_selection_is_as_good_and_as_certain_as_without_the_loops(
    dtype: type, score: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = softmax_rows(40_000, 12, dtype)
    np.save(tmp_path / "p.npy", array)
    plain = tailwise.select(array, 800, score=score, balance=0.5)
    monkeypatch.setattr(blocks, "LEAST_ELEMENTS", 0)
    for pool in (array, tmp_path / "p.npy"):
        found = tailwise.select(pool, 800, score=score, balance=0.5)
        assert found.gap <= 3e-4
        assert found.bound <= min(found.objective, plain.objective)
        assert found.bound == pytest.approx(plain.bound, rel=2e-6)


# -- where there are none --------------------------------------------------------------------------------------------

PRICE_WITHOUT = """
import numpy as np
from tailwise.matrix import blocks
from tailwise.matrix.shards import Rows
blocks.LEAST_ELEMENTS = 0
array, y = np.random.default_rng(0).dirichlet(np.ones(8), size=5_000).astype(np.float16), np.linspace(-1, 1, 8)
for _ in range(2):
    rows = Rows(array)
    assert blocks.compiled_loops() is None
    found = rows.priced(rows.hold(np.zeros(5_000)), y).values()
    np.testing.assert_allclose(found, -(array.astype(float) @ y), atol=1e-14)
"""


def run(script: str, **environment: str) -> str:
    """What a program says on standard error."""
    done = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | environment, check=True, capture_output=True, text=True
    )
    return done.stderr


def test_without_numba_numpy_does_it() -> None:
    assert run(f"import sys; sys.modules['numba'] = None\n{PRICE_WITHOUT}") == ""


def test_a_numba_that_cannot_be_used_is_reported_once() -> None:
    said = run(PRICE_WITHOUT, NUMBA_DISABLE_JIT="1")
    assert (
        said.count("numba is installed but cannot be used, so large pools take longer: NUMBA_DISABLE_JIT is set") == 1
    )


def test_a_numba_that_is_half_installed_is_reported_too() -> None:
    said = run(f"import sys; sys.modules['llvmlite'] = None\n{PRICE_WITHOUT}")
    assert said.count("numba is installed but cannot be used, so large pools take longer: ") == 1
    assert "llvmlite" in said


def test_a_sparse_softmax_never_loads_numba() -> None:
    script = """
import sys, numpy as np, tailwise
from tailwise.matrix import blocks
blocks.LEAST_ELEMENTS = 0
sparse = tailwise.TopK.of(np.random.default_rng(0).dirichlet(np.ones(9), size=300), 4)
tailwise.select(sparse, 20, balance=0.5)
print("numba" in sys.modules, file=sys.stderr)
"""
    assert run(script) == "False\n"


def test_small_pools_never_load_numba() -> None:
    script = """
import sys, numpy as np, tailwise
tailwise.select(np.random.default_rng(0).dirichlet(np.ones(5), size=300), 20, balance=0.5)
print("numba" in sys.modules, file=sys.stderr)
"""
    assert run(script) == "False\n"
